"""What the forecast may still change about a plan: nothing that a person chose, until that window is over."""

from __future__ import annotations

import pytest

from cotenant.manager.contract import MANAGED_BY, MANAGED_BY_LABEL
from cotenant.manager.plans import Planned, decide
from cotenant.model.identity import WorkloadRef
from cotenant.model.plan import Plan, Proposal, Source, Span, Workload
from cotenant.model.plan_desk import EDITED_LABEL
from cotenant.settings.plans import PlanSettings

SIX = 1_803_578_400.0
"""18:00 UTC of a day."""
HOUR = 3600.0


def spec_written(now: float, labels: dict[str, str]) -> bool:
    """Whether the controller moves a plan of two pods to what the forecast says now: four, an hour later."""
    window = Span(SIX + HOUR, SIX + 3 * HOUR)
    proposal = Proposal(
        WorkloadRef("shop", "Deployment", "web"), "ok", 4, window=window, per_pod={"cpu": "1"},
        start_seconds=int(SIX), wanted=(0, 0, 4, 4), median=(0, 0, 0, 0), levels=(0.9,), ladder=((0, 0, 4, 4),),
    )  # fmt: skip
    plan = Plan(
        "shop", "deployment-web", Source.FORECAST, Workload("Deployment", "web"), {"cpu": 1000}, 2,
        window=Span(SIX, SIX + HOUR), labels={MANAGED_BY_LABEL: MANAGED_BY, **labels},
    )  # fmt: skip
    made = decide(Planned((plan,), proposals=(proposal,)), now, PlanSettings())
    return any("spec" in intent.body for intent in made.intents if hasattr(intent, "body"))


@pytest.mark.parametrize(
    ("now", "labels", "moves"),
    [
        (SIX - HOUR, {}, True),
        (SIX - HOUR, {EDITED_LABEL: str(int(SIX + HOUR))}, False),
        (SIX + HOUR, {EDITED_LABEL: str(int(SIX + HOUR))}, True),
        (SIX - HOUR, {EDITED_LABEL: "soon"}, True),
    ],
)
def test_the_forecast_moves_a_plan_unless_a_person_changed_its_window_or_pods(
    now: float, labels: dict[str, str], moves: bool
) -> None:
    assert spec_written(now, labels) is moves
