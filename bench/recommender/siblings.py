"""Does a sibling's history help a young container: how often the week after passes its request, and at what price.

    .venv/bin/python -m bench.recommender.siblings

No trace says which of its series are of one application. So a series is renamed: its first two weeks are those of a
workload that is known, and some hours before each origin it goes on under another name, with which its history begins.
"Own" is what strategy cotenant asks for by those hours alone where no request is set (the product does so from one day
on, and waits before it); "prior" is the same beside what was known of the former name. Scored is the week after the
origin: memory whose highest value passes the request, and CPU with more than 5 % of its samples above it, which is what
a 95th percentile says.
Containers are those that get a prior: all others are asked for the same with and without. "Spread evenly" is own times
one factor for all, with which all together ask for as much as with priors: what the same price buys without siblings.

"Strangers" are given what was known of another series of the same trace, chosen by seed, in place of their own: how
many of them pass for a sibling, and how much more is then asked for.

Traces: bitbrains_rnd (225 VMs, CPU and active memory, five origins), azure_v1 (89 VMs, CPU, three origins). Nothing was
tuned on them: the twofold agreement and the quarter of a day were set before.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import numpy as np
from msgspec import structs

from bench.recommender.replay_worlds import (
    AZURE_MILLICORES,
    AZURE_ORIGINS,
    BITBRAINS_ORIGINS,
    CPU,
    FOLLOWING_DAYS,
    HISTORY_DAYS,
    MEMORY,
    SETTINGS,
    cut,
    evidence,
    vm_inventory,
)
from bench.record import Row, below, record_on_traces
from bench.traces import trace_matrix
from cotenant.base.identity import ContainerRef, PodContainerRef, WorkloadRef
from cotenant.base.resource import MIB, Resource
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS, FloatMatrix, Signal, TimeGrid, Usage
from cotenant.recommender.base import load_strategy, recommend
from cotenant.recommender.model.recommendation import Field, Recommendation
from cotenant.recommender.model.sibling import SIBLING_INPUT, Sibling
from cotenant.recommender.siblings import related_families, siblings_of

HOURS: Final = (12, 24, 48, 96)
SHARE_ABOVE: Final = 0.05
SEED: Final = 7
LESS: Final = 0.8
SIGNALS: Final = {CPU: Signal.CPU_USAGE_MEAN, MEMORY: Signal.MEMORY_WORKING_SET_MAX}
AT_ONCE: Final = structs.replace(SETTINGS, cotenant=structs.replace(SETTINGS.cotenant, minimum_days=0.0))
"""The product's settings, but for the day of history that a value needs: what "own" would ask for."""


@dataclass(frozen=True, eq=False)
class Trace:
    """Series of one data set by signal, (n, T) each, in the unit; origins in days after its first whole day."""

    name: str
    grid: TimeGrid
    values: Mapping[Signal, FloatMatrix]
    origins: Sequence[int]

    def usage(self, names: Sequence[str]) -> dict[Signal, Usage[PodContainerRef]]:
        """All series, each of the one container of a pod of that name."""
        refs = tuple(PodContainerRef("trace", name, "app") for name in names)
        return {
            s: Usage(refs, self.grid, np.ascontiguousarray(v, dtype=np.float32), s.spec.resource, s.spec.statistic)
            for s, v in self.values.items()
        }


@dataclass(frozen=True, eq=False)
class Scored:
    """A young container's request without and with a prior, in the unit, and the samples of the week after."""

    resource: Resource
    own: int
    prior: int
    after: FloatMatrix

    def passed(self, amount: float) -> bool:
        """Whether the week passed a request of this amount."""
        return bool((self.after > amount).mean() > (SHARE_ABOVE if self.resource is CPU else 0.0))


def former(row: int) -> str:
    """The name of a series before it was renamed; digits of their own word would be a version."""
    return f"vm{row}x"


def recommendations_of(
    of: Trace, names: Sequence[str], span: tuple[float, float], others: Sequence[Sibling] | None, at_once: bool
) -> list[Recommendation]:
    """What is asked for by the samples of a span alone, Unix seconds, beside what is known of others."""
    usage = {signal: cut(series, int(span[0]), int(span[1])) for signal, series in of.usage(names).items()}
    refs = sorted({ref for series in usage.values() for ref in series.refs})
    own_evidence = evidence(vm_inventory(refs, {}, int(span[1])), usage)
    own_evidence = replace(own_evidence, siblings=related_families(others or (), own_evidence.containers))
    return recommend(load_strategy("cotenant"), own_evidence, AT_ONCE if at_once else SETTINGS)


def strangers(siblings: Sequence[Sibling], seed: int) -> list[Sibling]:
    """The same names, each with what was known of another one."""
    names = sorted({sibling.container for sibling in siblings}, key=str)
    others = names[:]
    random.Random(seed).shuffle(others)
    becomes = dict(zip(others, names, strict=True))
    return [replace(s, container=becomes[s.container]) for s in siblings if becomes[s.container] != s.container]


