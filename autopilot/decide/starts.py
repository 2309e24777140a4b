"""More CPU for pods while they start, by in-place resize, and back when they are ready. Pure.

How much a container uses in its first minutes is known from its portrait, which keeps that phase apart. A start goes on
until the pod has been ready for a minute, so that a pod without a readiness or start-up probe has none; one that takes
longer than the portraits' start-up phase is taken back as well, and what its node can never give. A resize that the
node has put off waits: it is granted once something on the node ends. What was given to a pod once is not given to it
again. Times are Unix times.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from cotenant.autopilot.model import AutopilotEvent
from cotenant.base.cluster import Container, ContainerRole
from cotenant.base.errors import UsageError
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.kubernetes.intent import Patch
from cotenant.base.kubernetes.moments import moment_of
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.changes.decide import in_place
from cotenant.changes.decide.checks.capacity import containers
from cotenant.changes.decide.field_changes import holds_values, inverse
from cotenant.changes.model.change import Write
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value

QUIET_SECONDS: Final = 60.0
"""How long a pod has to be ready before its start is over."""
LEAST_RISE: Final = 1.1
"""A smaller share more is not worth two writes."""
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StartAim:
    """The CPU that starting pods of a workload may have.

    uid: the workload's; highest_millicores: most CPU used in the starts of each container; factor: times its request
    that a container may be given at most.
    """

    workload: WorkloadRef
    uid: str
    highest_millicores: Mapping[str, int]
    factor: float


@dataclass(frozen=True, slots=True)
class PodBoost:
    """The CPU given to one pod: the workload, the write that gave it, and since when (Unix time)."""

    workload: WorkloadRef
    write: Write
    begun_seconds: float

    @property
    def uid(self) -> str:
        """The uid of the pod."""
        return self.write.uid


@dataclass(frozen=True, slots=True)
class BoostStep:
    """One thing to do and to write down. patch: None where there is nothing to send; words: why."""

    event: AutopilotEvent
    boost: PodBoost
    patch: Patch | None
    words: str


def highest_starts(recommendations: Iterable[Recommendation]) -> dict[str, int]:
    """Most CPU that starts of each container used, millicores; containers whose starts were not seen are left out."""
    highest = {}
    for recommendation in recommendations:
        request = recommendation.value(Resource.CPU, Field.REQUEST)
        used = request.inputs.get("startup_max") if request is not None else None
        if recommendation.role is ContainerRole.MAIN and isinstance(used, int | float) and used > 0:
            highest[recommendation.container.container] = int(used)
    return highest


def beginnings(
    pods: Iterable[Json], aim: StartAim, spared: Collection[str], now_seconds: float, longest_seconds: float
) -> Iterator[BoostStep]:
    """Yield steps that give CPU to starting pods; spared: uids of pods that had it, or that a change has resized."""
    for pod in in_place.live_workload_pods(pods, aim.workload, aim.uid):
        age_seconds = now_seconds - _seconds((pod.get("status") or {}).get("startTime"), now_seconds)
        # Whether a container of the pod runs; before that there is nothing to speed up.
        statuses: Sequence[Json] = (pod.get("status") or {}).get("containerStatuses") or ()
        is_starting = (
            any("running" in (status.get("state") or {}) for status in statuses)
            and ready_since(pod) is None
            and age_seconds < longest_seconds
        )
        if not is_starting or pod["metadata"]["uid"] in spared:
            continue
        advised = (_startup_recommendation(container, aim) for container in containers(pod["spec"]))
        raises = [recommendation for recommendation in advised if recommendation is not None]
        if raises and not in_place.refusal(aim.workload, [pod], raises):
            for write in in_place.pod_writes([pod], raises):
                boost = PodBoost(aim.workload, write, now_seconds)
                patch = Patch(write.address, write.operations, write.subresource, "the pod starts")
                yield BoostStep(AutopilotEvent.BOOSTED, boost, patch, f"pod {write.address.name} starts")


def endings(
    pods: Iterable[Json], boosts: Iterable[PodBoost], now_seconds: float, longest_seconds: float
) -> Iterator[BoostStep]:
    """Boosts that are over; a clock that went back ends none early.

    A pod that somebody has changed since, or that never got it, keeps what it has.
    """
    live = {str(pod["metadata"].get("uid")): pod for pod in pods}
    for boost in boosts:
        pod = live.get(boost.uid)
        ready = None if pod is None else ready_since(pod)
        if pod is None:
            words = "the pod is gone"
        elif ready is not None and now_seconds - ready >= QUIET_SECONDS:
            words = "the pod is ready"
        elif now_seconds - boost.begun_seconds >= longest_seconds:
            words = f"its start takes longer than {longest_seconds / 60:.0f} minutes"
        else:
            answer = in_place.answer(pod, boost.write)
            words = answer.sentence if answer.answer is in_place.ResizeOutcome.INFEASIBLE else ""
        if not words:
            continue
        patch = None
        if pod is not None and holds_values(pod, boost.write):
            operations = inverse(boost.write, pod, "")
            patch = Patch(boost.write.address, operations, boost.write.subresource, words)
        elif pod is not None:
            words = f"{words}; it does not have what was given"
        yield BoostStep(AutopilotEvent.BOOST_ENDED, boost, patch, words)


def ready_since(pod: Json) -> float | None:
    """Since when a pod is ready; None while it is not."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    ready = next((c for c in conditions if c.get("type") == "Ready" and c.get("status") == "True"), None)
    return None if ready is None else _seconds(ready.get("lastTransitionTime"), 0.0)


def details_of(boost: PodBoost) -> dict[str, str]:
    """The body of its rows in the ledger."""
    return {"pod": boost.write.address.name, "uid": boost.uid, "write": msgspec.json.encode(boost.write).decode()}


def boost_of(subject: str, seconds: float, details: Mapping[str, str]) -> PodBoost | None:
    """The boost of a row; None for a row that cannot be read."""
    try:
        write = msgspec.json.decode(details.get("write", ""), type=Write)
        namespace, kind, name = subject.split("/")
    except (ValueError, *UNDECODABLE):
        return None
    return PodBoost(WorkloadRef(namespace, kind, name), write, seconds)


def _startup_recommendation(container: Container, aim: StartAim) -> Recommendation | None:
    """The CPU that a container gets for its start; None where it has enough, or no request to begin with."""
    request, limit = container.effective_requests.get(Resource.CPU), container.limits.get(Resource.CPU)
    highest = aim.highest_millicores.get(container.name, 0)
    if container.role is not ContainerRole.MAIN or not request:
        return None
    target = min(highest, int(request * aim.factor))
    present = {Field.REQUEST: request, Field.LIMIT: limit}
    if not any(now is not None and target >= now * LEAST_RISE for now in present.values()):
        return None
    values = tuple(
        Value(Resource.CPU, field, now, target, Action.SET, Reason.OK)
        for field, now in present.items()
        if now is not None and target > now
    )
    ref = ContainerRef(aim.workload, container.name)
    return Recommendation(ref, "start-up", 1, values, 0, "", 0, role=ContainerRole.MAIN)


def _seconds(text: Any, missing: float) -> float:
    try:
        moment = moment_of(text, "a time of a pod")
    except UsageError:
        return missing
    return missing if moment is None else moment
