"""Which pods their quota lets go, and what the others are told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cotenant.base.kubernetes.intent import Patch
from cotenant.base.kubernetes.pod_identity import PodIdentity, Reference
from cotenant.base.kubernetes.protocol import GANG_GATE, QUOTA_GATE, RESERVATION_GATE
from cotenant.base.kubernetes.quota_tree import TOTAL_ANNOTATION, QuotaNode
from cotenant.base.kubernetes.selector import LabelSelector
from cotenant.scheduler_ext.queues.model.gang import Gang
from cotenant.scheduler_ext.queues.model.queue_pod import QueuePod
from cotenant.scheduler_ext.queues.view import QuotaProfile
from cotenant.scheduler_ext.reservations.model.life_cycle import Phase
from cotenant.scheduler_ext.reservations.model.plan import PLAN_LABEL
from cotenant.scheduler_ext.reservations.model.reservation import Owner, Reservation, ReservationStatus
from tests.scheduler_ext.queues.quota_scene import (
    admitted,
    after,
    decided,
    names,
    node,
    pod,
    queue_view,
    quota,
    reasons,
)


def test_pods_are_let_go_while_they_fit_the_runtime() -> None:
    admission = admitted(
        queue_view([quota("a", 0, 4000)], [pod(f"p{i}", "a", 1500, created_seconds=i) for i in range(4)])
    )
    assert names(admission) == ["p0", "p1"]
    assert admission.admitted_pods[1].why == "quota a admits shop/p1 (cpu: 1500m used + 1500m requested <= 4 runtime)"
    assert reasons(admission)["p2"] == (
        "quota-exceeded",
        "quota a, cpu: 3 used + 1500m requested > 4 runtime, 500m missing",
    )
    assert reasons(admission)["p3"][0] == "quota-exceeded"


def test_the_order_is_priority_then_sub_priority_then_age() -> None:
    pods = [
        pod("young", "a", 1000, created_seconds=9),
        pod("old", "a", 1000, created_seconds=1),
        pod("sub", "a", 1000, created_seconds=9, sub_priority=1),
        pod("first", "a", 1000, created_seconds=9, priority=5),
    ]
    assert names(admitted(queue_view([quota("a", 0, 3000)], pods))) == ["first", "sub", "old"]


def test_what_was_let_go_counts_before_it_has_a_node_and_before_the_mirror_shows_it() -> None:
    view = queue_view([quota("a", 0, 2000)], [pod("p0", "a", 1500, created_seconds=1)])
    admission = admitted(view)
    newer = pod("urgent", "a", 1500, priority=9)
    bound_to_come = after(view, admission)
    assert names(admitted(replace(bound_to_come, pods=(*bound_to_come.pods, newer)))) == []
    stale = replace(view, pods=(*view.pods, newer), released=frozenset({"uid-p0"}))
    assert names(admitted(stale)) == [], "the mirror still shows the gate that an answer has taken away"
    assert names(admitted(replace(stale, released=frozenset()))) == ["urgent"]


def test_a_pod_ahead_holds_back_only_what_requests_the_resource_that_it_lacks() -> None:
    quotas = [QuotaNode("a", maximum={"cpu": 8000, "nvidia.com/gpu": 2})]
    pods = [
        pod("trains", "a", requests={"cpu": 1000, "nvidia.com/gpu": 1}, waits=False),
        pod("large", "a", requests={"cpu": 1000, "nvidia.com/gpu": 2}, priority=5),
        pod("small", "a", requests={"cpu": 1000, "nvidia.com/gpu": 1}),
        pod("plain", "a", 1000),
    ]
    nodes = (replace(node(8000), allocatable={"cpu": 8000, "nvidia.com/gpu": 2}),)
    admission = admitted(queue_view(quotas, pods, nodes=nodes))
    assert names(admission) == ["plain"]
    assert reasons(admission)["small"] == (
        "behind-in-quota",
        "shop/large is ahead in the queue of quota a and waits for nvidia.com/gpu",
    )


def test_a_pod_that_never_fits_is_told_so_and_holds_back_nobody() -> None:
    admission = admitted(
        queue_view([quota("a", 1000, 4000)], [pod("huge", "a", 5000, priority=9), pod("p", "a", 1000)])
    )
    assert names(admission) == ["p"]
    assert reasons(admission)["huge"] == ("above-quota-max", "5 of cpu is requested, but the max of quota a is 4")


def test_a_pod_that_may_not_be_preempted_stays_within_min() -> None:
    pods = [pod(f"p{i}", "a", 1000, preemptible=False, created_seconds=i) for i in range(3)]
    admission = admitted(queue_view([quota("a", 2000, 4000)], [*pods, pod("huge", "a", 3000, preemptible=False)]))
    assert names(admission) == ["p0", "p1"]
    assert reasons(admission)["p2"] == (
        "quota-min-exceeded",
        "quota a, cpu: 2 used by pods that may not be preempted + 1 requested > 2 min, 1 missing",
    )
    assert reasons(admission)["huge"][0] == "above-quota-min"


def test_parents_are_judged_where_that_is_switched_on() -> None:
    """The child took all of the parent while its brother was idle; the brother's min comes back to it."""
    quotas = [
        quota("top", 4000, 4000, is_parent=True),
        quota("busy", 0, 4000, "top"),
        quota("idle", 2000, 4000, "top"),
    ]
    pods = [pod("runs", "busy", 4000, waits=False), pod("p", "idle", 1000)]
    assert names(admitted(queue_view(quotas, pods))) == ["p"]
    strict = admitted(queue_view(quotas, pods), check_parents=True)
    assert reasons(strict)["p"] == (
        "parent-quota-exceeded",
        "quota top, cpu: 4 used + 1 requested > 4 runtime, 1 missing",
    )


