"""Charts of the back-test report as inline SVG: coverage by level and by hour, and the frontier. Pure.

Lines carry the classes s0, s1, ... of STYLE for light and dark mode; each chart has a text alternative and a legend.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from cotenant.base.usage.backtest import Frontier
from cotenant.cli.report.scan_drawings import text

COLOURS: Final = (
    *("#3451b2", "#c2620a", "#0a7a68", "#8a3ffc", "#b4232f", "#6b7280"),
    *("#a16207", "#0e7490", "#be185d", "#4d7c0f", "#7f1d1d", "#0369a1"),
)
STYLE: Final = (
    ".chart{width:100%;height:auto;max-width:820px}.chart path{fill:none}.chart .grid{stroke:var(--line)}"
    ".chart .ideal{stroke:var(--dim);stroke-dasharray:4 4}"
    + "".join(
        f".chart .s{i}{{stroke:{c};stroke-width:1.8}}.chart .d{i}{{fill:{c}}}.keys .k{i}{{background:{c}}}"
        for i, c in enumerate(COLOURS)
    )
    + ".chart .s0{stroke-width:3}"
)
FIGURE_THEME: Final = (
    "svg{--line:#e2e5ea;--dim:#586271;font:20px system-ui,sans-serif}text{fill:#586271}.ground{fill:#fff}"
    ".title{fill:#1b2330;font-size:26px;font-weight:600}.key{fill:#1b2330;font-size:24px}"
    ".chart .s0{stroke-width:4}.chart .s1,.chart .s2,.chart .s3{stroke-width:3}"
    ".chart .ring{fill:none;stroke:#1b2330;stroke-width:2.5}"
)
WIDTH, HEIGHT, LEFT, BOTTOM = 620, 300, 52, 34
MOST_VIOLATION, LEAST_SAVINGS = 25.0, 60.0
"""Percent: points beyond these are not drawn, because nobody would use them and they would squeeze the others."""

Points = Sequence[tuple[float, float]]


class Axes(NamedTuple):
    """The labels of a chart's axes, with their units."""

    x: str
    y: str


Spread = tuple[float, float, float]
"""(x, lowest y, highest y)."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart of a figure: curves of points by name, vertical intervals (`spread`), and points marked by a ring."""

    curves: Mapping[str, Points]
    spread: Mapping[str, Sequence[Spread]]
    marked: Points = ()


def lines(
    curves: Mapping[str, Points],
    axes: Axes,
    label: str,
    *,
    ideal: Points = (),
    spread: Mapping[str, Sequence[Spread]] | None = None,
) -> str:
    """Return an SVG chart and its legend: a line or dot per name, dashed line `ideal`, vertical intervals `spread`."""
    finite = {n: [p for p in ps if all(map(math.isfinite, p))] for n, ps in curves.items()}
    if not any(finite.values()) and not ideal:
        return '<p class="dim">No values to draw.</p>'
    view = f'viewBox="0 0 {WIDTH} {HEIGHT}"'
    drawn = plot(finite, axes, ideal, spread or {})
    return f'<svg class="chart" {view} role="img" aria-label="{text(label)}">{drawn}</svg>{legend(finite)}'


def plot(
    curves: Mapping[str, Points], axes: Axes, ideal: Points, spread: Mapping[str, Sequence[Spread]], marked: Points = ()
) -> str:
    """Return the SVG content of a chart: grid, lines, dots, intervals and rings. Needs at least one finite point."""
    ends = [(x, y) for bars in spread.values() for x, low, high in bars for y in (low, high)]
    box = _Box([*(p for ps in curves.values() for p in ps), *ideal, *ends])
    drawn = [*box.grid(axes), _path("ideal", box, ideal)]
    for index, (name, points) in enumerate(curves.items()):
        colour = index % len(COLOURS)
        drawn.append(_path(f"s{colour}", box, points) if len(points) > 1 else "")
        dots = points if len(points) <= 12 else []
        drawn += [f'<circle class="d{colour}" cx="{box.x(x):.1f}" cy="{box.y(y):.1f}" r="3.2"/>' for x, y in dots]
        drawn += [_path(f"s{colour}", box, ((x, low), (x, high))) for x, low, high in spread.get(name, ())]
    drawn += [f'<circle class="ring" cx="{box.x(x):.1f}" cy="{box.y(y):.1f}" r="8"/>' for x, y in marked]
    return "".join(drawn)


