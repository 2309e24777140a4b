"""Whether the cluster still has what a change wrote, and who wrote something else. Pure.

What a change frees counts while its values are there: a GitOps tool, `kubectl rollout undo`, a chart's upgrade or a
restored etcd may replace them at any time. A container is found by the name that the write tested, so that another one
before it in the list makes no difference.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from cotenant.base.json_documents.json_pointer import value_at_pointer
from cotenant.base.kubernetes.moments import moment
from cotenant.changes.decide.field_changes import ANNOTATED, annotated_swaps, overtaken_swaps, same_value
from cotenant.changes.decide.in_place import RESIZE
from cotenant.changes.decide.patches import TEMPLATE_PATHS
from cotenant.changes.model.annotated_resources import same
from cotenant.changes.model.change import Change, ChangeStatus, Write

Json = Mapping[str, Any]
Live = Mapping[str, Json | None]
"""Objects by their API path; None: it is gone."""
FieldKey = tuple[str, str, str]
"""API path and uid of an object, and the pointer of a field of it."""
OWN_MANAGERS: Final = "cotenant-"
"""Beginning of the names of our own field managers."""
_CONTAINER: Final = re.compile(r"(?P<list>.*/(?:c|initC)ontainers)/(?P<place>\d+)(?P<rest>/.*)")


def object_writes(changes: Iterable[Change]) -> list[Write]:
    """The writes whose objects stay: all but those of pods, which come and go."""
    return [write for change in changes for write in change.writes if write.subresource != RESIZE]


def fields_of(write: Write) -> frozenset[FieldKey]:
    """The fields that a write sets."""
    return frozenset((write.address.path, write.uid, pointer) for pointer in write.after)


def rewritten_fields(standings: Iterable[ChangeStatus]) -> dict[str, frozenset[FieldKey]]:
    """Fields of changes in force, by the change's id, that a later change in force has written again.

    standings: in the order in which they were accepted.
    """
    later: set[FieldKey] = set()
    rewritten: dict[str, frozenset[FieldKey]] = {}
    for status in reversed([status for status in standings if status.state.in_force]):
        own = {key for write in status.change.writes for key in fields_of(write)}
        if again := own & later:
            rewritten[status.change.id] = frozenset(again)
        later |= own
    return rewritten


def describe_loss(
    change: Change, live: Live, since_seconds: float, rewritten: Collection[FieldKey] = frozenset()
) -> str:
    """Return what the cluster no longer has of a change, and who changed it, as text; "" while it has all of it.

    since_seconds: when it was written (Unix time); rewritten: fields that a later change of ours has written.
    """
    losses = (
        _describe_lost_write(change.kind, write, live.get(write.address.path), since_seconds, rewritten)
        for write in object_writes([change])
    )
    return next(filter(None, losses), "")


def _describe_lost_write(
    kind: str, write: Write, live: Json | None, since_seconds: float, rewritten: Collection[FieldKey]
) -> str:
    if live is None:
        return f"{write.address} was deleted"
    if (live.get("metadata") or {}).get("uid") != write.uid:
        return f"{write.address} was deleted, and is another one of that name now"
    counting = [pointer for pointer in write.after if (write.address.path, write.uid, pointer) not in rewritten]
    found = next(filter(None, (_difference(kind, write, live, pointer) for pointer in counting)), "")
    if not found:
        return ""
    who = latest_writer(live, kind, since_seconds)
    if not who:
        return f"{write.address}: {found}; no writer since then is recorded, as after a restored backup of the cluster"
    return f"{who} changed {write.address}: {found}"


def _difference(kind: str, write: Write, live: Json, pointer: str) -> str:
    """One field that differs from what was written, with both values; "" when the field has it."""
    if pointer == ANNOTATED and write.after[pointer] is not None:
        return _annotation_difference(kind, write, live)
    written, match = write.after[pointer], _CONTAINER.fullmatch(pointer)
    if match is None:
        present = value_at_pointer(live, pointer)
        return "" if same_value(present, written) else _told(pointer.rpartition("/")[2], present, written)
    name, container = _container(write, live, match)
    if container is None:
        return f"container {name} is gone"
    field = match["rest"]
    present = value_at_pointer(container, field)
    if field == "/resources":
        if same(present, written):
            return ""
        return next(_resource_differences(name, present or {}, written or {}), f"{name}: its resources differ")
    # Flags of a heap lie in lists of their own, in which they move when another one comes before them.
    return "" if written in _texts(container) else _told(f"{name} {field.strip('/')}", present, written)


def _annotation_difference(kind: str, write: Write, live: Json) -> str:
    """The same of values for new pods: of the containers that this write names, or names otherwise than before."""
    before, after = (annotated_swaps(side.get(ANNOTATED)) for side in (write.before, write.after))
    own = {name: swap for name, swap in after.items() if before.get(name) != swap}
    present = annotated_swaps(value_at_pointer(live, ANNOTATED))
    for name, swap in own.items():
        if name not in present or not same(present[name].after, swap.after):
            return f"{name}: the annotation gives new pods something else"
    overtaken = [name for name in overtaken_swaps(live, write, kind) if name in own]
    return f"{overtaken[0]}: its template has changed, so that the annotation counts no more" if overtaken else ""


def _container(write: Write, live: Json, match: re.Match[str]) -> tuple[str, Json | None]:
    """Name of a write's container, and what it is now; None when it is gone."""
    tested = f"{match['list']}/{match['place']}/name"
    tests = (operation for operation in write.operations if operation["op"] == "test")
    names = (str(operation["value"]) for operation in tests if operation["path"] == tested)
    containers: Sequence[Json] = value_at_pointer(live, match["list"]) or ()
    name = next(names, "")
    if not name:
        place = int(match["place"])
        found = containers[place] if place < len(containers) else None
        return str((found or {}).get("name", place)), found
    return name, next((container for container in containers if container.get("name") == name), None)


