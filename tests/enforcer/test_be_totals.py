"""Best-effort cgroups follow their batch resources."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cotenant.base.kubernetes.protocol import EXTENDED_SPEC_ANNOTATION, SKIP_HOOKS_LABEL
from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import NO_LIMIT, Knob, KubeQos, Level, PodReading, StrategyPlan
from cotenant.enforcer.decide.container_resources import BATCH_CPU, BATCH_MEMORY
from cotenant.enforcer.decide.knobs import as_text, shares_of
from cotenant.enforcer.decide.settle import settle
from cotenant.enforcer.model.node_policy import decode
from cotenant.enforcer.strategies.be_totals import BeTotals
from tests.enforcer.readings import MIB, container, node, observation_of
from tests.enforcer.readings import pod as any_pod
from tests.enforcer.v1_kernel import V1, V2

POLICY = decode({})
AMOUNTS = {BATCH_CPU: 500, BATCH_MEMORY: 64 * MIB}


def pod(name: str, qos: QosClass = QosClass.BE, batch: bool = True, **others: Any) -> PodReading:
    amounts = AMOUNTS if batch else {}
    inside = container(requests=amounts, limits=amounts)
    return any_pod(name, inside, qos=qos, kube=KubeQos.BEST_EFFORT, **others)


def plan(*pods: PodReading, **of_node: Any) -> StrategyPlan:
    return BeTotals().step(observation_of(*pods, machine=node(**of_node)), POLICY, None).plan


def test_pod_and_container_get_what_the_batch_resources_say() -> None:
    strategy_plan = plan(pod("job"))
    # 500 * 1024 // 1000 = 512; 500 * 100 us = 50000
    expected = [(Knob.CPU_SHARES, 512), (Knob.CPU_QUOTA, 50_000), (Knob.MEMORY_LIMIT, 64 * MIB)]
    for level in (Level.POD, Level.CONTAINER):
        assert [(w.knob, w.value) for w in strategy_plan.wants if w.level is level] == expected


def test_a_container_is_known_to_have_been_made_with_it_only_where_the_kubelet_says_otherwise() -> None:
    """The kubelet sees no batch resources: smallest shares, no limits. Pods' own cgroups are made by it alone."""
    strategy_plan = plan(pod("job"))
    kubelets = {Knob.CPU_SHARES: 2, Knob.CPU_QUOTA: -1, Knob.MEMORY_LIMIT: -1}
    assert {w.knob: w.made_from for w in strategy_plan.wants if w.level is Level.CONTAINER} == kubelets
    assert {w.made_from for w in strategy_plan.wants if w.level is Level.POD} == {None}


def test_no_quota_is_what_a_kubelet_sets_that_enforces_none() -> None:
    """cpuCFSQuota: false: beside a limit of 1 CPU the kubelet's quota is none, not 100000 us."""
    limits = {BATCH_CPU: 500, "cpu": 1000}
    job = any_pod("job", container(requests=limits, limits=limits), qos=QosClass.BE, kube=KubeQos.BURSTABLE)
    for off, quota in ((False, 100_000), (True, NO_LIMIT)):
        strategy_plan = plan(job, kubelet_quotas_off=off)
        wants = [w for w in strategy_plan.wants if w.level is Level.CONTAINER and w.knob is Knob.CPU_QUOTA]
        assert [w.made_from for w in wants] == [quota]


def test_the_tier_above_the_pods_is_left_as_it_is() -> None:
    strategy_plan = plan(pod("job"))
    assert {w.level for w in strategy_plan.wants} == {Level.POD, Level.CONTAINER}


def test_nobody_else_is_touched() -> None:
    others = [pod(q.value.lower() or "none", q) for q in QosClass if q is not QosClass.BE]
    assert plan(*others) == StrategyPlan()


def test_pods_that_ended_or_want_to_be_left_alone_are() -> None:
    pods = [
        pod("a", phase="Failed"),
        pod("b", phase="Succeeded"),
        pod("c", labels={SKIP_HOOKS_LABEL: "true"}),
    ]
    assert plan(*pods) == StrategyPlan()


