"""Resource names of a pod: cpu and memory become batch-* or mid-* by its class, old names become today's. Pure.

`rename_legacy_resources` runs on every new pod, `translate_resources` on those that a profile matched. Amounts are
conserved: CPU as whole millicores (rounded up, as the API server's MilliValue), memory as it was written. A container
whose amounts cannot be read, or that already names the class resource beside the plain one, is left as it is with a
warning. `with_extended_spec` writes the annotation from which node agents set cgroups. Functions write on the pod they
are given; `cotenant.admission.pod_mutation` hands them a copy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from cotenant.admission.pod_level import distribute_pod_resources
from cotenant.base.colocation.reclaimable import Band
from cotenant.base.errors import QuantityError
from cotenant.base.json_documents.undecodable import UNDECODABLE
from cotenant.base.kubernetes.protocol import (
    ANNOTATION_ALIASES,
    EXTENDED_RESOURCES,
    EXTENDED_SPEC_ANNOTATION,
    RESOURCE_ALIASES,
)
from cotenant.base.kubernetes.qos import PriorityClass
from cotenant.base.kubernetes.quantity import parse_amount, parse_bytes
from cotenant.base.resource import Resource

SIDES: Final = ("requests", "limits")
BANDS: Final = {PriorityClass.BATCH: Band.BATCH, PriorityClass.MID: Band.MID}
"""Classes that live on reclaimed capacity of a name of their own; free has none."""
BATCH_NAMES: Final = tuple(EXTENDED_RESOURCES[Band.BATCH, resource] for resource in Resource)
CLASS_NAMES: Final = frozenset(EXTENDED_RESOURCES.values())
_SUFFIXES: Final = ("", "k", "M", "G", "T", "P", "E")

Json = dict[str, Any]


def containers(pod: Mapping[str, Any], *groups: str) -> Iterator[Json]:
    """Containers of these groups of the spec ("containers", "initContainers")."""
    for group in groups:
        yield from (c for c in pod["spec"].get(group) or () if isinstance(c, dict))


def amounts(container: Mapping[str, Any], side: str) -> Json:
    """Requests or limits of a container; an empty one when there are none."""
    resources = container.get("resources")
    quantities = resources.get(side) if isinstance(resources, dict) else None
    return quantities if isinstance(quantities, dict) else {}


def rename_legacy_resources(pod: Json) -> list[str]:
    """Give old resource names in containers and overhead their present ones; warnings."""
    warnings = []
    for container in containers(pod, "initContainers", "containers"):
        for side in SIDES:
            quantities = amounts(container, side)
            where = f"container {container.get('name')}: {side}"
            warnings += [_rename(quantities, old, where) for old in list(quantities) if old in RESOURCE_ALIASES]
    return warnings


def _rename(quantities: Json, old: str, where: str) -> str:
    new = RESOURCE_ALIASES[old]
    value = quantities.pop(old)
    if new in quantities:
        return f"{where}: {old} is an old name of {new}, which is also set; {old}={value} was dropped"
    quantities[new] = value
    return f"{where}: {old} is an old name of {new}; write the new one"


def translate_resources(pod: Json, priority: PriorityClass, *, overhead: bool) -> list[str]:
    """Rename cpu and memory to the class's resources in all containers, and in the overhead when asked; warnings.

    A missing request becomes the limit. What the pod asks for as a whole is shared out among its containers first. Pods
    of other classes are not touched.
    """
    band = BANDS.get(priority)
    if band is None:
        return []
    warnings = distribute_pod_resources(pod)
    for container in containers(pod, "initContainers", "containers"):
        for resource in Resource:
            warnings += _translate(container, resource, EXTENDED_RESOURCES[band, resource])
    if overhead and isinstance(pod["spec"].get("overhead"), dict):
        holder = {"name": "overhead", "resources": {"requests": pod["spec"]["overhead"]}}
        for resource in Resource:
            warnings += _translate(holder, resource, EXTENDED_RESOURCES[band, resource])
    elif pod["spec"].get("overhead"):
        warnings.append("the RuntimeClass's overhead stays in cpu and memory: the API server accepts no other")
    return warnings


def amounts_beside(pod: Json, priority: PriorityClass) -> set[str]:
    """Return "container/resource" of each cpu or memory that a container sets in addition to its class's resource."""
    band = BANDS.get(priority)
    if band is None:
        return set()
    return {
        f"{container.get('name')}/{resource}"
        for container in containers(pod, "initContainers", "containers")
        for resource in Resource
        if all(any(name in amounts(container, side) for side in SIDES) for name in _names(band, resource))
    }


def without_later(pod: Json, priority: PriorityClass, later: Collection[str]) -> list[str]:
    """Take these amounts (`amounts_beside`) out of the pod, for somebody gave them to a translated one; warnings."""
    if priority not in BANDS:
        return []
    for container in containers(pod, "initContainers", "containers"):
        for resource in Resource:
            if f"{container.get('name')}/{resource}" in later:
                for side in SIDES:
                    amounts(container, side).pop(resource, None)
    return [f"container {place}, which another webhook added to a translated pod, was taken out" for place in later]


def _names(band: Band, resource: Resource) -> tuple[str, str]:
    return resource.value, EXTENDED_RESOURCES[band, resource]


