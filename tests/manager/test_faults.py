"""What goes wrong around the manager: API server gone, a leader that slept, rights taken away."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cotenant.base.controllers.feature import ControllerCondition
from cotenant.base.identity import WorkloadRef
from cotenant.manager.run import Manager
from tests.cluster.accounts import token_of
from tests.cluster.control_plane import APISERVER, ControlPlane, Options
from tests.cluster.fake_nodes import NodeShape, create_nodes, delete_nodes
from tests.cluster.namespaces import create_namespace, unique_name
from tests.cluster.waiting import wait_for
from tests.manager.scene import BATCH_CPU, FORECASTS, RECOMMENDATIONS, SLO, Scene, deployed, results_of
from tests.support.extent import full
from tests.support.invariants import auditing, recording, violations

FEATURES = ("colocation", "node-slo", "recommendations", "forecasts", "load-taints", "status")
ROOT = Path(__file__).resolve().parents[2]
ROLES = [d for d in yaml.safe_load_all((ROOT / "deploy" / "rbac" / "manager.yaml").read_text()) if "rules" in d]
Start = Callable[..., Manager]
Nodes = Callable[..., list[str]]


@pytest.mark.parametrize("count", [120, *full(250)])
def test_it_converges_after_the_api_server_was_killed_during_its_writes(
    cluster: Scene, started: Start, fake_nodes: Nodes, count: int
) -> None:
    nodes = fake_nodes(count, cpu="16")
    cluster.report(nodes)
    cluster.configure(colocation_config={"enable": True})
    written = cluster.plane.requests("APPLY", "nodes")
    manager = started()  # as many nodes and NodeSLOs are due
    wait_for("the first writes", lambda: cluster.plane.requests("APPLY", "nodes") > written + 5)
    cluster.plane.restart_apiserver()
    cluster.api = cluster.plane.api()
    wait_for("batch resources on each node", lambda: cluster.lent(nodes), 60)
    wait_for("a NodeSLO for each node", lambda: set(nodes) <= _names(cluster), 60)
    wait_for(
        "every feature up", lambda: {s.condition for s in manager.board.states.values()} == {ControllerCondition.UP}, 60
    )
    # Other tests' nodes may be there; on ours nothing but one same amount stands.
    assert len({a[BATCH_CPU] for a in cluster.allocatable(nodes).values()}) == 1


def _names(cluster: Scene) -> set[str]:
    return {s["metadata"]["name"] for s in cluster.api.items(f"{SLO}/nodeslos")}


CREDENTIAL = "authentication.kubernetes.io/credential-id"


@pytest.fixture
def audited(control_plane: ControlPlane, tmp_path: Path) -> Iterator[tuple[ControlPlane, Path]]:
    """A control plane of its own that writes down who wrote what when; `control_plane` says whether there are any."""
    log, arguments = auditing(tmp_path)
    with ControlPlane(tmp_path / "plane", Options(extra={APISERVER: arguments})) as plane:
        yield plane, log


def written(log: Path, token: str) -> list[dict[str, Any]]:
    """Successful writes by a token besides tries for the Lease, in the order in which the API server saw them."""
    complete_lines, _, _ = log.read_text().rpartition("\n")  # the last line may still be being written
    entries = map(json.loads, complete_lines.splitlines())
    return [
        e
        for e in entries
        if token in e["user"].get("extra", {}).get(CREDENTIAL, [])
        and e["objectRef"]["resource"] != "leases"
        and e["responseStatus"]["code"] < 300
    ]


def test_a_leader_that_slept_past_its_lease_writes_nothing_when_it_wakes(
    audited: tuple[ControlPlane, Path], tmp_path: Path
) -> None:
    plane, log = audited
    cluster = Scene(plane, create_namespace(plane.api(), unique_name("leaders")), tmp_path)
    nodes = create_nodes(plane, 30, NodeShape(cpu="16"))
    cluster.report(nodes)
    assert cluster.account  # its rights are there
    files = [tmp_path / f"manager-{name}.kubeconfig" for name in "ab"]
    sleeper, other = (token_of(plane, "cotenant-manager", file) for file in files)
    with cluster.process(files[0]) as first:
        first.wait_state("colocation", "Up")
        with cluster.process(files[1]) as second:
            second.wait_state("colocation", "Standby")
            cluster.configure(colocation_config={"enable": True})
            wait_for("the leader's first writes", lambda: written(log, sleeper))
            first.pause()
            second.wait_state("colocation", "Up")
            wait_for("batch resources on each node", lambda: cluster.lent(nodes))
            slept = len(written(log, sleeper))
            lines = len(first.lines())
            first.resume()
            first.wait_state("colocation", "Standby", after=lines)
            # The sleeper is awake and stands by while there is work: amounts move, and only the other one writes them.
            cluster.report(nodes, system_cpu="4")
            wait_for("new amounts", lambda: {a[BATCH_CPU] for a in cluster.allocatable(nodes).values()} == {"5600"})
            assert len(written(log, sleeper)) == slept
            assert len(written(log, other)) >= len(nodes)
    assert violations(recording(log)) == ()


def test_it_ends_in_order_and_leaves_the_lease_free(cluster: Scene, fake_nodes: Nodes) -> None:
    fake_nodes(1)
    with cluster.process() as process:
        process.wait_state("colocation", "Up")
        assert process.terminate() == 0
    path = f"/apis/coordination.k8s.io/v1/namespaces/{cluster.namespace}/leases/cotenant-manager"
    assert not cluster.api.get(path)["spec"].get("holderIdentity")


def rules() -> list[tuple[str, int]]:
    """Every rule of the role and the cluster role."""
    return [(role["kind"], i) for role in ROLES for i in range(len(role["rules"]))]


def rule_names(kind: str, index: int) -> str:
    """Resources of a rule, and the names that it is bound to."""
    rule = next(role for role in ROLES if role["kind"] == kind)["rules"][index]
    return " ".join([*rule.get("resources", rule.get("nonResourceURLs", [])), *rule.get("resourceNames", [])])


def user_without(cluster: Scene, kind: str, index: int) -> Path:
    """Kubeconfig of a user with all rights of deploy/rbac/manager.yaml but one rule, in the cluster's namespace."""
    user, rbac = unique_name("manager"), "/apis/rbac.authorization.k8s.io/v1"
    for role in ROLES:
        other_rules = [r for i, r in enumerate(role["rules"]) if (role["kind"], i) != (kind, index)]
        inside = "" if role["kind"] == "ClusterRole" else f"/namespaces/{cluster.namespace}"
        plural = f"{role['kind'].lower()}s"
        cluster.api.create(f"{rbac}{inside}/{plural}", {"metadata": {"name": user}, "rules": other_rules})
        binding = {
            "metadata": {"name": user},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role["kind"], "name": user},
            "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
        }
        cluster.api.create(f"{rbac}{inside}/{plural[:-1]}bindings", binding)
    return cluster.plane.user(user)


