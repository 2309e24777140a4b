"""The effect of LimitRanges and ResourceQuotas on a pod, as in the real server's admission plugins. Pure.

The API itself sets a missing request of a pod's container to the limit, but not in a template. A LimitRange sets
missing amounts of containers and refuses amounts out of its bounds; a ResourceQuota refuses what would exceed it. Both
check new and resized pods. Only bounds of containers, and cpu, memory and the number of pods are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from cotenant.base.errors import CotenantError
from cotenant.base.kubernetes.pod_qos import pod_qos
from cotenant.base.kubernetes.pod_request import format_quantities, parse_quantities
from cotenant.base.kubernetes.pod_wire import limits_of, requests_of
from cotenant.base.kubernetes.protocol import ENDED_PHASES
from cotenant_lab.simulation.api_server.refusal import Refusal, invalid
from cotenant_lab.simulation.api_server.schema import Json

Amounts = dict[str, int]

_COUNTED: Final = ("cpu", "memory")


def with_default_amounts(pod: Json, ranges: Iterable[Json]) -> Json:
    """Return a new pod with its containers' missing amounts: the API's defaults, then the LimitRanges'."""
    items = [item for limit_range in ranges for item in _items(limit_range)]
    spec = {key: [_with_default_amounts(c, items) for c in pod["spec"][key]] for key in _LISTS if pod["spec"].get(key)}
    return {**pod, "spec": {**pod["spec"], **spec}}


def out_of_bounds(pod: Json, ranges: Iterable[Json]) -> Refusal | None:
    """Return the API server's 403 for the first bound of these LimitRanges that a container breaks, or None."""
    for limit_range in ranges:
        for item in _items(limit_range):
            for container in (c for key in _LISTS for c in pod["spec"].get(key) or ()):
                if message := next(_limit_range_violations(container, item), ""):
                    return _forbidden_refusal(pod, message)
    return None


def used_by(pods: Iterable[Json]) -> Amounts:
    """Return the amounts that a quota counts for the pods that have not ended: pods, requests.*, limits.*."""
    total: Amounts = {}
    for pod in pods:
        if (pod.get("status") or {}).get("phase") not in ENDED_PHASES:
            for name, amount in _cost(pod).items():
                total[name] = total.get(name, 0) + amount
    return total


def over_quota(pod: Json, before: Json | None, others: Amounts, quotas: Sequence[Json]) -> Refusal | None:
    """Return the 403 of the first quota that the pod exceeds or lacks an amount for; `before`: before a resize."""
    cost, mine = _cost(pod), _cost(before) if before else {}
    for quota in quotas:
        name, hard = quota["metadata"]["name"], Amounts()  # of what is counted here, by full name
        for key, text in ((quota.get("spec") or {}).get("hard") or {}).items():
            resource = _full(key).rpartition(".")[2]
            if resource in _COUNTED:
                hard[_full(key)] = parse_quantities({resource: text})[resource]
            elif key == "pods":
                hard[key] = int(text)
        if missing := [key for key in hard if key not in cost and key != "pods"]:
            return _forbidden_refusal(pod, f"failed quota: {name}: must specify {','.join(missing)}")
        grown = [key for key in hard if cost.get(key, 0) > mine.get(key, 0)]
        over = [key for key in grown if others.get(key, 0) + cost[key] > hard[key]]
        if over:
            requested = {key: cost[key] - mine.get(key, 0) for key in over}
            used = {key: others.get(key, 0) + mine.get(key, 0) for key in over}
            detail = f"requested: {_text(requested)}, used: {_text(used)}, limited: {_text({k: hard[k] for k in over})}"
            return _forbidden_refusal(pod, f"exceeded quota: {name}, {detail}")
    return None


def other_quality(pod: Json, before: Json) -> Refusal | None:
    """Return the 422 for a resize that would change the pod's QoS class, which never changes; else None."""
    was = pod_qos(before["spec"])
    if pod_qos(pod["spec"]) == was:
        return None
    message = f'Invalid value: "{was}": Pod QOS Class may not change as a result of resizing'
    return invalid("Pod", pod["metadata"].get("name", ""), [("spec", message)])


def status_of(quota: Json, used: Amounts) -> Json:
    """Return the quota with the status that its controller writes for these used amounts."""
    hard = quota.get("spec", {}).get("hard") or {}
    shown = {name: _quantity(name, used.get(_full(name), 0)) for name in hard}
    return {**quota, "status": {"hard": dict(hard), "used": shown}}


_LISTS: Final = ("containers", "initContainers")


def _items(limit_range: Json) -> Iterator[Json]:
    for item in (limit_range.get("spec") or {}).get("limits") or ():
        if item.get("type") == "Container":
            yield item


def _with_default_amounts(container: Json, items: Sequence[Json]) -> Json:
    """A request that is not named is the default request, else the limit that the container itself names."""
    resources = container.get("resources") or {}
    limits, requests = dict(resources.get("limits") or {}), dict(resources.get("requests") or {})
    for name, amount in limits.items():
        requests.setdefault(name, amount)
    for item in items:
        for name, amount in (item.get("defaultRequest") or item.get("default") or {}).items():
            requests.setdefault(name, amount)
        for name, amount in (item.get("default") or {}).items():
            limits.setdefault(name, amount)
    sides = {key: amounts for key, amounts in (("limits", limits), ("requests", requests)) if amounts}
    return {**container, "resources": {**resources, **sides}} if sides else container


def _limit_range_violations(container: Json, item: Json) -> Iterator[str]:
    resources = container.get("resources") or {}
    requests, limits = (parse_quantities(resources.get(key) or {}) for key in ("requests", "limits"))
    for name, least in parse_quantities(item.get("min") or {}).items():
        if name not in requests:
            yield f"minimum {name} usage per Container is {item['min'][name]}.  No request is specified"
        elif requests[name] < least:
            request = resources["requests"][name]
            yield f"minimum {name} usage per Container is {item['min'][name]}, but request is {request}"
    for name, most in parse_quantities(item.get("max") or {}).items():
        if name not in limits:
            yield f"maximum {name} usage per Container is {item['max'][name]}.  No limit is specified"
        elif limits[name] > most:
            yield f"maximum {name} usage per Container is {item['max'][name]}, but limit is {resources['limits'][name]}"


def _cost(pod: Json) -> Amounts:
    cost = {"pods": 1}
    try:
        cost |= {f"requests.{n}": a for n, a in requests_of(pod["spec"]).items() if n in _COUNTED}
        cost |= {f"limits.{n}": a for n, a in limits_of(pod["spec"]).items() if n in _COUNTED}
    except CotenantError as error:
        raise Refusal(422, f'Pod "{pod["metadata"].get("name", "")}" is invalid: {error}') from error
    return cost


def _full(name: str) -> str:
    """Quotas may say `cpu` for `requests.cpu`."""
    return f"requests.{name}" if name in _COUNTED else name


def _quantity(name: str, amount: int) -> str:
    resource = _full(name).rpartition(".")[2]
    return format_quantities({resource: amount})[resource] if resource in _COUNTED else str(amount)


def _text(amounts: Amounts) -> str:
    return ",".join(f"{name}={_quantity(name, amount)}" for name, amount in sorted(amounts.items()))


def _forbidden_refusal(pod: Json, message: str) -> Refusal:
    """403 as the real server words it for a pod that an admission plugin refuses."""
    name = pod["metadata"].get("name", "")
    return Refusal(403, f'pods "{name}" is forbidden: {message}', name=name)
