"""The replay holds the following week out, and compares strategies at exactly the same freed cores."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from bench.recommender.replay import Frontier, churn, core_minutes_above, score, short_of_cpu
from bench.recommender.replay_worlds import CPU, STRATEGIES, Moment, World, moment
from cotenant.base.usage.usage import DAY_SECONDS, Signal
from cotenant.recommender.backtest import backtest
from cotenant_lab.synthetic import SyntheticCluster, SyntheticSpec, generate


@cache
def cluster() -> SyntheticCluster:
    return generate(SyntheticSpec(nodes=3, workloads=25, days=24, seed=3))


def at(day: int, later_factor: float = 1.0) -> Moment:
    """An origin; what follows it times a factor."""
    synthetic_cluster = cluster()
    origin = synthetic_cluster.spec.grid.start_seconds + day * DAY_SECONDS
    usage = {}
    for signal, series in synthetic_cluster.usage.items():
        if not signal.spec.per_node:
            values = series.values.copy()
            values[:, series.grid.index_of(origin) :] *= np.float32(later_factor)
            usage[signal] = replace(series, values=values)
    return moment(synthetic_cluster.inventory, usage, origin)


@cache
def replayed_cluster() -> World:
    return World("synthetic", [[at(15), at(17)]])


def test_nothing_that_comes_after_the_origin_reaches_a_strategy() -> None:
    first, second = at(15), at(15, later_factor=3.0)
    assert first.proposals == second.proposals
    assert np.nanmax(first.followed.usage) < np.nanmax(second.followed.usage)
    assert all(
        event.time_seconds < first.evidence.window.end_seconds for kills in first.evidence.oom_kills for event in kills
    )
    assert first.evidence.window.end_seconds == first.followed.window.start_seconds


def test_history_and_following_week_are_of_the_promised_length() -> None:
    origin = at(15)
    grid = origin.evidence.usage[Signal.CPU_USAGE_MEAN].grid
    assert grid.end_seconds - grid.start_seconds == 14 * DAY_SECONDS
    assert origin.followed.days == 7


def test_the_present_values_cause_nothing() -> None:
    origin = at(15)
    columns = backtest(origin.followed, origin.now, origin.now)
    assert columns.oom_kills.tolist() == columns.now_oom_kills.tolist()
    assert not columns.freed[CPU].any()


def test_a_score_sums_the_back_tests_of_all_origins() -> None:
    vpa_score = score(replayed_cluster(), "vpa")
    each = [backtest(m.followed, m.now, m.amounts("vpa")) for m in replayed_cluster().moments]
    assert vpa_score.evictions == sum(int(o.evictions.sum()) for o in each)
    assert vpa_score.freed_cores == pytest.approx(np.mean([o.freed[CPU].sum() / 1000 for o in each]))
    days = sum(o.pod_minutes.sum() for o in each) / 1440
    assert vpa_score.throttled == pytest.approx(sum(o.throttled_minutes.sum() for o in each) / days)


def test_every_strategy_frees_exactly_the_share_asked_for() -> None:
    frontier = Frontier(replayed_cluster())
    for name in STRATEGIES:
        factor = (1 - 0.5) * frontier.present / frontier.proposed[name]
        requested = sum(frontier._requested(m, m.amounts(name, factor)) for m in frontier.moments)
        assert requested == pytest.approx(0.5 * frontier.present, rel=1e-9)
        # at its own share a strategy does what it does
        share = frontier.freed_share(name)
        own, scaled = frontier.scaled(name, share), frontier.scaled(name, share + 0.1)
        assert scaled.above_request >= own.above_request


def test_core_minutes_and_short_days_agree_with_a_plain_count() -> None:
    followed = at(15).followed
    requests = np.full(followed.size, 200.0)
    mean, _ = followed.demand(np.arange(len(followed.cpu_rows)))
    minutes, days = 0.0, 0
    for row, owner in zip(mean, followed.cpu_rows, strict=True):
        if owner >= 0:
            minutes += sum(max(float(v) - 200, 0) * 5 / 1000 for v in row if np.isfinite(v))
            for day in row.reshape(7, -1):
                samples = day[np.isfinite(day)]
                days += bool(len(samples)) and (samples > 200).sum() > 0.05 * len(samples)
    assert core_minutes_above(followed, requests).sum() == pytest.approx(minutes, rel=1e-5)
    assert short_of_cpu(followed, requests) == days


def test_a_proposal_that_stays_is_no_churn() -> None:
    same = at(15)
    assert churn(World("still", [[same, same]]), "cotenant") == 0
