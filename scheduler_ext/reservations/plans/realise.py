"""Turns a number of pods into objects: Reservations, a CapacityBuffer, or an autoscaler's minReplicas. Pure.

A Reservation is named by plan, occurrence and the first unused number, so that writing it twice changes nothing; it
expires by itself if no manager releases it. An autoscaler's minReplicas is raised in one patch with an annotation that
holds the former value, which is enough to restore it.
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
"""Annotation of a Reservation: start of its occurrence."""
BUFFER_GROUP: Final = "autoscaling.x-k8s.io"
_PLACING: Final = (
    "nodeSelector", "affinity", "tolerations", "priorityClassName", "schedulerName", "topologySpreadConstraints",
    "runtimeClassName",
)  # fmt: skip
"""Fields of the workload's template that decide on which nodes its capacity can be."""
_HOLDER: Final = {"name": "room", "image": "registry.k8s.io/pause:3.10"}


@dataclass(frozen=True, slots=True)
class OwnerTemplate:
    """The pod template and pod selector of a workload; `overhead` is what its RuntimeClass adds, None if unknown."""

    template: Json
    selector: Json
    overhead: Json | None = field(default_factory=dict)

    @property
    def runtime_class(self) -> str:
        """The RuntimeClass that the template names, or ""."""
        return str((self.template.get("spec") or {}).get("runtimeClassName") or "")


def owner_of(template: Json, selector: Json, pods: Sequence[Json]) -> OwnerTemplate:
    """Return the workload with the overhead of its template, else of its youngest pod with the template's RuntimeClass.

    If no pod has that class, the overhead is None. If the template names none, a webhook may have set one in the pods.
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
    """Return what one pod of a plan requires of a node, by resource: its request and, if known, the overhead."""
    overhead = (owner.overhead if owner else None) or {}
    return sum_amounts((plan.per_pod, parse_quantities(overhead, f"overhead of pods of {plan.key}")))


def size_note(plan: Plan, owner: OwnerTemplate | None) -> str:
    """Return a sentence if the workload or its pods' overhead is unknown, so that capacity may be missing, else ""."""
    if plan.realisation is not Realisation.RESERVATION or (owner is not None and owner.overhead is not None):
        return ""
    if owner is None:
        workload = f"{plan.owner.kind} {plan.namespace}/{plan.owner.name}"
        return f"{workload} does not exist or cannot be read: nothing more is reserved."
    return (
        f"The overhead of RuntimeClass {owner.runtime_class} is unknown until a pod has it: the capacity covers only "
        f"the request, and a pod may need more."
    )


def unit_name(plan: Plan, window: Span, number: int) -> str:
    """Return the name of one Reservation; it includes the namespace, because Reservations are cluster-scoped."""
    start = datetime.fromtimestamp(window.start_seconds, UTC).strftime("%Y%m%d%H%M")
    return f"{plan.namespace}.{plan.name}"[:220].rstrip(".-") + f"-{start}-{number}"


def reservations(
    plan: Plan, want: int, expires_seconds: float, owner: OwnerTemplate | None, existing: Sequence[Reservation]
) -> list[Intent]:
    """Return the writes after which a plan has `want` unused Reservations, none expiring before `expires_seconds`.

    `existing` are the plan's, of all occurrences. Used ones are not deleted here, and new ones get unused numbers. If
    too many are unused, those without a node are deleted first. Without an owner none is created or extended.
    """
    window, asker = plan.status.window, f"{RESERVATION_PLANS}/{plan.namespace}/{plan.name}"
    standing = sorted(
        (reservation for reservation in existing if free(reservation) and not reservation.deleting),
        key=lambda reservation: (reservation.status.phase is not Phase.AVAILABLE, reservation.name),
    )
    late = [reservation.name for reservation in standing[:want] if (reservation.expires_seconds or 0) < expires_seconds]
    due = [(name, "the plan needs the reserved capacity longer") for name in late]
    if window:
        names, lacking = {reservation.name for reservation in existing}, max(0, want - len(standing))
        candidates = (unit_name(plan, window, number) for number in range(len(names) + lacking))
        unused = islice((name for name in candidates if name not in names), lacking)
        due += [(name, "the plan needs reserved capacity") for name in unused]
    intents: list[Intent] = []
    for address, why in ((Address(SCHEDULING_GROUP, "reservations", name), why) for name, why in due):
        if owner:
            intents.append(Apply(address, _reservation(plan, address, expires_seconds, owner), why=why, asker=asker))
    for reservation in standing[want:]:
        address = Address(SCHEDULING_GROUP, "reservations", reservation.name)
        intents.append(Delete(address, reservation.uid, why="the plan no longer needs this reservation"))
    return intents


