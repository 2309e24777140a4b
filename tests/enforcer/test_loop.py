"""One tick's decision over all strategies, on fresh and on old knowledge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.enforcer.contract import (
    NO_LIMIT,
    Evict,
    Knob,
    KubeQos,
    Level,
    Observation,
    Step,
    Strategy,
    StrategyPlan,
    Value,
    Verdict,
    Want,
)
from cotenant.enforcer.decide.changes import OriginalValue, wants_of
from cotenant.enforcer.decide.loop import (
    AgentMode,
    Ages,
    Memory,
    TickDecision,
    decide,
    keep_tighter_wants,
    merge_wants,
    mode_of,
)
from cotenant.enforcer.model.node_policy import NodePolicy
from tests.enforcer.readings import TIERS, observation_of, pod, policy

BE = TIERS[KubeQos.BEST_EFFORT]
AGES = Ages(policy_ttl_seconds=300, release_seconds=3600, pods_ttl_seconds=120)


def want(value: Value, path: str = BE, knob: Knob = Knob.CPU_QUOTA, strategy: str = "one") -> Want:
    return Want(path, knob, value, Level.QOS, strategy, "because")


@dataclass(frozen=True)
class Saying:
    """A strategy that says what a test tells it, and counts its steps."""

    plan: StrategyPlan
    name: str = "one"

    def initial(self) -> int:
        return 0

    def step(self, observation: Observation, policy: NodePolicy, state: int) -> Step[int]:  # noqa: ARG002 - the contract
        return Step(self.plan, state + 1)


@dataclass(frozen=True)
class Breaking:
    """A strategy that raises from its second step on."""

    plan: StrategyPlan
    name: str = "breaking"

    def initial(self) -> int:
        return 0

    def step(self, observation: Observation, policy: NodePolicy, state: int) -> Step[int]:  # noqa: ARG002 - the contract
        if state:
            raise ZeroDivisionError("no CPU is eligible")
        return Step(self.plan, state + 1)


@dataclass(frozen=True)
class Fragile:
    """A strategy that wants something for each pod, and raises beside one of a name from its second step on."""

    name: str = "fragile"

    def initial(self) -> int:
        return 0

    def step(self, observation: Observation, policy: NodePolicy, state: int) -> Step[int]:  # noqa: ARG002 - the contract
        if state and any(p.spec.name == "bad" for p in observation.pods):
            raise OverflowError("no number holds it")
        wants = tuple(want(5000 + state, p.group.path, strategy=self.name) for p in observation.pods if p.group)
        return Step(StrategyPlan(wants), state + 1)


def once(
    strategies: Sequence[Strategy[Any]], at: Observation, memory: Memory | None = None
) -> tuple[TickDecision, Memory]:
    return decide(at, policy(), memory or Memory(), strategies, AGES)


@pytest.mark.parametrize(
    ("policy_age", "pods_age", "mode"),
    [
        (300.0, 120.0, AgentMode.ACT),
        (300.1, 0.0, AgentMode.HOLD),
        (0.0, 120.1, AgentMode.HOLD),
        (3900.0, 0.0, AgentMode.HOLD),
        (3900.1, 0.0, AgentMode.RELEASE),
        (float("inf"), float("inf"), AgentMode.RELEASE),
    ],
)
def test_the_mode_follows_the_age_of_what_is_known(policy_age: float, pods_age: float, mode: AgentMode) -> None:
    at = replace(observation_of(), policy_age_seconds=policy_age, pods_age_seconds=pods_age)
    assert mode_of(at, policy(), AGES) is mode


def test_on_old_knowledge_best_effort_gets_no_more_than_an_agent_before_had_left_it() -> None:
    before = {
        (BE, Knob.CPU_QUOTA): OriginalValue(BE, Knob.CPU_QUOTA, Level.QOS, NO_LIMIT, (9000, 5000)),
        (BE, Knob.CPU_SHARES): OriginalValue(BE, Knob.CPU_SHARES, Level.QOS, 2, (1024, 2597)),
    }
    stale = replace(observation_of(), policy_age_seconds=301.0)
    looser = [Saying(StrategyPlan((want(20_000),)))]
    decided, memory = decide(stale, policy(), Memory(wants=wants_of(before)), looser, AGES)
    assert {(w.knob, w.value) for w in decided.wants} == {(Knob.CPU_QUOTA, 5000)}
    assert {w.value for w in decide(stale, policy(), memory, looser, AGES)[0].wants} == {5000}
    assert {w.value for w in decide(observation_of(), policy(), memory, looser, AGES)[0].wants} == {20_000}


def test_without_a_policy_nothing_is_wanted_and_the_reason_is_told() -> None:
    decided, memory = decide(observation_of(), None, Memory({"one": 4}), [Saying(StrategyPlan((want(5000),)))], AGES)
    assert (decided.mode, decided.wants, memory) == (AgentMode.RELEASE, (), Memory())
    assert [verdict.reason for verdict in decided.verdicts] == ["NoPolicy"]


def test_a_pod_on_which_a_strategy_fails_keeps_what_it_has_and_all_others_are_served() -> None:
    at = observation_of(*(pod(name) for name in ("a", "bad", "b", "c")))
    first, memory = once([Fragile()], at)
    assert {w.value for w in first.wants} == {5000} and len(first.wants) == 4
    decided, _ = once([Fragile()], replace(at, at_seconds=1.0), memory)
    values = {p.spec.name: {w.value for w in decided.wants if p.group and w.path == p.group.path} for p in at.pods}
    assert values == {"a": {5001}, "bad": {5000}, "b": {5001}, "c": {5001}}
    (verdict,) = [v for v in decided.verdicts if v.reason == "StrategyFailed"]
    assert verdict.subject.endswith("/bad") and "OverflowError" in verdict.message


def test_strategies_remember_from_tick_to_tick() -> None:
    strategy = Saying(StrategyPlan((want(5000),)))
    _, memory = once([strategy], observation_of())
    _, memory = once([strategy], observation_of(at=1.0), memory)
    assert memory.states == {"one": 2}


def test_of_two_values_for_one_knob_the_first_strategys_holds_and_it_is_told() -> None:
    first, second = Saying(StrategyPlan((want(5000),))), Saying(StrategyPlan((want(9000, strategy="two"),)), "two")
    decided, _ = once([first, second], observation_of())
    assert [w.value for w in decided.wants] == [5000]
    assert [(v.reason, v.warning) for v in decided.verdicts] == [("KnobConflict", True)]


def test_the_same_value_twice_is_no_conflict() -> None:
    wants, verdicts = merge_wants([StrategyPlan((want(5000),)), StrategyPlan((want(5000, strategy="two"),))], "n1")
    assert len(wants) == 1 and verdicts == []


def test_a_strategy_that_breaks_keeps_its_last_wants_and_lets_the_others_go_on() -> None:
    evicts = Evict("x", "a", "u", "breaking", "why")
    broken = Breaking(StrategyPlan((want(5000, strategy="breaking"),), (evicts,)))
    fine = Saying(StrategyPlan((want(7, "kubepods", Knob.CPU_SHARES),)))
    _, memory = once([broken, fine], observation_of())
    decided, memory = once([broken, fine], observation_of(at=1.0), memory)
    assert {w.value for w in decided.wants} == {5000, 7}
    assert decided.evictions == () and memory.states == {"breaking": 1, "one": 2}
    assert "ZeroDivisionError: no CPU is eligible" in decided.verdicts[0].message


def test_what_a_broken_strategy_wanted_of_a_cgroup_that_is_gone_is_dropped() -> None:
    web = pod("web")
    broken = Breaking(StrategyPlan((want(5000, web.group.path if web.group else "", strategy="breaking"),)))
    _, memory = once([broken], observation_of(web))
    assert once([broken], observation_of(at=1.0), memory)[0].wants == ()


def stale(at: float = 1.0) -> Observation:
    return replace(observation_of(pod("batch", kube=KubeQos.BEST_EFFORT), at=at), policy_age_seconds=301.0)


def test_on_a_stale_policy_nobody_is_evicted_and_best_effort_gets_no_more() -> None:
    _, memory = once([Saying(StrategyPlan((want(5000),)))], observation_of())
    more = Saying(StrategyPlan((want(9000),), (Evict("x", "a", "u", "one", "why"),)))
    decided, memory = once([more], stale(), memory)
    assert (decided.mode, [w.value for w in decided.wants], decided.evictions) == (AgentMode.HOLD, [5000], ())
    assert decided.verdicts[-1].reason == "Stale"
    # Less than before is allowed, and then is the new "before".
    decided, memory = once([Saying(StrategyPlan((want(3000),)))], stale(2.0), memory)
    assert [w.value for w in decided.wants] == [3000]
    decided, _ = once([Saying(StrategyPlan())], stale(3.0), memory)
    assert [w.value for w in decided.wants] == [3000]


@pytest.mark.parametrize(
    ("knob", "before", "now", "result"),
    [
        (Knob.CPU_QUOTA, 5000, NO_LIMIT, 5000),
        (Knob.CPU_QUOTA, NO_LIMIT, 5000, 5000),
        (Knob.CPUSET_CPUS, "0-1", "0-3", "0-1"),
        (Knob.CPUSET_CPUS, "0-3", "2", "2"),
        (Knob.CPU_IDLE, 1, 0, 1),
        (Knob.CPU_IDLE, 0, 1, 1),
        (Knob.MEMORY_OOM_GROUP, 1, 0, 0),
    ],
)
def test_what_looser_means_depends_on_the_knob(knob: Knob, before: Value, now: Value, result: Value) -> None:
    wants = keep_tighter_wants([want(now, knob=knob)], [want(before, knob=knob)], observation_of())
    assert [w.value for w in wants] == [result]


def test_other_tiers_follow_their_strategies_also_on_old_knowledge() -> None:
    path = TIERS[KubeQos.BURSTABLE]
    assert [w.value for w in keep_tighter_wants([want(9000, path)], [want(5000, path)], observation_of())] == [9000]


def test_a_verdict_of_a_strategy_reaches_the_round() -> None:
    verdict = Verdict("n1", "Idle", "nothing to do")
    assert once([Saying(StrategyPlan(verdicts=(verdict,)))], observation_of())[0].verdicts == (verdict,)


def quota_of(value: Value) -> float:
    assert isinstance(value, int)
    return float("inf") if value == NO_LIMIT else value


_QUOTA = st.integers(1000, 10**6) | st.just(NO_LIMIT)


@given(st.lists(_QUOTA, min_size=1, max_size=8))
def test_on_old_knowledge_a_quota_never_grows(values: list[int]) -> None:
    _, memory = once([Saying(StrategyPlan((want(values[0]),)))], observation_of())
    last = quota_of(values[0])
    for number, value in enumerate(values[1:]):
        decided, memory = once([Saying(StrategyPlan((want(value),)))], stale(1.0 + number), memory)
        now = quota_of(decided.wants[0].value)
        assert now <= last
        last = now
    assert last <= quota_of(values[0])
