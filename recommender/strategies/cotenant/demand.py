"""The containers' needs before any bound: CPU for the busy hours of one pod, memory above all usage. Pure.

Columns over the n containers of the evidence, in the unit, NaN = unknown; `bounds` and `strategy` turn them into
values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cotenant.base.resource import Resource
from cotenant.base.usage.plausible import largest_capacity
from cotenant.base.usage.usage import Signal
from cotenant.recommender.evidence import Evidence, Floats, Integers
from cotenant.recommender.settings import CotenantSettings
from cotenant.recommender.strategies.cotenant import daemons, day_risk, jobs, trend
from cotenant.recommender.strategies.cotenant.pods import summarise
from cotenant.recommender.strategies.cotenant.policy import Policy

GUARANTEED_FRACTION: Final = 0.999
"""Quantile of the CPU demand where request = limit must stay. Where the limit is the request, what lies above it is
throttled: one part in a thousand."""
RETURNING_PEAK_RATIO: Final = 3.0
"""Half hour that is busy on most days, or hour that is busy every week, / the quantile of the demand, above which
it is a peak of its own. Three times the quantile is beyond the spread of one regime of usage."""
UNEVEN_RATIO: Final = 2.0
"""Highest pod's p95 / median pod's p95 above which replicas count as uneven. Twice the median pod is what findings
call uneven, too."""

CPU, MEMORY = Resource.CPU, Resource.MEMORY
FINEST: Final = {CPU: Signal.CPU_USAGE_MAX, MEMORY: Signal.MEMORY_WORKING_SET_MAX}
RISK_FRACTION: Final = 0.95
"""Quantile of the demand that is compared with the present request to tell a risk."""
RISEN: Final = 0.5
"""Weight of the decaying quantile where it is above that of the whole window: half of a rise is taken to last."""

Groups = Mapping[int, Mapping[str, float]]


@dataclass(frozen=True, slots=True, eq=False)
class ResourceDemand:
    """The demand for one resource by all containers, (n,) each, in its unit unless stated otherwise.

    `largest_node` is the capacity of the largest node, 0 = unknown. `wanted` is the need with margin; `urgent` the need
    after OOM kills. `seen` is the highest measured usage of one pod; `highest` the highest demand, which for CPU adds
    an estimate of throttled usage; `startup` the maximum during start-up. `reserved` is `wanted` if request = limit has
    to stay. `columns` are more figures, shown as inputs of values; `groups` are needs by container and node group.
    `high` is the p95 of CPU demand (of memory, `highest`); it and `throttled_share` (0..1) tell a risk. `leak` is bytes
    a day; `pods` the number of pods seen; `runs` the number of a job template's runs seen, 0 for other containers.
    """

    resource: Resource
    largest_node: int
    wanted: Floats
    urgent: Floats
    seen: Floats
    highest: Floats
    startup: Floats
    reserved: Floats
    columns: Mapping[str, Floats]
    groups: Groups
    high: Floats
    throttled_share: Floats
    leak: Floats
    pods: Integers
    runs: Integers
    span_days: Floats
    coverage: Floats


def cpu_demand(evidence: Evidence, policies: Sequence[Policy], own: CotenantSettings) -> ResourceDemand:
    """Return the CPU demand: by day risk if set, else the highest of quantile, peaks, neediest pods, plus margin."""
    portrait, group = evidence.portraits[CPU], jobs.groups(evidence)
    fractions = np.array([(p.cpu_fraction, RISK_FRACTION, GUARANTEED_FRACTION) for p in policies]).reshape(-1, 3)
    pods = summarise(evidence, fractions)
    blended = []
    for k in range(3):  # the quantile of the whole window, moved towards the decaying one where that is higher
        decayed, whole_window = _decaying_quantiles(evidence, fractions[:, k]), pods.quantiles[:, k]
        both = np.fmax(whole_window, whole_window * (1 - RISEN) + decayed * RISEN)
        blended.append(np.where(np.isfinite(both), both, np.fmax(decayed, whole_window)))
    quantile, high, reserved = blended
    grown = trend.growth(evidence)
    uneven = pods.highest_p95 > UNEVEN_RATIO * pods.median_p95
    groups = daemons.by_group(evidence, CPU, fractions[:, 0].tolist())
    neediest = np.full(len(evidence), np.nan)
    for container, of_groups in groups.items():
        neediest[container] = max(of_groups.values())
    daily = _outlying_peaks(pods.daily_half_hour, quantile)
    weekly = _outlying_peaks(pods.weekly_hour, np.fmax(quantile, daily))
    terms = {
        "demand_quantile": quantile * grown.factor,
        "daily_peak": daily * grown.mean_factor,
        "weekly_peak": weekly,
        "highest_pod_if_uneven": np.where(uneven, pods.highest_p95, np.nan),
        "neediest_node_group": neediest,
    }
    startup = jobs.group_maximum(evidence.from_portrait(CPU, portrait.startup_max), group)
    steady = jobs.group_maximum(np.fmax.reduce(list(terms.values()), axis=0), group)
    shown = {
        "growth_per_week": np.where(grown.per_week > 0, grown.per_week, np.nan),
        "highest_pod_p95": np.where(uneven, pods.highest_p95, np.nan),
        "median_pod_p95": np.where(uneven, pods.median_p95, np.nan),
        "startup_max": startup,
        "throttled_share": pods.throttled_share,
    }
    # a job shorter than the start-up phase has nothing else
    amounts = with_margin(np.where(np.isfinite(steady), steady, startup), policies)
    by_risk, shown[day_risk.MARGIN_INPUT] = _by_day_risk(evidence, own.cpu_day_risk)
    by_risk = jobs.group_maximum(by_risk, group)
    amounts = np.where(np.isfinite(by_risk), by_risk, amounts)
    return ResourceDemand(
        CPU,
        _largest_node(evidence, CPU),
        amounts,
        urgent=np.full(len(evidence), np.nan),
        seen=jobs.group_maximum(evidence.highest_seen(CPU), group),
        highest=jobs.group_maximum(_highest(evidence, CPU), group),
        startup=startup,
        reserved=np.fmax(amounts, with_margin(jobs.group_maximum(reserved, group), policies)),
        columns={n: c for n, c in terms.items() if n != "highest_pod_if_uneven"} | shown,
        groups=groups,
        high=jobs.group_maximum(high, group),
        throttled_share=np.nan_to_num(pods.throttled_share),
        leak=np.full(len(evidence), np.nan),
        **_history(evidence, CPU, group),
    )


def memory_demand(evidence: Evidence, policies: Sequence[Policy], own: CotenantSettings) -> ResourceDemand:
    """Return the memory demand: the highest working set, short peaks included, + margin, raised by OOM kills."""
    group = jobs.groups(evidence)
    highest = jobs.group_maximum(_highest(evidence, MEMORY), group)
    # Memory required after OOM kills: more than the limit in force at each; NaN without a kill or without a figure.
    after = np.full(len(evidence), np.nan)
    for i, kills in enumerate(evidence.oom_kills):
        for limit in (evidence.limit_at(i, kill) for kill in kills):
            after[i] = np.fmax(after[i], after_kill(limit if np.isfinite(limit) else float(highest[i]), own))
    urgent = jobs.group_maximum(after, group)
    margin = 1 + np.array([p.memory_margin_fraction for p in policies])
    amounts, leak = np.fmax(highest * margin, urgent), trend.leak(evidence).per_day
    return ResourceDemand(
        MEMORY,
        _largest_node(evidence, MEMORY),
        amounts,
        urgent=urgent,
        seen=highest,
        highest=highest,
        startup=jobs.group_maximum(evidence.from_portrait(MEMORY, evidence.portraits[MEMORY].startup_max), group),
        reserved=amounts,
        columns={"after_oom": urgent, "leak_bytes_per_day": leak},
        groups=daemons.by_group(evidence, MEMORY, [1.0] * len(evidence)),
        high=highest,
        throttled_share=np.zeros(len(evidence)),
        leak=leak,
        **_history(evidence, MEMORY, group),
    )


def with_margin(demand: Floats, policies: Sequence[Policy]) -> Floats:
    """Return each container's CPU demand + its margin share + the square root of (demand x the root margin)."""
    share = np.array([p.cpu_margin_fraction for p in policies])
    root = np.array([p.cpu_root_margin_millicores for p in policies])
    amounts: Floats = demand * (1 + share) + np.sqrt(np.maximum(demand, 0) * root)
    return amounts


