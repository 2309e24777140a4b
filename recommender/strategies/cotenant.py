"""Strategy `cotenant`, balanced: CPU for the busy hours of one pod, memory above everything ever seen.

CPU request = the larger of the demand's p95 and its busiest half hour (mean of that half hour over all days of its
kind, so that a nightly job of 30 minutes is not lost below the p95), + 15 %. Demand is usage + throttled, without the
start-up phase: a quota that starved the container does not talk the request down, a warm-up does not talk it up (a job
shorter than that phase has nothing else: its maximum counts).
CPU limit = kept in its ratio to the request, but never below the highest demand seen + 15 %; absent stays absent.
Memory request = limit = the highest working set ever seen, start-up included, + 15 %; an OOM kill raises it at once to
max(limit at the kill + 100 MiB, x 1.2), however short the history (only a raise; a cut needs the full history).

Floors hold for the pod and are split evenly over its containers. A change within the dead band keeps the present value,
unless an OOM kill or usage above the present value asks for more. Where history is short or full of holes, or an
autoscaler follows the resource, the value is withheld with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cotenant.model.cluster import Event
from cotenant.model.reasons import Reason
from cotenant.model.recommendation import Action, Field, Recommendation, Value
from cotenant.model.resource import MIB, Resource
from cotenant.settings.recommender import CotenantSettings, RecommenderSettings
from recommender.base import known, proportional_limit, recommendation, rounded_up, withheld
from recommender.evidence import Evidence, Floats
from recommender.severity import limit_severity, severity

CPU, MEMORY = Resource.CPU, Resource.MEMORY
EPISODIC: Final = frozenset({"Job", "CronJob"})
"""Kinds that run now and then: gaps between their pods are no missing samples."""


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """One resource of all containers before floors and dead band, (n,) in the unit, NaN = unknown.

    wanted: the proposal; urgent: a part of it that needs no history (an OOM kill); highest: most that was ever seen in
    one pod; inputs: further columns for display.
    """

    resource: Resource
    wanted: Floats
    urgent: Floats
    highest: Floats
    inputs: Mapping[str, Floats]


@dataclass(frozen=True, slots=True)
class Proposal:
    """What the rules ask for in one field."""

    amount: int
    reason: Reason
    formula: str
    must_raise: bool = False


class Cotenant:
    """Demand-based requests with reasons; withholds instead of guessing."""

    name = "cotenant"

    def recommend(self, evidence: Evidence, settings: RecommenderSettings) -> list[Recommendation]:
        """One recommendation a container."""
        own = settings.cotenant
        cpu, memory = cpu_demand(evidence, own), memory_demand(evidence, own)
        reasons = {d.resource: _reasons(evidence, d, own) for d in (cpu, memory)}
        made = []
        for index in range(len(evidence)):
            row = _Row(evidence, index, own)
            values = [*row.cpu(cpu, reasons[CPU][index]), *row.memory(memory, reasons[MEMORY][index])]
            made.append(recommendation(self.name, evidence, index, values, settings))
        return made


def cpu_demand(evidence: Evidence, own: CotenantSettings) -> Demand:
    """Demand of one pod in its busy hours, with margin."""
    portrait = evidence.portraits[CPU]
    # a bucket's end may lie 5 % (or, for an idle container, 10 m) above all that was seen
    quantile = evidence.from_portrait(CPU, np.fmin(portrait.percentile(own.cpu_fraction), portrait.maximum))
    busiest = evidence.from_portrait(CPU, np.fmax.reduce(portrait.slots, axis=(1, 2), initial=np.nan))
    startup = evidence.from_portrait(CPU, portrait.startup_max)
    steady = np.fmax(quantile, busiest)
    wanted = np.where(np.isfinite(steady), steady, startup) * (1 + own.cpu_margin_fraction)
    inputs = {"demand_quantile": quantile, "busiest_half_hour": busiest, "startup_max": startup}
    return Demand(CPU, wanted, np.full(len(evidence), np.nan), _highest(evidence, CPU), inputs)


def memory_demand(evidence: Evidence, own: CotenantSettings) -> Demand:
    """Highest working set with margin, raised by OOM kills."""
    highest = _highest(evidence, MEMORY)
    kills = enumerate(evidence.oom_kills)
    urgent = np.array([_after_kills(evidence, i, k, float(highest[i]), own) for i, k in kills], dtype=np.float64)
    wanted = np.fmax(highest * (1 + own.memory_margin_fraction), urgent)
    return Demand(MEMORY, wanted, urgent, highest, {"after_oom": urgent})


def _highest(evidence: Evidence, resource: Resource) -> Floats:
    """Most ever seen in one pod, start-up included, (n,)."""
    portrait = evidence.portraits[resource]
    remembered = evidence.from_portrait(resource, np.fmax(portrait.maximum, portrait.startup_max))
    return np.fmax(remembered, evidence.highest_seen(resource))


def _after_kills(
    evidence: Evidence, index: int, kills: tuple[Event, ...], highest: float, own: CotenantSettings
) -> float:
    """Memory that the OOM kills ask for: more than the limit in force at each; NaN without a kill or any number."""
    needed = np.nan
    for kill in kills:
        limit = evidence.limit_at(index, kill)
        used = limit if np.isfinite(limit) else highest
        needed = np.fmax(needed, max(used + own.oom_bump_bytes, used * own.oom_bump_ratio))
    return float(needed)


def _reasons(evidence: Evidence, demand: Demand, own: CotenantSettings) -> list[Reason]:
    """Why a value is withheld, or OK, (n,); the first that applies. A raise after an OOM kill needs no history."""
    resource, portrait = demand.resource, evidence.portraits[demand.resource]
    episodic = np.array([w.ref.kind in EPISODIC for w in evidence.workloads], dtype=np.bool_)
    present = np.fmax(evidence.requests[resource], evidence.limits[resource])
    urgent = np.isfinite(demand.urgent) & ~(demand.urgent <= present)
    cases = {
        Reason.NO_DATA: ~np.isfinite(demand.wanted),
        Reason.HPA_ON_RESOURCE: evidence.scaled_by_autoscaler(resource),
        Reason.NOT_ENOUGH_HISTORY: ~(evidence.from_portrait(resource, portrait.span_days) >= own.minimum_days)
        & ~urgent,
        Reason.LOW_COVERAGE: ~(evidence.from_portrait(resource, portrait.coverage) >= own.minimum_coverage)
        & ~(urgent | episodic),
    }
    names = [*cases, Reason.OK]
    return [names[i] for i in np.select(list(cases.values()), range(len(cases)), default=len(cases))]


class _Row:
    """Values of one container."""

    def __init__(self, evidence: Evidence, index: int, own: CotenantSettings) -> None:
        self.evidence, self.index, self.own = evidence, index, own
        self.replicas = evidence.workloads[index].replicas
        self.containers = max(1, len(evidence.workloads[index].containers))

    def cpu(self, demand: Demand, reason: Reason) -> list[Value]:
        """Request, and the limit where there is one."""
        now, limit_now = self._now(CPU, Field.REQUEST), self._now(CPU, Field.LIMIT)
        inputs = self._inputs(demand, margin_fraction=self.own.cpu_margin_fraction)
        if reason is not Reason.OK:
            limit = [withheld(CPU, Field.LIMIT, limit_now, reason, inputs)] if limit_now is not None else []
            return [withheld(CPU, Field.REQUEST, now, reason, inputs), *limit]
        formula = f"max(p{100 * self.own.cpu_fraction:g} of demand, busiest half hour)"
        proposal = self._floored(demand, self.own.pod_floor_millicores, 1, formula)
        request = self._value(CPU, Field.REQUEST, self._dead_band(proposal, now), inputs)
        return [request, *self._cpu_limit(demand, request, inputs)]

    def memory(self, demand: Demand, reason: Reason) -> list[Value]:
        """Request and limit, the same amount."""
        fields = (Field.REQUEST, Field.LIMIT)
        inputs = self._inputs(demand, margin_fraction=self.own.memory_margin_fraction)
        if reason is not Reason.OK:
            return [withheld(MEMORY, f, self._now(MEMORY, f), reason, inputs) for f in fields]
        proposal = self._floored(demand, self.own.pod_floor_bytes, MIB, "highest ever seen")
        kept = [self._dead_band(proposal, self._now(MEMORY, f)) for f in fields]
        if kept[1].amount < kept[0].amount:  # a limit never falls below the request, not even below one that is kept
            kept[1] = replace(proposal, amount=max(proposal.amount, kept[0].amount))
        return [self._value(MEMORY, f, p, inputs) for f, p in zip(fields, kept, strict=True)]

    def _floored(self, demand: Demand, pod_floor: int, unit: int, what: str) -> Proposal:
        """The demand rounded up, not below this share of the pod's floor; the reason says which rule won."""
        wanted, urgent = float(demand.wanted[self.index]), float(demand.urgent[self.index])
        floor, measured = -(-pod_floor // self.containers), rounded_up(wanted, unit)
        margin = self.own.cpu_margin_fraction if demand.resource is CPU else self.own.memory_margin_fraction
        steady = Reason.OK if demand.resource is CPU else Reason.OBSERVED_MAXIMUM
        reason = Reason.FLOOR if floor > measured else Reason.OOM_BUMP if urgent == wanted else steady
        now = self._now(demand.resource, Field.REQUEST)
        beyond = demand.resource is MEMORY and now is not None and float(demand.highest[self.index]) > now
        formula = f"max({what} x {1 + margin:g}, floor)"
        if np.isfinite(urgent):
            formula = f"max({what} x {1 + margin:g}, limit at an OOM kill + bump, floor)"
        return Proposal(max(measured, floor), reason, formula, reason is Reason.OOM_BUMP or beyond)

    def _cpu_limit(self, demand: Demand, request: Value, inputs: Mapping[str, float | int | str]) -> list[Value]:
        """The present limit moved with the request, never below the highest demand with its margin."""
        now = self._now(CPU, Field.LIMIT)
        assert request.amount is not None
        if self.own.cpu_limit == "unset":
            level = limit_severity(CPU, now, None, self.replicas)
            return [Value(CPU, Field.LIMIT, now, None, Action.UNSET, Reason.OK, level, inputs, "no CPU limit")]
        if now is None:
            return []
        in_ratio = proportional_limit(now, request.now, request.amount) or 0
        margin = 1 + self.own.cpu_margin_fraction
        highest = rounded_up(float(np.nan_to_num(demand.highest[self.index])) * margin, 1)
        amount = max(in_ratio, highest, request.amount)
        reason = Reason.OBSERVED_MAXIMUM if highest > in_ratio else Reason.OK
        formula = f"max(limit x request / present request, highest demand x {margin:g})"
        proposal = Proposal(amount, reason, formula)
        kept = self._dead_band(proposal, now)
        return [self._value(CPU, Field.LIMIT, kept if kept.amount >= request.amount else proposal, inputs)]

    def _dead_band(self, proposal: Proposal, now: int | None) -> Proposal:
        """The present amount where the change is too small, else the proposal."""
        if now is None or proposal.amount == now:
            return proposal
        small = abs(proposal.amount - now) <= self.own.dead_band_fraction * now
        if not small or (proposal.must_raise and proposal.amount > now):
            return proposal
        return replace(proposal, amount=now, reason=Reason.WITHIN_DEAD_BAND)

    def _value(
        self, resource: Resource, which: Field, proposal: Proposal, inputs: Mapping[str, float | int | str]
    ) -> Value:
        now, amount = self._now(resource, which), proposal.amount
        level = (severity if which is Field.REQUEST else limit_severity)(resource, now, amount, self.replicas)
        return Value(resource, which, now, amount, Action.SET, proposal.reason, level, inputs, proposal.formula)

    def _inputs(self, demand: Demand, margin_fraction: float) -> dict[str, float | int | str]:
        evidence, portrait = self.evidence, self.evidence.portraits[demand.resource]
        row = evidence.portrait_rows[demand.resource][self.index]
        columns = {name: float(column[self.index]) for name, column in demand.inputs.items()}
        return known(
            **columns,
            observed_max=float(demand.highest[self.index]),
            margin_fraction=margin_fraction,
            days=float(portrait.span_days[row]) if row >= 0 else 0.0,
            coverage=float(portrait.coverage[row]) if row >= 0 else 0.0,
            oom_kills=len(evidence.oom_kills[self.index]) if demand.resource is MEMORY else 0,
        )

    def _now(self, resource: Resource, which: Field) -> int | None:
        return self.evidence.now(self.index, resource, which)
