"""From a number of pods to objects of the cluster: Reservations, a CapacityBuffer, or an autoscaler's floor. Pure.

A Reservation is named by plan, occurrence and the first number that none has, so that saying the same twice changes
nothing; it expires by itself should nobody be left to release it. An autoscaler's minReplicas is raised together with
an annotation that remembers what stood there, in one patch: the annotation is enough to restore it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

import msgspec

from cotenant.base.controllers.contract import MANAGED_BY, MANAGED_BY_LABEL
from cotenant.base.errors import UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.json_documents.difference import escape_pointer_key
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.kubernetes.intent import Address, Apply, Delete, Intent, Patch
from cotenant.base.kubernetes.moments import moment
from cotenant.base.kubernetes.pod_request import parse_quantities, sum_amounts
from cotenant.base.kubernetes.protocol import OWNER_WORKLOAD_ANNOTATION, RESERVATION_PLANS, SCHEDULING_GROUP
from cotenant.scheduler_ext.reservations.model.life_cycle import Phase
from cotenant.scheduler_ext.reservations.model.plan import FLOOR_ANNOTATION, PLAN_LABEL, Plan, Realisation, Span
from cotenant.scheduler_ext.reservations.model.reservation import Reservation

Json = Mapping[str, Any]

PLAN_ANNOTATION: Final = "cotenant.dev/plan"
"""On a Reservation: namespace/name of its plan."""
WINDOW_ANNOTATION: Final = "cotenant.dev/window-start"
"""On a Reservation: which occurrence it is of."""
BUFFER_GROUP: Final = "autoscaling.x-k8s.io"
_PLACING: Final = (
    "nodeSelector", "affinity", "tolerations", "priorityClassName", "schedulerName", "topologySpreadConstraints",
    "runtimeClassName",
)  # fmt: skip
"""What of the owner's template decides where capacity for it can be."""
_HOLDER: Final = {"name": "room", "image": "registry.k8s.io/pause:3.10"}


@dataclass(frozen=True, slots=True)
class OwnerTemplate:
    """The parts of the workload that are read: its pod template and the selector of its pods.

    overhead: what admission adds to pods' requests for their RuntimeClass, as Kubernetes writes it; None: not known.
    """

    template: Json
    selector: Json
    overhead: Json | None = field(default_factory=dict)

    @property
    def runtime_class(self) -> str:
        """The RuntimeClass that the template names; "" for none."""
        return str((self.template.get("spec") or {}).get("runtimeClassName") or "")


def owner_of(template: Json, selector: Json, pods: Sequence[Json]) -> OwnerTemplate:
    """The workload with the overhead that its youngest pod has, of those of the RuntimeClass that the template names.

    pods: of the workload, as the API server has them. A class that a webhook chooses is in the pods alone.
    """
    owner = OwnerTemplate(template, selector)
    if own := (template.get("spec") or {}).get("overhead"):
        return replace(owner, overhead=own)
    like = [pod for pod in pods if owner.runtime_class in ("", (pod.get("spec") or {}).get("runtimeClassName"))]
    youngest = max(like, key=lambda pod: str(pod["metadata"].get("creationTimestamp") or ""), default=None)
    if youngest is None:
        return replace(owner, overhead=None) if owner.runtime_class else owner
    return replace(owner, overhead=(youngest.get("spec") or {}).get("overhead") or {})


def amounts_per_pod(plan: Plan, owner: OwnerTemplate | None) -> dict[str, int]:
    """Return what one pod of a plan takes of a node, by resource name: its request, and the overhead where known."""
    overhead = (owner.overhead if owner else None) or {}
    return sum_amounts((plan.per_pod, parse_quantities(overhead, f"overhead of pods of {plan.key}")))


def size_note(plan: Plan, owner: OwnerTemplate | None) -> str:
    """Return what reserved capacity may lack of a pod, as a sentence; "" if nothing."""
    if owner is None or owner.overhead is not None or plan.realisation is not Realisation.RESERVATION:
        return ""
    return (
        f"No pod shows the overhead of RuntimeClass {owner.runtime_class}: the capacity covers only the request, and "
        f"a pod may need more."
    )