def _by_day_risk(evidence: Evidence, risk: float | None) -> tuple[Floats, Floats]:
    """Return CPU requests in millicores by a chosen risk per day, and margin factors, (n,) each; NaN if none."""
    nothing = np.full(len(evidence), np.nan)
    if risk is None:
        return nothing, nothing
    portrait = evidence.portraits[CPU]
    full = portrait.daily_counts >= day_risk.FULL_DAY * portrait.daily_counts.max(axis=1, initial=0.0, keepdims=True)
    none = np.full((1, full.shape[1]), np.nan)
    maxima, means = (
        np.vstack([np.where(full, column, np.nan), none])[evidence.portrait_rows[CPU]]
        for column in (portrait.daily_maxima, portrait.daily_means)
    )
    provided = np.fmax(evidence.limits[CPU], evidence.requests[CPU])
    risk_amounts = day_risk.amounts(maxima, means, provided, risk, evidence.least_margins)
    return risk_amounts.amounts, np.where(np.isfinite(risk_amounts.amounts), risk_amounts.margin, np.nan)


def _outlying_peaks(peak: Floats, usual: Floats) -> Floats:
    """Return the peaks that are so far above the usual demand that no quantile covers them, NaN for others."""
    return np.where(peak > RETURNING_PEAK_RATIO * usual, peak, np.nan)


