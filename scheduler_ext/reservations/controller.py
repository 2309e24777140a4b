"""EDGE: the controller of Reservations: reads mirrors, calls `reservations.decide`, and updates its metrics.

A hand-over takes several writes in a row, so this feature runs again without the usual pause, and at its next deadline.
The pods of a node are listed if a placeholder of mode last-resort vanished from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge

from cotenant.base.controllers.contract import ControllerDecision, ObjectNote
from cotenant.base.controllers.loop import Changes, Feature
from cotenant.base.kube import KubeClient, Mirror
from cotenant.base.kubernetes.intent import Intent
from cotenant.base.kubernetes.protocol import SWAP_GUARD
from cotenant.scheduler_ext.reservations.api_servers import ApiServers
from cotenant.scheduler_ext.reservations.decide import (
    SWAP_LINGER_SECONDS,
    ReservationWrites,
    decide,
    withdraw_reservation_promise,
)
from cotenant.scheduler_ext.reservations.guard import Guard
from cotenant.scheduler_ext.reservations.model.life_cycle import Phase
from cotenant.scheduler_ext.reservations.model.settings import ReservationSettings
from cotenant.scheduler_ext.reservations.placeholder import LOWER_CLASS_PREFIX, impossible
from cotenant.scheduler_ext.reservations.swap import HandOverOutcome, placeholder_capacity
from cotenant.scheduler_ext.reservations.view import PodView, ReservationView

LONGEST_SECONDS: Final = 5.0
"""Longest time between two runs if nothing happens, after which a lost node is noticed."""
SHORTEST_SECONDS: Final = 0.005
CLASS_SECONDS: Final = 1.0
"""Time before pods use a new PriorityClass, which the API server must know: a refusal would pause the controller."""
STALE_SECONDS: Final = 300.0
"""A list of nodes older than this does not show which nodes are gone."""


class ReservationController(Feature):
    """The manager's feature `reservations`: placeholders, hand-overs and the status of Reservations."""

    name = "reservations"
    by_server_time = True
    needs: tuple[str, ...] = (
        "reservations",
        "swapguards",
        "pending-pods",
        "reserved-pods",
        "priorityclasses",
        "standby-pods",
    )
    coalesce_seconds = 0.005

    def __init__(
        self,
        client: KubeClient,
        mirrors: Mapping[str, Mirror[Any]],
        settings: ReservationSettings,
        registry: CollectorRegistry | None = None,
    ) -> None:
        """Create the controller without any data. Without a registry it exports no metrics."""
        self.interval_seconds = LONGEST_SECONDS
        self._client, self._mirrors, self._settings = client, mirrors, settings
        self._noticed: dict[str, float] = {}
        self._landed: dict[str, float] = {}
        self._classes: dict[str, float] = {}
        self._servers = ApiServers(client, settings.api_servers)
        self._metrics = ReservationMetrics(registry) if registry else None

    def decide(self, changes: Changes, now_seconds: float) -> ControllerDecision:  # noqa: ARG002 - it looks at everything
        """Return what to write for all Reservations."""
        view = self._view(now_seconds)
        plan = decide(view, self._settings)
        if plan.asks:
            pods_by_node = {}
            for node in plan.asks:  # the pods on it and those that the scheduler nominated for it, from the API server
                selectors = (f"status.nominatedNodeName={node}", f"spec.nodeName={node}")
                lists = (self._client.list("/api/v1/pods", dict[str, Any], fieldSelector=each) for each in selectors)
                pods = {pod.uid: pod for listed in lists for pod in map(PodView.parse, listed)}
                pods_by_node[node] = tuple(pods.values())
            view = replace(view, found=pods_by_node)
            plan = decide(view, self._settings)
        longest = CLASS_SECONDS if view.new_classes else LONGEST_SECONDS
        self.interval_seconds = min(longest, max(SHORTEST_SECONDS, plan.wake_seconds))
        if self._metrics:
            self._metrics.show(view, plan)
        notes = [
            ObjectNote(f"reservations/{name}", "Unreadable", why, warning=True)
            for (_, name), why in self._mirrors["reservations"].refusals.items()
        ]
        for name, outcome in plan.outcomes:
            late = outcome == "TimedOut"
            notes.append(ObjectNote(f"reservations/{name}", outcome, f"a hand-over ended: {outcome}", warning=late))
        notes += [
            ObjectNote(f"apiservers/{url}", "NotAsked", f"hand-overs wait: {why}", warning=True)
            for url, why in self._servers.problems.items()
        ]
        notes += [
            ObjectNote(f"reservations/{r.name}", "Impossible", why, warning=True)
            for r in view.reservations.values()
            if not r.status.phase.ended and (why := impossible(r))
        ]
        return ControllerDecision(plan.intents, tuple(notes))

    def decide_at_shutdown(self, now_seconds: float) -> ControllerDecision:
        """Return the writes at the manager's end: waiting pods lose their gates, which nobody would remove later."""
        return ControllerDecision(withdrawal(self._mirrors, now_seconds))

    def _view(self, now_seconds: float) -> ReservationView:
        guard = guard_of(self._mirrors["swapguards"])
        ids = {swap.id for swap in guard.swaps}
        self._noticed = {id_: self._noticed.get(id_, now_seconds) for id_ in ids}
        settled = {i for i, since in self._noticed.items() if now_seconds - since >= self._settings.swap_settle_seconds}
        settled &= self._servers.confirmed(swap.id for swap in guard.swaps if swap.owner and swap.id in settled)
        reserved = tuple(self._mirrors["reserved-pods"].snapshot().values())
        classes = {name: value for (_, name), value in self._mirrors["priorityclasses"].snapshot().items()}
        ours = (name for name in classes if name.startswith(LOWER_CLASS_PREFIX))
        self._classes = {name: self._classes.get(name, now_seconds) for name in ours}
        # Hand-overs of which everything that is bound was seen bound long enough ago.
        bound = {pod.identity.name: pod.uid for pod in reserved if pod.node}
        bound_of = {
            s.id: {bound.get(s.owner.name, ""), bound.get(s.rest.name, "") if s.rest else ""} - {""}
            for s in guard.swaps
            if s.owner
        }
        self._landed = {uid: self._landed.get(uid, now_seconds) for uids in bound_of.values() for uid in uids}
        patience = SWAP_LINGER_SECONDS
        undone = {s.id for s in guard.swaps if s.owner is None and now_seconds - self._noticed[s.id] >= patience}
        sure = {
            id_
            for id_, uids in bound_of.items()
            if uids and all(now_seconds - self._landed[uid] >= patience for uid in uids)
        }
        reservations = {
            name: reservation for (_, name), reservation in self._mirrors["reservations"].snapshot().items()
        }
        pending = tuple(self._mirrors["pending-pods"].snapshot().values())
        # read after the Reservations: a node that one of them is on must not be newer than the list of nodes
        nodes: frozenset[str] | None = None
        mirror = self._mirrors["nodes"]
        if mirror.wait_synced(0) and mirror.error is None and mirror.age_seconds() <= STALE_SECONDS:
            nodes = frozenset(name for _, name in mirror.snapshot())
        return ReservationView(
            reservations=reservations,
            guard=guard,
            pending=pending,
            reserved=reserved,
            nodes=nodes,
            classes=classes,
            new_classes=frozenset(n for n, at in self._classes.items() if now_seconds - at < CLASS_SECONDS),
            settled=frozenset(settled),
            noticed=dict(self._noticed),
            lingered=frozenset(sure | undone),
            standby=tuple(self._mirrors["standby-pods"].snapshot().values()) if self._settings.operating_mode else (),
            unreadable=frozenset(name for _, name in self._mirrors["reservations"].refusals),
            unmade=self.unmade,
            now_seconds=now_seconds,
        )


