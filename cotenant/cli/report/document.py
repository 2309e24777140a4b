"""The frame, the tables and the stylesheet of a report that is one HTML file. Pure.

No scripts, links or fonts from elsewhere: the page's content security policy forbids them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from cotenant.base.commands.cells import human
from cotenant.base.table import Column, Kind, Table
from cotenant.base.text import percent
from cotenant.cli.report.backtest_drawings import STYLE as CHARTS
from cotenant.cli.report.scan_drawings import text


def document(title: str, lead: str, computed_seconds: int, body: str, footer: str) -> str:
    """Return the HTML file. `title` and `lead` are plain text, `body` and `footer` HTML."""
    when = datetime.fromtimestamp(computed_seconds, UTC).strftime("%Y-%m-%d %H:%M")
    head = f'<header><h1>{text(title)}</h1><p class="lead">{text(lead)} Computed {when} UTC.</p></header>'
    return frame(title.lower(), f"{head}\n{body}", footer, STYLE + CHARTS)


def frame(name: str, body: str, footer: str, style: str) -> str:
    """Return the HTML file around a body; `name` is its title. A Content-Security-Policy allows inline styles only."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>cotenant: {text(name)}</title><style>{style}</style></head><body><main>\n{body}\n"
        f"<footer>{footer}</footer></main></body></html>\n"
    )


def section(title: str, scores: Table, shown: Sequence[Column]) -> str:
    """Return a table under its heading, as HTML."""
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
    """Return a cell: the rounded value, ratios of losses with three digits, and the exact one as attribute."""
    shown = human(column.kind, value)
    if value is not None and column.kind is Kind.NUMBER:
        shown = f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
    elif value is not None and column.kind is Kind.RATIO:
        shown = percent(value, 1)
    exact = "" if value is None else f' data-value="{text(value)}"'
    return f"<td{_class(column)}{exact}>{text(shown)}</td>"


