"""From pods to objects: names that repeat, what is given back, an autoscaler's floor that finds its way home."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import jsonpatch
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.intent import Address, Apply, Delete, Patch
from cotenant.base.kubernetes.pod_identity import PodIdentity
from cotenant.cli.cluster.installation.restoration import restoring_patch
from cotenant.scheduler_ext.reservations.model.plan import Plan, PlanOwner, PlanStatus, Span, WindowSource
from cotenant.scheduler_ext.reservations.model.reservation import Reservation
from cotenant.scheduler_ext.reservations.plans.preview import FreeNode, PreviewContext, pods_per_node, preview
from cotenant.scheduler_ext.reservations.plans.realise import (
    OwnerTemplate,
    amounts_per_pod,
    buffer,
    floor,
    floor_of,
    floor_pods,
    floor_taken_over,
    owner_of,
    reservations,
    restore,
)

SIX, EIGHT = 1_803_578_400.0, 1_803_585_600.0
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"nodeSelector": {"pool": "a"}, "containers": [{"name": "app", "env": [{"name": "SECRET", "value": "x"}]}]},
}
OWNER = OwnerTemplate(TEMPLATE, {"matchLabels": {"app": "web"}})
PLAN = Plan(
    "shop", "web", WindowSource.MANUAL, PlanOwner("Deployment", "web"), {"cpu": 500, "memory": 1 << 30}, 3,
    status=PlanStatus(window=Span(SIX, EIGHT)), per_pod_text={"cpu": "500m", "memory": "1Gi"},
)  # fmt: skip


def writes_and_deletes(want: int, existing: list[Reservation], until: float = EIGHT) -> tuple[list[str], list[str]]:
    """Names that are written, and names that are deleted."""
    intents = reservations(PLAN, want, until, OWNER, existing)
    return (
        [i.address.name for i in intents if isinstance(i, Apply)],
        [i.address.name for i in intents if isinstance(i, Delete)],
    )


def on_server(want: int, **status: Any) -> list[Reservation]:
    intents = reservations(PLAN, want, EIGHT, OWNER, [])
    return [Reservation.parse({**i.body, "status": status}) for i in intents if isinstance(i, Apply)]


def test_reservations_are_for_the_owners_pods_of_its_namespace_and_carry_nothing_secret() -> None:
    (first, *_) = reservations(PLAN, 3, EIGHT, OWNER, [])
    assert isinstance(first, Apply)
    reservation = Reservation.parse(first.body)
    assert reservation.size == {"cpu": 500, "memory": 1 << 30}
    assert reservation.expires_seconds == EIGHT
    assert reservation.owned_by(PodIdentity("shop", "web-1", labels={"app": "web"}))
    assert not reservation.owned_by(PodIdentity("other", "web-1", labels={"app": "web"}))
    assert reservation.template["spec"]["nodeSelector"] == {"pool": "a"}
    assert "SECRET" not in str(first.body)


KATA = {"spec": {**TEMPLATE["spec"], "runtimeClassName": "kata"}, "metadata": TEMPLATE["metadata"]}
OVERHEAD = {"cpu": "250m", "memory": "160Mi"}


def live_pod(created: str, runtime_class: str | None, overhead: dict[str, str] | None) -> dict[str, Any]:
    spec = {"runtimeClassName": runtime_class, "overhead": overhead}
    return {"metadata": {"creationTimestamp": created}, "spec": {k: v for k, v in spec.items() if v is not None}}


@pytest.mark.parametrize(
    ("template", "pods", "expected"),
    [
        (TEMPLATE, [], {}),
        (TEMPLATE, [live_pod("2027-02-25T10:00:00Z", None, None)], {}),
        (KATA, [live_pod("2027-02-25T10:00:00Z", "kata", OVERHEAD)], OVERHEAD),
        # a class without an overhead
        (KATA, [live_pod("2027-02-25T10:00:00Z", "kata", None)], {}),
        # the youngest pod knows what admission adds now
        (
            KATA,
            [live_pod("2027-02-25T11:00:00Z", "kata", OVERHEAD), live_pod("2027-02-25T10:00:00Z", "kata", None)],
            OVERHEAD,
        ),
        # no pod of the class that the template names now
        (KATA, [], None),
        (KATA, [live_pod("2027-02-25T10:00:00Z", "gvisor", OVERHEAD)], None),
        # a class that a webhook chose
        (TEMPLATE, [live_pod("2027-02-25T10:00:00Z", "kata", OVERHEAD)], OVERHEAD),
        # a template that says it itself
        ({"spec": {**KATA["spec"], "overhead": OVERHEAD}}, [], OVERHEAD),
    ],
)
def test_the_overhead_of_a_runtime_class_is_read_from_a_pod(
    template: dict[str, Any], pods: list[dict[str, Any]], expected: dict[str, str] | None
) -> None:
    assert owner_of(template, OWNER.selector, pods).overhead == expected


def test_capacity_for_a_pod_has_room_for_the_overhead_of_its_runtime_class() -> None:
    owner = owner_of(KATA, OWNER.selector, [live_pod("2027-02-25T10:00:00Z", "kata", OVERHEAD)])
    plan = replace(PLAN, per_pod={"cpu": 1000}, per_pod_text={"cpu": "1"})
    (first, *_) = reservations(plan, 1, EIGHT, owner, [])
    assert isinstance(first, Apply)
    # what the scheduler counts for a pod: its containers' requests and the overhead, of memory too
    meant = {"cpu": 1250, "memory": 160 << 20}
    assert Reservation.parse(first.body).size == meant == amounts_per_pod(plan, owner)
    # without a pod that tells it, the request alone is held
    unknown = owner_of(KATA, OWNER.selector, [])
    (first, *_) = reservations(plan, 1, EIGHT, unknown, [])
    assert isinstance(first, Apply)
    assert Reservation.parse(first.body).size == {"cpu": 1000} == amounts_per_pod(plan, unknown)


@pytest.mark.parametrize(
    ("pod_fields", "millicores"),
    [
        ({"runtimeClassName": "kata"}, 1250),
        ({"runtimeClassName": "kata", "overhead": {"cpu": "50m"}}, 1050),
        ({"runtimeClassName": "gvisor"}, 1000),
        ({}, 1000),
    ],
)
def test_a_template_of_the_plan_has_the_overhead_of_the_same_class_alone(
    pod_fields: dict[str, Any], millicores: int
) -> None:
    owner = replace(OWNER, template=KATA, overhead=OVERHEAD)
    containers = [{"name": "app", "resources": {"requests": {"cpu": "1"}}}]
    plan = replace(PLAN, template={"spec": {"containers": containers, **pod_fields}})
    (first, *_) = reservations(plan, 1, EIGHT, owner, [])
    assert isinstance(first, Apply)
    assert Reservation.parse(first.body).size["cpu"] == millicores


def test_saying_the_same_twice_writes_nothing_and_less_gives_back_what_nobody_uses() -> None:
    existing = on_server(3, phase="Available")
    assert writes_and_deletes(3, existing) == ([], [])
    assert writes_and_deletes(1, existing) == ([], sorted(r.name for r in existing[1:]))
    used = on_server(3, phase="Succeeded", currentOwners=[{"namespace": "shop", "name": "web-1"}])
    assert writes_and_deletes(0, used) == ([], [])


def test_an_extension_moves_the_end_of_what_still_holds() -> None:
    existing = on_server(2, phase="Available")
    written, deleted = writes_and_deletes(2, existing, until=EIGHT + 1800)
    assert (written, deleted) == ([r.name for r in existing], [])


def scaler(least: int | None, most: int = 10, note: str = "") -> dict[str, Any]:
    meta: dict[str, Any] = {"name": "web", "resourceVersion": "7"}
    if note:
        meta["annotations"] = {"cotenant.dev/plan-floor": note}
    return {"metadata": meta, "spec": {"minReplicas": least, "maxReplicas": most}}


def applied(autoscaler: dict[str, Any], intents: list[Any]) -> dict[str, Any]:
    """The autoscaler after the patches, by another implementation of RFC 6902."""
    result = deepcopy(autoscaler)
    for intent in intents:
        assert isinstance(intent, Patch)
        result = jsonpatch.apply_patch(result, [dict(op) for op in intent.operations])
    return result


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 8), st.integers(1, 30), st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_an_autoscalers_minimum_is_back_after_any_sequence_of_floors(least: int, room: int, wants: list[int]) -> None:
    autoscaler = scaler(least, least + room)
    for number, want in enumerate(wants):
        autoscaler = applied(autoscaler, floor(PLAN, want, autoscaler))
        # It never falls while the plan keeps it: the manager may lower it to the former one alone.
        assert autoscaler["spec"]["minReplicas"] == min(least + max(wants[: number + 1]), least + room)
        assert floor(PLAN, want, autoscaler) == []
    autoscaler = applied(autoscaler, floor(PLAN, 0, autoscaler))
    assert autoscaler["spec"]["minReplicas"] == least
    assert floor_of(autoscaler) is None


@pytest.mark.parametrize("theirs", [1, 2, 4, 8])
def test_a_minimum_that_somebody_set_meanwhile_is_left_alone(theirs: int) -> None:
    raised_scaler = applied(scaler(2), floor(PLAN, 3, scaler(2)))
    assert floor_taken_over(PLAN, raised_scaler) == "" and floor_pods(PLAN, raised_scaler) == (2, 3)
    raised_scaler["spec"]["minReplicas"] = theirs
    assert f"Somebody set minReplicas of web to {theirs}; the plan had set 5." == floor_taken_over(PLAN, raised_scaler)
    # Above its own minimum of 2, and of the 5 that the plan has asked for: none of 1 and 2, two of 4, three of 8.
    assert floor_pods(PLAN, raised_scaler) == (2, {1: 0, 2: 0, 4: 2, 8: 3}[theirs])
    for want in (1, 3, 9):
        assert floor(PLAN, want, raised_scaler) == []
    after = applied(raised_scaler, floor(PLAN, 0, raised_scaler))
    assert after["spec"]["minReplicas"] == theirs and floor_of(after) is None
    assert applied(raised_scaler, [restore(raised_scaler, "shop")]) == after


def test_uninstall_takes_back_what_a_plan_and_the_autopilot_below_it_have_raised() -> None:
    lent = scaler(4)
    lent["metadata"]["annotations"] = {"cotenant.dev/lent-floor": '{"plan": "autopilot", "original": 2, "floor": 4}'}
    both = applied(lent, floor(PLAN, 3, lent))
    assert both["spec"]["minReplicas"] == 7
    address = Address("autoscaling/v2", "horizontalpodautoscalers", "web", "shop")
    for autoscaler in (lent, both):
        restored = applied(autoscaler, [restoring_patch(address, autoscaler)])
        assert (restored["spec"]["minReplicas"], restored["metadata"]["annotations"]) == (2, {})
    # once the plan is over, what is lent stands there again
    assert applied(both, floor(PLAN, 0, both))["spec"]["minReplicas"] == 4


def test_two_plans_do_not_fight_for_one_autoscaler() -> None:
    raised_scaler = applied(scaler(2), floor(PLAN, 3, scaler(2)))
    other = replace(PLAN, name="other")
    assert floor(other, 0, raised_scaler) == []
    with pytest.raises(UsageError, match=r"plan shop\.web"):
        floor(other, 1, raised_scaler)


def test_a_buffer_says_how_many_more_of_the_workload_and_goes_with_its_plan() -> None:
    (made_,) = buffer(PLAN, 3, "v1beta1", None)
    assert isinstance(made_, Apply)
    assert made_.body["spec"] == {
        "scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"},
        "replicas": 3,
    }
    assert buffer(PLAN, 3, "v1beta1", made_.body) == []
    assert isinstance(buffer(PLAN, 0, "v1beta1", made_.body)[0], Delete)


def test_a_preview_says_where_the_pods_fit_and_what_that_displaces() -> None:
    nodes = [
        FreeNode("a", {"cpu": 1200, "memory": 8 << 30}, batch_millicores=300),
        FreeNode("b", {"cpu": 600, "memory": 8 << 30}),
    ]
    plan_preview = preview(PLAN, Span(SIX, EIGHT), PreviewContext(nodes, {"cpu": 2000}, 0.1))
    # a: 1200 -> 700 -> 200; b: 600 -> 100: two pods on a, one on b.
    assert plan_preview.nodes == (("a", 2), ("b", 1))
    assert (plan_preview.fits, plan_preview.quota_left) == (True, {"cpu": 500})
    # Batch work of 0.3 cores on a for two hours; three pods of half a core for two hours at 0.1.
    assert plan_preview.displaced_core_hours == pytest.approx(0.6)
    assert plan_preview.reserved_cost == pytest.approx(0.3)


def test_pods_that_fit_nowhere_are_counted() -> None:
    assert pods_per_node(
        {"cpu": 500}, 3, [FreeNode("a", {"cpu": 700}), FreeNode("b", {"cpu": 900}, schedulable=False)]
    ).tolist() == [1, 0]


def test_one_that_was_used_is_replaced_under_a_number_of_its_own() -> None:
    used = on_server(2, phase="Succeeded", currentOwners=[{"namespace": "shop", "name": "web-1"}])
    written, deleted = writes_and_deletes(1, used)
    assert deleted == []
    assert len(written) == 1 and not {reservation.name for reservation in used} & set(written)


def test_free_ones_of_an_earlier_occurrence_serve_the_present_one() -> None:
    existing = on_server(2, phase="Available")
    later = replace(PLAN, status=PlanStatus(window=Span(EIGHT, EIGHT + 3600)))
    assert reservations(later, 2, EIGHT, OWNER, existing) == []


def test_of_too_many_those_without_a_node_go_first() -> None:
    waiting, standing = on_server(2, phase="Pending")[0], on_server(2, phase="Available")[1]
    assert writes_and_deletes(1, [waiting, standing]) == ([], [waiting.name])
