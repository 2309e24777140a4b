"""The frame of a report that is one HTML file, and tables of numbers in it. Pure.

No script, no address, no font from elsewhere: the page's policy forbids them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from cotenant.base.commands.cells import human
from cotenant.base.table import Column, Kind, Table
from cotenant.base.text import percent
from cotenant.cli.report.backtest_drawings import STYLE as CHARTS
from cotenant.cli.report.scan_drawings import text
from cotenant.cli.report.style import STYLE


def document(title: str, lead: str, computed_seconds: int, body: str, footer: str) -> str:
    """The whole file. title, lead: plain text; body, footer: HTML."""
    when = datetime.fromtimestamp(computed_seconds, UTC).strftime("%Y-%m-%d %H:%M")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>cotenant: {text(title.lower())}</title><style>{STYLE}{CHARTS}</style></head><body><main>\n"
        f'<header><h1>{text(title)}</h1><p class="lead">{text(lead)} Computed {when} UTC.</p></header>\n{body}\n'
        f"<footer>{footer}</footer></main></body></html>\n"
    )


def section(title: str, scores: Table, shown: Sequence[Column]) -> str:
    """A table under its heading."""
    head = "".join(f'<th scope="col" title="{text(c.doc)}"{_class(c)}>{text(c.title)}</th>' for c in shown)
    body = "".join(f"<tr>{''.join(_cell(c, row[c.name]) for c in shown)}</tr>" for row in scores.rows())
    return (
        f"<section><h2>{text(title)}</h2>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(title)}"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></section>"
    )


def column_glossary(scores: Table) -> str:
    """Return the HTML section that explains each column."""
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
        shown = percent(value, 1)
    exact = "" if value is None else f' data-value="{text(value)}"'
    return f"<td{_class(column)}{exact}>{text(shown)}</td>"
