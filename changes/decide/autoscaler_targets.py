"""The autoscaler target that changes with new requests: which HorizontalPodAutoscaler, from what to what. Pure.

A strategy that computes request and target together (`strategies.cotenant.autoscaler`) puts the autoscaler's name, both
targets and the trigger (request x target) into the inputs of its values. A patch of the request alone would move the
trigger, so the patch changes the target as well. If only some of a workload's containers are patched, the target is
chosen so that the trigger stays the same with the resulting requests.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from cotenant.base.cluster import ContainerRole
from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.intent import DNS_NAME
from cotenant.base.resource import Resource
from cotenant.changes.decide.rule import STEP_RULES
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value
from cotenant.recommender.model.savings import request_now, request_then

KIND: Final = "HorizontalPodAutoscaler"
RESOURCE: Final = "horizontalpodautoscalers"
"""The full name: kubectl resolves the short one to the preferred version, whatever version follows it."""


@dataclass(frozen=True, slots=True)
class TargetMove:
    """A change of an autoscaler's utilisation target, in percent of the request.

    `place` is the expected index of the metric in the autoscaler's list; it is a guess if only files are written, and a
    patch tests it.
    """

    namespace: str
    name: str
    resource: Resource
    before: int
    after: int
    place: int

    @property
    def sentence(self) -> str:
        """The change of the autoscaler's target as a sentence for people."""
        change = f"from {self.before} % to {self.after} %"
        return f"autoscaler {self.name}: its {self.resource} target moves {change} together with the requests"

    @property
    def scalar(self) -> dict[str, int]:
        """The `spec` of autoscaling/v1 that sets this CPU target and no other metric; empty for a memory target."""
        return {"targetCPUUtilizationPercentage": self.after} if self.resource is Resource.CPU else {}

    @property
    def scalar_operations(self) -> list[dict[str, Any]]:
        """JSON patch for autoscaling/v1; its test fails if there is no such target, so that none is added."""
        return [
            {"op": op, "path": f"/spec/{name}", "value": value}
            for name, after in self.scalar.items()
            for op, value in (("test", self.before), ("replace", after))
        ]

    @property
    def operations(self) -> list[dict[str, Any]]:
        """JSON patch for autoscaling/v2; its tests fail if the metric or its target has changed."""
        metric = f"/spec/metrics/{self.place}/resource"
        target = f"{metric}/target/averageUtilization"
        return [
            {"op": "test", "path": f"{metric}/name", "value": self.resource.value},
            {"op": "test", "path": target, "value": self.before},
            {"op": "replace", "path": target, "value": self.after},
        ]

    @property
    def command(self) -> str:
        """The `kubectl patch` command line that changes the target."""
        version, operations = ("v1", self.scalar_operations) if self.scalar else ("v2", self.operations)
        arguments = [f"{RESOURCE}.{version}.autoscaling", self.name, "--type=json", "-p", json.dumps(operations)]
        return shlex.join(["kubectl", "patch", "-n", self.namespace, *arguments])


def moves(recommendations: Sequence[Recommendation]) -> tuple[TargetMove, ...]:
    """Return the autoscaler targets that change with one workload's recommendations; skip invalid autoscaler names."""
    in_question = [r for r in Resource if any(_request(recommendation, r) for recommendation in recommendations)]
    moved = []
    for place, resource in enumerate(in_question):
        solved = [(r, v) for r in recommendations if r.role is not ContainerRole.INIT and (v := _request(r, resource))]
        if not any(v.action is Action.SET and v.changes_template for _, v in solved):
            continue
        inputs, namespace = solved[0][1].inputs, recommendations[0].container.workload.namespace
        name, before = str(inputs["hpa"]), int(inputs["hpa_target_now_percent"])
        # The target of the solution; another one where containers of the pod are not among the values, or are stepped.
        trigger, after = float(inputs[f"hpa_trigger_{resource.unit}"]), int(inputs["hpa_target_percent"])
        pod_request = 100 * trigger / before
        covered_request = sum(request_now(recommendation, resource) for recommendation, _ in solved)
        complete = abs(pod_request - covered_request) <= 1 + 50 / before  # the trigger was rounded to a whole unit
        stepped = any(clamp.rule == STEP_RULES[resource] for _, v in solved for clamp in v.clamps)
        if not complete or stepped or any(v.action is not Action.SET for _, v in solved):
            total = pod_request - covered_request + sum(request_then(r, resource) for r, _ in solved)
            after = max(1, round(100 * trigger / max(total, 1.0)))
        if after != before and DNS_NAME.fullmatch(name):
            moved.append(TargetMove(namespace, name, resource, before, after, place))
    return tuple(moved)


def at_live_place(move: TargetMove, autoscaler: Mapping[str, Any]) -> TargetMove:
    """Return the change of the target with the metric's index in the live autoscaler; raise UsageError if it has none.

    A metric of a single container is not used: its trigger is a share of that container's request alone.
    """
    metrics = (autoscaler.get("spec") or {}).get("metrics") or ()
    place = next((i for i, metric in enumerate(metrics) if _is_of(metric.get("resource"), move.resource)), None)
    if place is not None:
        return replace(move, place=place)
    who = f"autoscaler {move.namespace}/{move.name}"
    own = next((source for m in metrics if _is_of(source := m.get("containerResource"), move.resource)), None)
    if own is None:
        raise UsageError(f"{who} has no target for {move.resource} any more", fix="Scan again: cotenant scan.")
    raise UsageError(
        f"{who} follows the {move.resource} of container {own['container']} alone, not of whole pods",
        fix="Set the requests and the autoscaler's target by hand, together.",
    )


def _is_of(source: Mapping[str, Any] | None, resource: Resource) -> bool:
    """Return whether a metric's source is the utilisation of the resource."""
    return source is not None and source["name"] == resource and "averageUtilization" in (source.get("target") or {})


def _request(recommendation: Recommendation, resource: Resource) -> Value | None:
    """Return the request's value if it was computed together with an autoscaler's target, else None."""
    value = recommendation.value(resource, Field.REQUEST)
    needed = ("hpa", "hpa_target_now_percent", "hpa_target_percent", f"hpa_trigger_{resource.unit}")
    return value if value is not None and all(name in value.inputs for name in needed) else None


def in_order(requests: str, target_moves: Iterable[TargetMove]) -> str:
    """Return one shell line in which lower targets are set before the command `requests`, and higher ones after it.

    This gives more pods than needed for a while, not fewer. Beside each other, memory's comes before CPU's: a write of
    CPU through autoscaling/v1 makes it the last metric, so that the expected index of memory's is 0 after it.
    """
    ordered_moves = sorted(target_moves, key=lambda move: move.resource is Resource.CPU)
    first = [move for move in ordered_moves if move.after < move.before]
    after = [replace(move, place=0) if first else move for move in ordered_moves if move not in first]
    return " && ".join([*(m.command for m in first), requests, *(m.command for m in after)])
