"""EDGE: the manager's controller of accepted ladders (cuts in several steps): verifies a step, then takes the next.

A round runs the change watcher on the changes of ladders only, with a client that writes under the Lease. In a dry run
of the manager it does nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import structlog

from cotenant.autopilot.rounds.acts import PATIENCE_SECONDS, LedClient
from cotenant.base.controllers.contract import ControllerDecision
from cotenant.base.controllers.loop import Changes, Feature
from cotenant.base.controllers.sender import Leadership
from cotenant.base.errors import StoreBusy
from cotenant.base.kube import KubeClient
from cotenant.base.kubernetes.intent import Outcome
from cotenant.base.ledger.bucket_ledger import ledger_turn, open_ledger
from cotenant.base.process.clock import Clock
from cotenant.base.settings.base import SettingSections
from cotenant.base.settings.sections import StoreSettings, store_url
from cotenant.base.store import Store
from cotenant.changes.accept import ActionParts, Actions
from cotenant.changes.access.configured_service import climber_of
from cotenant.changes.change_ledger import ChangeLedger
from cotenant.changes.ledger_cache import LedgerCache
from cotenant.changes.live_context import who as person_of
from cotenant.changes.model.settings import ActionSettings, anchor_namespace, ledger_location
from cotenant.changes.soak.usage_comparison import comparison_of
from cotenant.changes.soak.watcher import Watcher, WatchScope
from cotenant.profiler.settings import ProfilerSettings

log = structlog.get_logger(__name__)


class LadderController(Feature):
    """The manager's controller that verifies and continues accepted ladders, which are cuts in several steps."""

    name = "ladders"
    by_clock = True
    needs: tuple[str, ...] = ()

    def __init__(self, watcher: Watcher, interval_seconds: float) -> None:
        self._watcher = watcher
        self.interval_seconds = interval_seconds

    def decide(self, changes: Changes, now_seconds: float) -> ControllerDecision:  # noqa: ARG002 - it goes by time
        """Decide nothing: `sent`, which only the leader calls, writes the steps."""
        return ControllerDecision()

    def sent(self, outcomes: Sequence[Outcome]) -> None:  # noqa: ARG002 - nothing was asked for
        """Verify and continue the ladders that are due; if the ledger is locked, wait for the next round."""
        try:
            moved = self._watcher.step()
        except StoreBusy as error:
            log.info("another process has locked the ledger: ladders wait for the next round", err=error.message)
            return
        for status in moved:
            log.info("ladder step moved", ladder=status.change.ladder, change=status.change.id, state=status.state)


def ladder_controller(
    client: KubeClient, settings: SettingSections, cluster: str, leadership: Leadership, clock: Clock
) -> LadderController:
    """Return the controller of ladders; no request is sent yet."""
    store = Store(store_url(settings.section(StoreSettings), os.environ), cluster)
    place = ledger_location(settings.section(ActionSettings), os.environ)
    comparison, ledger_cache = comparison_of(settings.section(ProfilerSettings).prometheus), LedgerCache()

    @contextmanager
    def open_actions() -> Iterator[Actions]:
        led = LedClient.of(client, leadership.require)
        with (
            closing(led),
            ledger_turn(place, "the manager continues the changes that are made in several steps", PATIENCE_SECONDS),
            closing(open_ledger(place)) as ledger,
        ):
            person = person_of(led)
            change_ledger = ChangeLedger(ledger, clock, person.name, ledger_cache, "ladder")
            change_ledger.cluster = led.access.cluster
            parts = ActionParts(anchor_namespace=anchor_namespace(settings), **comparison)
            yield Actions(led, change_ledger, settings.section(ActionSettings), person, parts)

    steps = WatchScope(lambda status: bool(status.change.ladder))  # with the first one, which a person took
    watcher = Watcher(open_actions, lambda _news: None, scope=steps, climb=climber_of(settings, store))
    return LadderController(watcher, settings.section(ActionSettings).watch_seconds)
