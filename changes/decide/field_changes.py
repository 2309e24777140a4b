"""From recommendations and the live object to the exact patch: which field, from what to what. Pure.

A change is an RFC 6902 patch that tests everything it depends on: the object's uid, each container's name at its index,
and the resources that were read. It applies as a whole or not at all, and it fails instead of overwriting a change that
somebody made in between. The patch also writes the change's id to the object, which identifies the change later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from cotenant.base.cluster import ContainerRole
from cotenant.base.errors import UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.json_documents.difference import escape_pointer_key, value_at_pointer
from cotenant.base.kubernetes.intent import Address
from cotenant.changes.decide import autoscaler_targets
from cotenant.changes.decide.heap_flags import flag_texts
from cotenant.changes.decide.patches import FIELDS, LISTS, TEMPLATE_PATHS, refusal, resources
from cotenant.changes.model.annotated_resources import (
    CHANGE_ANNOTATION,
    LABEL_VALUE,
    RESOURCES_ANNOTATION,
    RESOURCES_LABEL,
    ResourceSwap,
    decode_swaps,
    encode_swaps,
    same,
)
from cotenant.changes.model.change import Write
from cotenant.recommender.model.recommendation import Recommendation

__all__ = [
    "ANNOTATED",
    "CHANGE_ANNOTATION",
    "address_of",
    "annotated",
    "annotated_swaps",
    "carries",
    "fitted_to",
    "given_to_new_pods",
    "holds_values",
    "hpa_writes",
    "inverse",
    "is_undone",
    "moved",
    "on_new_pods",
    "planned",
    "quiet",
    "same_at",
    "same_value",
    "swaps_of",
    "template_containers",
]

Json = Mapping[str, Any]

ANNOTATED: Final = f"/metadata/annotations/{escape_pointer_key(RESOURCES_ANNOTATION)}"
"""JSON pointer of the annotation with values for new pods."""
_LABELLED: Final = f"/metadata/labels/{escape_pointer_key(RESOURCES_LABEL)}"
NO_VALUES: Final[Json] = MappingProxyType({})
_MAPS: Final = ("/metadata/annotations", "/metadata/labels")
_LABELS: Final[Mapping[str, Any]] = {"op": "add", "path": "/metadata/labels", "value": {}}
RESOURCES: Final[Mapping[str, tuple[str, str]]] = {
    "Deployment": ("apps/v1", "deployments"),
    "StatefulSet": ("apps/v1", "statefulsets"),
    "DaemonSet": ("apps/v1", "daemonsets"),
    "ReplicaSet": ("apps/v1", "replicasets"),
    "ReplicationController": ("v1", "replicationcontrollers"),
    "CronJob": ("batch/v1", "cronjobs"),
}


def address_of(workload: WorkloadRef) -> Address:
    """Return the API address of the workload; raise UsageError if its kind has no template to patch."""
    if workload.kind not in RESOURCES:
        raise UsageError(f"{workload} cannot be changed: its kind has no template", fix="Change the owning object.")
    version, plural = RESOURCES[workload.kind]
    return Address(version, plural, workload.name, workload.namespace)


def planned(live: Json, recommendations: Sequence[Recommendation], change: str) -> Write | None:
    """Return the write to one workload's template; None if the live object already has every value.

    Raise UsageError if a container is gone or cannot be changed.
    """
    workload = recommendations[0].container.workload
    base = "/" + "/".join(TEMPLATE_PATHS[workload.kind])
    spec = _object_at(live, TEMPLATE_PATHS[workload.kind])
    before: dict[str, Any] = {}
    now: dict[str, Any] = {}
    moving = {pointer: resources(r) for r, pointer, _ in _changing_containers(spec, base, recommendations)}
    in_template = _resources_by_pointer(spec, base)
    for (pointer, _, old), (_, present) in zip(in_template, on_new_pods(live, workload.kind), strict=True):
        # A container that only an earlier change set on new pods moves too: its annotation goes.
        new = moved(present, moving.get(pointer, {}))
        if moving and not same(new, old):
            before[pointer], now[pointer] = old, new
    for recommendation in recommendations:
        if recommendation.heap is not None:
            pointer, _ = _container(spec, base, recommendation)
            place = pointer.removesuffix("/resources")
            container = value_at_pointer({"spec": spec}, f"/spec{place.removeprefix(base)}")
            for path, texts in flag_texts(container, recommendation.heap).items():
                before[f"{place}{path}"], now[f"{place}{path}"] = texts
    if not now:
        return None
    meta = live.get("metadata") or {}
    # What an annotation gave to new pods stands in the template from now on.
    marks = {ANNOTATED: (meta.get("annotations") or {}).get(RESOURCES_ANNOTATION),
             _LABELLED: (meta.get("labels") or {}).get(RESOURCES_LABEL)}  # fmt: skip
    stale = {pointer: old for pointer, old in marks.items() if old is not None}
    uid = str(meta.get("uid", ""))
    removals = dict.fromkeys(stale)
    operations = (
        *_tests(uid, spec, base, before),
        *({"op": "test", "path": pointer, "value": old} for pointer, old in stale.items()),
        *_field_operations(before, now),
        *_change_note_operations(live, change),
        *_field_operations(stale, removals),
    )
    return Write(address_of(workload), uid, operations, {**before, **stale}, {**now, **removals})


def annotated(live: Json, recommendations: Sequence[Recommendation], change: str) -> Write | None:
    """Return the write of the annotation with which the webhook sets the values on new pods; None if it is set already.

    Raise UsageError if a container is gone or not in the template.
    """
    workload = recommendations[0].container.workload
    base = "/" + "/".join(TEMPLATE_PATHS[workload.kind])
    spec = _object_at(live, TEMPLATE_PATHS[workload.kind])
    swaps, templates = {}, {}
    earlier = swaps_of(live)
    for recommendation, pointer, old in _changing_containers(spec, base, recommendations):
        name = recommendation.container.container
        swap = earlier.get(name)
        new = moved(_resources_after_swap(old, swap), resources(recommendation))
        if same(old, new) and swap is None:
            continue
        templates[pointer] = old
        swaps[name] = ResourceSwap(_sides(old or {}), _sides(new))
    if not swaps:
        return None
    meta = live.get("metadata") or {}
    present = (meta.get("annotations") or {}).get(RESOURCES_ANNOTATION)
    text = encode_swaps({**earlier, **swaps})
    if text == present:
        return None
    marks = {ANNOTATED: (present, text), _LABELLED: ((meta.get("labels") or {}).get(RESOURCES_LABEL), LABEL_VALUE)}
    before = {pointer: old for pointer, (old, new) in marks.items() if old != new}
    now = {pointer: marks[pointer][1] for pointer in before}
    uid = str(meta.get("uid", ""))
    operations = (
        *_tests(uid, spec, base, templates),
        *_change_note_operations(live, change),
        *([] if meta.get("labels") else [_LABELS]),
        *_field_operations(before, now),
    )
    return Write(address_of(workload), uid, operations, before, now)


def given_to_new_pods(writes: Sequence[Write]) -> dict[str, ResourceSwap]:
    """Return the resources that new pods get by an annotation in these writes, by container; {} without one."""
    texts = [write.after.get(ANNOTATED) for write in writes]
    return annotated_swaps(next((text for text in texts if text), None))


def quiet(live: Json, kind: str) -> bool:
    """Return whether a new template leaves the running pods of a workload of this kind as they are."""
    if kind in ("ReplicaSet", "ReplicationController", "CronJob"):
        return True
    return ((live.get("spec") or {}).get("updateStrategy") or {}).get("type") == "OnDelete"


def hpa_writes(of: Sequence[Recommendation], autoscalers: Mapping[str, Json], requests: Sequence[Write]) -> list[Write]:
    """Return writes: falling autoscaler targets, `requests`, rising targets. A missing autoscaler is a UsageError."""
    first, after = list[Write](), list[Write]()
    for solved in autoscaler_targets.moves(list(of)):
        live = autoscalers.get(solved.name)
        if live is None:
            raise UsageError(f"autoscaler {solved.namespace}/{solved.name} is gone", fix="Scan again: cotenant scan.")
        move = autoscaler_targets.at_live_place(solved, live)
        pointer = f"/spec/metrics/{move.place}/resource/target/averageUtilization"
        uid = str((live.get("metadata") or {}).get("uid", ""))
        address = Address("autoscaling/v2", autoscaler_targets.RESOURCE, move.name, move.namespace)
        operations = ({"op": "test", "path": "/metadata/uid", "value": uid}, *move.operations)
        write = Write(address, uid, operations, {pointer: move.before}, {pointer: move.after})
        (first if move.after < move.before else after).append(write)
    return [*first, *requests, *after]


def fitted_to(operations: Sequence[Json], read: Callable[[], Json]) -> tuple[Json, ...]:
    """Return the operations, adapted so that adding annotations or labels keeps those that the object has by now.

    Operations may be hours old. If the object that `read` returns has annotations (or labels), the new ones are added
    one by one; if it has none, a test of that is added. `read` is called only if an operation adds the whole map.
    """
    if not any(operation["op"] == "add" and operation["path"] in _MAPS for operation in operations):
        return tuple(operations)
    live, fitted = read(), list[Json]()
    for operation in operations:
        path = operation["path"]
        if operation["op"] != "add" or path not in _MAPS:
            fitted.append(operation)
        elif value_at_pointer(live, path):
            keys = ((f"{path}/{escape_pointer_key(key)}", value) for key, value in operation["value"].items())
            fitted += [{"op": "add", "path": pointer, "value": value} for pointer, value in keys]
        else:
            fitted += [{"op": "test", "path": path, "value": None}, operation]
    return tuple(fitted)


def inverse(write: Write, live: Json, change: str) -> tuple[Mapping[str, Any], ...]:
    """Return the operations that restore the previous values; raise UsageError if another writer has changed them."""
    tests: list[Mapping[str, Any]] = []
    sets: list[Mapping[str, Any]] = []
    for pointer, old in write.before.items():
        present = value_at_pointer(live, pointer)
        if not same_at(pointer, present, write.after[pointer]):
            raise UsageError(
                f"{write.address}: {pointer} no longer has the value that was applied",
                fix="Somebody changed the object since then: check the object before a rollback.",
            )
        if present is not None:
            tests.append({"op": "test", "path": pointer, "value": present})
        sets.extend(_field_operations({pointer: present}, {pointer: old}))
    head = {"op": "test", "path": "/metadata/uid", "value": write.uid}
    needs_labels = _LABELLED in write.before and not (live.get("metadata") or {}).get("labels")
    noted = () if write.subresource else tuple(_change_note_operations(live, change))
    return (head, *tests, *noted, *([_LABELS] if needs_labels else []), *sets)


def carries(live: Json, write: Write, change: str) -> bool:
    """Return whether a live object shows that a write arrived: by the change's id or, in a pod, the written values."""
    noted = ((live.get("metadata") or {}).get("annotations") or {}).get(CHANGE_ANNOTATION)
    return noted == change or holds_values(live, write)


