"""Find whether the cluster still has what a change wrote, and who has overwritten it. Pure.

A change's savings count while its values are in the cluster: a GitOps tool, `kubectl rollout undo`, a chart's upgrade
or a restored etcd may replace them at any time. A container is found by the name that the write tested, so that its
index in the list does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from cotenant.base.json_documents.difference import last_key, value_at_pointer
from cotenant.base.kubernetes.moments import moment
from cotenant.changes.decide.field_changes import (
    ANNOTATED,
    annotated_swaps,
    on_new_pods,
    same_value,
    template_containers,
)
from cotenant.changes.decide.in_place import RESIZE
from cotenant.changes.decide.patches import TEMPLATE_PATHS
from cotenant.changes.model.annotated_resources import same
from cotenant.changes.model.change import Change, ChangeStatus, Write

Json = Mapping[str, Any]
Live = Mapping[str, Json | None]
"""Objects by API path; None for a deleted one."""
FieldKey = tuple[str, str, str]
"""API path and uid of an object, and one of its fields: a container's name with the amount, else a JSON pointer."""
OWN_MANAGERS: Final = "cotenant-"
"""Prefixes of the names of cotenant's field managers."""
_CONTAINER: Final = re.compile(r"(?P<list>.*/(?:c|initC)ontainers)/(?P<place>\d+)(?P<rest>/.*)")


@dataclass(frozen=True, slots=True)
class _WrittenField:
    """One value that a write changed. `label` names it for people; `read` returns its value in a live object."""

    key: FieldKey
    label: str
    written: Any
    read: Callable[[Json], Any]

    def difference(self, live: Json) -> str:
        """Return the present value beside the written one, as text; "" if they are equal."""
        present = self.read(live)
        if _same(self.label, present, self.written):
            return ""
        shown = ["not set" if value is None else str(value) for value in (present, self.written)]
        return f"{self.label} is now {shown[0]}, but {shown[1]} was written"


def object_writes(changes: Iterable[Change]) -> list[Write]:
    """Return the writes to lasting objects: all except those to pods."""
    return [write for change in changes for write in change.writes if write.subresource != RESIZE]


def rewritten_fields(statuses: Iterable[ChangeStatus]) -> dict[str, frozenset[FieldKey]]:
    """Return, by change id, the fields of an effective change that a later effective change has written again.

    `statuses` are in the order of acceptance. A write contains a container's whole resources; only the amounts that it
    changed count as fields.
    """
    later: set[FieldKey] = set()
    rewritten: dict[str, frozenset[FieldKey]] = {}
    for status in reversed([status for status in statuses if status.state.in_force]):
        change = status.change
        own = {field.key for write in object_writes([change]) for field in _written_fields(change.kind, write)}
        if again := own & later:
            rewritten[change.id] = frozenset(again)
        later |= own
    return rewritten


def describe_loss(
    change: Change, live: Live, since_seconds: float, rewritten: Collection[FieldKey] = frozenset()
) -> str:
    """Return, as text, which value of a change the cluster has lost, and who changed it; "" if it has all of them.

    The change was written at `since_seconds` (Unix time); `rewritten` fields were written by a later change of
    cotenant.
    """
    kind = change.kind
    for write in object_writes([change]):
        here = live.get(write.address.path)
        if here is None:
            return f"{write.address} was deleted"
        if (here.get("metadata") or {}).get("uid") != write.uid:
            return f"{write.address} was deleted and created again under the same name"
        if difference := describe_difference(kind, write, here, rewritten):
            if who := latest_writer(here, kind, since_seconds):
                return f"{who} changed {write.address}: {difference}"
            nobody = "no later writer is recorded, as after a cluster was restored from a backup"
            return f"{write.address}: {difference}; {nobody}"
    return ""


def describe_difference(kind: str, write: Write, live: Json, rewritten: Collection[FieldKey] = frozenset()) -> str:
    """Return the first written value that the object has lost, with the present one, as text; "" if none is lost."""
    counting = (field for field in _written_fields(kind, write) if field.key not in rewritten)
    return next(filter(None, (field.difference(live) for field in counting)), "")


def _written_fields(kind: str, write: Write) -> Iterator[_WrittenField]:
    """Yield every value that a write changed."""
    for pointer, written in write.after.items():
        before, match = write.before.get(pointer), _CONTAINER.fullmatch(pointer)
        if pointer == ANNOTATED:
            # Values for new pods of the containers that this write names, or names otherwise than before.
            before, after = (annotated_swaps(side.get(ANNOTATED)) for side in (write.before, write.after))
            for name, swap in after.items():
                if before.get(name) != swap:
                    had = before[name].after if name in before else swap.before
                    yield from _resource_fields(kind, write, name, had, swap.after)
        elif match is None:
            read = partial(value_at_pointer, pointer=pointer)
            yield _WrittenField(_key(write, pointer), last_key(pointer), written, read)
        elif match["rest"] == "/resources":
            yield from _resource_fields(kind, write, _container_name(write, match), before or {}, written or {})
        else:  # flags of a heap lie in lists of their own, in which they move when another one comes before them
            name = _container_name(write, match)
            read = partial(_text_of, kind=kind, name=name, written=written, rest=match["rest"])
            yield _WrittenField(_key(write, f"{name}{match['rest']}"), f"{name} {match['rest'][1:]}", written, read)


