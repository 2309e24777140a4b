"""The rows of `bench.enforcer.node_neighbours`: pure, from what each way gave a service and batch in each round.

A way is a point of two numbers, both medians over the rounds: p99 of the service, batch's work. The stock node is
measured twice in every round, as "stock" and as "stock again": what differs between the two is noise, and ours must not
be worse than the worse of the two.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.record import Row, above, below

ALONE, STOCK, AGAIN = "alone", "stock", "stock again"
DEFAULT, WHOLE = "default policy", "threshold 100"
OURS: Final = (DEFAULT, WHOLE)
P99_OF_ALONE: Final = 1.1
NOISE: Final = 1.25
"""Where two runs of the stock node differ by more, a cell says little."""
CLEAR: Final = 0.05
"""A one-line way is better only where both of its numbers are better by more than this part."""


@dataclass
class Turns:
    """One way's rounds: milliseconds of the service's p50 and p99, batch's work a second."""

    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    work: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Cell:
    """One kind of batch at one load of the service; turns: by way."""

    where: str
    turns: Mapping[str, Turns]

    def p99(self, way: str) -> float:
        """Milliseconds, median over the rounds."""
        return statistics.median(self.turns[way].p99)

    def work(self, way: str) -> float:
        """A second, median over the rounds; 0 of a service that is alone."""
        return statistics.median(self.turns[way].work)

    @property
    def stock_p99(self) -> float:
        """The worse of two runs of the stock node."""
        return max(self.p99(STOCK), self.p99(AGAIN))

    @property
    def stock_work(self) -> float:
        """The worse of two runs of the stock node."""
        return min(self.work(STOCK), self.work(AGAIN))

    def wins(self, way: str) -> bool:
        """The stock node's work, and a service that hardly notices."""
        return self.work(way) >= self.stock_work and self.p99(way) <= P99_OF_ALONE * self.p99(ALONE)


def summary(cells: Sequence[Cell]) -> Iterator[Row]:
    """What a user gets with the defaults, over all cells: the first rows of the bench, and of the README."""
    won = [cell.where for cell in cells if cell.wins(DEFAULT)]
    what = f"of {len(cells)} neighbours: default policy gives batch the stock node's work at p99 <= 1.1 x alone"
    yield above(what, len(won), "cells", len(cells), "; ".join(won))
    worst = max(cells, key=lambda cell: cell.p99(DEFAULT) / cell.stock_p99)
    ratio = worst.p99(DEFAULT) / worst.stock_p99
    yield below("worst neighbour: p99 default policy / stock node", ratio, "x", 1, worst.where)


def cell_rows(cell: Cell) -> Iterator[Row]:
    """One cell: noise, ours beside alone and the stock node, and the frontier."""
    low, high = sorted((cell.p99(STOCK), cell.p99(AGAIN)))
    spread = _spread([*cell.turns[STOCK].p99, *cell.turns[AGAIN].p99], "ms")
    yield below(f"{cell.where}: p99 of two runs of the stock node, larger / smaller", high / low, "x", NOISE, spread)
    for way in OURS:
        p99, work = cell.p99(way), cell.work(way)
        spread_note = _spread(cell.turns[way].p99, "ms")
        yield below(f"{cell.where}: p99 {way} / alone", p99 / cell.p99(ALONE), "x", P99_OF_ALONE, spread_note)
        yield below(f"{cell.where}: p99 {way} / stock node", p99 / cell.stock_p99, "x", 1)
        per_round = zip(cell.turns[way].work, cell.turns[STOCK].work, strict=True)
        spread_note = _spread([ours / stock for ours, stock in per_round if stock], "x")
        yield above(f"{cell.where}: batch's work {way} / stock node", work / cell.stock_work, "x", 1, spread_note)
    better = list(_better(cell))
    what = f"{cell.where}: one-line ways that beat the default policy in p99 and in batch's work"
    yield below(what, len(better), "ways", 0, frontier(cell))


def frontier(cell: Cell) -> str:
    """Every way as p50 / p99 / work, work in parts of the stock node's."""
    return "; ".join(
        f"{way} {statistics.median(turns.p50):.2f} / {cell.p99(way):.2f} ms / {cell.work(way) / cell.stock_work:.2f}"
        for way, turns in cell.turns.items()
    )


def starved_rows(cores: Mapping[str, float], promised: float, one_line: str) -> Iterator[Row]:
    """Cores that batch gets by way where nothing is idle; promised: cores."""
    note = "cores: " + ", ".join(f"{way} {value:.3f}" for way, value in cores.items())
    ours = cores[DEFAULT]
    yield above("nothing idle: what batch gets / the 10 % that the policy promises it", ours / promised, "x", 1, note)
    metric = f"nothing idle: what batch gets, default policy / {one_line}"
    yield above(metric, ours / max(cores[one_line], 1e-3), "x", 1)


def _better(cell: Cell) -> Iterator[str]:
    p99, work = cell.p99(DEFAULT), cell.work(DEFAULT)
    for way in cell.turns:
        one_line = way not in (ALONE, STOCK, AGAIN, *OURS)
        if one_line and cell.p99(way) < p99 * (1 - CLEAR) and cell.work(way) > work * (1 + CLEAR):
            yield way


def _spread(values: Sequence[float], unit: str) -> str:
    return f"rounds {min(values):.2f} to {max(values):.2f} {unit}"
