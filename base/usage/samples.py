"""The samples that were due and those that are there, in the slots in which pods lived (`base.usage.lives`). Pure.

Two shares follow from one `ContainerLife`. "Samples present" is the share of all pods' due samples that are there; it
is shown for a workload, a namespace, a day and the cluster. "Time measured" is the same share for one container, on
which its values depend. As an unmeasured pod may use more than the measured ones, the longest time without a sample
(`PodGap`) is reported as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from cotenant.base.identity import PodContainerRef
from cotenant.base.usage.lives import Lives
from cotenant.base.usage.sparse_usage import AnyUsage, as_sparse
from cotenant.base.usage.usage import Flags

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
KeyT = TypeVar("KeyT", bound=Hashable)
_CHUNK: Final = 512  # rows processed together, so that working memory stays small
_GRID: Final = 2.0**-20  # samples due are multiples of it: their sum is the same in whatever order shards are added


class SeriesEnds(NamedTuple):
    """The first slot with a sample, the last one plus one, and the number of slots with a sample, of each series.

    All are 0 for a series without a sample.
    """

    first: Integers
    end: Integers
    counts: Integers


class Gaps(NamedTuple):
    """The slots without a sample between the first and the last sample of each of m series.

    `bounds`, of shape (m + 1,), gives series i the slots places[bounds[i]:bounds[i + 1]]. The `places` ascend; each is
    row x (size + 1) + slot, so that adjacent slots of one series differ by 1 and places of two series by more; `size`
    is the number of slots of the grid.
    """

    bounds: Integers
    places: Integers
    size: int

    def of_rows(self, rows: Sequence[int]) -> tuple[Integers, int]:
        """Return, by slot, how many of the series `rows` (ascending) have a gap there, and the longest gap in slots."""
        own = np.concatenate([self.places[:0], *(self.places[self.bounds[row] : self.bounds[row + 1]] for row in rows)])
        if not len(own):
            return np.zeros(self.size, dtype=np.int64), 0
        lasts = np.flatnonzero(np.append(own[1:] - own[:-1] != 1, True))
        return np.bincount(own % (self.size + 1), minlength=self.size), int(np.diff(lasts, prepend=-1).max())

    def without(self, slots: Flags | None) -> Gaps:
        """Return the gaps without the slots that are flagged; `slots` has one flag for each slot of the grid."""
        if slots is None or not slots.any():
            return self
        is_kept = ~np.append(slots, False)[self.places % (self.size + 1)]
        counted = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(is_kept)])
        return Gaps(counted[self.bounds], self.places[is_kept], self.size)

    def longest(self) -> Integers:
        """Return the length of each series' longest gap as a number of slots; 0 for a series without a gap."""
        lasts = np.flatnonzero(np.append(self.places[1:] - self.places[:-1] != 1, True)[: len(self.places)])
        longest = np.zeros(len(self.bounds) - 1, dtype=np.int64)
        np.maximum.at(longest, self.places[lasts] // (self.size + 1), np.diff(lasts, prepend=-1))
        return longest


def _ends_and_gaps(usage: AnyUsage[Any]) -> tuple[SeriesEnds, Gaps]:
    """Return the series' ends and gaps from one pass over their samples."""
    usage, size, parts = as_sparse(usage), usage.grid.size, [SeriesEnds(*np.zeros((3, 0), dtype=np.int64))]
    places = [np.zeros(0, dtype=np.int64)]
    for begin in range(0, len(usage.refs), _CHUNK):
        bounds, offset = usage.bounds[begin : begin + _CHUNK + 1], usage.first[begin : begin + _CHUNK]
        present = np.isfinite(usage.cells[bounds[0] : bounds[-1]])
        bounds = bounds - bounds[0]
        sampled, missing = np.append(np.flatnonzero(present), 0), np.flatnonzero(~present)
        from_sample, to_sample = (np.searchsorted(sampled[:-1], edge) for edge in (bounds[:-1], bounds[1:]))
        some, offset = to_sample > from_sample, offset - bounds[:-1]
        first = np.where(some, offset + sampled[from_sample], 0)
        ends = SeriesEnds(first, np.where(some, offset + sampled[to_sample - 1] + 1, 0), to_sample - from_sample)
        parts.append(ends)
        row = np.searchsorted(bounds, missing, side="right") - 1
        slot = offset[row] + missing
        inside = (slot >= ends.first[row]) & (slot < ends.end[row])
        places.append((begin + row[inside]) * (size + 1) + slot[inside])
    ends = SeriesEnds(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    count = np.concatenate([np.zeros(1, dtype=np.int64), ends.end - ends.first - ends.counts])
    return ends, Gaps(np.cumsum(count), np.concatenate(places), size)


@dataclass(frozen=True, slots=True, eq=False)
class ContainerLife:
    """The slots in which pods of one container lived, from the first to the last sign of any of them.

    `first_slot` is the arrays' first slot in the grid; each array has a value per slot. `seen` counts the pods with a
    sample, `unseen` those that lived or may have lived without one; `unknown` is True if there was no sign of any pod,
    or none was possible. `longest` is the longest stretch, in slots, in which a pod had no sample. `off` counts the
    slots in which the whole cluster was off, in which life is undefined.
    """

    first_slot: int
    seen: Integers
    unseen: Integers
    unknown: Flags
    longest: int
    off: int = 0

    @property
    def due(self) -> Floats:
        """The number of samples that were due in each slot; the average number in slots that are `unknown`."""
        lived = self.seen + self.unseen
        if not self.unknown.any():
            return lived.astype(np.float64)
        known_slots = len(lived) - self.off - int(self.unknown.sum())
        mean = round(float(lived.sum()) / max(known_slots, 1) / _GRID) * _GRID
        return np.where(self.unknown, mean, lived)

    @property
    def time_measured(self) -> float:
        """Share (0..1) of the pods' time, lived or possibly lived, in which they had a sample."""
        seen_slots, unknown = int(self.seen.sum()), int(self.unknown.sum())
        return seen_slots / (seen_slots + int(self.unseen.sum())) * (1 - unknown / max(len(self.seen) - self.off, 1))


LONG_SHARE: Final = 0.05
"""Share of a pod's life above which a gap is long: about an hour of a day, or most of a day in two weeks."""


class PodGap(NamedTuple):
    """A pod's longest gap: `slots` without a sample while some node reported; the pod lived for `lived` slots."""

    slots: int
    lived: int
    pod: PodContainerRef

    @property
    def is_long(self) -> bool:
        """True if the gap is so large a part of the pod's life that the pod's samples do not represent it."""
        return self.slots > LONG_SHARE * self.lived


class Measured(NamedTuple):
    """Share (0..1) of each of n containers' lifetime with samples, and worst gaps by the container's number."""

    shares: Floats
    gaps: Mapping[int, PodGap]


@dataclass(frozen=True, slots=True, eq=False)
class Members(Generic[KeyT]):
    """The rows of `usage` (one per pod) that belong to each container, and how far it is known that the pods lived.

    `own`: rows with samples; `unsampled`: listed series without a sample; `told`: containers with a listed row.
    `incomplete`: rows whose pod also lived before or after its samples, or may not have lived in a gap between them;
    `gappy`: other rows with gaps, in which the pod surely lived. `gaps`: the gaps of all rows; `missed`: `gaps` without
    slots when the whole cluster was off; `alone`: each row's longest `missed` gap while any node reported, in slots.
    """

    lives: Lives
    usage: AnyUsage[PodContainerRef]
    ends: SeriesEnds
    gaps: Gaps
    missed: Gaps
    alone: Integers
    own: Mapping[KeyT, list[int]]
    unsampled: Mapping[KeyT, list[PodContainerRef]]
    told: frozenset[KeyT]
    incomplete: frozenset[int]
    gappy: frozenset[int]

    @classmethod
    def of(
        cls,
        lives: Lives,
        usage: AnyUsage[PodContainerRef],
        keys: Sequence[KeyT | None],
        key_of: Callable[[PodContainerRef], KeyT | None],
    ) -> Members[KeyT]:
        """Return the members of each container: its pods' rows with and without samples, and the gaps in the samples.

        `keys` has the container of each series, None to ignore it; `key_of` returns the container of a listed series.
        """
        own: dict[KeyT, list[int]] = defaultdict(list)
        unsampled: dict[KeyT, list[PodContainerRef]] = defaultdict(list)
        listed_keys: set[KeyT] = set()
        ends, gaps = _ends_and_gaps(usage)
        columns = (ends.first.tolist(), ends.end.tolist(), ends.counts.tolist())
        incomplete: list[int] = []
        gappy: list[int] = []
        sampled: set[PodContainerRef] = set()
        for row, (ref, key, first, end, count) in enumerate(zip(usage.refs, keys, *columns, strict=True)):
            if not count:
                continue
            sampled.add(ref)
            if key is None:
                continue
            own[key].append(row)
            if ref in lives.row_of:
                listed_keys.add(key)
            if lives.is_told_outside(ref, first, end):
                incomplete.append(row)
            elif count < end - first:
                (gappy if lives.is_named_anew(ref) else incomplete).append(row)
        for ref in lives.row_of:
            key = key_of(ref) if ref not in sampled else None
            if key is not None and key in own:
                unsampled[key].append(ref)
        unseen = frozenset(incomplete), frozenset(gappy)
        missed = gaps.without(lives.silence.off)
        alone = missed.without(lives.silence.usage).longest()
        return cls(lives, usage, ends, gaps, missed, alone, own, unsampled, frozenset(listed_keys), *unseen)

    def misses_gaps_alone(self, key: KeyT) -> bool:
        """Return whether a container lacks samples only in gaps of its rows in which the pod surely lived.

        The rows must also overlap or adjoin, so that some pod lived in every slot from the first to the last sample.
        """
        rows = self.own[key]
        if key in self.unsampled or not self.incomplete.isdisjoint(rows):
            return False
        spans = self._spans(rows)
        reached = accumulate((end for _, end in spans), max)
        return all(begin <= until for (begin, _), until in zip(spans[1:], reached, strict=False))

    def _spans(self, rows: Sequence[int]) -> list[tuple[int, int]]:
        return sorted((int(self.ends.first[row]), int(self.ends.end[row])) for row in rows)

    def life(self, key: KeyT) -> ContainerLife | None:
        """Return the life of one container; None if no sample is missing: its series are complete and contiguous."""
        rows = self.own[key]
        gappy = [row for row in rows if row in self.gappy]
        gaps_alone = self.misses_gaps_alone(key)
        if gaps_alone and not gappy:
            return None
        missing, spans = [row for row in rows if row in self.incomplete], self._spans(rows)
        unseen, longest = self.missed.of_rows(gappy)
        seen_slots = -self.gaps.of_rows(gappy)[0]
        for row in rows:
            if row not in self.incomplete:
                seen_slots[self.ends.first[row] : self.ends.end[row]] += 1
        first, end = spans[0][0], max(stop for _, stop in spans)
        for ref, present in self._suspects(key, missing):
            seen_slots += present
            part = self.lives.unseen(ref, present)
            if part is not None:
                first, end, unseen = min(first, part[0]), max(end, part[1]), unseen + part[2]
                longest = max(longest, longest_stretch(part[2]))
        seen_slots, unseen = seen_slots[first:end], unseen[first:end]
        if gaps_alone:
            return ContainerLife(first, seen_slots, unseen, np.zeros(len(seen_slots), dtype=bool), longest)
        unknown = self.lives.silence.unknown(listed=key in self.told)[first:end] & (seen_slots + unseen == 0)
        off = 0 if self.lives.silence.off is None else int(self.lives.silence.off[first:end].sum())
        return ContainerLife(first, seen_slots, unseen, unknown, max(longest, longest_stretch(unknown)), off)

    def longest_gap(self, key: KeyT) -> PodGap | None:
        """Return a container's longest gap in one pod's samples while some node reported; None if there is none.

        A gap that `is_long` is preferred. If a pod is gone and may have been listed after its end, only slots in which
        some node was silent count.
        """
        rows, silence = self.own[key], self.lives.silence
        ends, refs = self.ends, self.usage.refs
        spans = ((row, int(ends.end[row] - ends.first[row])) for row in rows if row in self.gappy)
        pod_gaps = [PodGap(int(self.alone[row]), lived, refs[row]) for row, lived in spans]
        for ref, present in self._suspects(key, [row for row in rows if row in self.incomplete]):
            part = self.lives.unseen(ref, present)
            if part is not None:
                is_readable = ~silence.usage if self.lives.is_running(ref) else ~silence.usage & silence.partly
                pod_gaps.append(PodGap(longest_stretch(part[2] & is_readable), part[1] - part[0], ref))
        return max((gap for gap in pod_gaps if gap.slots), default=None, key=lambda gap: (gap.is_long, gap))

    def _suspects(self, key: KeyT, rows: list[int]) -> Iterable[tuple[PodContainerRef, Flags]]:
        if rows:
            present = np.isfinite(self.usage.rows(np.array(rows)))
            yield from zip([self.usage.refs[row] for row in rows], present, strict=True)
        nothing = np.zeros(self.usage.grid.size, dtype=bool)
        yield from ((ref, nothing) for ref in self.unsampled.get(key, ()))


def longest_stretch(flags: Flags) -> int:
    """Return the length of the longest run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return int((edges[1::2] - edges[::2]).max(initial=0))


def measured(
    lives: Lives,
    usage: AnyUsage[PodContainerRef],
    rows: Integers,
    container_of: Callable[[PodContainerRef], int],
    size: int,
) -> Measured:
    """Return for each of `size` containers the share of its lifetime with samples (0 without any), and its worst gap.

    `rows` has, for each series, its container's number, -1 for none; `container_of` returns a listed container's
    number.
    """
    shares, gaps = np.zeros(size), dict[int, PodGap]()
    keys = [row if row >= 0 else None for row in rows.tolist()]
    members: Members[int] = Members.of(lives, usage, keys, container_of)
    for container in members.own:
        life = members.life(container)
        shares[container] = 1.0 if life is None else life.time_measured
        gap = None if life is None else members.longest_gap(container)
        if gap is not None:
            gaps[container] = gap
    return Measured(shares, gaps)
