"""Kubernetes' own PodGroup (scheduling.k8s.io): what it can say of a gang, how it is read, how it is made. Pure.

A pod names its PodGroup in `spec.schedulingGroup`, from its creation on and for ever; a PodGroup's policy is fixed as
well. With the policy `gang` the scheduler places `minCount` pods together or none; with `basic` each by itself. The
server keeps a PodGroup while pods that have not ended name it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cotenant.base.kubernetes.intent import Address, Create
from cotenant.base.kubernetes.protocol import NATIVE_GANG_GROUP
from cotenant.scheduler_ext.queues.model.gang import Gang, GangMode, MatchPolicy


@dataclass(frozen=True, slots=True)
class NativeGroup:
    """One PodGroup of Kubernetes. min_count: 0 where its pods are placed one by one.

    scheduled: its minimum was placed (condition PodGroupScheduled); message: what the scheduler says where it was not.
    """

    namespace: str
    name: str
    min_count: int = 0
    deleting: bool = False
    scheduled: bool = False
    message: str = ""

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> NativeGroup:
        """Read a PodGroup object as the server gives it."""
        metadata, spec = body.get("metadata") or {}, body.get("spec") or {}
        gang = (spec.get("schedulingPolicy") or {}).get("gang") or {}
        conditions = (body.get("status") or {}).get("conditions") or ()
        placed: Mapping[str, Any] = next(
            (condition for condition in conditions if condition.get("type") == "PodGroupScheduled"), {}
        )
        return cls(
            str(metadata.get("namespace") or ""),
            str(metadata.get("name") or ""),
            int(gang.get("minCount") or 0),
            "deletionTimestamp" in metadata,
            placed.get("status") == "True",
            "" if placed.get("status") == "True" else str(placed.get("message") or ""),
        )


def inexpressible_fields(gang: Gang) -> str:
    """Return what Kubernetes' own PodGroup cannot express of a gang; "" if it describes the gang completely."""
    if len(gang.group) > 1:
        return "it is of a group of gangs"
    if gang.match_policy is MatchPolicy.ONLY_WAITING:
        return f"its match policy is {gang.match_policy}"
    if gang.mode is GangMode.NON_STRICT:
        return f"its mode is {gang.mode}"
    return "it has a waiting time of its own" if gang.wait_seconds else ""


def native_group(
    namespace: str,
    name: str,
    min_count: int = 0,
    owners: Iterable[tuple[str, str]] = (),
    why: str = "",
    asker: str = "",
) -> Create:
    """A PodGroup of Kubernetes that places `min_count` pods together; 0: one by one.

    asker: as of a Create; owners: (name, uid) of pods; the garbage collector removes the group after the last of them.
    """
    references = [{"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid} for pod, uid in owners]
    labels = {"app.kubernetes.io/managed-by": "cotenant"}
    policy = {"gang": {"minCount": min_count}} if min_count else {"basic": {}}
    address = Address(NATIVE_GANG_GROUP, "podgroups", name, namespace)
    metadata = {"labels": labels, "ownerReferences": references}
    return Create(
        address, address.manifest("PodGroup", metadata, spec={"schedulingPolicy": policy}), why=why, asker=asker
    )


def group_named(pod: Mapping[str, Any]) -> str:
    """The PodGroup of Kubernetes that a pod as JSON names, or ""."""
    return str(((pod.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName") or "")
