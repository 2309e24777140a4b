"""Who bears the load taint: examples with numbers, and what holds whatever loads do, minute by minute."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cotenant.scheduler_ext.load_taints.decide import LoadEffect, LoadTaintArgs, NodeLoads, cap, changes_of, decide

NONE, AVOIDED, REFUSED = LoadEffect
NOW = 10_000.0
ARGS = LoadTaintArgs(refuse_from=97, avoid_from=60, leave=8, refused_share=0.2, avoided_share=0.3, hold_seconds=120)
NAN = math.nan


def loads(
    now: Sequence[float], peak: Sequence[float] | None = None, effects: Sequence[int] = (), since: float = -np.inf
) -> NodeLoads:
    """One number a node; effects: of those that bear a taint already, `since` when."""
    count = len(now)
    return NodeLoads(
        names=tuple(f"n{index}" for index in range(count)),
        now=np.array(now, dtype=np.float64),
        peak=np.array(peak or [NAN] * count, dtype=np.float64),
        effects=np.array([*effects, *[0] * (count - len(effects))], dtype=np.int8),
        changed_seconds=np.full(count, since),
        schedulable=count,
    )


def effects(view: NodeLoads, arguments: LoadTaintArgs = ARGS) -> list[int]:
    return [int(effect) for effect in decide(view, arguments, NOW).effects]


def test_above_a_threshold_is_refused_now_or_at_the_peak_and_the_busiest_are_avoided() -> None:
    # ten nodes: at most two are refused (20 %) and three avoided (30 %)
    view = loads([99, 50, 70, 65, 62, 61, 10, 10, 10, 10], [10, 120, *[10] * 8])
    assert effects(view) == [REFUSED, REFUSED, AVOIDED, AVOIDED, AVOIDED, 0, 0, 0, 0, 0]


def test_beyond_the_cap_what_is_too_busy_now_is_refused_and_the_others_are_avoided() -> None:
    # three are above; of the two places one goes to what is above now, the other to the higher peak
    view = loads([98, 20, 20, *[10] * 7], [10, 200, 150, *[10] * 7])
    plan = decide(view, ARGS, NOW)
    assert plan.effects.tolist()[:3] == [REFUSED, REFUSED, AVOIDED]
    assert plan.withheld.tolist()[:3] == [False, False, True]


def test_no_share_that_rounds_down_to_nothing_refuses_a_node() -> None:
    # 20 % of four nodes are none, 30 % are one
    assert effects(loads([150, 140, 10, 10])) == [AVOIDED, 0, 0, 0]


@pytest.mark.parametrize(
    ("schedulable", "percent", "most"),
    [(100, 29, 29), (99, 10, 9), (9, 10, 0), (0, 50, 0)],  # 100 * 0.29 is 28.999999999999996
)
def test_a_cap_is_rounded_down_and_loses_nothing_to_floats(schedulable: int, percent: float, most: int) -> None:
    assert cap(schedulable, percent / 100) == most


def test_a_node_without_a_report_or_in_a_cluster_whose_reporting_failed_has_no_taint() -> None:
    view = loads([NAN, 99, *[10] * 8], [200, *[10] * 9], effects=[REFUSED, REFUSED], since=NOW)
    assert effects(view)[:2] == [NONE, REFUSED]
    assert effects(replace(view, broken=True)) == [NONE] * 10


@pytest.mark.parametrize(
    ("load", "age_seconds", "effect"),
    [
        (90, math.inf, REFUSED),  # 97 - 8 = 89 is where it ends
        (88, math.inf, AVOIDED),
        (51, math.inf, NONE),  # 60 - 8 = 52
        (51, 119, REFUSED),  # held for 120 s
    ],
)
def test_a_taint_goes_well_below_what_it_was_set_for_and_not_at_once(
    load: float, age_seconds: float, effect: LoadEffect
) -> None:
    view = loads([load, *[10] * 9], effects=[REFUSED], since=NOW - age_seconds)
    assert effects(view)[0] == effect


def test_another_node_takes_a_place_only_when_it_is_busier_by_the_margin() -> None:
    # one place (10 %); the incumbent at 65 counts 65 + 8 = 73
    args = replace(ARGS, avoided_share=0.1)
    assert effects(loads([65, 72, *[10] * 8], effects=[AVOIDED]), args)[:2] == [AVOIDED, NONE]
    assert effects(loads([65, 74, *[10] * 8], effects=[AVOIDED]), args)[:2] == [NONE, AVOIDED]


def test_writes_give_capacity_back_before_they_take_it() -> None:
    # two places, both taken by nodes that are idle now: none is taken anew before one was given back
    view = loads([10, 10, 99, 99, *[10] * 6], effects=[REFUSED, REFUSED])
    first = list(changes_of(view, decide(view, ARGS, NOW), ARGS))
    assert [(change.name, change.after) for change in first] == [("n0", NONE), ("n1", NONE)]
    after = replace(view, effects=np.zeros(10, dtype=np.int8))
    second = list(changes_of(after, decide(after, ARGS, NOW), ARGS))
    assert [(change.name, change.after) for change in second] == [("n2", REFUSED), ("n3", REFUSED)]


SIZE = 12
LOAD = st.floats(0, 200) | st.just(NAN)


class TaintedCluster(RuleBasedStateMachine):
    """Twelve nodes whose loads do what they like, and whose taints are written a few at a time."""

    @initialize(
        shares=st.tuples(st.floats(0, 0.5), st.floats(0, 0.9)), leave=st.floats(0, 20), hold=st.sampled_from([0, 90])
    )
    def begin(self, shares: tuple[float, float], leave: float, hold: float) -> None:
        self.arguments = replace(ARGS, refused_share=shares[0], avoided_share=shares[1], leave=leave, hold_seconds=hold)
        self.now_seconds = NOW
        self.view = loads([0.0] * SIZE)
        self.loosened: dict[str, float] = {}

    @rule(now=st.lists(LOAD, min_size=SIZE, max_size=SIZE), peak=st.lists(LOAD, min_size=SIZE, max_size=SIZE))
    def load(self, now: list[float], peak: list[float]) -> None:
        self.view = replace(self.view, now=np.array(now), peak=np.array(peak))

    @rule(seconds=st.sampled_from([1.0, 60.0, 200.0]))
    def wait(self, seconds: float) -> None:
        self.now_seconds += seconds

    @rule(broken=st.booleans())
    def reporting(self, broken: bool) -> None:
        self.view = replace(self.view, broken=broken)

    @rule(most=st.integers(1, SIZE))
    def write(self, most: int) -> None:
        """Some of what is due; a taint that was just set is not made laxer while its load is reported and has room."""
        before = self.view
        plan = decide(before, self.arguments, self.now_seconds)
        due = list(changes_of(before, plan, self.arguments))[:most]
        effects, changed = before.effects.copy(), before.changed_seconds.copy()
        for change in due:
            place = before.names.index(change.name)
            young = self.now_seconds - before.changed_seconds[place] < self.arguments.hold_seconds
            if young and change.after < change.before and not before.broken and not math.isnan(change.now):
                # what had the place stays: caps did not change, so only a stricter effect replaces it
                raise AssertionError(f"{change} within the hold")
            effects[place], changed[place] = change.after, self.now_seconds
        self.view = replace(before, effects=effects, changed_seconds=changed)

    @invariant()
    def within_the_caps(self) -> None:
        if not hasattr(self, "view"):
            return
        counts = np.bincount(self.view.effects, minlength=3)
        assert counts[REFUSED] <= int(SIZE * self.arguments.refused_share)
        plan = decide(self.view, self.arguments, self.now_seconds)
        assert np.bincount(plan.effects, minlength=3)[AVOIDED] <= int(SIZE * self.arguments.avoided_share)

    @invariant()
    def all_written_is_settled(self) -> None:
        """A few rounds of writing everything lead to a state in which nothing is due."""
        if not hasattr(self, "view"):
            return
        view = self.view
        for _ in range(4):
            due = list(changes_of(view, decide(view, self.arguments, self.now_seconds), self.arguments))
            if not due:
                return
            effects, changed = view.effects.copy(), view.changed_seconds.copy()
            for change in due:
                place = view.names.index(change.name)
                effects[place], changed[place] = change.after, self.now_seconds
            view = replace(view, effects=effects, changed_seconds=changed)
        raise AssertionError(f"still due: {due}")


TestTaintedCluster = TaintedCluster.TestCase
TestTaintedCluster.settings = hypothesis_settings(max_examples=40, stateful_step_count=20)
