"""Compute the queue of a round: which workloads change now, in which order, and why each of the others waits. Pure.

Workloads whose memory or CPU must rise at once come first: memory after an OOM kill, then CPU after throttling. The
others are ordered by worth x confidence. A workload that shares nodes or a namespace with changes that soak moves back,
so that possible harm is not concentrated in one place. Limits are those of each workload's policy and of the ceiling.
Times are Unix times; a time in the future, after a clock went back, counts as now.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from cotenant.autopilot.decide.halt import AcceptRefusal, Halt
from cotenant.autopilot.decide.history import ActState, PastAct, failed_acts, restarts
from cotenant.autopilot.decide.policy import PolicyLimits
from cotenant.autopilot.decide.starts import StartAim
from cotenant.autopilot.model import RISING_AT_ONCE, AutopilotMode, QueueVerdict, RoundTotals
from cotenant.autopilot.settings import Way
from cotenant.base.identity import WorkloadRef
from cotenant.base.reasons import SENTENCES, Reason
from cotenant.base.resource import Resource
from cotenant.base.text import counted, in_time
from cotenant.base.usage.usage import HOUR_SECONDS
from cotenant.changes.decide.change_windows import is_open, next_opening_text
from cotenant.changes.model.change import ChangeState, ChangeStatus
from cotenant.changes.model.settings import ActionSettings
from cotenant.recommender.model.recommendation import Confidence, Recommendation, Trust
from cotenant.recommender.model.savings import Savings, joined_savings, savings_of

GIVEN_UP_AFTER: Final = 3
BACK_OFF_FACTOR: Final = 4.0
BUNDLED_WHILE_WAITING: Final = (Reason.AUTOPILOT_KEPT_BY_GITOPS, Reason.AUTOPILOT_QUEUE_FULL)


@dataclass(frozen=True, slots=True)
class QueueCandidate:
    """One workload with a recommendation, under one policy.

    `worth`: worth of the change, not negative, comparable between workloads; `confidence`: the lowest score, 0..1, of
    its recommendations, with its `confidence_reason`; `moved`: net change of the requests over all pods, in the
    resource's unit; `lowers`: the step lowers some value; `urgent`: the change only raises this resource, after an OOM
    kill or harmful throttling; `blocked`: the reason why the workload itself must not change, with a sentence;
    `allowed`: recommendations with the values that the policy allows; `digest`: of the proposed amounts; `starts`: the
    CPU that its starting pods may have, None if none is helped; `first`: the proposed step; `gitops`: the evidence of a
    GitOps tool, "" if none.
    """

    workload: WorkloadRef
    policy: str
    mode: AutopilotMode
    limits: PolicyLimits
    worth: float = 0.0
    confidence: float = 0.0
    confidence_reason: str = ""
    moved: Mapping[Resource, int] = field(default_factory=dict)
    lowers: bool = False
    urgent: Resource | None = None
    blocked: tuple[Reason, str] | None = None
    allowed: tuple[Recommendation, ...] = ()
    digest: str = ""
    starts: StartAim | None = None
    first: tuple[Recommendation, ...] = ()
    gitops: str = ""

    @property
    def savings(self) -> Savings:
        """The requests and money that the proposed step saves (`frees`) and adds (`raises`), summed over all pods."""
        return savings_of(self.first)

    @property
    def trust(self) -> Trust:
        """The lowest confidence of its recommendations, and the reason for it."""
        return Trust(self.confidence, (self.confidence_reason,) if self.confidence_reason else ())

    @property
    def score(self) -> float:
        """The change's worth times its confidence (0..1), by which the queue is ordered."""
        return self.worth * self.confidence

    @property
    def may_act(self) -> bool:
        """True if exactly one policy selects the workload and that policy is in mode Act."""
        is_contested = self.blocked is not None and self.blocked[0] is Reason.AUTOPILOT_TWO_POLICIES
        return self.mode is AutopilotMode.ACT and not is_contested


