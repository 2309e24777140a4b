"""EDGE: evictions through the API server, and, while memory runs out, through the container runtime.

    decided.evictions --admitted--> Evictor (Eviction API) --refused, no answer, no server--> ContainerStopper (CRI)
    decided.urgent, while the API server has not answered for a long time -----------------> ContainerStopper
    refusals --> Observation.eviction_refusals of the next decision, which chooses another pod

The runtime is used only if `enforcer.stop_containers` is on, only for pods labelled BE, and only while the current tick
says that memory runs out: otherwise the kernel would choose a victim, which may be any process. So it is used despite a
disruption budget. The report has the reason that the API server gave.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cotenant.base.kubernetes.intent import Create
from cotenant.enforcer.apply.eviction_worker import EvictionAnswer, EvictionQueue
from cotenant.enforcer.contract import Evict, Observation, PodSpec, RefusedEviction
from cotenant.enforcer.decide.evictions import (
    EvictionBudget,
    Rate,
    RefusedPod,
    admit_evictions,
    after_refusal,
    request_of,
    unfit,
)
from cotenant.enforcer.decide.loop import AgentMode, TickDecision
from cotenant.enforcer.settings import EnforcerSettings

EVICTION_GRACE_SECONDS: Final = -1
"""Grace period of evictions in seconds; -1 = the pod's own with `Evict.by_api_only`, else AT_ONCE_SECONDS."""
UNANSWERED_SECONDS: Final = 5.0
"""Time without an answer of the API server to an urgent eviction after which the runtime is used."""
ReportEviction = Callable[[Evict, str, str, float, PodSpec | None], None]
"""Reports (eviction, outcome, message, Unix time, pod): `ActionReporter.evicted`."""


