"""Output of the watcher's notifications: stderr, and the receiver that the notify settings name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from cotenant.base.commands.output import message
from cotenant.base.settings.sections import KubeSettings, NotifySettings
from cotenant.changes.model.settings import ActionSettings

if TYPE_CHECKING:
    from cotenant.base.settings.base import SettingSections
    from cotenant.base.store import Store
    from cotenant.changes.service import ClusterChangeService
    from cotenant.changes.soak.watcher import News

PEAK_HOURS: Final = 2.0
"""How long before the cluster's next peak the watcher announces it; 0: never. Two hours leave time to act on a peak."""


def news_notifier(settings: SettingSections) -> Callable[[list[News]], None]:
    """Return a function that prints notifications on stderr and sends them to the configured receiver.

    Raise UsageError if the receiver's address is invalid.
    """
    from cotenant.base.http.webhook import receiver_of
    from cotenant.changes.notifications import send

    url = receiver_of(settings.section(NotifySettings).url_file)

    def print_news(news: list[News]) -> None:
        for item in news:
            message(f"{item.title}: {item.words}", style="yellow" if item.bad else "")
        if url:
            send(url, settings.section(KubeSettings).context or "cluster", news, settings.section(NotifySettings))

    return print_news


def peaks_of(store: Store | None) -> Callable[[float], list[News]]:
    """Return a function from a time to the news of a pronounced forecast peak in the next `PEAK_HOURS`, if any."""
    from datetime import UTC, datetime

    from cotenant.base.resource import MILLICORES_PER_CORE
    from cotenant.base.usage.peak import PEAK_NAME
    from cotenant.changes.soak.watcher import News
    from cotenant.recommender.model.views import Overview

    def ahead(now_seconds: float) -> list[News]:
        overview = store.read_document("overview", Overview) if store is not None else None
        peak = overview.peak if overview is not None else None
        if overview is None or peak is None or not peak.pronounced:
            return []
        if not 0 < peak.start_seconds - now_seconds <= 3600 * PEAK_HOURS:
            return []
        start, end = (datetime.fromtimestamp(t, UTC) for t in (peak.start_seconds, peak.end_seconds))
        cores = f"{PEAK_NAME}: {peak.height_millicores / MILLICORES_PER_CORE:.0f} cores"
        more = f"{peak.above_now_millicores / MILLICORES_PER_CORE:.0f} more than now; {peak.led_by} adds most"
        return [News(f"{overview.cluster}: peak expected {start:%a %H:%M} to {end:%H:%M} UTC", f"{cores}, {more}")]

    return ahead


@contextmanager
def run_watcher(
    settings: SettingSections, service: ClusterChangeService | None, store: Store | None = None
) -> Iterator[None]:
    """Run a watcher while the body runs, if there is a change service and the settings enable it."""
    if service is None or not settings.section(ActionSettings).watch:
        yield
        return
    watcher = service.watcher(news_notifier(settings), peaks_of(store))
    stop = watcher.start(settings.section(ActionSettings).watch_seconds)
    try:
        yield
    finally:
        stop()
