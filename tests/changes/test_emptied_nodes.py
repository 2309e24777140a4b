"""Nodes that a person approves to be emptied: the mark, the ledger, who may, and the way back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cotenant.base.errors import NoData, UsageError
from cotenant.base.people import NotAllowed, Person, Role
from cotenant.base.process.shipped_manifests import deploy
from cotenant.scheduler_ext.rebalance.model.move_service import FEATURE, MoveEvent
from cotenant_lab.simulation.api_server.rights import AccessRule, Account
from tests.support import moves
from tests.support.moves import APPROVER, COLD, HOT, VIEWER, MoveScene, narrowed
from tests.support.plans import person

pytestmark = pytest.mark.server
HIGH_NODE_LOAD = {"lowThresholds": {"cpu": 35, "memory": 50}, "highThresholds": {"cpu": 100, "memory": 100}}
"""The hot node carries all ten cores that are used; the cold one is under-used, and empty."""
NODES = "/api/v1/nodes"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[MoveScene]:
    with moves.embedded(tmp_path) as move_scene:
        move_scene.configure({"name": "HighNodeLoad", "args": HIGH_NODE_LOAD})
        yield move_scene


def taints(cluster: MoveScene) -> list[dict[str, str]]:
    return list(cluster.api.get(f"{NODES}/{COLD}").get("spec", {}).get("taints") or ())


def test_an_approved_node_is_marked_and_given_back_and_the_ledger_has_both(cluster: MoveScene) -> None:
    service = cluster.service()
    (row,) = service.emptying(VIEWER).emptying.rows()
    assert (row["node"], row["decision"], row["reason"]) == (COLD, "set", "under-used")
    assert [preview_node.error for preview_node in service.preview_nodes(APPROVER, [COLD])] == [""]
    assert (taints(cluster), cluster.rows()) == ([], []), "a dry run"
    (outcome,) = service.approve_nodes(APPROVER, [COLD], "sale is over")
    assert (outcome.pod, outcome.error) == (COLD, "")
    assert taints(cluster) == [{"key": "cotenant.dev/emptying", "value": "approved", "effect": "PreferNoSchedule"}]
    (row,) = service.emptying(VIEWER).emptying.rows()
    assert (row["decision"], row["by"]) == ("stays", "a person")
    service.withdraw_node(APPROVER, COLD, "needed")
    assert taints(cluster) == []
    text, approved, withdrawn = (f"emptying-{word}" for word in ("asked", "approved", "withdrawn"))
    assert cluster.events() == [(event, "ann", COLD) for event in (text, approved, text, withdrawn)]
    assert service.history(VIEWER)[0].event is MoveEvent.NODE_WITHDRAWN
    assert "sale is over" in service.history(VIEWER)[-1].message


def test_a_node_that_the_round_does_not_empty_is_refused_in_words(cluster: MoveScene) -> None:
    service = cluster.service()
    service.approve_nodes(APPROVER, [COLD])
    outcomes = service.approve_nodes(APPROVER, [COLD, HOT, "nowhere"])
    errors = [outcome.error for outcome in outcomes]
    assert ["already" in errors[0], "no longer planned" in errors[1], "no node nowhere" in errors[2]] == [True] * 3
    with pytest.raises(NoData, match="is not being emptied"):
        service.withdraw_node(APPROVER, HOT)
    assert [event for event, _, _ in cluster.events()][2:] == ["emptying-refused"] * 3


@pytest.mark.parametrize("who", [person(Role.VIEWER), person(Role.OWNER), narrowed(APPROVER, "shop")])
def test_a_node_is_emptied_by_approvers_of_all_namespaces_alone(cluster: MoveScene, who: Person) -> None:
    service = cluster.service()
    for act in (service.preview_nodes, service.approve_nodes):
        with pytest.raises(NotAllowed):
            act(who, [COLD])
    with pytest.raises(NotAllowed):
        service.withdraw_node(who, COLD)
    assert (taints(cluster), cluster.rows()) == ([], [])


def test_nothing_is_approved_while_nobody_empties_nodes(cluster: MoveScene) -> None:
    maps = "/api/v1/namespaces/koordinator-system/configmaps"
    body = cluster.api.get(f"{maps}/cotenant-status")
    cluster.api.delete(f"{maps}/cotenant-status")
    cluster.api.create(maps, {"metadata": {"name": "cotenant-status"}, "data": {FEATURE: body["data"][FEATURE]}})
    with pytest.raises(UsageError, match="descheduler is off"):
        cluster.service().approve_nodes(APPROVER, [COLD])
    assert (taints(cluster), cluster.rows()) == ([], [])


def test_the_shipped_roles_are_enough(cluster: MoveScene, tmp_path: Path) -> None:
    rules = [
        AccessRule(tuple(rule["verbs"]), tuple(rule["apiGroups"]), tuple(rule["resources"]))
        for body in yaml.safe_load_all((deploy() / "planner.yaml").read_text())
        if body["metadata"]["name"] in ("cotenant-emptier", "cotenant-rebalance-looks")
        for rule in body["rules"]
    ]
    token = cluster.server.account("emptier", Account("emptier", tuple(rules)))
    service = cluster.service(kubeconfig=str(cluster.server.write_kubeconfig(tmp_path / "emptier", token=token)))
    assert [approve_node.error for approve_node in service.approve_nodes(APPROVER, [COLD])] == [""]
    service.withdraw_node(APPROVER, COLD)
    assert taints(cluster) == []
