"""Every non-action has a reason, and every reason a sentence: shown to people, exported as a metric label.

Adding a member here without a sentence in `SENTENCES` fails a test; so does a reason that the docs do not list.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Reason(StrEnum):
    """Why a value stands as it stands, or why there is none."""

    OK = "ok"
    # no value at all
    NO_DATA = "no-data"
    NOT_ENOUGH_HISTORY = "not-enough-history"
    LOW_COVERAGE = "low-coverage"
    HISTORY_INCOMPLETE = "history-incomplete"
    HPA_ON_RESOURCE = "hpa-on-resource"
    HPA_UNSOLVED = "hpa-unsolved"
    EXCLUDED = "excluded"
    DELETED = "deleted"
    BEST_EFFORT = "best-effort"
    IMPLAUSIBLE = "implausible"
    FORBIDDEN = "forbidden"
    STALE = "stale"
    FAILED = "failed"
    # a value that a rule other than the percentile decided
    OOM_BUMP = "oom-bump"
    FLOOR = "floor"
    OBSERVED_MAXIMUM = "observed-maximum"
    WITHIN_DEAD_BAND = "within-dead-band"
    TREND = "trend"
    LEAK = "leak"
    QOS_CLASS = "qos-class"
    WHOLE_CORES = "whole-cores"
    LIMIT_KEPT = "limit-kept"
    HPA_SOLVED = "hpa-solved"
    ANNOTATION = "annotation"
    SPEC_LADDER = "spec-ladder"
    LIMIT_RANGE = "limit-range"
    NODE_SIZE = "node-size"
    QUOTA = "quota"
    COLD_START = "cold-start"
    # reclaimable capacity
    METRIC_MISSING = "metric-missing"
    METRIC_EXPIRED = "metric-expired"
    COLOCATION_OFF = "colocation-off"
    # forecasts
    NO_PEAK = "no-peak"
    FROM_PORTRAIT = "from-portrait"
    SHORT_RECORD = "short-record"
    # reservation plans
    NO_WINDOW = "no-window"
    NO_SKILL = "no-skill"
    UNCOVERED = "uncovered"


SENTENCES: dict[Reason, str] = {
    Reason.OK: "Computed from the observed history.",
    Reason.NO_DATA: "No usage sample was found for this container in the window.",
    Reason.NOT_ENOUGH_HISTORY: "The history is shorter than the strategy asks for.",
    Reason.LOW_COVERAGE: "Too many samples are missing in the window to trust a value.",
    Reason.HISTORY_INCOMPLETE: "Part of the history could not be read from its source; nothing is lowered until a scan reads it.",
    Reason.HPA_ON_RESOURCE: "A HorizontalPodAutoscaler scales on this resource; changing the request alone would move its target.",
    Reason.HPA_UNSOLVED: "A HorizontalPodAutoscaler follows something that cannot be solved together with the request.",
    Reason.EXCLUDED: "An annotation of the workload asks for no recommendation.",
    Reason.DELETED: "The workload is not in the cluster any more, or has had no pod for three days.",
    Reason.BEST_EFFORT: "Asks for nothing on purpose (best effort); a request would change its QoS class.",
    Reason.IMPLAUSIBLE: "A figure is larger than any node: a unit slip somewhere, so nothing is proposed.",
    Reason.FORBIDDEN: "The source refused to show this object.",
    Reason.STALE: "The newest sample is too old.",
    Reason.FAILED: "The computation failed for this object; the log names the cause.",
    Reason.OOM_BUMP: "The container was killed for lack of memory: what it had then, with a bump, decides.",
    Reason.FLOOR: "The computed value was below the configured minimum.",
    Reason.OBSERVED_MAXIMUM: "Held at the highest value ever observed, with its margin.",
    Reason.WITHIN_DEAD_BAND: "The change is too small to be worth a restart.",
    Reason.TREND: "Usage grows from week to week; the value is projected to the next days.",
    Reason.LEAK: "Memory grows day by day since the last restart; the present value is kept until the leak is found.",
    Reason.QOS_CLASS: "Request and limit stay equal, so that the pod keeps its QoS class.",
    Reason.WHOLE_CORES: "Rounded up to whole cores: pods of the classes LSR and LSE are bound to CPUs of their own.",
    Reason.LIMIT_KEPT: "The present limit stays: a lower one frees nothing that the scheduler counts, and can throttle or kill.",
    Reason.HPA_SOLVED: "Moved together with the autoscaler's target: it scales at the same usage per pod as before.",
    Reason.ANNOTATION: "Held at a bound that an annotation of the workload sets.",
    Reason.SPEC_LADDER: "Rounded up to the next size in the settings.",
    Reason.LIMIT_RANGE: "Held at a bound of the namespace's LimitRange.",
    Reason.NODE_SIZE: "Held at what the largest node can give a pod beside its daemons.",
    Reason.QUOTA: "Held at what the namespace's ResourceQuota has left.",
    Reason.COLD_START: "Too young for its own forecast; the whole request counts as used.",
    Reason.METRIC_MISSING: "The node reports no metric; nothing is reclaimed.",
    Reason.METRIC_EXPIRED: "The node's metric is too old; nothing is reclaimed.",
    Reason.COLOCATION_OFF: "Colocation is not enabled for this node; nothing is reclaimed.",
    Reason.NO_PEAK: "Usage is too even, or too few of the last days had a peak, to expect one.",
    Reason.FROM_PORTRAIT: "Not enough history to test a forecast; quantiles of the portrait are shown.",
    Reason.NO_WINDOW: "No window still to begin is forecast to need more pods than run anyway.",
    Reason.NO_SKILL: "Forecasts of this workload were no better than the same time last week.",
    Reason.UNCOVERED: "Even the best quantile would have covered too little of its past peaks.",
    Reason.SHORT_RECORD: "Too short a record for a calibrated peak; Koordinator's formula stands in.",
}
_LABELS: Final[Mapping[str, str]] = {
    Reason.NO_WINDOW: "no window needs more pods",
    Reason.NO_SKILL: "no better than last week",
    Reason.UNCOVERED: "coverage too low",
    Reason.NOT_ENOUGH_HISTORY: "not enough history",
}
"""Why a reservation plan is not proposed, short enough for a label beside its bar."""


def short(code: str) -> str:
    """Label of a plan that the forecast does not propose; an unknown reason code stands for itself."""
    return _LABELS.get(code, code)
