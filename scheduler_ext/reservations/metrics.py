"""Metrics of Reservations: their phases, reserved amounts, and outcomes of hand-overs."""

from __future__ import annotations

import math
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge

from cotenant.scheduler_ext.reservations.decide import ReservationWrites
from cotenant.scheduler_ext.reservations.model.life_cycle import Phase
from cotenant.scheduler_ext.reservations.swap import HandOverOutcome, placeholder_capacity
from cotenant.scheduler_ext.reservations.view import ReservationView


class ReservationMetrics:
    """The metrics of Reservations: what they reserve, what is used of it, and what the reserving costs."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register on the process's registry."""
        word = "cotenant_reservation"
        self._phases = Gauge(f"{word}s", "Reservations by phase.", ["phase"], registry=registry)
        self._held = Gauge(
            f"{word}_held_cores", "Unused CPU that placeholders reserve.", ["reservation"], registry=registry
        )
        self._held_bytes = Gauge(
            f"{word}_held_bytes", "Unused memory that placeholders reserve.", ["reservation"], registry=registry
        )
        self._allocated = Gauge(f"{word}_allocated_cores", "CPU that owners use.", ["reservation"], registry=registry)
        self._age = Gauge(f"{word}_age_seconds", "Time since it was made.", ["reservation"], registry=registry)
        self._tax = Counter(
            f"{word}_idle_core_seconds_total", "Reserved and unused CPU, over time.", ["reservation"], registry=registry
        )
        self._swaps = Counter(
            f"{word}_hand_overs_total", "Hand-overs by how they ended.", ["outcome"], registry=registry
        )
        self._hits = Gauge(
            f"{word}_hit_ratio",
            "Share of the Reservations ended in the last day that were used; NaN when none has ended.",
            registry=registry,
        )
        self._hits.set(math.nan)  # a replica that stands by shows none, not 0
        for outcome in get_args(HandOverOutcome):
            self._swaps.labels(outcome)
        self._last = 0.0
        self._shown: set[str] = set()

    def show(self, view: ReservationView, plan: ReservationWrites) -> None:
        """Set the metrics to the last decision."""
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
