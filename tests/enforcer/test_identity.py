"""Group identity: values where the kernel has them, what stands for them elsewhere, one owner of the BE tier."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import Knob, KubeQos, PodReading, StrategyPlan
from cotenant.enforcer.strategies.identity import GroupIdentity
from tests.enforcer.readings import EVERY_KNOB, container, observation_of, pod, policy, values

STOCK = EVERY_KNOB - {Knob.CPU_BVT}
BURSTABLE, BEST_EFFORT = "kubepods/burstable", "kubepods/besteffort"


def rules(cpu: str = "groupIdentity", suppress: bool = False, **idle: int) -> Any:
    on = {name: {"cpuQOS": {"enable": True}} for name in ("lsrClass", "lsClass", "beClass", "systemClass")}
    on["beClass"]["cpuQOS"] |= idle  # type: ignore[arg-type]
    return policy(
        {
            "resourceQOSStrategy": {"policies": {"cpuPolicy": cpu}, **on},
            "resourceUsedThresholdWithBE": {"enable": suppress},
        }
    )


def decided(*pods: PodReading, of: Any = None, supported: frozenset[Knob] = EVERY_KNOB) -> StrategyPlan:
    return GroupIdentity().step(observation_of(*pods, supported=supported), of or rules(), None).plan


def noted(name: str, note: dict[str, Any] | str, kube: KubeQos = KubeQos.BURSTABLE, **others: Any) -> PodReading:
    text = note if isinstance(note, str) else json.dumps(note)
    return pod(name, container(), kube=kube, annotations={"koordinator.sh/cpuQOS": text}, **others)


def test_classes_get_their_identity_where_the_kernel_has_one() -> None:
    pods = [
        pod("a", qos=QosClass.LSE),
        pod("b", qos=QosClass.LSR),
        pod("c", qos=QosClass.LS),
        pod("d", qos=QosClass.BE, kube=KubeQos.BEST_EFFORT),
        pod("e", qos=QosClass.SYSTEM),
        pod("f", kube=KubeQos.GUARANTEED),
        pod("g", kube=KubeQos.BEST_EFFORT),
    ]
    # 2 for LSE, LSR and LS, -1 for BE, SYSTEM's 0 is what stands there; Guaranteed counts as LSR; kubepods stays 0.
    assert values(decided(*pods), Knob.CPU_BVT) == {
        BURSTABLE: 2,
        BEST_EFFORT: -1,
        f"{BURSTABLE}/podu-a": 2,
        f"{BURSTABLE}/podu-b": 2,
        f"{BURSTABLE}/podu-c": 2,
        f"{BEST_EFFORT}/podu-d": -1,
        "kubepods/podu-f": 2,
        f"{BEST_EFFORT}/podu-g": -1,
    }


def test_a_class_that_is_off_gets_nothing() -> None:
    assert decided(pod("c", qos=QosClass.LS), of=policy()).wants == ()


@pytest.mark.parametrize(
    ("lsr", "ls", "identity"), [(False, True, 1), (True, True, 2), (True, False, 2), (False, False, None)]
)
def test_a_guaranteed_pod_without_a_label_follows_ls_where_lsr_is_off(lsr: bool, ls: bool, identity: object) -> None:
    on = policy(
        {
            "resourceQOSStrategy": {
                "lsrClass": {"cpuQOS": {"enable": lsr, "groupIdentity": 2}},
                "lsClass": {"cpuQOS": {"enable": ls, "groupIdentity": 1}},
            }
        }
    )
    labelled = pod("b", qos=QosClass.LSR, kube=KubeQos.GUARANTEED)
    identities = values(decided(pod("f", kube=KubeQos.GUARANTEED), labelled, of=on), Knob.CPU_BVT)
    assert identities.get("kubepods/podu-f") == identity
    assert identities.get("kubepods/podu-b") == (2 if lsr else None)


def test_a_pod_may_ask_for_another_identity() -> None:
    plan = decided(noted("a", {"groupIdentity": -1}), noted("b", {"groupIdentity": 0}))
    assert values(plan, Knob.CPU_BVT) == {BURSTABLE: 2, BEST_EFFORT: -1, f"{BURSTABLE}/podu-a": -1}


@pytest.mark.parametrize("note", ["{", '{"groupIdentity": 3}', '{"groupIdentity": "2"}', "[]", "\ud800", "[" * 200_000])
def test_an_annotation_that_cannot_be_read_leaves_the_class(note: str) -> None:
    plan = decided(noted("a", note))
    assert values(plan, Knob.CPU_BVT)[f"{BURSTABLE}/podu-a"] == 2
    assert [v.reason for v in plan.verdicts] == ["AnnotationUnreadable"]


def test_a_stock_kernel_gives_the_best_effort_tier_the_smallest_weight_and_never_makes_it_idle() -> None:
    pods = (pod("d", qos=QosClass.BE, kube=KubeQos.BEST_EFFORT), pod("c", qos=QosClass.LS))
    plan = decided(*pods, supported=STOCK)
    assert {(w.path, w.knob, w.value) for w in plan.wants} == {(BEST_EFFORT, Knob.CPU_SHARES, 2)}


def test_the_tier_is_left_to_suppression_while_that_is_on() -> None:
    assert decided(supported=STOCK, of=rules(suppress=True)).wants == ()


def test_a_kernel_without_idle_groups_uses_the_smallest_weight() -> None:
    bare = STOCK - {Knob.CPU_IDLE}
    plan = decided(noted("a", {"groupIdentity": -1}), supported=bare, of=rules(suppress=True))
    assert {(w.path, w.knob, w.value) for w in plan.wants} == {(f"{BURSTABLE}/podu-a", Knob.CPU_SHARES, 2)}
    assert decided(supported=STOCK - {Knob.CPU_IDLE, Knob.CPU_SHARES}).wants == ()


def test_a_pod_outside_the_tier_that_yields_runs_last_unless_it_has_a_weight_of_ours() -> None:
    batch = {"kubernetes.io/batch-cpu": 500}
    weighed = pod("w", container(requests=batch), qos=QosClass.BE, kube=KubeQos.BURSTABLE)
    plan = decided(noted("a", {"groupIdentity": -1}), weighed, supported=STOCK, of=rules(suppress=True))
    assert values(plan, Knob.CPU_IDLE) == {f"{BURSTABLE}/podu-a": 1}


def test_core_scheduling_goes_by_its_own_switch() -> None:
    # With coreSched the identity of -1 says nothing; schedIdle does, on whatever kernel.
    assert decided(of=rules("coreSched")).wants == ()
    assert values(decided(of=rules("coreSched", schedIdle=1)), Knob.CPU_SHARES) == {BEST_EFFORT: 2}


@settings(max_examples=40, deadline=None)
@given(
    st.integers(-5, 5) | st.text(max_size=3),
    st.sampled_from([EVERY_KNOB, STOCK, STOCK - {Knob.CPU_IDLE}, frozenset[Knob]()]),
    st.booleans(),
)
def test_only_what_the_kernel_has_is_wanted_and_in_its_range(
    identity: object, supported: frozenset[Knob], suppress: bool
) -> None:
    plan = decided(noted("a", {"groupIdentity": identity}), of=rules(suppress=suppress), supported=supported)
    assert {w.knob for w in plan.wants} <= supported
    assert all(-1 <= int(w.value) <= 2 for w in plan.wants)
    assert len({(w.path, w.knob) for w in plan.wants}) == len(plan.wants)
