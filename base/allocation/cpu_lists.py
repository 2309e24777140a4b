"""Lists of CPUs in the kernel's text form, such as "0-2,5". Pure. Source: cpuset(7) "List format"."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from cotenant.base.errors import UsageError

LARGEST_CPU: Final = 8191
"""No kernel numbers CPUs higher; a greater number is a mistake, and a range up to it would fill the memory."""
LONGEST_LIST: Final = 5 * (LARGEST_CPU + 1)
"""Characters; a list of every single CPU is not longer. Annotations may have any author."""

Cpus = frozenset[int]
_FIX: Final = 'Write such as "0-2,5".'
_PART: Final = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")


def parse_cpus(text: str, what: str = "") -> Cpus:
    """CPUs of a list such as "0-2,5"; blank text is the empty set.

    UsageError names the part that is not a number or range, runs downwards or lies above LARGEST_CPU; `what` names
    whose.
    """
    if len(text) > LONGEST_LIST:
        raise UsageError(f"{what or 'CPUs'}: a list of {len(text)} characters is too long for a list of CPUs", fix=_FIX)
    parts = [part.strip() for part in text.strip().split(",")] if text.strip() else []
    cpus: set[int] = set()
    end = -1
    for low, high in sorted(_range(part, what) for part in parts):
        cpus.update(range(max(low, end + 1), high + 1))  # each CPU once, however often ranges overlap
        end = max(end, high)
    return frozenset(cpus)


def _range(part: str, what: str) -> tuple[int, int]:
    match = _PART.fullmatch(part)
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if low > high or high > LARGEST_CPU:
        raise UsageError(f'{what or "CPUs"}: "{part[:40]}" is not a CPU or a range of CPUs', fix=_FIX)
    return low, high


def format_cpus(cpus: Iterable[int]) -> str:
    """Shortest text in the kernel's own form: ascending, neighbours joined; "" for none."""
    runs: list[tuple[int, int]] = []
    for cpu in sorted(set(cpus)):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1] = (runs[-1][0], cpu)
        else:
            runs.append((cpu, cpu))
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
