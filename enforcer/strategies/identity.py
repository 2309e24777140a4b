"""Group identity: which pods yield the CPU to which, by class and, with an annotation, by pod.

On kernels that support it (`cpu.bvt_warp_ns`), each pod and tier gets the identity of its class: 2 preempts, -1 yields.
Stock kernels do not; there, a pod whose identity is below 0 gets cpu.idle, or the smallest weight if that is missing:
it runs only when no other pod needs the CPU. Nothing is written for 0 and above: beside idle groups an ordinary weight
already preempts. With policy coreSched the switch is `schedIdle` instead of the identity. A tier that yields gets the
smallest weight, never cpu.idle: a kubelet does not start with a tier that refuses weights.

A Guaranteed pod without a label follows LSR's policy while that is on, else LS's.

While `suppress` is on, it decides about the best-effort tier: it protects in the same way and handles starvation. Pods
in that tier need no identity; they share it by their weights. Processes outside pods are not changed. Source:
Koordinator's koordlet, hooks `groupidentity` and `coresched` (core-scheduling cookies are not part of this).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cotenant.base.kubernetes.protocol import CPU_QOS_ANNOTATION
from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import (
    GroupReading,
    Knob,
    KubeQos,
    Observation,
    PodReading,
    PodSpec,
    Stateless,
    Step,
    StrategyPlan,
    Value,
    Verdict,
    Want,
)
from cotenant.enforcer.decide.container_resources import SHARES_MIN, pod_resources
from cotenant.enforcer.decide.kubelet_values import values_of_pod
from cotenant.enforcer.decide.overrides import apply_annotation, class_of, live
from cotenant.enforcer.model.node_policy import CpuQos, NodePolicy

NAME: Final = "group-identity"
_CLASS_OF_TIER: Final = {KubeQos.BURSTABLE: QosClass.LS, KubeQos.BEST_EFFORT: QosClass.BE}


@dataclass(frozen=True, slots=True)
class GroupIdentity(Stateless):
    """The strategy that makes pods yield or preempt by their class."""

    name: str = NAME

    def step(self, observation: Observation, policy: NodePolicy, state: None) -> Step[None]:
        """Return the group identities of pods' and QoS classes' cgroups, or cpu.idle and weights on a stock kernel."""
        verdicts: list[Verdict] = []
        wants: list[Want] = []
        for tier, group in observation.tiers.items():
            if tier not in _CLASS_OF_TIER:
                continue
            of_tier = policy.classes.of(_CLASS_OF_TIER[tier]).cpu_qos
            if _has_identity(observation, policy):
                wants += _identity(group, of_tier)
            elif tier is KubeQos.BEST_EFFORT and yields(of_tier, policy) and not policy.thresholds.enable:
                # Only best effort's tier can yield by weight; while thresholds are on, `suppress` sets that weight.
                wants += _least_shares_want(group, observation, "the cgroup's QoS class yields the CPU to others")
        for pod in (p for p in observation.pods if live(p.spec) and p.group is not None):
            of_class = cpu_qos_of(pod.spec, policy)
            qos, complaint = apply_annotation(of_class, pod.spec, CPU_QOS_ANNOTATION)
            verdicts += complaint
            wants += _pod(pod, qos, observation, policy)
        return Step(StrategyPlan(tuple(wants), verdicts=tuple(verdicts)), state)


def cpu_qos_of(pod: PodSpec, policy: NodePolicy) -> CpuQos:
    """Return the CPU policy of the pod's class; for Guaranteed pods without a label, LSR's if that is on, else LS's."""
    of_class = policy.classes.of(class_of(pod)).cpu_qos
    unlabelled = pod.qos_class is QosClass.NONE and pod.kube_qos is KubeQos.GUARANTEED
    return policy.classes.ls_class.cpu_qos if unlabelled and not of_class.enable else of_class


def yields(qos: CpuQos, policy: NodePolicy) -> bool:
    """Return whether pods yield the CPU: by `schedIdle` with policy coreSched, else by a negative group identity."""
    if not qos.enable:
        return False
    by_idle = policy.classes.policies.cpu_policy == "coreSched"
    return qos.sched_idle == 1 if by_idle else qos.group_identity < 0


def _has_identity(observation: Observation, policy: NodePolicy) -> bool:
    return Knob.CPU_BVT in observation.supported and policy.classes.policies.cpu_policy == "groupIdentity"


def _pod(pod: PodReading, qos: CpuQos, observation: Observation, policy: NodePolicy) -> Iterator[Want]:
    """Yield a pod's identity, or if it yields cpu.idle or the smallest weight; a batch weight is kept."""
    assert pod.group is not None
    if _has_identity(observation, policy):
        yield from _identity(pod.group, qos)
        return
    in_tier = pod.spec.kube_qos is KubeQos.BEST_EFFORT
    if in_tier or not yields(qos, policy):
        return
    if pod_resources(pod.spec, policy).cpu_shares is None:  # an idle group takes no weight
        # cpu.idle but while the kubelet is about to write a weight, which an idle cgroup refuses.
        why = "the pod's QoS class yields the CPU to others"
        if Knob.CPU_IDLE not in observation.supported:
            kubelets = values_of_pod(pod.spec).get(Knob.CPU_SHARES)
            yield from _least_shares_want(pod.group, observation, f"{why}; this kernel has no cpu.idle", kubelets)
        elif not pod.spec.resizing:
            yield Want(pod.group.path, Knob.CPU_IDLE, 1, pod.group.level, NAME, why)


def _identity(group: GroupReading, qos: CpuQos) -> Iterator[Want]:
    if qos.enable and qos.group_identity != 0:
        why = "preempts others" if qos.group_identity > 0 else "yields to others"
        yield Want(group.path, Knob.CPU_BVT, qos.group_identity, group.level, NAME, f"its class {why}")


def _least_shares_want(
    group: GroupReading, observation: Observation, why: str, kubelets: Value | None = None
) -> Iterator[Want]:
    if Knob.CPU_SHARES in observation.supported:
        yield Want(group.path, Knob.CPU_SHARES, SHARES_MIN, group.level, NAME, why, kubelets)