def holds_values(live: Json, write: Write) -> bool:
    """Return whether every field of the write still has the value that was written."""
    return _has(live, write.after)


def is_undone(live: Json, write: Write) -> bool:
    """Return whether every field of the write again has the value from before the write."""
    return _has(live, write.before)


def _has(live: Json, values: Mapping[str, Any]) -> bool:
    return all(same_at(pointer, value_at_pointer(live, pointer), value) for pointer, value in values.items())


def same_at(pointer: str, first: Any, second: Any) -> bool:
    """Return whether two values of a field are equal, however their quantities are written.

    The API server stores quantities in its own form: "1000000000" comes back as "1G".
    """
    if not pointer.endswith("/resources"):
        return same_value(first, second)
    return same(first, second) and same_value(_beside_amounts(first), _beside_amounts(second))


def same_value(first: Any, second: Any) -> bool:
    """Return whether two values mean the same in a template; an empty map equals a missing one."""
    return bool(_plain(first) == _plain(second))


def _resources_by_pointer(spec: Json, base: str) -> Iterator[tuple[str, str, Any]]:
    """Yield (pointer of its resources, name, present resources) of each container of a pod spec."""
    for list_name in dict.fromkeys(LISTS.values()):
        for index, container in enumerate(spec.get(list_name) or []):
            yield f"{base}/{list_name}/{index}/resources", str(container.get("name", "")), container.get("resources")


