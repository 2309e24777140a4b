"""Resource names of a pod: cpu and memory become batch-* or mid-* by its class, old names become present ones. Pure.

`rename_legacy_resources` runs on every new pod, `translate_resources` on those that a profile matched. Amounts are
conserved: CPU as whole millicores (rounded up, as the API server's MilliValue), memory as it was written. A container
whose amounts cannot be parsed, or that already names the class's resource beside the plain one, is left as it is with a
warning. Kubernetes accepts no batch or mid amounts in requests and limits of the whole pod (`spec.resources`): before
translation these amounts are divided among the containers that run together, so that their sum is what the pod
requested. `with_extended_spec` writes the annotation from which node agents set cgroups. These functions change the pod
they are given; `cotenant.admission.pod_mutation` passes a copy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from cotenant.base.colocation.reclaim_policies import Band
from cotenant.base.errors import QuantityError
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.kubernetes.pod_request import effective_request
from cotenant.base.kubernetes.protocol import (
    ANNOTATION_ALIASES,
    EXTENDED_RESOURCES,
    EXTENDED_SPEC_ANNOTATION,
    RESOURCE_ALIASES,
)
from cotenant.base.kubernetes.qos import PriorityClass
from cotenant.base.kubernetes.quantity import format_amount, parse_amount, parse_bytes
from cotenant.base.resource import Resource

SIDES: Final = ("requests", "limits")
BANDS: Final = {PriorityClass.BATCH: Band.BATCH, PriorityClass.MID: Band.MID}
"""Classes that live on reclaimed capacity of a name of their own; free has none."""
BATCH_NAMES: Final = tuple(EXTENDED_RESOURCES[Band.BATCH, resource] for resource in Resource)
CLASS_NAMES: Final = frozenset(EXTENDED_RESOURCES.values())
_SUFFIXES: Final = ("", "k", "M", "G", "T", "P", "E")

Json = dict[str, Any]


def containers(pod: Mapping[str, Any], *groups: str) -> Iterator[Json]:
    """Yield the containers in these groups of the spec ("containers", "initContainers")."""
    for group in groups:
        yield from (c for c in pod["spec"].get(group) or () if isinstance(c, dict))


def amounts(container: Mapping[str, Any], side: str) -> Json:
    """Return a container's requests or limits (`side` says which); an empty object if it has none."""
    resources = container.get("resources")
    quantities = resources.get(side) if isinstance(resources, dict) else None
    return quantities if isinstance(quantities, dict) else {}


def rename_legacy_resources(pod: Json) -> list[str]:
    """Rename old resource names in containers and overhead to the present ones, and return warnings."""
    warnings = []
    for container in containers(pod, "initContainers", "containers"):
        for side in SIDES:
            quantities = amounts(container, side)
            for old in [name for name in quantities if name in RESOURCE_ALIASES]:
                new, value = RESOURCE_ALIASES[old], quantities.pop(old)
                what = f"container {container.get('name')}: {side}: {old} is an old name of {new}"
                if new in quantities:
                    warnings.append(f"{what}, which is also set; {old}={value} was dropped")
                else:
                    quantities[new] = value
                    warnings.append(f"{what}; use the new name")
    return warnings


def translate_resources(pod: Json, priority: PriorityClass, *, overhead: bool) -> list[str]:
    """Rename cpu and memory to the class's resources (a missing request becomes the limit), and return warnings.

    With `overhead` the pod's overhead is renamed too.
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
        warnings.append("the RuntimeClass's overhead stays in cpu and memory: the API server accepts only these")
    return warnings


def amounts_beside(pod: Json, priority: PriorityClass) -> set[str]:
    """Return "container/resource" for each cpu or memory amount that a container has beside its class's resource."""
    band = BANDS.get(priority)
    if band is None:
        return set()
    return {
        f"{container.get('name')}/{resource}"
        for container in containers(pod, "initContainers", "containers")
        for resource in Resource
        if all(
            any(name in amounts(container, side) for side in SIDES)
            for name in (resource.value, EXTENDED_RESOURCES[band, resource])
        )
    }