@dataclass(slots=True)
class PodEvictions:
    """Requests evictions by the API server (`evictor`) or runtime (`stopper`), None if not used; reports outcomes."""

    settings: EnforcerSettings
    report: ReportEviction
    evictor: EvictionQueue[Create] | None = None
    stopper: EvictionQueue[str] | None = None
    _admission: EvictionBudget = field(default_factory=EvictionBudget)
    _unanswered: dict[str, tuple[Evict, float]] = field(default_factory=dict)
    """Urgent evictions that were requested from the API server, by uid, and when (monotonic)."""
    _to_end: list[EvictionAnswer] = field(default_factory=list)
    """Urgent evictions that the API server refused since the last decision, and that the runtime may carry out."""
    _resting: dict[str, RefusedPod] = field(default_factory=dict)
    """Pods whose eviction was refused, by uid, as long as they are there."""

    def start(self) -> None:
        """Start the threads that evict and stop pods."""
        for queue in (self.evictor, self.stopper):
            if queue:
                queue.start()

    def stop(self) -> None:
        """Stop the threads that evict and stop pods."""
        for queue in (self.evictor, self.stopper):
            if queue:
                queue.stop()

    def refusals(self, observation: Observation) -> dict[str, RefusedEviction]:
        """Report new answers and return the refused evictions, by pod uid, that may not be requested again yet.

        An urgent eviction that is refused is passed to the runtime if the settings allow it, and counts as refused only
        once memory no longer runs out, or the runtime refuses too.
        """
        pods = {pod.spec.uid: pod.spec for pod in observation.pods}
        for answer in self.evictor.answers() if self.evictor else ():
            self._take(answer, pods.get(answer.eviction.uid), observation)
        for answer in self.stopper.answers() if self.stopper else ():
            pod = pods.get(answer.eviction.uid)
            self.report(answer.eviction, answer.outcome, answer.message, observation.wall_seconds, pod)
            if answer.outcome == "not-stopped":
                self._note_refusal(answer, observation)
        self._resting = {uid: refusal for uid, refusal in self._resting.items() if uid in pods}
        return {
            uid: RefusedEviction(refusal.until_seconds, refusal.why)
            for uid, refusal in self._resting.items()
            if observation.at_seconds < refusal.until_seconds
        }

    def step(self, decided: TickDecision, observation: Observation) -> None:
        """Do one tick's work: report outcomes of earlier evictions, and request those that are admitted now."""
        self.refusals(observation)
        pods = {pod.spec.uid: pod.spec for pod in observation.pods}
        urgent = {eviction.uid for eviction in decided.urgent}
        self._end_refused(pods, urgent, observation)
        for eviction, at in [*self._unanswered.values()]:
            if observation.at_seconds - at >= UNANSWERED_SECONDS:
                del self._unanswered[eviction.uid]
                if eviction.uid in urgent:
                    why = f"the API server has not answered for {UNANSWERED_SECONDS:.0f} s"
                    self._end(eviction, pods.get(eviction.uid), why, observation.wall_seconds)
        away = decided.mode is AgentMode.HOLD
        evictions = decided.urgent if away and self._may_stop else decided.evictions
        admitted: Sequence[Evict] = ()
        if evictions:
            chosen = admit_evictions(evictions, pods, self._admission, observation.at_seconds, self._rate)
            self._admission, admitted = chosen.asked, chosen.now
        for eviction in admitted:
            spec = pods[eviction.uid]
            if away:
                why = "the API server has not answered for a long time"
                self._end(eviction, spec, why, observation.wall_seconds)
            elif self.settings.dry_run:
                self.report(eviction, "would-ask", "", observation.wall_seconds, spec)
            elif self.evictor is None:
                why = "no API server is configured"
                self._take(EvictionAnswer(eviction, "refused", why, answered=False), spec, observation)
                self._end_refused({spec.uid: spec}, {eviction.uid}, observation)
            else:
                if eviction.urgent:
                    self._unanswered[eviction.uid] = (eviction, observation.at_seconds)
                self.evictor.put(eviction, request_of(eviction, EVICTION_GRACE_SECONDS))
        for eviction in evictions:
            pod = pods.get(eviction.uid)
            if pod is not None and not pod.deleting and (why := unfit(eviction, pod)):
                self._note_refusal(EvictionAnswer(eviction, "refused", why), observation)

    @property
    def _rate(self) -> Rate:
        return Rate(self.settings.evictions_per_minute, self.settings.evictions_burst)

    @property
    def _may_stop(self) -> bool:
        return self.stopper is not None or (self.settings.stop_containers and self.settings.dry_run)

    def _take(self, answer: EvictionAnswer, pod: PodSpec | None, observation: Observation) -> None:
        """Report the API server's answer; if it evicted no pod, return the token to the rate limit.

        An urgent refused eviction is left to the runtime if that is permitted; else it is not requested for a while.
        """
        self._unanswered.pop(answer.eviction.uid, None)
        self.report(answer.eviction, answer.outcome, answer.message, observation.wall_seconds, pod)
        if answer.answered and answer.outcome in ("refused", "gone"):
            self._admission = self._admission.return_token(self._rate)
        if answer.outcome == "refused":
            if answer.eviction.urgent and self._may_stop:
                self._to_end.append(answer)
            else:
                self._note_refusal(answer, observation)
        elif answer.outcome == "asked":
            self._resting.pop(answer.eviction.uid, None)

    def _note_refusal(self, answer: EvictionAnswer, observation: Observation) -> None:
        """Request no eviction of the pod for a while, which gets longer with each refusal in a row."""
        uid = answer.eviction.uid
        self._resting[uid] = after_refusal(
            self._resting.get(uid),
            answer.message,
            observation.at_seconds,
            answered=answer.answered,
            retry_after_seconds=answer.retry_after_seconds,
        )

    def _end_refused(self, pods: Mapping[str, PodSpec], urgent: set[str], observation: Observation) -> None:
        """End urgent pods whose eviction the API server refused through the runtime; the others count as refused."""
        answers, self._to_end = self._to_end, []
        for answer in answers:
            if answer.eviction.uid in urgent:
                self._end(answer.eviction, pods.get(answer.eviction.uid), answer.message, observation.wall_seconds)
            else:
                self._note_refusal(answer, observation)

    def _end(self, eviction: Evict, pod: PodSpec | None, because: str, now_seconds: float) -> None:
        """End a pod through the runtime, if the settings allow it; a pod that is already leaving needs no action."""
        if pod is None or pod.deleting or not self._may_stop:
            return
        if self.stopper is None:
            self.report(eviction, "would-stop", because, now_seconds, pod)
        else:
            self.stopper.put(eviction, because)
