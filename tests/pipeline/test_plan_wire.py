"""ReservationPlans on the wire: what is read is what was written, and what cannot be read is named."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.errors import CotenantError
from cotenant.base.kubernetes.moments import seconds_of
from cotenant.base.kubernetes.pod_identity import Condition
from cotenant.scheduler_ext.reservations.model.life_cycle import PlanPhase
from cotenant.scheduler_ext.reservations.model.plan import (
    Expected,
    OccurrenceProgress,
    PeakWindow,
    PlanReservation,
    PlanStatus,
    Score,
    Span,
    duration,
    key_of,
)
from cotenant.scheduler_ext.reservations.model.plan_wire import parse_plan, peak_body, span_body, status_body

SPEC = {
    "source": "Manual",
    "owner": {"name": "web"},
    "amount": {"perPod": {"cpu": "1500m", "memory": "1Gi"}, "count": 2},
}


def plan(status: Any = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "web", "namespace": "shop"}, "spec": {**SPEC, **spec}, "status": status or {}}


def test_defaults_are_those_of_the_schema() -> None:
    plan_wire = parse_plan(plan())
    assert (plan_wire.owner.kind, plan_wire.quantile, plan_wire.lead_seconds, plan_wire.extend_by_seconds) == (
        "Deployment",
        0.9,
        900,
        1800,
    )
    assert plan_wire.per_pod == {"cpu": 1500, "memory": 1 << 30}
    assert plan_wire.ttl_seconds is None
    assert (plan_wire.windows, plan_wire.standby) == ((), 0)


def test_windows_are_read_in_their_order_and_one_alone_stands_for_all_in_plans_of_before() -> None:
    noon, evening = Span(1_803_556_800, 1_803_560_400), Span(1_803_578_400, 1_803_585_600)
    peaks = (PeakWindow(noon, 2), PeakWindow(evening, 4))
    plan_wire = parse_plan(plan(windows=[peak_body(peak) for peak in reversed(peaks)]))
    assert plan_wire.windows == plan_wire.peaks == peaks
    assert [plan_wire.most_in(span) for span in (noon, evening)] == [2, 4]
    before = parse_plan(plan(window=span_body(evening)))
    assert before.peaks == (PeakWindow(evening, 2),)


TIMES = st.integers(1_700_000_000, 1_900_000_000).map(float)
RATIOS = st.integers(0, 100).map(lambda n: n / 100)
SCORES = st.builds(
    Score,
    TIMES,
    TIMES,
    *(st.integers(0, 99) for _ in range(3)),
    hit_ratio=RATIOS,
    coverage=RATIOS,
    idle_core_hours=RATIOS,
    cost=RATIOS,
    missed_core_minutes=st.integers(0, 900).map(float),
    lead_seconds=st.none() | st.integers(-900, 900),
    lent_core_hours=st.none() | RATIOS,
)
EXPECTED = st.builds(Expected, RATIOS, RATIOS, st.integers(0, 99), RATIOS, RATIOS, RATIOS, st.just("EUR"))
UNITS = st.builds(PlanReservation, st.text("abc", min_size=1), st.just("n1"), st.just("Available"), st.just(""))
STATUSES = st.builds(
    PlanStatus,
    phase=st.sampled_from(list(PlanPhase)),
    window=st.builds(lambda start, length: Span(start, start + length), TIMES, st.integers(60, 90_000)),
    reserve_at_seconds=TIMES,
    lead_seconds=st.integers(0, 9000),
    count=st.integers(0, 99),
    expected=st.none() | EXPECTED,
    units=st.lists(UNITS, max_size=3).map(tuple),
    progress=st.builds(
        OccurrenceProgress,
        TIMES,
        st.integers(0, 999).map(float),
        changed_at_seconds=TIMES,
        available_at_seconds=st.none() | TIMES,
        lent_core_seconds=st.none() | st.integers(0, 999).map(float),
    ),
    score=st.none() | SCORES,
    history=st.lists(SCORES, max_size=3).map(tuple),
    conditions=st.just((Condition("Approved", "True", "ByPerson", "ann", "2027-03-05T18:00:00Z"),)),
)  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(STATUSES)
def test_a_status_survives_the_wire(status: PlanStatus) -> None:
    assert parse_plan(plan(status_body(status, 3))).status == status


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 1_000_000))
def test_a_duration_survives_the_wire(seconds: int) -> None:
    assert seconds_of(duration(seconds), "x") == seconds


@pytest.mark.parametrize(
    "given_",
    [
        {"source": "Whim"},
        {"amount": {"perPod": {"cpu": "much"}, "count": 1}},
        {"window": {"start": "2027-03-05T18:00:00Z", "end": "2027-03-05T17:00:00Z"}},
        {"windows": [{"start": "2027-03-05T18:00:00Z", "end": "2027-03-05T17:00:00Z", "count": 2}]},
        {"lead": "soon"},
        {"realisation": "Magic"},
        {"approval": {"decision": "Maybe", "by": "ann"}},
    ],
)
def test_what_cannot_be_read_is_refused_with_the_plans_name(given_: dict[str, Any]) -> None:
    with pytest.raises(CotenantError) as refused:
        parse_plan(plan(**given_))
    assert "shop/web" in str(refused.value)
    assert refused.value.fix


def test_a_key_is_a_label_value_however_long_the_names_are() -> None:
    assert key_of("shop", "web") == "shop.web"
    long = key_of("n" * 60, "p" * 200)
    assert len(long) <= 63
    assert long != key_of("n" * 60, "p" * 199)
