"""Small charts of the HTML report as inline SVG: sparkline, bar, band, heat map. Pure.

They have no scripts and no colours: the report's stylesheet colours their classes, in light and dark mode. Each has a
text alternative.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from cotenant.base.text import percent, visible
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.recommender.model.views import BandSeries

DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
WIDTH: Final = 960
HEIGHT: Final = 230
LEFT, BOTTOM = 46, 22
SHADES: Final = 9
_SHOWN_DAYS: Final = 7

Point = tuple[float, float]


def text(value: object) -> str:
    """Return text escaped for HTML: markup, quotes, and control and direction characters."""
    return html.escape(visible(str(value)), quote=True)


def sparkline(values: Sequence[float | None], label: str) -> str:
    """Return a line chart from zero to the highest value; missing values are gaps."""
    finite = [v for v in values if v is not None and math.isfinite(v)]
    if not finite:
        return '<span class="dim">no usage</span>'
    top = max(finite) or 1.0
    step = 120 / max(1, len(values) - 1)
    dots = [None if v is None or not math.isfinite(v) else (i * step, 23 - 21 * v / top) for i, v in enumerate(values)]
    return (
        f'<svg class="spark" viewBox="0 0 120 24" role="img" aria-label="{text(label)}">'
        f'<path class="line" d="{_path(dots)}"/></svg>'
    )


def bar(share: float, kind: str, label: str) -> str:
    """Return a bar for a share 0..1; a share above 1 fills the whole bar."""
    width = 100 * min(1.0, max(0.0, share if math.isfinite(share) else 0.0))
    return (
        f'<svg class="bar" viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label="{text(label)}">'
        f'<rect class="ground" width="100" height="6"/><rect class="{kind}" width="{width:.1f}" height="6"/></svg>'
    )


def parts(shares: Iterable[tuple[str, int]], label: str) -> str:
    """Return one bar divided in proportion to several counts, each part with its name as CSS class."""
    counts = [(name, count) for name, count in shares if count]
    total = sum(count for _, count in counts) or 1
    bars, at = [], 0.0
    for name, count in counts:
        width = 100 * count / total
        bars.append(f'<rect class="{name}" x="{at:.2f}" width="{width:.2f}" height="6"/>')
        at += width
    return (
        f'<svg class="bar tall" viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label="{text(label)}">'
        f"{''.join(bars)}</svg>"
    )


def heat(ratios: Sequence[Sequence[float]], label: str) -> str:
    """Return a heat map of seven rows of 24 hours, darker for more usage; hours without data are empty."""
    finite = [v for day in ratios for v in day if math.isfinite(v)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    cells = []
    for d, day in enumerate(ratios):
        cells.append(f'<text x="30" y="{d * 22 + 15}" text-anchor="end">{DAYS[d]}</text>')
        for hour, value in enumerate(day):
            if math.isfinite(value):
                level = round((SHADES - 1) * (value - low) / (high - low)) if high > low else 0
                cells.append(
                    f'<rect class="h{level}" x="{36 + hour * 22}" y="{d * 22}" width="20" height="20" rx="3">'
                    f"<title>{DAYS[d]} {hour:02d}:00 UTC: {percent(value)} of allocatable</title></rect>"
                )
    hours = "".join(f'<text x="{46 + h * 22}" y="170" text-anchor="middle">{h}</text>' for h in range(0, 24, 3))
    return (
        f'<svg class="heat" viewBox="0 0 566 176" role="img" aria-label="{text(label)}">{"".join(cells)}{hours}</svg>'
    )


def band(series: BandSeries, unit: float, label: str) -> str:
    """Return a chart of last week's usage and requests, the next day's forecast and allocatable, divided by `unit`."""
    first = (series.ahead or series.times or [0])[0] - _SHOWN_DAYS * DAY_SECONDS
    indices = [i for i, t in enumerate(series.times) if t >= first]
    times = [series.times[i] for i in indices]
    if not times and not series.ahead:
        return '<p class="dim">No usage is stored.</p>'
    usage, request = ([values[i] / unit for i in indices] for values in (series.usage, series.request))
    ahead = {q: [v / unit for v in values] for q, values in series.quantiles.items()}
    allocatable = [series.allocatable / unit] * 2
    scale = _Scale.of(
        [*times, *series.ahead], [*usage, *request, *allocatable, *(v for vs in ahead.values() for v in vs)]
    )
    edge, back = (scale.points(series.ahead, ahead.get(q, ())) for q in ("0.9", "0.1"))
    outline = [p for p in (*edge, *reversed(back)) if p]
    # A handful of level lines with their values, at round numbers.
    power = 10 ** math.floor(math.log10(scale.top / 4))
    step = next(power * k for k in (1, 2, 2.5, 5, 10, 20) if scale.top / (power * k) <= 5)
    lines = []
    for k in range(int(scale.top / step) + 1):
        y = scale.y(k * step)
        lines.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - 6}"/>')
        lines.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{k * step:g}</text>')
    # Weekday names at their UTC midnights.
    names = []
    for midnight in range(-(-scale.left // DAY_SECONDS) * DAY_SECONDS, scale.right, DAY_SECONDS):
        x = scale.x(midnight)
        names.append(f'<path class="grid" d="M{x:.1f} 8V{HEIGHT - BOTTOM}"/>')
        if x < WIDTH - 40:
            day = DAYS[(midnight // DAY_SECONDS + 3) % 7]  # 1970-01-01 was a Thursday
            names.append(f'<text x="{x + 4:.1f}" y="{HEIGHT - 6}">{day}</text>')
    drawn = [
        "".join(lines),
        "".join(names),
        f'<path class="area" d="{_path(outline)}Z"/>' if outline else "",
        _line("room", scale.points([scale.left, scale.right], allocatable)),
        _line("request", scale.points(times, request)),
        _line("usage", scale.points(times, usage)),
        _line("median", scale.points(series.ahead, ahead.get("0.5", ()))),
    ]
    view = f'viewBox="0 0 {WIDTH} {HEIGHT}"'
    return f'<svg class="band" {view} role="img" aria-label="{text(label)}">{"".join(drawn)}</svg>'


@dataclass(frozen=True, slots=True)
class _Scale:
    """The mapping from (time, value) to a position in the band; `top` is the value at its upper edge."""

    left: int
    right: int
    top: float

    @classmethod
    def of(cls, times: Sequence[int], values: Iterable[float]) -> _Scale:
        """Return a scale that fits all times and values."""
        highest = max((v for v in values if math.isfinite(v)), default=0.0)
        return cls(min(times), max(times), 1.05 * highest if highest > 0 else 1.0)

    def x(self, time: float) -> float:
        """Return the position of a time."""
        return LEFT + (WIDTH - LEFT - 6) * (time - self.left) / max(1, self.right - self.left)

    def y(self, value: float) -> float:
        """Return the position of a value."""
        return 8 + (HEIGHT - BOTTOM - 8) * (1 - value / self.top)

    def points(self, times: Sequence[int], values: Sequence[float]) -> list[Point | None]:
        """Return the position of each pair, None for a gap."""
        pairs = zip(times, values, strict=False)
        return [(self.x(t), self.y(v)) if math.isfinite(v) else None for t, v in pairs]


def _line(name: str, points: Sequence[Point | None]) -> str:
    return f'<path class="{name}" d="{_path(points)}"/>'


def _path(points: Sequence[Point | None]) -> str:
    """Return the SVG path through the points, with a new start after each gap."""
    commands, pen = [], "M"
    for point in points:
        if point is None:
            pen = "M"
            continue
        commands.append(f"{pen}{point[0]:.1f} {point[1]:.1f}")
        pen = "L"
    return "".join(commands)