def scored(of: Trace, hours: int, *, strange: bool) -> dict[Resource, tuple[int, list[Scored]]]:
    """By resource: how many young containers could have a prior, and those that got one."""
    by_resource: dict[Resource, tuple[int, list[Scored]]] = {r: (0, []) for r in Resource}
    start = -(-of.grid.start_seconds // DAY_SECONDS) * DAY_SECONDS
    rows = range(len(next(iter(of.values.values()))))
    for day in of.origins:
        origin = start + day * DAY_SECONDS
        renamed = origin - hours * HOUR_SECONDS
        before = max(start, renamed - HISTORY_DAYS * DAY_SECONDS), renamed
        others = [*siblings_of(recommendations_of(of, [former(row) for row in rows], before, None, False))]
        others = strangers(others, SEED + day) if strange else others
        names = [f"{former(row)}-v2" for row in rows]
        own, prior = (
            recommendations_of(of, names, (renamed, origin), siblings, at_once)
            for siblings, at_once in ((None, True), (others, False))
        )
        week = {r: of.usage(names)[s] for r, s in SIGNALS.items() if s in of.values}
        week = {r: cut(u, origin, origin + FOLLOWING_DAYS * DAY_SECONDS) for r, u in week.items()}
        with_prior = {(s.container.workload.name, s.resource) for s in others}
        for mine, beside in zip(own, prior, strict=True):
            for resource, series in week.items():
                first, second = mine.value(resource, Field.REQUEST), beside.value(resource, Field.REQUEST)
                ref = _series(mine.container)
                name = mine.container.workload.name.removesuffix("-v2")
                if first is None or second is None or first.amount is None or ref not in series.row_of:
                    continue
                count, scores = by_resource[resource]
                by_resource[resource] = (count + ((name, resource) in with_prior), scores)
                if SIBLING_INPUT in second.inputs and second.amount is not None:
                    after = series.values[series.row_of[ref]]
                    scores.append(Scored(resource, first.amount, second.amount, after[np.isfinite(after)]))
    return by_resource


def _series(container: ContainerRef) -> PodContainerRef:
    workload: WorkloadRef = container.workload
    return PodContainerRef(workload.namespace, workload.name, container.container)


def rows_of(of: Trace) -> Iterator[Row]:
    for hours in HOURS:
        true, false = scored(of, hours, strange=False), scored(of, hours, strange=True)
        for resource in Resource:
            count, scores = true[resource]
            if not scores:
                continue
            name = f"{of.name}, {resource}, {hours} h of its own"
            price = _price(scores)
            own, evenly, prior = (
                float(np.mean([s.passed(amount) for s, amount in zip(scores, amounts, strict=True)]))
                for amounts in ([s.own for s in scores], [price * s.own for s in scores], [s.prior for s in scores])
            )
            note = (
                f"{len(scores)} of {count} with a sibling get a prior and are asked for {price:g} times as much; "
                f"passed: {own:.3f} by its own, {evenly:.3f} spread evenly, {prior:.3f} with it"
            )
            ratio = round(prior / evenly, 3) if evenly else 1.0
            yield below(
                f"{name}: weeks that pass a prior, by those at the same price evenly", ratio, "ratio", LESS, note
            )
            tried, wrong = false[resource]
            if tried:
                note = f"{len(wrong)} of {tried}; those are asked for {_price(wrong):g} times as much" if wrong else ""
                yield Row(
                    f"{name}: strangers that pass for a sibling", round(len(wrong) / tried, 3), "share", note=note
                )
        print(f"{of.name}, {hours} h: done", flush=True)


def _price(scores: Sequence[Scored]) -> float:
    """What is asked for with priors, all together, by what is without."""
    return round(sum(s.prior for s in scores) / sum(s.own for s in scores), 3)


def bitbrains(folder: Path) -> Trace:
    columns = {
        c: trace_matrix(folder, "bitbrains_rnd", c) for c in ("cpu_usage_pct", "cpu_alloc_cores", "mem_usage_mib")
    }
    cores, grid = columns["cpu_alloc_cores"]
    millicores = columns["cpu_usage_pct"][0] / 100 * np.where(cores > 0, cores * 1000, np.nan)
    values: dict[Signal, FloatMatrix] = {Signal.CPU_USAGE_MEAN: millicores.astype(np.float32)}
    values[Signal.MEMORY_WORKING_SET_MAX] = (columns["mem_usage_mib"][0] * MIB).astype(np.float32)
    return Trace("bitbrains_rnd", grid, values, BITBRAINS_ORIGINS)


def azure(folder: Path) -> Trace:
    values, grid = trace_matrix(folder, "azure_v1_vms", "cpu_avg_pct")
    return Trace("azure_v1", grid, {Signal.CPU_USAGE_MEAN: values * (AZURE_MILLICORES / 100)}, AZURE_ORIGINS)


def measure(folder: Path) -> list[Row]:
    """All rows, in the order of the page."""
    return [row for of in (bitbrains(folder), azure(folder)) for row in rows_of(of)]


if __name__ == "__main__":
    record_on_traces("siblings", measure)
