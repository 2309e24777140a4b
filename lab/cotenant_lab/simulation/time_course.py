"""EDGE: the demo's time: advances cluster and manager step by step, also when a person moves the clock ahead.

One thread does everything: the stand-ins' steps, then the manager's real decisions on the result, until both have
nothing left to do. Moving ahead takes long steps while no capacity is reserved, and short ones while it is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog

from cotenant.base import measures
from cotenant.base.demo_clock import MoveProgress, Stop
from cotenant.base.errors import ClusterAbsent, CotenantError, UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import Mirror
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.manager.run import Manager
from cotenant.scheduler_ext.reservations.model.life_cycle import PlanPhase
from cotenant.scheduler_ext.reservations.model.plan import Plan, PlanDecision
from cotenant_lab.simulation.api_server.state import ObjectState
from cotenant_lab.simulation.batch_load import Evening
from cotenant_lab.simulation.clock import SteeredClock
from cotenant_lab.simulation.controllers.autoscaler import NOTHING, CpuDemand
from cotenant_lab.simulation.controllers.cluster_controllers import ClusterControllers
from cotenant_lab.simulation.controllers.node_metrics import NodeMetricReports
from cotenant_lab.simulation.shortage import (
    STEP_SECONDS,
    ClusterSnapshot,
    ShortageCount,
    compared_words,
    origin,
    without,
)

IDLE_SECONDS: Final = 0.25
"""Machine time between two looks at what people did."""
PERIOD_SECONDS: Final = 5.0
"""On the demo's clock, between two rounds of the manager when nothing changed."""
STRIDE_SECONDS: Final = 300.0
NUDGE_SECONDS: Final = 0.1
"""By which the clock goes on from round to round of one moment: hand-overs wait for a moment to pass."""
MOST_ROUNDS: Final = 40
STOP_SECONDS: Final = 5.0
BEFORE_SECONDS: Final = 300.0
"""Before a window begins one looks whether its capacity is there: most of the lead has passed."""
AFTER_SECONDS: Final = 900.0
"""After a window ends its score is there."""
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ClusterParts:
    """The parts of the running cluster: objects, stand-in controllers and agents, manager.

    Only the time course runs the controllers, the agents and the manager.
    """

    state: ObjectState
    living: ClusterControllers
    agents: NodeMetricReports
    manager: Manager
    plans: Mirror[Any]
    demand: CpuDemand = NOTHING
    batch: Evening | None = None


