"""EDGE: the autopilot's controller from the manager's parts: its client writes under the Lease alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cotenant.autopilot.controller import AutopilotController
from cotenant.autopilot.notes import ChatNotes
from cotenant.autopilot.rounds.acts import ActConfig, LedClient
from cotenant.autopilot.rounds.floors import floor_forecasts
from cotenant.autopilot.rounds.rounds import Rounds
from cotenant.autopilot.settings import AutopilotSettings
from cotenant.base.controllers.sender import Leadership
from cotenant.base.http.webhook import receiver_of
from cotenant.base.kube import KubeClient
from cotenant.base.logs.metrics import Metrics
from cotenant.base.people import Person
from cotenant.base.process.clock import Clock
from cotenant.base.settings.root import SettingSections
from cotenant.base.settings.sections.notify import NotifySettings
from cotenant.base.settings.sections.store import StoreSettings, store_url
from cotenant.base.store import Store
from cotenant.changes.model.settings import ActionSettings, anchor_namespace, ledger_location
from cotenant.changes.soak.usage_comparison import comparison_of
from cotenant.profiler.settings import ProfilerSettings
from cotenant.recommender.stored_recommendations import recommendations_of, requested_millicores

START_UP_SECONDS: Final = 5.0
"""Between two rounds over starting pods, where a policy helps starts. A start takes tens of seconds; five are soon
enough to help it."""


def autopilot_controller(
    client: KubeClient,
    settings: SettingSections,
    cluster: str,
    leadership: Leadership,
    metrics: Metrics | None,
    clock: Clock,
) -> AutopilotController:
    """Its controller; nothing is asked yet."""
    store = Store(store_url(settings.section(StoreSettings), os.environ), cluster)

    @contextmanager
    def access(_who: Person) -> Iterator[KubeClient]:
        """The autopilot's own account, for every caller: it acts for no other user."""
        led = LedClient.of(client, leadership.require)
        try:
            yield led
        finally:
            led.close()

    config = ActConfig(
        access=access,
        ledger=ledger_location(settings.section(ActionSettings), os.environ),
        settings=settings,
        clock=clock,
        requested_millicores=lambda: requested_millicores(store),
        anchor_namespace=anchor_namespace(settings),
        **comparison_of(settings.section(ProfilerSettings).prometheus),
    )
    registry = metrics.registry if metrics else None
    own = settings.section(AutopilotSettings)
    rounds = Rounds(config, recommendations_of(store), lambda: floor_forecasts(store))
    notes = ChatNotes(settings.section(NotifySettings), cluster, receiver_of(settings.section(NotifySettings).url_file))
    return AutopilotController(rounds, own.interval_seconds, registry, START_UP_SECONDS, notes)
