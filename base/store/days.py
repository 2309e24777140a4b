"""One UTC day of one signal as Parquet: encode, decode, merge. Pure: bytes and arrays in, bytes and arrays out.

One row per series, sorted by reference: the reference's parts as dictionary columns, then all values of the day as one
fixed-size list of float32 in the signal's unit, NaN for a gap. A day is one flat buffer and nothing is done per cell.
The metadata have checksums of keys and values, because a damaged footer could otherwise yield other plausible numbers.
Rows are in groups of GROUP_SERIES, whose first keys and checksums are in the metadata as well, so that some of the
series can be read alone (`decode_between`). So are the first and last slot with a value (`slots_of`), because the span
of a history is needed more often than its values. A file is written group by group, so that a day of 100,000 series,
110 MiB of values, need not be in memory at once (`encode_pieces`).
"""

from __future__ import annotations

import io
import json
import re
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cotenant.base.identity import NodeRef, PodContainerRef
from cotenant.base.store import parquet
from cotenant.base.usage.usage import DAY_SECONDS, FloatMatrix, Signal, SignalSpec

Key = tuple[str, ...]
"""A reference as plain text parts: (namespace, pod, container) or (node,)."""

Between = tuple[Key | None, Key | None]
"""Keys from the first (inclusive) to the second (exclusive); None: no bound."""

GroupMark = tuple[Key, str, int]
"""First key, checksum of the keys and number of rows of a row group."""
Slots = tuple[int, int]
"""First slot of the day with a value of any series, and the one after the last; equal where none has any."""
KeyStretch = tuple[GroupMark, int, int]
"""Part of a row group, from one row (inclusive) to another (exclusive)."""

GROUP_SERIES: Final = 1000
MOST_SHARED: Final = 256
"""Row groups whose keys are kept for files that are read next."""
_FILE: Final = re.compile(r"(?P<day>\d{4}-\d\d-\d\d)(?:\.part-(?P<part>\d{6,}))?\.parquet")
_SLOTS: Final = "slots"  # of the stamp: first and last slot with a value
_POD_PARTS: Final = ("namespace", "pod", "container")
_NODE_PARTS: Final = ("node",)


@dataclass(frozen=True, slots=True, eq=False)
class Day:
    """The series of one UTC day: `keys` are sorted and distinct, `values` is (len(keys), slots per day), float32."""

    keys: tuple[Key, ...]
    values: FloatMatrix


@dataclass(frozen=True, slots=True, eq=False)
class PartOfDay:
    """The series of some slots of a day: `keys` are sorted and distinct, `values` is (len(keys), slots), float32."""

    keys: tuple[Key, ...]
    values: FloatMatrix
    slots: slice
    slots_of_day: int

    def __iter__(self) -> Iterator[Day]:
        """Yield whole days of the series, one row group at a time."""
        for i in range(0, len(self.keys), GROUP_SERIES):
            part = self.values[i : i + GROUP_SERIES]
            values = np.full((len(part), self.slots_of_day), np.nan, dtype=np.float32)
            values[:, self.slots] = part
            yield Day(self.keys[i : i + GROUP_SERIES], values)


def parts_of(spec: SignalSpec) -> tuple[str, ...]:
    """Return the names of the parts of a key (such as the namespace), which are also columns of a day's file."""
    return _NODE_PARTS if spec.per_node else _POD_PARTS


def key_of(ref: PodContainerRef | NodeRef) -> Key:
    """Return the key of a container's or node's reference: its parts as texts."""
    return (ref.name,) if isinstance(ref, NodeRef) else (ref.namespace, ref.pod, ref.container)


def ref_of(key: Key) -> PodContainerRef | NodeRef:
    """Return the reference of a key; the inverse of `key_of`."""
    return NodeRef(*key) if len(key) == 1 else PodContainerRef(*key)


def day_name(start_seconds: int) -> str:
    """Return the name of a day's file; the day starts at this UTC midnight (Unix seconds)."""
    return f"{datetime.fromtimestamp(start_seconds, UTC):%Y-%m-%d}.parquet"


def part_name(start_seconds: int, number: int) -> str:
    """Return the name of a day's part; `number` starts at 1 and grows with each part that is appended."""
    return f"{datetime.fromtimestamp(start_seconds, UTC):%Y-%m-%d}.part-{number:06d}.parquet"


