"""EDGE: reads label sets of series that name owners, over a window, in as few queries as the server answers.

A server may cut the answer and say so, refuse a long window, or silently answer for its last hours only (an Azure
Monitor workspace: 12).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cotenant.base.errors import SourceLimit, SourceTooLong
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS, TimeWindow
from cotenant.profiler.prometheus import decode
from cotenant.profiler.prometheus.answers import CutAnswer, TooLongSpan
from cotenant.profiler.prometheus.client import Client
from cotenant.profiler.prometheus.kube_state.owners import POD_OWNER
from cotenant.profiler.prometheus.plan import NamespaceShard
from cotenant.profiler.prometheus.promql import metric_name_matcher, of_labels, selector

PIECE_SECONDS: Final = DAY_SECONDS // 2
"""Time span of a query to a server that answers only for the last hours of a window."""
Rows = list[dict[str, str]]


@dataclass(slots=True)
class OwnerSeries:
    """Reader of series that name owners of pods; `cut` has warnings on partial answers, `splits` counts split reads."""

    client: Client
    labels: Mapping[str, str]
    cut: list[str] = field(default_factory=list)
    splits: int = 0

    def read(self, metrics: Sequence[str], window: TimeWindow, shard: NamespaceShard, names: Collection[str]) -> Rows:
        """Return the series that name owners in the whole window; `names` are the metrics that the server has."""
        rows = self._read(metrics, window, shard)
        witness = POD_OWNER if POD_OWNER in names else "kube_pod_info"
        start, end = window
        if self.cut or end - start <= PIECE_SECONDS:
            return rows
        oldest = self._read((witness,), TimeWindow(start, start + PIECE_SECONDS), shard)
        if _pods(oldest) <= _pods(rows):
            return rows
        self.splits += 1
        pieces = [TimeWindow(at, min(end, at + PIECE_SECONDS)) for at in range(start, end, PIECE_SECONDS)]
        rows += [row for piece in pieces for row in self._read(metrics, piece, shard)]
        return list({frozenset(row.items()): row for row in rows}.values())

    def _read(self, metrics: Sequence[str], window: TimeWindow, shard: NamespaceShard) -> Rows:
        """Return label sets of the metrics' series; halve by metric, namespaces, then time if an answer is too large.

        If even an hour of one namespace is too large for a server that cuts answers, the partial answer is used.
        """
        own = (*of_labels(self.labels), *shard.matchers())
        try:
            return decode.label_sets(
                self.client.series([selector((metric_name_matcher(m), *own)) for m in metrics], *window)
            )
        except SourceLimit as error:
            pieces: list[tuple[Sequence[str], TimeWindow, NamespaceShard]] = []
            # Two smaller questions; none for an atom. A text that is too long is shorter with fewer metrics alone,
            # and a window that is too long with less time alone.
            (start, end), half, is_span = window, len(metrics) // 2, isinstance(error, TooLongSpan)
            if half and not is_span:
                pieces.extend((some, window, shard) for some in (metrics[:half], metrics[half:]))
            elif not isinstance(error, SourceTooLong):
                shards = None if is_span else shard.halves()
                if shards is not None:
                    pieces.extend((metrics, window, part) for part in shards)
                elif end - start > (DAY_SECONDS if self.cut else HOUR_SECONDS):
                    middle = (start + end) // 2
                    pieces.extend(
                        (metrics, part, shard) for part in (TimeWindow(start, middle), TimeWindow(middle, end))
                    )
            if not pieces and isinstance(error, CutAnswer):
                self.cut.append(error.message)
                return decode.label_sets(error.data)
            if not pieces:
                raise
        self.splits += 1
        return [row for piece in pieces for row in self._read(*piece)]


def _pods(rows: Rows) -> set[tuple[str, str]]:
    return {(x.get("namespace", ""), x.get("pod", "")) for x in rows}
