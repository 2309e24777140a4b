"""`cotenant backtest -o html`: the scores of a back-test as one HTML file that needs nothing else. Pure.

No script, no address, no font from elsewhere; every text is escaped. The tables are the rows of `-o json`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np

from cotenant.apps.cli.cells import human
from cotenant.apps.cli.report.backtest_drawings import STYLE as CHARTS
from cotenant.apps.cli.report.backtest_drawings import frontier, lines
from cotenant.apps.cli.report.scan_drawings import text
from cotenant.apps.cli.report.style import STYLE
from cotenant.core.model.table import Column, Kind, Table
from cotenant.core.model.usage.backtest import Frontier

DRAWN_LEVEL: Final = 0.95
"""Quantile whose coverage is drawn by hour of the day."""
MOST_LINES: Final = 6
"""Contenders in one chart; more cannot be told apart."""


@dataclass(frozen=True, slots=True)
class BacktestContents:
    """What the page shows: scores and curves of `apps.backtest.forecast_scores`, and frontiers if there are any.

    plan: what was tested on, in a sentence; ours: the name of the contender that is served, drawn first.
    """

    title: str
    plan: str
    computed_seconds: int
    ours: str
    scores: Table
    curves: Table
    frontiers: tuple[Frontier, ...] = ()


def page(contents: BacktestContents) -> str:
    """The whole file."""
    body = "\n".join(
        [
            *(f'<section><h2>{text(f.title)}</h2><div class="panel">{frontier(f)}</div></section>'
              for f in contents.frontiers),
            _charts(contents),
            *_tables(contents.scores),
            _column_glossary(contents.scores),
        ]
    )  # fmt: skip
    footer = (
        "relWQL and the intervals are relative to B1, the seasonal naive of the day with empirical residual quantiles."
    )
    return _document(f"{contents.title}. {contents.plan}", contents.computed_seconds, body, footer)


def policies_page(title: str, computed_seconds: int, scores: Table) -> str:
    """The whole file of `cotenant backtest --reclaim`."""
    shown = scores.schema.columns
    body = f"{_section('Reclaim policies', scores, shown)}\n{_column_glossary(scores)}"
    return _document(title, computed_seconds, body, "Each decision rests on what stood before it.")


def _document(lead: str, computed_seconds: int, body: str, footer: str) -> str:
    """The HTML around a body: style, a policy against loading anything, header, footer. lead, footer: plain text."""
    when = datetime.fromtimestamp(computed_seconds, UTC).strftime("%Y-%m-%d %H:%M")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>cotenant: back-test</title><style>{STYLE}{CHARTS}</style></head><body><main>\n"
        f'<header><h1>Back-test</h1><p class="lead">{text(lead)} Computed {when} UTC.</p></header>\n{body}\n'
        f"<footer>Made by <code>cotenant backtest -o html</code>. {text(footer)}</footer></main></body></html>\n"
    )


def _charts(contents: BacktestContents) -> str:
    """Coverage by level and, of one level, by hour of the day."""
    rows = list(contents.curves.rows())
    names = _drawn(rows, contents.ours)
    coverage = {n: [(r["level"], r["coverage"]) for r in rows if r["contender"] == n] for n in names}
    coverage = {n: [(x, y) for x, y in ps if y is not None] for n, ps in coverage.items()}
    hours = {
        r["contender"]: [(hour, share) for hour, share in enumerate(r["by_hour"]) if share is not None]
        for name in names
        for r in rows
        if r["contender"] == name and r["level"] == DRAWN_LEVEL
    }
    levels = lines(coverage, ("level", "share at or below"), "Coverage of each level", ideal=((0, 0), (1, 1)))
    ideal = ((0, DRAWN_LEVEL), (23, DRAWN_LEVEL))
    by_hour = lines(hours, ("hour, UTC", "share at or below q95"), "Coverage of q95 by hour", ideal=ideal)
    return (
        '<section aria-label="Coverage"><h2>Coverage</h2><div class="panels"><div class="panel">'
        f"<h3>Every level: on the dashed line is right</h3>{levels}</div>"
        f'<div class="panel"><h3>q95 by hour of the day</h3>{by_hour}</div></div></section>'
    )


def _drawn(rows: Sequence[dict[str, Any]], ours: str) -> list[str]:
    """Ours first; those whose levels are all one path have no coverage to draw."""
    spread = {}
    for name in dict.fromkeys(r["contender"] for r in rows):
        shares = [r["coverage"] for r in rows if r["contender"] == name and r["coverage"] is not None]
        spread[name] = float(np.ptp(shares)) if shares else 0.0
    varying = [name for name, width in spread.items() if width > 0]
    return sorted(varying, key=lambda name: name != ours)[:MOST_LINES]


def _tables(scores: Table) -> Iterator[str]:
    """One table a stratum."""
    shown = [c for c in scores.schema.columns if c.name != "stratum"]
    names = scores.columns["stratum"].astype(str)
    for stratum in dict.fromkeys(names.tolist()):
        yield _section("All series" if stratum == "all" else stratum, scores.take(names == stratum), shown)


def _section(title: str, scores: Table, shown: Sequence[Column]) -> str:
    """A table under its heading."""
    head = "".join(f'<th scope="col" title="{text(c.doc)}"{_class(c)}>{text(c.title)}</th>' for c in shown)
    body = "".join(f"<tr>{''.join(_cell(c, row[c.name]) for c in shown)}</tr>" for row in scores.rows())
    return (
        f"<section><h2>{text(title)}</h2>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(title)}"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></section>"
    )


def _column_glossary(scores: Table) -> str:
    """What each column means."""
    items = "".join(f"<dt>{text(c.title)}</dt><dd>{text(c.doc)}</dd>" for c in scores.schema.columns)
    return f"<section><h2>Columns</h2><dl>{items}</dl></section>"


def _class(column: Column) -> str:
    return ' class="num"' if column.kind.numeric else ' class="who"'


def _cell(column: Column, value: Any) -> str:
    """A cell with the exact value beside what is shown: ratios of losses need three digits."""
    shown = human(column.kind, value)
    if value is not None and column.kind is Kind.NUMBER:
        shown = f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
    elif value is not None and column.kind is Kind.RATIO:
        shown = f"{100 * value:.1f} %"
    exact = "" if value is None else f' data-value="{text(value)}"'
    return f"<td{_class(column)}{exact}>{text(shown)}</td>"
