"""A platform engineer's first hour: the commands of docs/first-hour.md as they stand, on a cluster of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import needing
from tests.cluster import second_scheduler as second
from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fake_nodes import NodeShape, create_nodes
from tests.cluster.process import free_port
from tests.cluster.shell import Shell, environment_of
from tests.cluster.waiting import wait_for
from tests.support.extent import full

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "first-hour.md"
STEP = re.compile(r"^<!-- step: (\S+) -->\n```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
NODES = 5
ANALYSIS_SECONDS = 480.0
"""Ceiling of the manager's whole analysis on a busy machine: unlike the other steps it computes all the time."""
FEATURES = {"colocation", "node-slo", "recommendations", "forecasts", "reservations", "plans", "load-taints"}
"""What runs without a Prometheus."""
BATCH = "kubernetes.io/batch-cpu"
DEMO = "cotenant-demo-"
"""How the names of the demo's namespaces begin."""
OWNERS = ("ReplicaSet", "StatefulSet", "DaemonSet")


@dataclass(frozen=True)
class Terminal:
    """Where the page's commands are typed."""

    steps: Mapping[str, str]
    shell: Shell
    folder: Path
    plane: ControlPlane

    @property
    def api(self) -> Api:
        """The administrator's, for assertions."""
        return self.plane.api()

    def type(self, step: str) -> str:
        """Run a step to its end; what it printed. Any command that fails fails the test."""
        done = self.shell.run(self.steps[step])
        assert done.returncode == 0, f"{step}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def keep(self, step: str) -> AbstractContextManager[Callable[[], str]]:
        """A step that runs until Ctrl-C; gives what it has printed so far. It must end well."""
        return self.shell.keep(step, self.steps[step])

    def nodes(self, name: str = BATCH) -> list[int]:
        """What each node that says so has of a resource."""
        amounts = (node["status"]["allocatable"].get(name) for node in self.api.items("/api/v1/nodes"))
        return [int(amount) for amount in amounts if amount is not None]

    def pods(self, prefix: str) -> list[dict[str, Any]]:
        items = self.api.items("/api/v1/namespaces/spark-job/pods")
        return [pod for pod in items if pod["metadata"]["name"].startswith(prefix)]


def steps_of(page: str, port: int) -> dict[str, str]:
    """The page's steps by name; the webhook's port is a free one, because tests may run side by side."""
    steps = {name: text.replace("9443", str(port)) for name, text in STEP.findall(page)}
    steps["webhook"] = steps["webhook"].rstrip() + f" --port {port}\n"
    return steps


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """A cluster of its own, because everything is taken out of it again; the session's one is for others."""
    needing.kubernetes()
    with ControlPlane(tmp_path / "cluster") as plane:
        create_nodes(plane, NODES, NodeShape(cpu="32", memory="128Gi"))
        environment = {**environment_of(plane, tmp_path), "COTENANT_TELEMETRY__HEALTH_PORT": "0"}
        shell = Shell(environment, ROOT, tmp_path)
        yield Terminal(steps_of(PAGE.read_text(), free_port()), shell, tmp_path, plane)


def placed(pods: list[dict[str, Any]]) -> bool:
    return len(pods) == 4 and all(pod["spec"].get("nodeName") for pod in pods)


def unschedulable(pod: dict[str, Any]) -> bool:
    conditions = [c for c in pod["status"].get("conditions", ()) if c["type"] == "PodScheduled"]
    return any(c["status"] == "False" and BATCH in c.get("message", "") for c in conditions)


def calls_us(terminal: Terminal) -> bool:
    """Whether a pod created now would be a batch pod (the API server takes a moment to read configurations)."""
    pod = {
        "metadata": {"name": "probe", "labels": {"spark-role": "executor"}},
        "spec": {"containers": [{"name": "x", "image": "x", "resources": {"requests": {"cpu": "1"}}}]},
    }
    account = "/api/v1/namespaces/spark-job/serviceaccounts/default"
    if not terminal.api.exists(account):
        return False
    live = terminal.api.create("/api/v1/namespaces/spark-job/pods", pod, dryRun="All")
    return live["metadata"]["labels"].get("koordinator.sh/qosClass") == "BE"


def published(terminal: Terminal) -> bool:
    forecasts = terminal.api.items("/apis/cotenant.dev/v1alpha1/usageforecasts")
    recommendations = terminal.api.items("/apis/analysis.koordinator.sh/v1alpha1/recommendations")
    return len(forecasts) == NODES and len(recommendations) > 0


def all_up(terminal: Terminal) -> bool:
    path = "/api/v1/namespaces/koordinator-system/configmaps/cotenant-status"
    features = terminal.api.get(path)["data"].values()
    return len(features) == len(FEATURES) and all(json.loads(text)["reason"] == "Up" for text in features)


