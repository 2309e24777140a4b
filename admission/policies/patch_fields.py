"""Fields of a pod's spec that a compiled profile may patch, and their JSON patch operations in CEL. Pure.

The API server answers 500 to every matching pod if a policy writes a field that does not exist or has another type,
whatever the policy's failurePolicy says. So only fields whose types are listed here are compiled. Types: Kubernetes API
reference, PodSpec.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cotenant.admission.policies.cel import LARGEST_NUMBER, add, conditional_operations, literal, pointer, remove, text
from cotenant.base.kubernetes.protocol import PREFERRED_TERMS, REQUIRED_TERMS
from cotenant.base.text import format_value

_MAP: Final = "*"
"""Stands for every key of a map."""
_REQUIREMENT: Final = {"key": str, "operator": str, "values": [str]}
_TERM: Final = {"matchExpressions": [_REQUIREMENT], "matchFields": [_REQUIREMENT]}
_SELECTOR: Final = {"matchLabels": {_MAP: str}, "matchExpressions": [_REQUIREMENT]}
_POD_TERM: Final = {
    "labelSelector": _SELECTOR,
    "namespaceSelector": _SELECTOR,
    "namespaces": [str],
    "topologyKey": str,
    "matchLabelKeys": [str],
    "mismatchLabelKeys": [str],
}
_POD_AFFINITY: Final = {REQUIRED_TERMS: [_POD_TERM], PREFERRED_TERMS: [{"weight": int, "podAffinityTerm": _POD_TERM}]}
FIELDS: Final[Mapping[str, Any]] = {
    "activeDeadlineSeconds": int,
    "affinity": {
        "nodeAffinity": {
            REQUIRED_TERMS: {"nodeSelectorTerms": [_TERM]},
            PREFERRED_TERMS: [{"weight": int, "preference": _TERM}],
        },
        "podAffinity": _POD_AFFINITY,
        "podAntiAffinity": _POD_AFFINITY,
    },
    "automountServiceAccountToken": bool,
    "dnsPolicy": str,
    "enableServiceLinks": bool,
    "hostname": str,
    "nodeSelector": {_MAP: str},
    "restartPolicy": str,
    "schedulerName": str,
    "shareProcessNamespace": bool,
    "subdomain": str,
    "terminationGracePeriodSeconds": int,
    "tolerations": [{"key": str, "operator": str, "value": str, "effect": str, "tolerationSeconds": int}],
}
"""Field of the spec -> type: a plain type, a list of one type, or the fields of an object."""


def refusal(name: str, value: Any) -> str:
    """Return why a field of a pod's spec cannot be compiled with this value; "" if it can."""
    if name not in FIELDS:
        return "is not a field whose type the compiler checks; with a wrong type, every matching pod would be refused"
    return _wrong(value, FIELDS[name], f"spec.patch.spec.{name}")


def _wrong(value: Any, kind: Any, path: str) -> str:
    """Return what is wrong with a value or its content, or ""; null removes a field, but must not be in a list."""
    expected: type = list if isinstance(kind, list) else dict if isinstance(kind, Mapping) else kind
    if value is None:
        return ""
    of_type = type(value) is expected  # bool is no int here
    if not of_type:
        return f"{path}: {format_value(value)} is not of the type {expected.__name__}"
    if isinstance(kind, list):
        places = ((f"{path}[{i}]", item) for i, item in enumerate(value))
        wrong = (f"{at}: null in a list" if item is None else _wrong(item, kind[0], at) for at, item in places)
        return next(filter(None, wrong), "")
    if isinstance(kind, Mapping):
        return next((w for key, item in value.items() if (w := _wrong_key(key, item, kind, path))), "")
    return f"{path}: {value} is too large" if kind is int and abs(value) >= LARGEST_NUMBER else ""


def _wrong_key(key: str, value: Any, kind: Mapping[str, Any], path: str) -> str:
    if key.startswith("$"):
        return f"{path}.{key}: directives of a strategic merge are not compiled"
    if key not in kind and _MAP not in kind:
        return f"{path}.{key} is not a field that the compiler knows"
    return _wrong(value, kind.get(key, kind.get(_MAP)), f"{path}.{key}")


def operations(value: Any, *path: str) -> Iterator[tuple[str, str]]:
    """Yield (field, JSON patch operations in CEL) that merge a value, which `refusal` accepts, into the pod at a path.

    Operations with field "" create the object that holds the following fields. A value of None removes the field.
    """
    field = ".".join(path)
    if value is None:
        yield field, conditional_operations(_present(path), remove(pointer(*path)))
    elif isinstance(value, Mapping):
        yield "", conditional_operations(f"!({_present(path)})", add(pointer(*path), "{}"))
        for key, item in value.items():
            yield from operations(item, *path, key)
    else:
        yield field, add(pointer(*path), literal(_without_nulls(value)))


def leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of each field that a merge writes, so that profiles can be compared; a list is one value."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}")
    else:
        yield path, value


def _present(path: tuple[str, ...]) -> str:
    """Return CEL for whether the pod has the field and its parents; metadata and spec always exist."""
    conditions, place = [], "object"
    for step in path:
        if place != "object":
            conditions.append(f"{text(step)} in {place}")
        place = f"{place}[{text(step)}]" if place != "object" else f"object.{step}"
    return " && ".join(conditions)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
