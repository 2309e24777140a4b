"""Pods that must leave: the API server is asked first, and while memory runs out the container runtime ends them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.apply.eviction_worker import EvictionAnswer
from cotenant.enforcer.apply.pod_evictions import UNANSWERED_SECONDS, PodEvictions
from cotenant.enforcer.contract import CpuUse, Evict, KubeQos, MemoryUse, Observation
from cotenant.enforcer.decide.loop import AgentMode, Ages, Memory, TickDecision, decide
from cotenant.enforcer.decide.registry import strategies
from cotenant.enforcer.model.enforcement import EVICTIONS, REASON_SENTENCES
from cotenant.enforcer.report.acts import EVICTION_REASONS
from cotenant.enforcer.settings import BestEffortSettings, EnforcerSettings
from tests.enforcer.readings import GIB, container, node, observation_of, pod, policy

JOB = pod("job", container(), qos=QosClass.BE, kube=KubeQos.BEST_EFFORT)
OUT = Evict("default", "job", "u-job", "BEMemoryEvict", "95 % of the node's memory is used", urgent=True)
BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."


@dataclass(slots=True)
class Played:
    """An API server or a runtime as its queue shows it: what it was asked for, and what it answers."""

    requests: list[tuple[str, str]] = field(default_factory=list)
    replies: list[EvictionAnswer] = field(default_factory=list)

    def start(self) -> None:
        return

    def stop(self, timeout_seconds: float = 5.0) -> None:
        del timeout_seconds

    def put(self, eviction: Evict, request: Any) -> None:
        self.requests.append((eviction.name, request if isinstance(request, str) else request.body["kind"]))

    def answers(self) -> list[EvictionAnswer]:
        answers, self.replies = self.replies, []
        return answers


@dataclass(slots=True)
class World:
    """A node's evictions with an API server and a runtime, and what is told of them."""

    settings: EnforcerSettings = field(default_factory=lambda: EnforcerSettings(dry_run=False, stop_containers=True))
    api: Any = field(default_factory=Played)
    runtime: Any = field(default_factory=Played)
    outcomes: list[tuple[str, str]] = field(default_factory=list)

    def evictions(self) -> PodEvictions:
        def tell(_: Evict, outcome: str, message: str, *__: object) -> None:
            self.outcomes.append((outcome, message))

        return PodEvictions(self.settings, tell, self.api, self.runtime)


def tick(mode: AgentMode = AgentMode.ACT, out: Evict = OUT) -> TickDecision:
    return TickDecision(
        mode=mode, evictions=() if mode is AgentMode.HOLD else (out,), urgent=(out,) if out.urgent else ()
    )


def at(seconds: float) -> Observation:
    return observation_of(JOB, at=seconds)


def test_a_budgets_refusal_while_memory_runs_out_lets_the_runtime_end_the_containers() -> None:
    node_world = World()
    evictions = node_world.evictions()
    evictions.step(tick(), at(0.0))
    assert node_world.api and node_world.api.requests == [("job", "Eviction")]
    node_world.api.replies = [EvictionAnswer(OUT, "refused", BUDGET)]
    evictions.step(tick(), at(1.0))
    assert node_world.runtime and node_world.runtime.requests == [("job", BUDGET)]
    node_world.runtime.replies = [EvictionAnswer(OUT, "stopped", f"{BUDGET}; ended: main")]
    evictions.step(tick(), at(2.0))
    assert node_world.outcomes == [("refused", BUDGET), ("stopped", f"{BUDGET}; ended: main")]
    assert len(node_world.runtime.requests) == 1


@pytest.mark.parametrize("when", ["memory is there again", "not urgent", "the pod leaves", "switched off"])
def test_the_runtime_is_not_asked_when(when: str) -> None:
    out = replace(OUT, urgent=when != "not urgent")
    node_world = World(runtime=None if when == "switched off" else Played())
    evictions = node_world.evictions()
    evictions.step(tick(out=out), at(0.0))
    assert node_world.api
    node_world.api.replies = [EvictionAnswer(out, "refused", BUDGET)]
    then = at(1.0)
    if when == "the pod leaves":
        then = observation_of(replace(JOB, spec=replace(JOB.spec, deleting=True)), at=1.0)
    evictions.step(TickDecision(mode=AgentMode.ACT) if when == "memory is there again" else tick(out=out), then)
    assert node_world.runtime is None or node_world.runtime.requests == []
    assert node_world.outcomes == [("refused", BUDGET)]


