"""The methods by which a change can reach the pods: which are possible, which to suggest, what each writes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from cotenant.changes.decide.field_changes import annotated, planned, quiet
from cotenant.changes.decide.in_place import NEW_PODS, RESIZE, pod_writes, refusal
from cotenant.changes.model.annotated_resources import KINDS
from cotenant.changes.model.change import Write
from cotenant.changes.model.service import Method
from cotenant.recommender.model.recommendation import Recommendation

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MethodContext:
    """The facts that decide which methods can change a workload: its running `pods`, and what the cluster supports.

    `resizes` says whether the API server has `pods/resize`, `webhook` why new pods would not get annotated values (""
    if they would). `gitops` is the label or annotation key by which a GitOps tool owns the workload, `operator` the
    object from which an operator writes the template; "" without one.
    """

    live: Json
    recommendations: tuple[Recommendation, ...]
    pods: Sequence[Json] = ()
    resizes: bool = True
    webhook: str = ""
    gitops: str = ""
    operator: str = ""

    @property
    def kind(self) -> str:
        """The workload's kind."""
        return self.recommendations[0].container.workload.kind

    @property
    def quiet(self) -> bool:
        """True if changing the workload's template does not replace running pods."""
        return quiet(self.live, self.kind)


def impossible(subject: MethodContext) -> dict[Method, str]:
    """Return the methods that are not possible, each with the reason."""
    reasons: dict[Method, str] = {}
    if subject.operator:
        why = f"an operator overwrites the workload's template: change {subject.operator}"
        reasons |= {Method.TEMPLATE: why, Method.BUNDLE: why}
    workload = subject.recommendations[0].container.workload
    if not subject.resizes:
        reasons[Method.IN_PLACE] = "this API server cannot resize running pods: it needs Kubernetes 1.33 or newer"
    elif why := refusal(workload, subject.pods, subject.recommendations):
        reasons[Method.IN_PLACE] = why
    if any(recommendation.gpu for recommendation in subject.recommendations):
        why = f"a pod keeps its GPUs for its whole life, so a new pod is needed: use {NEW_PODS}"
        return reasons | {Method.IN_PLACE: why, Method.ANNOTATE: why}
    if any(recommendation.heap for recommendation in subject.recommendations):
        why = f"the container's maximum heap changes too, which needs a new pod: use {NEW_PODS}"
        return reasons | {Method.IN_PLACE: why, Method.ANNOTATE: why}
    if subject.quiet or subject.kind not in KINDS:
        reasons[Method.ANNOTATE] = f"changing its template already leaves running pods as they are: use {NEW_PODS}"
    return reasons


def suggest_method(subject: MethodContext, cannot: Collection[Method]) -> Method:
    """Return the suggested method; `cannot` are the methods that are `impossible`.

    For a workload of an operator, it is in-place if possible, else annotate. For any other workload of a GitOps tool it
    is bundle. For the rest it is in-place if that is possible and new pods get the values as well, else template.
    """
    if subject.operator:
        return next((m for m in (Method.IN_PLACE, Method.ANNOTATE) if m not in cannot), Method.ANNOTATE)
    if subject.gitops:
        return Method.BUNDLE
    in_place = Method.IN_PLACE not in cannot and (subject.quiet or not subject.webhook)
    return Method.IN_PLACE if in_place else Method.TEMPLATE


def writes(subject: MethodContext, method: Method, change: str) -> list[Write]:
    """Return the writes of a method, pods first; empty if every value is already set.

    Raise UsageError if a container is gone. For a bundle, the write shows the resulting template.
    """
    recommendations = subject.recommendations
    if method is Method.ANNOTATE:
        candidates = [annotated(subject.live, recommendations, change)]
    elif method is Method.IN_PLACE:
        later = planned if subject.quiet and not subject.operator else annotated
        candidates = [*pod_writes(subject.pods, recommendations), later(subject.live, recommendations, change)]
    else:
        candidates = [planned(subject.live, recommendations, change)]
    return [write for write in candidates if write is not None]


def waves(writes: Sequence[Write], share: float) -> tuple[list[Write], list[Write]]:
    """Return one workload's writes to its canary pods, and the others; no canary with `share` 0 or a single pod."""
    pods = [write for write in writes if write.subresource == RESIZE]
    first = min(max(1, ceil(share * len(pods))), len(pods) - 1)
    if share <= 0 or first < 1:
        return [], list(writes)
    return pods[:first], [write for write in writes if write not in pods[:first]]


def first_of(count: int, share: float) -> int:
    """Return how many of `count` workloads change first: at least one, not all; all if `share` is 0 or `count` is 1."""
    if share <= 0 or count < 2:
        return count
    return min(max(1, ceil(share * count)), count - 1)
