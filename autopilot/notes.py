"""EDGE: notifications of the autopilot: changes, rollbacks, stops, and a weekly report. The texts are pure.

The notifications of a round are one message. A thread of its own sends it, so that a slow receiver does not delay the
rounds. The number of messages an hour is limited; what waits goes with the next message. A message that fails is sent
again in later rounds, three times in all, so that it may arrive twice if only the receiver's response was lost.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from cotenant.autopilot.decide.floors import FloorStep
from cotenant.autopilot.model import REPORT, AutopilotEvent
from cotenant.autopilot.rounds.acts import ActOutcome
from cotenant.autopilot.rounds.reading import RoundReading
from cotenant.autopilot.service import report_rows
from cotenant.base.errors import NotDelivered
from cotenant.base.http.webhook import post
from cotenant.base.resource import Resource
from cotenant.base.settings.sections import NotifySettings
from cotenant.base.text import counted
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS
from cotenant.changes.model.change import ChangeState, ChangeStatus
from cotenant.changes.notifications import payload
from cotenant.changes.soak.watcher import News
from cotenant.recommender.model.savings import RequestTotals, Savings
from cotenant.recommender.model.savings_text import saving_phrases, saving_text

WEEK_SECONDS: Final = 7 * DAY_SECONDS
REPORT_SECONDS: Final = 4 * DAY_SECONDS + 8 * HOUR_SECONDS
"""From Thursday 1970-01-01 to Monday 08:00 UTC, when a week's report is due."""
TRIES: Final = 3
MOST_WAITING: Final = 100
"""Number of notifications, the newest, that are kept while none may be sent."""
_FLOORS: Final = {
    AutopilotEvent.FLOOR_RAISED: "minReplicas was raised",
    AutopilotEvent.FLOOR_ENDED: "the raise of minReplicas ended",
}
_HARM: Final = frozenset({ChangeState.ROLLED_BACK, ChangeState.FAILED, ChangeState.REGRESSED})

log = structlog.get_logger(__name__)


def news_of(
    before: RoundReading, reading: RoundReading, moved: Sequence[ChangeStatus], acts: Sequence[ActOutcome]
) -> list[News]:
    """Return the notifications of one round, compared with the round before it.

    A halt is reported when it begins, when its reason changes and when it ends. The week's report comes in the first
    round after Monday 08:00 UTC, except in the first round of a process.
    """
    news = []
    earlier = before.halt.reason if before.halt else None
    if reading.halt is not None and reading.halt.reason is not earlier:
        news.append(News("The autopilot has stopped", reading.halt.words, bad=True))
    elif reading.halt is None and earlier is not None:
        news.append(News("The autopilot continues", "the reason why it stopped is gone"))
    moves = {entry.candidate.workload: entry.candidate for entry in reading.queue}
    for act in acts:
        candidate = moves.get(act.workload)
        if act.changes and candidate is not None:
            savings = candidate.savings
            amounts = saving_text(savings, "") if saving_phrases(savings) else "limits"
            news.append(News(f"{act.workload} was changed", f"{amounts}, over all pods; policy {candidate.policy}"))
    for status in moved:
        if status.state in _HARM or status.rollback_failed:
            became = "could not be rolled back" if status.rollback_failed else status.state.value
            news.append(News(f"{status.change.workload}: {became}", status.words, bad=True))
    week = [(at - REPORT_SECONDS) // WEEK_SECONDS for at in (before.now_seconds, reading.now_seconds)]
    if before.now_seconds and week[0] != week[1]:
        rows = report_rows(reading.history, reading.now_seconds - WEEK_SECONDS)
        sums = {name: sum(row[name] for row in rows) for name in ("proposed", "changed", "held", "regressed", "floors")}
        titles = {column.name: column.title.lower() for column in REPORT.columns}
        freed, raised = (
            RequestTotals(*(int(sum(row[f"{resource}_{word}"] for row in rows)) for resource in Resource))
            for word in ("freed", "raised")
        )
        peaks = f"{counted(sums.pop('floors'), 'peak')} with raised minReplicas"
        counts = ", ".join([*(f"{count} {titles[name]}" for name, count in sums.items()), peaks])
        news.append(News("The autopilot's week", f"{counts}; {saving_text(Savings(freed, raised), '')}"))
    return news


def floor_news(steps: Sequence[FloorStep]) -> list[News]:
    """Return notifications of raised and restored minReplicas and of values set by others; not of refused steps."""
    return [
        News(f"{step.lent.workload}: {_FLOORS[step.event]}", f"{step.lent.autoscaler}: {step.words}", step.is_fought)
        for step in steps
        if not step.refused and (step.patch is not None or step.is_fought)
    ]


@dataclass(slots=True)
class ChatNotes:
    """Sends notifications to the receiver's `url`, which is a secret; "" sends nothing. Not thread-safe."""

    settings: NotifySettings
    cluster: str
    url: str = field(default="", repr=False)
    waiting: list[News] = field(default_factory=list)
    _sent_seconds: list[float] = field(default_factory=list)
    _failures: int = 0
    _delivery: threading.Thread | None = None
    _undelivered: list[News] = field(default_factory=list)

    def send(self, news: Sequence[News], now_seconds: float) -> None:
        """Send new and waiting notifications in one message, unless one is on its way or the hourly limit reached."""
        if not self.url:
            return
        self.waiting = [*self.waiting, *news][-MOST_WAITING:]
        if self._delivery is not None and self._delivery.is_alive():
            return
        # What did not arrive is put back in front, or given up after its last try.
        lost, self._undelivered = self._undelivered, []
        if lost:
            self._failures += 1
            if self._failures < TRIES:
                self.waiting = [*lost, *self.waiting][-MOST_WAITING:]
            else:
                log.warning("notifications of the autopilot were dropped after several tries", count=len(lost))
                self._failures = 0
        self._sent_seconds = [at for at in self._sent_seconds if 0 <= now_seconds - at < HOUR_SECONDS]
        if not self.waiting or len(self._sent_seconds) >= self.settings.notes_per_hour:
            return
        batch, self.waiting = self.waiting, []
        self._sent_seconds.append(now_seconds)
        self._undelivered = batch
        self._delivery = threading.Thread(target=self._deliver, args=(batch,), daemon=True)
        self._delivery.start()

    def _deliver(self, batch: Sequence[News]) -> None:
        try:
            post(self.url, json.dumps(payload(self.cluster, batch, self.settings)).encode(), self.settings)
        except NotDelivered as error:
            log.warning("a notification of the autopilot was not delivered", err=error.message)
        else:
            self._undelivered, self._failures = [], 0