def test_without_runtime_the_max_is_the_limit() -> None:
    pods = [pod(f"p{i}", "a", 8000, created_seconds=i) for i in range(2)]
    admission = admitted(queue_view([quota("a", 0, 16_000)], pods), runtime=False)
    assert names(admission) == ["p0", "p1"] and "16 max" in admission.admitted_pods[1].why


def test_idle_room_is_lent_and_two_halves_are_no_deadlock() -> None:
    """Each of the two would get half of ten cores, and needs eight: the elder one borrows the other's half."""
    pods = [pod("elder", "b", 8000, created_seconds=1), pod("younger", "a", 8000, created_seconds=2)]
    view = queue_view([quota("a", 0, 10_000), quota("b", 0, 10_000)], pods)
    admission = admitted(view)
    assert names(admission) == ["elder"]
    assert admission.uses["b"].limit == {"cpu": 8000} and admission.uses["a"].limit == {"cpu": 2000}
    assert reasons(admission)["younger"][1].endswith("0 used + 8 requested > 2 runtime, 6 missing")
    again = admitted(after(view, admission))
    assert again.uses == admission.uses, "the borrower is not over its runtime in the next round"


def test_a_quota_keeps_what_it_was_let_go_with_when_another_asks_for_less() -> None:
    """The two units left go to a and the firm quota; once c, whose pod does not fit, asks for none, both are b's.

    Largest remainders: of weights 8, 26 and 5 the first gets one of two, of weights 8 and 26 none.
    """
    quotas = [quota("a", 0, 8), quota("b", 12, 26, lends=False), quota("c", 0, 5), quota("d", 2, 13)]
    admission = admitted(queue_view(quotas, [pod("p", "a", 1), pod("large", "c", 2)], cpu=11))
    assert names(admission) == ["p"] and admission.uses["a"].limit == {"cpu": 1}


def test_what_nobody_uses_or_asks_for_is_zero_and_what_waits_is_counted() -> None:
    quotas = [QuotaNode("a", maximum={"cpu": 2000, "memory": 1024}), QuotaNode("idle", maximum={"cpu": 1000})]
    admission = admitted(queue_view(quotas, [pod(f"p{i}", "a", 1500, created_seconds=i) for i in range(3)]))
    uses, idle = admission.uses["a"], admission.uses["idle"]
    assert (uses.used, uses.waiting_pods) == ({"cpu": 1500, "memory": 0}, 2)
    assert (uses.ungated, uses.firm_used, uses.firm_request) == ({"cpu": 0, "memory": 0},) * 3
    assert (idle.used, idle.ungated, idle.waiting_pods) == ({"cpu": 0}, {"cpu": 0}, 0)


def test_a_minimum_that_is_not_lent_stays_out_of_a_turn_also_while_nobody_asks_for_it() -> None:
    # Of 10 CPUs 5 are kept for `keeps`, so that the 6 of the waiting pod are not idle; where they are lent, they are.
    for lends, admitted_pods in ((False, []), (True, ["elder"])):
        quotas = [replace(quota("keeps", 5000, 10_000), lends=lends), quota("b", 0, 10_000)]
        admission = admitted(queue_view(quotas, [pod("elder", "b", 6000, created_seconds=1)]))
        assert names(admission) == admitted_pods


