"""Ownership of fields: the merge of server-side apply, and the record of every other write.

It follows the documented algorithm: an apply merges its fields into the object, removes fields that it had before and
has no more, and refuses values that another manager owns with another value, unless forced. Lists with keys keep the
order of the applied configuration; items that only the object has stay in front of the applied item they preceded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from cotenant_lab.simulation.api_server.managed_fields.fields import (
    EMPTY,
    FieldSet,
    Path,
    difference,
    fields_of,
    from_fields_v1,
    to_fields_v1,
    with_parents,
    without,
)
from cotenant_lab.simulation.api_server.schema import ANY, FieldSchema

_SERVERS_OWN: Final = ("name", "namespace", "creationTimestamp", "resourceVersion", "uid", "selfLink", "generation")
_UNOWNED: Final[FieldSet] = frozenset(
    [(("f", "apiVersion"),), (("f", "kind"),), (("f", "metadata"),), (("f", "metadata"), ("f", "managedFields"))]
    + [(("f", "metadata"), ("f", name)) for name in _SERVERS_OWN]
)
_STATUS: Final = ("f", "status")
_OF_STATUS: Final = (_STATUS, ("f", "metadata"))
"""A write of the status may claim metadata too, as on the real server, though it changes none."""


@dataclass(frozen=True, slots=True, order=True)
class FieldManager:
    """The manager of one entry of managedFields: name, operation, subresource and API version."""

    name: str
    operation: str
    subresource: str = ""
    api_version: str = field(default="", compare=False)

    def __str__(self) -> str:
        """Return the manager as a conflict message names it."""
        inside = f' with subresource "{self.subresource}"' if self.subresource else ""
        return f'"{self.name}"{inside}' + (f" using {self.api_version}" if self.operation == "Update" else "")


@dataclass(frozen=True, slots=True)
class OwnedFields:
    """The fields of one entry of managedFields, and the time of their last change."""

    fields: FieldSet
    time: str


Owners = dict[FieldManager, OwnedFields]


class FieldConflict(Exception):
    """Raised if an apply sets fields that other managers own; `conflicts` has these fields by manager."""

    def __init__(self, conflicts: Mapping[FieldManager, FieldSet]) -> None:
        super().__init__("conflict")
        self.conflicts = conflicts


@dataclass(frozen=True, slots=True)
class ManagedWrite:
    """One write: its field manager, its time, and whether it takes fields over from other managers (`force`)."""

    schema: FieldSchema
    manager: FieldManager
    time: str
    force: bool = False

    def may_own(self, paths: Iterable[Path]) -> FieldSet:
        """Return the paths without the server's own fields and those that the subresource does not write."""
        closed = self.manager.subresource == "status"
        return frozenset(
            path
            for path in paths
            if path and path not in _UNOWNED and (path[0] in _OF_STATUS if closed else path[0] != _STATUS)
        )


def apply_configuration(write: ManagedWrite, live: Any, configuration: Any, owners: Owners) -> tuple[Any, Owners]:
    """Return the object and its owners after a server-side apply; raise FieldConflict on a conflict without force."""
    schema, before = write.schema, owners.get(write.manager)
    merged_object = merge_configuration(schema, live, configuration)
    last = before.fields if before else EMPTY
    mine = write.may_own(fields_of(schema, configuration))
    claimed = {**owners, write.manager: OwnedFields(mine, write.time)}
    if last:  # without the fields of the last apply that no manager claims anymore
        everything, before_fields = with_parents(schema, fields_of(schema, merged_object)), with_parents(schema, last)
        rest = without(schema, merged_object, before_fields)
        others = with_parents(schema, _UNOWNED.union(*(owned.fields for owned in claimed.values())))
        retained = with_parents(schema, fields_of(schema, rest)) | others
        rest = without(schema, merged_object, everything - retained)
        abandoned = everything - with_parents(schema, fields_of(schema, rest))
        merged_object = without(schema, merged_object, abandoned & before_fields)
    after = _resolve_conflicts(write, live, merged_object, claimed)
    if before and before.fields == mine:
        after[write.manager] = before
    if not mine:
        after.pop(write.manager, None)
    return merged_object, after


