"""EDGE: the agent of one node: observe, decide, apply and report in each tick, and restore all values at the end.

    sources --AgentInputs--> observer --Observation--> loop.decide --TickDecision--> applier, evictor, reporter

A missed tick is skipped: rates are computed over the time that really passed. An error in a tick is reported and ends
only that tick. An agent without permission to write continues to observe and report, and is not ready.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog

from cotenant.base.allocation.topology_document import NodeCpus
from cotenant.base.colocation.nodemetric import CollectPolicy
from cotenant.base.errors import CotenantError, NodeUnreadable
from cotenant.base.json_documents.inherited import inherited_fields
from cotenant.base.kubernetes.intent import Apply
from cotenant.base.kubernetes.pod_resources import PodLevelResources
from cotenant.base.process.clock import Clock
from cotenant.base.process.files import replace_atomically
from cotenant.enforcer.apply.apply import Applier
from cotenant.enforcer.apply.journal import OriginalValues
from cotenant.enforcer.apply.pod_evictions import PodEvictions
from cotenant.enforcer.apply.resctrlfs import ResctrlKeeper
from cotenant.enforcer.apply.sysctl import SysctlKeeper
from cotenant.enforcer.apply.traffic import TrafficKeeper
from cotenant.enforcer.contract import Observation, PodSpec, Strategy, StrategyPlan
from cotenant.enforcer.decide.changes import wants_of
from cotenant.enforcer.decide.cpu_bandwidth import ratio_of
from cotenant.enforcer.decide.loop import AgentMode, Ages, Memory, TickDecision, decide
from cotenant.enforcer.decide.unsupported import find_unsupported
from cotenant.enforcer.model.node_policy import NodePolicy
from cotenant.enforcer.observe.cpusets import beside_static_kubelet
from cotenant.enforcer.report.action_log import ActionReporter, AgentMetrics
from cotenant.enforcer.report.acts import sample_of
from cotenant.enforcer.report.recorder import TickRecorder
from cotenant.enforcer.report.status import FILE, NodeStatus, status
from cotenant.enforcer.report.suppressed import SuppressionHistory, note, withdrawal
from cotenant.enforcer.report.topology_writer import MachineCpus, node_cpus
from cotenant.enforcer.report.usage import UsageHistory, node_metric
from cotenant.enforcer.settings import EnforcerSettings
from cotenant.enforcer.sources.sources import AgentInputs, Sources

if TYPE_CHECKING:
    from cotenant.enforcer.assembly import KubeletTreeReader

STARTUP_SECONDS: Final = 5.0
"""How long a starting agent waits for pods and policy before its first tick; values in force are kept meanwhile. A list
of one node's pods arrives within a second."""
STATUS_SECONDS: Final = 5.0
OLDEST: Final = 1e9
"""Largest age that is reported, because JSON has no infinity."""
BATCH: Final = "be-totals"
"""The strategy that maintains the values that a runtime hook sets when a container is created."""
DEAD_SECONDS: Final = 60.0
"""Without a tick for this time, and for at least ten ticks, only a restart of the agent helps."""


@dataclass(slots=True)
class AgentComponents:
    """The components of an agent. `recorder` is None unless recording is enabled."""

    settings: EnforcerSettings
    clock: Clock
    sources: Sources
    node_reader: KubeletTreeReader
    knob_writer: Applier
    originals: OriginalValues
    strategies: tuple[Strategy[Any], ...]
    metrics: AgentMetrics
    reporter: ActionReporter
    evictions: PodEvictions
    recorder: TickRecorder | None = None
    surfaces: tuple[ResctrlKeeper | SysctlKeeper | TrafficKeeper, ...] = ()
    monotonic: Callable[[], float] = time.monotonic


@dataclass(slots=True)
class _Last:
    """The observation and the decision of the last successful tick."""

    at_seconds: float
    observation: Observation
    decided: TickDecision
    inputs: AgentInputs = field(default_factory=AgentInputs)


