"""Who decides a pod's CPU quota, and the node's ratio that every quota is divided by. Pure; read by strategies.

A quota has one owner: best effort's `decide.container_resources`, that of a pod on CPUs of its own `cpuset_pools`
(none) or the kubelet that gave it these, that of a pod which may exceed its limit `burst`, and of the others, on a
faster node, `normalisation`.
"""

from __future__ import annotations

from typing import Final

from cotenant.base.kubernetes.protocol import CPU_BURST_ANNOTATION, CPU_NORMALIZATION_RATIO_ANNOTATION
from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import NodeReading, PodReading, Verdict
from cotenant.enforcer.decide.overrides import apply_annotation, live
from cotenant.enforcer.model.node_policy import CpuBurst, NodePolicy
from cotenant.enforcer.observe.cpusets import has_own_cpus

LARGEST_RATIO: Final = 100.0
"""No CPU is so much faster than another; such a number is a mistake, and would throttle a pod to nothing."""
UNREADABLE: Final = "RatioUnreadable"
NOT_BURSTING: Final = frozenset({QosClass.LSE, QosClass.LSR, QosClass.BE})


def may_burst(pod: PodReading, node: NodeReading) -> bool:
    """Return whether CPU burst applies to the pod: its label is not LSE, LSR or BE, and it has no CPUs of its own."""
    return live(pod.spec) and pod.spec.qos_class not in NOT_BURSTING and not has_own_cpus(pod, node)


def raises_quota(strategy: CpuBurst) -> bool:
    """Return whether the policy changes quotas."""
    return strategy.policy in {"cfsQuotaBurstOnly", "auto"}


def saves(strategy: CpuBurst) -> bool:
    """Return whether the policy lets unused quota be saved."""
    return strategy.policy in {"cpuBurstOnly", "auto"}


def moved_by_burst(pod: PodReading, policy: NodePolicy, node: NodeReading) -> bool:
    """Return whether `burst` decides the pod's quotas, so that no other strategy may."""
    return may_burst(pod, node) and raises_quota(apply_annotation(policy.cpu_burst, pod.spec, CPU_BURST_ANNOTATION)[0])


def ratio_of(node: NodeReading) -> float:
    """The node's CPU normalization ratio, at least 1; also where the annotation is not a number up to LARGEST_RATIO."""
    return read_ratio(node)[0]


def read_ratio(node: NodeReading) -> tuple[float, tuple[Verdict, ...]]:
    """`ratio_of`, and a verdict when the annotation is no such number."""
    text = node.annotations.get(CPU_NORMALIZATION_RATIO_ANNOTATION)
    try:
        ratio = float(text) if text is not None else 1.0
    except ValueError:
        ratio = float("nan")
    if 0 < ratio <= LARGEST_RATIO:
        return max(ratio, 1.0), ()
    message = f'{node.name}: annotation {CPU_NORMALIZATION_RATIO_ANNOTATION} is "{text}", not a number up to 100'
    return 1.0, (Verdict(node.name, UNREADABLE, message, warning=True),)
