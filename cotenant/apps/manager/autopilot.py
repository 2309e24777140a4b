"""EDGE: the autopilot's controller from the manager's parts: its client writes under the Lease alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from autopilot.rounds.acts import ActConfig, LedClient
from autopilot.rounds.floors import floor_forecasts
from autopilot.rounds.rounds import Rounds
from changes.soak.usage_comparison import comparison_of
from cotenant.apps.manager.controllers.autopilot_controller import AutopilotController
from cotenant.apps.manager.controllers.autopilot_notes import ChatNotes
from cotenant.apps.manager.sender import Leadership
from cotenant.apps.pipeline.explain import recommendations_of, requested_millicores
from cotenant.core.adapters.clock import Clock
from cotenant.core.adapters.kube import KubeClient
from cotenant.core.adapters.store import Store
from cotenant.core.adapters.telemetry import Metrics
from cotenant.core.adapters.webhook import receiver_of
from cotenant.core.model.changes.people import Person
from cotenant.core.settings.root import Settings
from cotenant.core.settings.sections.actions import ledger_place
from cotenant.core.settings.sections.store import store_url


def autopilot_controller(
    client: KubeClient,
    settings: Settings,
    cluster: str,
    leadership: Leadership,
    metrics: Metrics | None,
    clock: Clock,
) -> AutopilotController:
    """Its controller; nothing is asked yet."""
    store = Store(store_url(settings.store, os.environ), cluster)

    @contextmanager
    def access(_who: Person) -> Iterator[KubeClient]:
        """Our own account, whoever asks: the autopilot acts for nobody else."""
        led = LedClient.of(client, leadership.require)
        try:
            yield led
        finally:
            led.close()

    config = ActConfig(
        access=access,
        ledger=ledger_place(settings.actions, os.environ),
        settings=settings,
        clock=clock,
        requested_millicores=lambda: requested_millicores(store),
        anchor_namespace=settings.manager.namespace if settings.actions.anchor else "",
        **comparison_of(settings.profiler.prometheus),
    )
    registry = metrics.registry if metrics else None
    own = settings.autopilot
    rounds = Rounds(config, recommendations_of(store), lambda: floor_forecasts(store))
    notes = ChatNotes(settings.notify, cluster, receiver_of(settings.notify.url_file))
    return AutopilotController(rounds, own.interval_seconds, registry, own.start_up_seconds, notes)
