"""Requests and limits of a whole pod (`spec.resources`) shared out among its containers. Pure.

Kubernetes takes cpu, memory and huge pages there and nothing else, so a pod-level amount cannot become batch or mid
capacity under its own name. Before translation it is given to the containers that run together, so that their sum is
what the pod asked for. Source: Kubernetes documentation, "Assign Pod-level CPU and memory resources".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cotenant.base.errors import QuantityError
from cotenant.base.kubernetes.pod_request import effective_request
from cotenant.base.kubernetes.quantity import format_amount, parse_amount
from cotenant.base.resource import Resource

Json = dict[str, Any]


def distribute_pod_resources(pod: Json) -> list[str]:
    """Move the pod's own cpu and memory to its containers; warnings. The pod may be written on.

    An amount that cannot be read stays where it is, with a warning.
    """
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
    """Write the pod's own amounts of one resource to its containers and remove them; returns a warning, or none.

    Containers keep what they ask for, the rest of the pod's amount is shared among them. Amounts that cannot be
    read change nothing.
    """
    totals = {side: own[side][resource] for side in ("requests", "limits") if resource in (own.get(side) or {})}
    # Main containers, then sidecars: those that run at the same time.
    inits = [c for c in spec.get("initContainers") or () if isinstance(c, dict) and c.get("restartPolicy") == "Always"]
    together = [*(c for c in spec.get("containers") or () if isinstance(c, dict)), *inits]
    if not totals or not together:
        return []
    try:
        parsed = {side: parse_amount(resource, total) for side, total in totals.items()}
        own_requests, limits = ([_amount(c, side, resource) for c in together] for side in ("requests", "limits"))
    except QuantityError as error:
        return [f"the pod's own {resource} was not translated: {error.message}"]
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
    """Requests whose sum is the total, as far as the containers' own limits let them grow.

    What the containers' own requests leave goes, in equal parts, to those that name nothing; else to the first one
    without a limit; else to each up to its limit, in order.
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
    """A whole number in `count` nearly equal parts, larger ones first."""
    return [total // count + (index < total % count) for index in range(count)] if count else []


def _amount(container: Json, side: str, resource: Resource) -> int | None:
    """None: the container names none."""
    quantities = (container.get("resources") or {}).get(side) or {}
    return parse_amount(resource, quantities[resource]) if resource in quantities else None


def _write(container: Json, side: str, resource: Resource, amount: int | None) -> None:
    resources = container.get("resources") or {}
    quantities = resources.get(side) or {}
    if amount is not None:
        same = resource in quantities and parse_amount(resource, quantities[resource]) == amount
        text = quantities[resource] if same else format_amount(resource, amount)
        container["resources"] = {**resources, side: {**quantities, resource.value: text}}
