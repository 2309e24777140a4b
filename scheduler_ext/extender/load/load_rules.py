"""The rules about load together, over some of the nodes: load-aware, prediction, balance. Pure.

Each number depends on its own node, the pod's kind and the time alone: whatever part of the nodes is looked at, and
whenever, the numbers are the same. `judgement_cache` rests on that.
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
    """All that the rules ask of a pod; first, last: the half hours of the snapshot's forecast that it touches."""

    daemon: bool
    prod: bool
    reclaimer: bool
    estimate: Pair
    predicted: Pair
    first: int
    last: int


def kind_of(snapshot: NodeSnapshot, pod: NewPod, now_seconds: float, settings: ExtenderSettings) -> PodKind:
    """Pods of one kind are one pod to the rules."""
    part = prediction.window(snapshot, pod, now_seconds, settings.prediction)
    return PodKind(pod.daemon, pod.prod, pod.reclaimer, pod.estimate, pod.predicted, part.start, part.stop)


def check_load(
    snapshot: NodeSnapshot, part: Part, pod: NewPod, now_seconds: float, settings: ExtenderSettings
) -> NodeVerdicts:
    """Return whether each of these nodes is too busy for the pod, now or at a peak ahead."""
    verdicts = load_aware.check_usage(snapshot.columns[:, part], pod, now_seconds, settings.load_aware)
    ahead = prediction.check_predicted_peak(snapshot, part, pod, now_seconds, settings.prediction)
    later = verdicts.passed & ~ahead.passed
    for mine, other in ((verdicts.codes, ahead.codes), (verdicts.percent, ahead.percent), (verdicts.slot, ahead.slot)):
        mine[later] = other[later]
    return verdicts


def without_estimates(verdicts: NodeVerdicts, columns: Floats, pod: NewPod) -> str:
    """Let nodes pass that only our estimates refuse; the rule that was left out, "" when none did.

    For a question in which no node is left: a forecast, and what pods will use, are estimates, and a cluster must not
    stand still because of them. The rule of forecasts goes first; what a node reports to use stays a refusal.
    verdicts: changed in place; columns: (WIDTH, n) of its nodes.
    """
    by_forecast = np.isin(verdicts.codes, BY_FORECAST)
    if by_forecast.any():
        verdicts.let_pass(by_forecast)
        return RULES[Code.PEAK_CPU]
    by_estimate = np.isin(verdicts.codes, BY_USE) & ~load_aware.over_by_report(columns, pod)
    verdicts.let_pass(by_estimate)
    return RULES[Code.CPU] if by_estimate.any() else ""


def points(snapshot: NodeSnapshot, part: Part, pod: NewPod, now_seconds: float, settings: ExtenderSettings) -> Floats:
    """0 to 100 for each of these nodes, more is better, (n,): Koordinator's LoadAware score.

    For pods that use reclaimed capacity it is one of the views that `balance.points` weighs.
    """
    columns = snapshot.columns[:, part]
    load_points = load_aware.points(columns, pod, now_seconds, settings.load_aware)
    if not pod.reclaimer:
        return load_points
    window = prediction.window(snapshot, pod, now_seconds, settings.prediction)
    return balance.points(columns, load_points, prediction.peaks(snapshot, window, part), settings.balance)
