"""Processes of the node's benches: a latency-sensitive loop, and batch work of three kinds that counts what it does.

python bench/enforcer/node_load.py serve OUT WORK PERIOD_MS SECONDS FILE     writes latencies (ms) as JSON
python bench/enforcer/node_load.py cpu|memory|cache COUNTER [FOLDER]         until it is killed
"""

from __future__ import annotations

import json
import mmap
import os
import random
import struct
import sys
import time
from pathlib import Path
from typing import NoReturn

import numpy as np

MIB = 1 << 20
SLICE = 16_384
"""Floats that one unit of work sums: 128 KiB of 32 MiB, so that memory bandwidth counts."""
FILE_BYTES = 64 * MIB
WRITTEN_BYTES = 128 * MIB


class Service:
    """Work as a request does it: sums over memory, and a read of a file that is in the page cache."""

    def __init__(self, file: Path) -> None:
        self._data = np.random.default_rng(1).random(32 * MIB // 8)
        self._file = os.open(file, os.O_RDONLY)
        self._random = random.Random(1)

    def request(self, work: int) -> float:
        """Do it."""
        total = 0.0
        for _ in range(work):
            start = self._random.randrange(0, len(self._data) - SLICE)
            total += float(self._data[start : start + SLICE].sum())
        return total + len(os.pread(self._file, 65_536, self._random.randrange(0, FILE_BYTES - 65_536)))


def calibrated(file: Path, milliseconds: float) -> int:
    """Units of work that take so long when nobody disturbs; at least one."""
    service, work = Service(file), 50
    took = []
    for _ in range(60):
        began = time.perf_counter()
        service.request(work)
        took.append(time.perf_counter() - began)
    return max(1, round(work * milliseconds / 1000 / float(np.median(took))))


def serve(out: Path, work: int, period_ms: float, seconds: float, file: Path) -> None:
    """An open loop: latency of each request counts from when it was due."""
    service = Service(file)
    for _ in range(20):
        service.request(work)
    latencies, start = [], time.perf_counter() + 0.05
    for number in range(int(seconds * 1000 / period_ms)):
        due = start + number * period_ms / 1000
        if (wait := due - time.perf_counter()) > 0:
            time.sleep(wait)
        service.request(work)
        latencies.append((time.perf_counter() - due) * 1000)
    out.write_text(json.dumps(latencies))


class Counter:
    """A number in a file that others read while it grows."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(8))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 8)
        self._value = 0

    def add(self, amount: int) -> None:
        self._value += amount
        self._memory[:] = struct.pack("<q", self._value)


def counted(path: Path) -> int:
    """What a counter holds now."""
    raw = path.read_bytes() if path.exists() else b""
    return int(struct.unpack("<q", raw)[0]) if len(raw) == 8 else 0


def burn(counter: Counter) -> NoReturn:
    """A busy loop; counts loops."""
    while True:
        for _ in range(20_000):
            pass
        counter.add(1)


def stream(counter: Counter) -> NoReturn:
    """Copies memory larger than any cache; counts MiB."""
    source, target = np.ones(4 * MIB), np.zeros(4 * MIB)
    while True:
        np.copyto(target, source)
        counter.add(32)


def write(counter: Counter, folder: Path) -> NoReturn:
    """Writes a file over and over through the page cache; counts MiB."""
    block = bytes(MIB)
    file = os.open(folder / f"written-{os.getpid()}", os.O_WRONLY | os.O_CREAT)
    while True:
        os.lseek(file, 0, os.SEEK_SET)
        for _ in range(WRITTEN_BYTES // MIB):
            os.write(file, block)
            counter.add(1)


def main(argv: list[str]) -> None:
    kind, first, *rest = argv
    if kind == "serve":
        work, period, seconds, file = rest
        serve(Path(first), int(work), float(period), float(seconds), Path(file))
    elif kind == "cpu":
        burn(Counter(Path(first)))
    elif kind == "memory":
        stream(Counter(Path(first)))
    else:
        write(Counter(Path(first)), Path(rest[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
