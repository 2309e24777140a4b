"""Strategies: the protocol, the registry, and a runner that confines a failure to the workload that causes it.

`load_strategy` finds a strategy by name among the built-in ones and the entry points of group `cotenant.strategies`;
`recommend` runs it on the evidence. A strategy is a class whose constructor takes no arguments and whose only inputs
are evidence and settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from math import ceil, isfinite
from typing import Any, Final, Protocol

import numpy as np
import structlog

from cotenant.base.errors import CotenantError, SettingsError
from cotenant.base.kubernetes.quantity import LARGEST
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.settings.base import digest
from cotenant.base.text import closest_name
from cotenant.base.usage.plausible import beyond_any_node
from cotenant.base.usage.usage import Signal
from cotenant.recommender.evidence import Evidence
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value
from cotenant.recommender.settings import RecommenderSettings
from cotenant.recommender.severity import danger_alone

LONE_SAMPLE: Final = 1000.0
"""How many times all other samples of memory one may be; a slip of a unit is 1,024 times."""
GROUP: Final = "cotenant.strategies"
BUILT_IN: Final[Mapping[str, str]] = {
    "krr-simple": "cotenant.recommender.strategies.krr:KrrSimple",
    "krr-simple-limit": "cotenant.recommender.strategies.krr:KrrSimpleLimit",
    "vpa": "cotenant.recommender.strategies.vpa:Vpa",
    "cotenant": "cotenant.recommender.strategies.cotenant:Cotenant",
}


class RecommendationStrategy(Protocol):
    """A strategy: it proposes requests and limits for containers."""

    name: str

    def recommend(self, evidence: Evidence, settings: RecommenderSettings) -> list[Recommendation]:
        """Return one recommendation for each of `evidence.containers`, in the same order."""


def strategies() -> dict[str, EntryPoint]:
    """Return the entry points of all strategies by name, not yet loaded; no plug-in can replace a built-in strategy."""
    return {point.name: point for point in entry_points(group=GROUP)} | _built_in()


def _built_in() -> dict[str, EntryPoint]:
    return {name: EntryPoint(name, address, GROUP) for name, address in BUILT_IN.items()}


def load_strategy(name: str) -> RecommendationStrategy:
    """Load a strategy; raise SettingsError for an unknown name, CotenantError for a plug-in that fails to load."""
    table = _built_in()
    if name not in table:  # a search for plug-ins reads the metadata of all that is installed
        table = strategies()
    if name not in table:
        near = closest_name(name, table)
        hint = f"{f'Did you mean {near}? ' if near else ''}The strategies are {', '.join(sorted(table))}."
        raise SettingsError(f"recommender.strategy: no strategy is named {name!r}", fix=hint)
    try:
        strategy: RecommendationStrategy = table[name].load()()
    except Exception as error:
        raise CotenantError(
            f"strategy {name} ({table[name].value}) cannot be loaded: {error}", fix="Update or remove the plug-in."
        ) from error
    return strategy


def recommend(
    strategy: RecommendationStrategy, evidence: Evidence, settings: RecommenderSettings
) -> list[Recommendation]:
    """Run a strategy and return its recommendations; never raise because of a faulty workload.

    If the run fails, it is repeated on each half of the containers, until the failing ones are isolated: their values
    are withheld with reason FAILED, and the log names the cause. Values based on impossible usage are withheld as well.
    """
    try:
        recommendations = strategy.recommend(evidence, settings)
        # ValueError unless there is one recommendation for each container, in their order.
        if len(recommendations) != len(evidence):
            raise ValueError(f"{len(recommendations)} recommendations returned for {len(evidence)} containers")
        for own_recommendation, container in zip(recommendations, evidence.containers, strict=True):
            if own_recommendation.container != container:
                raise ValueError(f"recommendation returned for {own_recommendation.container} instead of {container}")
    except Exception as error:  # whatever a strategy stumbles over, the others go on
        if len(evidence) > 1:
            halves = np.array_split(np.arange(len(evidence)), 2)
            return [r for half in halves for r in recommend(strategy, evidence.take(half), settings)]
        if not len(evidence):
            return []
        name, container = strategy.name, evidence.containers[0]
        log = structlog.get_logger(__name__)
        log.error("no recommendation", strategy=name, container=str(container), error=repr(error), exc_info=error)
        failed = [withheld(r, Field.REQUEST, evidence.now(0, r, Field.REQUEST), Reason.FAILED, {}) for r in Resource]
        return [recommendation(name, evidence, 0, failed, settings)]
    # The recommendations without values of a resource of which one figure cannot be usage, by any strategy.
    workloads = [workload.ref for workload in evidence.workloads]
    garbage_checked = list(recommendations)
    for resource in Resource:
        wrong = beyond_any_node(evidence.highest_seen(resource), workloads, evidence.inventory, resource)
        if resource is Resource.MEMORY:
            wrong |= evidence.lone_sample_ratio(Signal.MEMORY_WORKING_SET_MAX) > LONE_SAMPLE
        for index in np.flatnonzero(wrong).tolist():
            values = (
                withheld(v.resource, v.field, v.now, Reason.IMPLAUSIBLE, v.inputs) if v.resource is resource else v
                for v in garbage_checked[index].values
            )
            garbage_checked[index] = replace(garbage_checked[index], values=tuple(values))
    checked = _above_heaps(garbage_checked, evidence)
    # Critical only where there is danger, whatever scale the strategy has.
    return [replace(r, values=tuple(danger_alone(value) for value in r.values)) for r in checked]


def _above_heaps(recommendations: list[Recommendation], evidence: Evidence) -> list[Recommendation]:
    """Return the recommendations without memory limits that are too small for the runtime's heap.

    Few strategies know about heaps, therefore this check. A recommendation that also changes the heap is left
    unchanged, because its strategy has sized both.
    """
    templates = [w.container(c.container) for w, c in zip(evidence.workloads, evidence.containers, strict=True)]
    heaps = {i: c.heap for i, c in enumerate(templates) if c and c.heap and recommendations[i].heap is None}
    highest = np.nan_to_num(evidence.highest_seen(Resource.MEMORY)) if heaps else ()
    checked = list(recommendations)
    for index, heap in heaps.items():
        limit = recommendations[index].value(Resource.MEMORY, Field.LIMIT)
        if limit is None or limit.action is not Action.SET or limit.amount is None:
            continue
        floor = heap.maximum_bytes + heap.rest_bytes(highest[index])
        if limit.amount < (floor if limit.now is None else min(floor, limit.now)):
            stays = withheld(limit.resource, limit.field, limit.now, Reason.HEAP, limit.inputs)
            values = tuple(stays if value is limit else value for value in recommendations[index].values)
            checked[index] = replace(recommendations[index], values=values)
    return checked


def recommendation(
    strategy: str, evidence: Evidence, index: int, values: list[Value], settings: RecommenderSettings
) -> Recommendation:
    """Return the recommendation of container `index` from its values, with the time span of its history."""
    window = evidence.window
    return Recommendation(
        container=evidence.containers[index],
        strategy=strategy,
        replicas=evidence.replicas(index),
        values=tuple(values),
        window_seconds=window.end_seconds - window.start_seconds,
        settings_digest=digest(settings),
        end_seconds=window.end_seconds,
        role=evidence.role(index),
    )


def withheld(resource: Resource, which: Field, now: int | None, reason: Reason, inputs: Mapping[str, Any]) -> Value:
    """Return a value that proposes nothing, with the reason for it."""
    return Value(resource, which, now, None, Action.WITHHELD, reason, inputs=inputs)


def display_inputs(**inputs: float | int | str) -> dict[str, float | int | str]:
    """Return the inputs of a value for display: without non-finite numbers, with whole numbers as integers."""
    shown: dict[str, float | int | str] = {}
    for name, value in inputs.items():
        if isinstance(value, str):
            shown[name] = value
        elif isfinite(value):
            shown[name] = int(value) if float(value).is_integer() else float(value)
    return shown


def rounded_up(amount: float, unit: int) -> int:
    """Return `amount`, less a float error of 1e-9 of it, rounded up to a multiple of `unit`, within 0..LARGEST."""
    return min(max(0, ceil(amount / unit * (1 - 1e-9))) * unit, LARGEST)


def proportional_limit(limit: int | None, request: int | None, proposed: int) -> int | None:
    """Return the limit in its old ratio to the request, truncated to the unit (VPA's rule); None if there is no limit.

    If no request was set, the API server had set it to the limit, so the new limit is the new request.
    """
    if not limit:
        return None
    return min(limit * proposed // request, LARGEST) if request else proposed
