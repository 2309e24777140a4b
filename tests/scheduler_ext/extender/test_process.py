"""The extender's command line: light, configured, certified; `cotenant explain pod` beside a real API server."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cotenant.base.errors import UsageError
from cotenant.scheduler_ext.extender.serve.certificates import issue
from cotenant.scheduler_ext.extender.serve.scheduler_configuration import Reach, configuration
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fixtures import FakeNodes
from tests.scheduler_ext.extender.live import install_crds
from tests.support.command_line import cotenant

pytestmark = pytest.mark.server

ROOT = Path(__file__).resolve().parents[3]


def test_the_serving_process_is_light() -> None:
    code = "import scheduler_ext.extender.serve.server, scheduler_ext.extender.watch.watcher, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {"pandas", "sklearn", "statsmodels", "dash", "scipy", "pyarrow", "kubernetes", "typer"}


def test_the_printed_configuration_has_two_entries_and_always_an_authority() -> None:
    done = cotenant(
        "serve", "extender", "--print-config", "--url", "https://10.0.0.5:9445", "--scheduler-certs", "/etc/x/"
    )
    rules, binding = yaml.safe_load(done.stdout)["extenders"]
    tls = {"caFile": "/etc/x/ca.crt", "certFile": "/etc/x/tls.crt", "keyFile": "/etc/x/tls.key"}
    common = {"urlPrefix": "https://10.0.0.5:9445", "nodeCacheCapable": True, "enableHTTPS": True, "tlsConfig": tls}
    verbs = {"filterVerb": "filter", "preemptVerb": "preempt", "ignorable": True}
    # what every pod waits for, while the extender is frozen, is short; a bind writes to the API server first
    assert rules == {**common, **verbs, "httpTimeout": "300ms"}
    managed = [{"name": "cotenant.dev/bind", "ignoredByScheduler": True}]
    bind = {"bindVerb": "bind", "managedResources": managed, "ignorable": False}
    assert binding == {**common, **bind, "httpTimeout": "1000ms"}


def test_for_managed_pods_alone_one_entry_has_all_verbs_and_the_resources_that_we_give_out() -> None:
    argv = ("serve", "extender", "--print-config", "--url", "https://10.0.0.5:9445", "--managed-only")
    (entry,) = yaml.safe_load(cotenant(*argv).stdout)["extenders"]
    assert {"filterVerb": "filter", "preemptVerb": "preempt", "bindVerb": "bind"}.items() <= entry.items()
    assert entry["managedResources"] == [{"name": "cotenant.dev/bind", "ignoredByScheduler": True}]
    assert (entry["ignorable"], entry["httpTimeout"]) == (False, "1000ms")


@pytest.mark.parametrize(
    ("seconds", "times"), [(0.05, ["50ms", "1000ms"]), (1.0, ["1000ms"] * 2), (5.0, ["5000ms"] * 2)]
)
def test_a_bind_is_waited_for_at_least_a_second(seconds: float, times: list[str]) -> None:
    scheduler_config = configuration(Reach("http://127.0.0.1:1"), ExtenderSettings(http_timeout_seconds=seconds))
    assert [entry["httpTimeout"] for entry in scheduler_config["extenders"]] == times


def test_with_a_weight_the_scheduler_is_told_to_ask_for_points() -> None:
    rules, binding = configuration(Reach("http://127.0.0.1:1"), ExtenderSettings(weight=3))["extenders"]
    assert (rules["prioritizeVerb"], rules["weight"]) == ("prioritize", 3)
    assert not {"prioritizeVerb", "weight"} & binding.keys()


def test_a_second_scheduler_has_a_name_and_a_lease_of_its_own() -> None:
    scheduler_config = configuration(
        Reach("https://e:1", "ca", "crt", "key"), ExtenderSettings(), "cotenant", "/etc/kubeconfig"
    )
    assert scheduler_config["profiles"] == [{"schedulerName": "cotenant"}]
    assert scheduler_config["leaderElection"] == {"leaderElect": True, "resourceName": "cotenant"}
    assert scheduler_config["clientConnection"] == {"kubeconfig": "/etc/kubeconfig"}


def test_certificates_are_for_their_side_alone_and_keys_are_private(tmp_path: Path) -> None:
    paths = issue(tmp_path / "pki", "https://extender.cotenant.svc:9445")
    assert {p.name for p in paths} == {"ca.key", "ca.crt", "tls.crt", "tls.key"}
    assert all(p.stat().st_mode & 0o077 == 0 for p in paths if p.suffix == ".key")
    context = ssl.create_default_context(cafile=str(tmp_path / "pki" / "server" / "ca.crt"))
    context.load_cert_chain(tmp_path / "pki" / "server" / "tls.crt", tmp_path / "pki" / "server" / "tls.key")
    assert len(context.get_ca_certs()) == 1
    with pytest.raises(UsageError, match="exists"):
        issue(tmp_path / "pki", "https://extender.cotenant.svc:9445")
    with pytest.raises(UsageError, match="no host"):
        issue(tmp_path / "other", "extender:9445")


def test_words_that_make_no_sense_are_refused() -> None:
    assert "--url is missing" in cotenant("serve", "extender", "--print-config").stderr
    assert cotenant("explain", "pod").returncode == 2
    assert cotenant("explain", "pod", "p", "-f", "x.yaml").returncode == 2


def test_why_tries_a_template_on_every_node_and_creates_nothing(
    control_plane: ControlPlane, namespace: str, fake_nodes: FakeNodes, tmp_path: Path
) -> None:
    install_crds(control_plane)
    names = fake_nodes(3, cpu="4", labels={"test.example/why": namespace})
    taint = {"key": "test.example/gpu", "value": "", "effect": "NoSchedule"}
    control_plane.api().patch(f"/api/v1/nodes/{names[0]}", {"spec": {"taints": [taint]}})
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {
            "nodeSelector": {"test.example/why": namespace},
            "containers": [{"name": "m", "image": "x", "resources": {"requests": {"cpu": "3"}}}],
        },
    }
    file = tmp_path / "web.yaml"
    meta = {"name": "web", "namespace": namespace}
    file.write_text(yaml.safe_dump({"kind": "Deployment", "metadata": meta, "spec": {"template": template}}))
    kubeconfig = str(control_plane.admin_kubeconfig)
    before = len(control_plane.api().items(f"/api/v1/namespaces/{namespace}/pods"))
    done = cotenant("explain", "pod", "-f", str(file), "--kubeconfig", kubeconfig, "-o", "json")
    assert done.returncode == 0, done.stderr
    refusals = {(r["rule"], r["reason"]): r["nodes"] for r in json.loads(done.stdout)}
    assert refusals["taints", "taint test.example/gpu:NoSchedule is not tolerated"] == 1
    assert f"2 of {len(control_plane.api().items('/api/v1/nodes'))} nodes would accept {namespace}/web" in done.stderr
    assert len(control_plane.api().items(f"/api/v1/namespaces/{namespace}/pods")) == before
    assert "no running extender was found" in done.stderr
    with socket.create_server(("127.0.0.1", 0)) as listening:
        here = ("--set", f"extender.port={listening.getsockname()[1]}")
        done = cotenant(*here, "explain", "pod", "-f", str(file), "--kubeconfig", kubeconfig)
    assert done.returncode == 0, done.stderr
    assert "no running extender was found" not in done.stderr


def test_why_says_what_holds_a_real_pod_back(
    control_plane: ControlPlane, namespace: str, fake_nodes: FakeNodes
) -> None:
    install_crds(control_plane)
    names = fake_nodes(1)
    spec = {"containers": [{"name": "m", "image": "x"}], "schedulingGates": [{"name": "cotenant.dev/reservation"}]}
    control_plane.api().create(f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": "gated"}, "spec": spec})
    done = cotenant("explain", "pod", "gated", "-n", namespace, "--kubeconfig", str(control_plane.admin_kubeconfig))
    assert "is not scheduled before its scheduling gates are removed: cotenant.dev/reservation" in done.stderr
    api = control_plane.api()
    containers = {"containers": [{"name": "m", "image": "x"}], "nodeName": names[0]}
    api.create(f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": "bound"}, "spec": containers})
    placed = cotenant(
        "explain", "pod", "bound", "-n", namespace, "--kubeconfig", str(control_plane.admin_kubeconfig), "-o", "json"
    )
    assert (placed.returncode, json.loads(placed.stdout)) == (0, [])
    assert f"{namespace}/bound is already scheduled, on {names[0]}" in placed.stderr
    missing = cotenant("explain", "pod", f"{namespace}/nobody", "--kubeconfig", str(control_plane.admin_kubeconfig))
    assert missing.returncode == 1
    assert f"there is no pod nobody in namespace {namespace}" in missing.stderr
