"""Proposes reservation plans from an analysis: selects workloads, back-tests their forecasts, and makes a table. Pure.

Candidates are workloads whose forecast needs more than the baseline pods. A rehearsal repeats their forecasts of the
last days, one a day, from what was known then; `cotenant.scheduler_ext.reservations.plans.proposals` evaluates it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from cotenant.base.cluster import Inventory, Workload
from cotenant.base.errors import NoData
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.quantity import format_amount, parse_bytes, parse_millicores
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.settings.base import SettingSections, digest
from cotenant.base.table import Table
from cotenant.base.usage.forecast import LEVELS, Forecasts
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS, TimeGrid, Usage
from cotenant.forecasting import plugins
from cotenant.forecasting.engine import STEP_SECONDS, forecast
from cotenant.forecasting.remembering import Remembering
from cotenant.forecasting.settings import ForecastingSettings
from cotenant.profiler import portrait
from cotenant.profiler.settings import PortraitSettings
from cotenant.recommender.model.views import PLANS
from cotenant.recommender.money import prices
from cotenant.recommender.settings import RecommenderSettings
from cotenant.scheduler_ext.reservations.model.plan import Proposal
from cotenant.scheduler_ext.reservations.model.settings import PlanSettings
from cotenant.scheduler_ext.reservations.plans.proposals import (
    DayForecast,
    Rehearsal,
    Rehearsals,
    RehearsedWorkload,
    Size,
    Tested,
    a_week_before,
    propose,
    tested,
)
from cotenant.scheduler_ext.reservations.plans.size import lead_seconds, level_path, pods

MOST_PROPOSALS: Final = 50
"""Most plans that are proposed at a time, the largest first: a person reads no more."""

Floats = npt.NDArray[np.floating[Any]]

KINDS: Final = frozenset({"Deployment", "StatefulSet"})
"""Kinds of workloads that may have a plan."""
_REHEARSE_SECONDS: Final = DAY_SECONDS
"""Time between two rehearsed forecasts. The manager's are hourly, so its plans do better than the back-test."""
_CANDIDATE: Final = 0.95
_WISH_SECONDS: Final = 900.0
"""Lead time of a ReservationPlan that sets none."""
_BASE_DAYS: Final = 14


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """The k workloads whose forecast needs more than the baseline pods; `quantiles` are (k, H, levels) on `grid`.

    `extra_millicores` (k,) is what the additional pods request; `usage` has 5-minute CPU totals in k rows.
    """

    sizes: tuple[Size, ...]
    extra_millicores: Floats
    usage: Usage[WorkloadRef]
    quantiles: Floats
    grid: TimeGrid

    def largest(self, most: int) -> Candidates:
        """Return at most `most` candidates, those with the largest peaks, largest first."""
        rows = np.argsort(-self.extra_millicores, kind="stable")[:most]
        usage = dataclasses.replace(
            self.usage, refs=tuple(self.usage.refs[row] for row in rows.tolist()), values=self.usage.values[rows]
        )
        sizes = tuple(self.sizes[row] for row in rows.tolist())
        return Candidates(sizes, self.extra_millicores[rows], usage, self.quantiles[rows], self.grid)

    def joined(self, other: Candidates) -> Candidates:
        """Return these candidates and those of `other`, which has different workloads."""
        usage = dataclasses.replace(
            self.usage,
            refs=self.usage.refs + other.usage.refs,
            values=np.concatenate([self.usage.values, other.usage.values]),
        )
        return Candidates(
            self.sizes + other.sizes,
            np.concatenate([self.extra_millicores, other.extra_millicores]),
            usage,
            np.concatenate([self.quantiles, other.quantiles]),
            self.grid,
        )


def candidates(
    inventory: Inventory, usage: Usage[WorkloadRef], ahead: Forecasts[WorkloadRef], settings: SettingSections
) -> Candidates:
    """Return the workloads with peaks above the baseline pods, largest first; `usage` is in the forecasts' order."""
    sizes = _sizes(inventory, usage, settings)
    # rows of the forecasts that ask for more pods than run anyway, and the millicores that those request
    extra: dict[int, float] = {}
    path = level_path(ahead.quantiles, _CANDIDATE)
    for i, ref in enumerate(ahead.refs):
        size = sizes.get(ref)
        if size is None or ahead.reason[i] not in (Reason.OK, Reason.NO_PEAK):
            continue
        pod_counts = pods(path[i], size.base, size.capacity)
        more = int(pod_counts.max(initial=0))
        if more and not pod_counts.all():
            extra[i] = more * size.request_millicores
    rows = np.array(list(extra), dtype=np.intp)
    refs = tuple(ahead.refs[row] for row in extra)
    every = Candidates(
        tuple(sizes[ref] for ref in refs),
        np.array(list(extra.values()), dtype=np.float64),
        dataclasses.replace(usage, refs=refs, values=usage.values[rows]),
        ahead.quantiles[rows],
        ahead.grid,
    )
    return every.largest(MOST_PROPOSALS)


