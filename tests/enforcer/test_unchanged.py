"""A strategy that keeps its answers says what one that just started would say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import KubeQos, MemoryUse, PodReading, Strategy
from cotenant.enforcer.strategies.be_totals import BeTotals
from cotenant.enforcer.strategies.memory_qos import MemoryProtection
from cotenant.enforcer.strategies.unchanged import Unchanged
from tests.enforcer.readings import EVERY_KNOB, MIB, container, node, observation_of, pod, policy

NODE = node()
POLICIES = [
    policy({"resourceQOSStrategy": {"lsClass": {"memoryQOS": qos}, "beClass": {"memoryQOS": qos}}})
    for qos in (
        {"enable": False},
        {"enable": True, "minLimitPercent": 50, "lowLimitPercent": 80},
        {"enable": True, "throttlingPercent": 60},
    )
]

a_pod = st.tuples(
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from([QosClass.BE, QosClass.LS]),
    st.integers(0, 2),  # containers
    st.sampled_from([1, 2]),  # what each asks for
    st.integers(0, 3),  # which cgroups are there: bit 0 the pod's, bit 1 the containers'
    st.booleans(),  # an annotation that cannot be read
    st.integers(1, 64),  # MiB in use
)
a_tick = st.tuples(
    st.lists(a_pod, max_size=3, unique_by=lambda one: one[0]), st.sampled_from(POLICIES), st.booleans(), st.booleans()
)


def reading(name: str, qos: QosClass, count: int, *rest: Any) -> PodReading:
    size, present, broken, used = rest
    amounts = {"cpu": 100 * size, "memory": 64 * MIB * size}
    amounts |= {"kubernetes.io/batch-cpu": 100 * size, "kubernetes.io/batch-memory": 32 * MIB * size}
    memory = MemoryUse(used * MIB, used * MIB)
    inside = [container(f"c{i}", requests=amounts, limits=amounts, memory=memory) for i in range(count)]
    notes = {"koordinator.sh/memoryQOS": "{"} if broken else {}
    kube = KubeQos.BEST_EFFORT if qos is QosClass.BE else KubeQos.BURSTABLE
    pod_reading = pod(name, *inside, qos=qos, kube=kube, annotations=notes)
    containers = tuple(c if present & 2 else replace(c, group=None) for c in pod_reading.containers)
    return replace(pod_reading, group=pod_reading.group if present & 1 else None, containers=containers)


@settings(max_examples=60, deadline=None)
@given(st.lists(a_tick, max_size=6))
def test_kept_answers_are_those_of_a_strategy_that_just_started(ticks: list[Any]) -> None:
    running: list[Strategy[Any]] = [BeTotals(), MemoryProtection()]
    states = [strategy.initial() for strategy in running]
    for number, (pods, of, all_knobs, twice) in enumerate(ticks):
        observed = observation_of(
            *(reading(*arguments) for arguments in pods),
            machine=NODE,
            at=float(number),
            supported=EVERY_KNOB if all_knobs else frozenset(),
        )
        for _ in range(1 + twice):
            fresh: list[Strategy[Any]] = [BeTotals(), MemoryProtection()]
            expected = [s.step(observed, of, state) for s, state in zip(fresh, states, strict=True)]
            steps = [s.step(observed, of, state) for s, state in zip(running, states, strict=True)]
            assert steps == expected
        states = [step.state for step in steps]


def test_an_answer_is_worked_out_once_and_forgotten_with_its_pod() -> None:
    texts: list[str] = []
    unchanged: Unchanged[str] = Unchanged()

    def answer(pod_reading: PodReading) -> str:
        texts.append(pod_reading.spec.name)
        return pod_reading.spec.name

    a, b = reading("a", QosClass.LS, 1, 1, 3, False, 1), reading("b", QosClass.LS, 1, 1, 3, False, 1)
    assert [text for _, text in unchanged.each([a, b], (1,), answer)] == ["a", "b"]
    assert [text for _, text in unchanged.each([b, a], (1,), answer)] == ["b", "a"]
    assert texts == ["a", "b"]
    unchanged.each([a], (1,), answer)
    unchanged.each([a, b], (1,), answer)
    assert texts == ["a", "b", "b"]
    unchanged.each([a, b], (2,), answer)
    unchanged.each([replace(a, group=None)], (2,), answer)
    assert texts == ["a", "b", "b", "a", "b", "a"]
