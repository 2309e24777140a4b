"""Best-effort pods and containers get CPU weight, CPU quota and memory limit from their batch resources.

To the kubelet a batch pod is BestEffort, so its cgroups have the smallest weight and no limits. This strategy sets what
the runtime hooks set at creation (the same decision, `decide.container_resources`): for pods that started without
hooks, for the pod's own cgroup, which no hook reaches, and after another program has written. The tier above the pods
is not changed here: its weight protects all other pods (`suppress`).

On cgroup v2, runtimes convert a container's shares to its weight by one of two formulas, and the kubelet a pod's only
by the linear one. Containers' weights count within their pod; so each pod's containers get weights by the formula that
its present ones show, or by the linear one if they show none.

Always on, as Koordinator's "batch resource" hook; a pod without batch resources or with the skip label is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import (
    NO_LIMIT,
    CgroupPath,
    GroupReading,
    Knob,
    KubeQos,
    Level,
    Observation,
    PodReading,
    Stateless,
    Step,
    StrategyPlan,
    Verdict,
    Want,
)
from cotenant.enforcer.decide.container_resources import LEAVE, ContainerSettings, PodDecision, decision
from cotenant.enforcer.decide.cpu_bandwidth import ratio_of
from cotenant.enforcer.decide.knobs import newer_weight_of, shares_of, weight_of
from cotenant.enforcer.decide.kubelet_values import Values, sets_no_quotas, values_before_hooks, values_of_pod
from cotenant.enforcer.decide.overrides import live
from cotenant.enforcer.model.node_policy import NodePolicy
from cotenant.enforcer.strategies.unchanged import Unchanged

NAME: Final = "be-totals"


@dataclass(frozen=True, slots=True)
class _Weights:
    """The cgroup v2 weights of one container's shares by both conversions."""

    path: CgroupPath
    linear: int
    newer: int


@dataclass(frozen=True, slots=True)
class _PodTotals:
    """The wants for a pod by both conversions of shares, and the weights that show which conversion its runtime uses.

    `broken` says why the annotation cannot be read, or is "". `left` are weights of containers that keep the kubelet's
    shares, `wanted` of those that get the agent's; only weights that differ by conversion are listed.
    """

    wants: tuple[Want, ...]
    newer_wants: tuple[Want, ...]
    broken: str
    left: tuple[_Weights, ...]
    wanted: tuple[_Weights, ...]


class BeTotals(Stateless):
    """The strategy that applies batch resources to cgroups; it reuses results whose inputs are unchanged."""

    name = NAME

    def __init__(self) -> None:
        self._known: Unchanged[_PodTotals] = Unchanged()

    def step(self, observation: Observation, policy: NodePolicy, state: None) -> Step[None]:
        """Return weight, quota and memory limit of live BE pods and containers, recomputed if an input changed."""
        ratio, quotas_off = ratio_of(observation.node), sets_no_quotas(observation)
        pods = (p for p in observation.pods if p.spec.qos_class is QosClass.BE and live(p.spec))
        wants, verdicts, basis = list[Want](), list[Verdict](), (policy, ratio, quotas_off)
        totals = self._known.each(pods, basis, lambda p: _pod(p, decision(p.spec, policy, ratio), quotas_off))
        for pod, of in totals:
            wants += of.newer_wants if _converts_newly(pod, of) else of.wants
            if of.broken:
                verdicts.append(Verdict(pod.spec.key, "AnnotationUnreadable", of.broken, True))
        return Step(StrategyPlan(tuple(wants), verdicts=tuple(verdicts)), state)


def _pod(pod: PodReading, of: PodDecision, quotas_off: bool) -> _PodTotals:
    """Return what is decided for a pod; `quotas_off`: the kubelet sets no CPU quota."""
    strict, wants = pod.spec.kube_qos is not KubeQos.BEST_EFFORT, list[Want]()
    if pod.group is not None:
        wants += _wants(pod.group, of.pod, "its containers'", values_of_pod(pod.spec, quotas_off), {}, strict)
    for container in pod.containers:
        if container.group is not None:
            resources = of.containers.get(container.spec.name, LEAVE)
            before = values_before_hooks(pod.spec, container.spec, quotas_off)
            wants += _wants(container.group, resources, "its", before, before, strict)
    linear_shares, newer = dict[CgroupPath, int](), list[Want]()
    for want in wants:
        if want.knob is not Knob.CPU_SHARES or want.level is not Level.CONTAINER:
            newer.append(want)
            continue
        linear_shares[want.path] = int(want.value)
        # Those shares that the linear conversion makes the newer weights of.
        value, back_to, made_from = (
            shares_of(newer_weight_of(shares)) if isinstance(shares, int) else None
            for shares in (want.value, want.back_to, want.made_from)
        )
        assert value is not None
        newer.append(replace(want, value=value, back_to=back_to, made_from=made_from))
    kubelets = {
        container.group.path: values_before_hooks(pod.spec, container.spec).get(Knob.CPU_SHARES)
        for container in pod.containers
        if container.group is not None and container.group.path not in linear_shares
    }
    kubelet_shares = {path: shares for path, shares in kubelets.items() if isinstance(shares, int)}
    return _PodTotals(tuple(wants), tuple(newer), of.pod.broken, _weights(kubelet_shares), _weights(linear_shares))


def _weights(shares: Mapping[CgroupPath, int]) -> tuple[_Weights, ...]:
    both = (_Weights(path, weight_of(amount), newer_weight_of(amount)) for path, amount in shares.items())
    return tuple(weights for weights in both if weights.linear != weights.newer)


def _converts_newly(pod: PodReading, of: _PodTotals) -> bool:
    """Return whether this pod's runtime converts shares by the newer formula, as its containers' weights show.

    Containers that keep the kubelet's shares decide, because the agent's must use the same formula; without such
    containers, those decide whose shares a hook has set.
    """
    present = {c.group.path: c.group.knobs.get(Knob.CPU_SHARES) for c in pod.containers if c.group is not None}
    for shown in (of.left, of.wanted):
        pairs = ((weights, present.get(weights.path)) for weights in shown)
        weighed = [(weights, weight_of(shares)) for weights, shares in pairs if isinstance(shares, int)]
        votes = [weight == weights.newer for weights, weight in weighed if weight in (weights.linear, weights.newer)]
        if votes:
            return any(votes)
    return False


def _wants(
    group: GroupReading, resources: ContainerSettings, whose: str, kubelets: Values, made_from: Values, strict: bool
) -> Iterator[Want]:
    """Yield the values that batch resources give to one cgroup.

    `kubelets` are the kubelet's values for it, which are restored; `made_from` are the same if a hook may have set the
    agent's at creation. With `strict` the kubelet may have set limits too, which a batch limit must not loosen.
    """
    if resources.empty:
        return
    why = f"{whose} batch resources"
    values = ((Knob.CPU_SHARES, resources.cpu_shares), (Knob.CPU_QUOTA, resources.cpu_quota))
    for knob, value in (*values, (Knob.MEMORY_LIMIT, resources.memory_limit)):
        if value is not None:
            bound = strict and knob is not Knob.CPU_SHARES and value != NO_LIMIT
            before = kubelets.get(knob), made_from.get(knob)
            yield Want(group.path, knob, value, group.level, NAME, why, *before, never_looser=bound)
