"""Simulated workload controllers: roll out a template, keep the replica count, write the status. Pure.

A Deployment runs at most a quarter more pods than wanted and never fewer ready ones; StatefulSets and DaemonSets
replace one pod at a time. Revision history, pauses and partitions are not simulated.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any, Final

from cotenant_lab.simulation.population import HASH_LABEL, controller_status, owner_reference, template_hash

Json = dict[str, Any]

SURGE: Final = 0.25


@dataclass(frozen=True, slots=True)
class RolloutStep:
    """The next actions of a controller: pods to create, pods to delete, and its status if that changes."""

    made: tuple[Json, ...] = ()
    ended: tuple[Json, ...] = ()
    status: Json | None = None


@dataclass(frozen=True, slots=True)
class ControllerPods:
    """A controller's pods: `new` have the present template, `old` another one."""

    new: Sequence[Json] = field(default_factory=list)
    old: Sequence[Json] = field(default_factory=list)

    @property
    def ready(self) -> int:
        """Return the number of pods that are ready."""
        return sum(is_ready(pod) for pod in (*self.new, *self.old))


def is_ready(pod: Json) -> bool:
    """Return whether the pod's condition Ready is true."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def next_rollout_step(
    controller: Json, pods: Sequence[Json], nodes: int, owner: Json | None = None, now_seconds: float = 0.0
) -> RolloutStep:
    """Return the next step of a Deployment, StatefulSet or DaemonSet; `nodes` is the number on which a DaemonSet runs.

    `owner` is the owner of new pods, a Deployment's present ReplicaSet; by default the controller itself. New pods are
    named by the minute of `now_seconds`, so that the same evening has the same pods, whatever else was written before.
    """
    digest = template_hash(controller["spec"]["template"])
    new = [p for p in pods if p["metadata"].get("labels", {}).get(HASH_LABEL) == digest]
    staff = ControllerPods(new, [p for p in pods if p not in new])
    kind = controller["kind"]
    desired = nodes if kind == "DaemonSet" else int(controller["spec"].get("replicas", 1))
    taken = frozenset(pod["metadata"]["name"] for pod in pods)
    step = _rolling_update_step if kind == "Deployment" else _ordered_update_step
    maker = _Maker(controller, owner or controller, digest, int(now_seconds // 60), taken)
    created, ended = step(maker, staff, desired)
    generation = int(controller["metadata"].get("generation", 1))
    status = controller_status(kind, desired, len(staff.new), staff.ready, generation)
    status_before = controller.get("status") or {}
    differs = any(status_before.get(name) != value for name, value in status.items())
    return RolloutStep(tuple(created), tuple(ended), status if differs else None)


@dataclass(frozen=True, slots=True)
class _Maker:
    """The inputs of new pods: the controller with its template, their owner, the template's digest."""

    controller: Json
    owner: Json
    digest: str
    minute: int
    taken: frozenset[str]

    def fresh_names(self, number: int) -> list[str]:
        """So many names that no pod has."""
        meta = self.controller["metadata"]
        seeds = (f"{meta['namespace']}/{meta['name']}/{self.digest}/{self.minute}/{k}" for k in count())
        names = (f"{meta['name']}-{self.digest}-{hashlib.sha256(seed.encode()).hexdigest()[:5]}" for seed in seeds)
        return list(islice((name for name in names if name not in self.taken), number))


def _rolling_update_step(maker: _Maker, staff: ControllerPods, desired: int) -> tuple[list[Json], list[Json]]:
    existing = len(staff.new) + len(staff.old)
    startable = desired + max(1, math.ceil(SURGE * desired)) - existing if staff.old else desired - existing
    number = max(0, min(desired - len(staff.new), startable))
    created = [_pod(maker, name, staff) for name in maker.fresh_names(number)]
    spare = max(0, staff.ready - desired)
    waiting = [p for p in staff.old if not is_ready(p)]
    ended = [*waiting, *[p for p in staff.old if is_ready(p)][:spare]]
    if not staff.old and len(staff.new) > desired:
        ended = sorted(staff.new, key=is_ready)[: len(staff.new) - desired]
    return created, ended


def _ordered_update_step(maker: _Maker, staff: ControllerPods, desired: int) -> tuple[list[Json], list[Json]]:
    """One at a time: the next goes when all that are there are ready."""
    existing = [*staff.new, *staff.old]
    if len(existing) < desired:
        taken, controller = {pod["metadata"]["name"] for pod in existing}, maker.controller
        ordinals = [f"{controller['metadata']['name']}-{i}" for i in range(desired)]
        missing = desired - len(existing)
        is_ordered = controller["kind"] == "StatefulSet"
        names = [name for name in ordinals if name not in taken] if is_ordered else maker.fresh_names(1)
        return [_pod(maker, name, staff) for name in names[:missing]], []
    if len(existing) > desired:
        return [], list(reversed(existing))[: len(existing) - desired]
    settled = staff.ready >= desired
    return [], list(staff.old[:1]) if settled else []


def _pod(maker: _Maker, name: str, staff: ControllerPods) -> Json:
    """A pod of the template; what a webhook added to its siblings is added to it too."""
    controller, digest = maker.controller, maker.digest
    meta, template = controller["metadata"], controller["spec"]["template"]
    declared = {c["name"] for c in template["spec"].get("containers") or ()}
    siblings = [*staff.old, *staff.new][:1]
    extra = [c for like in siblings for c in like["spec"]["containers"] if c["name"] not in declared]
    labels = {**(template["metadata"].get("labels") or {}), HASH_LABEL: digest}
    by = maker.owner
    owner = owner_reference(by["apiVersion"], by["kind"], by["metadata"]["name"], by["metadata"]["uid"])
    metadata = {key: value for key, value in template["metadata"].items() if key == "annotations"}
    metadata |= {"name": name, "namespace": meta["namespace"], "labels": labels, "ownerReferences": [owner]}
    spec = {**template["spec"], "containers": [*template["spec"]["containers"], *extra]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
