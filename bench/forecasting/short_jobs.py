"""Would nodes lend more to jobs of at most 1, 2 or 4 hours, by the peak of the next hours in place of the next day's?

A closed loop of one node at a time, by the hour. A queue of jobs, each of the longest length that is allowed, fills
what is announced as free: limit - peak. A job holds its amount until it ends. Where the hour's highest use and the jobs
together are above the limit, the youngest are evicted, with their work, after five minutes: what is evicted is
short for these five minutes, so equal evictions are equal core-seconds short. Goodput is the core-hours of jobs that
ended.

Each contender is an announced peak and a share of the limit on top, c, found in hindsight for each population. The
24-hour rule has the c of risk 1 %; each contender then gets the c at which its goodput is highest with no more
cores evicted than by the 24-hour rule. So the contenders have an advantage, and policy `usage`
too: the rule's c is not chosen here.

    next day:    mean(highest of the last 14 days, highest of the last 7), the product's rule
    same hours:  the same of the coming hours alone, as they were on the days before
    last hours:  the highest of as many hours before as the jobs are long
    both:        the larger one of same hours and the hour before
    usage:       the last five minutes

Populations are those of CPU of `bench.forecasting.peak_populations` whose limit is stated, one draw each. Developed on
and judged on the same: nothing of it is shipped.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import numpy as np
import numpy.typing as npt

from bench.forecasting.peak_populations import judged
from bench.forecasting.populations import SEEDS
from bench.record import Row, record_on_traces
from cotenant.base.resource import Resource
from cotenant.forecasting.node_peaks.peak_rule import RATES, SHARES

Floats = npt.NDArray[np.floating[Any]]

LENGTHS_HOURS = (1, 2, 4)
HISTORY_DAYS, WEEK_DAYS, HOURS = 14, 7, 24
ONE_PERCENT = SHARES[Resource.CPU][RATES.index(0.01)]
ADDED: Floats = np.sort(np.append(np.arange(-0.1, 0.6, 0.0125), ONE_PERCENT))
RULE, USAGE = "next day", "usage"


@dataclass(frozen=True)
class Nodes:
    """Highest use of each hour and use at its end, (n, hours), NaN = unknown; limits (n,)."""

    highest: Floats
    last: Floats
    limits: Floats

    @classmethod
    def of(cls, totals: Floats, limits: Floats, slots_per_day: int) -> Nodes:
        slots = slots_per_day // HOURS
        hours = totals[:, : totals.shape[1] // slots * slots].reshape(len(totals), -1, slots)
        measured = np.isfinite(hours).any(axis=2)
        highest = np.where(np.isfinite(hours), hours, -np.inf).max(axis=2)
        return cls(np.where(measured, highest, np.nan), hours[:, :, -1], limits)


@dataclass(frozen=True)
class Outcome:
    """Sums over all nodes and hours by c, (c,): core-hours of ended jobs, cores evicted."""

    goodput: Floats
    evicted: Floats

    def best(self, at_most_evicted: float) -> float:
        """Return the highest goodput of any c by which no more is evicted; NaN where more always is."""
        allowed = self.evicted <= at_most_evicted * (1 + 1e-9)
        return float(self.goodput[allowed].max()) if allowed.any() else float("nan")


def highest_before(hours: Floats, count: int) -> Floats:
    """Return the highest of the `count` hours before each hour, (n, hours); -inf where none is known."""
    padded = np.concatenate([np.full((len(hours), count), -np.inf), np.nan_to_num(hours, nan=-np.inf)], axis=1)
    highest: Floats = np.lib.stride_tricks.sliding_window_view(padded[:, :-1], count, axis=1).max(axis=2)
    return highest


def same_hours(hours: Floats, length: int, days: int) -> Floats:
    """Return the highest of the coming `length` hours on each of the `days` before, (n, hours)."""
    ahead = np.concatenate([np.nan_to_num(hours, nan=-np.inf), np.full((len(hours), length - 1), -np.inf)], axis=1)
    window = np.lib.stride_tricks.sliding_window_view(ahead, length, axis=1).max(axis=2)
    highest_then: Floats = np.full(window.shape, -np.inf)
    for day in range(1, days + 1):
        highest_then[:, HOURS * day :] = np.maximum(highest_then[:, HOURS * day :], window[:, : -HOURS * day])
    return highest_then


def announced(nodes: Nodes, length: int) -> Mapping[str, Floats]:
    """Return each contender's peak before c is added, (n, hours)."""
    hours = nodes.highest
    day_rule = (highest_before(hours, HISTORY_DAYS * HOURS) + highest_before(hours, WEEK_DAYS * HOURS)) / 2
    habit = (same_hours(hours, length, HISTORY_DAYS) + same_hours(hours, length, WEEK_DAYS)) / 2
    usage = np.concatenate([np.full((len(hours), 1), np.nan), nodes.last[:, :-1]], axis=1)
    return {
        RULE: day_rule,
        "same hours": habit,
        "last hours": highest_before(hours, length),
        "both": np.maximum(habit, highest_before(hours, 1)),
        USAGE: np.where(np.isfinite(usage), usage, day_rule),
    }


