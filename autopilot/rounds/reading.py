"""EDGE: reads the inputs of one round and decides its queue. Writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from cotenant.autopilot.decide.candidates import DAY_HOURS, PolicyInForce, candidates_of, hardly_cut, settings_under
from cotenant.autopilot.decide.floors import FloorForecasts, FloorOutlook, floor_outlooks
from cotenant.autopilot.decide.halt import AcceptRefusal, Halt, gap_of, halt_of, too_much_harm
from cotenant.autopilot.decide.history import ActApproval, ActState, PastAct, acts_of, busy, statuses_by_workload
from cotenant.autopilot.decide.policy import NamespacedPolicy, effective, fields_beyond_limits
from cotenant.autopilot.decide.records import lapsed_approvals
from cotenant.autopilot.decide.round_order import QueueCandidate, QueueEntry, RoundInputs, decide
from cotenant.autopilot.model import ROUND_STAGES, AutopilotMode, QueueVerdict
from cotenant.autopilot.rounds.cluster_state import read_health, read_namespace, read_policies
from cotenant.autopilot.rounds.ledger_history import LedgerHistory
from cotenant.autopilot.settings import AutopilotSettings, CeilingSettings
from cotenant.base.errors import CotenantError, UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import KubeClient
from cotenant.base.progress import SILENT, Progress
from cotenant.base.reasons import Reason
from cotenant.base.settings.base import SettingSections
from cotenant.base.settings.sections import ManagerSettings
from cotenant.base.usage.usage import HOUR_SECONDS
from cotenant.changes.model.change import cool_downs
from cotenant.changes.model.settings import ActionSettings
from cotenant.changes.soak.reconcile import VERIFY_HOURS
from cotenant.profiler.prometheus.client import Client
from cotenant.profiler.prometheus.decode import latest
from cotenant.profiler.settings import ProfilerSettings
from cotenant.recommender.model.recommendation import Recommendation
from cotenant.recommender.settings import CotenantSettings, RecommenderSettings

Recommended = Callable[[str], Sequence[Recommendation]]
"""Stored recommendations of a namespace."""


@dataclass(frozen=True, slots=True)
class RoundScope:
    """The scope and the further inputs of a round.

    `namespaces`: only these, all if empty; `in_window`: as if every change window were open; `refusals`: the last
    refusal of each workload; `forecasts`: replica forecasts of the last scan, read only if a policy raises minReplicas;
    `progress`: called with each of ROUND_STAGES except the first.
    """

    namespaces: Sequence[str] = ()
    in_window: bool = False
    refusals: Mapping[WorkloadRef, AcceptRefusal] = field(default_factory=dict)
    forecasts: FloorForecasts = dict
    progress: Progress = SILENT


EVERYWHERE: Final = RoundScope()


@dataclass(frozen=True, slots=True)
class PolicyReading:
    """One policy in a round. `reason` says why it does less than its spec requests; `under` is None if it does nothing.

    `narrowed`: fields that the ceiling narrows; `gap`: why its namespace could not be read, or which right is missing.
    """

    policy: NamespacedPolicy
    reason: str = ""
    narrowed: tuple[str, ...] = ()
    under: PolicyInForce | None = None
    gap: str = ""

    @property
    def does(self) -> AutopilotMode:
        """The policy's mode at present; off if no decision is made under it."""
        return self.under.mode if self.under else AutopilotMode.OFF