def placed_by_second_scheduler(terminal: Terminal) -> None:
    """Every pod of the page finds a node through the extender, also after `kubectl rollout restart` of everything."""
    api = terminal.api
    with second.second_scheduler(terminal.plane, terminal.shell.environment, terminal.folder) as health:

        def settled() -> bool:
            return second.rolled_out(api, DEMO) and not second.refusals(api, DEMO)

        second.choose_scheduler(api, DEMO)
        for namespace in {body["metadata"]["namespace"] for body in second.controllers(api, DEMO)}:
            kinds = {body["kind"] for body in second.controllers(api, namespace)}
            terminal.plane.kubectl("-n", namespace, "rollout", "restart", ",".join(sorted(kinds)))
        await_placed(settled, lambda: second.refusals(api, DEMO))
        schedulers = {
            pod["spec"]["schedulerName"]
            for body in second.controllers(api, DEMO)
            for pod in api.items(f"/api/v1/namespaces/{body['metadata']['namespace']}/pods")
            if pod["metadata"].get("ownerReferences", [{}])[0].get("kind") in OWNERS
            and "deletionTimestamp" not in pod["metadata"]
        }
        assert schedulers == {second.NAME}
        spark = (ROOT / "docs" / "examples" / "spark-pi.yaml").read_text().replace("spark-pi", "spark-second")
        spark = spark.replace("spec:\n", f"spec:\n  schedulerName: {second.NAME}\n")
        terminal.plane.kubectl("-n", "spark-job", "create", "-f", "-", text=spark)
        await_placed(lambda: placed(terminal.pods("spark-second")), lambda: second.refusals(api, "spark-job"))
        assert second.answers(health) >= len(second.controllers(api, DEMO))


def await_placed(settled: Callable[[], bool], refused: Callable[[], dict[str, str]]) -> None:
    """Wait for a rollout; what the scheduler says of pods that wait is the message of a failure."""
    try:
        wait_for("every controller rolled out", settled, every=0.5)
    except AssertionError as error:
        raise AssertionError(f"{error}; refused: {refused()}") from error


def nothing_left(terminal: Terminal) -> list[str]:
    """Names of what should be gone."""
    api, kinds = terminal.api, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    admission, rbac = "/apis/admissionregistration.k8s.io/v1", "/apis/rbac.authorization.k8s.io/v1"
    paths = (
        kinds,
        "/api/v1/namespaces",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        f"{admission}/mutatingwebhookconfigurations",
        f"{admission}/validatingwebhookconfigurations",
        f"{rbac}/clusterroles",
        f"{rbac}/clusterrolebindings",
    )
    names = [item["metadata"]["name"] for path in paths for item in api.items(path)]
    ours = [name for name in names if re.search(r"cotenant|koord|spark|scheduling\.sigs", name)]
    usage = [str(path) for path in (terminal.folder / "data").rglob("*") if path.is_file() and path.name != ".lock"]
    return [*ours, *usage]


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("with_second_scheduler", [False, *full(True)])
def test_the_first_hour_goes_as_the_page_says(terminal: Terminal, with_second_scheduler: bool) -> None:
    capacity = [node["status"]["capacity"] for node in terminal.api.items("/api/v1/nodes")]
    with ExitStack() as running:
        terminal.type("install")
        demo = running.enter_context(terminal.keep("demo"))
        wait_for("usage of all nodes", lambda: f"  {NODES} nodes, " in demo())
        assert len(terminal.api.items("/apis/slo.koordinator.sh/v1alpha1/nodemetrics")) == NODES
        assert terminal.nodes() == []
        terminal.type("enable")
        manager = running.enter_context(terminal.keep("manager"))
        wait_for("batch-cpu on every node", lambda: manager() and len(terminal.nodes()) == NODES)
        text = terminal.type("nodes")
        assert sum(terminal.nodes()) > 0
        assert "millicores  capacity of the node" in text

        webhook = running.enter_context(terminal.keep("webhook"))
        wait_for("the webhook", lambda: "serving webhooks" in webhook())
        terminal.type("label")
        wait_for("the API server calls the webhook", lambda: calls_us(terminal))
        terminal.type("spark")
        wait_for("Spark's pods on nodes", lambda: placed(terminal.pods("spark-pi")))
        for pod in terminal.pods("spark-pi"):
            requests = pod["spec"]["containers"][0]["resources"]["requests"]
            assert (pod["spec"]["priorityClassName"], requests[BATCH]) == ("koord-batch", "1k")
            assert "cpu" not in requests
            assert pod["metadata"]["labels"]["koordinator.sh/qosClass"] == "BE"

        wait_for("Recommendations and forecasts", lambda: manager() and published(terminal), ANALYSIS_SECONDS)
        wait_for("every part of the manager up", lambda: manager() and all_up(terminal))
        read = terminal.type("read")
        assert "cotenant-demo-pay" in read
        kinds = ("nodemetric.slo.koordinator.sh", "usageforecast.cotenant.dev")
        assert [f"{kind}/node-{i}" for kind in kinds for i in range(NODES) if f"{kind}/node-{i}" not in read] == []
        assert "colocation: '{" in read

        if with_second_scheduler:
            placed_by_second_scheduler(terminal)

        terminal.type("shrink")
        wait_for("nothing is lent", lambda: manager() and set(terminal.nodes()) == {0})
        terminal.type("late")
        late = "the later pods are refused for want of batch-cpu"
        wait_for(late, lambda: sum(map(unschedulable, terminal.pods("spark-late"))) == 4)
        terminal.type("grow")
        wait_for("the later pods on nodes", lambda: placed(terminal.pods("spark-late")))

    terminal.type("remove")
    assert [node["status"]["capacity"] for node in terminal.api.items("/api/v1/nodes")] == capacity
    assert nothing_left(terminal) == []


def test_every_step_of_the_page_is_run() -> None:
    """A step that is added to the page has to be added above."""
    names = "install demo enable manager nodes webhook label spark read shrink late grow remove"
    assert list(steps_of(PAGE.read_text(), 1)) == names.split()