def test_a_pod_without_a_cgroup_waits_for_it() -> None:
    reading = pod("job")
    waiting = replace(reading, group=None, containers=tuple(replace(c, group=None) for c in reading.containers))
    assert len(plan(reading).wants) == 6
    assert plan(waiting).wants == ()


def test_a_faster_node_gives_less_quota() -> None:
    annotations = {"node.koordinator.sh/cpu-normalization-ratio": "1.25"}
    strategy_plan = plan(pod("job"), annotations=annotations)
    # 50000 / 1.25
    assert {w.value for w in strategy_plan.wants if w.knob is Knob.CPU_QUOTA} == {40_000}


def test_an_unreadable_annotation_is_told() -> None:
    strategy_plan = plan(pod("job", batch=False, annotations={EXTENDED_SPEC_ANNOTATION: "{"}))
    assert strategy_plan.wants == ()
    assert [v.reason for v in strategy_plan.verdicts] == ["AnnotationUnreadable"]
    running = plan(pod("job", annotations={EXTENDED_SPEC_ANNOTATION: "{"}))
    assert running.wants == plan(pod("job")).wants  # its author does not get rid of the limits in this way
    assert [v.reason for v in running.verdicts] == ["AnnotationUnreadable"]


def mixed(job_weight: int, side_weight: int) -> PodReading:
    """A pod of 2000 m batch CPU beside a container of 1000 m: 2048 and 1024 shares, with these weights of cgroup v2."""
    batch = {BATCH_CPU: 2000}
    parts = (("job", batch, job_weight), ("side", {"cpu": 1000}, side_weight))
    inside = [
        container(name, requests=amounts, limits=amounts, knobs={Knob.CPU_SHARES: shares_of(weight)})
        for name, amounts, weight in parts
    ]
    return any_pod("mixed", *inside, qos=QosClass.BE, kube=KubeQos.BURSTABLE, knobs={Knob.CPU_SHARES: shares_of(39)})


@pytest.mark.parametrize(
    ("job", "side", "becomes"),
    [
        # 1 + (2048 - 2) * 9999 // 262142 = 79 beside 39 for 1024; by the newer formula 174 beside 100
        (79, 39, 79),
        (174, 100, 174),  # as a hook had it made: nothing to write
        (1, 39, 79),
        (1, 100, 174),
        (79, 100, 174),  # an older agent's
        (174, 7, 174),  # somebody changed the other one
        (1, 7, 79),  # nothing shows the formula
    ],
)
def test_a_container_weighs_by_the_formula_of_its_own_runtime(job: int, side: int, becomes: int) -> None:
    """Twice the shares must not become less than the weight of a container that nobody touches."""
    pod = mixed(job, side)
    assert pod.group is not None
    place = (f"{pod.group.path}/id-job", Knob.CPU_SHARES)
    observation = observation_of(pod)
    settled = settle([BeTotals().step(observation, POLICY, None).plan], observation, {}, V2)
    written = {w.place: as_text(w.knob, w.value, V2) for w in settled.writes if w.knob is Knob.CPU_SHARES}
    assert written.get(place) == (None if job == becomes else (str(becomes),))
    assert not any(path.endswith("id-side") for path, _ in written)
    # what stood there; where that is ours, the kubelet's 2 shares, which are 1 by either formula
    end = mixed(becomes, side)
    back = settle([], observation_of(end), settled.notes, V2)
    texts = {w.place: as_text(w.knob, w.value, V2) for w in back.writes}
    assert texts[place] == (str(1 if job == becomes else job),)
    # the pod's own weight is the kubelet's to convert, which it does linearly: 2048 shares
    assert written[(pod.group.path, Knob.CPU_SHARES)] == ("79",)


def test_on_cgroup_v1_shares_are_shares() -> None:
    pod = mixed(1, 1)
    job, side = (
        replace(c, group=replace(c.group, knobs={Knob.CPU_SHARES: shares}))
        for c, shares in zip(pod.containers, (2, 1024), strict=True)
        if c.group is not None
    )
    observation = observation_of(replace(pod, containers=(job, side)))
    settled = settle([BeTotals().step(observation, POLICY, None).plan], observation, {}, V1)
    assert [w.value for w in settled.writes if w.knob is Knob.CPU_SHARES and w.level is Level.CONTAINER] == [2048]