def _resource_differences(name: str, present: Json, written: Json) -> Iterator[str]:
    for side in ("requests", "limits"):
        now, then = present.get(side) or {}, written.get(side) or {}
        for resource in dict.fromkeys((*then, *now)):
            amounts = [{side: {resource: values[resource]} if resource in values else {}} for values in (now, then)]
            if not same(*amounts):
                yield _told(f"{name} {side}.{resource}", now.get(resource), then.get(resource))


def _told(field: str, present: Any, written: Any) -> str:
    shown = ["not set" if value is None else str(value) for value in (present, written)]
    return f"{field} is {shown[0]}, and {shown[1]} was written"


def _texts(value: Any) -> Iterator[str]:
    """Every text in a container."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for inner in value:
            yield from _texts(inner)
    elif isinstance(value, str):
        yield value


def latest_writer(live: Json, kind: str, since_seconds: float = 0.0) -> str:
    """Return the field manager, of none of ours, that wrote the object last since then; "" when none is recorded.

    Of a workload, only who owns resources of containers counts. since_seconds: Unix time of our write, which counts
    where the API server has recorded none of ours.
    """
    ours = max((_time(entry) for entry in _entries(live) if is_own_writer(entry)), default=moment(since_seconds))
    newer = [entry for entry in writers_of(live, kind) if not is_own_writer(entry) and _time(entry) >= ours]
    return str(max(newer, key=_time, default={}).get("manager") or "")


def writers_of(live: Json, kind: str) -> list[Json]:
    """Entries of managedFields that own resources of the template's containers; of other objects, of the spec."""
    return [entry for entry in _entries(live) if _owns(entry.get("fieldsV1") or {}, kind)]


def is_own_writer(entry: Json) -> bool:
    """Return whether an entry of managedFields is one of our own programs'."""
    return str(entry.get("manager", "")).startswith(OWN_MANAGERS)


def _entries(live: Json) -> Sequence[Json]:
    return (live.get("metadata") or {}).get("managedFields") or ()


def _time(entry: Json) -> str:
    """Return the time of an entry, in UTC and whole seconds, so that texts order as times do."""
    return str(entry.get("time") or "")


def _owns(fields: Json, kind: str) -> bool:
    if kind not in TEMPLATE_PATHS:
        return "f:spec" in fields
    for key in TEMPLATE_PATHS[kind]:
        fields = fields.get(f"f:{key}") or {}
    lists = [fields.get(name) or {} for name in ("f:containers", "f:initContainers")]
    return any("f:resources" in owned for containers in lists for owned in containers.values() if owned)
