"""The autoscaler target that goes with new requests: which HorizontalPodAutoscaler, from what to what. Pure.

A strategy that solves request and target together (`strategies.cotenant.autoscaler`) leaves the autoscaler's name, both
targets and the trigger among the inputs of its values. A patch that moved the request alone would move the trigger
(request x target), so it carries the target as well. Where only some of a workload's containers are patched, the target
is the one that keeps the trigger with what the requests then are.
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
"""In full: kubectl resolves the short name to the preferred version, whatever version follows it."""


@dataclass(frozen=True, slots=True)
class TargetMove:
    """An autoscaler's utilisation target before and after, percent of the request.

    `place` is where its metric is looked for among the autoscaler's metrics, a guess where only files are written; a
    patch tests that it stands there.
    """

    namespace: str
    name: str
    resource: Resource
    before: int
    after: int
    place: int

    @property
    def sentence(self) -> str:
        """The move of the autoscaler's target as a sentence for people."""
        change = f"from {self.before} % to {self.after} %"
        return f"autoscaler {self.name}: its {self.resource} target moves {change} together with these requests"

    @property
    def scalar(self) -> dict[str, int]:
        """`spec` of autoscaling/v1, whose one field leaves other metrics alone; empty for memory, which it lacks."""
        return {"targetCPUUtilizationPercentage": self.after} if self.resource is Resource.CPU else {}

    @property
    def scalar_operations(self) -> list[dict[str, Any]]:
        """JSON patch of autoscaling/v1; its test fails without such a target, so that none is added."""
        return [
            {"op": op, "path": f"/spec/{name}", "value": value}
            for name, after in self.scalar.items()
            for op, value in (("test", self.before), ("replace", after))
        ]

    @property
    def operations(self) -> list[dict[str, Any]]:
        """JSON patch of autoscaling/v2; its tests fail where the metric or its target has changed."""
        metric = f"/spec/metrics/{self.place}/resource"
        target = f"{metric}/target/averageUtilization"
        return [
            {"op": "test", "path": f"{metric}/name", "value": self.resource.value},
            {"op": "test", "path": target, "value": self.before},
            {"op": "replace", "path": target, "value": self.after},
        ]

    @property
    def command(self) -> str:
        """`kubectl patch` line for a shell."""
        version, operations = ("v1", self.scalar_operations) if self.scalar else ("v2", self.operations)
        arguments = [f"{RESOURCE}.{version}.autoscaling", self.name, "--type=json", "-p", json.dumps(operations)]
        return shlex.join(["kubectl", "patch", "-n", self.namespace, *arguments])


def moves(recommendations: Sequence[Recommendation]) -> tuple[TargetMove, ...]:
    """The targets that move with one workload's recommendations; none where nothing moves or the name is no name."""
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
    """The move at the place where the live autoscaler has the resource's utilisation; UsageError where it has none.

    A target of one container's use is no such place: its trigger is a share of that container's request alone.
    """
    metrics = (autoscaler.get("spec") or {}).get("metrics") or ()
    place = next((i for i, metric in enumerate(metrics) if _is_of(metric.get("resource"), move.resource)), None)
    if place is not None:
        return replace(move, place=place)
    who = f"autoscaler {move.namespace}/{move.name}"
    own = next((source for m in metrics if _is_of(source := m.get("containerResource"), move.resource)), None)
    if own is None:
        raise UsageError(f"{who} has no target of {move.resource} any more", fix="Scan again: cotenant scan.")
    raise UsageError(
        f"{who} follows the {move.resource} of container {own['container']} alone, not of whole pods",
        fix="Set the requests and this target by hand, together.",
    )


def _is_of(source: Mapping[str, Any] | None, resource: Resource) -> bool:
    """Return whether a metric's source is the utilisation of that resource."""
    return source is not None and source["name"] == resource and "averageUtilization" in (source.get("target") or {})


def _request(recommendation: Recommendation, resource: Resource) -> Value | None:
    """The request's value if it was solved together with an autoscaler."""
    value = recommendation.value(resource, Field.REQUEST)
    needed = ("hpa", "hpa_target_now_percent", "hpa_target_percent", f"hpa_trigger_{resource.unit}")
    return value if value is not None and all(name in value.inputs for name in needed) else None


def in_order(requests: str, target_moves: Iterable[TargetMove]) -> str:
    """One shell line: a target that rises after the requests, one that falls before them.

    Either way there are for a while more pods than needed, never fewer. Memory comes before CPU: a write through
    autoscaling/v1 puts the CPU metric behind the others, and memory's is looked for by its place.
    """
    ordered_moves = sorted(target_moves, key=lambda move: move.resource is Resource.CPU)
    falls = [move.after < move.before for move in ordered_moves]
    first = ordered_moves[: max((k + 1 for k, fall in enumerate(falls) if fall), default=0)]
    return " && ".join([*(m.command for m in first), requests, *(m.command for m in ordered_moves[len(first) :])])
