"""Each role's process in its image on a real containerd: as its user, on a read-only root, without a capability.

The whole of it takes minutes of building, so it is of the full form alone.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import ssl
import subprocess
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from cotenant.base.version import __version__
from tests.cluster.accounts import account
from tests.cluster.control_plane import ControlPlane
from tests.cluster.process import Server, free_port
from tests.images.test_containerfile import ANALYTICS, locked
from tests.node.containerd import Containerd
from tools.check_images import excess, read_image

pytestmark = [pytest.mark.soak, pytest.mark.server]

NAMESPACE = "images"
"""Of containerd: beside the kubelet's, so that nothing else is seen here."""
CONTROL, NODE = (f"docker.io/cotenant/{name}:{__version__}" for name in ("cotenant", "cotenant-node"))
READY_SECONDS = 240.0
CAPABILITIES = (
    *("CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID", "SETFCAP", "SETPCAP"),
    *("NET_BIND_SERVICE", "SYS_CHROOT", "KILL", "AUDIT_WRITE"),
)
"""What a container has unless they are dropped."""


@dataclass(frozen=True, slots=True)
class Host:
    """A containerd that has both images."""

    runtime: Containerd
    archives: Mapping[str, Path]

    def command(
        self, image: str, arguments: Sequence[str], mounts: Sequence[str] = (), **environment: str
    ) -> list[str]:
        """A container on the host's network with a folder /tmp of its own; empty `words`: what the image starts."""
        name = f"{NAMESPACE}-{uuid.uuid4().hex[:8]}"
        options = ["--rm", "--read-only", "--net-host", "--cgroup", f"/{self.runtime.base}/{name}"]
        options += [word for capability in CAPABILITIES for word in ("--cap-drop", f"CAP_{capability}")]
        for mount in ("type=tmpfs,src=tmpfs,dst=/tmp,options=mode=1777", *mounts):
            options += ["--mount", mount]
        for key, value in {"HOME": "/tmp", **environment}.items():
            options += ["--env", f"{key}={value}"]
        return self.runtime.ctr("run", *options, image, name, *arguments, namespace=NAMESPACE)

    def run(self, image: str, *arguments: str, mounts: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        """A container to its end."""
        command = self.command(image, arguments, mounts)
        return subprocess.run(command, capture_output=True, text=True, timeout=READY_SECONDS, check=False)

    def status(self) -> dict[str, str]:
        """Lines of /proc/PID/status of the one container that runs, by name."""
        listed = self.runtime.ctr("tasks", "ls", namespace=NAMESPACE)
        rows = subprocess.run(listed, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
        (pid,) = [row.split()[1] for row in rows[1:]]
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    @contextlib.contextmanager
    def serving(self, log: Path, url: str, command: list[str]) -> Iterator[Server]:
        """A container until its health endpoint answers 200, ended by SIGTERM."""
        server = Server(log.stem, command, log)
        server.start()
        try:
            server.wait_until(lambda: _answers(url), READY_SECONDS)
            yield server
        finally:
            server.stop()


@pytest.fixture(scope="module")
def host(_debian_containerd: Containerd, image_archives: Mapping[str, Path]) -> Host:
    for archive in image_archives.values():
        _debian_containerd.import_images(archive, NAMESPACE)
    return Host(_debian_containerd, image_archives)


@pytest.mark.parametrize(("name", "lock"), [("cotenant", "demo.txt"), ("cotenant-node", "node.txt")])
def test_an_image_is_within_its_limit_and_lists_what_it_has(
    image_archives: Mapping[str, Path], name: str, lock: str
) -> None:
    image = read_image(image_archives[name])
    assert excess(image) == ""
    python = {purl.partition("@")[0] for purl in image.components if purl.startswith("pkg:pypi/")}
    left_out = {"setuptools", "wheel"}  # build wheels, and nothing else needs them
    assert {f"pkg:pypi/{package}" for package in locked(lock).keys() - left_out} == python
    ours = [component for component in image.sbom["components"] if component["name"] == "cotenant"]
    assert [component["version"] for component in ours] == [__version__]
    debian = {purl.partition("@")[0] for purl in image.components if purl.startswith("pkg:deb/debian/")}
    assert {"pkg:deb/debian/libc6", "pkg:deb/debian/libssl3", "pkg:deb/debian/python3.11-minimal"} <= debian
    assert [
        path for path in image.files if path.startswith(("bin/", "usr/bin/")) and path.endswith(("sh", "apt"))
    ] == []


def test_the_control_image_runs_as_somebody_else_than_root_and_cannot_write(host: Host) -> None:
    script = "import os; print(os.getuid(), os.access('/var/lib/cotenant', os.W_OK), os.access('/tmp', os.W_OK))"
    done = host.run(CONTROL, "python", "-c", script)
    assert (done.stdout.split(), done.returncode) == (["65532", "False", "True"], 0), done.stderr
    helped = host.run(CONTROL, "cotenant", "--help")
    assert helped.returncode == 0, helped.stderr
    assert "Operate on a cluster" in helped.stdout


def test_the_node_image_has_no_analytics_and_no_package_manager(host: Host) -> None:
    names = [name.replace("scikit-learn", "sklearn") for name in ANALYTICS]
    ours = (
        "cli",
        "dashboard.server",
        "forecasting.boosting",
        "recommender.strategies.cotenant",
        "scheduler_ext.extender.serve",
    )
    absent = [*names, "pip", *(f"cotenant.{name}" for name in ours)]
    script = f"import importlib.util as u, json; print(json.dumps([n for n in {absent} if u.find_spec(n)]))"
    done = host.run(NODE, "python", "-c", script)
    assert (json.loads(done.stdout or "null"), done.returncode) == ([], 0), done.stderr
    helped = host.run(NODE, "python", "-m", "cotenant.enforcer", "--help")
    assert helped.returncode == 0, helped.stderr
    assert "Run the cotenant agent of one node." in helped.stdout


def test_the_node_agent_answers_as_root_without_capabilities(host: Host, tmp_path: Path) -> None:
    port = str(free_port())
    (tmp_path / "pods.json").write_text('{"apiVersion": "v1", "kind": "PodList", "items": []}')
    mounts = [
        "type=bind,src=/sys/fs/cgroup,dst=/sys/fs/cgroup,options=rbind:rw",
        "type=bind,src=/proc,dst=/host/proc,options=rbind:ro",
        f"type=bind,src={tmp_path},dst=/var/lib/cotenant/enforcer,options=rbind:rw",
    ]
    environment = {
        "NODE_NAME": "here",
        "COTENANT_ENFORCER__PROC_ROOT": "/host/proc",
        "COTENANT_ENFORCER__PODS_FILE": "/var/lib/cotenant/enforcer/pods.json",
        "COTENANT_TELEMETRY__HEALTH_PORT": port,
    }
    command = host.command(NODE, (), mounts, **environment)
    with host.serving(tmp_path / "agent.log", f"http://127.0.0.1:{port}/livez", command):
        status = host.status()
    assert status["Uid"].split() == ["0"] * 4
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0


def test_the_dashboard_serves_pages_before_the_first_scan(host: Host, tmp_path: Path) -> None:
    port = str(free_port())
    command = host.command(CONTROL, ("cotenant", "dashboard", "--cluster", "prod", "--port", port))
    with host.serving(tmp_path / "dashboard.log", f"http://127.0.0.1:{port}/livez", command):
        (link,) = re.findall(r"open (http\S+)", (tmp_path / "dashboard.log").read_text())
        with urllib.request.urlopen(link, timeout=60) as page:
            assert b"_dash-config" in page.read()


def test_the_demo_is_no_part_of_the_image_and_says_how_to_get_it(host: Host) -> None:
    done = host.run(CONTROL, "cotenant", "demo")
    assert done.returncode != 0
    assert 'Run pip install "cotenant[demo]".' in done.stderr


def test_a_scan_says_what_it_could_not_reach(host: Host) -> None:
    done = host.run(CONTROL, "cotenant", "scan", "--prometheus", "http://127.0.0.1:9")
    assert done.returncode != 0
    assert "error:" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("role", ["manager", "webhook", "extender"])
def test_a_role_answers_its_health_endpoint(host: Host, control_plane: ControlPlane, tmp_path: Path, role: str) -> None:
    files = tmp_path / "files"
    files.mkdir()
    files.chmod(0o777)
    _write_kubeconfig(account(control_plane, f"cotenant-{role}"), files / "kubeconfig")
    mount = [f"type=bind,src={files},dst=/files,options=rbind:rw"]
    port, health = str(free_port()), str(free_port())
    arguments = {
        "manager": ["serve", "manager", "--port", health],
        "webhook": ["serve", "webhook", "--port", port, "--cert-dir", "/files/pki", "--self-signed"],
        "extender": ["serve", "extender", "--port", port, "--cert-dir", "/files/pki/server"],
    }[role]
    if role == "extender":
        url = f"https://127.0.0.1:{port}"
        issued = host.run(
            CONTROL, "cotenant", "serve", "extender", "--make-certs", "/files/pki", "--url", url, mounts=mount
        )
        assert issued.returncode == 0, issued.stderr
    command = host.command(
        CONTROL,
        ["cotenant", *arguments, "--kubeconfig", "/files/kubeconfig"],
        mount,
        COTENANT_TELEMETRY__HEALTH_PORT=health,
    )
    address = f"https://127.0.0.1:{port}" if role == "webhook" else f"http://127.0.0.1:{health}"
    with host.serving(tmp_path / f"{role}.log", f"{address}/livez", command):
        assert "0" not in host.status()["Uid"].split()


def _write_kubeconfig(source: Path, target: Path) -> None:
    """The same with the authority's certificate inside, for a user who cannot read the test's folders."""
    document = yaml.safe_load(source.read_text())
    cluster = document["clusters"][0]["cluster"]
    authority = Path(cluster.pop("certificate-authority")).read_bytes()
    cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    target.write_text(yaml.safe_dump(document))
    target.chmod(0o644)


def _answers(url: str) -> bool:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5, context=context) as response:
        return bool(response.status == 200)
    return False