def guard_of(mirror: Mirror[Any]) -> Guard:
    """Return the SwapGuard, the record of hand-overs; ValueError if unreadable: a guess might assign capacity twice."""
    if ("", SWAP_GUARD) in mirror.refusals:
        raise ValueError(f"swapguards/{SWAP_GUARD}: {mirror.refusals['', SWAP_GUARD]}")
    guard = mirror.snapshot().get(("", SWAP_GUARD))
    return guard if isinstance(guard, Guard) else Guard()


CHECK_SECONDS: Final = 30.0


def withdrawal(mirrors: Mapping[str, Mirror[Any]], now_seconds: float) -> tuple[Intent, ...]:
    """Return the writes that end gating and remove the gates of waiting pods; works without the SwapGuard CRD too."""
    pending = mirrors["pending-pods"].snapshot().values()
    return withdraw_reservation_promise(guard_of(mirrors["swapguards"]), pending, now_seconds)


class Gates(Feature):
    """The stand-in for a feature whose objects Koordinator handles (`handled_by`); it removes cotenant's gates."""

    interval_seconds = CHECK_SECONDS

    def __init__(self, name: str, needs: tuple[str, ...], withdraw: Callable[[float], tuple[Intent, ...]]) -> None:
        """Store the arguments. `withdraw` returns the writes that remove the gates, given the Unix time."""
        self.name, self.needs, self._withdraw = name, needs, withdraw

    def decide(self, changes: Changes, now_seconds: float) -> ControllerDecision:  # noqa: ARG002 - it looks at everything
        """Return the writes that stop the gating of new pods and remove the gates of all waiting pods."""
        return ControllerDecision(self._withdraw(now_seconds))