def figure(panels: Mapping[str, Panel], axes: Axes, label: str) -> str:
    """Return an SVG for pages without styles, on a light background: one chart per panel, and one legend."""
    names = list(dict.fromkeys(name for panel in panels.values() for name in panel.curves))
    drawn = []
    for index, (title, panel) in enumerate(panels.items()):
        inside = plot({name: panel.curves.get(name, ()) for name in names}, axes, (), panel.spread, panel.marked)
        heading = f'<text class="title" x="{LEFT}" y="-24">{text(title)}</text>'
        drawn.append(f'<g transform="translate({index * WIDTH} 66)">{heading}{inside}</g>')
    wide, high = WIDTH * len(panels), HEIGHT + 132
    step = (wide - 2 * LEFT) / len(names)
    for index, name in enumerate(names):
        key_x = LEFT + step * index
        drawn.append(f'<circle class="d{index % len(COLOURS)}" cx="{key_x:.0f}" cy="{high - 24}" r="9"/>')
        drawn.append(f'<text class="key" x="{key_x + 18:.0f}" y="{high - 16}">{text(name)}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {wide} {high}" role="img" '
        f'aria-label="{text(label)}"><style>{STYLE}{FIGURE_THEME}</style>'
        f'<rect class="ground" width="{wide}" height="{high}" rx="10"/>{"".join(drawn)}</svg>\n'
    )


def frontier(chart: Frontier) -> str:
    """Return a chart of capacity lent against violated decisions: cotenant as a thick line, and static predictors."""
    ordered = sorted(chart.curves, key=lambda c: not c.ours)
    curves = {c.name: [(100 * p.violation, 100 * p.savings) for p in c.points] for c in ordered}
    inside = {n: [p for p in ps if p[0] <= MOST_VIOLATION and p[1] >= LEAST_SAVINGS] for n, ps in curves.items()}
    drawn = {n: ps for n, ps in inside.items() if ps}
    beyond = "; ".join(f"{n} ({ps[0][0]:.1f} % of decisions exceeded, {ps[0][1]:.0f} % of the savings)"
                       for n, ps in curves.items() if ps and not inside[n])  # fmt: skip
    outside = f'<p class="dim">Outside the drawing: {text(beyond)}.</p>' if beyond else ""
    return lines(drawn, Axes("decisions exceeded, %", "share of the oracle's savings, %"), chart.title) + outside


def legend(names: Mapping[str, object]) -> str:
    """Return the HTML legend: colour and name of each line."""
    keys = (f'<span><i class="k{i % len(COLOURS)}"></i>{text(name)}</span>' for i, name in enumerate(names))
    return f'<div class="keys">{"".join(keys)}</div>'


class _Box:
    """The mapping from values to positions; axes begin and end at round numbers."""

    def __init__(self, points: Points) -> None:
        self.across = _ticks([x for x, _ in points])
        self.up = _ticks([y for _, y in points])

    def x(self, value: float) -> float:
        low, high = self.across[0], self.across[-1]
        return LEFT + (WIDTH - LEFT - 12) * (value - low) / (high - low)

    def y(self, value: float) -> float:
        low, high = self.up[0], self.up[-1]
        return 10 + (HEIGHT - BOTTOM - 10) * (1 - (value - low) / (high - low))

    def grid(self, axes: Axes) -> Iterator[str]:
        """Yield grid lines with their values, and the names of the axes."""
        for value in self.up:
            yield f'<path class="grid" d="M{LEFT} {self.y(value):.1f}H{WIDTH - 12}"/>'
            yield f'<text x="{LEFT - 6}" y="{self.y(value) + 4:.1f}" text-anchor="end">{value:g}</text>'
        for value in self.across:
            yield f'<text x="{self.x(value):.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{value:g}</text>'
        yield f'<text x="{WIDTH - 12}" y="{HEIGHT - 3}" text-anchor="end">{text(axes[0])}</text>'
        yield f'<text x="{LEFT}" y="8">{text(axes[1])}</text>'


def _ticks(values: Sequence[float]) -> list[float]:
    """Return four to nine round numbers that span all values."""
    low, high = min(values), max(values)
    span = (high - low) or abs(high) or 1.0
    power = 10 ** math.floor(math.log10(span / 4))
    step = next(power * k for k in (1, 2, 5, 10) if span / (power * k) <= 6)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(k * step, 10) for k in range(first, max(last, first + 1) + 1)]


def _path(name: str, box: _Box, points: Points) -> str:
    commands = [f"{'M' if i == 0 else 'L'}{box.x(x):.1f} {box.y(y):.1f}" for i, (x, y) in enumerate(points)]
    return f'<path class="{name}" d="{"".join(commands)}"/>' if commands else ""
