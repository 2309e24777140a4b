"""The confidence in a proposal: a number 0..1, and the sentences behind it, the weakest point first. Pure.

Each factor scores 0..1; the confidence is half the lowest score plus half the mean score, so that no strength makes up
for a single weakness. The factors:

- span of the history, and weekly cycles in it (days with samples / 7), full at the settings' days and weeks;
- coverage: share of the pods' running time in which they were measured (not for jobs, whose runs are short);
- pods n: n / (n + 0.5), because one replica allows no comparison;
- stability: demand of each half of the history, the smaller divided by the larger: mean of the daily CPU peaks,
  highest memory; 0.5 if one half has no sample;
- resolution: 1 up to a scrape interval of one minute, then 0.5 + 0.5 x 60 s / interval; the step if no peaks are known;
- back-test: 0 with an OOM kill that the present limit would not have had; else halved by each 1 % of the time throttled
  (the setting) and by each eviction per week and pod that the present values would not have had;
- sibling: 0 if a value is based on another workload's history.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite, isnan
from typing import Final, NamedTuple

import numpy as np

from cotenant.base.resource import Resource
from cotenant.base.text import digits_beside, percent
from cotenant.base.usage.usage import DAY_SECONDS, Signal
from cotenant.recommender.evidence import Evidence, Floats, Integers
from cotenant.recommender.model.recommendation import Action, Backtest, Recommendation, Trust
from cotenant.recommender.model.sibling import SIBLING_INPUT
from cotenant.recommender.settings import BacktestSettings

TRUSTED_DAYS: Final = 7.0
"""Days between first and last sample that deserve full trust. One week: each weekday was seen once."""
TRUSTED_WEEKS: Final = 2.0
"""Weekly cycles seen that deserve full trust. Two weekly cycles are the least that confirm each other."""
TRUSTED_THROTTLING: Final = 0.01
"""More of the time throttled than now, at which trust is halved. One percent more time throttled is where latency
begins to suffer."""

CPU, MEMORY = Resource.CPU, Resource.MEMORY
EPISODIC: Final = frozenset({"Job", "CronJob"})
MINUTE_SECONDS: Final = 60
WEEK_MINUTES: Final = 7 * DAY_SECONDS // MINUTE_SECONDS
_WHAT: Final = {CPU: "CPU", MEMORY: "memory"}


class TrustFactor(NamedTuple):
    """One point for or against a proposal: its score 0..1 and the sentence about it."""

    score: float
    sentence: str


@dataclass(frozen=True, eq=False)
class Grounds:
    """The data behind the confidence in proposals, as columns over the evidence's containers; computed once per run.

    `scrape_seconds` is the longest interval of the samples behind the stored slots, None = unknown.
    """

    evidence: Evidence
    own: BacktestSettings
    scrape_seconds: float | None = None

    @cached_property
    def span_days(self) -> dict[Resource, Floats]:
        """Days between each container's first and last sample; NaN without a portrait."""
        portraits = self.evidence.portraits
        return {r: self.evidence.from_portrait(r, p.span_days) for r, p in portraits.items()}

    @cached_property
    def weeks(self) -> dict[Resource, Floats]:
        """Number of weekly cycles seen of each container: days with a sample / 7, at most the weeks in the span."""
        sampled_days = {
            r: self.evidence.from_portrait(r, (p.daily_counts > 0).sum(axis=1).astype(np.float64))
            for r, p in self.evidence.portraits.items()
        }
        return {r: np.fmin(days, self.span_days[r]) / 7 for r, days in sampled_days.items()}

    @cached_property
    def coverage(self) -> dict[Resource, Floats]:
        """Share of the running time of each container's pods in which they were measured."""
        return dict(self.evidence.coverage)

    @cached_property
    def halves(self) -> dict[Resource, tuple[Floats, Floats]]:
        """Each container's mean daily CPU peak and highest memory in each half of the window, older first, or NaN."""
        halves: dict[Resource, tuple[Floats, Floats]] = {}
        window = self.evidence.window
        first_day, last_day = window.start_seconds // DAY_SECONDS, (window.end_seconds - 1) // DAY_SECONDS
        for resource, portrait in self.evidence.portraits.items():
            days = portrait.daily_maxima[:, -(last_day - first_day + 1) :]
            joined = []
            for half in (days[:, : days.shape[1] // 2], days[:, days.shape[1] // 2 :]):
                if resource is CPU:
                    finite = np.isfinite(half)
                    sums, counts = np.where(finite, half, 0.0).sum(axis=1), finite.sum(axis=1)
                    column = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
                else:
                    column = np.fmax.reduce(half, axis=1, initial=np.nan)
                joined.append(self.evidence.from_portrait(resource, column))
            halves[resource] = joined[0], joined[1]
        return halves

    @cached_property
    def pods(self) -> Integers:
        """Number of pods seen of each container, including pods that are gone."""
        return self.evidence.pods_seen(Signal.CPU_USAGE_MEAN)

    @cached_property
    def resolution(self) -> TrustFactor:
        """Score for the sampling interval, the same for the proposals of all containers."""
        grid = self.evidence.window
        peaks = self.evidence.usage.get(Signal.CPU_USAGE_MAX)
        blind = peaks is None or not peaks.refs
        seconds = max(self.scrape_seconds or 0.0, float(grid.step_seconds) if blind else 0.0)
        if not seconds:
            return TrustFactor(1.0, "Short peaks between stored samples are known.")
        score = 1.0 if seconds <= MINUTE_SECONDS else 0.5 + 0.5 * MINUTE_SECONDS / seconds
        return TrustFactor(score, f"One sample every {seconds:g} s; shorter peaks are not visible.")


def trust(grounds: Grounds, index: int, recommendation: Recommendation, backtest: Backtest | None) -> Trust | None:
    """Return the confidence in the values that a recommendation proposes; None if it proposes none."""
    about = proposed_resources(recommendation)
    if not about:
        return None
    findings = sorted(_findings(grounds, index, recommendation, about, backtest), key=lambda f: f.score)
    scores = [finding.score for finding in findings]
    return Trust((scores[0] + sum(scores) / len(scores)) / 2, tuple(f.sentence for f in findings))


def proposed_resources(recommendation: Recommendation) -> list[Resource]:
    """Return the resources with at least one proposed field."""
    proposed = {value.resource for value in recommendation.values if value.action is not Action.WITHHELD}
    return [resource for resource in Resource if resource in proposed]


def _findings(
    grounds: Grounds, index: int, recommendation: Recommendation, about: Sequence[Resource], backtest: Backtest | None
) -> list[TrustFactor]:
    """Return the factors of a recommendation's confidence; `about` has the resources that it changes.

    History and weekly cycles count up to the trusted number. Pods: n / (n + 0.5), so that the first pod gives two
    thirds and further ones less and less. Sample coverage is left out for workloads that run only at times.
    """
    days = _least(grounds.span_days, about, index)
    weeks = _least(grounds.weeks, about, index)
    pods = int(grounds.pods[index])
    findings = [
        TrustFactor(min(days / TRUSTED_DAYS, 1), _measure(days, TRUSTED_DAYS, "days of history")),
        TrustFactor(min(weeks / TRUSTED_WEEKS, 1), _measure(weeks, TRUSTED_WEEKS, "weekly cycles seen")),
        TrustFactor(pods / (pods + 0.5), f"{pods} pods were seen." if pods != 1 else "A single pod was seen."),
        grounds.resolution,
        *(_stability(grounds, index, resource) for resource in about),
    ]
    if grounds.evidence.workloads[index].ref.kind not in EPISODIC:
        covered = _least(grounds.coverage, about, index)
        text = f"The pods were measured in {percent(covered)} of the time in which they ran."
        findings.append(TrustFactor(covered, text))
    if backtest is not None:
        findings.append(_backtest_trust(backtest))
    siblings = {str(name) for v in recommendation.values if (name := v.inputs.get(SIBLING_INPUT))}
    findings += [TrustFactor(0.0, f"Uses the history of a sibling, {name}.") for name in sorted(siblings)]
    return findings


def _measure(measured: float, required: float, what: str) -> str:
    measured_text = f"{measured:.{digits_beside(required, measured, 1)}f} {what}"
    return f"{measured_text}." if measured >= required else f"Only {measured_text}; full confidence needs {required:g}."


def _stability(grounds: Grounds, index: int, resource: Resource) -> TrustFactor:
    """Return the factor for the agreement of both halves of the history on the demand."""
    older, newer = (float(column[index]) for column in grounds.halves[resource])
    if not (isfinite(older) and isfinite(newer)):
        return TrustFactor(0.5, f"The history is too short to compare {_WHAT[resource]} of its halves.")
    larger, smaller = max(older, newer), min(older, newer)
    score, what = max(smaller / larger, 0.0) if larger > 0 else 1.0, _WHAT[resource]
    if score > 0.995:
        return TrustFactor(score, f"Both halves of the history need the same amount of {what}.")
    if smaller <= 0:
        return TrustFactor(score, f"Only one half of the history needs {what}.")
    way = "more" if newer > older else "less"
    change = f"{percent(abs(newer / older - 1))} {way} {what}"
    return TrustFactor(score, f"The newer half of the history needs {change} than the older one.")


def _backtest_trust(backtest: Backtest) -> TrustFactor:
    days, kills = f"{backtest.days:g} days", backtest.oom_kills - backtest.now_oom_kills
    if kills > 0:
        return TrustFactor(0.0, f"Back-test: {kills} more OOM kills in {days} than with the present limit.")
    minutes = max(backtest.pod_minutes, 1.0)
    more = max(backtest.throttled_minutes - backtest.now_throttled_minutes, 0.0)
    share = more / minutes
    weekly = backtest.evictions / (minutes / WEEK_MINUTES)
    score = 0.5 ** (share / TRUSTED_THROTTLING + weekly)
    if backtest.evictions:
        times = f"{backtest.evictions} times in {days}"
        return TrustFactor(score, f"Back-test: memory exceeded the proposed request {times}, and not the present one.")
    if more:
        return TrustFactor(score, f"Back-test: {more:.1f} more minutes throttled in {days}.")
    return TrustFactor(score, f"Back-test: no more harm in {days} than with the present values.")


def _least(columns: dict[Resource, Floats], about: Sequence[Resource], index: int) -> float:
    """Return the smallest of the resources' values, 0 if one is unknown."""
    values = (float(columns[r][index]) for r in about if r in columns)
    return min((0.0 if isnan(value) else value for value in values), default=0.0)