@dataclass(frozen=True, slots=True)
class RoundReading:
    """A round: its policies, its queue, and `halt`, why nothing may change (None if changes may be made).

    `stops`: why everything has to stop from now on, "" if it need not; `lapsed`: policies whose approval ends now, with
    their digest; `unread`: namespaces that could not be read; `floors`: present or next raised minReplicas by workload.
    """

    now_seconds: float
    policies: tuple[PolicyReading, ...] = ()
    queue: tuple[QueueEntry, ...] = ()
    halt: Halt | None = None
    stops: str = ""
    force: Mapping[str, PolicyInForce] = field(default_factory=dict)
    history: LedgerHistory = field(default_factory=lambda: LedgerHistory({}, ()))
    lapsed: Mapping[str, str] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()
    acts: tuple[PastAct, ...] = ()
    floors: Mapping[WorkloadRef, FloorOutlook] = field(default_factory=dict)

    def of(self, policy: NamespacedPolicy) -> list[QueueEntry]:
        """Return the queue entries of one policy."""
        return [entry for entry in self.queue if entry.candidate.policy == str(policy)]

    def under_way(self, policy: NamespacedPolicy) -> int:
        """Return the number of the autopilot's changes in the policy's namespace that soak or have no known outcome."""
        return sum(a.state is ActState.UNDER_WAY and a.workload.namespace == policy.namespace for a in self.acts)

    def queued(self, policy: NamespacedPolicy) -> int:
        """Return the number of the policy's changes that could be made now."""
        return sum(entry.verdict is not QueueVerdict.WAIT for entry in self.of(policy))

    def reason(self, policy: PolicyReading) -> str:
        """Return why a policy does less than its spec requests, with the reason of a halt; "" if it does all."""
        return "; ".join(filter(None, (policy.reason, policy.gap, self.halt.words if self.halt else "")))

    def waiting(self, policy: NamespacedPolicy) -> dict[str, int]:
        """Return how many workloads of the policy wait, by reason."""
        counts: dict[str, int] = {}
        for entry in self.of(policy):
            if entry.verdict is QueueVerdict.WAIT:
                counts[entry.reason.value] = counts.get(entry.reason.value, 0) + 1
        return counts


@dataclass(frozen=True, slots=True)
class _Gathered:
    """The state of the namespaces with a policy; `gaps` says why one could not be read."""

    candidates: tuple[QueueCandidate, ...]
    places: Mapping[WorkloadRef, frozenset[str]]
    gaps: Mapping[str, str]
    autoscalers: Mapping[str, Sequence[Mapping[str, Any]]]


def read_round(
    client: KubeClient,
    history: LedgerHistory,
    recommended: Recommended,
    settings: SettingSections,
    now_seconds: float,
    scope: RoundScope = EVERYWHERE,
) -> RoundReading:
    """Read the inputs of a round and decide it; raise ClusterAbsent if the CRD AutopilotPolicy is not installed."""
    scope.progress.stage(ROUND_STAGES[1], 1)
    own, actions = settings.section(AutopilotSettings), settings.section(ActionSettings)
    decisions = history.decisions
    policies = [
        _evaluate_policy(policy, own.ceiling, decisions.approvals, actions)
        for policy in read_policies(client, scope.namespaces)
    ]
    force = {str(policy.policy): policy.under for policy in policies if policy.under is not None}
    scope.progress.stage(ROUND_STAGES[2], 1)
    gathered = _collect_candidates(client, force, recommended, history, settings.section(RecommenderSettings).cotenant)
    scope.progress.stage(ROUND_STAGES[3], 1)
    acts = acts_of(history.statuses.values())
    stops = "" if decisions.stopped else too_much_harm(acts, decisions.resumed_seconds, own)
    health = read_health(client, settings.section(ManagerSettings).namespace)
    health = replace(health, trouble=health.trouble or asked_trouble(settings, now_seconds))
    halt = Halt(Reason.AUTOPILOT_STOPPED, stops) if stops else halt_of(health, decisions)
    cool_down_hours = max(actions.guardrails.cool_down_hours, DAY_HOURS)
    candidates = gathered.candidates
    if scope.in_window:
        actions = msgspec.structs.replace(actions, windows=[])
        unbound: dict[str, list[str]] = {"windows": [], "own_windows": []}
        candidates = tuple(replace(c, limits=msgspec.structs.replace(c.limits, **unbound)) for c in candidates)
    # Workloads whose pods are not what their template says: a change soaks, or one starts with more CPU.
    soaking = busy(history.statuses.values(), now_seconds, VERIFY_HOURS * HOUR_SECONDS)
    inputs = RoundInputs(
        now_seconds,
        candidates,
        acts,
        soaking | {boost.workload for boost in history.boosts},
        cool_downs(history.statuses.values(), cool_down_hours * HOUR_SECONDS, now_seconds),
        decisions.left_alone,
        decisions.cleared_seconds,
        gathered.places,
        halt,
        own.ceiling.at_once,
        own.back_off_hours * HOUR_SECONDS,
        actions,
        scope.refusals,
    )
    shown = []
    for policy in policies:
        reason = "; ".join(filter(None, (policy.reason, hardly_cut(policy.under) if policy.under else "")))
        missing = gap_of(str(policy.policy), scope.refusals.values()) if policy.does is AutopilotMode.ACT else ""
        gap = gathered.gaps.get(policy.policy.namespace, "") or missing
        shown.append(replace(policy, reason=reason, gap=gap))
    ended = lapsed_approvals((policy.policy for policy in policies), decisions.approvals, now_seconds)
    unread = frozenset(gathered.gaps)
    lends = any(c.limits.replica_floor_factor > 1 for c in candidates)
    floors = floor_outlooks(
        (c for c in candidates if str(c.workload) not in decisions.left_alone),
        gathered.autoscalers,
        history.floors,
        scope.forecasts() if lends else {},
        settings.section(ActionSettings).guardrails,
        now_seconds,
    )
    return RoundReading(
        now_seconds, tuple(shown), decide(inputs), halt, stops, force, history, ended, unread, acts, floors
    )


