"""`cotenant simulate --report`: comparison of ways to share nodes, and stories of incidents, as one HTML file. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from cotenant.cli.report.backtest_drawings import Axes, Points, Spread, lines
from cotenant.cli.report.document import document
from cotenant.cli.report.scan_drawings import text
from cotenant.experiment.interference import Interference
from cotenant.experiment.outcome import Sharing, SharingOutcome
from cotenant_lab.experiment.comparison import SeedInterval, interval
from cotenant_lab.simulation.nodes.incident_story import IncidentCost, IncidentStory

TITLE: Final = "Simulation"
AXES: Final = Axes("share of node-time short of capacity, %", "batch core-hours")
CURVES: Final = (Sharing.COTENANT, Sharing.KOORDINATOR, Sharing.STATIC, Sharing.ORACLE, Sharing.NONE)
"""The order in which they are drawn; the first is ours."""
COLUMNS: Final[Mapping[str, tuple[str, float, str]]] = {
    "utilisation_ratio": ("Utilisation", 100, "%"),
    "batch_core_hours": ("Batch done", 1, "core-hours"),
    "deadlines_met_ratio": ("Deadlines met", 100, "%"),
    "evictions": ("Evictions", 1, "pods"),
    "suppressed_core_hours": ("Suppressed", 1, "core-hours"),
    "violation_ratio": ("Node-time short", 100, "%"),
    "latency_ratio": ("p99 / no colocation", 1, "x"),
}
"""Field of an outcome -> (title, factor, unit)."""
ASSUMPTIONS: Final = (
    "A step lasts five minutes; a node that is full at the end of a step was full for the whole step.",
    "A node is short of capacity while the usage of services plus the requests of batch pods exceed its capacity.",
    "Batch jobs arrive as fast as would fill the capacity that services leave on average; an evicted job starts again.",
    "Static overcommit is tuned in hindsight on the same days; the oracle knows usage for the run time of a job.",
)

Setting = tuple[Sharing, float]


@dataclass(frozen=True, slots=True)
class SimulationContents:
    """The contents of the HTML report of a simulation.

    `outcomes` are of every way of sharing, setting and seed; `command` is the command line that made the report.
    """

    outcomes: Sequence[SharingOutcome]
    stories: Sequence[IncidentStory]
    model: Interference
    command: str
    computed_seconds: int


def page(contents: SimulationContents) -> str:
    """Return the HTML file as text."""
    outcomes, model, lead = contents.outcomes, contents.model, "Incidents, replayed by the product's own decisions."
    parts = [_comparison(outcomes)] if outcomes else []
    parts += [_story(story) for story in contents.stories]
    constants = ", ".join(f"{name.replace('_', ' ')} {getattr(model, name):g}" for name in model.__slots__)
    items = [*ASSUMPTIONS, f"Interference: p99 grows by queueing, shared hardware and reclaim ({constants})."]
    parts.append(f"<section><h2>Assumptions</h2><ul>{''.join(f'<li>{text(i)}</li>' for i in items)}</ul></section>")
    if outcomes:
        scenario, seeds = outcomes[0].scenario, len({o.scenario.seed for o in outcomes})
        lead = (
            f"{scenario.nodes:,} nodes and {scenario.pods:,} pods ({scenario.trace}), {scenario.days} days, "
            f"{seeds} seeds: what each way to share nodes gives batch work and costs services."
        )
    return document(
        TITLE, lead, contents.computed_seconds, "\n".join(parts), f"Made by <code>{text(contents.command)}</code>."
    )


# --- comparison ------------------------------------------------------------------------------------------------------
def by_setting(outcomes: Sequence[SharingOutcome]) -> dict[Setting, list[SharingOutcome]]:
    """Return the outcomes of all seeds by way of sharing and setting, in the order in which ways are drawn."""

    def place(outcome: SharingOutcome) -> tuple[int, float]:
        return CURVES.index(outcome.sharing), outcome.knob

    return {(CURVES[way], knob): list(same) for (way, knob), same in groupby(sorted(outcomes, key=place), key=place)}


def curves(outcomes: Sequence[SharingOutcome]) -> tuple[dict[str, Points], dict[str, list[Spread]]]:
    """Return by way of sharing a point per setting (violation in %, batch core-hours; seeds' means), and intervals."""
    points: dict[str, list[tuple[float, float]]] = {}
    spread: dict[str, list[Spread]] = {}
    for (sharing, _), same in by_setting(outcomes).items():
        across, done = over_seeds(same, "violation_ratio"), over_seeds(same, "batch_core_hours")
        points.setdefault(sharing, []).append((100 * across.mean, done.mean))
        spread.setdefault(sharing, []).append((100 * across.mean, done.low, done.high))
    return {name: sorted(of) for name, of in points.items()}, spread


def over_seeds(outcomes: Sequence[SharingOutcome], name: str) -> SeedInterval:
    """Return the mean over seeds, with its interval, of the outcomes' field of this name."""
    return interval([float(getattr(outcome, name)) for outcome in outcomes])


def _comparison(outcomes: Sequence[SharingOutcome]) -> str:
    points, spread = curves(outcomes)
    drawn = lines(points, AXES, "Batch work against node-time short of capacity, by way to share nodes", spread=spread)
    note = "Each point is one way to share nodes with one value of its knob; the bar is the 95 % interval over seeds."
    shown = [name for name in COLUMNS if any(math.isfinite(float(getattr(o, name))) for o in outcomes)]
    titles = [("Way", False), ("Knob", True), *((f"{COLUMNS[n][0]}, {COLUMNS[n][2]}", True) for n in shown)]
    head = "".join(f'<th scope="col"{" class=num" if numeric else ""}>{text(t)}</th>' for t, numeric in titles)
    rows = "".join(
        f'<tr><td class="who">{text(sharing)}</td><td class="num">{knob:g}</td>'
        f"{''.join(_cell(over_seeds(same, name), *COLUMNS[name][1:]) for name in shown)}</tr>"
        for (sharing, knob), same in by_setting(outcomes).items()
    )
    return (
        f'<section><h2>Batch work and what it costs</h2><div class="panel">{drawn}<p class="dim">{note}</p></div>'
        "</section><section><h2>All outcomes</h2>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="All outcomes"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></section>"
    )


def _cell(value: SeedInterval, factor: float, unit: str) -> str:
    digits = 0 if factor == 1 and unit != "x" else 3 if unit == "x" else 2
    if not math.isfinite(value.mean):
        return '<td class="num">-</td>'
    mean, low, high = (f"{factor * number:,.{digits}f}" for number in (value.mean, value.low, value.high))
    return f'<td class="num" data-value="{value.mean!r}">{mean}<br><span class="dim">{low} to {high}</span></td>'


# --- incidents -------------------------------------------------------------------------------------------------------
def _story(story: IncidentStory) -> str:
    times = "".join(
        f'<tr><td class="num">{clock(line.seconds)}</td><td>{text(line.witness)}</td><td>{text(line.text)}</td></tr>'
        for line in story.lines
    )
    costs = "".join(f"<tr><td>{text(cost.what)}</td>{_cost(cost)}</tr>" for cost in story.costs)
    return (
        f"<section><h2>{text(story.title)}</h2>"
        f"{_table(story.title, ('After', 'Who', 'What'), times)}"
        f"{_table('What it cost', ('What it cost', 'Value', 'Goal'), costs)}</section>"
    )


def _table(label: str, titles: Sequence[str], rows: str) -> str:
    head = "".join(f'<th scope="col">{text(title)}</th>' for title in titles)
    return (
        f'<div class="scroll wide" tabindex="0" role="region" aria-label="{text(label)}"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _cost(cost: IncidentCost) -> str:
    limit = "" if cost.at_most is None else f"{'met' if cost.met else 'missed'}: at most {cost.at_most:g} {cost.unit}"
    return f'<td class="num" data-value="{cost.value!r}">{amount(cost)}</td><td>{text(limit)}</td>'


def amount(cost: IncidentCost) -> str:
    """Return a cost's value with its unit, as text for people."""
    return "not before the run ended" if math.isinf(cost.value) else f"{cost.value:,.4g} {cost.unit}"


def clock(seconds: float) -> str:
    """Return the time since the incident began as text: hours, minutes and seconds ("0:05:30")."""
    whole_seconds = int(seconds)
    return f"{whole_seconds // 3600}:{whole_seconds // 60 % 60:02d}:{whole_seconds % 60:02d}"