@dataclass(frozen=True)
class RoundInputs:
    """The inputs of the decisions of a round.

    `busy`: workloads with a change that soaks or a pod with extra CPU for its start; `cool_downs`: until when a
    workload's requests are not cut; `left_alone`: why a workload is left alone; `cleared_seconds`: when it was resumed;
    `places`: nodes of its pods; `at_once`: most changes in the cluster that soak at once; `back_off_seconds`: pause
    after the first harm; `actions`: settings of changes; `refusals`: last refusal by workload.
    """

    now_seconds: float
    candidates: tuple[QueueCandidate, ...] = ()
    acts: tuple[PastAct, ...] = ()
    busy: frozenset[WorkloadRef] = frozenset()
    cool_downs: Mapping[WorkloadRef, float] = field(default_factory=dict)
    left_alone: Mapping[str, str] = field(default_factory=dict)
    cleared_seconds: Mapping[str, float] = field(default_factory=dict)
    places: Mapping[WorkloadRef, frozenset[str]] = field(default_factory=dict)
    halt: Halt | None = None
    at_once: int = 1
    back_off_seconds: float = 48 * HOUR_SECONDS
    actions: ActionSettings = field(default_factory=ActionSettings)
    refusals: Mapping[WorkloadRef, AcceptRefusal] = field(default_factory=dict)

    @cached_property
    def acts_by_workload(self) -> Mapping[WorkloadRef, Sequence[PastAct]]:
        """The autopilot's changes by workload, in the order of `acts`."""
        acts: dict[WorkloadRef, list[PastAct]] = defaultdict(list)
        for act in self.acts:
            acts[act.workload].append(act)
        return dict(acts)


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """The decision on one candidate, its position `place` in the queue (from 1; 0: waits), and the permitted `ways`."""

    candidate: QueueCandidate
    verdict: QueueVerdict
    reason: Reason = Reason.OK
    words: str = ""
    place: int = 0
    ways: tuple[Way, ...] = ()


def round_totals(entries: Iterable[QueueEntry]) -> RoundTotals:
    """Return the totals over all pods of those entries whose next step is to be made or is proposed."""
    going = [entry for entry in entries if entry.verdict is not QueueVerdict.WAIT]
    restarting = [entry for entry in going if Way.ROLL_OUT in entry.ways]
    pods = sum(
        max((recommendation.replicas for recommendation in entry.candidate.first), default=0) for entry in restarting
    )
    return RoundTotals(len(going), joined_savings(entry.candidate.savings for entry in going), pods)


def decide(inputs: RoundInputs) -> tuple[QueueEntry, ...]:
    """Return an entry per candidate: changes, proposals, those over limits of parallel changes, others that wait."""
    ready: list[QueueCandidate] = []
    waiting: list[QueueEntry] = []
    # Groups of windows of which none is open now, each with when the next one opens.
    groups = {group for candidate in inputs.candidates for group in windows_of(candidate.limits, inputs.actions)}
    shut = {
        group: next_opening_text(group, inputs.now_seconds)
        for group in groups
        if not is_open(group, inputs.now_seconds)
    }
    for candidate in sorted(inputs.candidates, key=lambda c: c.workload):
        wait = next((why for why in _waits_of(candidate, inputs, shut) if why is not None), None)
        if wait is None:
            ready.append(candidate)
        else:
            waiting.append(_waits(candidate, *wait))
    proposals = [c for c in ready if c.mode is AutopilotMode.OBSERVE]
    acts, full = _spread([c for c in ready if c.mode is AutopilotMode.ACT], inputs)
    entries = [QueueEntry(c, QueueVerdict.ACT, ways=ways_left(c, inputs)) for c in acts]
    proposals.sort(key=lambda c: (_urgency(c), -c.score, c.workload))
    entries += [QueueEntry(c, QueueVerdict.PROPOSE, ways=ways_left(c, inputs)) for c in proposals]
    placed = [replace(entry, place=number) for number, entry in enumerate(entries, 1)]
    return (*placed, *full, *waiting)


def for_manifests(queue: Iterable[QueueEntry]) -> list[QueueCandidate]:
    """Return candidates of GitOps tools whose step may be written to files, which a full queue does not prevent."""
    free = (e for e in queue if e.verdict is not QueueVerdict.WAIT or e.reason in BUNDLED_WHILE_WAITING)
    return [e.candidate for e in free if e.candidate.gitops]


def helped_starts(queue: Iterable[QueueEntry], halt: Halt | None) -> list[StartAim]:
    """Return the workloads whose starting pods may get more CPU, even outside of windows and limits; none in a halt."""
    if halt is not None:
        return []
    return [e.candidate.starts for e in queue if e.candidate.may_act and e.candidate.starts is not None]