def _collect_candidates(
    client: KubeClient,
    force: Mapping[str, PolicyInForce],
    recommended: Recommended,
    history: LedgerHistory,
    own: CotenantSettings,
) -> _Gathered:
    statuses, decisions = statuses_by_workload(history.statuses.values()), history.decisions
    candidates: list[QueueCandidate] = []
    places: dict[WorkloadRef, frozenset[str]] = {}
    gaps: dict[str, str] = {}
    autoscalers: dict[str, Sequence[Mapping[str, Any]]] = {}
    for namespace in sorted({entry.policy.namespace for entry in force.values()}):
        inside = [entry for entry in force.values() if entry.policy.namespace == namespace]
        try:
            recommendations, live = recommended(namespace), read_namespace(client, namespace)
        except CotenantError as error:
            gaps[namespace] = error.message
            continue
        places |= live.nodes
        autoscalers[namespace] = live.autoscalers
        candidates += candidates_of(inside, recommendations, live, statuses, decisions, own)
    return _Gathered(tuple(candidates), places, gaps, autoscalers)


def _evaluate_policy(
    policy: NamespacedPolicy, ceiling: CeilingSettings, approvals: Mapping[str, ActApproval], actions: ActionSettings
) -> PolicyReading:
    """Return what a policy does: less than it requests if it is refused, or not approved in its present version."""
    if policy.mode is AutopilotMode.OFF:
        return PolicyReading(policy, policy.refused)
    try:
        limits = effective(ceiling, policy.spec)
    except UsageError as error:
        refusal = f"{error.message}. {error.fix}"
        return PolicyReading(replace(policy, refused=refusal), refusal)
    approval, mode, reason = approvals.get(str(policy)), policy.mode, ""
    if mode is AutopilotMode.ACT and (approval is None or approval.digest != policy.digest):
        why = "the policy was changed after its approval" if approval else "nobody has approved the policy"
        mode, reason = AutopilotMode.OBSERVE, f"{why}: approve it by cotenant autopilot act {policy}"
    under = PolicyInForce(policy, limits, mode, settings_under(actions, limits))
    return PolicyReading(policy, reason, fields_beyond_limits(limits, policy.spec), under)


LONGEST_WAIT_SECONDS: Final = 10.0
"""Longest wait for Prometheus' answer, which delays rollbacks and the return of CPU lent to starting pods."""


def asked_trouble(settings: SettingSections, now_seconds: float) -> str:
    """Return the trouble that `autopilot.trouble_query` reports, as a sentence; "" if it reports none.

    A value above 0 in any series is trouble, and so is a failed query; an empty result or NaN is not.
    """
    query = settings.section(AutopilotSettings).trouble_query
    if not query:
        return ""
    source = settings.section(ProfilerSettings).prometheus
    if not source.url:
        return "autopilot.trouble_query is set but profiler.prometheus.url is not, so the query cannot be sent"
    try:
        patience_seconds = min(source.timeout_seconds, LONGEST_WAIT_SECONDS)
        with closing(Client(msgspec.structs.replace(source, timeout_seconds=patience_seconds))) as client:
            answer = latest(client.range(query, int(now_seconds), int(now_seconds), 1))
    except CotenantError as error:
        return f"autopilot.trouble_query failed: {error.message}"
    labels, value = next((pair for pair in answer if pair[1] > 0), ({}, 0.0))
    if not value:
        return ""
    names = ",".join(f"{name}={text}" for name, text in sorted(labels.items()))
    return f"autopilot.trouble_query reports trouble, value {value:g}{f' for {names}' if names else ''}"
