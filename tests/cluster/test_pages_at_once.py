"""All servers at once, on their default ports, in one cluster; and the commands of the pages beside them, as printed.

Each line is looked up on its page, so that a page that changes changes what is run. Objects that pages name as examples
(shop/web, research/train-0, node-07) are there under these names.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fake_nodes import create_nodes
from tests.cluster.shell import Shell, environment_of
from tests.cluster.waiting import wait_for
from tests.support.documented import PAGES, ROOT, blocks, commands

INSTALLED: Final = (
    ("getting-started.md", "cotenant install --apply"),
    ("extender.md", "cotenant serve extender --make-certs ./pki"),
    ("webhooks.md", "kubectl create namespace spark-job"),
    ("webhooks.md", "kubectl label namespace spark-job"),
    ("webhooks.md", "kubectl apply -f deploy/profiles/spark.yaml"),
    ("getting-started.md", "kubectl -n koordinator-system create configmap slo-controller-config"),
)
"""Page, beginning of a line: before any server runs."""
SERVERS: Final = {
    "demo": ("getting-started.md", "cotenant demo --cluster", " nodes, "),
    "manager": ("queues.md", "cotenant --set queues.enabled=true serve manager --write", ""),
    "webhook": ("queues.md", "cotenant serve webhook --install", "serving webhooks"),
    "extender": ("extender.md", "cotenant serve extender --host 0.0.0.0", ""),
    "dashboard": ("access.md", "cotenant dashboard --act", "http://127.0.0.1:8050"),
}
"""Server -> page, beginning of its line, what it prints when it serves; all run until the test ends."""
PARTIAL: Final = 4
"""Exit code of a look at nodes of which one, node-07, reports no usage."""
PORTS: Final = {"manager": 9464, "webhook": 9443, "extender": 9465, "dashboard": 8050}
"""Default ports of docs/metrics.md and docs/access.md."""
BESIDE: Final = (
    ("manager.md", "cotenant serve manager --once", 0),
    ("manager.md", "kubectl -n koordinator-system get configmap cotenant-status", 0),
    ("manager.md", "kubectl -n koordinator-system get events", 0),
    ("queues.md", "cotenant get quotas", 0),
    ("queues.md", "cotenant explain queue train-0", 0),
    ("queues.md", "cotenant get waiting", 0),
    ("queues.md", "cotenant explain pod train-0", 0),
    ("queues.md", "cotenant get gangs", 0),
    ("queues.md", "kubectl create clusterrole queue-viewer", 0),
    ("queues.md", "kubectl create clusterrolebinding queue-viewer", 0),
    ("extender.md", "kubectl -n kube-system create serviceaccount cotenant-scheduler", 0),
    ("extender.md", "kubectl create clusterrolebinding cotenant-kube-scheduler", 0),
    ("extender.md", "kubectl create clusterrolebinding cotenant-volume-scheduler", 0),
    ("extender.md", "kubectl -n kube-system create role cotenant-scheduler", 0),
    ("extender.md", "kubectl -n kube-system create rolebinding cotenant-scheduler", 0),
    ("extender.md", "cotenant explain pod web-7d4b9c-x2x9z", 0),
    ("no-webhook.md", "cotenant config profiles compile  ", 0),
    ("no-webhook.md", "cotenant config profiles compile deploy/profiles/spark.yaml", 0),
    ("node-policy.md", "cotenant explain node-slo node-07", 0),
    ("descheduler.md", "cotenant serve descheduler --once", PARTIAL),
    ("descheduler.md", "cotenant serve descheduler --once --mode observed", PARTIAL),
    ("descheduler.md", "cotenant serve descheduler --once -o json", PARTIAL),
    ("descheduler.md", "kubectl get podmigrationjobs", 0),
    ("plans.md", "cotenant reservations plan shop/Deployment/web", 0),
    ("plans.md", "cotenant reservations list -n shop", 0),
    ("plans.md", "cotenant reservations preview shop/", 0),
    ("plans.md", "cotenant reservations approve shop/", 0),
    ("plans.md", "kubectl get rplan,reservations -n shop", 0),
    ("reservations.md", "kubectl get reservations", 0),
    ("reservations.md", "kubectl get pods -n cotenant-reservations", 0),
    ("install-read-only.md", "kubectl apply -f deploy/rbac/reader.yaml", 0),
    ("install-read-only.md", "kubectl apply -f deploy/rbac/prometheus.yaml", 0),
    ("install-read-only.md", "kubectl auth can-i list pods", 0),
    ("install.md", "cotenant install  ", 0),
    ("access.md", "kubectl create serviceaccount cotenant-dashboard", 0),
    ("access.md", "kubectl create clusterrolebinding cotenant-asks", 0),
    ("access.md", "cotenant install --print --components applier", 0),
    ("access.md", "kubectl create rolebinding cotenant-applier -n shop", 0),
    ("access.md", "kubectl create rolebinding cotenant-ledger", 0),
    ("access.md", "kubectl create rolebinding shop-team", 0),
    ("autopilot.md", "cotenant install --components autopilot", 0),
    ("autopilot.md", "sed 's/namespace: default/namespace: shop/' deploy/examples/autopilotpolicy.yaml", 0),
    ("autopilot.md", "cotenant autopilot status", 0),
    ("autopilot.md", "cotenant autopilot preview -n shop  ", 0),
    ("autopilot.md", "cotenant autopilot preview -n shop --in-window", 0),
    ("autopilot.md", "cotenant autopilot preview -n shop -o wide", 0),
    ("autopilot.md", "cotenant autopilot report", 0),
    ("autopilot.md", "kubectl create rolebinding cotenant-autopilot", 0),
    ("autopilot.md", "cotenant autopilot act", 0),
    ("autopilot.md", "cotenant autopilot observe", 0),
    ("autopilot.md", "cotenant autopilot pause", 0),
    ("autopilot.md", "cotenant autopilot resume", 0),
    ("autopilot.md", "kubectl -n koordinator-system create configmap cotenant-autopilot", 0),
    ("descheduler.md", "cotenant serve descheduler --once --plugin HighNodeLoad", PARTIAL),
    ("descheduler.md", "cotenant install --components descheduler --apply", 0),
    ("devices.md", "kubectl apply -f deploy/rbac/devices.yaml", 0),
    ("devices.md", "kubectl get resourceslices", 0),
    ("devices.md", "kubectl get devices.scheduling.koordinator.sh", 0),
    ("extender.md", "cotenant install --components extender --apply", 0),
    ("queues.md", "cotenant install --components queues,webhooks --apply", 0),
    ("upgrade.md", "cotenant install  ", 0),
    ("upgrade.md", "cotenant install --apply", 0),
)
"""Page, beginning of a line, its exit code."""
MAY: Final = {"kubectl auth can-i list pods": "yes", "kubectl auth can-i list secrets": "no",
              "kubectl auth can-i patch deployments": "no"}  # fmt: skip
"""Beginning of a line of install-read-only.md -> what the reader's kubeconfig, made by the page's block, is told."""
AFTERWARDS: Final = (
    ("install-read-only.md", "kubectl delete clusterrolebinding,clusterrole cotenant-reader", 0),
    ("install-read-only.md", "kubectl -n cotenant delete serviceaccount cotenant-reader", 0),
    ("install-read-only.md", "kubectl delete -f deploy/rbac/prometheus.yaml", 0),
    ("install.md", "cotenant uninstall  ", 0),
    ("install.md", "cotenant uninstall --crds --yes", 0),
)
"""Once the servers have ended."""
EXAMPLES: Final = """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Namespace, metadata: {name: shop}}
- {apiVersion: v1, kind: Namespace, metadata: {name: research}}
- {apiVersion: v1, kind: Namespace, metadata: {name: monitoring}}
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: web, namespace: shop}
  spec:
    selector: {matchLabels: {app: web}}
    replicas: 1
    template:
      metadata: {labels: {app: web}}
      spec: {containers: [{name: web, image: "example.invalid/web:1", resources: {requests: {cpu: 100m}}}]}