def test_a_guarantee_is_not_lent_to_a_turn() -> None:
    quotas = [quota("a", 5000, 10_000), quota("b", 0, 10_000)]
    pods = [pod("elder", "b", 6000, created_seconds=1), pod("younger", "a", 6000, created_seconds=2)]
    admission = admitted(queue_view(quotas, pods))
    assert names(admission) == ["younger"] and admission.uses["b"].limit == {"cpu": 4000}


def gang_pods(count: int, cpu: int = 1000, quota_name: str = "a", **more: Any) -> list[Any]:
    return [pod(f"m{i}", quota_name, cpu, gang="shop/g", created_seconds=i, **more) for i in range(count)]


@pytest.mark.parametrize(("runtime", "admitted_pods"), [(2500, 0), (3000, 3), (3500, 3), (4000, 4)])
def test_a_gang_goes_as_a_whole_and_further_members_one_by_one(runtime: int, admitted_pods: int) -> None:
    gangs = {"shop/g": Gang("shop", "g", 3, 4)}
    admission = admitted(queue_view([quota("a", 0, 4000)], gang_pods(4), cpu=runtime, gangs=gangs))
    assert names(admission) == [f"m{i}" for i in range(admitted_pods)]


def test_a_further_member_waits_for_those_with_whom_its_gang_starts() -> None:
    """It requests nothing, and would fit."""
    gangs = {"shop/g": Gang("shop", "g", 2, 3)}
    first = [replace(p, requests={"cpu": 3000}) for p in gang_pods(2)]
    light = replace(pod("light", "a", gang="shop/g", created_seconds=9), requests={})
    admission = admitted(
        queue_view([quota("a", 0, 8000)], [*first, light, pod("runs", "a", 4000, waits=False)], gangs=gangs)
    )
    assert names(admission) == []
    assert reasons(admission)["light"] == (
        "behind-in-quota",
        "shop/m0 and 1 more of its gang must be admitted first",
    )
    above = admitted(queue_view([quota("a", 0, 5000)], [*first, light], gangs=gangs))
    assert names(above) == [] and reasons(above)["light"][0] == "above-quota-max"


def test_a_gang_of_quotas_of_two_trees_waits_and_says_which_quota_is_elsewhere() -> None:
    of_tree = {TOTAL_ANNOTATION: '{"cpu":"4"}'}
    quotas = [quota("a", 0, 4000), quota("far", 0, 4000, tree_id="y", heads_tree=True, published=of_tree)]
    members = [*gang_pods(1), replace(pod("other", "far", 1000, gang="shop/g"), created_seconds=5)]
    admission = admitted(queue_view(quotas, members, gangs={"shop/g": Gang("shop", "g", 2, 2)}))
    assert names(admission) == []
    assert "quota far is not in quota tree ''" in reasons(admission)["m0"][1]


def test_an_incomplete_gang_takes_no_quota_and_holds_back_nobody() -> None:
    gangs = {"shop/g": Gang("shop", "g", 3, 3)}
    admission = admitted(
        queue_view([quota("a", 0, 4000)], [*gang_pods(2, priority=9), pod("p", "a", 4000)], gangs=gangs)
    )
    assert names(admission) == ["p"]
    assert reasons(admission)["m0"] == ("gang-incomplete", "gang shop/g needs 3 pods, but only 2 exist")


def test_a_gang_that_fits_on_no_empty_nodes_takes_no_quota_and_holds_back_nobody() -> None:
    nodes = (node(5000, "n1"), node(5000, "n2"))
    gangs = {"shop/g": Gang("shop", "g", 3, 3)}
    pods = [*gang_pods(3, 3000, priority=9), pod("p", "a", 8000)]
    admission = admitted(queue_view([quota("a", 0, 10_000)], pods, nodes=nodes, gangs=gangs))
    assert names(admission) == ["p"]
    code, sentence = reasons(admission)["m0"]
    assert code == "gang-never-fits" and sentence.startswith("even empty nodes fall short: ")


def test_gangs_of_a_group_go_together_across_quotas() -> None:
    keys = ("shop/g", "shop/h")
    gangs = {key: Gang("shop", key[-1], 2, 2, group=keys) for key in keys}
    others = [replace(p, name=f"h{p.name}", uid=f"h{p.uid}", gang="shop/h") for p in gang_pods(2, quota_name="b")]
    pods = [*gang_pods(2), *others]
    quotas = [quota("a", 0, 2000), quota("b", 0, 2000)]
    assert len(names(admitted(queue_view(quotas, pods, cpu=4000, gangs=gangs)))) == 4
    assert names(admitted(queue_view(quotas, pods, cpu=3000, gangs=gangs))) == []


