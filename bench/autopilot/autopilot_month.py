"""A month of a synthetic cluster in simulated time, with every workload under a policy that acts.

    .venv/bin/python -m bench.autopilot.autopilot_month

Two clusters of 15 nodes and 200 workloads over 42 days: two weeks of history, then four weeks in which a scan is made
every seven days and the autopilot decides a round every hour, by `autopilot.decide` itself with the default ceiling but
for two things: single replicas are not left alone, and the ways are in place and roll-out. What a round accepts is
applied in the simulation at the first step that the guardrails allow; what its hour, and the rest of the day, then do
is counted on the usage of these days by the rules of `recommender.backtest`. A change under which a container is killed
more often in its first day than under the present limits counts as harm, and is rolled back.

Compared with: the whole proposals of each scan that accepting can write (not of bare pods), accepted by hand at once
and without guardrails. Caused OOM kills: more than under the present limits on the same day. They are counted once more
where the strategy lowers limits too (`recommender.cotenant.lower_limits`, off by default), where accepting by hand
kills. A workload is resized in place where its containers' resize policy and QoS class allow it
(`recommender.restart`); a roll-out restarts each pod once. Not simulated: canaries, live guardrails (quotas, budgets,
roll-outs), other writers, nodes. What was solved together with an autoscaler's target, of which accepting takes the
next step once a scan has seen the last one, is taken over the amounts of the hour: the manager's pipeline scans every
hour, the simulation every week.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np
from msgspec import structs

from bench.recommender.replay_worlds import HISTORY_DAYS, SETTINGS, cut, evidence
from bench.record import Row, above, below, record
from cotenant.autopilot.decide.candidates import LiveNamespace, PolicyInForce, candidates_of, settings_under
from cotenant.autopilot.decide.halt import Halt, too_much_harm
from cotenant.autopilot.decide.history import Decisions, acts_of, busy, statuses_by_workload
from cotenant.autopilot.decide.policy import NamespacedPolicy, PolicySpec, effective
from cotenant.autopilot.decide.round_order import QueueCandidate, RoundInputs, decide
from cotenant.autopilot.model import AutopilotMode, QueueVerdict
from cotenant.autopilot.settings import AutopilotSettings, CeilingSettings, Untouched, Way
from cotenant.base.cluster import Container, Workload
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.kubernetes.quantity import format_amount
from cotenant.base.reasons import Reason
from cotenant.base.resource import GIB, Resource
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS
from cotenant.changes.decide.patches import by_workload as of_workloads
from cotenant.changes.decide.patches import refusal
from cotenant.changes.decide.steps import first_step
from cotenant.changes.model.change import AUTOPILOT_KEY_PREFIX, Change, ChangeState, ChangeStatus, cool_downs
from cotenant.changes.model.settings import ActionSettings
from cotenant.recommender.backtest import Amounts, BacktestColumns, Recorded, backtest, present
from cotenant.recommender.backtest import record as recorded
from cotenant.recommender.base import load_strategy, recommend
from cotenant.recommender.enrich import enrich
from cotenant.recommender.evidence import Evidence, assemble
from cotenant.recommender.model.recommendation import Field, Recommendation, Restart, Value
from cotenant.recommender.settings import RecommenderSettings
from cotenant_lab.synthetic import SyntheticSpec, generate

COMMAND: Final = ".venv/bin/python -m bench.autopilot.autopilot_month"
SEEDS: Final = (7, 23)
WEEKS: Final = 4
SPEC: Final = SyntheticSpec(nodes=15, workloads=200, days=HISTORY_DAYS + 7 * WEEKS)
AUTOPILOT: Final = AutopilotSettings(
    ceiling=CeilingSettings(
        ways=[Way.IN_PLACE, Way.ROLL_OUT], never_touch=[Untouched.LSE, Untouched.LSR, Untouched.AUTOSCALED]
    )
)
LOWERING: Final = structs.replace(SETTINGS, cotenant=structs.replace(SETTINGS.cotenant, lower_limits=True))
"""A strategy that lowers limits too, as annotations and settings may have it."""
Undo: TypeAlias = Mapping[ContainerRef, Sequence[tuple[float, float]]]
"""Request and limit of each resource before a change, by container that it touches; NaN = not set."""


@dataclass(slots=True)
class Tally:
    """Sums over days: kills caused, throttled minutes, freed amounts of each day, days; restarts by pods."""

    caused_kills: int = 0
    throttled: float = 0.0
    now_throttled: float = 0.0
    freed_millicores: list[float] = field(default_factory=list)
    freed_bytes: list[float] = field(default_factory=list)
    pod_weeks: float = 0.0

    def add(self, outcome: BacktestColumns) -> None:
        """One more day."""
        self.caused_kills += int(np.maximum(outcome.oom_kills - outcome.now_oom_kills, 0).sum())
        self.throttled += float(outcome.throttled_minutes.sum())
        self.now_throttled += float(outcome.now_throttled_minutes.sum())
        self.freed_millicores.append(float(outcome.freed[Resource.CPU].sum()))
        self.freed_bytes.append(float(outcome.freed[Resource.MEMORY].sum()))
        self.pod_weeks += float(outcome.pod_minutes.sum()) / 1440 / 7


class Month:
    """One cluster: what it holds, the ledger of the simulation, and the candidates of its workloads."""

    def __init__(
        self,
        seed: int,
        spec: SyntheticSpec = SPEC,
        recommender: RecommenderSettings = SETTINGS,
    ) -> None:
        """Generated; nothing is decided yet. recommender: what its scans propose by."""
        self.recommender = recommender
        cluster = generate(replace(spec, seed=seed))
        self.inventory = cluster.inventory
        self.usage = {signal: series for signal, series in cluster.usage.items() if not signal.spec.per_node}
        self.start_seconds = cluster.spec.grid.start_seconds + HISTORY_DAYS * DAY_SECONDS
        self.end_seconds = cluster.spec.grid.end_seconds
        self.statuses: list[ChangeStatus] = []
        self.undo: dict[str, Undo] = {}
        self.restarts = 0
        self.stopped = ""
        self.mine, self.by_hand = Tally(), Tally()
        self.untouched_millicores: list[float] = []
        limits = effective(AUTOPILOT.ceiling, PolicySpec())
        settings = settings_under(ActionSettings(), limits)
        self.force = {
            namespace: PolicyInForce(NamespacedPolicy(namespace, "all"), limits, AutopilotMode.ACT, settings)
            for namespace in {w.ref.namespace for w in self.inventory.workloads}
        }

    def run(self) -> None:
        """Every day: a scan when it is due, the rounds of its hours, and what the day shows."""
        for day in range((self.end_seconds - self.start_seconds) // DAY_SECONDS):
            origin = self.start_seconds + day * DAY_SECONDS
            if day % 7 == 0:
                history = self._history(origin)
                if day == 0:
                    self.template, self.amounts = present(history), present(history)
                self._scanned(history)
                hand, untouched = by_hand(history, self.recommendations), self._untouched_rows()
            before = len(self.statuses)
            for hour in range(24):
                self._round(origin + hour * HOUR_SECONDS)
            followed = self.day(origin)
            of_hand = backtest(followed, self.template, hand)
            self.by_hand.add(of_hand)
            self.untouched_millicores.append(float(of_hand.freed[Resource.CPU][untouched].sum()))
            self.close_day(followed, before, origin + DAY_SECONDS)

    def _untouched_rows(self) -> list[int]:
        """Rows of the containers of workloads that the policy never touches."""
        return [
            self.rows[recommendation.container]
            for candidate in self._candidates()
            if candidate.blocked and candidate.blocked[0] is Reason.AUTOPILOT_NEVER_TOUCHED
            for recommendation in self.advice[candidate.workload]
        ]

    def _history(self, origin: int) -> Evidence:
        """What a scan at `origin` has before it."""
        usage = {s: cut(u, origin - HISTORY_DAYS * DAY_SECONDS, origin) for s, u in self.usage.items()}
        pods = tuple(p for p in self.inventory.pods if p.start_seconds < origin)
        events = tuple(e for e in self.inventory.events if e.time_seconds < origin)
        self.past_inventory = replace(self.inventory, time_seconds=origin, pods=pods, events=events)
        return evidence(self.past_inventory, usage)

    def _scanned(self, history: Evidence) -> None:
        advice = recommend(load_strategy("cotenant"), history, self.recommender)
        self.recommendations = enrich(advice, history, self.past_inventory, self.recommender)
        self.portraits = history.portraits
        self.rows = {ref: row for row, ref in enumerate(history.containers)}
        self.advice = of_workloads(self.recommendations)
        self.candidates: dict[WorkloadRef, QueueCandidate] = {}

    def day(self, origin: int) -> Recorded:
        """What the pods did from `origin` on, Unix seconds."""
        day = {s: cut(u, origin, origin + DAY_SECONDS) for s, u in self.usage.items()}
        window = next(iter(day.values())).grid
        return recorded(assemble(self.inventory, window, day, self.portraits), 1)

    def _round(self, now_seconds: int) -> None:
        """Changes that soaked for an hour are verified, unless the day's end finds harm; then the queue goes on."""
        self.statuses = [
            replace(s, state=ChangeState.VERIFIED, since_seconds=now_seconds)
            if s.state is ChangeState.APPLIED and now_seconds - s.begun_seconds >= HOUR_SECONDS
            else s
            for s in self.statuses
        ]
        acts = acts_of(self.statuses)
        self.stopped = self.stopped or too_much_harm(acts, 0.0, AUTOPILOT)
        inputs = RoundInputs(
            now_seconds,
            tuple(self._candidates()),
            acts,
            busy(self.statuses, now_seconds, DAY_SECONDS),
            cool_downs(self.statuses, DAY_SECONDS, now_seconds),
            halt=Halt(Reason.AUTOPILOT_STOPPED, self.stopped) if self.stopped else None,
            at_once=AUTOPILOT.ceiling.at_once,
        )
        for entry in decide(inputs):
            if entry.verdict is QueueVerdict.ACT:
                self._act(entry.candidate, entry.ways, now_seconds)

    def _candidates(self) -> Iterator[QueueCandidate]:
        """Of every workload, made anew when its amounts or its advice have changed."""
        for workload in self.inventory.workloads:
            if workload.ref not in self.candidates and workload.ref in self.advice:
                live = LiveNamespace({workload.ref: self._body(workload)}, tuple(_scalers(workload)))
                under = self.force[workload.ref.namespace]
                advice = [self._over_now(recommendation) for recommendation in self.advice[workload.ref]]
                statuses = statuses_by_workload(s for s in self.statuses if s.change.name == workload.ref.name)
                for candidate in candidates_of([under], advice, live, statuses, Decisions(), self.recommender.cotenant):
                    self.candidates[workload.ref] = candidate
        return iter(self.candidates.values())

    def _over_now(self, recommendation: Recommendation) -> Recommendation:
        """What was solved with an autoscaler over the amounts of now, as a scan of this hour has it."""
        amounts, row = (
            {Field.REQUEST: self.amounts.requests, Field.LIMIT: self.amounts.limits},
            self.rows[recommendation.container],
        )

        def now(value: Value) -> Value:
            amount = amounts[value.field][value.resource][row]
            is_solved = "hpa" in value.inputs and np.isfinite(amount)
            return replace(value, now=int(amount)) if is_solved else value

        return replace(recommendation, values=tuple(map(now, recommendation.values)))

    def _act(self, candidate: QueueCandidate, ways: Sequence[Way], now_seconds: int) -> None:
        """Apply the first step; a roll-out where it cannot be had in place."""
        step = first_step(candidate.allowed, self.force[candidate.workload.namespace].settings.guardrails)
        in_place = all(r.restart is not Restart.ROLLOUT for r in step)
        if not in_place and Way.ROLL_OUT not in ways:
            return
        number = len(self.statuses)
        self.undo[f"c{number}"] = {r.container: _amounts_of(self.amounts, self.rows[r.container]) for r in step}
        for recommendation in step:
            self.amounts.apply(self.rows[recommendation.container], recommendation)
        self.restarts += 0 if in_place else max(r.replicas for r in step)
        ref, method = candidate.workload, "in-place" if in_place else "template"
        change = Change(
            f"c{number}", f"{AUTOPILOT_KEY_PREFIX}{number}", ref.namespace, ref.kind, ref.name, "m", (), method, "", ()
        )
        status = ChangeStatus(change, ChangeState.APPLIED, now_seconds, now_seconds, "m", begun_seconds=now_seconds)
        self.statuses.append(status)
        del self.candidates[ref]

    def close_day(self, followed: Recorded, first: int, now_seconds: int) -> None:
        """Count the day, then roll back its changes under which a container was killed more often than before.

        followed: of `day`; first: how many changes there were before it.
        """
        outcome = backtest(followed, self.template, self.amounts)
        self.mine.add(outcome)
        harmed = outcome.oom_kills > outcome.now_oom_kills
        for index in range(first, len(self.statuses)):
            status = self.statuses[index]
            before = self.undo[status.change.id]
            if any(harmed[self.rows[ref]] for ref in before):
                self.statuses[index] = replace(status, state=ChangeState.ROLLED_BACK, since_seconds=now_seconds)
                for ref, amounts in before.items():
                    _put_back(self.amounts, self.rows[ref], amounts)
                    self.candidates.pop(ref.workload, None)

    def _body(self, workload: Workload) -> dict[str, Any]:
        """The workload's object with the amounts of now."""
        containers = []
        for container in workload.containers:
            row = self.rows.get(ContainerRef(workload.ref, container.name))
            containers.append({"name": container.name, "resources": self._resources(row, container)})
        labels = {"koordinator.sh/qosClass": workload.qos.value} if workload.qos else {}
        template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
        replicas = {"replicas": max(workload.replicas, 1)}
        return {"metadata": {"uid": "u", "labels": dict(workload.labels)}, "spec": {**replicas, "template": template}}

    def _resources(self, row: int | None, container: Container) -> dict[str, dict[str, str]]:
        """A container's resources now; as declared for one that no scan asks about."""
        columns = {"requests": self.amounts.requests, "limits": self.amounts.limits}
        declared: dict[str, Mapping[Resource, int]] = {"requests": container.requests, "limits": container.limits}
        resources: dict[str, dict[str, str]] = {}
        for side, of_resource in columns.items():
            amounts = declared[side]
            if row is not None:
                amounts = {r: int(of_resource[r][row]) for r in Resource if np.isfinite(of_resource[r][row])}
            resources[side] = {r.value: format_amount(r, amount) for r, amount in amounts.items()}
        return resources


