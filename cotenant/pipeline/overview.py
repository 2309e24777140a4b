"""Converts an Analysis to the document of the page Home: headline numbers, charts, waste and next peak. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import numpy.typing as npt

from cotenant.base import measures
from cotenant.base.cluster import Inventory
from cotenant.base.colocation.reclaim_policies import Band
from cotenant.base.identity import ClusterRef
from cotenant.base.kubernetes.quantity import add
from cotenant.base.reasons import SENTENCES, Reason
from cotenant.base.resource import Resource
from cotenant.base.table import truncate_to_integers
from cotenant.base.usage.forecast import LEVELS as FORECAST_LEVELS
from cotenant.base.usage.forecast import Forecasts
from cotenant.base.usage.peak import PeakAhead, sentence, shown_peaks
from cotenant.base.usage.usage import DAY_SECONDS, Usage
from cotenant.forecasting.peak_time import RUN_SECONDS, busiest
from cotenant.pipeline.analysis import Analysis
from cotenant.pipeline.browse import hour_of_week, hourly
from cotenant.recommender.colocation.model.lendable import LEVELS, total_now
from cotenant.recommender.model.recommendation import Field
from cotenant.recommender.model.savings import freed_of, total_change, worth_the_effort
from cotenant.recommender.model.views import BandSeries, Headline, NamespaceWaste, Overview

SHOWN_LEVELS = ("0.1", "0.5", "0.9", "0.95")


def overview(analysis: Analysis, *, demo: bool, strategy: str) -> Overview:
    """Return the document of the page Home. Ratios are of the newest hour, waste is of the whole window."""
    history, inventory = analysis.history, analysis.history.inventory
    quality = history.quality
    cpu_freed = freed_of([total_change(recommendation, Resource.CPU) for recommendation in analysis.recommendations])
    ends = [recommendation.end_seconds for recommendation in analysis.recommendations]
    kept_ends = [end for end in ends if end < history.window.end_seconds]
    cpu_forecast = analysis.cluster_forecasts[Resource.CPU]
    values = (value for recommendation in analysis.recommendations for value in recommendation.values)
    requests = (value.reason for value in values if value.field is Field.REQUEST)
    return Overview(
        cluster=inventory.cluster,
        source=quality.source if quality else "unknown",
        demo=demo,
        time_seconds=newest_seconds(analysis),
        computed_seconds=analysis.computed_seconds,
        window_days=history.window.size * history.window.step_seconds / DAY_SECONDS,
        scrape_interval_seconds=quality.scrape_interval_seconds if quality else 0.0,
        nodes=len(inventory.nodes),
        workloads=len(inventory.workloads),
        containers=len(analysis.recommendations),
        pods=sum(p.running for p in inventory.pods),
        headline=_headline(analysis),
        cpu=_band(analysis, Resource.CPU),
        memory=_band(analysis, Resource.MEMORY),
        heat=_heat(analysis),
        waste=_waste(analysis),
        peak=_peak(analysis),
        peak_reason=SENTENCES[cpu_forecast.reason[0] if cpu_forecast.reason else Reason.NO_DATA],
        severities={s.value: n for s, n in Counter(r.severity for r in analysis.recommendations).items()},
        patterns={p.value: n for p, n in Counter(analysis.workloads.patterns).items()},
        reasons={r.value: n for r, n in Counter(requests).items()},
        savings=analysis.savings,
        saving_cpu_millicores=analysis.savings.all_steps.frees.millicores,
        saving_memory_bytes=analysis.savings.all_steps.frees.bytes,
        worth_the_effort=worth_the_effort(cpu_freed),
        strategy=strategy,
        settings_digest=analysis.settings_digest,
        learned_seconds=analysis.learned_seconds,
        kept_recommendations=len(kept_ends),
        kept_seconds=min(kept_ends, default=None),
        coverage=analysis.coverage.total.samples_present,
        notes=[*inventory.notes, *(quality.notes if quality else ())],
        worst_days={r.value: day for r, day in analysis.worst_days.items()},
        worst_day_sentences=[sentence(day, r) for r, day in analysis.worst_days.items()],
    )


def allocatable(inventory: Inventory, resource: Resource) -> int:
    """Return the sum of the nodes' allocatable amounts, in the resource's unit."""
    return add(n.allocatable.get(resource, 0) for n in inventory.nodes)


def _known_allocatable(inventory: Inventory, resource: Resource) -> float:
    """Return the sum over the nodes; NaN if no node is known."""
    return float(allocatable(inventory, resource) or "nan")


def newest_seconds(analysis: Analysis) -> int:
    """Return the end of the newest time slot with usage, Unix time; the start of the window if there is none.

    Usage of CPU counts, or of memory if the source has no CPU usage at all.
    """
    totals = [analysis.cluster_totals[resource] for resource in Resource]
    for total in totals:
        slots = np.flatnonzero(~np.isnan(total.values[0])) if total.values.size else np.array([], dtype=np.intp)
        if slots.size:
            return int(total.grid.times()[slots[-1]] + total.grid.step_seconds)
    return totals[0].grid.start_seconds


def now(usage: Usage[ClusterRef]) -> float:
    """Return the newest known hourly mean of the cluster's usage, in the resource's unit; NaN if none is known."""
    row = hourly(usage).values[:1]
    finite = row[np.isfinite(row)]
    return float(finite[-1]) if finite.size else float("nan")


def _headline(analysis: Analysis) -> Headline:
    inventory = analysis.history.inventory
    ratios = []
    for resource in Resource:
        capacity = _known_allocatable(inventory, resource)
        by_node = inventory.known_requests_by_node(resource)
        requested = sum(amount for amount in by_node.values() if amount is not None)
        unknown = sum(node.allocatable.get(resource, 0) for node in inventory.nodes if by_node[node.name] is None)
        limited = sum(w.total(resource, "limits") for w in inventory.workloads)
        ratios += [
            now(analysis.cluster_totals[resource]) / capacity,
            measures.ratio_of(requested, capacity - unknown),
            limited / capacity,
        ]
    return Headline(*ratios)


def _band(analysis: Analysis, resource: Resource) -> BandSeries:
    past = hourly(analysis.cluster_totals[resource])
    forecast, lines = analysis.cluster_forecasts[resource], analysis.lendable[resource]
    # The known amount of every node, in the resource's unit; None where it is not known.
    of_resource = [r for r in analysis.reclaimable if r.resource is resource]
    amounts = {band: [r.known_amount for r in of_resource if r.band is band] for band in Band}
    # Where the nodes' forecast has another grid, because it was made of another history, nothing is known ahead.
    unknown = None if lines.half_hours == forecast.grid else np.full(forecast.grid.size, np.nan)
    ahead = {
        band: {level: _floats(lines.ahead_of_cluster(band, level) if unknown is None else unknown) for level in LEVELS}
        for band in Band
    }
    # Sum of requests over the pods that ran in each hour; NaN where nothing was recorded.
    hours = past.grid.times()
    stored = analysis.requested[resource]
    if not stored.grid.size:
        request = [float("nan")] * len(hours)
    else:
        index = (hours - stored.grid.start_seconds) // stored.grid.step_seconds
        inside = (index >= 0) & (index < stored.grid.size)
        total = np.where(stored.some, stored.sums, np.nan)
        request = _floats(np.where(inside, total[np.clip(index, 0, stored.grid.size - 1)], np.nan))
    return BandSeries(
        times=[int(t) for t in past.grid.times()],
        usage=_floats(past.values[0]),
        request=request,
        allocatable=_known_allocatable(analysis.history.inventory, resource),
        ahead=[int(t) for t in forecast.grid.times()],
        quantiles={q: _floats(forecast.quantiles[0, :, FORECAST_LEVELS.index(float(q))]) for q in SHOWN_LEVELS},
        batch_now=total_now(amounts[Band.BATCH]),
        mid_now=total_now(amounts[Band.MID]),
        batch=_floats(lines.past_of_cluster(Band.BATCH)),
        mid=_floats(lines.past_of_cluster(Band.MID)),
        batch_ahead=ahead[Band.BATCH],
        mid_ahead=ahead[Band.MID],
        lending_nodes=sum(amount is not None for amount in amounts[Band.BATCH]),
        peak=_displayed_peak(forecast),
    )


def _displayed_peak(forecast: Forecasts[ClusterRef]) -> int | None:
    """Return the cluster's peak as in the table of forecasts, in the resource's unit; None without one."""
    peaks = truncate_to_integers(shown_peaks(forecast)[:1])
    return int(peaks[0]) if np.isfinite(peaks).any() else None


def _heat(analysis: Analysis) -> list[list[float]]:
    usage, capacity = (
        analysis.cluster_totals[Resource.CPU],
        allocatable(analysis.history.inventory, Resource.CPU) or np.nan,
    )
    slot = hour_of_week(usage.grid.times())
    row = usage.values[0].astype(np.float64)
    present = ~np.isnan(row)
    total = np.bincount(slot[present], weights=row[present], minlength=168)
    count = np.bincount(slot[present], minlength=168)
    mean = np.divide(total, count, out=np.full(168, np.nan), where=count > 0) / capacity
    return [_floats(day) for day in mean.reshape(7, 24)]


def _waste(analysis: Analysis) -> list[NamespaceWaste]:
    """Return the waste of each namespace with known amounts, most CPU first; people rank these by any resource."""
    sums: dict[str, dict[Resource, float]] = defaultdict(lambda: dict.fromkeys(Resource, 0.0))
    with_amounts = (w for w in analysis.history.inventory.workloads if Reason.AMOUNTS_UNKNOWN not in w.gaps)
    by_ref = {w.ref: w for w in with_amounts}
    for resource in Resource:
        means = analysis.workloads.mean[resource]
        for ref, mean in zip(analysis.workloads.refs, means, strict=True):
            if ref in by_ref and np.isfinite(mean):
                spare = by_ref[ref].total(resource) - mean
                sums[ref.namespace][resource] += max(0.0, float(spare))
    rows = [NamespaceWaste(ns, int(w[Resource.CPU]), int(w[Resource.MEMORY])) for ns, w in sums.items()]
    return sorted(rows, key=lambda w: -w.cpu_millicores)


def _peak(analysis: Analysis) -> PeakAhead | None:
    """Return the peak and its window, or the likeliest two hours if none is expected; None without a forecast."""
    forecast = analysis.cluster_forecasts[Resource.CPU]
    median, height = forecast.level(0.5)[:1].astype(np.float64), _displayed_peak(forecast)
    if height is None or not median.size or not np.isfinite(median).all():
        return None
    timing = forecast.level(0.5) if forecast.timing is None else forecast.timing
    first = int(busiest(timing[:1], forecast.grid.step_seconds)[0])
    start = forecast.grid.start_seconds + first * forecast.grid.step_seconds
    end = start + RUN_SECONDS
    busiest_mean = float(median[0, first : first + RUN_SECONDS // forecast.grid.step_seconds].mean())
    # Workload whose forecast rises most in the window over its own mean of the horizon.
    workloads = analysis.workloads
    times = workloads.grid.times()
    inside = (times >= start) & (times < end)
    leader_median = np.nan_to_num(workloads.medians[Resource.CPU].astype(np.float64))
    if not inside.any() or not len(leader_median):
        leader = ""
    else:
        rise = leader_median[:, inside].mean(axis=1) - leader_median.mean(axis=1)
        ref = workloads.refs[int(np.argmax(rise))]
        leader = f"{ref.namespace}/{ref.name}"
    return PeakAhead(
        start,
        end,
        height,
        int(height - np.nan_to_num(now(analysis.cluster_totals[Resource.CPU]))),
        leader,
        above_mean=busiest_mean / float(median.mean()) - 1 if median.any() else 0.0,
        pronounced=forecast.peak_window(0) is not None,
    )


def _floats(values: npt.NDArray[np.floating]) -> list[float]:
    return [float(v) for v in values]