def container_moves(change: Change) -> Iterator[tuple[str, str, str, Any, Any]]:
    """Yield (container, side, resource, amount before, after) of each amount that a change moved, in pods too."""
    for write in change.writes:
        for pointer, written in write.after.items():
            before, match = write.before.get(pointer), _CONTAINER.fullmatch(pointer)
            moved: list[tuple[str, Json, Json]] = []
            if pointer == ANNOTATED:
                olds, news = (annotated_swaps(side.get(ANNOTATED)) for side in (write.before, write.after))
                moved = [
                    (name, olds[name].after if name in olds else swap.before, swap.after)
                    for name, swap in news.items()
                    if olds.get(name) != swap
                ]
            elif match is not None and match["rest"] == "/resources":
                moved = [(_container_name(write, match), before or {}, written or {})]
            for name, old, new in moved:
                yield from _moved_amounts(name, old, new)


def _moved_amounts(name: str, before: Json, written: Json) -> Iterator[tuple[str, str, str, Any, Any]]:
    """Yield a container's amounts that the write changed, not those that others have added."""
    for side in ("requests", "limits"):
        old, new = before.get(side) or {}, written.get(side) or {}
        for resource in dict.fromkeys((*new, *old)):
            if not _same(f"{name} {side}.{resource}", old.get(resource), new.get(resource)):
                yield name, side, resource, old.get(resource), new.get(resource)


def _resource_fields(kind: str, write: Write, name: str, before: Json, written: Json) -> Iterator[_WrittenField]:
    """Yield a container's amounts that the write changed, with readers of what a new pod gets."""
    for _, side, resource, _, new in _moved_amounts(name, before, written):
        read = partial(_amount_of, kind=kind, name=name, side=side, resource=resource)
        yield _WrittenField(_key(write, f"{name}/{side}/{resource}"), f"{name} {side}.{resource}", new, read)


def _key(write: Write, place: str) -> FieldKey:
    return write.address.path, write.uid, place


def _same(label: str, present: Any, written: Any) -> bool:
    """Return whether two values are equal in any notation: 0.8 equals 800m, absent equals empty."""
    side, _, resource = label.rpartition(" ")[2].partition(".")
    if side in ("requests", "limits") and present is not None and written is not None:
        return same({side: {resource: present}}, {side: {resource: written}})
    return same_value(present, written)


def _amount_of(live: Json, kind: str, name: str, side: str, resource: str) -> Any:
    """Return the amount that a new pod gets, by the template or the annotation; None if it gets none."""
    resources = dict(on_new_pods(live, kind)).get(name) or {}
    return (resources.get(side) or {}).get(resource)


def _text_of(live: Json, kind: str, name: str, written: Any, rest: str) -> Any:
    """Return the written text if it is anywhere in the container, else the text that is in its place now."""
    container = template_containers(live, kind).get(name, {})
    return written if written in _texts(container) else value_at_pointer(container, rest)


def _container_name(write: Write, match: re.Match[str]) -> str:
    tested = f"{match['list']}/{match['place']}/name"
    tests = (operation for operation in write.operations if operation["op"] == "test")
    return next((str(operation["value"]) for operation in tests if operation["path"] == tested), match["place"])


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for inner in value:
            yield from _texts(inner)
    elif isinstance(value, str):
        yield value


def latest_writer(live: Json, kind: str, since_seconds: float = 0.0) -> str:
    """Return the field manager that wrote the object last after cotenant did; "" if none is recorded.

    For a workload, only managers that own container resources count. `since_seconds` (Unix time of cotenant's write) is
    used if the API server has recorded no write of cotenant.
    """
    ours = max((_time(entry) for entry in _entries(live) if is_own_writer(entry)), default=moment(since_seconds))
    newer = [entry for entry in writers_of(live, kind) if not is_own_writer(entry) and _time(entry) >= ours]
    return str(max(newer, key=_time, default={}).get("manager") or "")


def writers_of(live: Json, kind: str) -> list[Json]:
    """Return managedFields entries that own the template's container resources, or `spec` if there is no template."""
    return [entry for entry in _entries(live) if _owns(entry.get("fieldsV1") or {}, kind)]


def is_own_writer(entry: Json) -> bool:
    """Return whether a managedFields entry is of a cotenant program."""
    return str(entry.get("manager", "")).startswith(OWN_MANAGERS)


def _entries(live: Json) -> Sequence[Json]:
    return (live.get("metadata") or {}).get("managedFields") or ()


def _time(entry: Json) -> str:
    """Return an entry's time (UTC, whole seconds) as a text that sorts like the time."""
    return str(entry.get("time") or "")


def _owns(fields: Json, kind: str) -> bool:
    if kind not in TEMPLATE_PATHS:
        return "f:spec" in fields
    for key in TEMPLATE_PATHS[kind]:
        fields = fields.get(f"f:{key}") or {}
    lists = [fields.get(name) or {} for name in ("f:containers", "f:initContainers")]
    return any("f:resources" in owned for containers in lists for owned in containers.values() if owned)
