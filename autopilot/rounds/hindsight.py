"""EDGE: computes the effect that proposals would have had in the following week, by the back-test on stored usage.

A proposal is the one step that a row names, and it is evaluated alone, without the effect of later steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cotenant.autopilot.decide.records import ProposedWorkload
from cotenant.base.cluster import Inventory
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.resource import Resource
from cotenant.base.store import Store
from cotenant.base.usage.plausible import plausible_signals
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS, Signal, TimeGrid
from cotenant.recommender.backtest import backtest, present, record
from cotenant.recommender.evidence import assemble
from cotenant.recommender.model.recommendation import Field
from cotenant.recommender.money import monthly_savings, prices
from cotenant.recommender.settings import PriceSettings

WEEK_DAYS: Final = 7
SIGNALS: Final = (Signal.CPU_USAGE_MEAN, Signal.CPU_USAGE_MAX, Signal.CPU_THROTTLED_MEAN, Signal.MEMORY_WORKING_SET_MAX)


@dataclass(frozen=True, slots=True)
class WeekAfter:
    """The effect that a proposal would have had in the following week: mean freed requests and money saved a month.

    `kills`, `throttled_minutes`: OOM kills and container-minutes of throttling beyond those of the present limits.
    """

    workload: WorkloadRef
    freed: Mapping[Resource, float]
    money: float
    kills: int
    throttled_minutes: float


def weeks_after(store: Store, proposals: Iterable[ProposedWorkload], sheet: PriceSettings) -> list[WeekAfter]:
    """Return the effect of each proposal whose workload is still known and has stored usage in the following week."""
    inventory = store.read_inventory()
    if inventory is None:
        return []
    groups: dict[tuple[str, int], list[ProposedWorkload]] = defaultdict(list)
    for proposal in proposals:
        hour = int(proposal.seconds // HOUR_SECONDS) * HOUR_SECONDS
        groups[proposal.workload.namespace, hour].append(proposal)
    return [
        week for (_, hour), group in sorted(groups.items()) for week in _weeks(store, inventory, hour, group, sheet)
    ]


def _weeks(
    store: Store, inventory: Inventory, start_seconds: int, group: Sequence[ProposedWorkload], sheet: PriceSettings
) -> Iterator[WeekAfter]:
    """Yield the effect of proposals of one namespace and hour, whose week of usage is read once."""
    workloads = {proposal.workload for proposal in group}
    namespace = group[0].workload.namespace
    part = replace(
        inventory,
        workloads=tuple(w for w in inventory.workloads if w.ref in workloads),
        pods=tuple(p for p in inventory.pods if p.workload in workloads),
    )
    between = ((namespace, "", ""), (f"{namespace}\0", "", ""))
    end = start_seconds + WEEK_DAYS * DAY_SECONDS
    grids = {signal: TimeGrid.from_span(start_seconds, end, signal.spec.step_seconds) for signal in SIGNALS}
    usage = {signal: store.read_sparse(signal, grid, between).dense() for signal, grid in grids.items()}
    evidence = assemble(part, grids[Signal.CPU_USAGE_MEAN], plausible_signals(usage, part), {})
    rows = {ref: row for row, ref in enumerate(evidence.containers)}
    now, then = present(evidence), present(evidence)
    for proposal in group:
        # Write each field's old amount to `now` and its proposed amount to `then`; NaN: not set.
        for value in proposal.values:
            row = rows.get(ContainerRef(proposal.workload, value.container))
            if row is None:
                continue
            for amounts, amount in ((now, value.now), (then, value.amount)):
                column = amounts.requests if value.field is Field.REQUEST else amounts.limits
                column[value.resource][row] = np.nan if amount is None else amount
    outcome = backtest(record(evidence, WEEK_DAYS), now, then)
    price = prices(evidence.workloads, inventory, sheet)
    savings = monthly_savings(outcome.freed, price)
    for proposal in group:
        inside = [row for ref, row in rows.items() if ref.workload == proposal.workload and outcome.pod_minutes[row]]
        if inside:
            kills = np.maximum(outcome.oom_kills - outcome.now_oom_kills, 0)[inside].sum()
            throttled = np.maximum(outcome.throttled_minutes - outcome.now_throttled_minutes, 0)[inside].sum()
            freed = {resource: float(outcome.freed[resource][inside].sum()) for resource in Resource}
            money = sum(float(savings[r][inside].sum()) for r in Resource)
            yield WeekAfter(proposal.workload, freed, money, int(kills), float(throttled))
