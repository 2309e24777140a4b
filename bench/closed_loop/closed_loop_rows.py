"""The rows of `bench.closed_loop.closed_loop_node`: the real node, the simulated one, and the constants that fit. Pure.

A day has levels of the service's load in percent of the node; at each level a phase without batch and one under each
policy. As a trace would tell it, the simulated phase gets what the service uses without batch, the policy and what the
rest of the machine uses, and nothing else of the real one:

    online   = what the service uses at this level without batch
    allowed  = the node agent's own formulas of target and of CPUs or quota
    batch    = min(allowed, limit of the batch pod, cores - online - system)
    goodput  = batch * batch_progress(online / cores)
    p99      = p99 alone * latency_ratio(online + system, batch, by quota or not)
"""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np

from bench.record import Row, below
from cotenant.base.resource import MILLICORES_PER_CORE
from cotenant.enforcer.contract import NO_LIMIT
from cotenant.enforcer.decide.knobs import MICROSECONDS_PER_MILLICORE
from cotenant.enforcer.model.node_policy import decode
from cotenant.enforcer.strategies.suppression.suppress import quota_for
from cotenant.enforcer.strategies.suppression.suppress_cpuset import wanted_count
from cotenant.enforcer.strategies.suppression.suppress_target import NodeCpuDemand, with_least
from cotenant.experiment.interference import Interference, batch_progress, latency_multiplier, latency_ratio

ALONE: Final = "no colocation"
DEFAULT: Final = "default policy"
QUOTA: Final = "quota"
POLICIES: Final[Mapping[str, Mapping[str, object]]] = {
    DEFAULT: {"enable": True},
    QUOTA: {"enable": True, "cpuSuppressPolicy": "cfsQuota"},
}
DAY: Final = (20, 35, 50, 65, 80)
FITTED: Final = (20, 50, 80)
"""Levels whose p99 the constants are fitted on; the others check them."""
P99_OF_ALONE: Final = 1.1
WITHIN: Final = 0.1
GRID: Final[Mapping[str, Sequence[float]]] = {
    "preemption_leak": [round(0.01 * n, 2) for n in range(41)],
    "hardware_share": [round(0.01 * n, 2) for n in range(41)],
}
CONSTANTS: Final = ("tail_weight", *GRID, "quota_penalty")
FITTED_CONSTANT: Final = "fitted constant "
TAIL_WEIGHTS: Final = [round(0.1 * n, 1) for n in range(101)]


@dataclass(frozen=True, slots=True)
class Phase:
    """Means of one level under one policy over its rounds; cores are used ones, goodput cores of undisturbed work.

    system_cores: used by what is no pod of the node.
    """

    load_percent: int
    policy: str
    online_cores: float
    batch_cores: float
    system_cores: float
    goodput_cores: float
    p99_ms: float


Day = Sequence[Phase]


def mean_phase(rounds: Sequence[Phase]) -> Phase:
    """One phase of several of the same level and policy: medians."""
    numbers = [f.name for f in fields(Phase) if f.name not in ("load_percent", "policy")]
    return replace(rounds[0], **{name: statistics.median(getattr(r, name) for r in rounds) for name in numbers})