def ways_left(candidate: QueueCandidate, inputs: RoundInputs) -> tuple[Way, ...]:
    """Return the policy's ways to change pods; a roll-out needs a restart left, and open windows if urgent."""
    spent = restarts(inputs.acts_by_workload.get(candidate.workload, ()), inputs.now_seconds)
    groups = windows_of(candidate.limits, inputs.actions) if candidate.urgent else ()
    is_outside = not all(is_open(group, inputs.now_seconds) for group in groups)
    has_restart = spent < candidate.limits.restarts_per_week and not is_outside
    return tuple(way for way in candidate.limits.ways if way is not Way.ROLL_OUT or has_restart)


def windows_of(
    limits: PolicyLimits, actions: ActionSettings, spared: Resource | None = None
) -> tuple[tuple[str, ...], ...]:
    """Return the change windows of `actions`, of the cluster's ceiling and of the policy; one of each has to be open.

    If resource `spared` must rise at once, only those of `actions` count; for memory none, if `windows_spare_memory`.
    """
    everybody = (tuple(actions.windows),) if actions.windows else ()
    if spared is not None:
        return () if spared is Resource.MEMORY and actions.windows_spare_memory else everybody
    return (*everybody, *limits.window_groups)


def withheld(candidate: QueueCandidate | None, actions: ActionSettings, now_seconds: float) -> str:
    """Return why a workload must not be changed now, or "". `candidate` is None if it is not in the queue."""
    if candidate is None or not candidate.may_act:
        return "no policy acts on the workload in this round, or the workload has no recommendation any more"
    groups = windows_of(candidate.limits, actions, candidate.urgent)
    shut = next((group for group in groups if not is_open(group, now_seconds)), None)
    return (
        ""
        if shut is None
        else f"the change window has closed; the next one opens {next_opening_text(shut, now_seconds)}"
    )


def ended_rests(
    statuses: Iterable[ChangeStatus], candidates: Iterable[QueueCandidate], unread: Container[str]
) -> list[ChangeStatus]:
    """Return the second parts of canaries that still wait although no policy acts on their workload any more.

    Changes in the namespaces `unread`, whose policies could not be read, are not returned and continue to wait.
    """
    acting = {str(candidate.workload) for candidate in candidates if candidate.may_act}
    waiting = (s for s in statuses if s.state is ChangeState.WAITING and s.change.namespace not in unread)
    return [status for status in waiting if status.change.workload not in acting]


def back_off_end(acts: Iterable[PastAct], first_seconds: float, cleared_seconds: float) -> float | None:
    """Return the Unix time until which failures since `cleared_seconds` block a workload; None without failures.

    It is inf after GIVEN_UP_AFTER harmful changes. The first harmful change blocks for `first_seconds`, the first that
    failed otherwise for an hour; each further one of the same kind blocks four times as long.
    """
    bad = failed_acts(acts, cleared_seconds)
    harmful = [act for act in bad if act.state is ActState.HARMFUL]
    if len(harmful) >= GIVEN_UP_AFTER:
        return float("inf")
    refused = [act for act in bad if act.state is ActState.FAILED]
    ends = [_rest_end(harmful, first_seconds), _rest_end(refused, HOUR_SECONDS)]
    return max((end for end in ends if end is not None), default=None)


def _rest_end(acts: Sequence[PastAct], first_seconds: float) -> float | None:
    if not acts:
        return None
    return max(a.since_seconds for a in acts) + first_seconds * BACK_OFF_FACTOR ** min(len(acts) - 1, GIVEN_UP_AFTER)


