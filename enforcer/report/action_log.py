"""EDGE: reports each action with its reason as a line of the action log, a metric and an Event.

The log is `actions.jsonl` in the state folder; at its maximum size it becomes `actions.jsonl.1`. A verdict is reported
if it is new or a minute has passed, and repeated Events form one series, so that a tick per second makes few of them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Final

import msgspec
import structlog
from msgspec.structs import replace
from prometheus_client import Counter, Gauge, Histogram

from cotenant.base.kube import EventRecorder, EventSubject, Regarding
from cotenant.base.logs.metrics import Metrics
from cotenant.base.resource import MILLICORES_PER_CORE
from cotenant.enforcer.contract import Evict, Observation, PodSpec, Surface, SurfaceWant, Verdict
from cotenant.enforcer.decide.changes import Done, WriteOutcome
from cotenant.enforcer.decide.loop import AgentMode
from cotenant.enforcer.model.enforcement import ACT_ANNOTATION, NUMBERS, LaneSample
from cotenant.enforcer.report.acts import ASKED, BAD, EVENT_REASONS, EVICTION_REASONS, REFUSED, Verdicts, act_of
from cotenant.enforcer.report.status import LAST_ACTIONS, ActionRecord, action_of, paths_of, stamp
from cotenant.enforcer.strategies.eviction.victims import TaskName

LOG_FILE: Final = "actions.jsonl"
LOG_CAP_BYTES: Final = 16 << 20
TICK_BUCKETS_SECONDS: Final = (0.002, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


class AgentMetrics:
    """The agent's metrics for Prometheus; no label has a uid, so that the number of time series stays small."""

    def __init__(self, metrics: Metrics) -> None:
        self.registry = at = metrics.registry
        self.ticks = Counter("cotenant_enforcer_ticks_total", "Ticks by outcome.", ["outcome"], registry=at)
        self.ticks.labels("done")  # before the first tick: an alert sees an agent that has never ended one
        self.duration = Histogram(
            "cotenant_enforcer_tick_duration_seconds",
            "Time from the beginning of a tick to its last write.",
            buckets=TICK_BUCKETS_SECONDS,
            registry=at,
        )
        self.actions = Counter(
            "cotenant_enforcer_actions_total",
            "Values set, restored or refused.",
            ["strategy", "knob", "outcome"],
            registry=at,
        )
        self.evictions = Counter(
            "cotenant_enforcer_evictions_total", "Eviction requests, by outcome.", ["strategy", "outcome"], registry=at
        )
        for task in TaskName:  # an increase counts the first eviction only of a series that was 0 before it
            self.evictions.labels(task, ASKED)
        self.verdicts = Counter(
            "cotenant_enforcer_verdicts_total", "Findings that need a person's attention.", ["reason"], registry=at
        )
        self.held = Gauge("cotenant_enforcer_held_values", "Cgroup values that are enforced.", registry=at)
        self.mode = Gauge("cotenant_enforcer_mode", "1 for the mode the agent is in.", ["mode"], registry=at)
        self.ages = Gauge("cotenant_enforcer_age_seconds", "Age of the agent's inputs.", ["what"], registry=at)
        self.cpu = Gauge(
            "cotenant_enforcer_cpu_cores",
            "The node's CPU in the last tick, in cores: capacity; used by others and by best_effort; target and limit "
            "of best effort (NaN = none); burst granted beyond limits.",
            ["node", "of"],
            registry=at,
        )
        self.dry_run = Gauge("cotenant_enforcer_dry_run", "1 if the agent is in a dry run.", ["node"], registry=at)
        self.late = Counter("cotenant_enforcer_ticks_missed_total", "Ticks that were skipped.", registry=at)

    def state(self, mode: AgentMode, observation: Observation, overridden_knobs: int) -> None:
        """Set the gauges of one tick: the mode, the ages of the inputs, and the number of overridden values."""
        for agent_mode in AgentMode:
            self.mode.labels(agent_mode.value).set(agent_mode is mode)
        self.ages.labels("policy").set(min(observation.policy_age_seconds, 1e9))
        self.ages.labels("pods").set(min(observation.pods_age_seconds, 1e9))
        self.held.set(overridden_knobs)

    def lanes(self, node: str, now: LaneSample, dry_run: bool) -> None:
        """Set the gauges of the node's CPU in one tick, in cores; NaN for a value that is not known or not set."""
        for name in ("capacity", *NUMBERS):
            amount = getattr(now, name)
            self.cpu.labels(node, name).set(math.nan if amount is None else amount / MILLICORES_PER_CORE)
        self.dry_run.labels(node).set(dry_run)