class TimeCourse:
    """The control of a running demo cluster's clock; implements `cotenant.base.demo_clock.Steering`."""

    def __init__(self, parts: ClusterParts, clock: SteeredClock) -> None:
        """Create a time course that does not run yet."""
        self._parts, self._clock = parts, clock
        self._goal: float | None = None
        self._move_began = (0.0, 0.0)
        """Of the last move: the demo's and the machine's clock."""
        self._seen_version = -1
        self._managed_at = float("-inf")
        self._looked: dict[int, int] = {}
        self._origin: ClusterSnapshot | None = None
        self._counts: dict[str, tuple[ShortageCount, ClusterSnapshot]] = {}
        self._told: list[str] = []
        self._stopping, self._wake = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo", daemon=True)

    # --- steering -----------------------------------------------------------------------------------------------------
    def now_seconds(self) -> float:
        """Return the Unix time of the demo's clock."""
        return self._clock.now_seconds()

    @property
    def halted(self) -> bool:
        """True if the clock is halted."""
        return self._clock.halted

    @property
    def going_to(self) -> float | None:
        """The Unix time to which the clock is being moved, or None."""
        return self._goal

    @property
    def progress(self) -> MoveProgress | None:
        """The progress of the move ahead; None if the clock runs at its normal speed."""
        goal, (began, machine) = self._goal, self._move_began
        if goal is None:
            return None
        done = min(measures.ratio_of(self.now_seconds() - began, goal - began), 1.0)
        return MoveProgress(goal, done, measures.remaining_seconds(time.monotonic() - machine, done))

    def halt(self, halted: bool) -> None:
        """Halt the clock, or let it run again; ends a move at the time that it has reached."""
        self._goal = None
        self._clock.halt(halted)
        self._wake.set()

    def forward(self, to_seconds: float) -> None:
        """Start to move the clock ahead; raise UsageError for a past time, and for more than a day."""
        now = self.now_seconds()
        if not now < to_seconds <= now + DAY_SECONDS:
            raise UsageError("the demo's clock can advance by at most a day", fix="Choose a time within the next day.")
        if self._goal is None:
            self._move_began = now, time.monotonic()
        self._goal = to_seconds
        self._wake.set()

    def stops(self) -> Sequence[Stop]:
        """Return the times before and after the windows of approved plans, else before the next proposed window."""
        now = self.now_seconds()
        plans = self._plans()
        approved = [plan for plan in plans if _is_approved(plan) and (plan.status.window or plan.window)]
        upcoming = []
        for plan in approved or plans:
            if window := plan.status.window or plan.window:
                name = f"{plan.namespace}/{plan.owner.name}"
                upcoming.append(Stop(window.start_seconds - BEFORE_SECONDS, f"before the window of {name}"))
                if approved:
                    upcoming.append(Stop(window.end_seconds + AFTER_SECONDS, f"after the window of {name}"))
        later = (stop for stop in upcoming if stop.at_seconds > now)
        return sorted(later, key=lambda stop: stop.at_seconds)[: 2 if approved else 1]

    def told(self) -> Sequence[str]:
        """Return the demo's messages, newest first."""
        return tuple(reversed(self._told))

    def report(self, text: str) -> None:
        """Add a message, such as a change that did harm."""
        self._told.append(text)

    # --- living -------------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Start the thread that runs the cluster."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait up to STOP_SECONDS for its present step to end."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)
        self._parts.manager.stop(withdraw=False)

    def settle(self) -> None:
        """Run the manager, the cluster's controllers and the agents until none of them changes anything."""
        for _ in range(MOST_ROUNDS):
            # The manager first: what it promises for the next moments (`servedUntil`) holds when pods are made.
            managed = self._manage()
            lived = self._parts.living.settled(self.now_seconds())
            self._parts.agents.report(self.now_seconds())
            if not managed and not lived:
                break
            self._clock.move(self.now_seconds() + NUDGE_SECONDS)
        self._count()

    def advance(self) -> None:
        """Move the clock one step towards the goal, and run everything due at that time; end the move at the goal."""
        goal, now = self._goal, self.now_seconds()
        if goal is None or now >= goal:
            self._goal = None
            return
        with self._clock.still():
            self._clock.move(min(goal, self._next(now)))
            self.settle()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                if self._goal is not None:
                    self.advance()
                else:
                    with self._clock.still():
                        self.settle()
                    self._wake.wait(IDLE_SECONDS)
                    self._wake.clear()
            except Exception:  # a fault of one moment must not end the demo
                log.exception("the demo's cluster")
                self._stopping.wait(1.0)

    def _manage(self) -> bool:
        """A round of every controller when something changed or time is due; whether one of them wrote."""
        now, version = self.now_seconds(), self._parts.state.version
        if version == self._seen_version and now - self._managed_at < PERIOD_SECONDS:
            return False
        manager = self._parts.manager
        for mirror in manager.mirrors.values():
            # What changed since the last look is listed; what did not is as fresh as the look: an old list is stale.
            parts = mirror.path.strip("/").split("/")  # /api/v1/pods, /apis/GROUP/VERSION/PLURAL
            changed = self._parts.state.changed(("" if parts[0] == "api" else parts[1], parts[-1]))
            if self._looked.get(id(mirror)) != changed:
                try:
                    mirror.list_once()
                except ClusterAbsent as error:
                    mirror.error = error  # as a running mirror would: the demo does not serve that kind
                self._looked[id(mirror)] = changed
            elif mirror.error is None:
                mirror.confirm()
        self._seen_version, self._managed_at = version, now
        for runner in manager.runners:
            manager.board.report(runner.round())
        return any(runner.last.outcomes for runner in manager.runners if runner.feature is not manager.board)

    def _count(self) -> None:
        """Keeps account of windows whose capacity is held; when one is over, its twin without the plan is asked."""
        now = self.now_seconds()
        plans = {plan.key: plan for plan in self._plans() if _is_approved(plan) or _is_over(plan)}
        holding = [p for p in plans.values() if p.status.phase and p.status.phase.holds]
        for plan in holding:
            if plan.key not in self._counts and self._origin and plan.status.window:
                ref = WorkloadRef(plan.namespace, plan.owner.kind, plan.owner.name)
                self._counts[plan.key] = ShortageCount(ref, plan.status.window), self._origin
        if not holding:
            self._origin = origin(self._parts.state, now) if plans else None
        for count, _ in self._counts.values():
            count.observe(self._parts.state, self._parts.demand, now)
        for key in [key for key in self._counts if key not in plans or _is_over(plans[key])]:
            count, begin = self._counts.pop(key)
            self._told.append(compared_words(count, without(begin, count, self._parts.demand, self._parts.batch)))

    def _next(self, now: float) -> float:
        """The next moment of a move ahead: of a fixed grid, so that every move passes the same moments.

        The grid is wide while no capacity is held; the moments at which an approved plan reserves are part of it.
        """
        plans = [plan for plan in self._plans() if _is_approved(plan)]
        phases = [plan.status.phase for plan in plans if plan.status.phase]
        has_capacity = any(phase.holds or phase is PlanPhase.RELEASED for phase in phases)
        stride = STEP_SECONDS if has_capacity else STRIDE_SECONDS
        moments = [p.status.reserve_at_seconds for p in plans if p.status.reserve_at_seconds > now]
        return min([(now // stride + 1) * stride, *moments])

    def _plans(self) -> list[Plan]:
        try:
            return list(self._parts.plans.snapshot().values())
        except CotenantError:
            return []


def _is_over(plan: Plan) -> bool:
    return plan.status.phase is not None and plan.status.phase.over


def _is_approved(plan: Plan) -> bool:
    phase = plan.status.phase
    approved = plan.approval is not None and plan.approval.decision is PlanDecision.APPROVED
    return (approved or plan.policy.auto) and not (phase and phase.over)