def test_a_running_gang_lets_a_new_member_through_alone() -> None:
    gangs = {"shop/g": Gang("shop", "g", 2, 3)}
    runs = [pod(f"r{i}", "a", 1000, gang="shop/g", waits=False) for i in range(2)]
    assert names(admitted(queue_view([quota("a", 0, 4000)], [*runs, *gang_pods(1)], gangs=gangs))) == ["m0"]


def reservation(cpu: int, status: ReservationStatus, **more: Any) -> Reservation:
    labels = {PLAN_LABEL: "plan"}
    template = {"metadata": {"namespace": "shop"}}
    return Reservation("r", labels=labels, template=template, size={"cpu": cpu}, status=status, **more)


@pytest.mark.parametrize(
    ("plan_reservation", "admitted_pods"),
    [
        (reservation(3000, ReservationStatus(Phase.AVAILABLE, "n1")), []),
        (reservation(3000, ReservationStatus(Phase.SUCCEEDED)), ["p"]),
        (reservation(3000, ReservationStatus(Phase.AVAILABLE, "n1", owners=(Reference(),))), ["p"]),
        (reservation(3000, ReservationStatus(Phase.AVAILABLE, "n1", {}, {"cpu": 2000}), allocate_once=False), ["p"]),
    ],
    ids=["held", "ended", "handed over", "partly allocated"],
)
def test_what_a_plan_holds_counts_against_its_namespace_s_quota(
    plan_reservation: Reservation, admitted_pods: list[str]
) -> None:
    quotas = [quota("a", 0, 4000, namespaces=("shop",))]
    assert names(admitted(queue_view(quotas, [pod("p", "a", 2000)], reservations=(plan_reservation,)))) == admitted_pods


def test_pods_of_no_quota_leave_less_for_the_default_tree() -> None:
    plain = replace(pod("plain", "", 7000, waits=False), quota="")
    admission = admitted(queue_view([quota("a", 0, 10_000)], [plain, pod("p", "a", 4000)]))
    assert names(admission) == [] and admission.uses["a"].limit == {"cpu": 3000}


@pytest.mark.parametrize("name", ["gone", "koordinator-default-quota"])
def test_a_pod_that_no_quota_bounds_is_let_go(name: str) -> None:
    quotas = [quota("koordinator-default-quota", 0, 500)]
    admission = admitted(queue_view(quotas, [pod("p", name, 1000)]))
    assert admission.admitted_pods[0].why == f"quota {name} no longer exists or limits no resource"


def test_what_quotas_of_the_system_and_bad_quotas_use_is_not_there_for_others() -> None:
    quotas = [quota("a", 0, 10_000), quota("koordinator-system-quota", 0, 10_000), quota("upside", 5, 4)]
    pods = [pod("s", "koordinator-system-quota", 3000, waits=False), pod("u", "upside", 2000, waits=False)]
    assert admitted(queue_view(quotas, [*pods, pod("p", "a", 6000)])).uses["a"].limit == {"cpu": 5000}


def test_trees_of_profiles_divide_their_own_nodes() -> None:
    nodes = (node(10_000, "n1", labels={"pool": "x"}), node(20_000, "n2"))
    selector = LabelSelector.parse({"matchLabels": {"pool": "x"}})
    profiles = (QuotaProfile("root-x", "x", selector, 0.5),)
    quotas = [
        quota("root-x", 0, 2**62, ignores_default_tree=True),
        quota("in-x", 0, 10_000, "root-x"),
        quota("a", 0, 30_000),
        quota("noted", 0, 9000, tree_id="y", heads_tree=True, published={TOTAL_ANNOTATION: '{"cpu":"2"}'}),
        quota("nowhere", 0, 1000, tree_id="z"),
    ]
    pods = [pod(f"p-{q.name}", q.name, 1000) for q in quotas[1:]] + [pod("x-large", "in-x", 4500, priority=1)]
    admission = admitted(queue_view(quotas, pods, nodes=nodes, profiles=profiles))
    assert {tree.tree_id: tree.total["cpu"] for tree in admission.forest.trees} == {"": 25_000, "x": 5000, "y": 2000}
    assert set(names(admission)) == {"x-large", "p-a", "p-noted", "p-nowhere"}


