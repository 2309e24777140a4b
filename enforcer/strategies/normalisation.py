"""CPU normalisation: on a node whose CPUs are faster than the cluster's reference, a CPU limit is a smaller quota.

The node's annotation `node.koordinator.sh/cpu-normalization-ratio` says how much faster (its allocatable CPU is
amplified by the same ratio). A pod of the share pool then gets quota = ceil(limit / ratio), so that a limit means the
same work on every node; limits are those that the kubelet has granted, also of native sidecars and init containers
(`granted`). It applies to pods labelled LS, and to pods without a label that are not BestEffort. It does not apply to
pods with exclusive CPUs, which a smaller quota could only throttle; to best effort, whose quota
`decide.container_resources` computes with the same ratio; and to those whose quota CPU burst changes, which starts from
the same number. Source: Koordinator's koordlet, `cpunormalization`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cotenant.base.kubernetes.pod_resources import ContainerKind
from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import (
    NO_LIMIT,
    GroupReading,
    Knob,
    KubeQos,
    Observation,
    Stateless,
    Step,
    StrategyPlan,
    Want,
)
from cotenant.enforcer.decide.container_resources import quota_of
from cotenant.enforcer.decide.cpu_bandwidth import moved_by_burst, read_ratio
from cotenant.enforcer.decide.granted import CPU, container_limit, pod_limit
from cotenant.enforcer.decide.overrides import live
from cotenant.enforcer.model.node_policy import NodePolicy
from cotenant.enforcer.observe.cpusets import has_own_cpus

NAME: Final = "cpu-normalisation"


@dataclass(frozen=True, slots=True)
class Normalisation(Stateless):
    """The strategy that divides CPU quotas by the node's normalization ratio, for pods without exclusive CPUs."""

    name: str = NAME

    def step(self, observation: Observation, policy: NodePolicy, state: None) -> Step[None]:
        """Return, if the ratio is above 1, the CPU quotas of LS and unlabelled pods that `burst` does not set."""
        ratio, verdicts = read_ratio(observation.node)
        node = observation.node
        wants: list[Want] = []
        for pod in observation.pods if ratio > 1 else ():
            spec = pod.spec
            plain = spec.qos_class is QosClass.NONE and spec.kube_qos is not KubeQos.BEST_EFFORT
            shares = live(spec) and (spec.qos_class is QosClass.LS or plain) and not has_own_cpus(pod, node)
            if not shares or moved_by_burst(pod, policy, node):
                continue
            if pod.group is not None:
                wants += _want(pod.group, pod_limit(spec, CPU), ratio)
            for container in pod.containers:
                if container.group is not None and container.spec.kind is not ContainerKind.EPHEMERAL:
                    wants += _want(container.group, container_limit(spec, container.spec, CPU), ratio)
        return Step(StrategyPlan(tuple(wants), verdicts=verdicts), state)


def _want(group: GroupReading, limit_millicores: int | None, ratio: float) -> Iterator[Want]:
    """Yield the quota of a cgroup that has a limit, unless the kubelet enforces no quota on it."""
    if limit_millicores and group.knobs.get(Knob.CPU_QUOTA, NO_LIMIT) != NO_LIMIT:
        why = f"limit of {limit_millicores}m on CPUs {ratio:g} times as fast as the cluster's reference"
        value, base = quota_of(limit_millicores, ratio), quota_of(limit_millicores)
        yield Want(group.path, Knob.CPU_QUOTA, value, group.level, NAME, why, base, never_looser=True)