def file_of(name: str) -> tuple[int, int] | None:
    """Return (midnight, part number) of a file's name, with number 0 for the day's own file; None for another name."""
    file = _FILE.fullmatch(name)
    if file is None:
        return None
    try:
        midnight = datetime.strptime(file["day"], "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(midnight.timestamp()), int(file["part"] or 0)


def encode(signal: Signal, start_seconds: int, day: Day) -> bytes:
    """Return a day of one signal as the bytes of its file."""
    return encode_pieces(signal, start_seconds, (day,))


def encode_pieces(signal: Signal, start_seconds: int, pieces: Iterable[Day]) -> bytes:
    """Return the bytes of a day's file, whose series (at least one) are given in pieces in the order of keys."""
    sums, sink = _Sums(), io.BytesIO()

    def tables() -> Iterator[tuple[pa.Table, int]]:
        for group in _in_groups(pieces):
            sums.add(group)
            columns = zip(*group.keys, strict=True) if group.keys else ((),) * len(parts_of(signal.spec))
            arrays = [pa.array(column, pa.string()) for column in columns]
            flat = pa.array(np.ascontiguousarray(group.values).reshape(-1))
            arrays.append(pa.FixedSizeListArray.from_arrays(flat, DAY_SECONDS // signal.spec.step_seconds))
            yield pa.table(arrays, names=[*parts_of(signal.spec), "values"]), GROUP_SERIES

    def stamp() -> dict[str, str]:
        own = {"keys": f"{sums.keys:08x}", "values": f"{sums.values:08x}", "groups": json.dumps(sums.groups)}
        document = _stamp(signal, start_seconds) | own
        return document | {_SLOTS: _text_of_slots(sums.slots, document)}

    parquet.write(tables(), stamp, parts_of(signal.spec), sink)
    return sink.getvalue()


def _in_groups(pieces: Iterable[Day]) -> Iterator[Day]:
    """Yield the series again in pieces of GROUP_SERIES; only the last one is smaller."""
    keys: tuple[Key, ...] = ()
    values: FloatMatrix | None = None
    for piece in pieces:
        keys += piece.keys
        values = piece.values if values is None or not len(values) else np.concatenate((values, piece.values))
        full_length = len(keys) // GROUP_SERIES * GROUP_SERIES
        for i in range(0, full_length, GROUP_SERIES):
            yield Day(keys[i : i + GROUP_SERIES], values[i : i + GROUP_SERIES])
        keys, values = keys[full_length:], values[full_length:]
    if keys and values is not None:
        yield Day(keys, values)


class _Sums:
    """The checksums of all keys and values and of each row group, and the first and last slot with a value."""

    def __init__(self) -> None:
        self.keys, self.values = 0, 0
        self.groups: list[tuple[Key, str, str]] = []
        self.slots: Slots = (0, 0)

    def add(self, group: Day) -> None:
        text = chr(0).join(chain.from_iterable(group.keys))
        self.keys = zlib.crc32((chr(0) + text if self.groups else text).encode(), self.keys)
        self.values = zlib.crc32(np.ascontiguousarray(group.values).data, self.values)
        self.groups.append((group.keys[0], _sum_of_keys(group.keys), _sum_of_values(group.values)))
        first, last = _slots(group.values)
        if first < last:
            before = self.slots if self.slots[0] < self.slots[1] else (first, last)
            self.slots = min(first, before[0]), max(last, before[1])


def decode(content: bytes, signal: Signal, start_seconds: int) -> Day:
    """Decode a day's file; raise one of `parquet.UNREADABLE` if it is corrupt, or of another signal or day."""
    table, stamp = parquet.decode(content)
    keys = _keys(table, stamp, signal, start_seconds)
    return Day(keys, _values(table, signal, stamp["values"]))


class SharedKeys:
    """A cache of row groups' keys for several signals of the same series, whose files have the same keys.

    A group is identified by its first key, its keys' checksum and its number of rows. Threads may share the cache.
    """

    def __init__(self) -> None:
        self._of_groups: dict[GroupMark, tuple[Key, ...]] = {}
        self._joined: dict[tuple[KeyStretch, ...], tuple[Key, ...]] = {}

    def of_group(self, mark: GroupMark) -> tuple[Key, ...] | None:
        """Return the cached keys of a group, or None."""
        return self._of_groups.get(mark)

    def add(self, mark: GroupMark, keys: tuple[Key, ...]) -> None:
        """Cache the keys of a group whose checksum was verified."""
        self._of_groups[mark] = keys

    def forget_if_full(self) -> None:
        """Clear the cache if it has more than MOST_SHARED groups; called before a file is read."""
        if len(self._of_groups) > MOST_SHARED:
            self._of_groups.clear()
            self._joined.clear()

    def joined(self, parts: Sequence[tuple[KeyStretch, tuple[Key, ...]]]) -> tuple[Key, ...]:
        """Return the keys of several stretches of row groups as one tuple, one object for equal stretches."""
        stretches = tuple(stretch for stretch, _ in parts)
        keys = self._joined.get(stretches)
        if keys is None:
            joined = tuple(chain.from_iterable(part for _, part in parts))
            keys = self._joined.setdefault(stretches, joined)
        return keys


def decode_between(
    file: parquet.File, signal: Signal, start_seconds: int, between: Between, shared: SharedKeys | None = None
) -> Day:
    """Return the series of a range of keys; only the row groups that have them are read and checked.

    `shared` caches keys of files with the same series, so that they are not read again.
    """
    stamp = parquet.stamp_of(file)
    _expect(stamp, signal, start_seconds)
    (low, high), shared = between, SharedKeys() if shared is None else shared
    shared.forget_if_full()
    parts: list[tuple[KeyStretch, tuple[Key, ...]]] = []
    blocks: list[FloatMatrix] = []
    for number, first, (keys_sum, values_sum) in _groups_between(file, stamp, between):
        mark = first, keys_sum, file.metadata.row_group(number).num_rows
        keys = shared.of_group(mark)
        table = parquet.group(file, number, None if keys is None else ("values",))
        if keys is None:
            keys = _checked_keys(table, signal, keys_sum)
            shared.add(mark, keys)
        values = _values(table, signal, values_sum)
        # keys are sorted, so what is inside is one stretch
        begin = 0 if low is None else bisect_left(keys, low)
        end = len(keys) if high is None else bisect_left(keys, high)
        if begin < end:
            parts.append(((mark, begin, end), keys[begin:end]))
            blocks.append(values[begin:end])
    if not blocks:
        return Day((), np.empty((0, DAY_SECONDS // signal.spec.step_seconds), dtype=np.float32))
    return Day(shared.joined(parts), blocks[0] if len(blocks) == 1 else np.concatenate(blocks))


def first_keys(file: parquet.File) -> tuple[Key, ...]:
    """Return the first key of each row group."""
    return tuple(tuple(first) for first, *_ in json.loads(parquet.stamp_of(file)["groups"]))


def slots_of(file: parquet.File, signal: Signal, start_seconds: int) -> Slots:
    """Return the slots [first, end) that have values, from the file's metadata if usable, else from the values."""
    stamp = parquet.stamp_of(file)
    _expect(stamp, signal, start_seconds)
    first, last = (int(number) if number.isdecimal() else -1 for number in _numbers(stamp))
    if stamp.get(_SLOTS) == _text_of_slots((first, last), stamp):
        return first, last
    return _slots(decode_between(file, signal, start_seconds, (None, None)).values)


def _numbers(stamp: dict[str, str]) -> tuple[str, str]:
    """Return the two numbers of the stamp's slots as texts; empty if there are none."""
    first, last, *_ = *stamp.get(_SLOTS, "").split(), "", ""
    return first, last


def _slots(values: FloatMatrix) -> Slots:
    measured = np.flatnonzero(~np.isnan(values).all(axis=0)) if len(values) else np.empty(0, dtype=np.intp)
    return (int(measured[0]), int(measured[-1]) + 1) if measured.size else (0, 0)


def _text_of_slots(slots: Slots, stamp: dict[str, str]) -> str:
    """Return the slots as text with a checksum that also covers the file's identity and its values."""
    content = " ".join((stamp["signal"], stamp["start"], stamp["values"], *map(str, slots)))
    return f"{slots[0]} {slots[1]} {zlib.crc32(content.encode()):08x}"


def _groups_between(
    file: parquet.File, stamp: dict[str, str], between: Between
) -> list[tuple[int, Key, tuple[str, str]]]:
    """Return the row groups that may have keys of the range, with their first keys and checksums."""
    groups: list[Any] = json.loads(stamp["groups"])
    if len(groups) != file.num_row_groups:
        raise ValueError(f"the file has {file.num_row_groups} row groups, not {len(groups)}")
    low, high = between
    firsts = [tuple(first) for first, *_ in groups]
    after: list[Key | None] = [*firsts[1:], None]
    return [
        (number, first, (group[1], group[2]))
        for number, (group, first, following) in enumerate(zip(groups, firsts, after, strict=True))
        if (high is None or first < high) and (low is None or following is None or following > low)
    ]


def _values(table: pa.Table, signal: Signal, checksum: str) -> FloatMatrix:
    slots = DAY_SECONDS // signal.spec.step_seconds
    column = table["values"].combine_chunks()
    if column.type != pa.list_(pa.float32(), slots) or column.null_count or column.flatten().null_count:
        raise ValueError(f"values are {column.type}, not {slots} floats a row")
    values: FloatMatrix = column.flatten().to_numpy(zero_copy_only=True).reshape(len(table), slots)
    if checksum != _sum_of_values(values):
        raise ValueError("the values' checksum does not match")
    return values


def decode_keys(content: bytes, signal: Signal, start_seconds: int) -> tuple[Key, ...]:
    """Return the keys of a day's file; the values are neither read nor checked."""
    return _keys(*parquet.decode(content, parts_of(signal.spec)), signal, start_seconds)


def _keys(table: pa.Table, stamp: dict[str, str], signal: Signal, start_seconds: int) -> tuple[Key, ...]:
    """Return the keys of a file, after checking that it is this signal's day."""
    _expect(stamp, signal, start_seconds)
    return _checked_keys(table, signal, stamp["keys"])


def _expect(stamp: dict[str, str], signal: Signal, start_seconds: int) -> None:
    expected = _stamp(signal, start_seconds)
    if {name: stamp.get(name) for name in expected} != expected:
        raise ValueError(f"the file's metadata are {stamp}, not {expected}")


def _checked_keys(table: pa.Table, signal: Signal, checksum: str) -> tuple[Key, ...]:
    keys = tuple(zip(*(table[name].to_pylist() for name in parts_of(signal.spec)), strict=True))
    if checksum != _sum_of_keys(keys):
        raise ValueError("the keys' checksum does not match")
    return keys


def _sum_of_keys(keys: Sequence[Key]) -> str:
    return f"{zlib.crc32(chr(0).join(chain.from_iterable(keys)).encode()):08x}"


def _sum_of_values(values: FloatMatrix) -> str:
    return f"{zlib.crc32(np.ascontiguousarray(values).data):08x}"


def merge_days(days: Sequence[Day]) -> Day:
    """Return the union of at least one day's series, oldest first: a new value wins, a new gap keeps the old value.

    Associative and idempotent, so a history appended in pieces equals the same history appended at once, and a piece
    that is merged again after the whole changes nothing.
    """
    if len(days) == 1:
        return days[0]
    same = all(day.keys == days[0].keys for day in days)
    keys = days[0].keys if same else tuple(sorted(set().union(*(day.keys for day in days))))
    values = np.full((len(keys), days[0].values.shape[1]), np.nan, dtype=np.float32)
    row = {} if same else {key: i for i, key in enumerate(keys)}
    for day in days:
        measured = ~np.isnan(day.values)
        if same:
            np.copyto(values, day.values, where=measured)
        else:
            target = rows(row, day.keys)
            values[target] = np.where(measured, day.values, values[target])
    return Day(keys, values)


def rows(index: dict[Key, int], keys: Sequence[Key]) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Return the row number of each key, from `index`."""
    return np.fromiter((index[key] for key in keys), dtype=np.intp, count=len(keys))


def _stamp(signal: Signal, start_seconds: int) -> dict[str, str]:
    """Return the metadata that identify a file: its signal and its day."""
    spec = signal.spec
    return {"signal": signal.value, "start": str(start_seconds), "step": str(spec.step_seconds), "unit": spec.unit}


MOST_INDICES: Final = 4
"""Signals of usage have the same series, and those of requests, but for what a server lacks."""


@dataclass(frozen=True, slots=True, eq=False)
class SeriesIndex:
    """The sorted union of several days' keys with their references, and each day's keys as rows of that union."""

    day_keys: tuple[tuple[Key, ...], ...]
    keys: tuple[Key, ...]
    refs: tuple[Any, ...]
    rows: tuple[npt.NDArray[np.intp], ...]


class SeriesIndices:
    """A cache of the series indices that were requested last, shared between threads.

    Equal references are the same object, so that they are compared and stored once.
    """

    def __init__(self) -> None:
        self._latest: tuple[SeriesIndex, ...] = ()

    def of(self, day_keys: tuple[tuple[Key, ...], ...]) -> SeriesIndex:
        """Return the index of days with these keys."""
        index = next((index for index in self._latest if index.day_keys == day_keys), None)
        if index is None:
            keys = tuple(sorted(set().union(*day_keys)))
            same = next((index for index in self._latest if index.keys == keys), None)
            refs = tuple(map(ref_of, keys)) if same is None else same.refs
            row = {key: i for i, key in enumerate(keys)}
            index = SeriesIndex(day_keys, keys, refs, tuple(rows(row, of_day) for of_day in day_keys))
            self._latest = (*self._latest, index)[-MOST_INDICES:]
        return index
