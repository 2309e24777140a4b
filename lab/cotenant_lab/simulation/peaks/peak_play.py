"""Days of a service's peaks with and without the product's reservation plans, one control period after the other.

    jobs end -> the autoscaler scales -> the plan's step -> pods, placeholders, jobs get nodes -> account

The plan is the product's: its proposal by `scheduler_ext.reservations.plans.proposals`, its object as the manager
writes it, its phases by `scheduler_ext.reservations.plans.lifecycle`, its guards. The manager is modelled: there are
always as many free Reservations as the step says, and a free one goes to a waiting pod at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cotenant.base.resource import MILLICORES_PER_CORE
from cotenant.base.usage.usage import HOUR_SECONDS
from cotenant.scheduler_ext.reservations.model.life_cycle import PlanPhase
from cotenant.scheduler_ext.reservations.model.plan import Approval, Plan, PlanDecision, Proposal
from cotenant.scheduler_ext.reservations.model.plan_wire import parse_plan
from cotenant.scheduler_ext.reservations.model.settings import PlanSettings
from cotenant.scheduler_ext.reservations.plan_decisions import outlook, proposed
from cotenant.scheduler_ext.reservations.plans.guards import Situation, check_guards
from cotenant.scheduler_ext.reservations.plans.lifecycle import PlanObservation, step
from cotenant.scheduler_ext.reservations.plans.score import ReservationUse
from cotenant.scheduler_ext.reservations.plans.size import lead_seconds
from cotenant_lab.simulation.peaks.peak_cluster import (
    DAY_SLOTS,
    SLOT_SECONDS,
    ClusterShape,
    Counts,
    PeakJobs,
    PeakNodes,
)

HOUR_SLOTS = 12
FILLING_SLOTS = DAY_SLOTS
"""Before the first judged slot, without reservations: jobs fill the cluster."""


@dataclass(frozen=True, slots=True)
class PeakService:
    """A service on a cluster; `base_pods` run at all times, `pod_cores` is the request of each of its pods."""

    cluster: ClusterShape
    base_pods: int
    pod_cores: float


@dataclass(frozen=True, slots=True)
class PeakOutcome:
    """Results of the simulation of a service: each peak pod's wait in seconds, and sums over all evaluated days.

    Core-hours: `idle`, of Reservations on a node without a pod; `peak`, of peak pods; `jobs`, of batch jobs; `cluster`,
    of nodes. Numbers of pods: `handed_over`, that took a Reservation; `unplanned`, that came while nothing was
    reserved.
    """

    pending_seconds: tuple[float, ...]
    handed_over: int
    unplanned: int
    idle: float
    peak: float
    jobs: float
    cluster: float

    @property
    def p95_seconds(self) -> float:
        """0.95 quantile of the peak pods' wait, seconds; NaN without a peak pod."""
        return float(np.quantile(self.pending_seconds, 0.95)) if self.pending_seconds else float("nan")


def all_services(outcomes: Sequence[PeakOutcome]) -> PeakOutcome:
    """Return the outcomes of several services as one: the waits of all their peak pods, and the sums of all else."""
    waits = tuple(seconds for outcome in outcomes for seconds in outcome.pending_seconds)
    counts = {name: sum(getattr(outcome, name) for outcome in outcomes) for name in ("handed_over", "unplanned")}
    hours = {name: sum(getattr(outcome, name) for outcome in outcomes) for name in ("idle", "peak", "jobs", "cluster")}
    return PeakOutcome(waits, **counts, **hours)


