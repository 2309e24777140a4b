"""Best-effort pods and containers get CPU weight, CPU quota and memory limit from their batch resources.

To the kubelet a batch pod is BestEffort, so that its cgroups have the smallest weight and no limits; this reconciles
what the runtime hooks do at creation (the same decision, `decide.container_resources`) for pods that started without
them, for the pod's own cgroup, which no hook reaches, and after somebody else wrote. The tier above the pods is not
touched here: its weight is what protects everybody else (`suppress`).

Always on, as Koordinator's "batch resource" hook; a pod without batch resources or with the skip label is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import (
    NO_LIMIT,
    GroupReading,
    Knob,
    KubeQos,
    Observation,
    PodReading,
    Stateless,
    Step,
    StrategyPlan,
    Verdict,
    Want,
)
from cotenant.enforcer.decide.container_resources import LEAVE, ContainerResources, PodDecision, decision
from cotenant.enforcer.decide.cpu_bandwidth import ratio_of
from cotenant.enforcer.decide.kubelet_values import Values, sets_no_quotas, values_before_hooks, values_of_pod
from cotenant.enforcer.decide.overrides import live
from cotenant.enforcer.model.node_policy import NodePolicy
from cotenant.enforcer.strategies.unchanged import Unchanged

NAME: Final = "be-totals"


class BeTotals(Stateless):
    """Pure strategy without memory, but for answers that are the same again."""

    name = NAME

    def __init__(self) -> None:
        self._known: Unchanged[tuple[tuple[Want, ...], str]] = Unchanged()

    def step(self, observation: Observation, policy: NodePolicy, state: None) -> Step[None]:
        """CPU weight, CPU quota and memory limit for every live pod labelled BE, and its containers.

        A pod is decided again only when it, the policy or the node's CPU normalization ratio changed. A pod whose
        annotation cannot be read gets the verdict AnnotationUnreadable.
        """
        ratio, quotas_off = ratio_of(observation.node), sets_no_quotas(observation)
        pods = (p for p in observation.pods if p.spec.qos_class is QosClass.BE and live(p.spec))
        pod_decisions = self._known.each(
            pods, (policy, ratio, quotas_off), lambda pod: _pod(pod, decision(pod.spec, policy, ratio), quotas_off)
        )
        wants = tuple(want for _, (wants, _) in pod_decisions for want in wants)
        verdicts = (
            Verdict(p.spec.key, "AnnotationUnreadable", broken, True) for p, (_, broken) in pod_decisions if broken
        )
        return Step(StrategyPlan(wants, verdicts=tuple(verdicts)), state)


def _pod(pod: PodReading, of: PodDecision, quotas_off: bool) -> tuple[tuple[Want, ...], str]:
    """Return the wants for a pod, and the reason why its annotation cannot be read, or ""."""
    return tuple(_wants_of(pod, of, quotas_off)), of.pod.broken


def _wants_of(pod: PodReading, of: PodDecision, quotas_off: bool) -> Iterator[Want]:
    """Yield the values that batch resources give to the cgroups of a pod and of its containers.

    quotas_off: the kubelet sets no CPU quota, so that none is what a hook found.
    """
    strict = pod.spec.kube_qos is not KubeQos.BEST_EFFORT
    if pod.group is not None:
        yield from _wants(pod.group, of.pod, "its containers'", values_of_pod(pod.spec, quotas_off), {}, strict)
    for container in pod.containers:
        if container.group is not None:
            resources = of.containers.get(container.spec.name, LEAVE)
            before = values_before_hooks(pod.spec, container.spec, quotas_off)
            yield from _wants(container.group, resources, "its", before, before, strict)


def _wants(
    group: GroupReading, resources: ContainerResources, whose: str, kubelets: Values, made_from: Values, strict: bool
) -> Iterator[Want]:
    """Yield the values that batch resources give to one cgroup.

    kubelets: its values, which may become ours while it resizes; made_from: the same where a hook may have set ours.
    strict: the kubelet may have set limits too, and a batch limit is none to them. Only CPUs of its own take a quota.
    """
    if resources.empty:
        return
    why = f"{whose} batch resources"
    values = ((Knob.CPU_SHARES, resources.cpu_shares), (Knob.CPU_QUOTA, resources.cpu_quota))
    for knob, value in (*values, (Knob.MEMORY_LIMIT, resources.memory_limit)):
        if value is not None:
            bound = strict and knob is not Knob.CPU_SHARES and value != NO_LIMIT
            yield Want(
                group.path,
                knob,
                value,
                group.level,
                NAME,
                why,
                kubelets.get(knob),
                made_from.get(knob),
                never_looser=bound,
            )