def unit_name(plan: Plan, window: Span, number: int) -> str:
    """Name of one Reservation; Reservations are cluster-scoped, so the namespace is part of it."""
    start = datetime.fromtimestamp(window.start_seconds, UTC).strftime("%Y%m%d%H%M")
    return f"{plan.namespace}.{plan.name}"[:220].rstrip(".-") + f"-{start}-{number}"


def reservations(
    plan: Plan, want: int, expires_seconds: float, owner: OwnerTemplate | None, existing: Sequence[Reservation]
) -> list[Intent]:
    """Writes that bring the plan's free Reservations to `want`: those of an earlier occurrence serve the present one.

    existing: all Reservations of the plan. Used ones stay until they are collected, and one that is needed again gets
    a number of its own; of free ones too many, those without a node go first. Without an owner none is created.
    """
    window, asker = plan.status.window, f"{RESERVATION_PLANS}/{plan.namespace}/{plan.name}"
    standing = sorted(
        (reservation for reservation in existing if free(reservation) and not reservation.deleting),
        key=lambda reservation: (reservation.status.phase is not Phase.AVAILABLE, reservation.name),
    )
    late = [reservation.name for reservation in standing[:want] if (reservation.expires_seconds or 0) < expires_seconds]
    due = [(name, "it is needed for longer") for name in late]
    if window:
        names, lacking = {reservation.name for reservation in existing}, max(0, want - len(standing))
        candidates = (unit_name(plan, window, number) for number in range(len(names) + lacking))
        unused = islice((name for name in candidates if name not in names), lacking)
        due += [(name, "the plan wants it") for name in unused]
    intents: list[Intent] = []
    for address, why in ((Address(SCHEDULING_GROUP, "reservations", name), why) for name, why in due):
        if owner:
            intents.append(Apply(address, _reservation(plan, address, expires_seconds, owner), why=why, asker=asker))
    for reservation in standing[want:]:
        address = Address(SCHEDULING_GROUP, "reservations", reservation.name)
        intents.append(Delete(address, reservation.uid, why="the plan no longer wants it"))
    return intents


def free(reservation: Reservation) -> bool:
    """Return whether the Reservation has, or may come to have, capacity that no pod uses."""
    return not reservation.status.phase.ended and not reservation.status.owners


def _reservation(plan: Plan, address: Address, expires_seconds: float, owner: OwnerTemplate) -> dict[str, Any]:
    """A Reservation for one pod of the plan, as JSON; the annotations name the plan and the start of the window.

    It expires by itself, so that capacity is released even when no manager runs.
    """
    window = plan.status.window
    annotations = {
        PLAN_ANNOTATION: f"{plan.namespace}/{plan.name}",
        WINDOW_ANNOTATION: moment(window.start_seconds) if window else "",
        OWNER_WORKLOAD_ANNOTATION: str(WorkloadRef(plan.namespace, plan.owner.kind, plan.owner.name)),
    }
    spec = {
        "template": template(plan, owner),
        "owners": [{"object": {"namespace": plan.namespace}, "labelSelector": dict(owner.selector)}],
        "expires": moment(expires_seconds),
        "allocateOnce": plan.allocate_once,
        "allocatePolicy": plan.allocate_policy.value or "Aligned",
    }
    labels = {MANAGED_BY_LABEL: MANAGED_BY, PLAN_LABEL: plan.key}
    return address.manifest("Reservation", {"labels": labels, "annotations": annotations}, spec=spec)