def _container(spec: Json, base: str, recommendation: Recommendation) -> tuple[str, Any]:
    """Return the pointer and the present value of a container's resources."""
    start = f"{base}/{LISTS[recommendation.role]}/"
    for pointer, name, old in _resources_by_pointer(spec, base):
        if name == recommendation.container.container and pointer.startswith(start):
            return pointer, old
    role = "" if recommendation.role is ContainerRole.MAIN else f"{recommendation.role} "
    raise UsageError(
        f"{recommendation.container.workload} has no {role}container {recommendation.container.container} any more",
        fix="Scan again: cotenant scan.",
    )


def on_new_pods(live: Json, kind: str, values: Json = NO_VALUES) -> Iterator[tuple[str, Any]]:
    """Yield (name, resources) of each container as a new pod gets them, by the template and the annotation.

    `values` is {JSON pointer: value}, such as `after` of a write; it replaces the values of the live object.
    """
    path = TEMPLATE_PATHS.get(kind, ())
    swaps = annotated_swaps(values[ANNOTATED]) if ANNOTATED in values else swaps_of(live)
    for pointer, name, old in _resources_by_pointer(_object_at(live, path), f"/{'/'.join(path)}"):
        yield name, _resources_after_swap(values.get(pointer, old), swaps.get(name))