STYLE: Final = """
:root{color-scheme:light dark;
--ground:#f4f5f7;--panel:#fff;--line:#e2e5ea;--ink:#1b2330;--dim:#586271;--soft:#eef0f4;
--red:#b4232f;--red-bg:#fde8ea;--amber:#8a4b06;--amber-bg:#feefd9;--teal:#0a6557;--teal-bg:#d9f4ee;
--gray:#4d5663;--gray-bg:#eceef1;--accent:#3451b2;--area:#3451b233;--warm:#c2620a;
--h0:#f0f4fb;--h1:#dbe6f6;--h2:#c1d5f0;--h3:#a3c0e8;--h4:#82a8dd;--h5:#618ed0;--h6:#4474bf;--h7:#2d5ba6;--h8:#1c4386}
@media (prefers-color-scheme:dark){:root{
--ground:#13161b;--panel:#1b1f26;--line:#2d333c;--ink:#e3e7ed;--dim:#a0a9b6;--soft:#242a33;
--red:#ffa3a8;--red-bg:#4a2026;--amber:#ffc38a;--amber-bg:#45301a;--teal:#7fe3cf;--teal-bg:#14403a;
--gray:#c3cad4;--gray-bg:#2f353f;--accent:#93adff;--area:#93adff33;--warm:#ffb066;
--h0:#20262f;--h1:#22324a;--h2:#264063;--h3:#2b4f7d;--h4:#336199;--h5:#4177b5;--h6:#5790cd;--h7:#78abe2;--h8:#a5cbf5}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);
font:14px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,"Noto Sans",sans-serif}
main{max-width:1240px;margin:0 auto;padding:28px 24px 48px}
h1{font-size:24px;line-height:1.2;margin:0;letter-spacing:-.015em}
h2{font-size:16px;margin:36px 0 12px;letter-spacing:-.005em}
h3{font-size:13px;margin:0 0 10px;font-weight:600}
p{margin:0 0 6px}
code{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;overflow-wrap:anywhere}
.dim{color:var(--dim)}
.lead{color:var(--dim);margin-top:6px}
.lead b{color:var(--ink);font-weight:600}
.bar.tall{margin:3px 0 5px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(176px,1fr));gap:12px;margin-top:18px}
.tiles+.tiles{margin-top:12px}
.tile,.panel{background:var(--panel);border:1px solid var(--line);border-radius:10px;padding:14px 16px}
.tile .name{color:var(--dim);font-size:12px}
.tile .figure{font-size:24px;font-weight:650;letter-spacing:-.02em;line-height:1.3;font-variant-numeric:tabular-nums}
.tile .note{color:var(--dim);font-size:12px}
.panels{display:grid;grid-template-columns:3fr 2fr;gap:12px;margin-top:12px}
@media (max-width:900px){.panels{grid-template-columns:1fr}}
.wide{margin-top:12px}
.scroll{overflow-x:auto;background:var(--panel);border:1px solid var(--line);border-radius:10px}
.scroll:focus-visible{outline:2px solid var(--accent)}
table{border-collapse:collapse;width:100%;font-size:13px}
caption{text-align:left;padding:10px 14px;color:var(--dim);font-size:12px}
th{font-size:12px;font-weight:600;color:var(--dim);text-align:left;white-space:nowrap;
border-bottom:1px solid var(--line)}
th,td{padding:9px 10px;vertical-align:top}
th:first-child,td:first-child{padding-left:14px}
td{border-top:1px solid var(--line)}
tbody tr:first-child td{border-top:0}
.num{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
.who{min-width:190px;max-width:270px;overflow-wrap:anywhere}
.who b{font-weight:600}
.more td{border-top:0;padding-top:0;padding-bottom:12px}
.more b{font-weight:600;color:var(--ink)}
tbody+tbody tr:first-child td{border-top:1px solid var(--line)}
.change b{font-weight:650}
.up{color:var(--warm)}
.down{color:var(--teal)}
.pill{display:inline-block;padding:1px 8px;border-radius:99px;font-size:12px;font-weight:600;white-space:nowrap;
background:var(--gray-bg);color:var(--gray)}
.pill.critical{background:var(--red-bg);color:var(--red)}
.pill.warning{background:var(--amber-bg);color:var(--amber)}
.pill.ok,.pill.good{background:var(--teal-bg);color:var(--teal)}
details{margin-top:4px}
summary{cursor:pointer;color:var(--accent);font-size:12px}
dl{display:grid;grid-template-columns:auto 1fr;gap:1px 12px;margin:6px 0 0;font-size:12px}
dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere}
ul{margin:0;padding-left:18px}
.bars{display:grid;grid-template-columns:minmax(80px,auto) 1fr auto;gap:7px 12px;align-items:center}
.bars span{overflow-wrap:anywhere}
.keys{display:flex;flex-wrap:wrap;gap:4px 18px;font-size:12px;color:var(--dim);margin-top:6px}
.keys i{display:inline-block;width:14px;height:3px;border-radius:2px;margin-right:6px;vertical-align:middle}
svg{display:block;max-width:100%}
svg text{fill:var(--dim);font-size:11px}
.spark{width:120px;height:24px;margin-top:5px}
.spark .line{fill:none;stroke:var(--accent);stroke-width:1.4}
.bar{width:100%;height:7px;border-radius:3px}
.bar.tall{height:12px}
.bar .ground{fill:var(--soft)}
.bar .accent{fill:var(--accent)}
.bar .critical{fill:#d64550}.bar .warning{fill:#e39a3c}.bar .ok{fill:#3aa893}
.bar .good{fill:#7cc7b7}.bar .unknown{fill:#9aa3af}
.band,.heat{width:100%;height:auto}
.band path{fill:none}
.band .grid{stroke:var(--line)}
.band .area{fill:var(--area)}
.band .usage{stroke:var(--accent);stroke-width:1.6}
.band .median{stroke:var(--accent);stroke-width:1.6;stroke-dasharray:3 3}
.band .request{stroke:var(--warm);stroke-width:1.6}
.band .room{stroke:var(--dim);stroke-dasharray:7 4}
.k-usage{background:var(--accent)}.k-request{background:var(--warm)}.k-room{background:var(--dim)}.k-area{background:var(--area)}
.h0{fill:var(--h0)}.h1{fill:var(--h1)}.h2{fill:var(--h2)}.h3{fill:var(--h3)}.h4{fill:var(--h4)}
.h5{fill:var(--h5)}.h6{fill:var(--h6)}.h7{fill:var(--h7)}.h8{fill:var(--h8)}
footer{margin-top:32px;color:var(--dim);font-size:12px}
@media print{body{background:#fff}main{max-width:none;padding:0}.scroll{overflow:visible}details>*{display:block}
tr,.tile,.panel{break-inside:avoid}}
"""
