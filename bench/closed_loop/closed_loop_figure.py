"""The README's opening figure, drawn from what `bench closed_loop` recorded: docs/images/closed-loop.svg. Pure.

Batch core-hours, in percent of what an oracle gets done, against the share of node-time that was short, one chart a
family of pods; a point is a setting of the way's knob, a mean over seeds, with its 95 % interval. A ring is around the
setting that an install has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cotenant.cli.report.backtest_drawings import Axes, Panel, figure
from cotenant.experiment.loop import INSTALLED
from cotenant.experiment.outcome import Sharing
from cotenant_lab.commands.simulation_report import CURVES

MOST_VIOLATION_PERCENT: Final = 5.0
"""Nobody runs a cluster beyond it; what lies there would squeeze the rest."""
AXES: Final = Axes("node-time short, %", "batch work done, % of an oracle's")
LABEL: Final = "Batch core-hours against violations, by way to share nodes"

SettingPoint = Mapping[str, Any]


def drawn(recorded: Mapping[str, Sequence[SettingPoint]]) -> str:
    """The SVG of all families, in the order in which they were recorded."""
    return figure({family: _panel(points) for family, points in recorded.items()}, AXES, LABEL)


def _panel(points: Sequence[SettingPoint]) -> Panel:
    curves: dict[str, list[tuple[float, float]]] = {str(way): [] for way in CURVES if way is not Sharing.NONE}
    spread: dict[str, list[tuple[float, float, float]]] = {}
    marked: list[tuple[float, float]] = []
    most = max(point["batch_core_hours"] for point in points if point["sharing"] == Sharing.ORACLE) / 100
    for point in sorted(points, key=lambda point: point["violation_ratio"]):
        name, across = point["sharing"], 100 * point["violation_ratio"]
        if name not in curves or across > MOST_VIOLATION_PERCENT:
            continue
        curves[name].append((across, point["batch_core_hours"] / most))
        if INSTALLED.get(name) == point["knob"]:
            marked.append(curves[name][-1])
        if "batch_core_hours_low" in point:
            bar = (across, point["batch_core_hours_low"] / most, point["batch_core_hours_high"] / most)
            spread.setdefault(name, []).append(bar)
    return Panel(curves, spread, marked)
