"""Numbers as text, whole columns at once: byte matrices with one line per sample."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tests.support.openmetrics.dress import Floats

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


def inside(mean: npt.NDArray[np.float64], maximum: Floats | None, pieces: int) -> npt.NDArray[np.float64]:
    """Rates of each slot's pieces: one at the slot's maximum, the others such that the mean stays."""
    if maximum is None or pieces == 1:
        return np.repeat(mean, pieces)
    top = np.clip(np.nan_to_num(maximum).astype(np.float64), mean, pieces * mean)
    rest = (pieces * mean - top) / (pieces - 1)
    return np.where(marks(len(mean), pieces), np.repeat(top, pieces), np.repeat(rest, pieces))


def marks(slots: int, pieces: int) -> npt.NDArray[np.bool_]:
    """Which piece of each slot is the highest, flat."""
    highest = (np.arange(slots) * 2_654_435_761 >> 7) % pieces
    return np.asarray(np.arange(pieces)[None, :] == highest[:, None]).reshape(-1)


_FOUR = np.array([list(f"{number:04d}".encode()) for number in range(10_000)], dtype=np.uint8)


def _digits(values: Ints, groups: int) -> Bytes:
    """Non-negative integers as text of 4 x groups digits with leading zeros, (n, 4 x groups)."""
    out = np.empty((len(values), groups, 4), dtype=np.uint8)
    for group in reversed(range(groups)):
        values, low = np.divmod(values, 10_000)
        out[:, group] = _FOUR[low]
    return out.reshape(len(out), groups * 4)


def decimals(millionths: Ints) -> Bytes:
    """Values given in millionths as decimals, (n, 21): 14 digits, a point, 6 digits."""
    digits = _digits(millionths, 5)
    point = np.full((len(digits), 1), ord("."), dtype=np.uint8)
    return np.concatenate((digits[:, :14], point, digits[:, 14:]), axis=1)


def clock_digits(times: Ints) -> Bytes:
    """Time stamps with the space before and the line's end after them, (n, 12)."""
    out = np.empty((len(times), 12), dtype=np.uint8)
    out[:, 0], out[:, -1] = ord(" "), ord("\n")
    out[:, 1:-1] = _digits(times, 3)[:, 2:]
    return out


def escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
