"""A cluster with one real node and nothing in it, on which `helm install` starts our processes from this checkout.

The image that the chart names is a busybox with a command `cotenant`, which runs the checkout's Python: its folders are
mounted from the machine. There is no cluster network, so pods are on the host's. All else, objects, accounts, rights,
volume and kubelet, is as on any cluster.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from cotenant.base.version import __version__
from tests.cli.charts import rendered
from tests.cluster.control_plane import CONTROLLER_MANAGER, SCHEDULER, ControlPlane, Options
from tests.node.containerd import Containerd
from tests.node.image import write_image
from tests.node.kubelet import ASKING, Kubelet, own_address
from tests.support.access import Browser

ROOT = Path(__file__).resolve().parents[2]
IMAGE = f"docker.io/cotenant/cotenant:{__version__}"
PORTS = (8050, 9467)
"""Of the dashboard's pod and of the recorder's: the manifest's, on the machine itself."""
PAGE = f"http://127.0.0.1:{PORTS[0]}"
_WORKLOADS = {"recorder": "Deployment", "dashboard": "Deployment", "scan": "CronJob"}
_RUN = f"""#!/bin/sh
export PYTHONPATH={ROOT} PYTHONDONTWRITEBYTECODE=1
exec {sys.executable} -c 'from cotenant.cli.main import run; run()' "$@"
"""
_PYTHON = f"""#!/bin/sh
exec {sys.executable} "$@"
"""
Json = dict[str, Any]


def machine_folders() -> list[str]:
    """The folders of the machine that Python and the checkout are in, none inside another."""
    folders = {str(path) for path in (ROOT, Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve(), Path("/usr"))}
    return sorted(f for f in folders if not any(f.startswith(f"{other}/") for other in folders))


def values(plane: ControlPlane) -> Json:
    """What this node needs besides the chart's own values: its network, the API server's address and its folders."""
    address = urlsplit(plane.server)
    env = [
        {"name": "KUBERNETES_SERVICE_HOST", "value": address.hostname},
        {"name": "KUBERNETES_SERVICE_PORT", "value": str(address.port)},
    ]
    mine = [(f"machine-{number}", folder) for number, folder in enumerate(machine_folders())]
    volumes = [{"name": name, "hostPath": {"path": folder}} for name, folder in mine]
    mounts = [{"name": name, "mountPath": folder, "readOnly": True} for name, folder in mine]
    processes = {}
    for body in rendered({}):
        name = body["metadata"]["name"].removeprefix("cotenant-")
        if body["kind"] == _WORKLOADS.get(name):
            pod = body["spec"].get("jobTemplate", body)["spec"]["template"]["spec"]
            container = {"volumeMounts": [*pod["containers"][0]["volumeMounts"], *mounts]}
            more = {"hostNetwork": True, "volumes": [*pod["volumes"], *volumes]}
            processes[name] = {"env": env, "pod": more, "container": container}
    assert processes.keys() == _WORKLOADS.keys()
    return {"processes": processes}


@contextmanager
def bare_cluster(folder: Path, *, signed: bool) -> Iterator[ControlPlane]:
    """Yield a control plane with one node, a volume, and the image.

    signed: the kubelet has a certificate of the cluster's authority; else it signs its own, as many do.
    """
    require_free_ports()
    with (
        ControlPlane(folder / "plane", Options(frozenset({CONTROLLER_MANAGER, SCHEDULER}))) as plane,
        Containerd() as runtime,
    ):
        archive = folder / "image.tar"
        write_image(archive, IMAGE, {"cotenant": _RUN, "python": _PYTHON})
        runtime.import_images(archive)
        own = dict(ASKING)
        if signed:
            hosts = (own_address(), "127.0.0.1")
            certificate, key = plane.authority.issue("bare", "system:node:bare", hosts=hosts)
            own |= {"tlsCertFile": str(certificate), "tlsPrivateKeyFile": str(key)}
        with Kubelet(plane, runtime, runtime.socket, "bare", maxPods=30, **own) as node:
            store = node.folder / "store"
            store.mkdir()
            store.chmod(0o777)
            spec = {"capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"]}
            volume = {"metadata": {"name": "store"}, "spec": spec | {"hostPath": {"path": str(store)}}}
            with contextlib.closing(plane.api()) as api:
                api.create("/api/v1/persistentvolumes", volume)
            yield plane


def home() -> str:
    """The text of the dashboard's first page; empty while nobody answers."""
    callback = {
        "output": "page.children",
        "outputs": {"id": "page", "property": "children"},
        "inputs": [
            {"id": "url", "property": "pathname", "value": "/"},
            {"id": "redraw", "property": "data", "value": None},
        ],
        "state": [{"id": "url", "property": "search", "value": ""}],
        "changedPropIds": ["url.pathname"],
    }
    browser = Browser(PAGE)
    with contextlib.suppress(requests.RequestException):
        if browser.get("/", page=True).status_code == 200:
            return browser.post("/_dash-update-component", json=callback).text
    return ""


def require_free_ports() -> None:
    """AssertionError for a port that another process of this machine listens on: our pods would never start."""
    for port in PORTS:
        with socket.socket() as client:
            taken = client.connect_ex(("127.0.0.1", port)) == 0
        assert not taken, f"port {port} of this machine is taken, as by a `cotenant demo`: end it"


def state(plane: ControlPlane) -> str:
    """Pods, events and the newest logs, for who looks for a mistake."""
    pods = plane.kubectl("get", "pods", "-A", "-o", "wide")
    events = plane.kubectl("get", "events", "-A", "--sort-by=.lastTimestamp")
    files = sorted(
        Path(tempfile.gettempdir()).glob("ctd-*/kubelet-bare/logs/*/*/*.log"), key=lambda f: f.stat().st_mtime
    )
    logs = "\n".join(f"{file.parent.name}: {file.read_text()[-1500:]}" for file in files[-4:])
    return f"{pods}\n{events[-3000:]}\n{logs}"