class ReservationMetrics:
    """Metrics of Reservations: reserved capacity, its use, and hand-overs."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register on the process's registry."""
        word = "cotenant_reservation"
        gauge, counter = partial(Gauge, registry=registry), partial(Counter, registry=registry)
        self._phases = gauge(f"{word}s", "Reservations by phase.", ["phase"])
        self._held = gauge(f"{word}_held_cores", "Reserved CPU that no owner pod uses.", ["reservation"])
        self._held_bytes = gauge(f"{word}_held_bytes", "Reserved memory that no owner pod uses.", ["reservation"])
        self._allocated = gauge(f"{word}_allocated_cores", "Reserved CPU that owner pods use.", ["reservation"])
        self._age = gauge(f"{word}_age_seconds", "Time since the Reservation was created.", ["reservation"])
        self._tax = counter(
            f"{word}_idle_core_seconds_total", "Unused reserved CPU, summed over time.", ["reservation"]
        )
        self._swaps = counter(f"{word}_hand_overs_total", "Hand-overs of reserved capacity, by outcome.", ["outcome"])
        self._hits = gauge(
            f"{word}_hit_ratio",
            "Used share of the Reservations that ended in the last day; NaN if none ended.",
        )
        self._hits.set(math.nan)  # a replica that stands by shows none, not 0
        for outcome in get_args(HandOverOutcome):
            self._swaps.labels(outcome)
        self._last = 0.0
        self._shown: set[str] = set()

    def show(self, view: ReservationView, plan: ReservationWrites) -> None:
        """Set the metrics to the state that the controller read and to its decision."""
        for _, outcome in plan.outcomes:
            self._swaps.labels(outcome).inc()
        elapsed = view.now_seconds - self._last if self._last else 0.0
        if self._last and elapsed < 1.0:
            return
        self._last = view.now_seconds
        all_ = list(view.reservations.values())
        for phase in Phase:
            self._phases.labels(phase.value).set(sum(r.status.phase is phase for r in all_))
        ended = [r for r in all_ if r.status.phase.ended]
        self._hits.set(sum(bool(r.status.owners) for r in ended) / len(ended) if ended else math.nan)
        living = {r.name: r for r in all_ if not r.status.phase.ended}
        for name, reservation in living.items():
            reserved = placeholder_capacity(view, reservation.uid)
            cores = reserved.get("cpu", 0) / 1000
            self._held.labels(name).set(cores)
            self._held_bytes.labels(name).set(reserved.get("memory", 0))
            self._allocated.labels(name).set(reservation.status.allocated.get("cpu", 0) / 1000)
            self._age.labels(name).set(view.now_seconds - reservation.created_seconds)
            self._tax.labels(name).inc(max(0.0, elapsed) * cores)
        for name in self._shown - living.keys():
            for metric in (self._held, self._held_bytes, self._allocated, self._age, self._tax):
                metric.remove(name)
        self._shown = set(living)