class Planner:
    """The plan of one service, and its free Reservations: the node of each one, None while it waits for a node."""

    def __init__(self, service: PeakService, settings: PlanSettings) -> None:
        """Store the arguments; nothing is proposed yet."""
        self._service, self._settings = service, settings
        self._plan: Plan | None = None
        self._proposal: Proposal | None = None
        self._nodes: list[int | None] = []
        self.handed_over = 0

    @property
    def holds(self) -> bool:
        """True if capacity is reserved now."""
        return bool(self._nodes)

    @property
    def standing(self) -> int:
        """The number of Reservations that have a node and no pod."""
        return sum(node is not None for node in self._nodes)

    def set_proposal(self, proposal: Proposal) -> None:
        """Use a new analysis: its proposal becomes an approved plan, or changes a plan that reserves nothing now."""
        self._proposal = proposal
        if self._plan is None and proposal.ready:
            written = parse_plan(proposed(proposal, proposal.quantile, proposal.standby).body)
            self._plan = replace(written, approval=Approval(PlanDecision.APPROVED))
        elif self._plan is not None and proposal.window:
            phase = self._plan.status.phase
            if phase is None or not (phase.holds or phase is PlanPhase.RELEASED):
                again = parse_plan(proposed(proposal, self._plan.quantile, self._plan.standby).body)
                self._plan = replace(self._plan, window=again.window, windows=again.windows, count=again.count)

    def turn(self, now_seconds: float, running: int, pending: int, nodes: PeakNodes) -> None:
        """Run one control period: create and remove Reservations; `running` is the number of peak pods with a node."""
        if self._plan is None or self._proposal is None:
            return
        plan, standing = self._plan, self.standing
        complete = running + standing >= plan.status.count > 0
        situation = Situation(
            plan.source,
            {name: amount * plan.count for name, amount in plan.per_pod.items()},
            allocatable={"cpu": int(self._service.cluster.cores * MILLICORES_PER_CORE)},
            skill=self._proposal.skill,
        )
        use = ReservationUse(running + standing, running, max(0, pending - standing), complete, running=running)
        observed = PlanObservation(
            use=use,
            lead_seconds=lead_seconds(plan.lead_seconds, (), self._settings),
            guards=check_guards(situation, self._settings),
            outlook=outlook(plan, self._proposal),
            expected=self._proposal.expected,
        )
        following = step(plan, observed, now_seconds, self._settings)
        self._plan = replace(plan, status=following.status)
        # So many free Reservations: of those too many, the ones that wait for room go first.
        self._nodes.sort(key=lambda node: node is None)
        for node in self._nodes[following.free :]:
            if node is not None:
                nodes.leave(node, self._service.pod_cores)
        del self._nodes[following.free :]
        self._nodes += [None] * (following.free - len(self._nodes))

    def place(self, nodes: PeakNodes) -> None:
        """Place the waiting placeholders on nodes, as far as their free capacity suffices."""
        cores = self._service.pod_cores
        self._nodes = [nodes.place(cores) if node is None else node for node in self._nodes]

    def hand_over(self) -> int | None:
        """Return the node of a Reservation, which a pod then uses; None if no Reservation has a node."""
        node = next((node for node in self._nodes if node is not None), None)
        if node is not None:
            self._nodes.remove(node)
            self.handed_over += 1
        return node


@dataclass(slots=True)
class PeakPods:
    """The service's pods beyond `base_pods`: nodes of the `running` ones, steps at which the `waiting` were created.

    `cores` is the request of each pod; `pending_steps` are the waits, in steps, of pods that were placed or removed.
    """

    cores: float
    running: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    pending_steps: list[int] = field(default_factory=list)

    def scale(self, count: int, now: int, nodes: PeakNodes) -> None:
        """Change the number of pods to `count`: new ones wait; waiting ones are removed first, then the newest."""
        self.waiting += [now] * (count - len(self.running) - len(self.waiting))
        while len(self.running) + len(self.waiting) > count:
            if self.waiting:
                self.pending_steps.append(now - self.waiting.pop())
            else:
                nodes.leave(self.running.pop(), self.cores)

    def place(self, now: int, nodes: PeakNodes, planner: Planner | None) -> None:
        """Place waiting pods, the oldest first, on reserved capacity if there is some, else on any node."""
        while self.waiting:
            node = planner.hand_over() if planner else None
            node = nodes.place(self.cores) if node is None else node
            if node is None:
                return
            self.pending_steps.append(now - self.waiting.pop(0))
            self.running.append(node)


