"""Beside Koordinator on a real API server: what its programs own is left to them, and nobody writes in turns.

Koordinator's manager is played by its field manager: it updates a Node's status under the name `koordinator-manager`,
as its client does. `docs/beside-koordinator.md` names the test of each part.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cotenant.base.controllers.feature import ControllerCondition
from cotenant.base.controllers.watched import watched_node
from cotenant.base.kubernetes.models.node import ManagedNodeWire
from cotenant.base.kubernetes.protocol import BATCH_CPU_POLICY_ANNOTATION
from cotenant.manager.run import Manager
from tests.cluster.api import ApiError, Json
from tests.cluster.waiting import wait_for
from tests.manager.scene import BATCH_CPU, BATCH_MEMORY, Scene

ROOT = Path(__file__).resolve().parents[2]
THEIRS = "koordinator-manager"
"""Field manager of Koordinator's manager: the first part of its client's user agent."""
THEIR_AMOUNTS = {
    BATCH_CPU: "1234",
    BATCH_MEMORY: "5Gi",
    "kubernetes.io/mid-cpu": "77",
    "kubernetes.io/mid-memory": "1Gi",
}
Start = Callable[..., Manager]
Nodes = Callable[..., list[str]]


def publish(cluster: Scene, node: str, amounts: dict[str, str] | None) -> None:
    """As Koordinator's manager: the whole status, with other amounts of batch; None takes them away.

    Who changed the node meanwhile, as controllers of taints do with a new one, is read again.
    """
    path = f"/api/v1/nodes/{node}/status"

    def published() -> bool:
        body = cluster.api.get(path)
        for part in ("capacity", "allocatable"):
            other_amounts = {k: v for k, v in body["status"][part].items() if k not in THEIR_AMOUNTS}
            body["status"][part] = {**other_amounts, **(amounts or {})}
        try:
            cluster.api.replace(path, body, fieldManager=THEIRS)
        except ApiError as error:
            assert error.status == 409, error
            return False
        return True

    wait_for("the status of the node is theirs", published)


def named_policy(cluster: Scene, node: str) -> str | None:
    metadata = cluster.api.get(f"/api/v1/nodes/{node}")["metadata"]
    policy: str | None = metadata.get("annotations", {}).get(BATCH_CPU_POLICY_ANNOTATION)
    return policy


def more_rounds(manager: Manager, count: int = 3) -> None:
    """Wait until the feature has decided some more times."""
    before = manager.rounds("colocation")
    wait_for("further decisions", lambda: manager.rounds("colocation") >= before + count)


def condition(cluster: Scene) -> Json:
    """The feature in the ConfigMap cotenant-status."""
    return cluster.state("colocation")


def test_amounts_that_koordinators_manager_publishes_are_left_to_it(
    cluster: Scene, started: Start, fake_nodes: Nodes
) -> None:
    theirs, ours = fake_nodes(2, cpu="16", memory="64Gi")
    publish(cluster, theirs, THEIR_AMOUNTS)
    cluster.report([theirs, ours])
    cluster.configure(colocation_config={"enable": True})
    manager = started()
    wait_for("our node lends", lambda: cluster.lent([ours]))
    wait_for("the status says so", lambda: THEIRS in condition(cluster).get("message", ""))
    assert condition(cluster)["reason"] == ControllerCondition.DEGRADED.value
    assert theirs in condition(cluster)["message"] and "manager.take_over" in condition(cluster)["message"]
    wait_for("an Event", lambda: cluster.events("NotOurs"))
    cluster.configure(colocation_config={"enable": False})  # of ours alone is withdrawn what is ours
    wait_for("our node lends no more", lambda: not cluster.lent([ours]))
    more_rounds(manager)
    assert cluster.allocatable([theirs])[theirs] == THEIR_AMOUNTS


def test_two_managers_do_not_write_in_turns_and_the_node_comes_back_when_one_lets_go(
    cluster: Scene, started: Start, fake_nodes: Nodes
) -> None:
    (node,) = fake_nodes(1, cpu="16", memory="64Gi")
    cluster.report([node])
    # without a forecast the amounts are those of policy `usage`
    cluster.configure(colocation_config={"enable": True, "cpuCalculatePolicy": "forecast"})
    manager = started()
    wait_for("we lend", lambda: cluster.allocatable([node])[node].get(BATCH_CPU) == "8600")
    assert named_policy(cluster, node) == "forecast"
    publish(cluster, node, THEIR_AMOUNTS)
    more_rounds(manager)
    assert cluster.allocatable([node])[node] == THEIR_AMOUNTS
    wait_for("their amounts not to bear our policy's name", lambda: named_policy(cluster, node) is None)
    publish(cluster, node, None)
    wait_for("we lend again", lambda: cluster.allocatable([node])[node].get(BATCH_CPU) == "8600")


def test_what_a_manager_that_is_gone_has_left_is_taken_over_when_it_is_named(
    cluster: Scene, started: Start, fake_nodes: Nodes
) -> None:
    (node,) = fake_nodes(1, cpu="16", memory="64Gi")
    publish(cluster, node, THEIR_AMOUNTS)
    cluster.report([node])
    cluster.configure(colocation_config={"enable": True})
    started(take_over=[THEIRS])
    wait_for("we lend", lambda: cluster.allocatable([node])[node].get(BATCH_CPU) == "8600")
    wait_for("the status", lambda: condition(cluster).get("reason") == ControllerCondition.UP.value)
    assert THEIRS not in condition(cluster)["message"]


@pytest.mark.parametrize(
    ("manager", "is_foreign"),
    [(THEIRS, True), ("cotenant-manager", False), ("kubelet", False), ("kubectl-edit", False),
     ("before-first-apply", False)],
)  # fmt: skip
def test_only_a_program_that_publishes_again_keeps_a_node(manager: str, is_foreign: bool) -> None:
    fields: dict[str, Any] = {"f:status": {"f:allocatable": {f"f:{BATCH_CPU}": {}}}}
    entries = [{"manager": manager, "fieldsV1": fields}, {"manager": "other", "fieldsV1": {"f:status": {}}}]
    wire = msgspec.json.decode(json.dumps({"metadata": {"name": "n1", "managedFields": entries}}), type=ManagedNodeWire)
    assert watched_node(wire).other_writers == ((manager,) if is_foreign else ())


def rows() -> list[list[str]]:
    """Cells of the matrix in docs/beside-koordinator.md."""
    text = (ROOT / "docs/beside-koordinator.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith("| ") and "`tests/" in line]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_each_row_of_the_matrix_names_tests_that_exist(row: list[str]) -> None:
    assert len(row) == 5
    names = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row[4])
    assert names
    for file, name in names:
        assert f"def {name}(" in (ROOT / file).read_text(), f"{file}::{name}"


def test_the_matrix_is_whole() -> None:
    assert len(rows()) >= 8
