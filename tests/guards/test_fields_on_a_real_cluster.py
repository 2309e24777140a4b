"""Of the objects of others an account changes what its table lists: every other field is refused by the API server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for
from tests.guards.forbidden_acts import Schemas, changes
from tests.guards.scene import SHOP, Act, furnished, is_done, outcome, running, thief
from tools.guarded_fields import GUARDS
from tools.write_guards import tree

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]
Json = dict[str, Any]
ELSEWHERE = {
    ("topology.node.k8s.io", "noderesourcetopologies"),
    ("scheduling.koordinator.sh", "reservations/status"),  # test_second_steps has one
    ("", "pods/resize"),
}
"""Objects that the scene does not have; of a resize Kubernetes itself drops all but resources and resize policies."""
VERSIONS = {"apps": "v1", "autoscaling": "v2", "batch": "v1", "": "v1", "topology.node.k8s.io": "v1alpha1"}


@pytest.fixture(scope="module")
def schemas(control_plane: ControlPlane) -> Schemas:
    return Schemas(control_plane.api())


def path_of(group: str, resource: str, node: str) -> str:
    """Path of the object of the scene, with its subresource."""
    plural, _, part = resource.partition("/")
    root = f"/apis/{group}/{VERSIONS[group]}" if group else "/api/v1"
    where = f"{root}/nodes/{node}" if plural == "nodes" else f"{root}/namespaces/{SHOP}/{plural}/web"
    return f"{where}/{part}" if part else where


@pytest.mark.parametrize(
    ("guard", "group", "resource"),
    [(guard, *place) for guard in GUARDS for place in guard.resources if place not in ELSEWHERE],
    ids=lambda value: getattr(value, "name", value) or "core",
)
def test_no_field_outside_of_the_table_is_changed_with_a_stolen_token(
    control_plane: ControlPlane,
    fake_nodes: Callable[[int], list[str]],
    schemas: Schemas,
    guard: Any,
    group: str,
    resource: str,
) -> None:
    furnished(control_plane)
    admin, api = control_plane.api(), thief(control_plane, guard.account)
    (node,) = fake_nodes(1)
    path, part = path_of(group, resource, node), resource.partition("/")[2]
    if guard.when.startswith("!"):  # of pods that have a node
        path = path.replace("/web", f"/{running(admin, node)}")
    live = admin.get(path.removesuffix(f"/{part}") if part else path)
    assert tried(api, admin, path, live, schemas, tree(guard.fields)) >= 5


def tried(api: Api, admin: Api, path: str, live: Json, schemas: Schemas, allowed: Mapping[str, Any]) -> int:
    """How many of the forbidden changes a policy refused, after none was found that would be done."""
    probe = Act("a label", "PATCH", path, {"metadata": {"labels": {"stolen": "x"}}})
    wait_for("the policy", lambda: outcome(api, probe).by_policy)
    acts = [
        Act(title, "PATCH", path, body)
        for title, body in changes(live, schemas.of(live["apiVersion"], live["kind"]), allowed)
    ]
    answers = [(act, outcome(api, act)) for act in acts]
    assert [act.title for act, response in answers if response.status < 300 and is_done(api, admin, act)] == []
    assert {response.status for _, response in answers} <= {200, 400, 403, 422}
    return sum(response.by_policy for _, response in answers)


def test_the_policy_of_a_nodes_agent_holds_too(
    control_plane: ControlPlane, fake_nodes: Callable[[int], list[str]], schemas: Schemas
) -> None:
    """It is written by hand, as it compares with the node of the agent's token; a token without one does nothing."""
    furnished(control_plane)
    path = path_of("", "nodes", fake_nodes(1)[0])
    admin, api = control_plane.api(), thief(control_plane, "cotenant-enforcer")
    assert tried(api, admin, path, admin.get(path), schemas, {}) >= 8