def allowed_cores(policy: str, cores: int, online_cores: float, system_cores: float) -> float:
    """What the node agent lets best effort use once it has settled."""
    thresholds = decode({"resourceUsedThresholdWithBE": dict(POLICIES[policy])}).thresholds
    online, system = (int(MILLICORES_PER_CORE * used) for used in (online_cores, system_cores))
    use = NodeCpuDemand(MILLICORES_PER_CORE * cores, online, 0, system, 0)
    free = with_least(use.capacity * thresholds.cpu_suppress_threshold_percent // 100 - use.online, use, thresholds)
    if thresholds.cpu_suppress_policy == "cpuset":
        return float(wanted_count(free, cores, cores))
    return quota_for(free, NO_LIMIT, use.capacity) / MICROSECONDS_PER_MILLICORE / MILLICORES_PER_CORE


def simulated(real: Day, model: Interference, cores: int, limit_cores: float) -> list[Phase]:
    """The same day without the real node; a phase's p99_ms is the real one's alone times the simulated ratio."""
    alone = {phase.load_percent: phase for phase in real if phase.policy == ALONE}
    return [_simulated(phase, model, cores, limit_cores, alone[phase.load_percent]) for phase in real]


def _simulated(phase: Phase, model: Interference, cores: int, limit_cores: float, alone: Phase) -> Phase:
    online, batch = alone.online_cores, 0.0
    if phase.policy != ALONE:
        allowed = allowed_cores(phase.policy, cores, online, phase.system_cores)
        batch = max(min(allowed, limit_cores, cores - online - phase.system_cores), 0.0)
    progress = float(batch_progress(model, np.array([online / cores]))[0])
    ratio = p99_ratio(model, cores, online + phase.system_cores, batch, by_quota=phase.policy == QUOTA)
    return replace(
        phase, online_cores=online, batch_cores=batch, goodput_cores=batch * progress, p99_ms=alone.p99_ms * ratio
    )


def p99_ratio(
    model: Interference, cores: int, online_cores: float, batch_cores: float, *, by_quota: bool = False
) -> float:
    """The model's p99 with batch over that without it, memory being no matter."""
    cores_array = np.array([float(cores)])
    empty = np.zeros(1)
    shares = (np.array([online_cores / cores]), np.array([batch_cores / cores]))
    return float(latency_ratio(model, cores_array, *shares, (empty, empty), by_quota=by_quota)[0])


def fitted(real: Day, cores: int) -> Interference:
    """Constants that explain the fitted levels best, by squared differences of logarithms, on a grid.

    tail_weight by how p99 alone grows with load; leak and share of hardware by p99 with batch over p99 alone under the
    default policy; the penalty of a quota by what they leave unexplained under the other one.
    """
    levels = [phase for phase in real if phase.load_percent in FITTED]
    alone = {phase.load_percent: phase for phase in levels if phase.policy == ALONE}
    lowest = alone[min(alone)]

    def growth_error(weight: float) -> float:
        model = Interference(tail_weight=weight)
        expected = {
            load: _multiplier(model, cores, load_phase.online_cores / cores) for load, load_phase in alone.items()
        }
        return sum(
            math.log(p.p99_ms / lowest.p99_ms / (expected[load] / expected[lowest.load_percent])) ** 2
            for load, p in alone.items()
        )

    def unexplained(model: Interference, policy: str) -> list[float]:
        """Logarithms of p99 over that of the model without a quota's penalty."""
        return [
            math.log(
                phase.p99_ms
                / alone[phase.load_percent].p99_ms
                / p99_ratio(model, cores, phase.online_cores + phase.system_cores, phase.batch_cores)
            )
            for phase in _of(levels, policy)
        ]

    weight = min(TAIL_WEIGHTS, key=growth_error)
    candidates = [
        Interference(tail_weight=weight, **dict(zip(GRID, values, strict=True)))
        for values in itertools.product(*GRID.values())
    ]
    best = min(candidates, key=lambda model: sum(rest**2 for rest in unexplained(model, DEFAULT)))
    penalty = math.exp(statistics.mean(unexplained(best, QUOTA))) - 1
    return replace(best, quota_penalty=max(round(penalty, 2), 0.0))


def _multiplier(model: Interference, cores: int, online_ratio: float) -> float:
    cores_array, empty = np.array([float(cores)]), np.zeros(1)
    return float(latency_multiplier(model, cores_array, np.array([online_ratio]), empty, empty)[0])


def rest_cores(real: Day) -> float:
    """What the rest of the machine used, median over the phases."""
    return statistics.median(phase.system_cores for phase in real)


def rows_of(real: Day, cores: int, limit_cores: float) -> list[Row]:
    """Everything that the bench publishes."""
    model = fitted(real, cores)
    day = simulated(real, model, cores, limit_cores)
    return [*_summary(real, day, cores), *constant_rows(model), *_phase_rows(real, day, cores)]


def constant_rows(model: Interference) -> Iterator[Row]:
    """The fitted constants; `Interference` has them as its defaults."""
    for name in CONSTANTS:
        yield Row(f"{FITTED_CONSTANT}{name}", getattr(model, name), "", note=f"on loads of {FITTED} %")


def with_constants(source: str, rows: Sequence[Row]) -> str:
    """The text of the module of `Interference` with the fitted constants of these rows as its defaults."""
    for row in rows:
        if row.metric.startswith(FITTED_CONSTANT):
            name = row.metric.removeprefix(FITTED_CONSTANT)
            source = re.sub(
                rf"^    {name}: float = .*$", f"    {name}: float = {row.value:g}", source, flags=re.MULTILINE
            )
    return source


def _summary(real: Day, day: Day, cores: int) -> Iterator[Row]:
    yield below("p99 default policy / no colocation, geometric mean of the day", _p99(real, DEFAULT), "x", P99_OF_ALONE)
    yield below("the same, simulated", _p99(day, DEFAULT), "x", P99_OF_ALONE)
    for policy in POLICIES:
        pairs = {
            "utilisation": (_used(real, policy, cores), _used(day, policy, cores)),
            "batch goodput": (_goodput(real, policy), _goodput(day, policy)),
            "p99 / no colocation": (_p99(real, policy), _p99(day, policy)),
            "p99 / no colocation, levels that the fit has not had": (
                _p99(_checked(real), policy),
                _p99(_checked(day), policy),
            ),
        }
        for what, (measured, expected) in pairs.items():
            difference = abs(expected / measured - 1) if measured else float("inf")
            note = f"simulated {expected:.3f}, real {measured:.3f}"
            yield below(f"{policy}: {what}, simulated off real", difference, "ratio", WITHIN, note)


def _phase_rows(real: Day, day: Day, cores: int) -> Iterator[Row]:
    for phase, other in zip(real, day, strict=True):
        where = f"service at {phase.load_percent} % of the node, {phase.policy}"
        text = (
            f"online {phase.online_cores:.2f} ({other.online_cores:.2f}), batch {phase.batch_cores:.2f}"
            f" ({other.batch_cores:.2f}), goodput {phase.goodput_cores:.2f} ({other.goodput_cores:.2f}) cores,"
            f" the rest of the machine {phase.system_cores:.2f}"
        )
        yield Row(f"{where}: p99", phase.p99_ms, "ms", note=f"{text}; in brackets simulated, p99 {other.p99_ms:.2f} ms")


def _of(day: Day, policy: str) -> list[Phase]:
    return [phase for phase in day if phase.policy == policy]


def _checked(day: Day) -> list[Phase]:
    return [phase for phase in day if phase.load_percent not in FITTED]


def _used(day: Day, policy: str, cores: int) -> float:
    return statistics.mean((p.online_cores + p.batch_cores) / cores for p in _of(day, policy))


def _goodput(day: Day, policy: str) -> float:
    return statistics.mean(p.goodput_cores for p in _of(day, policy))


def _p99(day: Day, policy: str) -> float:
    """Geometric mean over the day's levels: a level counts by its factor, not by its milliseconds."""
    alone = {phase.load_percent: phase.p99_ms for phase in _of(day, ALONE)}
    return statistics.geometric_mean(p.p99_ms / alone[p.load_percent] for p in _of(day, policy))
