"""What processes hold over time, and whether it grows: memory, open files, threads. Pure but for reading /proc."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import median

from cotenant.base.process.memory import resident_bytes

WARM_SHARE = 0.25
"""Of a process' life, before which caches still fill."""
LEAST_SAMPLES = 8


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """What one process held at one time; pid tells two lives of a name apart."""

    name: str
    pid: int
    minutes: float
    memory_bytes: int
    open_files: int
    threads: int


def sample(name: str, pid: int, minutes: float) -> ProcessSample | None:
    """Read /proc of a process; None when it has ended. Memory is what is resident."""
    memory = resident_bytes(pid)
    try:
        files, threads = (sum(1 for _ in Path(f"/proc/{pid}/{kind}").iterdir()) for kind in ("fd", "task"))
    except OSError:
        return None
    return None if memory is None else ProcessSample(name, pid, minutes, memory, files, threads)


def longest_life(samples: Iterable[ProcessSample], name: str) -> tuple[ProcessSample, ...]:
    """The samples of a name's longest run without a new process, in their order."""
    own = [life_sample for life_sample in samples if life_sample.name == name]
    lives = [tuple(life) for _, life in groupby(own, key=lambda life_sample: life_sample.pid)]
    return max(lives, key=len, default=())


def growth(values: Sequence[float]) -> float | None:
    """Median of the last third over that of the first third of a warm life, less one; None of too few values."""
    warm = values[int(len(values) * WARM_SHARE) :]
    third = len(warm) // 3
    if len(values) < LEAST_SAMPLES or not third:
        return None
    first, last = median(warm[:third]), median(warm[-third:])
    return (last - first) / first if first else (0.0 if last == 0 else float("inf"))
