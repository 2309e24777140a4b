"""Kubernetes' strategic merge of a profile's `patch` into a pod. Pure; the given pod is not changed.

Maps merge key by key and null removes; lists with a merge key (containers by name, ports by containerPort, ...) merge
element by element, new ones at the end; other lists are replaced. Directives: `$patch` (replace, delete, merge),
`$retainKeys`, `$deleteFromPrimitiveList/...`; `$setElementOrder/...` is ignored. The merge keys are those of the
Kubernetes API reference (patch merge key) for Pod.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cotenant.base.errors import UsageError
from cotenant.base.text import format_value

_CONTAINER: Final[dict[str, Any]] = {
    "env": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
}
MERGE_KEYS: Final[dict[tuple[str, ...], str]] = {
    ("metadata", "ownerReferences"): "uid",
    ("spec", "containers"): "name",
    ("spec", "initContainers"): "name",
    ("spec", "ephemeralContainers"): "name",
    ("spec", "volumes"): "name",
    ("spec", "imagePullSecrets"): "name",
    ("spec", "hostAliases"): "ip",
    ("spec", "topologySpreadConstraints"): "topologyKey",
    ("spec", "schedulingGates"): "name",
    ("spec", "resourceClaims"): "name",
    **{
        ("spec", group, field): key
        for group in ("containers", "initContainers", "ephemeralContainers")
        for field, key in _CONTAINER.items()
    },
}
"""Path of a list (without indices) -> the field that identifies its elements."""
PRIMITIVE_LISTS: Final = frozenset({("metadata", "finalizers")})
"""Lists of texts that merge as a set."""
_DELETE_ITEMS: Final = "$deleteFromPrimitiveList/"
_FIX: Final = "Correct spec.patch of the profile: the patch is applied to a Pod as by `kubectl patch --type strategic`."

Path = tuple[str, ...]


def apply_strategic_patch(document: Mapping[str, Any], patch: Mapping[str, Any], path: Path = ()) -> dict[str, Any]:
    """Return the document after the patch; raise UsageError that names the field in which their types differ."""
    directive = patch.get("$patch", "merge")
    if directive == "replace":
        return {k: _plain(v) for k, v in patch.items() if not k.startswith("$") and v is not None}
    if directive == "delete":
        return {}
    if directive != "merge":
        raise _refusal(path, f"$patch {format_value(directive)} is not one of replace, delete, merge")
    keep = patch.get("$retainKeys")
    if keep is not None and (not isinstance(keep, list) or not all(isinstance(k, str) for k in keep)):
        raise _refusal(path, "$retainKeys is not a list of names")
    fields = {key: value for key, value in document.items() if keep is None or key in keep}
    for key, value in patch.items():
        if key.startswith(_DELETE_ITEMS):
            field = key.removeprefix(_DELETE_ITEMS)
            # The list without the values of $deleteFromPrimitiveList; raise the refusal unless both are lists.
            before = fields.get(field)
            if not isinstance(value, list) or not isinstance(before, list | None):
                raise _refusal((*path, field), "$deleteFromPrimitiveList is not a list")
            fields[field] = [item for item in before or [] if item not in value]
        elif not key.startswith("$"):
            _merge_field(fields, key, value, (*path, key))
    return fields


def _merge_field(fields: dict[str, Any], key: str, value: Any, path: Path) -> None:
    """Merge one field in place: null removes, objects merge, lists by their rule; raise UsageError for other shapes."""
    if value is None:
        fields.pop(key, None)
        return
    before = fields.get(key)
    if before is not None and _shape(before) is not _shape(value):
        raise _refusal(path, f"the pod has {_shape_name(before)} where the patch has {_shape_name(value)}")
    if isinstance(value, Mapping):
        fields[key] = apply_strategic_patch(before or {}, value, path)
    elif isinstance(value, list):
        fields[key] = _merged_list(before or [], value, path)
    else:
        fields[key] = value


def _merged_list(before: Sequence[Any], patch: Sequence[Any], path: Path) -> list[Any]:
    """Return a list after the patch, by Kubernetes' rule for its path: united, merged by key, or replaced."""
    if path in PRIMITIVE_LISTS:
        return [*before, *(item for item in patch if item not in before)]
    merge_key = MERGE_KEYS.get(path)
    if merge_key is None:
        return [_plain(item) for item in patch]
    if not all(isinstance(item, Mapping) for item in patch):
        raise _refusal(path, "an element of the list is not an object")
    if any(item.get("$patch") == "replace" for item in patch):
        return [_plain(item) for item in patch if item.get("$patch") != "replace" or len(item) > 1]
    items = list(before)
    for item in patch:
        if merge_key not in item:
            raise _refusal(path, f"an element of the list has no {merge_key}")
        places = [
            i for i, old in enumerate(items) if isinstance(old, Mapping) and old.get(merge_key) == item[merge_key]
        ]
        if item.get("$patch") == "delete":
            items[:] = [old for i, old in enumerate(items) if i not in places]
        elif places:
            items[places[0]] = apply_strategic_patch(items[places[0]], item, path)
        else:
            items.append(apply_strategic_patch({}, item, path))
    return items


def _plain(value: Any) -> Any:
    """Return the value without directives and nulls, which have no meaning without a document to merge with."""
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items() if not k.startswith("$") and v is not None}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _shape(value: Any) -> type:
    return dict if isinstance(value, Mapping) else list if isinstance(value, list) else object


def _shape_name(value: Any) -> str:
    return {dict: "an object", list: "a list", object: "a plain value"}[_shape(value)]


def _refusal(path: Path, because: str) -> UsageError:
    return UsageError(f"patch.{'.'.join(path)}: {because}" if path else f"patch: {because}", fix=_FIX)