def _largest_node(evidence: Evidence, resource: Resource) -> int:
    return largest_capacity(evidence.inventory.nodes, resource)


def _decaying_quantiles(evidence: Evidence, fractions: Floats) -> Floats:
    """Return each container's decaying quantile at its own fraction, (n,), at most the measured maximum."""
    portrait, rows = evidence.portraits[CPU], evidence.portrait_rows[CPU]
    quantiles = np.full(len(evidence), np.nan)
    for fraction in np.unique(fractions):
        mine = np.flatnonzero((fractions == fraction) & (rows >= 0))
        quantiles[mine] = portrait.histograms.select(rows[mine]).percentile(float(fraction))
    return np.where(np.isfinite(quantiles), np.fmin(quantiles, evidence.from_portrait(CPU, portrait.maximum)), np.nan)


def _highest(evidence: Evidence, resource: Resource) -> Floats:
    portrait = evidence.portraits[resource]
    remembered = evidence.from_portrait(resource, np.fmax(portrait.maximum, portrait.startup_max))
    return np.fmax(remembered, evidence.highest(FINEST[resource]))


def after_kill(limit_bytes: float, own: CotenantSettings) -> float:
    """Return the memory, in bytes, that a container needs after an OOM kill at this limit."""
    return max(limit_bytes + own.oom_bump_bytes, limit_bytes * own.oom_bump_ratio)


def _history(evidence: Evidence, resource: Resource, group: Integers) -> dict[str, Any]:
    """Return runs, days from first to last sample of each container's template, and coverage of its pods' lives."""
    portrait = evidence.portraits[resource]
    last = jobs.group_maximum(evidence.from_portrait(resource, portrait.last_seconds), group)
    first = -jobs.group_maximum(-evidence.from_portrait(resource, portrait.first_seconds), group)
    pods = evidence.pods_seen(daemons.SOURCE[resource])
    return {
        "pods": pods,
        "runs": jobs.runs(evidence, pods, group),
        "span_days": np.nan_to_num((last - first) / 86_400.0),
        "coverage": evidence.coverage[resource],
    }
