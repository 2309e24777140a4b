"""EDGE: pods that must leave: asked by the API server, and while memory runs out ended by the container runtime.

    decided.evictions --admitted--> Evictor (Eviction API) --refused, no answer, nobody to ask--> ContainerStopper (CRI)
    decided.urgent, while the API server has not been heard of for long -----------------------> ContainerStopper

The second way is there only where `enforcer.stop_containers` is on, only for pods labelled BE, and only while the very
tick still says that memory runs out: the kernel would otherwise choose a victim, and it may be anybody. A disruption
budget is no reason to let it. What is done is told with the reason that the API server gave.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from cotenant.core.model.kubernetes.intent import Create
from cotenant.core.settings.sections.node.enforcer import EnforcerSettings
from enforcer.apply.eviction_queue import EvictionQueue
from enforcer.contract import Evict, Observation, PodSpec
from enforcer.decide.evictions import EvictionBudget, Rate, admitted, request_of
from enforcer.decide.loop import AgentMode, TickDecision

UNANSWERED_SECONDS: Final = 5.0
"""An API server that has not answered an urgent eviction by then does not keep the runtime from it."""
ReportEviction = Callable[[Evict, str, str, float, PodSpec | None], None]
"""Reports (eviction, outcome, message, Unix time, pod): `ActionReporter.evicted`."""


@dataclass(slots=True)
class PodEvictions:
    """For the agent's thread. evictor: None without an API server; stopper: None while the settings do not want it."""

    settings: EnforcerSettings
    report: ReportEviction
    evictor: EvictionQueue[Create] | None = None
    stopper: EvictionQueue[str] | None = None
    _admission: EvictionBudget = field(default_factory=EvictionBudget)
    _unanswered: dict[str, tuple[Evict, float]] = field(default_factory=dict)
    """Urgent evictions that the API server was asked for, by uid, and when (monotonic)."""

    def start(self) -> None:
        """Begin to ask."""
        for queue in (self.evictor, self.stopper):
            if queue:
                queue.start()

    def stop(self) -> None:
        """Ask no more."""
        for queue in (self.evictor, self.stopper):
            if queue:
                queue.stop()

    def step(self, decided: TickDecision, observation: Observation) -> None:
        """One tick: report the outcome of earlier evictions, request those that are admitted now."""
        pods = {pod.spec.uid: pod.spec for pod in observation.pods}
        urgent = {eviction.uid for eviction in decided.urgent}
        self._hear(pods, urgent, observation)
        for eviction, at in [*self._unanswered.values()]:
            if observation.at_seconds - at >= UNANSWERED_SECONDS:
                del self._unanswered[eviction.uid]
                if eviction.uid in urgent:
                    why = f"the API server has not answered for {UNANSWERED_SECONDS:.0f} s"
                    self._end(eviction, pods.get(eviction.uid), why, observation.wall_seconds)
        away = decided.mode is AgentMode.HOLD
        evictions = decided.urgent if away and self._may_stop else decided.evictions
        rate = Rate(self.settings.evictions_per_minute, self.settings.evictions_burst)
        chosen = admitted(evictions, pods, self._admission, observation.at_seconds, rate) if evictions else None
        self._admission = chosen.asked if chosen else self._admission
        for eviction in chosen.now if chosen else ():
            if away:
                why = "the API server has not been heard of for long"
                self._end(eviction, pods[eviction.uid], why, observation.wall_seconds)
            else:
                self._ask(eviction, pods[eviction.uid], observation)

    @property
    def _may_stop(self) -> bool:
        return self.stopper is not None or (self.settings.stop_containers and self.settings.dry_run)

    def _hear(self, pods: Mapping[str, PodSpec], urgent: set[str], observation: Observation) -> None:
        for answer in self.evictor.answers() if self.evictor else ():
            eviction, pod = answer.eviction, pods.get(answer.eviction.uid)
            self._unanswered.pop(eviction.uid, None)
            self.report(eviction, answer.outcome, answer.message, observation.wall_seconds, pod)
            if answer.outcome == "refused" and eviction.uid in urgent:
                self._end(eviction, pod, answer.message, observation.wall_seconds)
        for answer in self.stopper.answers() if self.stopper else ():
            pod = pods.get(answer.eviction.uid)
            self.report(answer.eviction, answer.outcome, answer.message, observation.wall_seconds, pod)

    def _ask(self, eviction: Evict, pod: PodSpec, observation: Observation) -> None:
        if self.settings.dry_run:
            self.report(eviction, "would-ask", "", observation.wall_seconds, pod)
        elif self.evictor is None:
            why = "there is no API server to ask"
            self.report(eviction, "refused", why, observation.wall_seconds, pod)
            if eviction.urgent:
                self._end(eviction, pod, why, observation.wall_seconds)
        else:
            if eviction.urgent:
                self._unanswered[eviction.uid] = (eviction, observation.at_seconds)
            self.evictor.put(eviction, request_of(eviction, self.settings.eviction_grace_seconds))

    def _end(self, eviction: Evict, pod: PodSpec | None, because: str, now_seconds: float) -> None:
        """By the runtime, where the settings want it; a pod that leaves already needs none."""
        if pod is None or pod.deleting or not self._may_stop:
            return
        if self.stopper is None:
            self.report(eviction, "would-stop", because, now_seconds, pod)
        else:
            self.stopper.put(eviction, because)
