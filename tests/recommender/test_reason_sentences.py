"""Every reason's sentence is true of the numbers beside it: of each reason that a strategy gives, in any cluster."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.autopilot.decide.halt import LONGEST_REST_SECONDS
from cotenant.autopilot.decide.round_order import GIVEN_UP_AFTER
from cotenant.base.cluster import Container
from cotenant.base.kubernetes.qos import QosClass
from cotenant.base.reasons import SENTENCES, Reason
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS
from cotenant.forecasting.backtest.worst_day import FEWEST_DAYS
from cotenant.forecasting.engine import HORIZON, STEP_SECONDS
from cotenant.recommender.base import BUILT_IN
from cotenant.recommender.incomplete import SILENT_SECONDS
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value
from cotenant.recommender.settings import RecommenderSettings
from cotenant.recommender.strategies.cotenant import autoscaler
from cotenant.recommender.strategies.cotenant.heap import RULE
from cotenant.recommender.strategies.settings import KrrSettings
from tests.support.any_cluster import KINDS, PointedCluster
from tests.support.scenario import NODE

CPU, MEMORY = Resource.CPU, Resource.MEMORY
REQUEST, LIMIT = Field.REQUEST, Field.LIMIT
STRATEGIES: Final = Path(__file__).resolve().parents[2] / "recommender" / "strategies"
GIVEN: Final = frozenset(
    Reason[name] for file in STRATEGIES.rglob("*.py") for name in re.findall(r"\bReason\.([A-Z_]+)", file.read_text())
)
"""Reasons that some strategy names."""


@dataclass(frozen=True)
class Told:
    """A value of a recommendation, and what its reason may speak of."""

    value: Value
    of: Recommendation
    where: PointedCluster

    @property
    def amount(self) -> int:
        """The proposed amount; -1 without one."""
        return -1 if self.value.amount is None else self.value.amount

    @property
    def withheld(self) -> bool:
        """Whether nothing is proposed."""
        return self.value.amount is None and self.value.action is Action.WITHHELD

    @property
    def container(self) -> Container:
        """Its container in the template."""
        return self.where.workload.container(self.of.container.container) or Container("")

    def figure(self, name: str) -> float:
        """One of the figures beside the value, or beside the request that it goes with; NaN without it."""
        request = self.of.value(self.value.resource, REQUEST)
        beside = self.value.inputs or (request.inputs if request else {})
        return float(beside.get(name, np.nan))

    @property
    def usage(self) -> np.ndarray:
        """Samples of the resource in the container, without gaps."""
        tracks = [t for t in self.where.scenario.tracks if t.container == self.container.name]
        series = [t.cpu if self.value.resource is CPU else t.memory for t in tracks]
        joined = np.concatenate([np.asarray(s, dtype=np.float64) for s in series])
        return joined[np.isfinite(joined)]

    def moved(self, rule: str, way: str) -> bool:
        """Whether a rule of that name moved the amount last: up, down, or either ("any").

        A value that only follows the other one of its resource has the other one's reason.
        """
        last = self.value.clamps[-1:]
        if last and last[0].rule in ("never below the request", "request = limit", "the proposed limit"):
            other = self.of.value(self.value.resource, LIMIT if self.value.field is REQUEST else REQUEST)
            return other is not None and other.reason is self.value.reason and self.with_value(other).moved(rule, way)
        went = "up" if last and last[0].after > last[0].before else "down"
        return bool(last) and last[0].rule.startswith(rule) and way in (went, "any")

    def with_value(self, value: Value) -> Told:
        """Another value of the same recommendation."""
        return Told(value, self.of, self.where)


def _too_short(reasoned: Told) -> bool:
    if reasoned.of.strategy == "cotenant":
        return reasoned.figure("days") < reasoned.where.own.minimum_days
    return reasoned.figure("history_hours") * 60 < KrrSettings().minimum_history_minutes


def _floor(reasoned: Told) -> bool:
    if reasoned.of.strategy == "cotenant":
        return reasoned.moved("floor of the pod", "up")
    return reasoned.amount == reasoned.figure("floor") > reasoned.figure("measured")


def _equal(reasoned: Told) -> bool:
    request, limit = (reasoned.of.value(reasoned.value.resource, field) for field in Field)
    return request is not None and limit is not None and request.amount == limit.amount


def _with_margin(reasoned: Told) -> bool:
    own = reasoned.where.own
    margin = own.cpu_limit_margin_fraction if reasoned.value.resource is CPU else reasoned.figure("margin_fraction")
    return reasoned.amount >= reasoned.figure("demand_max" if reasoned.value.resource is CPU else "observed_max") * (
        1 + margin
    ) * (1 - 1e-6)


def _small_change(reasoned: Told) -> bool:
    value = reasoned.value
    clamps = [clamp for clamp in value.clamps if clamp.rule == "dead band"]
    small = all(abs(c.before - c.after) <= reasoned.where.own.dead_band_fraction * c.after for c in clamps)
    return value.amount == value.now and reasoned.moved("dead band", "any") and small


def _limit_kept(reasoned: Told) -> bool:
    """A request that is held at the limit says so too."""
    limit = reasoned.of.value(reasoned.value.resource, LIMIT)
    return limit is not None and reasoned.amount == limit.amount == limit.now


def _whole_cores(reasoned: Told) -> bool:
    bound = reasoned.where.workload.qos in (QosClass.LSR, QosClass.LSE)
    return (
        bound and reasoned.value.resource is CPU and reasoned.amount % 1000 == 0 and reasoned.moved("whole cores", "up")
    )


def _heap(reasoned: Told) -> bool:
    return reasoned.container.heap is not None and reasoned.value.resource is MEMORY and reasoned.moved(RULE, "any")


def _excluded(reasoned: Told) -> bool:
    pod_annotations = reasoned.where.workload.annotations
    return reasoned.withheld and bool(pod_annotations.keys() & {"cotenant.dev/skip", "cotenant.dev/exclude-containers"})


def _best_effort(reasoned: Told) -> bool:
    of = reasoned.where.workload
    return reasoned.withheld and of.qos is QosClass.BE and not any(c.requests or c.limits for c in of.containers)


def _scales_on_it(reasoned: Told) -> bool:
    scaler = reasoned.where.workload.autoscaler
    return reasoned.withheld and scaler is not None and scaler.follows(reasoned.value.resource)


def _same_trigger(reasoned: Told) -> bool:
    """A target is a whole percent, at least 1.

    What other containers request stands in their own values, and a limit only follows its request.
    """
    if len(reasoned.where.workload.staying) > 1 or reasoned.value.field is LIMIT:
        return reasoned.amount > 0 and reasoned.figure("hpa_target_percent") >= 1
    trigger = reasoned.figure(f"hpa_trigger_{reasoned.value.resource.unit}")
    return reasoned.figure("hpa_target_percent") == max(1, round(100 * trigger / reasoned.amount))


TRUE_WHERE: Final[dict[Reason, Callable[[Told], bool]]] = {
    Reason.OK: lambda told: told.amount >= 0 or (told.value.action is Action.UNSET and told.value.field is LIMIT),
    Reason.NO_DATA: lambda told: told.withheld and not told.usage.size,
    Reason.NOT_ENOUGH_HISTORY: lambda told: told.withheld and _too_short(told),
    Reason.LOW_COVERAGE: lambda told: told.withheld and not told.figure("coverage") >= told.where.own.minimum_coverage,
    Reason.IMPLAUSIBLE: lambda told: (
        told.withheld
        and told.figure("demand_max" if told.value.resource is CPU else "observed_max")
        > NODE.capacity[told.value.resource]
    ),
    Reason.EXCLUDED: _excluded,
    Reason.BEST_EFFORT: _best_effort,
    Reason.HPA_ON_RESOURCE: _scales_on_it,
    Reason.HPA_UNSOLVED: lambda told: told.withheld and autoscaler.follows(told.where.workload, told.value.resource),
    Reason.HPA_SOLVED: _same_trigger,
    Reason.OOM_BUMP: lambda told: told.value.resource is MEMORY and told.amount > 0 and told.figure("oom_kills") > 0,
    Reason.FLOOR: _floor,
    Reason.OBSERVED_MAXIMUM: _with_margin,
    Reason.TREND: lambda told: told.amount > 0 and told.figure("growth_per_week") > 0,
    Reason.SIBLING: lambda told: told.moved("sibling shop/Deployment/web-v1/app", "up"),
    Reason.LEAK: lambda told: told.amount == told.value.now and told.figure("leak_bytes_per_day") > 0,
    Reason.QOS_CLASS: _equal,
    Reason.WITHIN_DEAD_BAND: _small_change,
    Reason.LIMIT_KEPT: _limit_kept,
    Reason.WHOLE_CORES: _whole_cores,
    Reason.SPEC_LADDER: lambda told: told.amount in _steps(told) and told.moved("spec ladder", "up"),
    Reason.HEAP: _heap,
    Reason.ANNOTATION: lambda told: told.moved("annotation", "any"),
    Reason.LIMIT_RANGE: lambda told: told.moved("LimitRange", "any"),
    Reason.NODE_SIZE: lambda told: told.moved("largest node", "down") or told.moved("smallest node", "down"),
    Reason.QUOTA: lambda told: told.moved("ResourceQuota", "down"),
}
"""What must hold of a value where its reason is given. What is left out of a scan, or gone, has tests of its own."""


def _steps(reasoned: Told) -> list[int]:
    own = reasoned.where.own
    return list(own.cpu_steps_millicores if reasoned.value.resource is CPU else own.memory_steps_bytes)


def told_in(where: PointedCluster, strategy: str) -> list[Told]:
    """Every value of a strategy's recommendations."""
    recommendations = where.scenario.recommendations(strategy, RecommenderSettings(cotenant=where.own))
    return [
        Told(value, recommendation, where)
        for recommendation in recommendations.values()
        for value in recommendation.values
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_sentence_of_a_reason_is_true_of_its_numbers(kind: str) -> None:
    draw, expected = KINDS[kind]
    met: set[Reason] = set()

    @settings(max_examples=20, deadline=None, derandomize=True)
    @given(st.composite(draw)())
    def check(where: PointedCluster) -> None:
        for strategy in BUILT_IN:
            for reasoned in told_in(where, strategy):
                met.add(reasoned.value.reason)
                assert TRUE_WHERE[reasoned.value.reason](reasoned), (reasoned.value, reasoned.of.values)

    check()
    assert expected <= met <= GIVEN


def test_every_reason_of_a_strategy_has_its_proof_and_comes_up() -> None:
    assert GIVEN == TRUE_WHERE.keys() == frozenset.union(*(reasons for _, reasons in KINDS.values()))


AMOUNTS: Final = re.compile(r"\b(?:\d+ \w+|(?:one|two|three) (?:changes|hours|days|minutes)|one day)\b", re.IGNORECASE)
CONSTANTS: Final = {
    Reason.DELETED: ("three days", SILENT_SECONDS / DAY_SECONDS == 3),
    Reason.NO_PEAK: ("24 hours", HORIZON * STEP_SECONDS / HOUR_SECONDS == 24),
    Reason.FEW_TESTED_DAYS: ("three days", FEWEST_DAYS == 3),
    Reason.PEAK_NOT_COVERED: ("24 hours", HORIZON * STEP_SECONDS / HOUR_SECONDS == 24),
    Reason.AUTOPILOT_GIVEN_UP: ("Three changes", GIVEN_UP_AFTER == 3),
    Reason.AUTOPILOT_REFUSED: ("one day", LONGEST_REST_SECONDS == DAY_SECONDS),
}
"""Amounts in a sentence, and whether the code has them as a constant: nothing that a setting changes is one."""


def test_an_amount_in_a_sentence_is_a_constant_of_the_code() -> None:
    by_reason = {reason: " ".join(AMOUNTS.findall(text)) for reason, text in SENTENCES.items() if AMOUNTS.search(text)}
    assert by_reason == {reason: text for reason, (text, _) in CONSTANTS.items()}
    assert all(true for _, true in CONSTANTS.values())
