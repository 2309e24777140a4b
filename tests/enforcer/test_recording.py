"""Observations on file, and the same decisions made again from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from cotenant.base.errors import UsageError
from cotenant.enforcer.contract import CpuUse, Knob, Level, MemoryUse, Observation, Step, Strategy, StrategyPlan, Want
from cotenant.enforcer.decide.loop import Ages, Memory, decide
from cotenant.enforcer.decide.registry import strategies
from cotenant.enforcer.model.node_policy import NodePolicy
from cotenant.enforcer.report.recorder import TickRecorder, replay_recording
from cotenant.enforcer.settings import EnforcerSettings
from tests.enforcer.readings import TIERS, KubeQos, container, node, observation_of, pod, policy

AGES = Ages()
ON = policy({"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressPolicy": "cfsQuota"}})


@dataclass(frozen=True)
class Climbing:
    """A strategy whose quota grows by a step each tick: what it wants depends on what it remembers."""

    step_size: int = 1000
    name: str = "climbing"

    def initial(self) -> int:
        return 10_000

    def step(self, observation: Observation, policy: NodePolicy, state: int) -> Step[int]:  # noqa: ARG002 - the contract
        path = TIERS[KubeQos.BEST_EFFORT]
        return Step(
            StrategyPlan((Want(path, Knob.CPU_QUOTA, state, Level.QOS, self.name, "up"),)), state + self.step_size
        )


def moments(count: int) -> list[Observation]:
    web = pod("web", container(cpu=CpuUse(100.0)), cpu=CpuUse(100.0), memory=MemoryUse(1 << 20, 1 << 20))
    batch = pod("etl", container(), kube=KubeQos.BEST_EFFORT, cpu=CpuUse(900.0))
    machine = node(4, 1200.0)
    return [
        replace(observation_of(web, batch, machine=machine, at=float(t)), policy_age_seconds=1e9 if t > 90 else 1.0)
        for t in range(count)
    ]


def recorded(
    path: Path, ticks: list[Observation], running: tuple[Strategy[Any], ...], cap_bytes: int = 1 << 30
) -> list[tuple[Want, ...]]:
    """Record a run; the wants of each tick."""
    recorder, memory, wants_of_ticks = TickRecorder(path, cap_bytes), Memory(), []
    for number, at in enumerate(ticks):
        in_force = ON if number % 7 else None
        before = memory
        decided, memory = decide(at, in_force, before, running, AGES)
        recorder.record(at, in_force, decided, before, AGES)
        wants_of_ticks.append(decided.wants)
    recorder.close()
    return wants_of_ticks


def test_every_strategy_decides_again_what_it_decided(tmp_path: Path) -> None:
    path, running = tmp_path / "seen.jsonl", strategies(EnforcerSettings())
    all_wants = recorded(path, moments(40), running)
    again = list(replay_recording(path, running))
    assert [tick.same for tick in again] == [True] * 40
    assert [set(tick.decided.wants) for tick in again] == [set(wants) for wants in all_wants]
    assert any(all_wants)


def test_a_strategy_that_decides_otherwise_is_found_out(tmp_path: Path) -> None:
    path = tmp_path / "seen.jsonl"
    recorded(path, moments(6), (Climbing(),))
    # Ticks 0 has no policy; from tick 2 on the other step shows.
    assert [tick.same for tick in replay_recording(path, (Climbing(2000),))] == [True, True, False, False, False, False]


def test_a_recording_that_was_begun_anew_goes_on_where_the_strategies_were(tmp_path: Path) -> None:
    path = tmp_path / "seen.jsonl"
    all_wants = recorded(path, moments(30)[8:13], (Climbing(),), cap_bytes=1)
    again = list(replay_recording(path, (Climbing(),)))
    assert path.with_name("seen.jsonl.1").exists()
    assert len(again) == 1 and again[0].same
    assert again[0].decided.wants == all_wants[-1] and all_wants[-1][0].value == 13_000


def test_a_line_that_was_cut_short_ends_the_replay(tmp_path: Path) -> None:
    path = tmp_path / "seen.jsonl"
    recorded(path, moments(4), (Climbing(),))
    path.write_bytes(path.read_bytes()[:-20])
    assert len(list(replay_recording(path, (Climbing(),)))) == 3


@pytest.mark.parametrize(
    ("text", "word"),
    [("", "line 1"), ("{}\n", "line 1"), ('{"version": 9, "node": "n", "ages": {}, "states": {}}\n', "version 9")],
)
def test_what_is_no_recording_is_refused(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "x"
    path.write_text(text)
    with pytest.raises(UsageError, match=word):
        list(replay_recording(path, ()))
