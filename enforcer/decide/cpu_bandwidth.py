"""Which strategy decides a pod's CPU quota, and the node's ratio by which every quota is divided. Pure.

Exactly one part decides a quota: `decide.container_resources` for best effort; `cpuset_pools` (no quota), or the
kubelet that assigned them, for a pod with CPUs of its own; `burst` for a pod that may exceed its limit; and
`normalisation` for all others on a faster node.
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
    """Return whether CPU burst applies: the pod may run, is not labelled LSE, LSR or BE, and has no exclusive CPUs."""
    return live(pod.spec) and pod.spec.qos_class not in NOT_BURSTING and not has_own_cpus(pod, node)


def raises_quota(strategy: CpuBurst) -> bool:
    """Return whether the burst policy raises CPU quotas."""
    return strategy.policy in {"cfsQuotaBurstOnly", "auto"}


def saves(strategy: CpuBurst) -> bool:
    """Return whether the burst policy lets the kernel accumulate unused quota."""
    return strategy.policy in {"cpuBurstOnly", "auto"}


def moved_by_burst(pod: PodReading, policy: NodePolicy, node: NodeReading) -> bool:
    """Return whether the strategy `burst` sets the pod's quotas, so that no other strategy may set them."""
    return may_burst(pod, node) and raises_quota(apply_annotation(policy.cpu_burst, pod.spec, CPU_BURST_ANNOTATION)[0])


def ratio_of(node: NodeReading) -> float:
    """Return the node's CPU normalization ratio, at least 1; 1 if the annotation is no number up to LARGEST_RATIO."""
    return read_ratio(node)[0]


def read_ratio(node: NodeReading) -> tuple[float, tuple[Verdict, ...]]:
    """Return the result of `ratio_of`, and a verdict if the annotation is invalid."""
    text = node.annotations.get(CPU_NORMALIZATION_RATIO_ANNOTATION)
    try:
        ratio = float(text) if text is not None else 1.0
    except ValueError:
        ratio = float("nan")
    if 0 < ratio <= LARGEST_RATIO:
        return max(ratio, 1.0), ()
    message = f'{node.name}: annotation {CPU_NORMALIZATION_RATIO_ANNOTATION} is "{text}", not a number up to 100'
    return 1.0, (Verdict(node.name, UNREADABLE, message, warning=True),)