def test_an_api_server_that_does_not_answer_is_not_waited_for() -> None:
    node_world = World()
    evictions = node_world.evictions()
    evictions.step(tick(), at(0.0))
    evictions.step(tick(), at(UNANSWERED_SECONDS - 0.5))
    assert node_world.runtime and node_world.runtime.requests == []
    evictions.step(tick(), at(UNANSWERED_SECONDS))
    evictions.step(tick(), at(UNANSWERED_SECONDS + 1))
    assert node_world.runtime.requests == [("job", "the API server has not answered for 5 s")]


def test_while_the_api_server_is_away_urgent_ones_are_ended_at_once_and_others_stay() -> None:
    node_world = World()
    evictions = node_world.evictions()
    evictions.step(tick(AgentMode.HOLD), at(0.0))
    evictions.step(tick(AgentMode.HOLD), at(1.0))  # asked already
    assert node_world.runtime and node_world.runtime.requests == [
        ("job", "the API server has not answered for a long time")
    ]
    assert node_world.api and node_world.api.requests == []
    other = World()
    other.evictions().step(tick(AgentMode.HOLD, replace(OUT, urgent=False)), at(0.0))
    assert other.runtime and other.runtime.requests == []
    system = World()
    system.evictions().step(tick(AgentMode.HOLD), observation_of(replace(JOB, spec=replace(JOB.spec, static=True))))
    assert system.runtime and system.runtime.requests == []


def test_without_an_api_server_and_in_a_dry_run_it_is_told() -> None:
    alone = World(api=None)
    alone.evictions().step(tick(), at(0.0))
    assert alone.runtime and alone.runtime.requests == [("job", "no API server is configured")]
    dry = World(settings=EnforcerSettings(stop_containers=True), api=None, runtime=None)
    dry.evictions().step(tick(AgentMode.HOLD), at(0.0))
    assert dry.outcomes == [("would-stop", "the API server has not answered for a long time")]
    plain = World(settings=EnforcerSettings(), api=None, runtime=None)
    plain.evictions().step(tick(AgentMode.HOLD), at(0.0))
    assert plain.outcomes == []


def test_every_outcome_has_a_reason_with_a_sentence() -> None:
    assert set(EVICTION_REASONS.values()) <= EVICTIONS & REASON_SENTENCES.keys()
    assert EVICTION_REASONS["stopped"] == "ContainersStopped"


def test_only_best_effort_and_only_while_memory_runs_out_is_urgent_also_while_the_api_server_is_away() -> None:
    rules = policy({"resourceUsedThresholdWithBE": {"enable": True}})
    memory = MemoryUse(2 * GIB, 2 * GIB, 2 * GIB)
    job = pod("job", container(), qos=QosClass.BE, kube=KubeQos.BEST_EFFORT, cpu=CpuUse(1.0), memory=memory)
    machine = replace(node(4, 100.0), memory_available_bytes=GIB // 64)  # of 8 GiB
    running = strategies(EnforcerSettings(best_effort=BestEffortSettings()))

    def decided(available: int, pods_age_seconds: float) -> TickDecision:
        moment = observation_of(job, machine=replace(machine, memory_available_bytes=available))
        return decide(replace(moment, pods_age_seconds=pods_age_seconds), rules, Memory(), running, Ages())[0]

    away = decided(GIB // 64, 1000.0)
    assert (away.mode, away.evictions, [e.name for e in away.urgent]) == (AgentMode.HOLD, (), ["job"])
    full = decided(GIB * 2, 0.0)  # 75 % used: more than 70 %, and no emergency
    assert ([e.name for e in full.evictions], full.urgent) == (["job"], ())
