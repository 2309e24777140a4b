"""Series to lines: a prefix, a value and a time stamp for every scrape."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

import numpy as np
import numpy.typing as npt

from tests.support.openmetrics.dress import COUNTERS, Cluster, Dress, Floats, Labels, Span
from tests.support.openmetrics.text import Bytes, clock_digits, decimals, escape, inside, marks


@dataclass(frozen=True, slots=True)
class Series:
    """Slots [start, end), one value per slot; `maximum` shapes the inside of a slot, `resets` are slots of restarts."""

    start: int
    values: Floats
    maximum: Floats | None = None
    resets: tuple[int, ...] = ()
    old: bool = False
    """Whether the counter was counting before the window."""
    whole: bool = False
    """Whether the counter counts things, not seconds."""


def _within(times: npt.NDArray[np.int64], span: Span | None) -> npt.NDArray[np.bool_]:
    """Which times lie in the span, all without one."""
    start, end = span or (0, np.iinfo(np.int64).max)
    return np.asarray((times >= start) & (times < end))


class Writer:
    """Turns series into lines: prefix, value, time, as one byte matrix per series."""

    def __init__(self, cluster: Cluster, out: IO[bytes], dress: Dress) -> None:
        self.cluster, self.out, self.dress = cluster, out, dress
        self.nodes = {node.name: number for number, node in enumerate(cluster.inventory.nodes)}
        self._clocks: dict[tuple[str, int], tuple[int, Bytes, npt.NDArray[np.bool_]]] = {}

    def family(self, name: str, kind: str) -> None:
        """Open a metric family."""
        base = name.removesuffix("_total") if kind == "counter" else name
        self.out.write(f"# TYPE {base} {kind}\n".encode())

    def end(self) -> int:
        """Close the text."""
        self.out.write(b"# EOF\n")
        return 0

    def scraped(self, name: str, labels: Labels, node: str, series: Series) -> int:
        """One series of a node's kubelet, once per scraper."""
        counter = name in COUNTERS
        base = {"job": "kubelet", "instance": f"{node}:10250", "node": node}
        total = 0
        for scraper, own in enumerate(self.dress.scrapers):
            phase, times, is_kept = self._clock(node, scraper)
            first = series.start * self.dress.per_slot
            samples = len(series.values) * self.dress.per_slot
            keep = is_kept[first : first + samples] & np.repeat(~np.isnan(series.values), self.dress.per_slot)
            make = self._counted if counter else self._gauged
            digits = make(series, phase, f"{name}{labels}")[keep]
            total += self._lines(name, base | labels | dict(own), digits, times[first : first + samples][keep])
        return total

    def constant(self, name: str, labels: Labels, span: tuple[int, int], value: float = 1.0) -> int:
        """A gauge of kube-state-metrics that stands still over slots [start, end)."""
        return self.stepped(name, labels, span, [(span[0], value)])

    def stepped(self, name: str, labels: Labels, span: tuple[int, int], steps: Sequence[tuple[int, float]]) -> int:
        """A gauge that takes a value from each (slot, value) on, in order."""
        grid, step = self.cluster.grid, self.dress.state_seconds
        phase = 7 % step
        first, last = (grid.start_seconds + slot * grid.step_seconds for slot in span)
        times = np.arange(-(-(first - phase) // step) * step + phase, last, step, dtype=np.int64)
        times = times[_within(times, self.dress.state_span)]
        marks = np.array([grid.start_seconds + slot * grid.step_seconds for slot, _ in steps])
        amounts = np.array([value for _, value in steps])
        which = np.maximum(np.searchsorted(marks, times, side="right") - 1, 0)
        values = decimals(np.round(amounts[which] * 1e6).astype(np.int64))
        base = {"job": "kube-state-metrics", "instance": "kube-state-metrics:8080"}
        stamps = clock_digits(times)
        return sum(self._lines(name, base | labels | dict(own), values, stamps) for own in self.dress.state_scrapers)

    def _lines(self, name: str, scraped: Labels, values: Bytes, times: Bytes) -> int:
        labels = self.dress.relabel(name, scraped) if self.dress.relabel else scraped
        if labels is None:
            return 0
        text = ",".join(f'{key}="{escape(value)}"' for key, value in sorted(labels.items()) if value)
        prefix = np.frombuffer(f"{name}{{{text}}} ".encode(), dtype=np.uint8)
        lines = np.empty((len(values), len(prefix) + values.shape[1] + times.shape[1]), dtype=np.uint8)
        lines[:, : len(prefix)] = prefix
        lines[:, len(prefix) : len(prefix) + values.shape[1]] = values
        lines[:, len(prefix) + values.shape[1] :] = times
        self.out.write(lines.data)
        return len(lines)

    def _clock(self, node: str, scraper: int) -> tuple[int, Bytes, npt.NDArray[np.bool_]]:
        """Phase of a node's scrapes in seconds, all time stamps as text, and which scrapes succeeded."""
        if (node, scraper) not in self._clocks:
            rng = np.random.default_rng([self.dress.seed, 1, self.nodes[node], scraper])
            phase = int(rng.integers(0, self.dress.interval_seconds))
            grid = self.cluster.grid
            count = grid.size * self.dress.per_slot
            times = grid.start_seconds + phase + self.dress.interval_seconds * np.arange(count, dtype=np.int64)
            is_kept = (rng.random(count) >= self.dress.lost) & _within(times, self.dress.span)
            is_kept &= np.arange(count) % self.dress.every == 0
            self._clocks[node, scraper] = phase, clock_digits(times), is_kept
        return self._clocks[node, scraper]

    def _counted(self, series: Series, phase: int, key: str) -> Bytes:
        """Counter values at the scrapes, in seconds with six decimals."""
        per_slot, interval = self.dress.per_slot, self.dress.interval_seconds
        rates = inside(np.nan_to_num(series.values).astype(np.float64), series.maximum, per_slot)
        knots = np.concatenate(([0.0], np.cumsum(rates * interval * 1e3)))
        resets = sorted({(slot - series.start) * per_slot for slot in series.resets if slot > series.start})
        base = np.zeros(len(rates))
        for knot in resets:
            base[knot:] = knots[knot]
        first = resets[0] if resets else len(base)
        base[:first] -= float(zlib.crc32(key.encode())) * 1e4 if series.old else 0.0
        share = phase / interval
        millionths = np.round(knots[:-1] * (1 - share) + knots[1:] * share - base).astype(np.int64)
        return decimals(millionths // 1_000_000 * 1_000_000 if series.whole else millionths)

    def _gauged(self, series: Series, phase: int, key: str) -> Bytes:
        """Gauge values at the scrapes: the slot's value at one of them, a little less at the others."""
        del phase, key
        values = np.repeat(np.nan_to_num(series.values).astype(np.float64), self.dress.per_slot)
        values *= np.where(marks(len(series.values), self.dress.per_slot), 1.0, 0.97)
        return decimals(np.round(values).astype(np.int64) * 1_000_000)