def update_owners(write: ManagedWrite, old: Any, new: Any, owners: Owners) -> Owners:
    """Return the owners after any other write: its manager owns the fields that it changed."""
    changes = difference(write.schema, old, new)
    others = _resolve_conflicts(replace(write, force=True), old, new, owners)
    before = others.get(write.manager, OwnedFields(EMPTY, write.time))
    mine = write.may_own((before.fields - changes.removed) | changes.modified | changes.added)
    if mine:
        unchanged = mine == before.fields and not changes.modified
        others[write.manager] = before if unchanged else OwnedFields(mine, write.time)
    else:
        others.pop(write.manager, None)
    return others


def _resolve_conflicts(write: ManagedWrite, old: Any, new: Any, owners: Owners) -> Owners:
    """Others lose what this write changed or removed; without force a change of theirs is a conflict."""
    changes = difference(write.schema, old, new)
    taken = write.may_own(changes.modified | changes.added)
    others = {m: o for m, o in owners.items() if m != write.manager}
    conflicts = {m: o.fields & taken for m, o in others.items() if o.fields & taken}
    if conflicts and not write.force:
        raise FieldConflict(conflicts)
    remaining = {m: replace(o, fields=o.fields - conflicts.get(m, EMPTY) - changes.removed) for m, o in others.items()}
    mine = {write.manager: owners[write.manager]} if write.manager in owners else {}
    return {m: o for m, o in {**remaining, **mine}.items() if o.fields}


def merge_configuration(schema: FieldSchema, live: Any, config: Any) -> Any:
    """Return the live value with the configuration's values merged into it."""
    if schema.merges_map(config) and schema.merges_map(live):
        both = {
            name: merge_configuration(schema.child(name), live[name], config[name]) for name in config if name in live
        }
        return {**live, **config, **both}
    if schema.merges_list(config) and schema.merges_list(live):
        return _merged_list(schema, live, config)
    return config


def _merged_list(schema: FieldSchema, live: list[Any], config: list[Any]) -> list[Any]:
    mine = {schema.element(item): item for item in config}
    theirs = {schema.element(item): item for item in live}
    rest = iter(theirs)
    order: list[tuple[str, str]] = []
    new: list[tuple[str, str]] = []
    for element in mine:
        if element not in theirs:
            new.append(element)
            continue
        for other in rest:
            if other == element:
                break
            if other not in mine:
                order.append(other)
        order += [*new, element]
        new.clear()
    order += [other for other in rest if other not in mine]
    inner = schema.items or ANY
    return [
        merge_configuration(inner, theirs[e], mine[e]) if e in theirs and e in mine else mine.get(e, theirs.get(e))
        for e in [*order, *new]
    ]


def managed_fields(owners: Owners) -> list[dict[str, Any]]:
    """Return the owners as the list metadata.managedFields."""
    return [
        {"manager": m.name, "operation": m.operation, "apiVersion": m.api_version, "time": owned.time}
        | {"fieldsType": "FieldsV1", "fieldsV1": to_fields_v1(owned.fields)}
        | ({"subresource": m.subresource} if m.subresource else {})
        for m, owned in sorted(owners.items(), key=lambda owner: (owner[0].operation, owner[1].time, owner[0].name))
    ]


def owners_of(item: Any) -> Owners:
    """Return the owners that an object's managedFields record."""
    return {
        FieldManager(
            entry["manager"], entry["operation"], entry.get("subresource", ""), entry["apiVersion"]
        ): OwnedFields(from_fields_v1(entry["fieldsV1"]), entry["time"])
        for entry in item["metadata"].get("managedFields", [])
    }
