"""Anomaly detectors, kept between rounds, decide which high nodes are relieved. A node has one for each pass. Pure.

Source of the rules: koordinator-sh/koordinator `pkg/descheduler/utils/anomaly` and `.../plugins/loadaware`. A detector
becomes abnormal after more than `consecutiveAbnormalities` abnormal marks, and normal again after `timeout` or more
than `consecutiveNormalities` normal marks. Every change of its state clears both counts. A detector without an abnormal
mark for longer than `detectorCacheTimeout` is forgotten. A node between its thresholds is not marked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from cotenant.base.kubernetes.moments import seconds_of
from cotenant.scheduler_ext.rebalance.arguments import AnomalyCondition

DEFAULT_TIMEOUT_SECONDS: Final = 60.0  # counts where a condition's timeout is zero


@dataclass(frozen=True, slots=True)
class AnomalyRule:
    """Marks in a row beyond which a detector changes; seconds until it is normal, until it is forgotten (0: never)."""

    abnormal_marks: int
    normal_marks: int
    timeout_seconds: float
    cache_seconds: float

    @classmethod
    def of(cls, condition: AnomalyCondition, detector_cache_timeout: str) -> AnomalyRule:
        """Return the rule of a pool's condition; raise UsageError if one of its durations is invalid."""
        timeout = seconds_of(condition.timeout, "anomalyCondition.timeout")
        return cls(
            condition.consecutive_abnormalities,
            condition.consecutive_normalities,
            timeout if timeout > 0 else DEFAULT_TIMEOUT_SECONDS,
            seconds_of(detector_cache_timeout, "detectorCacheTimeout"),
        )

    @property
    def is_immediate(self) -> bool:
        """True if one mark suffices: every high node then counts as abnormal, without a detector, as in Koordinator."""
        return self.abnormal_marks == 1


@dataclass(frozen=True, slots=True)
class AnomalyDetector:
    """A node's detector, for all pods or for prod pods: its abnormal or normal marks in a row. Times are Unix seconds.

    `abnormal_until` is when the abnormal state ends, None if normal; `marked_seconds` that of the last abnormal mark.
    """

    abnormal_marks: int = 0
    normal_marks: int = 0
    abnormal_until: float | None = None
    marked_seconds: float = 0.0

    @property
    def is_abnormal(self) -> bool:
        """True if the detector was abnormal at its last mark; `at` gives the state at a later time."""
        return self.abnormal_until is not None

    def at(self, now_seconds: float) -> AnomalyDetector:
        """Return the detector at a Unix time: an abnormal state whose time is over is normal."""
        over = self.abnormal_until is not None and self.abnormal_until < now_seconds
        return self.reset() if over else self

    def abnormal(self, rule: AnomalyRule, now_seconds: float) -> AnomalyDetector:
        """Return the detector with a further abnormal mark, for a round in which the node is high."""
        current = replace(self.at(now_seconds), marked_seconds=now_seconds)
        marks = current.abnormal_marks + 1
        if not current.is_abnormal and marks > rule.abnormal_marks:
            return AnomalyDetector(abnormal_until=now_seconds + rule.timeout_seconds, marked_seconds=now_seconds)
        return replace(current, abnormal_marks=marks, normal_marks=0)

    def normal(self, rule: AnomalyRule, now_seconds: float) -> AnomalyDetector:
        """Return the detector with a further normal mark, for a round that moved pods off the node."""
        current = self.at(now_seconds)
        marks = current.normal_marks + 1
        if current.is_abnormal and marks > rule.normal_marks:
            return current.reset()
        return replace(current, abnormal_marks=0, normal_marks=marks)

    def reset(self) -> AnomalyDetector:
        """Return a normal detector; one that is normal already keeps its counts, as in Koordinator."""
        return AnomalyDetector(marked_seconds=self.marked_seconds) if self.is_abnormal else self

    def is_forgotten(self, rule: AnomalyRule, now_seconds: float) -> bool:
        """Return whether the last abnormal mark is longer ago than the rule's `cache_seconds`."""
        return 0 < rule.cache_seconds < now_seconds - self.marked_seconds


Detectors = Mapping[tuple[str, bool], AnomalyDetector]


@dataclass(frozen=True, slots=True)
class AnomalyDetectors:
    """The detectors that are kept between rounds, by node and by pass (True for the pass over prod pods)."""

    by_node: Detectors = field(default_factory=dict)


@dataclass(slots=True)
class DetectorRound:
    """The detectors during one round. Each node pool has its own rule; a node is marked in at most one pool."""

    now_seconds: float
    detectors: dict[tuple[str, bool], AnomalyDetector]

    @classmethod
    def of(cls, previous: AnomalyDetectors, now_seconds: float) -> DetectorRound:
        """Return the round's detectors, copied from those that the previous round left."""
        return cls(now_seconds, dict(previous.by_node))

    def confirmed(self, high: Iterable[str], rule: AnomalyRule, *, prod: bool) -> frozenset[str]:
        """Mark the high nodes of a pass (over all or prod pods) as abnormal; return those with an abnormal detector."""
        if rule.is_immediate:
            return frozenset(high)
        abnormal = set()
        for name in high:
            detector = self.detectors.get((name, prod), AnomalyDetector())
            if detector.is_forgotten(rule, self.now_seconds):
                detector = AnomalyDetector()
            self.detectors[name, prod] = detector = detector.abnormal(rule, self.now_seconds)
            if detector.is_abnormal:
                abnormal.add(name)
        return frozenset(abnormal)

    def reset(self, nodes: Iterable[str], *, prod: bool) -> None:
        """Reset the detectors of nodes that are below their low threshold, or that the round has relieved."""
        for name in nodes:
            if (name, prod) in self.detectors:
                self.detectors[name, prod] = self.detectors[name, prod].reset()

    def acted(self, nodes: Iterable[str], rule: AnomalyRule, *, prod: bool) -> None:
        """Mark as normal the nodes from which this round's pass has moved pods."""
        for name in nodes:
            if (name, prod) in self.detectors:
                self.detectors[name, prod] = self.detectors[name, prod].normal(rule, self.now_seconds)

    def after(self, nodes: Iterable[str]) -> AnomalyDetectors:
        """Return the detectors for the next round, only of `nodes`, which are all nodes of the cluster."""
        present = set(nodes)
        return AnomalyDetectors({key: detector for key, detector in self.detectors.items() if key[0] in present})
