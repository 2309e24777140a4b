"""`cotenant backtest -o html`: the scores of a back-test as one self-contained HTML file. Pure.

No scripts, links or fonts from elsewhere; every text is escaped. The tables have the rows of `-o json`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cotenant.base.table import Table
from cotenant.base.usage.backtest import Frontier
from cotenant.cli.report.backtest_drawings import Axes, frontier, lines
from cotenant.cli.report.document import column_glossary, document, section
from cotenant.cli.report.scan_drawings import text

DRAWN_LEVEL: Final = 0.95
"""Quantile whose coverage is drawn by hour of the day."""
MOST_LINES: Final = 6
"""Most contenders in one chart; more lines cannot be distinguished."""


@dataclass(frozen=True, slots=True)
class BacktestContents:
    """The contents of a back-test's page: scores and curves of `backtesting.forecast_backtest`, and frontiers if any.

    `plan` describes the tested series; `ours` names our forecast, drawn first; `frontiers` show savings by violations.
    """

    title: str
    plan: str
    computed_seconds: int
    ours: str
    scores: Table
    curves: Table
    frontiers: tuple[Frontier, ...] = ()


def page(contents: BacktestContents) -> str:
    """Return the HTML file as text."""
    frontiers = (
        f'<section><h2>{text(f.title)}</h2><div class="panel">{frontier(f)}</div></section>' for f in contents.frontiers
    )
    scores = contents.scores
    shown = [c for c in scores.schema.columns if c.name != "stratum"]
    strata = scores.columns["stratum"].astype(str)
    tables = (
        section("All series" if stratum == "all" else stratum, scores.take(strata == stratum), shown)
        for stratum in dict.fromkeys(strata.tolist())
    )
    body = "\n".join([*frontiers, _charts(contents), *tables, column_glossary(scores)])
    footer = "relWQL and its interval are relative to B1, same time yesterday with empirical residual quantiles."
    return _document(f"{contents.title}. {contents.plan}", contents.computed_seconds, body, footer)


def policies_page(title: str, computed_seconds: int, scores: Table) -> str:
    """Return the HTML file of `cotenant backtest --reclaim`."""
    shown = scores.schema.columns
    body = f"{section('Reclaim policies', scores, shown)}\n{column_glossary(scores)}"
    return _document(title, computed_seconds, body, "Each decision uses only data from before the decision.")


def _document(lead: str, computed_seconds: int, body: str, footer: str) -> str:
    """Return the HTML page of a back-test; `lead` and `footer` are plain text."""
    return document(
        "Back-test", lead, computed_seconds, body, f"Made by <code>cotenant backtest -o html</code>. {text(footer)}"
    )


def _charts(contents: BacktestContents) -> str:
    rows = list(contents.curves.rows())
    # Ours first; those whose levels are all one path have no coverage to draw.
    ours = contents.ours
    spread = {}
    for name in dict.fromkeys(r["contender"] for r in rows):
        shares = [r["coverage"] for r in rows if r["contender"] == name and r["coverage"] is not None]
        spread[name] = float(np.ptp(shares)) if shares else 0.0
    varying = [name for name, width in spread.items() if width > 0]
    names = sorted(varying, key=lambda name: name != ours)[:MOST_LINES]
    coverage = {n: [(r["level"], r["coverage"]) for r in rows if r["contender"] == n] for n in names}
    coverage = {n: [(x, y) for x, y in ps if y is not None] for n, ps in coverage.items()}
    hours = {
        r["contender"]: [(hour, share) for hour, share in enumerate(r["by_hour"]) if share is not None]
        for name in names
        for r in rows
        if r["contender"] == name and r["level"] == DRAWN_LEVEL
    }
    levels = lines(coverage, Axes("level", "share at or below"), "Coverage of each quantile", ideal=((0, 0), (1, 1)))
    ideal = ((0, DRAWN_LEVEL), (23, DRAWN_LEVEL))
    by_hour = lines(hours, Axes("hour, UTC", "share at or below p95"), "Coverage of p95 by hour", ideal=ideal)
    return (
        '<section aria-label="Coverage"><h2>Coverage</h2><div class="panels"><div class="panel">'
        f"<h3>Every quantile: the dashed line is exact coverage</h3>{levels}</div>"
        f'<div class="panel"><h3>p95 by hour of the day</h3>{by_hour}</div></div></section>'
    )
