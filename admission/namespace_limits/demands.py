"""What LimitRanges and ResourceQuotas require of every pod in cpu and memory, and what of it a pod lacks. Pure.

A pod on reclaimed capacity names no cpu and no memory. The API server refuses it if a LimitRange has a `min`, `max` or
`maxLimitRequestRatio` of them, or if a ResourceQuota counts them, and only says that no request is specified. Here the
message names the object that requires it, and the remedy. Source: Kubernetes' plugins LimitRanger and ResourceQuota.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cotenant.admission.namespace_limits.defaults import DEFAULTED, GROUP_WORDS, RangeDefault, band_of_names
from cotenant.admission.resources import SIDES, amounts, containers
from cotenant.base.cluster import QUOTA_KEYS
from cotenant.base.kubernetes.pod_qos import PodQos, pod_qos
from cotenant.base.kubernetes.pod_request import parse_readable_quantities
from cotenant.base.problem import Problem
from cotenant.base.resource import Resource

BOUND_SIDES: Final[Mapping[str, tuple[str, ...]]] = {
    "min": ("requests",),
    "max": ("limits",),
    "maxLimitRequestRatio": SIDES,
}
"""Field of a LimitRange's item -> what a pod must name where the field names a resource."""
RANGE_FIX: Final = (
    "create the pod in a namespace whose LimitRange has only default and defaultRequest, or keep the pod's cpu "
    "and memory: put the annotation config.koordinator.sh/skip-update-resources on the profile"
)

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RangeDemand:
    """A LimitRange's bound (`field`: min, max, maxLimitRequestRatio), on the sum of a pod's containers if `of_pod`."""

    name: str
    field: str
    resource: Resource
    of_pod: bool


@dataclass(frozen=True, slots=True)
class QuotaDemand:
    """A resource that a ResourceQuota counts, such as requests.cpu; `scopes` (name, operator, values) select pods."""

    name: str
    key: str
    scopes: tuple[tuple[str, str, tuple[str, ...]], ...] = ()

    def counts(self, pod: Json) -> bool:
        """Return whether the ResourceQuota counts a pod; False if the quota has a scope that cotenant does not know."""
        for scope, operator, values in self.scopes:
            spec = pod["spec"]
            best_effort, ends = pod_qos(spec) == PodQos.BEST_EFFORT, spec.get("activeDeadlineSeconds") is not None
            scopes = {"BestEffort": best_effort, "NotBestEffort": not best_effort, "Terminating": ends}
            scopes["NotTerminating"] = not ends
            name = str(spec.get("priorityClassName") or "")
            by_class = {"In": name in values, "NotIn": name not in values}
            by_class |= {"Exists": bool(name), "DoesNotExist": not name}
            if not (by_class.get(operator, False) if scope == "PriorityClass" else scopes.get(scope, False)):
                return False
        return True


Demand = RangeDemand | QuotaDemand | RangeDefault
"""Demands of a namespace's object on pods, or defaults that it sets so that pods meet them."""
_DEFAULT_SIDES: Final = {"defaultRequest": "requests", "default": "limits"}


def demands_of_range(body: Json) -> tuple[Demand, ...]:
    """Return the bounds of one LimitRange (JSON), and the default amounts that it gives to containers."""
    name, items = str(_object(body, "metadata").get("name") or ""), _object(body, "spec").get("limits")
    items = [item for item in (items if isinstance(items, list) else ()) if isinstance(item, Mapping)]
    demands: list[Demand] = []
    for item in (item for item in items if item.get("type") == "Container"):
        for field, side in _DEFAULT_SIDES.items():
            entry = _object(item, field)
            default_amounts = parse_readable_quantities({key: entry[key] for key in DEFAULTED if key in entry})
            demands += (RangeDefault(name, side, resource, amount) for resource, amount in default_amounts.items())
    demands += (
        RangeDemand(name, field, resource, item["type"] == "Pod")
        for item in items
        if item.get("type") in ("Container", "Pod")
        for field in BOUND_SIDES
        for resource in Resource
        if resource in _object(item, field)
    )
    return tuple(demands)


def demands_of_quota(body: Json) -> tuple[Demand, ...]:
    """Return the resources that one ResourceQuota (JSON) counts, and so requires of every pod in its scopes."""
    name, spec = str(_object(body, "metadata").get("name") or ""), _object(body, "spec")
    selected = _object(spec, "scopeSelector").get("matchExpressions")
    scopes: list[tuple[str, str, tuple[str, ...]]] = [(str(scope), "Exists", ()) for scope in spec.get("scopes") or ()]
    for selector in selected or ():
        values = tuple(str(v) for v in selector.get("values") or ())
        scopes.append((str(selector.get("scopeName")), str(selector.get("operator")), values))
    return tuple(QuotaDemand(name, key, tuple(scopes)) for key in QUOTA_KEYS if key in _object(spec, "hard"))


def refusals(pod: Json, demands: Iterable[Demand]) -> list[Problem]:
    """Return the LimitRange bounds that a pod on reclaimed capacity violates because it names no cpu or memory."""
    band = band_of_names(pod)
    if band is None:
        return []
    problems = []
    for demand in demands:
        if isinstance(demand, RangeDemand) and (lacking := _missing_path(pod, demand)):
            bound = f"{demand.field} of {demand.resource}" + (" for pods" if demand.of_pod else "")
            message = f"has {band} resources and names no {demand.resource}; LimitRange {demand.name} has a {bound}"
            problems.append(Problem(lacking, str(pod["metadata"].get("name") or ""), message, RANGE_FIX))
    return problems


def quota_warnings(pod: Json, demands: Iterable[Demand]) -> Iterator[str]:
    """Yield a warning, with the remedy, for each ResourceQuota that will refuse a pod on reclaimed capacity."""
    band = band_of_names(pod)
    names: dict[str, list[str]] = {}
    for demand in demands:
        if band is not None and isinstance(demand, QuotaDemand) and demand.counts(pod):
            resource, of_limits = QUOTA_KEYS[demand.key]
            side = "limits" if of_limits else "requests"
            if any(resource not in amounts(c, side) for c in containers(pod, *GROUP_WORDS)):
                names.setdefault(demand.name, []).append(demand.key)
    for name, keys in names.items():
        yield f"quota {name} requires {', '.join(keys[:2])} of {band} pods: add scope NotBestEffort (docs/webhooks.md)"


def _missing_path(pod: Json, demand: RangeDemand) -> str:
    """Return the path of the first container's requests or limits that lack what a LimitRange demands; "" for none."""
    for side in BOUND_SIDES[demand.field]:
        all_of_them = [
            (f"spec.{group}[{index}].resources.{side}", demand.resource in amounts(container, side))
            for group in reversed(GROUP_WORDS)
            for index, container in enumerate(containers(pod, group))
        ]
        missing = [path for path, is_named in all_of_them if not is_named]
        if missing and (not demand.of_pod or len(missing) == len(all_of_them)):
            return missing[-1] if demand.of_pod else missing[0]
    return ""


def _object(body: Any, key: str) -> Mapping[str, Any]:
    value = body.get(key) if isinstance(body, Mapping) else None
    return value if isinstance(value, Mapping) else {}
