"""The worst 24 hours of tested peaks of nodes: how many nodes used more than was kept for prod, together. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from cotenant.base.reasons import SENTENCES, Reason
from cotenant.base.resource import Resource
from cotenant.base.text import percent

_WORDS = {Resource.CPU: "CPU", Resource.MEMORY: "Memory"}


@dataclass(frozen=True, slots=True)
class WorstDay:
    """The 24 hours in which most nodes passed their peak in force; decisions are tested by what was known before them.

    risk_ratio: share of decisions that may be passed. tested_days: days of tested decisions. nodes, short_nodes: those
    tested in the 24 hours, and those of them that used more than their peak. start_seconds: Unix time, None = no node
    ever did. mean_short_seconds: mean over the short nodes of the time above, None = not known in samples of five
    minutes. deepest_ratio: highest excess over a peak, of its node's limit. reason: OK, or why nothing is known.
    """

    risk_ratio: float
    tested_days: int
    nodes: int = 0
    short_nodes: int = 0
    start_seconds: int | None = None
    mean_short_seconds: float | None = None
    deepest_ratio: float | None = None
    reason: Reason = Reason.OK


def sentence(day: WorstDay, resource: Resource) -> str:
    """The event in words, with a time in minutes and a depth in percent of a node; or why it is not known."""
    at_risk = f"{_WORDS[resource]} at risk {100 * day.risk_ratio:g} %"
    if day.reason is not Reason.OK:
        return f"{at_risk}: {SENTENCES[day.reason]}"
    tested = f"{day.tested_days} tested {'day' if day.tested_days == 1 else 'days'}"
    if day.start_seconds is None or day.deepest_ratio is None:
        return f"{at_risk}: no node used more than was kept for prod in {tested}."
    nodes = f"{day.short_nodes:,} of {day.nodes:,} {'node' if day.nodes == 1 else 'nodes'}"
    begin = datetime.fromtimestamp(day.start_seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return (
        f"{at_risk}: in the worst 24 hours of {tested}, from {begin}, {nodes} used more than was kept for prod, "
        f"{_how_long(day)}; deepest {percent(day.deepest_ratio, 1)} of a node."
    )


def _how_long(day: WorstDay) -> str:
    if day.mean_short_seconds is None:
        return "for how long is not kept"
    each = "" if day.short_nodes == 1 else " each on average"
    return f"for {day.mean_short_seconds / 60:.0f} minutes{each}"