def free(reservation: Reservation) -> bool:
    """Return whether the Reservation has not ended and no pod uses it; it may still wait for a node."""
    return not reservation.status.phase.ended and not reservation.status.owners


def _reservation(plan: Plan, address: Address, expires_seconds: float, owner: OwnerTemplate) -> dict[str, Any]:
    """Return the Reservation of one pod as JSON; its annotations name the plan and the start of the window.

    It expires by itself, so that capacity is released even if no manager runs.
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
    """Return the Reservation's pod template: the plan's, or the workload's placement rules with the plan's size."""
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
    """Return the pod spec with the overhead of the owner's RuntimeClass, unless it has one or another class."""
    if "overhead" in spec or not owner.overhead or (spec.get("runtimeClassName") or "") != owner.runtime_class:
        return spec
    return {**spec, "overhead": dict(owner.overhead)}


def buffer(plan: Plan, want: int, version: str, live: Json | None) -> list[Intent]:
    """Return the writes of a plan's CapacityBuffer, which makes an autoscaler add nodes before the peak."""
    address = Address(f"{BUFFER_GROUP}/{version}", "capacitybuffers", f"cotenant-{plan.name}"[:253], plan.namespace)
    if not want:
        return [Delete(address, why="the plan no longer needs this buffer")] if live else []
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
    return [Apply(address, body, why=f"the plan needs capacity for {want} pods", asker=asker)]


class Floor(msgspec.Struct, frozen=True):
    """An annotation's record of a raised minReplicas: key of the plan, former value (None if unset), raised value."""

    plan: str
    original: int | None
    floor: int


def floor_of(autoscaler: Json, annotation: str = FLOOR_ANNOTATION) -> Floor | None:
    """Return the record of the plan that raised an autoscaler's minReplicas; None if it is absent or unreadable."""
    text = ((autoscaler.get("metadata") or {}).get("annotations") or {}).get(annotation)
    try:
        return msgspec.json.decode(text, type=Floor) if text else None
    except UNDECODABLE:
        return None


def floor(plan: Plan, want: int, autoscaler: Json) -> list[Intent]:
    """Return the patch that raises an autoscaler's minReplicas by `want` pods, or restores it if `want` is 0.

    Raise UsageError if another plan has raised this autoscaler. minReplicas is at most maxReplicas, and is lowered only
    to its former value at the end. A value that somebody else has set meanwhile is not touched (`floor_taken_over`).
    """
    spec, remembered = autoscaler.get("spec") or {}, floor_of(autoscaler)
    if remembered and remembered.plan != plan.key:
        if not want:
            return []
        raise UsageError(
            f"plan {remembered.plan} has already raised minReplicas of autoscaler {plan.namespace}/{_name(autoscaler)}",
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
    return [_patch(autoscaler, plan.namespace, operations, f"minReplicas is {target} during the window")]


def floor_taken_over(plan: Plan, autoscaler: Json) -> str:
    """Return a sentence if somebody else changed the minReplicas that the plan had set; otherwise "".

    Annotation and minReplicas are set in one patch, so that any other number beside the annotation is somebody else's.
    """
    remembered, present = floor_of(autoscaler), _least((autoscaler.get("spec") or {}).get("minReplicas"))
    if remembered is None or remembered.plan != plan.key or present == remembered.floor:
        return ""
    return f"Somebody set minReplicas of {_name(autoscaler)} to {present}; the plan had set {remembered.floor}."


def floor_pods(plan: Plan, autoscaler: Json) -> tuple[int, int]:
    """Return the autoscaler's former minReplicas and the plan's replicas above it; (0, 0) if not raised by the plan."""
    remembered, present = floor_of(autoscaler), _least((autoscaler.get("spec") or {}).get("minReplicas"))
    if remembered is None or remembered.plan != plan.key:
        return 0, 0
    own = _least(remembered.original)
    return own, max(0, min(remembered.floor, present) - own)


def _least(minimum: int | None) -> int:
    """Return minReplicas as a number; unset is Kubernetes' default of 1."""
    return 1 if minimum is None else minimum


def restore(
    autoscaler: Json,
    namespace: str,
    why: str = "the plan's window is over",
    annotations: Sequence[str] = (FLOOR_ANNOTATION,),
) -> Patch | None:
    """Return the patch that removes the annotations, and restores minReplicas unless somebody else changed it; or None.

    `annotations` begin with the one that was set last; the result is None if the autoscaler has none of them.
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
    """Return the JSON patch operations that record an autoscaler's former minReplicas in an annotation."""
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