def test_bad_quotas_are_set_aside_by_name_and_value_and_the_rest_goes_on() -> None:
    quotas = [
        quota("good", 0, 4000),
        quota("upside", 5000, 4000),
        quota("below", 0, 1000, "upside"),
        quota("orphan", 0, 1000, "nobody"),
        quota("one", 0, 1000, "two"),
        quota("two", 0, 1000, "one"),
        quota("hanging", 0, 1000, "one"),
        QuotaNode("negative", maximum={"cpu": -5}),
    ]
    admission = admitted(queue_view(quotas, [pod(f"p-{q.name}", q.name, 500) for q in quotas]))
    assert names(admission) == ["p-good"]
    assert admission.forest.problems == {
        "upside": "min of cpu is 5, more than the quota's max 4",
        "below": "ancestor quota upside is invalid: min of cpu is 5, more than the quota's max 4",
        "orphan": "parent quota nobody does not exist",
        "one": "the quota's parents form a cycle: one -> two -> one",
        "two": "the quota's parents form a cycle: two -> one -> two",
        "hanging": "the quota's parents form a cycle: one -> two -> one",
        "negative": "max of cpu is -5, which is negative",
    }
    assert reasons(admission)["p-orphan"] == ("quota-invalid", "quota orphan: parent quota nobody does not exist")


def test_pods_are_let_go_in_one_order_whatever_their_quotas_and_gangs_before_them() -> None:
    quotas = [quota("a", 4000, 4000), quota("b", 4000, 4000)]
    waiting = [pod("a-young", "a", 1000, created_seconds=3.0), pod("a-old", "a", 1000, created_seconds=1.0)]
    waiting += [pod("b-middle", "b", 1000, created_seconds=2.0), pod("b-urgent", "b", 1000, priority=1)]
    gang = Gang("shop", "g", 1, 1)
    waiting.append(pod("member", "b", 1000, gang=gang.key, created_seconds=9.0))
    writes = decided(queue_view(quotas, waiting, gangs={gang.key: gang}))
    going = [i.address.name for i in writes.intents if isinstance(i, Patch) and i.address.resource == "pods"]
    assert going[:5] == ["member", "b-urgent", "a-old", "b-middle", "a-young"]


def test_only_our_gate_is_taken_away_and_only_from_the_pod_that_was_looked_at() -> None:
    gated = replace(pod("p", "a", 1000), gates=("other/gate", QUOTA_GATE, GANG_GATE))
    writes = decided(queue_view([quota("a", 0, 4000)], [gated]))
    patch = next(i for i in writes.intents if isinstance(i, Patch))
    assert patch.operations == (
        {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "replace", "path": "/spec/schedulingGates", "value": [{"name": "other/gate"}, {"name": GANG_GATE}]},
    )
    assert writes.released == {"uid-p"}


def web_pod(name: str, cpu: int, *, waits: bool = True, app: str = "web") -> QueuePod:
    """A pod that the webhook gated for a Reservation too; one that was let go still waits for that."""
    waiting = pod(name, "a", cpu)
    gates = (QUOTA_GATE, RESERVATION_GATE) if waits else (RESERVATION_GATE,)
    return replace(waiting, gates=gates, identity=PodIdentity("shop", name, f"uid-{name}", {"app": app}))


def test_a_pod_goes_on_the_capacity_that_a_plan_holds_for_it_in_a_full_quota() -> None:
    quotas = [quota("a", 0, 4000, namespaces=("shop",))]
    selector = LabelSelector.parse({"matchLabels": {"app": "web"}})
    plan_reservation = reservation(4000, ReservationStatus(Phase.AVAILABLE, "n1"), owners=(Owner(selector=selector),))

    def admitted_pods(*pods: QueuePod) -> tuple[list[str], int]:
        decision = admitted(queue_view(quotas, list(pods), reservations=(plan_reservation,)))
        return names(decision), decision.uses["a"].used["cpu"]

    # The plan holds all 4 cores, for pods of app=web: one of 3 takes none that the quota does not hold for it.
    assert admitted_pods(web_pod("one", 3000)) == (["one"], 4000)
    assert admitted_pods(web_pod("one", 3000, app="api")) == ([], 4000)
    assert admitted_pods(pod("plain", "a", 3000)) == ([], 4000)
    # One Reservation is for one pod; what was let go and waits for it counts once.
    assert admitted_pods(web_pod("one", 3000), web_pod("two", 3000)) == (["one"], 4000)
    assert admitted_pods(web_pod("one", 3000, waits=False), web_pod("two", 3000)) == ([], 4000)
    # A pod of 5 cores asks for the one core that nobody holds for it, and the quota has no more.
    assert admitted_pods(web_pod("large", 5000)) == ([], 4000)