def by_hand(history: Evidence, recommendations: Sequence[Recommendation]) -> Amounts:
    """The amounts once everything is accepted that accepting can write: of no bare pod, and no injected container."""
    amounts = present(history)
    for row, recommendation in enumerate(recommendations):
        if not refusal(recommendation):
            amounts.apply(row, recommendation)
    return amounts


def _scalers(workload: Workload) -> Iterator[Mapping[str, Any]]:
    """Its autoscaler, as the API has it."""
    if workload.autoscaler is not None:
        metrics = [{"resource": {"name": r.value}} for r in workload.autoscaler.targets]
        target = {"kind": workload.ref.kind, "name": workload.ref.name}
        yield {"metadata": {"name": workload.autoscaler.name}, "spec": {"scaleTargetRef": target, "metrics": metrics}}


def _amounts_of(amounts: Amounts, row: int) -> list[tuple[float, float]]:
    return [(float(amounts.requests[r][row]), float(amounts.limits[r][row])) for r in Resource]


def _put_back(amounts: Amounts, row: int, before: Sequence[tuple[float, float]]) -> None:
    for r, (request, limit) in zip(Resource, before, strict=True):
        amounts.requests[r][row], amounts.limits[r][row] = request, limit


def rows(months: Sequence[Month]) -> list[Row]:
    """Over all clusters; freed amounts of the last week's mean day, and of the whole month's."""
    mine, hand = [m.mine for m in months], [m.by_hand for m in months]
    last, all_days = slice(-7, None), slice(None)
    cores, cores_by_hand = (freed_cores(tallies, last) for tallies in (mine, hand))
    untouched = sum(float(np.mean(m.untouched_millicores[last])) for m in months) / 1000
    gib, gib_by_hand = (sum(float(np.mean(t.freed_bytes[last])) for t in tallies) / GIB for tallies in (mine, hand))
    statuses = [status for month in months for status in month.statuses]
    back = sum(status.state is ChangeState.ROLLED_BACK for status in statuses)
    stops = "; ".join(m.stopped for m in months if m.stopped) or "never"
    kills, kills_by_hand = (sum(t.caused_kills for t in tallies) for tallies in (mine, hand))
    throttled = sum(t.throttled for t in mine) / max(sum(t.now_throttled for t in mine), 1e-9)
    a_week = sum(m.restarts for m in months) / sum(t.pod_weeks for t in mine)
    share, note = cores / cores_by_hand, f"{cores:.1f} of {cores_by_hand:.1f} cores"
    over_month = freed_cores(mine, all_days) / freed_cores(hand, all_days)
    return [
        above("cores freed in the last week, by those of accepting everything by hand", share, "ratio", 0.8, note),
        Row("cores that by hand frees of workloads that the policy never touches", untouched, "cores"),
        Row("the first without these", cores / (cores_by_hand - untouched), "ratio"),
        Row("cores freed over the whole month, by those by hand", over_month, "ratio"),
        Row("memory requested less in the last week", gib, "GiB", note=f"by hand {gib_by_hand:.1f}"),
        below("OOM kills caused", kills, "kills", 0, f"by hand {kills_by_hand}; no limit is lowered"),
        below("throttled minutes, by those under the present limits", throttled, "ratio", 1.0),
        below("restarts a pod-week", a_week, "restarts", 0.1, "roll-outs where in place is impossible"),
        Row("changes accepted", len(statuses), "changes", note=f"{back} rolled back; stopped: {stops}"),
    ]


def kill_row(months: Sequence[Month]) -> Row:
    """Kills in clusters whose strategy lowers memory limits; the note says what accepting by hand did there."""
    mine, hand = (
        sum(tally.caused_kills for tally in of) for of in ([m.mine for m in months], [m.by_hand for m in months])
    )
    return below("OOM kills caused where the strategy lowers limits", mine, "kills", 0, f"by hand {hand}")


def freed_cores(tallies: Sequence[Tally], days: slice) -> float:
    """Mean of the days, all clusters together."""
    return sum(float(np.mean(t.freed_millicores[days])) for t in tallies) / 1000


def main() -> int:
    """Both clusters, recorded."""
    months = [Month(seed) for seed in SEEDS]
    lowering = [Month(seed, recommender=LOWERING) for seed in SEEDS]
    for month in (*months, *lowering):
        month.run()
    record("autopilot_month", COMMAND, [*rows(months), kill_row(lowering)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