class Agent:
    """The agent of one node; one thread uses it, except for the methods that are documented as thread-safe."""

    def __init__(self, parts: AgentComponents) -> None:
        settings = parts.settings
        self.parts = parts
        self.wrong = "no tick yet"
        """Why the last tick did not do its work, or empty."""
        self._ages = Ages(settings.policy_ttl_seconds, settings.release_seconds, settings.pods_ttl_seconds)
        self._memory, self._usage = Memory(wants=wants_of(parts.originals.notes)), UsageHistory()
        self._held_back = SuppressionHistory()
        self._last: _Last | None = None
        self._lock = threading.Lock()
        self._status_at = -float("inf")
        self._began_at = parts.monotonic()
        self._log = structlog.get_logger(__name__)

    # --- life --------------------------------------------------------------------------------------------------------
    def run(
        self,
        wait: Callable[[float], bool],
        hands_over: Callable[[], bool] = lambda: False,
        to_stranger: Callable[[], bool] = lambda: False,
    ) -> None:
        """Run a tick per interval until `wait(seconds)` returns True; then `end` restores values or hands them over."""
        parts = self.parts
        parts.sources.start()
        parts.evictions.start()
        every, now = parts.settings.tick_seconds, parts.monotonic
        try:
            if self._wait_for_sources(wait):
                return
            due = now()
            while True:  # on a grid; ticks whose time has passed are left out. A wait that ends early is a tick between
                self.tick()
                missed = int((now() - due) // every)
                if missed > 0:
                    parts.metrics.late.inc(missed)
                if missed >= 0:  # else the runtime has woken us before the time
                    due += every * (missed + 1)
                if wait(max(0.0, due - now())):
                    return
        finally:
            self.end(hands_over(), to_stranger())

    def _wait_for_sources(self, wait: Callable[[float], bool]) -> bool:
        """Wait until all sources are read; return whether the end was requested first. No value is restored yet."""
        until = self.parts.monotonic() + STARTUP_SECONDS
        while not self.parts.sources.wait(0.0) and self.parts.monotonic() < until:
            if wait(0.1):
                return True
        return False

    def run_two_ticks(self) -> None:
        """Run a tick and, if it succeeds, another: usage is the difference of two readings; the caller calls `end`."""
        self.parts.sources.start()
        self._wait_for_sources(_sleep)
        if self.tick():
            _sleep(self.parts.settings.tick_seconds)
            self.tick()

    def end(self, hands_over: bool = False, to_stranger: bool = False) -> None:
        """Restore every value, or leave values to the next agent; then stop the threads, which may take long.

        `hands_over` means that another agent waits to take over: every value stays in force and in the journal.
        `to_stranger` means that the other agent cannot read this agent's journal: the values on best effort stay,
        because the other agent recognises them without a journal, and all other values are restored.
        """
        parts, last = self.parts, self._last
        try:
            if hands_over:
                if to_stranger and last is not None:
                    # Wanting best effort's values alone restores all others, as far as the last tick saw the node.
                    root = last.observation.best_effort_root
                    within = "" if root is None else f"{root.path}/"
                    wants_kept = tuple(w for w in last.decided.wants if within and f"{w.path}/".startswith(within))
                    done = parts.knob_writer.apply([StrategyPlan(wants_kept)], last.observation)
                    parts.reporter.done(done, last.observation, parts.clock.now_seconds())
                    self._restore_surfaces()
                self._log.info("handed over", values=len(parts.knob_writer.overridden_knobs))
            else:
                self.restore()
        finally:
            parts.sources.stop()
            parts.evictions.stop()
            if parts.recorder:
                parts.recorder.close()
            parts.reporter.close()
            parts.node_reader.close()

    def restore(self) -> None:
        """Restore the original value of every setting that the agent has changed."""
        parts, observation = self.parts, self._last.observation if self._last else None
        done = parts.knob_writer.restore()
        parts.reporter.done(done, observation, parts.clock.now_seconds())
        self._restore_surfaces()

    def _restore_surfaces(self) -> None:
        for controller in self.parts.surfaces if not self.parts.settings.dry_run else ():
            for wrong in controller.restore():
                self._log.warning("not given back", error=wrong)

    # --- one tick ----------------------------------------------------------------------------------------------------
    def tick(self) -> bool:
        """Run one tick (observe, decide, apply, report) and return whether it succeeded; never raise."""
        started = self.parts.monotonic()
        try:
            self._tick(started)
        except NodeUnreadable as error:
            self._fail("skipped", error.message)
        except (CotenantError, OSError) as error:
            self._fail("failed", str(error))
        except Exception as error:  # noqa: BLE001 - an agent that dies would leave its values behind
            self._log.exception("tick failed")
            self._fail("failed", f"{type(error).__name__}: {error}")
        else:
            self.wrong = ""
            self.parts.metrics.ticks.labels("done").inc()
        self.parts.metrics.duration.observe(self.parts.monotonic() - started)
        return not self.wrong

    def _tick(self, started: float) -> None:
        parts = self.parts
        inputs = parts.sources.read()
        observation = with_ages(parts.node_reader.read(inputs, parts.knob_writer.overridden_knobs), inputs)
        observation = replace(observation, eviction_refusals=parts.evictions.refusals(observation))
        before = self._memory
        decided, self._memory = decide(observation, inputs.policy, before, parts.strategies, self._ages)
        unexplained_before = parts.knob_writer.unexplained
        results = parts.knob_writer.apply([StrategyPlan(wants=decided.wants)], observation)
        for text in parts.knob_writer.unexplained if parts.knob_writer.unexplained != unexplained_before else ():
            self._log.warning("a value of unknown origin is not changed", value=text)
        with self._lock:
            self._usage.take(observation)
            self._last = _Last(started, observation, decided, inputs)
        for controller in parts.surfaces:
            own = [want for want in decided.surfaces if want.surface is controller.surface]
            wrong = [] if parts.settings.dry_run else controller.apply(own)
            parts.reporter.surface(controller.surface, own, wrong, observation.wall_seconds)
        parts.evictions.step(decided, observation)
        parts.reporter.done(results, observation, observation.wall_seconds)
        parts.reporter.verdicts(decided.verdicts, observation)
        parts.metrics.state(decided.mode, observation, len(parts.knob_writer.overridden_knobs))
        sample = sample_of(observation, decided)
        parts.metrics.lanes(observation.node.name, sample, parts.settings.dry_run)
        self._held_back = self._held_back.after(sample, observation.best_effort_root, observation.elapsed_seconds)
        if parts.recorder is not None:
            try:
                parts.recorder.record(observation, inputs.policy, decided, before, self._ages)
            except OSError as error:
                self._log.error("recording ended", error=str(error))
                parts.recorder = None
        if started - self._status_at < STATUS_SECONDS:
            return
        self._status_at = started
        path = Path(parts.settings.state_dir) / FILE
        try:
            replace_atomically(path, msgspec.json.encode(self.status()), on_disk=False)
        except OSError as error:
            self._log.warning("status not saved", error=str(error))

    def _fail(self, outcome: str, why: str) -> None:
        self.parts.metrics.ticks.labels(outcome).inc()
        if why != self.wrong:
            self._log.error("tick " + outcome, error=why)
        self.wrong = why

    # --- for others --------------------------------------------------------------------------------------------------
    def status(self) -> NodeStatus | None:
        """Return the response of the endpoint /status; None before the first successful tick. Thread-safe."""
        with self._lock:
            last = self._last
        if last is None:
            return None
        parts = self.parts
        policy = last.inputs.policy
        return status(
            last.observation,
            last.decided,
            parts.originals.notes,
            dry_run=parts.settings.dry_run,
            ready=self.not_ready(),
            policy_origin=last.inputs.policy_origin,
            strategies=tuple(strategy.name for strategy in parts.strategies),
            notes=(*last.inputs.notes, *parts.originals.complaints, *parts.knob_writer.unexplained),
            last_actions=tuple(parts.reporter.actions),
            unsupported=find_unsupported(policy, last.observation, parts.settings.kernel_reserves) if policy else (),
        )

    def container_policy(self) -> tuple[NodePolicy, float] | None:
        """Return the policy and CPU normalization ratio that apply to a container being created; thread-safe.

        Return None if there is no policy, the policy was given up, or strategy `be-totals` is off: the agent's ticks
        would not set anything on the container either.
        """
        with self._lock:
            last = self._last
        running = {strategy.name for strategy in self.parts.strategies}
        if last is None or last.inputs.policy is None or last.decided.mode is AgentMode.RELEASE or BATCH not in running:
            return None
        return last.inputs.policy, ratio_of(last.observation.node)

    def admitted(self, pod: PodSpec) -> PodSpec:
        """Return a pod that the runtime reports, with containers and claims from the API server if known; thread-safe.

        CPUs that an annotation assigns are removed if the kubelet assigns CPUs itself, or may do so.
        """
        with self._lock:
            last = self._last
        if last and last.observation.node.kubelet_static_cpus is not False:
            pod = beside_static_kubelet(pod)
        api_pod = next((other for other in last.inputs.pods if other.uid == pod.uid), None) if last else None
        if api_pod is None:
            return pod
        return replace(
            pod,
            resources_known=True,
            containers=api_pod.containers,
            init_containers=api_pod.init_containers,
            ephemeral_containers=api_pod.ephemeral_containers,
            claims=api_pod.claims,
            **inherited_fields(api_pod, PodLevelResources),
        )

    def report(self, policy: CollectPolicy) -> Apply | None:
        """Return the patch of the NodeMetric's status; None before the first successful tick. Thread-safe."""
        with self._lock:
            self._usage.keep_seconds = policy.longest_seconds
            return node_metric(self._last.observation, self._usage, policy) if self._last else None

    def note(self) -> Apply | None:
        """Return the patch of the Node's suppression annotation; None if up to date or not known yet. Thread-safe."""
        last, history = self._last, self._held_back
        return note(last.inputs.node.name, history, last.inputs.node.annotations) if last else None

    def note_withdrawal(self) -> Apply | None:
        """Return the patch that takes the suppression annotation from the Node; None if it has none. Thread-safe."""
        last = self._last
        return withdrawal(last.inputs.node.name, last.inputs.node.annotations) if last else None

    def cpus(self, machine: MachineCpus) -> NodeCpus | None:
        """Return the owner of each of the machine's CPUs; None before the first successful tick. Thread-safe."""
        last = self._last
        return node_cpus(last.observation, machine) if last else None

    def node_uid(self) -> str:
        """Return the uid of the Node object; empty before it was read. Thread-safe."""
        last = self._last
        return last.inputs.node.uid if last else ""

    def not_ready(self) -> str:
        """Return why the agent does not do its work; empty if it does."""
        last = self._last
        reasons = (
            self.wrong,
            self.parts.knob_writer.denied,
            self.parts.reporter.error,
            "no policy was received" if last and last.inputs.policy is None else "",
            "the policy is stale" if last and last.decided.mode is AgentMode.HOLD else "",
        )
        return "; ".join(reason for reason in reasons if reason)

    def dead(self) -> str:
        """Return the problem that only a restart would fix; "" if there is none."""
        since = self.parts.monotonic() - (self._last.at_seconds if self._last else self._began_at)
        limit = max(DEAD_SECONDS, 10 * self.parts.settings.tick_seconds)
        return f"no tick has succeeded for {since:.0f} s: {self.wrong}" if since > limit else ""


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def with_ages(observation: Observation, inputs: AgentInputs) -> Observation:
    """Return the observation with its inputs' ages and the forecast; drop pods known from disk that have no cgroup."""
    pods_recalled = "pods" in inputs.recalled
    return replace(
        observation,
        pods=tuple(pod for pod in observation.pods if pod.group is not None) if pods_recalled else observation.pods,
        recalled=inputs.recalled,
        policy_age_seconds=min(inputs.policy_age_seconds, OLDEST),
        pods_age_seconds=min(inputs.pods_age_seconds, OLDEST),
        forecast=inputs.forecast,
    )
