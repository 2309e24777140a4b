"""EDGE: Reservations where Koordinator's scheduler handles them: removes our scheduling gate from pods.

A manager that ran before under other settings and handed capacity over has left `servedUntil`, and perhaps gated pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cotenant.base.controllers.contract import ControllerDecision
from cotenant.base.controllers.loop import Changes, Feature
from cotenant.base.kube import Mirror
from cotenant.base.kubernetes.intent import Outcome
from cotenant.scheduler_ext.reservations.controller import guard_of
from cotenant.scheduler_ext.reservations.decide import withdraw_reservation_promise

CHECK_SECONDS: Final = 30.0


class Gates(Feature):
    """Feature `reservations` with `reservations.handled_by: koordinator`."""

    name = "reservations"
    needs: tuple[str, ...] = ("pending-pods",)
    interval_seconds = CHECK_SECONDS

    def __init__(self, mirrors: Mapping[str, Mirror[Any]]) -> None:
        """mirrors: those of feature `reservations`; SwapGuards need not be installed."""
        self._mirrors = mirrors

    def decide(self, changes: Changes, now_seconds: float) -> ControllerDecision:  # noqa: ARG002 - it looks at everything
        """Withdraw what an earlier manager promised."""
        pending = self._mirrors["pending-pods"].snapshot().values()
        return ControllerDecision(
            withdraw_reservation_promise(guard_of(self._mirrors["swapguards"]), pending, now_seconds)
        )

    def sent(self, outcomes: Sequence[Outcome]) -> None:
        """The mirrors show what became of it."""
