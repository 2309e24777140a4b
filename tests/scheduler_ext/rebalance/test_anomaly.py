"""Anomaly detectors: how many looks in a row make a node abnormal, and what makes it normal again."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cotenant.scheduler_ext.rebalance.anomaly import AnomalyDetectors, AnomalyRule, DetectorRound
from cotenant.scheduler_ext.rebalance.arguments import AnomalyCondition

KOORDINATOR = AnomalyRule.of(AnomalyCondition(), "5m")
"""More than 5 abnormal marks, more than 3 normal ones, 60 s, forgotten after 300 s."""


def looks(moments: list[float], limits: AnomalyRule) -> list[bool]:
    """Whether node n is confirmed in rounds at these moments, in each of which it is high."""
    detectors, confirmed = AnomalyDetectors(), []
    for moment in moments:
        marks = DetectorRound.of(detectors, moment)
        confirmed.append(bool(marks.confirmed(["n"], limits, prod=False)))
        detectors = marks.after(["n"])
    return confirmed


def test_the_sixth_look_in_a_row_confirms_for_a_minute() -> None:
    # marks at 0, 10, ... 50 s: the sixth exceeds 5. Abnormal until 110 s; at 120 s it has lapsed and counts from 1
    assert looks([10.0 * i for i in range(13)], KOORDINATOR) == [False] * 5 + [True] * 7 + [False]


def test_two_minutes_between_rounds_act_once_in_six() -> None:
    # each abnormal state has lapsed before the next round
    assert looks([120.0 * i for i in range(12)], KOORDINATOR) == ([False] * 5 + [True]) * 2


def test_one_abnormality_needs_no_detector_and_none_the_first_mark() -> None:
    at_once = AnomalyRule.of(AnomalyCondition(consecutive_abnormalities=1), "5m")
    marks = DetectorRound.of(AnomalyDetectors(), 0.0)
    assert marks.confirmed(["n"], at_once, prod=False) == {"n"} and marks.after(["n"]) == AnomalyDetectors()
    assert looks([0.0], AnomalyRule.of(AnomalyCondition(consecutive_abnormalities=0), "5m")) == [True]


def test_a_detector_is_forgotten_after_its_time_and_with_its_node() -> None:
    assert looks([0, 1, 2, 3, 4, 304], KOORDINATOR)[-1]
    assert not looks([0, 1, 2, 3, 4, 304.5], KOORDINATOR)[-1]
    assert looks([0, 1, 2, 3, 4, 9999], AnomalyRule.of(AnomalyCondition(), "0"))[-1]  # 0: never
    marks = DetectorRound.of(AnomalyDetectors(), 0.0)
    marks.confirmed(["n", "gone"], KOORDINATOR, prod=True)
    assert set(marks.after(["n"]).by_node) == {("n", True)}


def test_a_zero_timeout_is_a_minute() -> None:
    assert AnomalyRule.of(AnomalyCondition(timeout="0"), "5m").timeout_seconds == 60


class AnomalyMachine(RuleBasedStateMachine):
    """A detector against the rule read from its history: lists of marks since the last change of state."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = AnomalyRule(2, 1, 60, 300)
        self.detectors = AnomalyDetectors()
        self.now, self.changed, self.last_abnormal = 0.0, 0.0, 0.0
        self.abnormal, self.marks = False, list[bool]()

    def run(self) -> int:
        """How many marks of one kind stand at the end of the history."""
        kind = self.marks[-1]
        return next((i for i, mark in enumerate(reversed(self.marks)) if mark is not kind), len(self.marks))

    def change(self, abnormal: bool) -> None:
        self.abnormal, self.marks, self.changed = abnormal, [], self.now

    def lapse(self) -> None:
        if self.abnormal and self.now > self.changed + self.limits.timeout_seconds:
            self.change(False)

    @rule(seconds=st.sampled_from([1.0, 20.0, 61.0, 301.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def high(self) -> None:
        if self.now - self.last_abnormal > self.limits.cache_seconds:
            self.change(False)
        self.lapse()
        self.last_abnormal = self.now
        self.marks.append(False)
        if not self.abnormal and self.run() > self.limits.abnormal_marks:
            self.change(True)
        marks = DetectorRound.of(self.detectors, self.now)
        assert bool(marks.confirmed(["n"], self.limits, prod=False)) is self.abnormal
        self.detectors = marks.after(["n"])

    @rule()
    def acted(self) -> None:
        if not self.detectors.by_node:
            return
        self.lapse()
        self.marks.append(True)
        if self.abnormal and self.run() > self.limits.normal_marks:
            self.change(False)
        marks = DetectorRound.of(self.detectors, self.now)
        marks.acted(["n"], self.limits, prod=False)
        self.detectors = marks.after(["n"])

    @rule()
    def low(self) -> None:
        if self.abnormal:
            self.change(False)
        marks = DetectorRound.of(self.detectors, self.now)
        marks.reset(["n"], prod=False)
        self.detectors = marks.after(["n"])

    @invariant()
    def has_the_state_and_the_counts_of_its_history(self) -> None:
        for detector in self.detectors.by_node.values():
            assert detector.is_abnormal is self.abnormal
            run = self.run() if self.marks else 0
            counts = (0, run) if self.marks and self.marks[-1] else (run, 0)
            assert (detector.abnormal_marks, detector.normal_marks) == counts


TestAnomalyMachine = AnomalyMachine.TestCase
