"""Give pods more CPU while they start, by in-place resize, and restore the old amount when they are ready. Pure.

A container's usage in its first minutes is known from its portrait, which keeps that phase separately. A start lasts
until the pod has been ready for a minute; a pod without a readiness or start-up probe therefore has no start. The
resize is also undone if the start takes longer than the start-up phase of the portraits, and if the node can never
grant it. A resize that the node deferred waits: it is granted once something on the node ends. A pod gets more CPU only
once. Times are Unix times.
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
"""A rise by a smaller factor is not worth two writes."""
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StartAim:
    """The CPU that starting pods of a workload may have.

    `uid`: of the workload; `highest_millicores`: highest CPU usage in the starts of each container; `factor`: how many
    times its request a container may get at most.
    """

    workload: WorkloadRef
    uid: str
    highest_millicores: Mapping[str, int]
    factor: float


@dataclass(frozen=True, slots=True)
class PodBoost:
    """A temporary raise (boost) of one starting pod's CPU: the workload, the write that set it, and its Unix time."""

    workload: WorkloadRef
    write: Write
    begun_seconds: float

    @property
    def uid(self) -> str:
        """The uid of the pod."""
        return self.write.uid


@dataclass(frozen=True, slots=True)
class BoostStep:
    """The beginning or end of a pod's extra CPU, with its reason `words`; `patch` is None if nothing is written."""

    event: AutopilotEvent
    boost: PodBoost
    patch: Patch | None
    words: str


def highest_starts(recommendations: Iterable[Recommendation]) -> dict[str, int]:
    """Return the highest CPU usage, in millicores, in the starts of each main container of which a start was seen."""
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
    """Yield steps that give more CPU to starting pods; `spared` are uids of pods whose CPU was changed before."""
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
    """Yield steps that end a pod's extra CPU once it is ready or gone, starts too long, or its node refuses the CPU.

    A pod that somebody has resized since, or that never got the CPU, keeps its values.
    """
    live = {str(pod["metadata"].get("uid")): pod for pod in pods}
    for boost in boosts:
        pod = live.get(boost.uid)
        ready = None if pod is None else ready_since(pod)
        if pod is None:
            sentence = "the pod is gone"
        elif ready is not None and now_seconds - ready >= QUIET_SECONDS:
            sentence = "the pod is ready"
        elif now_seconds - boost.begun_seconds >= longest_seconds:
            sentence = f"the pod's start takes longer than {longest_seconds / 60:.0f} minutes"
        else:
            answer = in_place.answer(pod, boost.write)
            sentence = answer.sentence if answer.answer is in_place.ResizeOutcome.INFEASIBLE else ""
        if not sentence:
            continue
        patch = None
        if pod is not None and holds_values(pod, boost.write):
            operations = inverse(boost.write, pod, "")
            patch = Patch(boost.write.address, operations, boost.write.subresource, sentence)
        elif pod is not None:
            sentence = f"{sentence}; the pod no longer has the CPU that the autopilot gave it"
        yield BoostStep(AutopilotEvent.BOOST_ENDED, boost, patch, sentence)


def ready_since(pod: Json) -> float | None:
    """Return the Unix time since which a pod is ready; None if it is not ready."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    ready = next((c for c in conditions if c.get("type") == "Ready" and c.get("status") == "True"), None)
    return None if ready is None else _seconds(ready.get("lastTransitionTime"), 0.0)


def details_of(boost: PodBoost) -> dict[str, str]:
    """Return the body of the ledger rows about a pod's extra CPU."""
    return {"pod": boost.write.address.name, "uid": boost.uid, "write": msgspec.json.encode(boost.write).decode()}


def boost_of(subject: str, seconds: float, details: Mapping[str, str]) -> PodBoost | None:
    """Return the extra CPU of a starting pod that a ledger row records; None if the row cannot be read."""
    try:
        write = msgspec.json.decode(details.get("write", ""), type=Write)
        namespace, kind, name = subject.split("/")
    except (ValueError, *UNDECODABLE):
        return None
    return PodBoost(WorkloadRef(namespace, kind, name), write, seconds)


def _startup_recommendation(container: Container, aim: StartAim) -> Recommendation | None:
    """Return the CPU that a container gets for its start; None if it has enough already, or has no request."""
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
        moment = moment_of(text, "a time in a pod's status")
    except UsageError:
        return missing
    return missing if moment is None else moment