def template(plan: Plan, owner: OwnerTemplate) -> dict[str, Any]:
    """Pod template of the capacity: the plan's, else where the owner's pods may be placed, with the plan's size."""
    if plan.template:
        pod_template = dict(plan.template)
        metadata = {**(pod_template.get("metadata") or {}), "namespace": plan.namespace}
        return {**pod_template, "metadata": metadata, "spec": _with_overhead(pod_template.get("spec") or {}, owner)}
    spec = owner.template.get("spec") or {}
    placing = _with_overhead({key: spec[key] for key in _PLACING if key in spec}, owner)
    labels = (owner.template.get("metadata") or {}).get("labels") or {}
    container = {**_HOLDER, "resources": {"requests": dict(plan.per_pod_text)}}
    return {
        "metadata": {"namespace": plan.namespace, "labels": dict(labels)},
        "spec": {**placing, "containers": [container]},
    }


def _with_overhead(spec: Json, owner: OwnerTemplate) -> Json:
    """The spec of a pod template with the overhead of the owner's RuntimeClass, unless it has one or another class."""
    if "overhead" in spec or not owner.overhead or (spec.get("runtimeClassName") or "") != owner.runtime_class:
        return spec
    return {**spec, "overhead": dict(owner.overhead)}


def buffer(plan: Plan, want: int, version: str, live: Json | None) -> list[Intent]:
    """The CapacityBuffer of a plan: what makes an autoscaler add a machine before the peak."""
    address = Address(f"{BUFFER_GROUP}/{version}", "capacitybuffers", f"cotenant-{plan.name}"[:253], plan.namespace)
    if not want:
        return [Delete(address, why="the plan no longer wants it")] if live else []
    if live and (live.get("spec") or {}).get("replicas") == want:
        return []
    group = plan.owner.api_version.partition("/")[0] if "/" in plan.owner.api_version else ""
    owner = {"apiVersion": "cotenant.dev/v1alpha1", "kind": "ReservationPlan", "name": plan.name, "uid": plan.uid}
    body = address.manifest(
        "CapacityBuffer",
        {"labels": {MANAGED_BY_LABEL: MANAGED_BY, PLAN_LABEL: plan.key}, "ownerReferences": [owner]},
        spec={"scalableRef": {"apiGroup": group, "kind": plan.owner.kind, "name": plan.owner.name}, "replicas": want},
    )
    asker = f"{RESERVATION_PLANS}/{plan.namespace}/{plan.name}"
    return [Apply(address, body, why=f"capacity for {want} pods is wanted", asker=asker)]


class Floor(msgspec.Struct, frozen=True):
    """The content of FLOOR_ANNOTATIONS. plan: who raised it; original None: it was not set (the default is 1)."""

    plan: str
    original: int | None
    floor: int


def floor_of(autoscaler: Json, annotation: str = FLOOR_ANNOTATION) -> Floor | None:
    """Return the floor that a plan left on a HorizontalPodAutoscaler; None if it is absent or cannot be read."""
    text = ((autoscaler.get("metadata") or {}).get("annotations") or {}).get(annotation)
    try:
        return msgspec.json.decode(text, type=Floor) if text else None
    except UNDECODABLE:
        return None


def floor(plan: Plan, want: int, autoscaler: Json) -> list[Intent]:
    """The patch that gives an autoscaler a floor of `want` pods above its own one, or takes it back.

    UsageError when another plan holds this autoscaler. It never lowers what is there, but to the former minimum at the
    end. A minReplicas that somebody changed meanwhile is theirs (`floor_taken_over`).
    """
    spec, remembered = autoscaler.get("spec") or {}, floor_of(autoscaler)
    if remembered and remembered.plan != plan.key:
        if not want:
            return []
        raise UsageError(
            f"the autoscaler {plan.namespace}/{_name(autoscaler)} is held by plan {remembered.plan}",
            fix="Let only one plan with realisation ReplicaFloor be active for a workload.",
        )
    present = spec.get("minReplicas")
    if not want:
        patch = restore(autoscaler, plan.namespace)
        return [patch] if patch else []
    if floor_taken_over(plan, autoscaler):
        return []
    original = remembered.original if remembered else present
    target = min(_least(original) + want, int(spec.get("maxReplicas") or 1))
    target = max(target, _least(present))
    if remembered and present == target:
        return []
    replica_floor = Floor(plan.key, original, target)
    operations = [_test_min(present), *floor_mark_operations(autoscaler, replica_floor), _set_min(target)]
    return [_patch(autoscaler, plan.namespace, operations, f"at least {target} replicas for the window")]


