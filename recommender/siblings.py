"""Siblings: workloads with a longer history, by which the request of a young workload may be raised. Pure.

A sibling has the same namespace, kind and container, and the same name except for versions and roll-out tracks
(`checkout-v2` or `checkout-green` beside `checkout`). In another namespace the same name may mean another program, and
one team's needs must not appear in another's explanations. What is known of a sibling is the previous analysis's
proposal. A prior is the largest amount that the siblings' own demand requires. There is none if the evidence disagrees:

- requests or running replicas differ more than twofold (siblings of other sizes may do something else),
- the remaining siblings require amounts more than twofold apart,
- the young workload's samples require more than the sibling's whole history, which they contradict, or less than half
  of it, so that it may be of another size.

A prior only raises a request; lowering one requires the workload's own history.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import isfinite
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.kubernetes.quantity import format_millicores, human_bytes
from cotenant.base.resource import MIB, Resource
from cotenant.recommender.base import rounded_up
from cotenant.recommender.evidence import Evidence, Floats
from cotenant.recommender.model.recommendation import Action, Field, Recommendation
from cotenant.recommender.model.sibling import SIBLING_INPUT, Family, Sibling, family

SETTLED_DAYS: Final = 7.0
"""Days of history from which a container needs no prior, and may be one. One week: each weekday was seen once."""
LEAST_DAYS: Final = 0.25
"""Days of its own without which no prior is given. A quarter of a day: less cannot contradict anything."""
AGREEMENT: Final = 2.0
"""How many times as large one may be as the other where both are of the same size: requests, replicas, amounts."""


class Prior(NamedTuple):
    """The older sibling workload whose history a young container may use, or None, and a sentence that says why."""

    sibling: Sibling | None
    sentence: str


class Young(NamedTuple):
    """One resource of a container with a short history; amounts in the resource's unit, request NaN = not set."""

    resource: Resource
    amount: int
    request: float
    replicas: int


def siblings_of(recommendations: Iterable[Recommendation]) -> Iterator[Sibling]:
    """Yield a Sibling, with its demand, for each proposed request of a container with at least a week of history.

    Left out are resources with a leak, those that an autoscaler scales on, and amounts raised by a sibling: they say
    little about a pod of another workload.
    """
    for recommendation in recommendations:
        for resource in Resource:
            value = recommendation.value(resource, Field.REQUEST)
            if value is None or value.action is not Action.SET or value.amount is None:
                continue
            days = float(value.inputs.get("days", 0.0))
            if days >= SETTLED_DAYS and not {SIBLING_INPUT, "hpa", "leak_bytes_per_day"} & value.inputs.keys():
                yield Sibling(
                    recommendation.container,
                    resource,
                    value.clamps[0].before if value.clamps else value.amount,
                    days,
                    value.now or recommendation.present_limits.get(resource, 0),
                    recommendation.replicas,
                    recommendation.end_seconds,
                )


def related_families(siblings: Iterable[Sibling], containers: Iterable[ContainerRef]) -> dict[Family, list[Sibling]]:
    """Return the siblings of these containers by key (`family`), without keys that belong to a single workload."""
    owners: dict[Family, WorkloadRef | None] = {}
    for container in containers:
        name, workload = family(container), container.workload
        owners[name] = workload if owners.get(name, workload) == workload else None
    families: dict[Family, list[Sibling]] = defaultdict(list)
    for sibling in siblings:
        name = family(sibling.container)
        if name in owners and owners[name] != sibling.container.workload:
            families[name].append(sibling)
    return dict(families)


def priors(
    evidence: Evidence, resource: Resource, wanted_amounts: Floats, days: Floats, closed: npt.NDArray[np.bool_]
) -> dict[int, Prior]:
    """Return by position the prior (sibling history that may be used) of each young container that has siblings.

    `wanted_amounts` is each container's own demand in the resource's unit, `days` the length of its history; `closed`
    is true for containers that must not use a sibling's history. All three have one value per container.
    """
    requests = evidence.effective_request(resource)
    young = ~closed & (days >= LEAST_DAYS) & (days < SETTLED_DAYS) & (wanted_amounts > 0)
    priors_found: dict[int, Prior] = {}
    for index in np.flatnonzero(young).tolist():
        ref = evidence.containers[index]
        siblings_known = (s for s in evidence.siblings.get(family(ref), ()) if s.resource is resource)
        others = [sibling for sibling in siblings_known if sibling.container.workload != ref.workload]
        if others:
            amount = rounded_up(float(wanted_amounts[index]), 1 if resource is Resource.CPU else MIB)
            own = Young(resource, amount, float(requests[index]), evidence.replicas(index))
            priors_found[index] = prior(own, others)
    return priors_found


def prior(young: Young, siblings: Sequence[Sibling]) -> Prior:
    """Return the sibling with the largest demand as the prior, or, if the evidence disagrees, a reason for none."""
    resource, request = young.resource, young.request if isfinite(young.request) else 0.0
    # Those of which neither the request nor the number of pods speaks against the same size.
    as_large = (s for s in siblings if not _is_apart(request, s.request) and not _is_apart(young.replicas, s.replicas))
    alike = sorted(as_large, key=lambda s: (-s.amount, str(s.container)))
    if not alike:
        nearest = min(siblings, key=lambda s: str(s.container))
        return Prior(None, f"{resource}: sibling {nearest}, is not used: its request or replica count differs too much")
    largest, smallest = alike[0], alike[-1]
    asks = f"{resource}: sibling {largest}, needs {_amount(resource, largest.amount)}"
    if _is_apart(largest.amount, smallest.amount):
        other = f"sibling {smallest}, needs {_amount(resource, smallest.amount)}"
        return Prior(None, f"{asks}; {other}: the two disagree, so neither sibling is used")
    own = _amount(resource, young.amount)
    if young.amount > largest.amount:
        return Prior(None, f"{asks}: not used, because this container's own short history already needs {own}")
    if _is_apart(largest.amount, young.amount):
        return Prior(None, f"{asks}: not used, because this container's own short history needs less than half, {own}")
    return Prior(largest, f"{asks}: used; this container's own history needs only {own}")


def for_next_analysis(
    new_siblings: Iterable[Sibling], before: Iterable[Sibling], present: Iterable[WorkloadRef], since_seconds: int
) -> Iterator[Sibling]:
    """Yield the siblings to store for the next analysis: the new ones, and earlier ones of workloads that are gone.

    A renamed workload has its history under its old name. `present` are the existing workloads, whose earlier siblings
    are dropped; so are siblings whose history ended before `since_seconds`.
    """
    present_refs = frozenset(present)
    yield from new_siblings
    yield from (s for s in before if s.container.workload not in present_refs and s.end_seconds >= since_seconds)


def _is_apart(first: float, second: float) -> bool:
    """Return whether both amounts are known and one is more than `AGREEMENT` times the other."""
    return min(first, second) > 0 and max(first, second) > AGREEMENT * min(first, second)


def _amount(resource: Resource, amount: int) -> str:
    return format_millicores(amount) if resource is Resource.CPU else human_bytes(amount)