def without_later(pod: Json, priority: PriorityClass, later: Collection[str]) -> list[str]:
    """Remove the amounts `later`, which somebody added to a translated pod, and return warnings."""
    if priority not in BANDS:
        return []
    for container in containers(pod, "initContainers", "containers"):
        for resource in Resource:
            if f"{container.get('name')}/{resource}" in later:
                for side in SIDES:
                    amounts(container, side).pop(resource, None)
    return [f"{place}, an amount that another webhook added to a translated pod, was removed" for place in later]


def _translate(container: Json, resource: Resource, name: str) -> list[str]:
    """Rename one resource of one container in requests and limits; return a warning if it must stay."""
    sides = {side: amounts(container, side) for side in SIDES}
    if not any(resource in quantities for quantities in sides.values()):
        _fill_request(container, sides, name)
        return []
    if any(name in quantities for quantities in sides.values()):
        return [f"container {container.get('name')}: has both {name} and {resource}; {resource} was not translated"]
    values = {side: quantities[resource] for side, quantities in sides.items() if resource in quantities}
    try:
        numbers = {side: parse_amount(resource, value) for side, value in values.items()}
    except QuantityError as error:
        return [f"container {container.get('name')}: {resource} was not translated: {error.message}"]
    for side, value in values.items():
        del sides[side][resource]
        # Millicores as a whole number in the shortest form, memory as it was written
        sides[side][name] = decimal_si(numbers[side]) if resource is Resource.CPU else value
    _fill_request(container, sides, name)
    return []


def _fill_request(container: Json, sides: Mapping[str, Json], name: str) -> None:
    """Set a missing request of a resource to its limit, as the API server would."""
    if name in sides["limits"] and name not in sides["requests"]:
        requests = container["resources"].get("requests")
        container["resources"]["requests"] = {**(requests or {}), name: sides["limits"][name]}


def decimal_si(amount: int) -> str:
    """Format a number as the API server does: 1000 -> "1k", 1500 -> "1500"."""
    power = 0
    while amount and amount % 1000 == 0 and power < len(_SUFFIXES) - 1:
        amount, power = amount // 1000, power + 1
    return f"{amount}{_SUFFIXES[power]}"


def with_extended_spec(pod: Json) -> list[str]:
    """Write the annotation that lists batch resources by container; drop its old name, and return warnings.

    An annotation with equal content in any form is kept. By the protocol it lists no init containers or mid resources.
    """
    annotations = pod["metadata"].get("annotations") or {}
    warnings = []
    for old in [key for key in annotations if key in ANNOTATION_ALIASES]:
        new = ANNOTATION_ALIASES[old]
        text = _modern(annotations[old], [str(c.get("name")) for c in containers(pod, "containers")])
        rest = {key: value for key, value in annotations.items() if key != old}
        annotations = rest if text is None or new in rest else {**rest, new: text}
        pod["metadata"]["annotations"] = annotations
        because = ": its value names no container and was dropped" if text is None else "; use the new name"
        warnings.append(f"annotation {old} is an old name of {new}{because}")
    specs: dict[str, Json] = {}
    for container in containers(pod, "containers"):
        sides = {side: {n: v for n, v in amounts(container, side).items() if n in BATCH_NAMES} for side in SIDES}
        if any(sides.values()):
            specs[str(container.get("name"))] = {side: names for side, names in sides.items() if names}
    if specs:
        text_before = annotations.get(EXTENDED_SPEC_ANNOTATION)
        if text_before is None or _readable(text_before) != _comparable(specs):
            text = compact({"containers": specs})
            pod["metadata"]["annotations"] = {**annotations, EXTENDED_SPEC_ANNOTATION: text}
    return warnings


def compact(value: Json) -> str:
    """Return JSON for an annotation: without blanks, with sorted keys."""
    return msgspec.json.encode(value, order="deterministic").decode()


def _modern(text: Any, names: list[str]) -> str | None:
    """Convert an old value of the annotation to the present form; None if it does not say which container it is about.

    A flat {"cpu": "5k"} is the limit of the pod's only container.
    """
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
    """Return an annotation's amounts as numbers; None if there is nothing to compare."""
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