- apiVersion: v1
  kind: Pod
  metadata: {name: web-7d4b9c-x2x9z, namespace: shop}
  spec: {containers: [{name: web, image: "example.invalid/web:1", resources: {requests: {cpu: 500}}}]}
- apiVersion: scheduling.sigs.k8s.io/v1alpha1
  kind: ElasticQuota
  metadata: {name: research, namespace: research}
  spec: {min: {cpu: 1}, max: {cpu: 2}}
- apiVersion: v1
  kind: Node
  metadata: {name: node-07, labels: {cotenant.dev/test: "true"}}
"""
TRAIN: Final = """
apiVersion: v1
kind: Pod
metadata: {name: train-0, namespace: research}
spec: {containers: [{name: train, image: "example.invalid/train:1", resources: {requests: {cpu: 4}}}]}
"""
"""Made when the webhook is there to hold it back: it asks for more than its quota has."""


def line_of(page: str, beginning: str) -> str:
    """The line of a page; of several that begin so, the shortest."""
    (path,) = (path for path in PAGES if path.name == page)
    lines = {command.line for command in commands(path) if f"{command.line} ".startswith(beginning)}
    assert lines, f"{page} shows no line that begins with {beginning!r}"
    return min(lines, key=len)


def block_of(page: str, beginning: str) -> str:
    """The whole block of a page that begins so."""
    (path,) = (path for path in PAGES if path.name == page)
    (text,) = (text for text in blocks(path) if text.startswith(beginning))
    return text


@pytest.fixture
def shell(control_plane: ControlPlane, tmp_path: Path) -> Iterator[tuple[Shell, Api]]:
    """A shell beside a copy of what pages name of the tree, on a cluster of its own: everything is taken out again."""
    del control_plane  # asked for so that this counts as a test of the cluster
    working, kube = tmp_path / "working", tmp_path / ".kube"
    for folder in (working, kube):
        folder.mkdir()
    (working / "deploy").symlink_to(ROOT / "deploy")
    with ControlPlane(tmp_path / "cluster") as plane:
        create_nodes(plane, 5)
        shutil.copy(plane.admin_kubeconfig, kube / "config")
        environment = environment_of(plane, tmp_path)
        yield Shell({**environment, "HOME": str(tmp_path)}, working, tmp_path), plane.api()


def typed(shell: Shell, lines: Iterable[tuple[str, str, int]]) -> None:
    """Run lines of pages in turn; AssertionError with what those printed that ended otherwise than they should."""
    wrong = []
    for page, beginning, code in lines:
        text = line_of(page, beginning)
        done = shell.run(text)
        if done.returncode != code:
            wrong.append(f"{page}: {text}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    assert not wrong, "\n".join(wrong)


def has_condition(api: Api, path: str) -> Callable[[], bool]:
    """Whether somebody has judged the pod."""
    return lambda: bool(api.get(path)["status"].get("conditions"))


def test_every_line_is_printed_on_its_page() -> None:
    shown = [*INSTALLED, *((page, text) for page, text, _ in (*SERVERS.values(), *BESIDE, *AFTERWARDS))]
    assert len({line_of(page, text) for page, text in shown}) > 40


@pytest.mark.soak
def test_all_servers_run_at_once_on_their_default_ports_and_the_pages_commands_beside_them(
    shell: tuple[Shell, Api],
) -> None:
    terminal, api = shell
    typed(terminal, ((page, beginning, 0) for page, beginning in INSTALLED))
    done = terminal.run(f"kubectl create -f - <<'EOF'{EXAMPLES}EOF")
    assert done.returncode == 0, done.stderr
    with ExitStack() as running:
        printed: dict[str, Callable[[], str]] = {}
        for name, (page, beginning, sign) in SERVERS.items():
            printed[name] = running.enter_context(terminal.keep(name, line_of(page, beginning)))
            wait_for(f"{name} serves", lambda text=printed[name], sign=sign: sign in text())
        for port in PORTS.values():
            listening = f"exec 3<>/dev/tcp/127.0.0.1/{port}"
            wait_for(f"port {port}", lambda text=listening: terminal.run(text).returncode == 0, every=0.5)
        status = "/api/v1/namespaces/koordinator-system/configmaps/cotenant-status"
        wait_for("the manager's status", lambda: printed["manager"]() and api.exists(status))
        done = terminal.run(f"kubectl create -f - <<'EOF'{TRAIN}EOF")
        assert done.returncode == 0, done.stderr
        for path in ("shop/pods/web-7d4b9c-x2x9z", "research/pods/train-0"):
            wait_for(f"a verdict on {path}", has_condition(api, f"/api/v1/namespaces/{path}"))
        typed(terminal, BESIDE)
        page = "install-read-only.md"
        script = "\n".join(f"{line_of(page, line).partition('#')[0]} || true" for line in MAY)
        done = terminal.run(f"{block_of(page, 'export READER')}\n{script}")
        assert done.returncode == 0, done.stderr
        assert [word for word in done.stdout.split() if word in ("yes", "no")] == list(MAY.values()), done.stdout
        assert all(text() is not None for text in printed.values())  # each fails the test where its server has ended
    typed(terminal, AFTERWARDS)