class ActionReporter:
    """Reports the agent's actions, for use by its thread; Events are written only if there is a `recorder`."""

    def __init__(
        self, folder: Path, metrics: AgentMetrics, recorder: EventRecorder | None, node: str, dry_run: bool
    ) -> None:
        """Create a reporter that writes its log in `folder`, which must exist."""
        self.actions: deque[ActionRecord] = deque(maxlen=LAST_ACTIONS)
        self.error = ""
        """Why the log cannot be written, or empty."""
        self._log = _Log(folder / LOG_FILE)
        self._metrics, self._recorder, self._node, self._dry_run = metrics, recorder, node, dry_run
        self._lines = structlog.get_logger(__name__)
        self._verdicts = Verdicts()
        self._surfaces: dict[tuple[Surface, str], SurfaceWant] = {}
        self._errors: dict[Surface, list[str]] = {}

    def done(self, results: Iterable[Done], observation: Observation | None, now_seconds: float) -> None:
        """Report cgroup writes with their outcomes; repeated results are only counted. `now_seconds` is Unix time."""
        results = list(results)
        if not results:
            return
        owners = {path: pod.spec for pod in observation.pods for path in paths_of(pod)} if observation else {}
        for result in results:
            self._metrics.actions.labels(result.strategy, result.knob.value, result.outcome.value).inc()
            if result.repeated or result.outcome is WriteOutcome.GONE:
                continue
            pod = owners.get(result.path)
            action = action_of(result, stamp(now_seconds), pod.key if pod else "", self._dry_run)
            self._keep(action)
            before = "" if result.before is None else f" (was {result.before})"
            verbs = {WriteOutcome.WOULD_WRITE: "would set", WriteOutcome.RESTORED: "restores"}
            what = f"{verbs.get(result.outcome, 'sets')} {result.knob.value} of {result.path} to {result.value}"
            text = f"{result.strategy} {what}{before}: {result.why}"
            # The identity of a write for Events, which leaves out the value.
            template = f"{result.strategy} {result.knob.value} {result.outcome.value}"
            note = f"{text}. {result.outcome.value}: {result.message}" if result.message else text
            reason = EVENT_REASONS.get(result.outcome, "ValueChanged")
            self._event(pod, reason, note, template, action, result.outcome in BAD)

    def evicted(self, eviction: Evict, outcome: str, message: str, now_seconds: float, pod: PodSpec | None) -> None:
        """Report an eviction that was requested, would be requested, or was refused; `now_seconds` is Unix time."""
        self._metrics.evictions.labels(eviction.strategy, outcome).inc()
        key = f"{eviction.namespace}/{eviction.name}"
        action = ActionRecord(stamp(now_seconds), "evict", key, outcome, eviction.strategy, eviction.why, pod=key)
        action = replace(action, message=message, dry_run=self._dry_run)
        self._keep(action)
        note = f"{eviction.strategy}: {eviction.why}" + (f" ({message})" if message else "")
        reason = EVICTION_REASONS.get(outcome, REFUSED)
        self._event(pod, reason, note, f"{eviction.strategy} {outcome}", action, warning=True)

    def surface(self, surface: Surface, wants: Iterable[SurfaceWant], errors: list[str], now_seconds: float) -> None:
        """Report changes of the settings outside cgroups (`Surface`): new wants, restored ones, and errors.

        `wants` are all settings of this surface that apply now; a missing one was restored. `now_seconds` is Unix time.
        """
        now = {want.key: want for want in wants}
        for (other, key), want in [*self._surfaces.items()]:
            if other is surface and key not in now:
                del self._surfaces[surface, key]
                self._record_surface_outcome(want, WriteOutcome.RESTORED, [], now_seconds)
        news = errors != self._errors.get(surface, [])
        self._errors[surface] = errors
        set_now = WriteOutcome.WOULD_WRITE if self._dry_run else WriteOutcome.WRITTEN
        for key, want in now.items():
            before = self._surfaces.get((surface, key))
            if before is None or before.value != want.value or news:
                self._surfaces[surface, key] = want
                self._record_surface_outcome(want, WriteOutcome.FAILED if errors else set_now, errors, now_seconds)
            elif errors:  # counted at every attempt, like a cgroup's value
                self._count(want, WriteOutcome.FAILED)

    def _record_surface_outcome(
        self, want: SurfaceWant, outcome: WriteOutcome, errors: list[str], now_seconds: float
    ) -> None:
        self._count(want, outcome)
        subject, message = f"{want.surface.value}/{want.key}", "; ".join(errors)
        act = "restore" if outcome is WriteOutcome.RESTORED else "write"
        action = ActionRecord(stamp(now_seconds), act, subject, outcome.value, want.strategy, want.why)
        action = replace(action, value=want.value, message=message, dry_run=self._dry_run)
        self._keep(action)
        note = f"{want.strategy}: {subject}: {want.why}" + (f" ({message})" if message else "")
        template = f"{want.strategy} {subject} {outcome.value}"
        self._event(None, EVENT_REASONS[outcome], note, template, action, outcome in BAD)

    def _count(self, want: SurfaceWant, outcome: WriteOutcome) -> None:
        self._metrics.actions.labels(want.strategy, want.surface.value, outcome.value).inc()

    def verdicts(self, verdicts: Iterable[Verdict], observation: Observation) -> None:
        """Report the verdicts that are new, or that were not reported in the last minute."""
        pods: Mapping[str, PodSpec] | None = None
        for action, warning in self._verdicts.news(verdicts, observation):
            reason = action.outcome
            self._metrics.verdicts.labels(reason).inc()
            self._keep(action)
            pods = pods or {pod.spec.key: pod.spec for pod in observation.pods}
            self._event(pods.get(action.subject), reason, action.message, reason, action, warning)

    def close(self) -> None:
        """Close the log."""
        self._log.close()

    def _keep(self, action: ActionRecord) -> None:
        action = replace(action, node=self._node)
        self.actions.append(action)
        self._lines.info("action", **{k: v for k, v in msgspec.to_builtins(action).items() if k != "time"})
        try:
            self._log.write(msgspec.json.encode(action) + b"\n")
        except OSError as error:
            self.error = f"the action log cannot be written: {error.strerror}"
        else:
            self.error = ""

    def _event(
        self, pod: PodSpec | None, reason: str, note: str, template: str, action: ActionRecord, warning: bool
    ) -> None:
        """Send an Event about the pod, or about the node if `pod` is None; do nothing without a recorder.

        `note` is the message; a series of equal Events keeps its first message. `template` decides which Events are
        equal. An annotation has the newest action, so that the series does not hide it.
        """
        if self._recorder is None:
            return
        whom = Regarding("v1", "Pod", pod.name, pod.namespace, pod.uid) if pod else Regarding("v1", "Node", self._node)
        act = msgspec.json.encode(act_of(action, self._node, warning)).decode()
        self._recorder.record_occurrence(EventSubject(whom, reason, template, warning), note, {ACT_ANNOTATION: act})


class _Log:
    """A log file with a maximum size and one older file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None

    def write(self, line: bytes) -> None:
        if self._file is None:
            self._file = self._path.open("ab", buffering=0)
        if self._file.tell() > LOG_CAP_BYTES:
            self.close()  # whatever fails now, the next line begins with opening it
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
            self._file = self._path.open("ab", buffering=0)
        self._file.write(line)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