# --- requests and limits of the whole pod
def distribute_pod_resources(pod: Json) -> list[str]:
    """Move the pod-level cpu and memory to its containers; return warnings, also about unparsable amounts."""
    own = pod["spec"].get("resources")
    if not isinstance(own, dict) or not any(isinstance(own.get(side), dict) for side in ("requests", "limits")):
        return []
    own = {side: dict(amounts) if isinstance(amounts, dict) else amounts for side, amounts in own.items()}
    warnings = [warning for resource in Resource for warning in _distribute_resource(pod["spec"], own, resource)]
    remaining = {side: amounts for side, amounts in own.items() if amounts}
    pod["spec"] = {key: value for key, value in pod["spec"].items() if key != "resources"}
    pod["spec"] |= {"resources": remaining} if remaining else {}
    return warnings


def _distribute_resource(spec: Json, own: Json, resource: Resource) -> list[str]:
    """Divide the pod-level amounts of a resource among its containers, unless unparsable; return a warning."""
    totals = {side: own[side][resource] for side in ("requests", "limits") if resource in (own.get(side) or {})}
    # Main containers, then sidecars: those that run at the same time.
    inits = [c for c in spec.get("initContainers") or () if isinstance(c, dict) and c.get("restartPolicy") == "Always"]
    together = [*(c for c in spec.get("containers") or () if isinstance(c, dict)), *inits]
    if not totals or not together:
        return []
    try:
        parsed = {side: parse_amount(resource, total) for side, total in totals.items()}
        own_requests, limits = ([_named_amount(c, side, resource) for c in together] for side in ("requests", "limits"))
    except QuantityError as error:
        return [f"the pod-level {resource} was not translated to batch or mid: {error.message}"]
    requests = _shared_requests(own_requests, limits, parsed.get("requests", parsed.get("limits", 0)))
    if "limits" in parsed:
        # Limits of which those not named are the request and an equal part of what the others leave of the total.
        total = parsed["limits"]
        takers = [i for i, limit in enumerate(limits) if limit is None]
        shares = [requests[i] if limit is None else limit for i, limit in enumerate(limits)]
        for place, part in zip(takers, _parts(max(total - sum(shares), 0), len(takers)), strict=True):
            shares[place] += part
        limits = list[int | None](shares)
    for container, request, limit in zip(together, requests, limits, strict=True):
        _write(container, "requests", resource, request)
        _write(container, "limits", resource, limit)
    for side in totals:
        del own[side][resource]
    return [f"the pod's own {resource} (spec.resources) was divided among its containers"]


def _shared_requests(requests: Sequence[int | None], limits: Sequence[int | None], total: int) -> list[int]:
    """Return requests whose sum is the total, as far as the containers' own limits allow.

    What the containers' own requests leave is divided equally among those without a request; else it goes to the first
    one without a limit; else to each up to its limit, in order.
    """
    shares = [int(effective_request(*amounts)) for amounts in zip(requests, limits, strict=True)]
    rest = max(total - sum(shares), 0)
    free = [i for i, limit in enumerate(limits) if limit is None]
    takers = [i for i in free if requests[i] is None] or free[:1]
    for place, part in zip(takers, _parts(rest, len(takers)), strict=True):
        shares[place] += part
    for place, limit in enumerate(limits if not takers else ()):
        more = min(rest, max((limit or 0) - shares[place], 0))
        shares[place], rest = shares[place] + more, rest - more
    return shares


def _parts(total: int, count: int) -> list[int]:
    """Divide a whole number into `count` nearly equal parts, larger ones first."""
    return [total // count + (index < total % count) for index in range(count)] if count else []


def _named_amount(container: Json, side: str, resource: Resource) -> int | None:
    quantities = amounts(container, side)
    return parse_amount(resource, quantities[resource]) if resource in quantities else None


def _write(container: Json, side: str, resource: Resource, amount: int | None) -> None:
    resources = container.get("resources") or {}
    quantities = resources.get(side) or {}
    if amount is not None:
        same = resource in quantities and parse_amount(resource, quantities[resource]) == amount
        text = quantities[resource] if same else format_amount(resource, amount)
        container["resources"] = {**resources, side: {**quantities, resource.value: text}}
