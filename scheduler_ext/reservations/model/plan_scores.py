"""What a plan's past occurrences are measured by, each figure with its sign and its words, for every surface. Pure.

Coverage leads: it says whether pods found capacity. The hit ratio says how much of the reserved capacity was used; a
plan that reserved next to nothing has a hit ratio near 100 %, so it never stands alone.
"""

from __future__ import annotations

from cotenant.base.text import counted, percent
from cotenant.scheduler_ext.reservations.model.plan import Score


def hit_ratio(used: float, reserved: float) -> float:
    """Used share of the reserved pod-time, both in one unit of pod-time; 0 where nothing was reserved."""
    return used / reserved if reserved > 0 else 0.0


def coverage(used: float, needed: float) -> float:
    """Share of the needed pod-time that found reserved capacity, both in one unit; 1 where none was needed."""
    return used / needed if needed > 0 else 1.0


def is_needed(score: Score) -> bool:
    """Return whether a pod used or lacked a reservation; otherwise its coverage of 1 has no meaning."""
    return score.used > 0 or score.missed > 0 or bool(score.needed)


def lead_seconds(start_seconds: float, available_at_seconds: float | None) -> int | None:
    """Return how long before a window's start all its capacity was there, seconds; negative: late, None: never."""
    return None if available_at_seconds is None else int(start_seconds - available_at_seconds)


def lead_words(seconds: int | None) -> str:
    """A lead with its sign in words: "19 min before the start", "265 min after the start", "never"."""
    if seconds is None:
        return "never"
    minutes = round(abs(seconds) / 60)
    length = f"{minutes:,} min" if abs(seconds) >= 60 else f"{abs(seconds)} s"
    return f"{length} {'before' if seconds >= 0 else 'after'} the start" if seconds else "at the start"


def available_words(seconds: int | None) -> str:
    """The same as a clause: "all available 19 min before the start", "never all available"."""
    return "never all available" if seconds is None else f"all available {lead_words(seconds)}"


def coverage_words(score: Score) -> str:
    """An occurrence's coverage, which leads every sentence about it."""
    if not is_needed(score):
        return "No pod needed the reserved capacity"
    return f"Coverage {percent(score.coverage)} of the needed pod-time"


def hit_words(score: Score) -> str:
    """An occurrence's hit ratio, as the share that it is."""
    return f"{percent(score.hit_ratio)} of the reserved pod-time used"


def summary(score: Score) -> str:
    """Return a summary of an occurrence in words: coverage, pods, lead, then what stayed idle."""
    pods = f"{_pods(score.used)} of {score.reserved} used a reservation"
    missed = f", {_pods(score.missed)} waited without one" if score.missed else ""
    lent = "" if score.lent_core_hours is None else f", batch ran in {score.lent_core_hours:,.1f} of those reserved"
    return (
        f"{coverage_words(score)}: {pods}{missed}, {available_words(score.lead_seconds)}. "
        f"{score.idle_core_hours:,.1f} core-hours were idle{lent}; {hit_words(score)}."
    )


def short_summary(score: Score) -> str:
    """The same for a cell of a list."""
    covered = f"coverage {percent(score.coverage)}" if is_needed(score) else "not needed"
    waited = f", {score.missed} waited" if score.missed else ""
    return f"{covered}: {score.used} of {score.reserved} used{waited}"


def _pods(number: int) -> str:
    return counted(number, "pod")
