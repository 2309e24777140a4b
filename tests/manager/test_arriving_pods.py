"""A pod takes its Reservation in two writes: it gets its node, then the Reservation names it; nothing is lost between.

Other pods fill a hole within seconds: a free Reservation that is deleted between the two and requested anew waits for
hours. Of seven that fitted, two were ever reserved.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.kubernetes.intent import Apply, Delete
from cotenant.base.kubernetes.moments import moment
from cotenant.base.kubernetes.pod_identity import Reference
from cotenant.scheduler_ext.reservations.model.life_cycle import Phase, PlanPhase
from cotenant.scheduler_ext.reservations.model.plan import (
    PLAN_LABEL,
    Approval,
    Plan,
    PlanOwner,
    PlanStatus,
    Span,
    WindowSource,
)
from cotenant.scheduler_ext.reservations.model.plan import PlanDecision as Verdict
from cotenant.scheduler_ext.reservations.model.reservation import Reservation, ReservationStatus
from cotenant.scheduler_ext.reservations.model.settings import PlanSettings
from cotenant.scheduler_ext.reservations.plan_controller import ARRIVING_SECONDS, _is_fresh
from cotenant.scheduler_ext.reservations.plan_decisions import OwnerView, PlanView, decide
from cotenant.scheduler_ext.reservations.plans.realise import OwnerTemplate, unit_name
from tests.manager.test_plans import HOUR, SIX, proposal

WINDOW = Span(SIX, SIX + 4 * HOUR)
BASE = 3
"""Pods that run anyway: `proposal` says so."""


def plan_of(want: int) -> Plan:
    """A forecast's plan that is held for so many pods."""
    status = PlanStatus(PlanPhase.IN_WINDOW, WINDOW, count=want)
    return Plan(
        "shop", "peak", WindowSource.FORECAST, PlanOwner("Deployment", "web"), {"cpu": 1000}, want, window=WINDOW,
        approval=Approval(Verdict.APPROVED), per_pod_text={"cpu": "1"}, status=status,
    )  # fmt: skip


def writes(want: int, taken: int, arriving: int, *, fresh: bool = True) -> tuple[list[str], list[str]]:
    """(Reservations created, deleted) when `taken` pods are named by Reservations and `arriving` have a node alone."""
    plan = plan_of(want)
    reservations = []
    for number in range(want):
        owners = (Reference("Pod", f"web-{BASE + number}", "shop"),) if number < taken else ()
        phase = Phase.SUCCEEDED if owners else Phase.AVAILABLE
        status = ReservationStatus(phase, f"n{number}", owners=owners)
        reservations.append(
            Reservation(
                unit_name(plan, WINDOW, number),
                labels={PLAN_LABEL: plan.key},
                size={"cpu": 1000},
                status=status,
                expires_seconds=SIX + 99 * HOUR,
            )
        )
    names = [f"web-{k}" for k in range(BASE + taken + arriving)]
    new = frozenset(names[BASE + taken :]) if fresh else frozenset()
    owner = OwnerView(OwnerTemplate({}, {"matchLabels": {"app": "web"}}), pods=frozenset(names), fresh=new)
    ahead = replace(
        proposal(0), start_seconds=int(SIX), wanted=(want,) * 8, median=(want,) * 8, ladder=((want,) * 8,), skill=0.5
    )
    view = PlanView(
        (plan,), tuple(reservations), owners={("shop", "Deployment", "web"): owner},
        allocatable={"cpu": 1_000_000}, proposals=(ahead,),
    )  # fmt: skip
    intents = [i for i in decide(view, SIX + HOUR, PlanSettings()).intents if i.address.resource == "reservations"]
    texts = [i.address.name for i in intents if isinstance(i, Apply)]
    return texts, [i.address.name for i in intents if isinstance(i, Delete)]


@given(st.integers(1, 12).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), st.integers(0, 12))
def test_while_pods_take_their_reservations_none_is_deleted_and_none_is_made(
    want_taken: tuple[int, int], more: int
) -> None:
    want, taken = want_taken
    # Every arriving pod takes one of the free Reservations: as many pods as reservations, so nothing is to be done.
    assert writes(want, taken, min(more, want - taken)) == ([], [])


def test_a_pod_that_found_a_place_of_its_own_leaves_its_reservation_after_a_moment() -> None:
    # Of seven wanted three run on Reservations; one more found another node: three are needed, four are free.
    assert writes(7, 3, 1, fresh=False) == ([], ["shop.peak-202702251800-6"])


@pytest.mark.parametrize(("age", "fresh"), [(0.0, True), (59.0, True), (61.0, False), (3600.0, False)])
def test_a_pod_is_fresh_for_as_long_as_a_hand_over_may_take(age: float, fresh: bool) -> None:
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": moment(SIX - age)}
    assert ARRIVING_SECONDS == 60.0
    assert _is_fresh({"status": {"conditions": [scheduled]}}, SIX) is fresh
    assert not _is_fresh({"status": {"conditions": [{**scheduled, "status": "False"}]}}, SIX)
    assert not _is_fresh({"status": {}}, SIX), "what is not known is not fresh: what was seen of it counts"