def _translate(container: Json, resource: Resource, name: str) -> list[str]:
    """Rename one resource of one container in requests and limits; a warning when it has to stay."""
    sides = {side: amounts(container, side) for side in SIDES}
    if not any(resource in quantities for quantities in sides.values()):
        _fill_request(container, sides, name)
        return []
    if any(name in quantities for quantities in sides.values()):
        return [f"container {container.get('name')}: asks for {name} and for {resource}; {resource} was not translated"]
    try:
        values = {
            side: _amount(resource, quantities[resource])
            for side, quantities in sides.items()
            if resource in quantities
        }
    except QuantityError as error:
        return [f"container {container.get('name')}: {resource} was not translated: {error.message}"]
    for side, value in values.items():
        del sides[side][resource]
        sides[side][name] = value
    _fill_request(container, sides, name)
    return []


def _fill_request(container: Json, sides: Mapping[str, Json], name: str) -> None:
    """Set a missing request of a resource to its limit, as the API server would."""
    if name in sides["limits"] and name not in sides["requests"]:
        requests = container["resources"].get("requests")
        container["resources"]["requests"] = {**(requests or {}), name: sides["limits"][name]}


def _amount(resource: Resource, value: Any) -> Any:
    """Millicores as a whole number in the shortest form, memory as it was written (once it can be read)."""
    amount = parse_amount(resource, value)
    return decimal_si(amount) if resource is Resource.CPU else value


def decimal_si(amount: int) -> str:
    """Return a number as the API server writes it: 1000 -> "1k", 1500 -> "1500"."""
    power = 0
    while amount and amount % 1000 == 0 and power < len(_SUFFIXES) - 1:
        amount, power = amount // 1000, power + 1
    return f"{amount}{_SUFFIXES[power]}"


def with_extended_spec(pod: Json) -> list[str]:
    """Write the annotation of batch resources by container, and drop its old name; warnings.

    An annotation that already says the same, in whatever form, stays. Init containers and mid resources are not in
    it: so the protocol has it.
    """
    warnings = _annotation_renamed(pod)
    specs = {str(c.get("name")): spec for c in containers(pod, "containers") if (spec := _batch_resources(c))}
    if specs:
        annotations = pod["metadata"].get("annotations") or {}
        text_before = annotations.get(EXTENDED_SPEC_ANNOTATION)
        if text_before is None or _readable(text_before) != _comparable(specs):
            text = compact({"containers": specs})
            pod["metadata"]["annotations"] = {**annotations, EXTENDED_SPEC_ANNOTATION: text}
    return warnings


def compact(value: Json) -> str:
    """JSON for an annotation: no blanks, keys in order."""
    return msgspec.json.encode(value, order="deterministic").decode()


def _batch_resources(container: Mapping[str, Any]) -> dict[str, Json]:
    by_side = {side: {n: v for n, v in amounts(container, side).items() if n in BATCH_NAMES} for side in SIDES}
    return {side: names for side, names in by_side.items() if names}


def _annotation_renamed(pod: Json) -> list[str]:
    """Old annotations under their present name; a flat {"cpu": "5k"} is the limit of the pod's only container."""
    annotations = pod["metadata"].get("annotations") or {}
    warnings = []
    for old in [key for key in annotations if key in ANNOTATION_ALIASES]:
        new = ANNOTATION_ALIASES[old]
        text = _modern(annotations[old], [str(c.get("name")) for c in containers(pod, "containers")])
        rest = {key: value for key, value in annotations.items() if key != old}
        annotations = rest if text is None or new in rest else {**rest, new: text}
        pod["metadata"]["annotations"] = annotations
        because = ": its value fits no container and was dropped" if text is None else "; write the new one"
        warnings.append(f"annotation {old} is an old name of {new}{because}")
    return warnings


def _modern(text: Any, names: list[str]) -> str | None:
    """The annotation's present shape of an old value; None when it cannot be told which container is meant."""
    try:
        body = msgspec.json.decode(text if isinstance(text, str) else "", type=dict[str, Any])
    except UNDECODABLE:
        return None
    if isinstance(body.get("containers"), dict):
        return str(text)
    plain = {resource.value: EXTENDED_RESOURCES[Band.BATCH, resource] for resource in Resource}
    limits = {(plain | RESOURCE_ALIASES).get(key, key): value for key, value in body.items()}
    if len(names) != 1 or not limits or not all(isinstance(v, str | int) for v in limits.values()):
        return None
    return compact({"containers": {names[0]: {"limits": limits}}})


def _readable(text: Any) -> Any:
    """An annotation's amounts as numbers; None when it says nothing that can be compared."""
    try:
        body = msgspec.json.decode(text if isinstance(text, str) else "", type=dict[str, dict[str, Any]])
        return _comparable(body.get("containers", {}))
    except (AttributeError, TypeError, *UNDECODABLE):
        return None


def _comparable(specs: Mapping[str, Any]) -> Any:
    return {
        name: {side: {n: _number(v) for n, v in (spec.get(side) or {}).items()} for side in SIDES}
        for name, spec in specs.items()
    }


def _number(value: Any) -> Any:
    try:
        return parse_bytes(value)
    except QuantityError:
        return repr(value)
