"""The agent's actions as everybody else hears of them: lanes, reasons, identities, and a tick's CPU as a sample."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import NO_LIMIT, CpuUse, Evict, Knob, Level, NodeForecast, Verdict, Want
from cotenant.enforcer.decide.loop import AgentMode, Ages, Memory, TickDecision, decide
from cotenant.enforcer.decide.registry import strategies
from cotenant.enforcer.model.enforcement import REASON_SENTENCES, AgentAction, Lane, in_words
from cotenant.enforcer.report.acts import (
    EVENT_REASONS,
    Verdicts,
    act_of,
    best_effort_limit_millicores,
    changes,
    reason_of,
    sample_of,
    seconds_of,
)
from cotenant.enforcer.report.status import ActionRecord, stamp
from cotenant.enforcer.settings import BestEffortSettings, EnforcerSettings
from cotenant.enforcer.strategies.suppression.suppress import Suppress, SuppressState
from tests.enforcer.readings import TIERS, KubeQos, container, node, observation_of, pod, policy

TIER = TIERS[KubeQos.BEST_EFFORT]
ON = {"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressPolicy": "cfsQuota"}}


def write(strategy: str, knob: str, before: Any, value: Any, **more: Any) -> ActionRecord:
    return ActionRecord(
        "2026-11-19T12:00:00.500Z", "write", TIER, "written", strategy, "so", knob, before, value, **more
    )


@pytest.mark.parametrize(
    ("strategy", "knob", "before", "after", "reason", "lane"),
    [
        ("cpu-suppress", "cpu.quota", NO_LIMIT, 130_000, "Suppressed", Lane.SUPPRESS),
        ("cpu-suppress", "cpu.quota", 130_000, 200_000, "SuppressionEased", Lane.SUPPRESS),
        ("cpu-suppress", "cpuset.cpus", "0-3", "0,2", "Suppressed", Lane.SUPPRESS),
        ("cpu-suppress", "cpuset.cpus", "0,2", "0-3", "SuppressionEased", Lane.SUPPRESS),
        ("cpu-suppress", "cpu.shares", 1024, 2, "BestEffortYields", Lane.SUPPRESS),
        ("cpu-burst", "cpu.quota", 100_000, 120_000, "BurstGranted", Lane.BURST),
        ("cpu-burst", "cpu.quota", 120_000, 100_000, "BurstTakenBack", Lane.BURST),
        ("cpu-burst", "cpu.burst", 0, 50_000, "BurstBuffer", Lane.BURST),
        ("memory-qos", "memory.min", 0, 1 << 30, "MemoryProtected", Lane.MEMORY),
        ("memory-qos", "memory.high", NO_LIMIT, 1 << 30, "MemoryThrottled", Lane.MEMORY),
        ("be-totals", "cpu.quota", NO_LIMIT, 100_000, "BatchLimits", Lane.OTHER),
        ("disk-limits", "blkio.read_bps", None, "8:0 100", "ValueSet", Lane.OTHER),
    ],
)
def test_a_value_that_was_set_has_the_reason_of_what_that_means(
    strategy: str, knob: str, before: Any, after: Any, reason: str, lane: Lane
) -> None:
    act = act_of(write(strategy, knob, before, after), "n1")
    assert (act.reason, act.lane, act.node, act.warning) == (reason, lane, "n1", False)
    assert act.reason in REASON_SENTENCES


def test_what_was_not_done_has_the_reason_of_its_outcome() -> None:
    for outcome, reason in EVENT_REASONS.items():
        if outcome not in ("written", "would-write"):
            assert (
                reason_of(msgspec.structs.replace(write("cpu-suppress", "cpu.quota", 1, 2), outcome=outcome)) == reason
            )
    denied = msgspec.structs.replace(write("cpu-burst", "cpu.quota", 1, 2), outcome="denied", message="read-only")
    assert act_of(denied, "n1").warning and act_of(denied, "n1").why == "so (read-only)"


@pytest.mark.parametrize(
    ("outcome", "reason"), [("asked", "Evicting"), ("would-ask", "WouldEvict"), ("refused", "EvictionRefused")]
)
def test_an_eviction_is_about_its_pod_in_the_lane_of_evictions(outcome: str, reason: str) -> None:
    record = ActionRecord("2026-11-19T12:00:00Z", "evict", "etl/a-1", outcome, "BECPUEvict", "starves", pod="etl/a-1")
    act = act_of(record, "n1")
    assert (act.reason, act.lane, act.pod, act.subject, act.warning) == (reason, Lane.EVICTION, "etl/a-1", "", True)


def test_a_finding_keeps_its_own_reason_and_words() -> None:
    act = act_of(ActionRecord("2026-11-19T12:00:00Z", "verdict", "web/a", "Interference", message="cpi 3"), "n1", True)
    assert (act.lane, act.pod, act.why, act.strategy) == (Lane.INTERFERENCE, "web/a", "cpi 3", "")
    assert act_of(ActionRecord("2026-11-19T12:00:00Z", "verdict", "n1", "NoPolicy", message="x"), "n1").pod == ""


def test_the_same_act_has_the_same_identity_after_it_went_through_an_annotation() -> None:
    act = act_of(write("cpu-suppress", "cpu.quota", NO_LIMIT, 130_000), "n1")
    again = msgspec.json.decode(msgspec.json.encode(act), type=AgentAction)
    assert again == act and again.id == act.id
    assert msgspec.structs.replace(act, node="n2").id != act.id
    assert msgspec.structs.replace(act, after="1").id != act.id


def test_amounts_are_told_in_the_units_of_people() -> None:
    # 130 ms of CPU a period of 100 ms are 1.3 cores; 1.5 GiB are 1 610 612 736 bytes.
    assert act_of(write("cpu-suppress", "cpu.quota", NO_LIMIT, 130_000), "n1").change == "no limit → 1.3 cores"
    assert in_words("memory.low", "1610612736") == "1.5 GiB" and in_words("memory.min", "1048576") == "1 MiB"
    assert in_words("cpuset.cpus", "0-3") == "0-3" and in_words("cpu.shares", "2") == "2"


@settings(max_examples=50, deadline=None)
@given(st.floats(1e9, 2e9))
def test_a_stamp_is_read_back_to_the_millisecond(moment: float) -> None:
    assert abs(seconds_of(stamp(moment)) - moment) <= 0.001


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01T00:00:00Z"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a time"):
        seconds_of(text)


# ---- a tick's CPU


def test_a_sample_says_who_uses_the_cpu_and_what_best_effort_is_held_to() -> None:
    web = pod("web", container(cpu=CpuUse(1500.0)), cpu=CpuUse(1500.0))
    batch = pod("etl", container(), qos=QosClass.BE, kube=KubeQos.BEST_EFFORT, cpu=CpuUse(900.0))
    moment = observation_of(web, batch, machine=node(4, 2600.0))
    rules = policy(ON)
    decided, _ = decide(moment, rules, Memory(), strategies_of(), Ages())
    sample = sample_of(moment, decided)
    # 4 cores; 2600 m in all, 900 of best effort: 1700 of others. Target: 65 % of 4000 - 1700 = 900.
    assert (sample.capacity, sample.others, sample.best_effort, sample.target) == (4000, 1700, 900, 900)
    assert sample.limit == 900 and sample.burst == 0


def test_without_a_figure_of_the_machine_or_a_policy_there_is_no_target() -> None:
    unknown = sample_of(observation_of(machine=node(4, None)), TickDecision(mode=AgentMode.ACT))
    assert (unknown.others, unknown.best_effort, unknown.target, unknown.limit) == (None, None, None, None)
    assert sample_of(observation_of(machine=node(4, 100.0)), TickDecision(mode=AgentMode.RELEASE)).target is None


def test_the_target_that_is_reported_is_the_one_that_is_applied() -> None:
    """While weight decides (threshold 100), with a forecast, and with what interference leaves."""
    web = pod("web", container(cpu=CpuUse(1500.0)), cpu=CpuUse(1500.0))
    moment = observation_of(web, machine=node(4, 1500.0))
    higher = {"resourceUsedThresholdWithBE": {**ON["resourceUsedThresholdWithBE"], "cpuSuppressThresholdPercent": 100}}
    decided, _ = decide(moment, policy(higher), Memory(), strategies_of(), Ages())
    # at 100 % weight decides: all of the machine, where the plain formula says 4000 - 1500
    assert sample_of(moment, decided).target == best_effort_limit_millicores(moment, decided.wants) == 4000
    ahead = NodeForecast(0.0, 1e10, q95_cpu_millicores=(1500, 2000), step_seconds=10**9)
    soon = replace(moment, wall_seconds=999_999_900.0, forecast=ahead)
    looking = EnforcerSettings(best_effort=BestEffortSettings(suppress_target="forecast-ahead"))
    decided, _ = decide(soon, policy(ON), Memory(), strategies(looking), Ages())
    # 65 % of 4000 - 1500 - the 500 that are expected to come
    assert sample_of(soon, decided).target == best_effort_limit_millicores(soon, decided.wants) == 600
    capped = Suppress().step(moment, policy(ON), SuppressState(), cap_millicores=300).plan
    shown = TickDecision(
        capped.wants, mode=AgentMode.ACT, best_effort_target_millicores=capped.best_effort_target_millicores
    )
    assert sample_of(moment, shown).target == best_effort_limit_millicores(moment, shown.wants) == 300


def test_cpus_and_quota_hold_by_the_smaller_one_and_bursts_add_up() -> None:
    wants = (
        Want(TIER, Knob.CPUSET_CPUS, "0-2", Level.QOS, "cpu-suppress", ""),
        Want(TIER, Knob.CPU_QUOTA, 250_000, Level.QOS, "cpu-suppress", ""),
        Want("a", Knob.CPU_QUOTA, 120_000, Level.CONTAINER, "cpu-burst", "", back_to=100_000),
        Want("b", Knob.CPU_QUOTA, 60_000, Level.CONTAINER, "cpu-burst", "", back_to=50_000),
        Want("p", Knob.CPU_QUOTA, 999_999, Level.POD, "cpu-burst", "", back_to=1),
    )
    sample = sample_of(observation_of(machine=node(4, 100.0)), TickDecision(wants, mode=AgentMode.ACT))
    # 3 CPUs, or 2.5 by quota; 0.2 + 0.1 cores granted, the pod's own quota is not counted again.
    assert sample.limit == 2500 and sample.burst == pytest.approx(300)


def strategies_of() -> Any:
    return strategies(EnforcerSettings())


# ---- where only decisions are known


def test_changes_of_decisions_are_told_as_a_dry_run_would() -> None:
    web = pod("web", container(), knobs={Knob.MEMORY_LOW: 0})
    moment = observation_of(web)
    path = web.group.path if web.group else ""
    want = Want(path, Knob.MEMORY_LOW, 5, Level.POD, "memory-qos", "why")
    leaves = Evict("default", "web", "u-web", "MemoryEvict", "full")
    changed = list(changes(moment, TickDecision((want,), mode=AgentMode.ACT), {}, (leaves,)))
    assert [(a.reason, a.pod, a.before, a.after, a.dry) for a in (act_of(record, "n1") for record, _ in changed)] == [
        ("MemoryProtected", "default/web", "0", "5", True),
        ("WouldEvict", "default/web", "", "", True),
    ]
    held_values = {(path, Knob.MEMORY_LOW): want}
    assert not list(changes(moment, TickDecision((want,), mode=AgentMode.ACT), held_values))
    (back,) = changes(moment, TickDecision(mode=AgentMode.ACT), held_values)
    assert back[0].outcome == "restored"


def test_a_finding_that_stays_is_told_once_a_minute() -> None:
    verdicts, finding = Verdicts(), Verdict("n1", "Stale", "12 s", warning=True)
    numbers = [len(list(verdicts.news([finding], observation_of(at=float(at))))) for at in (0, 1, 59, 60, 61)]
    assert numbers == [1, 0, 0, 1, 0]