def floor_taken_over(plan: Plan, autoscaler: Json) -> str:
    """Describe a floor that another writer changed after the plan had raised it; "" if there is none.

    Mark and floor are one patch, so that beside the plan's mark any other number is somebody else's.
    """
    remembered, present = floor_of(autoscaler), _least((autoscaler.get("spec") or {}).get("minReplicas"))
    if remembered is None or remembered.plan != plan.key or present == remembered.floor:
        return ""
    return f"Somebody set minReplicas of {_name(autoscaler)} to {present}; the plan had set {remembered.floor}."


def floor_pods(plan: Plan, autoscaler: Json) -> tuple[int, int]:
    """The autoscaler's own minimum, and how many replicas above it the plan keeps; (0, 0) without the plan's mark."""
    remembered, present = floor_of(autoscaler), _least((autoscaler.get("spec") or {}).get("minReplicas"))
    if remembered is None or remembered.plan != plan.key:
        return 0, 0
    own = _least(remembered.original)
    return own, max(0, min(remembered.floor, present) - own)


def _least(minimum: int | None) -> int:
    """Return a minReplicas; Kubernetes' default is 1."""
    return 1 if minimum is None else minimum


def restore(
    autoscaler: Json, namespace: str, why: str = "the window is over", annotations: Sequence[str] = (FLOOR_ANNOTATION,)
) -> Patch | None:
    """Restore an autoscaler's own minReplicas, unless another writer has changed it meanwhile; None without a mark.

    annotations: the marks that go, the one that was raised last first.
    """
    present = minimum = (autoscaler.get("spec") or {}).get("minReplicas")
    operations: list[Json] = []
    for annotation in annotations:
        if remembered := floor_of(autoscaler, annotation):
            operations.append({"op": "remove", "path": _pointer(annotation)})
            minimum = remembered.original if minimum == remembered.floor else minimum
    if not operations:
        return None
    if minimum != present:
        back = _set_min(minimum) if minimum is not None else {"op": "remove", "path": "/spec/minReplicas"}
        operations.append(back)
    return _patch(autoscaler, namespace, [_test_min(present), *operations], why)


def _patch(autoscaler: Json, namespace: str, operations: Sequence[Json], why: str) -> Patch:
    address = Address("autoscaling/v2", "horizontalpodautoscalers", _name(autoscaler), namespace)
    return Patch(address, tuple(operations), why=why)


def _name(autoscaler: Json) -> str:
    return str((autoscaler.get("metadata") or {}).get("name") or "")


def floor_mark_operations(autoscaler: Json, replica_floor: Floor, annotation: str = FLOOR_ANNOTATION) -> list[Json]:
    """JSON patch operations that note an autoscaler's former minimum in an annotation."""
    text = msgspec.json.encode(replica_floor).decode()
    operations: list[Json] = []
    meta = autoscaler.get("metadata") or {}
    if not meta.get("annotations"):
        # The first annotation needs the map, and must not replace one that somebody made meanwhile.
        operations.append({"op": "test", "path": "/metadata/resourceVersion", "value": meta.get("resourceVersion")})
        operations.append({"op": "add", "path": "/metadata/annotations", "value": {}})
    return [*operations, {"op": "add", "path": _pointer(annotation), "value": text}]


def _test_min(present: int | None) -> Json:
    return {"op": "test", "path": "/spec/minReplicas", "value": _least(present)}


def _set_min(value: int) -> Json:
    return {"op": "replace", "path": "/spec/minReplicas", "value": value}


def _pointer(annotation: str) -> str:
    return "/metadata/annotations/" + escape_pointer_key(annotation)
