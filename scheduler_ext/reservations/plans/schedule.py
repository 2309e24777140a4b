"""The windows of a recurring plan (cron's five fields in an IANA zone), and to which of them a decision applies.

Pure; the grammar is cronsim's. The schedule is evaluated in local wall-clock time, so that each local time occurs once:
a time that daylight saving repeats starts at its first pass, one that it skips at the next valid minute.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain, pairwise
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from cotenant.base.errors import UsageError
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.scheduler_ext.reservations.model.plan import (
    Approval,
    DecisionScope,
    Plan,
    PlanDecision,
    PlanStatus,
    Recurrence,
    Span,
    WindowSource,
)

_SLACK: Final = timedelta(days=2)
"""No zone shifts its clock by more than a day."""
_MINUTE: Final = timedelta(minutes=1)
_FAR_SECONDS: Final = 50 * 366 * 86_400
"""Time after which a schedule without a start counts as having no further occurrence."""


def check(rule: Recurrence) -> None:
    """Raise UsageError if the schedule, the time zone or the duration is invalid."""
    _zone(rule.zone)
    _cron(rule.schedule, datetime(2026, 1, 1))
    if rule.duration_seconds <= 0:
        raise UsageError(f"window length {rule.duration_seconds:g} s is not above 0", fix="Write for example 2h.")


def starts(rule: Recurrence, after_seconds: float) -> Iterator[float]:
    """Yield the starts later than `after_seconds` (Unix time), ascending and distinct, without the skipped ones."""
    zone = _zone(rule.zone)
    local = datetime.fromtimestamp(int(after_seconds), zone).replace(tzinfo=None, fold=0) - _SLACK
    last = after_seconds
    for wall in _cron(rule.schedule, local):
        start = _instant(wall, zone)
        if start > after_seconds + _FAR_SECONDS:
            return
        if start > last:
            last = start
            if start not in rule.skip:
                yield start


def occurrences(rule: Recurrence, after_seconds: float) -> Iterator[Span]:
    """Yield the windows that begin later than `after_seconds`; a window ends at the latest when the next one begins."""
    # one more start, infinitely far, so that the last window has an end of its own
    for start, following in pairwise(chain(starts(rule, after_seconds), (float("inf"),))):
        yield Span(start, min(start + rule.duration_seconds, following))


def current(rule: Recurrence, now_seconds: float, lead_seconds: float, handled_until_seconds: float) -> Span | None:
    """Return the newest window that begins by now + lead and may still be reserved, or else the next window.

    Windows that began before `handled_until_seconds`, the end of the last finished occurrence, are ignored. None if the
    schedule has no further window.
    """
    back = max(
        handled_until_seconds - 1, now_seconds - rule.duration_seconds - max(rule.starting_deadline_seconds or 0.0, 0.0)
    )
    due: Span | None = None
    for span in occurrences(rule, back):
        if span.start_seconds < handled_until_seconds:
            continue
        if span.start_seconds - lead_seconds > now_seconds:
            return due or span
        if now_seconds < last_chance(rule, span):
            due = span
    return due


def last_chance(rule: Recurrence, span: Span) -> float:
    """Return the Unix time until which capacity for an occurrence may still be reserved."""
    late = rule.starting_deadline_seconds
    return span.end_seconds if late is None else min(span.end_seconds, span.start_seconds + late)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise UsageError(f"time zone {name!r} is unknown", fix="Write an IANA name such as Europe/Berlin.") from error


def _cron(schedule: str, wall: datetime) -> CronSim:
    """Return the schedule from a local time on; UsageError unless it has five fields or is a nickname (@daily)."""
    text = _NICKNAMES.get(schedule, schedule)
    try:
        if len(text.split()) != 5:
            raise CronSimError("five cron fields are needed")
        return CronSim(text, wall)
    except CronSimError as error:
        raise UsageError(
            f"schedule {schedule!r} cannot be read: {error}", fix='Write five fields, such as "0 18 * * 1-5".'
        ) from error


_NICKNAMES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


def _instant(wall: datetime, zone: ZoneInfo) -> float:
    """Return the Unix time of a local time: its first pass, or the next minute that exists."""
    while True:
        instant = wall.replace(tzinfo=zone).astimezone(UTC)
        if instant.astimezone(zone).replace(tzinfo=None, fold=0) == wall:
            return instant.timestamp()
        wall += _MINUTE


def decision_in_force(plan: Plan) -> Approval | None:
    """Return a person's decision on the present occurrence; None if there is none, or only on an earlier occurrence."""
    decision = plan.approval
    return decision if decision is not None and covers_occurrence(plan, decision, plan.status) else None


def covers_occurrence(plan: Plan, approval: Approval, status: PlanStatus) -> bool:
    """Return whether a decision applies to the plan's present occurrence.

    - A decision of scope SERIES always applies. An approval of one occurrence applies until the occurrence is scored.
    - A rejection of one occurrence applies to a schedule's windows up to the first that was not over at the rejection,
      to a forecast's windows that begin at most a day after the rejection, and to a single manual window always.
    """
    if approval.scope is DecisionScope.SERIES:
        return True
    if approval.decision is PlanDecision.APPROVED or status.window is None or not approval.at_seconds:
        return approval.at_seconds >= status.last_end_seconds
    if plan.recurring:
        back = approval.at_seconds - plan.recurring.duration_seconds
        meant = next((s for s in occurrences(plan.recurring, back) if s.end_seconds > approval.at_seconds), None)
        return meant is not None and status.window.start_seconds <= meant.start_seconds
    return plan.source is WindowSource.MANUAL or status.window.start_seconds <= approval.at_seconds + DAY_SECONDS