def play(nodes: Nodes, peaks: Floats, length: int) -> Outcome:
    """Play the closed loop for every c at once, from the day after the history on."""
    limits = nodes.limits[None, :]
    running = np.zeros((len(ADDED), len(nodes.limits), length))  # cores of jobs by the hours since they began
    goodput, evicted = np.zeros((2, len(ADDED)))
    for hour in range(HISTORY_DAYS * HOURS, nodes.highest.shape[1]):
        goodput += length * running[:, :, -1].sum(axis=1)
        running = np.concatenate([np.zeros_like(running[:, :, :1]), running[:, :, :-1]], axis=2)
        peak = peaks[None, :, hour] + ADDED[:, None] * limits
        free = np.where(np.isfinite(peak), np.clip(limits - peak, 0, limits), 0)
        running[:, :, 0] = np.maximum(free - running.sum(axis=2), 0)
        use = np.nan_to_num(nodes.highest[:, hour])[None, :]
        over = np.maximum(use + running.sum(axis=2) - limits, 0)
        younger = np.concatenate([np.zeros_like(running[:, :, :1]), np.cumsum(running, axis=2)[:, :, :-1]], axis=2)
        ended = np.clip(over[:, :, None] - younger, 0, running)
        running = running - ended
        evicted += ended.sum(axis=(1, 2))
    return Outcome(goodput, evicted)


def gains(nodes: Nodes, length: int) -> Iterator[tuple[str, float]]:
    """Contender, and its goodput by that of the 24-hour rule at risk 1 %, at equal evictions."""
    outcomes = {name: play(nodes, peaks, length) for name, peaks in announced(nodes, length).items()}
    rule, at = outcomes.pop(RULE), int(np.searchsorted(ADDED, ONE_PERCENT))
    for name, outcome in outcomes.items():
        yield name, outcome.best(float(rule.evicted[at])) / float(rule.goodput[at])


def measure(folder: Path) -> list[Row]:
    """Rows by length and contender."""
    gain_by_key: dict[tuple[int, str], dict[str, float]] = defaultdict(dict)
    for of in judged(folder):
        if of.resource is not Resource.CPU or of.alone:
            continue
        trial = of.trial(SEEDS[0])
        nodes = Nodes.of(trial.totals, trial.limits, trial.slots_per_day)
        for length in LENGTHS_HOURS:
            for name, gain in gains(nodes, length):
                gain_by_key[length, name][of.name] = gain
        print(f"{of.name}: done", flush=True)
    return [of_contender(*key, by_population) for key, by_population in gain_by_key.items()]


def of_contender(length: int, name: str, by_population: Mapping[str, float]) -> Row:
    """Mean over the populations, with the least, the largest and how many gain more than 2 %."""
    finite = {population: gain for population, gain in by_population.items() if np.isfinite(gain)}
    least, most = (extreme(finite, key=finite.__getitem__) for extreme in (min, max))
    more = sum(gain > 1.02 for gain in finite.values())
    note = f"above 1.02 in {more} of {len(by_population)}; {finite[least]:.3f} {least}; {finite[most]:.3f} {most}"
    metric = f"jobs of {length} h, {name}: batch work by that of the 24-hour rule at equal evictions"
    return Row(metric, round(float(np.mean([*finite.values()])), 3), "ratio", note=note)


if __name__ == "__main__":
    record_on_traces("short_jobs", measure)