def template_containers(live: Json, kind: str) -> dict[str, Json]:
    """Return the template's containers by name."""
    spec = _object_at(live, TEMPLATE_PATHS.get(kind, ()))
    lists = (spec.get(name) or () for name in dict.fromkeys(LISTS.values()))
    return {str(container.get("name", "")): container for of_list in lists for container in of_list}


def _resources_after_swap(old: Any, swap: ResourceSwap | None) -> Any:
    """Return resources with what an annotation sets on new pods, unless the template has changed since."""
    if swap is None or not same(swap.before, old):
        return old
    return {**_beside_amounts(old), **swap.after}


def _beside_amounts(resources: Any) -> dict[str, Any]:
    """Return the parts of a container's resources that are not amounts, such as claims."""
    return {key: part for key, part in (resources or {}).items() if key not in FIELDS.values()}


def moved(old: Any, moves: Mapping[str, Mapping[str, str | None]]) -> dict[str, Any]:
    """Return a container's `resources` after these changes; None removes a field, and empty maps are removed too."""
    changed = {key: dict(value) if isinstance(value, Mapping) else value for key, value in (old or {}).items()}
    for field, amounts in moves.items():
        field_amounts = dict(changed.get(field) or {})
        for name, amount in amounts.items():
            field_amounts.pop(name, None) if amount is None else field_amounts.__setitem__(name, amount)
        if field_amounts:
            changed[field] = field_amounts
        else:
            changed.pop(field, None)
    return changed


def _changing_containers(
    spec: Json, base: str, recommendations: Sequence[Recommendation]
) -> Iterator[tuple[Recommendation, str, Any]]:
    """Yield the containers that change, with pointer and present resources; raise UsageError if one cannot change."""
    for recommendation in recommendations:
        if why := refusal(recommendation):
            raise UsageError(f"{recommendation.container}: {why}")
        if resources(recommendation):
            pointer, old = _container(spec, base, recommendation)
            yield recommendation, pointer, old


def _sides(resources: Json) -> dict[str, dict[str, Any]]:
    return {side: dict(resources[side]) for side in FIELDS.values() if resources.get(side)}


def swaps_of(live: Json) -> dict[str, ResourceSwap]:
    """Return the resources that a workload's annotation sets on new pods, by container; empty if it is not readable."""
    return annotated_swaps(((live.get("metadata") or {}).get("annotations") or {}).get(RESOURCES_ANNOTATION))


def annotated_swaps(text: str | None) -> dict[str, ResourceSwap]:
    """Return the resources that an annotation's text sets on new pods, by container; empty if it is unreadable."""
    try:
        return decode_swaps(text or "{}")
    except UsageError:
        return {}


def _field_operations(before: Json, now: Json) -> Iterator[Mapping[str, Any]]:
    """Yield the operation for each field that changes; None means absent."""
    for pointer, new in now.items():
        if new is None and before[pointer] is not None:
            yield {"op": "remove", "path": pointer}
        elif new is not None:
            yield {"op": "add" if before[pointer] is None else "replace", "path": pointer, "value": new}


def _tests(uid: str, spec: Json, base: str, before: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield {"op": "test", "path": "/metadata/uid", "value": uid}
    for pointer, old in before.items():
        list_name, place = pointer.removeprefix(base + "/").split("/")[:2]
        yield {"op": "test", "path": f"{base}/{list_name}/{place}/name", "value": spec[list_name][int(place)]["name"]}
        if old is not None:
            yield {"op": "test", "path": pointer, "value": old}


def _change_note_operations(live: Json, change: str) -> Iterator[Mapping[str, Any]]:
    if not (live.get("metadata") or {}).get("annotations"):
        yield {"op": "add", "path": "/metadata/annotations", "value": {CHANGE_ANNOTATION: change}}
        return
    yield {"op": "add", "path": f"/metadata/annotations/{escape_pointer_key(CHANGE_ANNOTATION)}", "value": change}


def _object_at(live: Json, keys: Sequence[str]) -> Json:
    """Return the object at this path of keys, or an empty one."""
    value: Any = live
    for key in keys:
        value = value.get(key) or {}
    json_object: Json = value
    return json_object


def _plain(value: Any) -> Any:
    """Return the value without empty maps, which mean the same as missing ones in a template."""
    if isinstance(value, Mapping):
        cleaned = {key: _plain(inner) for key, inner in value.items()}
        return {key: inner for key, inner in cleaned.items() if inner not in (None, {})} or None
    return value


def pod_labels(live: Json) -> Mapping[str, str]:
    """Return the labels of the workload's pods, from its template."""
    spec = live.get("spec") or {}
    spec = ((spec.get("jobTemplate") or {}).get("spec") or spec) if "jobTemplate" in spec else spec
    labels: Mapping[str, str] = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    return labels