LOST: dict[str, dict[str, ControllerCondition]] = {
    "pods nodes": dict.fromkeys(("colocation", "node-slo", "forecasts", "load-taints"), ControllerCondition.FORBIDDEN),
    "deployments statefulsets daemonsets replicasets": {"recommendations": ControllerCondition.DEGRADED},
    "nodes/status": {"colocation": ControllerCondition.FORBIDDEN},
    "nodemetrics nodeslos": dict.fromkeys(("colocation", "node-slo"), ControllerCondition.FORBIDDEN),
    "recommendations": {"recommendations": ControllerCondition.FORBIDDEN},
    "recommendations/status": {"recommendations": ControllerCondition.FORBIDDEN},
    "usageforecasts": {"forecasts": ControllerCondition.FORBIDDEN},
    "configmaps cotenant-status": {"status": ControllerCondition.FORBIDDEN},
    "configmaps slo-controller-config": dict.fromkeys(("colocation", "node-slo"), ControllerCondition.FORBIDDEN),
    "leases cotenant-manager": dict.fromkeys(FEATURES, ControllerCondition.STANDBY),
}
"""What the loss of a rule does to which feature; every other feature, and every other rule, stays as it is."""


@pytest.fixture(scope="module")
def furnished(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Scene, str]]:
    """A cluster with a node and a Deployment, for all the cases of a missing right."""
    namespace = create_namespace(control_plane.api(), unique_name("rights"))
    cluster = Scene(control_plane, namespace, tmp_path_factory.mktemp("rights"))
    (node,) = create_nodes(control_plane, 1, NodeShape(cpu="16", prefix=namespace))
    cluster.configure(colocation_config={"enable": True})
    deployed(cluster)
    yield cluster, node
    delete_nodes(control_plane, [node])
    cluster.api.delete(f"/api/v1/namespaces/{namespace}")


def unsettle(cluster: Scene, node: str, number: int) -> None:
    """Make a write of every kind due again."""
    recommendations = f"{RECOMMENDATIONS}/namespaces/{cluster.namespace}/recommendations"
    for path in (f"{recommendations}/deployment-web", f"{FORECASTS}/{node}", f"{SLO}/nodeslos/{node}"):
        if cluster.api.exists(path):
            cluster.api.delete(path)
    cluster.report([node], system_cpu=str(1 + 3 * (number % 2)))


@pytest.mark.parametrize(("kind", "index"), rules(), ids=str)
def test_a_missing_right_turns_off_what_needs_it_and_nothing_else(
    furnished: tuple[Scene, str], kind: str, index: int
) -> None:
    cluster, node = furnished
    unsettle(cluster, node, index)
    manager = cluster.manager(user_without(cluster, kind, index), features_off=[])
    manager.pipeline.accept(results_of(WorkloadRef(cluster.namespace, "Deployment", "web"), node))
    try:
        manager.settle(patience_seconds=5)
    finally:
        manager.stop()
    states = manager.board.states
    expected = dict.fromkeys(FEATURES, ControllerCondition.UP) | LOST.get(rule_names(kind, index), {})
    assert {name: state.condition for name, state in states.items()} == expected
    for name, condition in expected.items():
        if condition is ControllerCondition.FORBIDDEN:
            assert "apiGroups" in states[name].message  # it says which right to grant
    if expected["status"] is ControllerCondition.UP:
        assert cluster.state("colocation")["reason"] == expected["colocation"].value


def test_with_all_its_rights_everything_works(furnished: tuple[Scene, str]) -> None:
    cluster, node = furnished
    unsettle(cluster, node, 0)
    manager = cluster.manager(user_without(cluster, "none", 0), features_off=[])
    manager.pipeline.accept(results_of(WorkloadRef(cluster.namespace, "Deployment", "web"), node))
    try:
        manager.settle()
    finally:
        manager.stop()
    assert {state.condition for state in manager.board.states.values()} == {ControllerCondition.UP}
    assert cluster.lent([node])