def proposals(
    of: Candidates, settings: SettingSections, before: Rehearsals | None = None
) -> tuple[tuple[Proposal, ...], Rehearsals]:
    """Return a proposal for each candidate, ready ones with most pods first, and all rehearsals.

    `before` are the rehearsals of an earlier analysis, valid for `relearn_hours` while the settings are the same. Only
    candidates without a valid rehearsal get one now.
    """
    of_plans, of_forecasts = settings.section(PlanSettings), settings.section(ForecastingSettings)
    rests_on = " ".join(digest(section) for section in (of_plans, of_forecasts, settings.section(PortraitSettings)))
    proposals_before = before.of if before is not None and before.settings_digest == rests_on else ()
    end_seconds, most_seconds = of.usage.grid.end_seconds, of_forecasts.relearn_hours * HOUR_SECONDS
    lasting = {
        (proposal.workload, proposal.request_millicores): proposal
        for proposal in proposals_before
        if 0 <= end_seconds - proposal.end_seconds < most_seconds
    }
    rows = [row for row, size in enumerate(of.sizes) if (size.workload, size.request_millicores) not in lasting]
    for row, past in zip(rows, _pasts(of.usage, rows, settings) if rows else [], strict=True):
        size = of.sizes[row]
        rehearsed = RehearsedWorkload(size.workload, size.request_millicores, end_seconds, tested(size, past, of_plans))
        lasting[size.workload, size.request_millicores] = rehearsed
    every = [lasting[size.workload, size.request_millicores] for size in of.sizes]
    # who is no candidate now may be one again in an hour
    return _make_proposals(of, [proposal.tested for proposal in every], settings), Rehearsals(
        rests_on, tuple(lasting.values())
    )


def rehearsals(of: Candidates, settings: SettingSections) -> list[Rehearsal]:
    """Return the rehearsal of each candidate's last days, in the order of the candidates."""
    return _pasts(of.usage, list(range(len(of.sizes))), settings) if of.sizes else []


def proposals_after(of: Candidates, pasts: Sequence[Rehearsal], settings: SettingSections) -> tuple[Proposal, ...]:
    """Return a proposal for each candidate, ready ones with most pods first; `pasts` has each one's rehearsal."""
    pairs = zip(of.sizes, pasts, strict=True)
    return _make_proposals(of, [tested(size, past, settings.section(PlanSettings)) for size, past in pairs], settings)


def _make_proposals(of: Candidates, evaluations: Sequence[Tested], settings: SettingSections) -> tuple[Proposal, ...]:
    proposed = []
    for row, (size, evaluation) in enumerate(zip(of.sizes, evaluations, strict=True)):
        path = DayForecast(of.grid.start_seconds, of.grid.step_seconds, of.quantiles[row])
        proposed.append(propose(size, path, evaluation, settings.section(PlanSettings), digest(settings)))
    return tuple(sorted(proposed, key=lambda p: (not p.ready, -p.count, p.workload)))


def rehearsal(
    inventory: Inventory, usage: Usage[WorkloadRef], ref: WorkloadRef, settings: SettingSections
) -> tuple[Size, Rehearsal]:  # fmt: skip
    """Return one workload's size and the rehearsal of its last days; raise NoData if it cannot have a plan."""
    size = _sizes(inventory, usage, settings).get(ref)
    if size is None:
        raise NoData(
            f"workload {ref} cannot have a reservation plan",
            fix=f"Name a {' or '.join(sorted(KINDS))} with usage in the store whose pods request CPU.",
        )
    (past,) = _pasts(usage, [usage.refs.index(ref)], settings)
    return size, past


def _pasts(usage: Usage[WorkloadRef], rows: list[int], settings: SettingSections) -> list[Rehearsal]:
    day = usage.grid.slots_per_day
    of_plans = settings.section(PlanSettings)
    recent = usage.tail((settings.section(ForecastingSettings).history_days + of_plans.backtest_days + 7) * day)
    demand = recent.values[rows].astype(np.float64)
    per_hour = HOUR_SECONDS // recent.grid.step_seconds
    weeks_before = a_week_before(
        np.pad(demand, ((0, 0), (-demand.shape[1] % per_hour, 0)), constant_values=np.nan), recent.grid.step_seconds
    )[:, -demand.shape[1] :]
    in_force = _rehearsed_quantiles(recent, rows, settings)
    span = slice(-of_plans.backtest_days * day, None)
    reaction = lead_seconds(_WISH_SECONDS, (), of_plans) + recent.grid.step_seconds
    step = recent.grid.step_seconds
    return [
        Rehearsal(step, demand[i, span], in_force[i, span], weeks_before[i, span], reaction) for i in range(len(rows))
    ]  # fmt: skip


