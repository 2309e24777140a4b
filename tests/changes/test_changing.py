"""From recommendations to one patch that applies whole or not at all, and back."""

from __future__ import annotations

import copy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.cluster import ContainerRole
from cotenant.base.errors import UsageError
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.changes.decide.field_changes import CHANGE_ANNOTATION, carries, holds_values, inverse, planned
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value
from tests.support.stored import patched

WEB = WorkloadRef("shop", "Deployment", "web")


def value(resource: Resource, field: Field, now: int | None, amount: int | None) -> Value:
    action = Action.UNSET if amount is None else Action.SET
    return Value(resource, field, now, amount, action, Reason.OK)


def recommendation(*values: Value, container: str = "app", role: ContainerRole = ContainerRole.MAIN) -> Recommendation:
    return Recommendation(ContainerRef(WEB, container), "cotenant", 2, values, 0, "digest", 0, role=role)


def live(resources: Any, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    containers = [{"name": "proxy", "resources": {}}, {"name": "app"} | ({"resources": resources} if resources else {})]
    meta = {"name": "web", "namespace": "shop", "uid": "u-1"} | ({"annotations": annotations} if annotations else {})
    return {"metadata": meta, "spec": {"template": {"spec": {"containers": containers}}}}


CPU_DOWN = recommendation(value(Resource.CPU, Field.REQUEST, 1000, 400))


def test_one_field_moves_and_the_rest_stays() -> None:
    body = live({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}, {"team": "a"})
    write = planned(body, [CPU_DOWN], "c1")
    assert write is not None
    patched_body = patched(body, write.operations)
    assert patched_body["spec"]["template"]["spec"]["containers"][1]["resources"] == {
        "requests": {"cpu": "400m", "memory": "1Gi"},
        "limits": {"memory": "2Gi"},
    }
    assert patched_body["metadata"]["annotations"] == {"team": "a", CHANGE_ANNOTATION: "c1"}
    assert carries(patched_body, write, "c1") and not carries(body, write, "c1")


@pytest.mark.parametrize(
    "changed",
    [
        lambda b: b["metadata"].update(uid="u-2"),
        lambda b: b["spec"]["template"]["spec"]["containers"].reverse(),
        lambda b: b["spec"]["template"]["spec"]["containers"][1]["resources"]["requests"].update(cpu="2"),
    ],
    ids=["another object of the name", "containers in another order", "somebody else's request"],
)
def test_what_was_not_looked_at_is_not_overwritten(changed: Any) -> None:
    body = live({"requests": {"cpu": "1"}})
    write = planned(body, [CPU_DOWN], "c1")
    assert write is not None
    other = copy.deepcopy(body)
    changed(other)
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        patched(other, write.operations)


def test_what_is_so_already_is_no_write() -> None:
    assert planned(live({"requests": {"cpu": "400m"}}), [CPU_DOWN], "c1") is None


def test_a_container_that_is_gone_or_injected_is_told() -> None:
    with pytest.raises(UsageError, match="has no container other any more"):
        planned(live({}), [recommendation(*CPU_DOWN.values, container="other")], "c1")
    with pytest.raises(UsageError, match="a webhook injects"):
        planned(live({}), [recommendation(*CPU_DOWN.values, role=ContainerRole.INJECTED)], "c1")


# The last ones the server writes in its own way: 10^9 bytes are "1G", 10^6 millicores "1k".
amounts = st.none() | st.integers(1, 10**6) | st.sampled_from([1000, 10**6, 10**9])


@given(
    requests=st.dictionaries(st.sampled_from(["cpu", "memory"]), st.sampled_from(["1", "250m", "2Gi"]), max_size=2),
    limits=st.dictionaries(st.sampled_from(["cpu", "memory"]), st.sampled_from(["4", "4Gi"]), max_size=2),
    proposed=st.lists(
        st.tuples(st.sampled_from(list(Resource)), st.sampled_from(list(Field)), amounts), min_size=1, max_size=4
    ),
    annotated=st.booleans(),
)
def test_taking_it_back_restores_what_stood_there(
    requests: dict[str, str],
    limits: dict[str, str],
    proposed: list[tuple[Resource, Field, int | None]],
    annotated: bool,
) -> None:
    resources = {key: part for key, part in (("requests", requests), ("limits", limits)) if part}
    body = live(resources, {"a": "b"} if annotated else None)
    values = {(r, f): value(r, f, 1, amount) for r, f, amount in proposed}
    write = planned(body, [recommendation(*values.values())], "c1")
    if write is None:
        return
    patched_body = patched(body, write.operations)
    back = patched(patched_body, inverse(write, patched_body, "c1-undone"))
    template, before = (b["spec"]["template"]["spec"]["containers"][1].get("resources") or {} for b in (back, body))
    assert template == before
    assert back["metadata"]["annotations"].pop(CHANGE_ANNOTATION) == "c1-undone"


def test_an_amount_that_the_server_writes_otherwise_is_still_what_was_applied() -> None:
    body = live({"requests": {"memory": "2Gi"}})
    write = planned(body, [recommendation(value(Resource.MEMORY, Field.REQUEST, 2 << 30, 10**9))], "c1")
    assert write is not None
    patched_body = patched(body, write.operations)
    resources = patched_body["spec"]["template"]["spec"]["containers"][1]["resources"]
    assert resources == {"requests": {"memory": "1G"}} and holds_values(patched_body, write)
    back = patched(patched_body, inverse(write, patched_body, "c1-undone"))
    assert back["spec"] == body["spec"] and not holds_values(back, write)
    # Beside amounts every difference counts.
    resources["claims"] = [{"name": "gpu"}]
    with pytest.raises(UsageError, match="no longer has the value that was applied"):
        inverse(write, patched_body, "c1-undone")


def test_taking_back_what_somebody_changed_since_is_refused() -> None:
    body = live({"requests": {"cpu": "1"}})
    write = planned(body, [CPU_DOWN], "c1")
    assert write is not None
    patched_body = patched(body, write.operations)
    patched_body["spec"]["template"]["spec"]["containers"][1]["resources"]["requests"]["cpu"] = "3"
    with pytest.raises(UsageError, match="no longer has the value that was applied"):
        inverse(write, patched_body, "c1-undone")
