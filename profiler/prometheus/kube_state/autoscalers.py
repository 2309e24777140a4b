"""Autoscalers from kube-state-metrics, and possible targets of those with missing series. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cotenant.base.cluster import Autoscaler, Container, ContainerRole
from cotenant.base.identity import WorkloadRef
from cotenant.base.resource import Resource

Key = tuple[str, str]
State = Mapping[str, Sequence[tuple[dict[str, str], float]]]

_PREFIX: Final = "kube_horizontalpodautoscaler_"
INFO: Final = f"{_PREFIX}info"
LEAST: Final = f"{_PREFIX}spec_min_replicas"
MOST: Final = f"{_PREFIX}spec_max_replicas"
TARGETS: Final = f"{_PREFIX}spec_target_metric"
METRICS: Final = (INFO, LEAST, MOST, TARGETS)
SCALED: Final = frozenset(
    {"Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "DeploymentConfig", "Rollout"}
)
"""Kinds that an autoscaler with an unknown target may scale."""


@dataclass(frozen=True, slots=True)
class Autoscalers:
    """Autoscalers by target workload (`of`); `unclear` are workloads whose autoscaler has unknown bounds or targets.

    `nameless` are autoscalers, (namespace, name), without a series that names their target.
    """

    of: Mapping[WorkloadRef, Autoscaler]
    unclear: frozenset[WorkloadRef]
    nameless: frozenset[Key]

    def of_pods(self, ref: WorkloadRef, containers: Sequence[Container]) -> Autoscaler | None:
        """Return the autoscaler of a workload whose pods have these containers, None if there is none.

        An exported target for one container has the same labels as one for the whole pod. Both mean the same if a pod
        keeps only one container running; otherwise the result has no targets, because they are unclear.
        """
        scaler = self.of.get(ref)
        if scaler is None or sum(c.role is not ContainerRole.INIT for c in containers) <= 1:
            return scaler
        return replace(scaler, targets={}, unsolvable=tuple(scaler.targets))

    def half_told(self, ref: WorkloadRef, refs: frozenset[WorkloadRef]) -> bool:
        """Return whether an autoscaler with missing series may scale the workload; `refs` are all workloads."""
        if ref in self.unclear:
            return True
        if ref.kind not in SCALED or ref in self.of:
            return False
        return any(
            namespace == ref.namespace
            and (name == ref.name or not any(WorkloadRef(namespace, kind, name) in refs for kind in SCALED))
            for namespace, name in self.nameless
        )


def autoscalers(state: State) -> Autoscalers:
    """Return every autoscaler that has any series, with its utilisation targets in percent.

    The API server gives each autoscaler bounds and a target; if they are absent here, their series are missing.
    """

    def value_by_key(metric: str) -> dict[Key, int]:
        return {_key(x): int(v) for x, v in state[metric]}

    least, most = value_by_key(LEAST), value_by_key(MOST)
    targets: dict[Key, dict[Resource, int]] = {}
    for x, value in state[TARGETS]:
        own = targets.setdefault(_key(x), {})
        resource = next((r for r in Resource if r == x.get("metric_name")), None)
        if resource and x.get("metric_target_type") == "utilization":
            own[resource] = round(value)
    by_ref, unclear, keys = {}, set(), set()
    for x, _ in state[INFO]:
        key = _key(x)
        ref = WorkloadRef(key[0], x.get("scaletargetref_kind", ""), x.get("scaletargetref_name", ""))
        by_ref[ref] = Autoscaler(key[1], least.get(key, 1), most.get(key, 1), targets.get(key, {}))
        keys.add(key)
        if not (key in least and key in most and key in targets):
            unclear.add(ref)
    return Autoscalers(by_ref, frozenset(unclear), frozenset((least.keys() | most.keys() | targets.keys()) - keys))


def _key(labels: Mapping[str, str]) -> Key:
    return labels.get("namespace", ""), labels.get("horizontalpodautoscaler", "")