@dataclass(slots=True)
class PeakCluster:
    """The state of one run, with or without a plan, between two control periods."""

    nodes: PeakNodes
    pods: PeakPods
    jobs: PeakJobs
    planner: Planner | None
    unplanned: int = 0
    idle: float = 0.0
    peak: float = 0.0
    done: float = 0.0

    def scale(self, count: int, now: int) -> None:
        """Scale the service to `count` pods, and count new pods for which no plan reserves capacity."""
        if self.planner and not self.planner.holds:
            self.unplanned += max(0, count - len(self.pods.running) - len(self.pods.waiting))
        self.pods.scale(count, now, self.nodes)

    def place(self, now: int) -> None:
        """Give free capacity to waiting pods: the service's pods first, then placeholders, then jobs."""
        self.pods.place(now, self.nodes, self.planner)
        if self.planner:
            self.planner.place(self.nodes)
            self.pods.place(now, self.nodes, self.planner)
        self.jobs.begin(now, self.nodes)

    def count(self) -> None:
        """Add this period's idle, peak and job cores to the sums, in core-periods."""
        self.idle += self.pods.cores * self.planner.standing if self.planner else 0.0
        self.peak += self.pods.cores * len(self.pods.running)
        self.done += self.jobs.running_cores


def play_peaks(
    wanted_pods: Counts,
    service: PeakService,
    seed: int,
    start_seconds: float,
    settings: PlanSettings,
    proposals: Sequence[Proposal] = (),
) -> PeakOutcome:
    """Simulate a service with peaks beside batch jobs, with or without reservations; return how its pods fared.

    `wanted_pods` has the peak pods in each slot, of which the first FILLING_SLOTS are not evaluated; `start_seconds` is
    the time of the first evaluated slot. `proposals` has one per evaluated hour, none without reservations. A pod that
    is placed in its first control period has waited `settings.scheduler_seconds`; a pod that is removed before it is
    placed has waited until then.
    """
    period = settings.interval_seconds
    per_slot, counted_slots = int(SLOT_SECONDS // period), len(wanted_pods) - FILLING_SLOTS
    # Before the first period the service's usual pods run, and nothing else.
    service_cores = service.pod_cores * (service.base_pods + float(wanted_pods.mean()))
    jobs = PeakJobs(max(service.cluster.cores - service_cores, 0.0), len(wanted_pods), period, seed)
    planner = Planner(service, settings) if proposals else None
    run = PeakCluster(PeakNodes.empty(service.cluster), PeakPods(service.pod_cores), jobs, planner)
    for _ in range(service.base_pods):
        run.nodes.place(service.pod_cores)
    for now in range(len(wanted_pods) * per_slot):
        slot, counted_slot = now // per_slot, now // per_slot - FILLING_SLOTS
        run.jobs.end(now, run.nodes)
        if now == FILLING_SLOTS * per_slot:
            run.pods.pending_steps.clear()
            run.unplanned = 0
        if now % per_slot == 0:
            run.scale(int(wanted_pods[slot]), now)
        if run.planner and counted_slot >= 0:
            if now % (per_slot * HOUR_SLOTS) == 0:
                run.planner.set_proposal(proposals[counted_slot // HOUR_SLOTS])
            at_seconds = start_seconds + (now - FILLING_SLOTS * per_slot) * period
            run.planner.turn(at_seconds, len(run.pods.running), len(run.pods.waiting), run.nodes)
        run.place(now)
        if counted_slot >= 0:
            run.count()
    run.pods.scale(0, len(wanted_pods) * per_slot, run.nodes)
    hours = period / HOUR_SECONDS
    waits = tuple(steps * period + settings.scheduler_seconds for steps in run.pods.pending_steps)
    handed_over = run.planner.handed_over if run.planner else 0
    cluster = service.cluster.cores * counted_slots * SLOT_SECONDS / HOUR_SECONDS
    return PeakOutcome(waits, handed_over, run.unplanned, run.idle * hours, run.peak * hours, run.done * hours, cluster)
