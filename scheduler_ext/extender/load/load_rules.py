"""All load rules for some of the nodes: load-aware, prediction, balance. Pure.

Each number depends only on its node, the pod's kind and the time, never on which nodes are checked together.
`judgement_cache` relies on that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cotenant.scheduler_ext.arrays import Floats, Rows
from cotenant.scheduler_ext.extender.judgement import BY_FORECAST, BY_USE, RULES, Code, NodeVerdicts
from cotenant.scheduler_ext.extender.load import balance, load_aware, prediction
from cotenant.scheduler_ext.extender.pod import NewPod, Pair
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from cotenant.scheduler_ext.extender.snapshot import NodeSnapshot

Part = Rows | slice


class PodKind(NamedTuple):
    """A pod as load rules read it; its run time covers the forecast's half hours from `first` to before `last`."""

    daemon: bool
    prod: bool
    reclaimer: bool
    estimate: Pair
    predicted: Pair
    first: int
    last: int


def kind_of(snapshot: NodeSnapshot, pod: NewPod, now_seconds: float, settings: ExtenderSettings) -> PodKind:
    """Return the pod's kind; the load rules give equal results for pods of one kind."""
    part = prediction.window(snapshot, pod, now_seconds, settings.prediction)
    return PodKind(pod.daemon, pod.prod, pod.reclaimer, pod.estimate, pod.predicted, part.start, part.stop)


def check_load(
    snapshot: NodeSnapshot, part: Part, pod: NewPod, now_seconds: float, settings: ExtenderSettings
) -> NodeVerdicts:
    """Return PASS for each node of `part`, or why it is too busy for the pod: now, or at a forecast peak."""
    verdicts = load_aware.check_usage(snapshot.columns[:, part], pod, now_seconds, settings.load_aware)
    ahead = prediction.check_predicted_peak(snapshot, part, pod, now_seconds, settings.prediction)
    later = verdicts.passed & ~ahead.passed
    for mine, other in ((verdicts.codes, ahead.codes), (verdicts.percent, ahead.percent), (verdicts.slot, ahead.slot)):
        mine[later] = other[later]
    return verdicts


def without_estimates(verdicts: NodeVerdicts, columns: Floats, pod: NewPod) -> str:
    """Let nodes pass that only estimates refuse; return the rule that was ignored, "" if none was.

    Used if no node is left: forecasts and expected usage are estimates, and must not stop all scheduling. One call
    ignores one rule, that on forecasts first; reported usage still refuses. Changes `verdicts`; `columns` is (WIDTH,
    n).
    """
    by_forecast = np.isin(verdicts.codes, BY_FORECAST)
    if by_forecast.any():
        verdicts.let_pass(by_forecast)
        return RULES[Code.PEAK_CPU]
    by_estimate = np.isin(verdicts.codes, BY_USE) & ~load_aware.over_by_report(columns, pod)
    verdicts.let_pass(by_estimate)
    return RULES[Code.CPU] if by_estimate.any() else ""


def points(snapshot: NodeSnapshot, part: Part, pod: NewPod, now_seconds: float, settings: ExtenderSettings) -> Floats:
    """Return a score of 0 to 100 for each node of `part`, (n,), higher is better: Koordinator's LoadAware score.

    For a pod on reclaimed capacity it is the weighted mean of that score and three others: for free capacity at the
    forecast peak, for little suppression of best effort, and for few requests of batch resources.
    """
    columns = snapshot.columns[:, part]
    load_points = load_aware.points(columns, pod, now_seconds, settings.load_aware)
    if not pod.reclaimer:
        return load_points
    window = prediction.window(snapshot, pod, now_seconds, settings.prediction)
    return balance.points(columns, load_points, prediction.peaks(snapshot, window, part), settings.balance)