def table(proposals: Sequence[Proposal]) -> Table:
    """Return the proposals as the table PLANS, one row for each."""
    rows = []
    for proposal in proposals:
        ref, expected = proposal.workload, proposal.expected
        memory = proposal.per_pod.get("memory")
        windows = [(peak.span.start_seconds, peak.span.end_seconds, peak.count) for peak in proposal.windows]
        rows.append(
            dataclasses.asdict(proposal)
            | {
                "namespace": ref.namespace,
                "kind": ref.kind,
                "workload": ref.name,
                "start": int(proposal.window.start_seconds) if proposal.window else None,
                "end": int(proposal.window.end_seconds) if proposal.window else None,
                "pods": proposal.count,
                "cpu": parse_millicores(proposal.per_pod["cpu"]),
                "memory": parse_bytes(memory) if memory else None,
                "hit_ratio": expected.hit_ratio if expected else None,
                "idle_core_hours": expected.idle_core_hours if expected else None,
                "cost": expected.cost if expected else None,
                "occurrences": expected.occurrences if expected else 0,
                "path_start": proposal.start_seconds,
                "wanted": [float(v) for v in proposal.wanted],
                "median": [float(v) for v in proposal.median],
                "windows": [float(v) for window in windows for v in window],
            }
        )
    return Table.from_rows(PLANS, rows)


def _sizes(inventory: Inventory, usage: Usage[WorkloadRef], settings: SettingSections) -> dict[WorkloadRef, Size]:
    """Return the size of every workload that may have a plan: its pods request CPU, and its kind is scalable."""
    eligible = [
        w for w in inventory.workloads if w.ref.kind in KINDS and not w.gaps and _requested_by_pod(w, Resource.CPU) > 0
    ]
    row = {ref: i for i, ref in enumerate(usage.refs)}
    sheet = settings.section(RecommenderSettings).prices
    price, currency = prices(eligible, inventory, sheet), sheet.currency
    sizes = {}
    for workload, paid in zip(eligible, price, strict=True):
        if workload.ref not in row:
            continue
        request, scaler, replicas = _requested_by_pod(workload, Resource.CPU), workload.autoscaler, workload.replicas
        capacity = request * (scaler.targets.get(Resource.CPU, 100) if scaler else 100) / 100
        if scaler:
            # each pod carries its target, and the number that the median of the last days needs runs anyway
            values = usage.values[row[workload.ref], -_BASE_DAYS * usage.grid.slots_per_day :]
            samples = values[np.isfinite(values)]
            usual = float(np.median(samples)) if samples.size else 0.0
            replicas = max(scaler.min_replicas, math.ceil(usual / capacity))
        requests = {r.value: format_amount(r, amount) for r in Resource if (amount := workload.pod_amount(r)) > 0}
        running = replicas * capacity
        sizes[workload.ref] = Size(workload.ref, requests, request, capacity, running, paid.core, currency)
    return sizes


def _requested_by_pod(workload: Workload, resource: Resource) -> int:
    of_containers = sum(c.effective_requests.get(resource, 0) for c in workload.staying)
    return workload.own.requests.get(resource, of_containers)


def _rehearsed_quantiles(recent: Usage[WorkloadRef], rows: list[int], settings: SettingSections) -> Floats:
    """Return the quantiles that were in force in each slot of `recent`, (rows, T, levels); NaN without a forecast."""
    own, step = settings.section(ForecastingSettings), recent.grid.step_seconds
    lean = replace(own, booster_rows=0)
    refs = tuple(recent.refs[i] for i in rows)
    values = recent.values[rows]
    in_force = np.full((*values.shape, len(LEVELS)), np.nan, dtype=np.float32)
    # most back-tests of one rehearsed day are those of the day before it
    members = [Remembering(member) for member in plugins.members(tuple(own.plugins))]
    every, factor = _REHEARSE_SECONDS // step, STEP_SECONDS // step
    end = recent.grid.end_seconds // STEP_SECONDS * STEP_SECONDS
    for back in range(settings.section(PlanSettings).backtest_days * DAY_SECONDS // _REHEARSE_SECONDS, 0, -1):
        cut = recent.grid.index_of(end - back * _REHEARSE_SECONDS)
        if cut < own.minimum_days * recent.grid.slots_per_day:
            continue
        grid = TimeGrid(recent.grid.start_seconds, step, cut)
        past = Usage(refs, grid, values[:, :cut], recent.resource, recent.statistic)
        portraits = portrait.build(refs, np.arange(len(refs)), past, settings.section(PortraitSettings))
        quantiles = forecast(past, portraits, lean, members, fine=False).quantiles
        slots = np.arange(cut, min(cut + every, values.shape[1]))
        in_force[:, slots] = quantiles[:, (slots - cut) // factor]
    return in_force