def _waits_of(
    candidate: QueueCandidate, inputs: RoundInputs, shut: Mapping[tuple[str, ...], str]
) -> Iterator[tuple[Reason, str] | None]:
    """Yield the reasons why a workload is not changed, whatever the others do; None for one that does not apply."""
    workload, limits = candidate.workload, candidate.limits
    if candidate.mode is AutopilotMode.ACT and inputs.halt is not None:
        yield inputs.halt.reason, inputs.halt.words
    yield candidate.blocked
    if why := inputs.left_alone.get(str(workload)):
        yield Reason.AUTOPILOT_OTHER_WRITER, why
    cleared_seconds = inputs.cleared_seconds.get(str(workload), 0.0)
    acts = inputs.acts_by_workload.get(workload, ())
    rest_end = back_off_end(acts, inputs.back_off_seconds, cleared_seconds)
    if rest_end == float("inf"):
        yield Reason.AUTOPILOT_GIVEN_UP, ""
    elif rest_end is not None and rest_end > inputs.now_seconds:
        hours = (rest_end - inputs.now_seconds) / HOUR_SECONDS
        yield Reason.AUTOPILOT_BACKS_OFF, f"the workload may be changed again in {hours:.0f} hours"
    if candidate.confidence < limits.minimum_confidence:
        word = Confidence.of(candidate.confidence)
        score = f"confidence {word}, score {candidate.confidence:.2f}; required is {limits.minimum_confidence:g}"
        yield Reason.AUTOPILOT_UNCERTAIN, ". ".join(filter(None, (score, candidate.confidence_reason)))
    if workload in inputs.busy:
        yield Reason.AUTOPILOT_CHANGE_UNDER_WAY, ""
    end = inputs.cool_downs.get(workload, 0.0)
    if candidate.lowers and end > inputs.now_seconds:
        yield Reason.AUTOPILOT_COOL_DOWN, f"{(end - inputs.now_seconds) / HOUR_SECONDS:.1f} hours until the next cut"
    if not limits.ways:
        yield Reason.AUTOPILOT_KEPT_BY_GITOPS, f"{candidate.gitops}; cotenant autopilot bundle writes the step as files"
    spared = candidate.urgent if ways_left(candidate, inputs) else None
    groups = windows_of(limits, inputs.actions, spared)
    if opening := next((shut[group] for group in groups if group in shut), ""):
        yield Reason.AUTOPILOT_OUTSIDE_WINDOW, f"the next change window opens {opening}"
    if not ways_left(candidate, inputs):
        yield Reason.AUTOPILOT_NO_WAY_LEFT, f"a pod may have {counted(limits.restarts_per_week, 'restart')} a week"
    refusal = inputs.refusals.get(workload) if candidate.may_act else None
    if refusal and (left_seconds := refusal.left_seconds(inputs.now_seconds, cleared_seconds)):
        yield Reason.AUTOPILOT_REFUSED, f"{refusal.words}; the next try is {in_time(left_seconds)}"


def _spread(candidates: Sequence[QueueCandidate], inputs: RoundInputs) -> tuple[list[QueueCandidate], list[QueueEntry]]:
    """Return the candidates that go now, in order, and queue entries of those beyond the limits of parallel changes.

    After each choice the rest is ordered anew: a workload that shares nodes or a namespace with changes chosen or
    under way scores less, because they wait for each other's verification.
    """
    under_way = {act.workload for act in inputs.acts if act.state is ActState.UNDER_WAY}
    changed = sorted(under_way)
    policy_of = {c.workload: c.policy for c in inputs.candidates}
    policies = [policy_of.get(workload, "") for workload in under_way]

    def order(candidate: QueueCandidate) -> tuple[int, float, WorkloadRef]:
        # The number of changed workloads in its namespace, plus for each the share of its nodes that it shares.
        workload = candidate.workload
        nodes = inputs.places.get(workload, frozenset())
        shared = (
            sum(len(nodes & inputs.places.get(other, frozenset())) / len(nodes) for other in changed) if nodes else 0
        )
        crowd = 1 + sum(other.namespace == workload.namespace for other in changed) + shared
        return _urgency(candidate), -candidate.score / crowd, workload

    chosen: list[QueueCandidate] = []
    waiting, full = sorted(candidates, key=order, reverse=True), []
    while waiting:
        best = waiting.pop()
        if len(under_way) + len(chosen) >= inputs.at_once:
            full.append(_waits(best, Reason.AUTOPILOT_QUEUE_FULL, f"at most {inputs.at_once} workloads change at once"))
        elif policies.count(best.policy) >= best.limits.at_once:
            sentence = f"at most {best.limits.at_once} workloads change at a time under policy {best.policy}"
            full.append(_waits(best, Reason.AUTOPILOT_QUEUE_FULL, sentence))
        else:
            chosen.append(best)
            changed.append(best.workload)
            policies.append(best.policy)
            waiting.sort(key=order, reverse=True)
    return chosen, full


def _urgency(candidate: QueueCandidate) -> int:
    order = (*RISING_AT_ONCE.values(), None)
    return order.index(candidate.urgent)


def _waits(candidate: QueueCandidate, reason: Reason, sentence: str) -> QueueEntry:
    return QueueEntry(candidate, QueueVerdict.WAIT, reason, sentence or SENTENCES[reason])
