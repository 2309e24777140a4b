"""The Java virtual machine: metrics of Micrometer, of the JMX exporter and of client_java, and its flags. Pure.

Sources: Micrometer's JvmMemoryMetrics and JvmGcMetrics (`jvm_memory_used_bytes` by area and pool,
`jvm_gc_pause_seconds`); client_java's JvmMemoryMetrics (`jvm_memory_used_bytes` by area, before its version 1 and in
the JMX exporter before 1.0 `jvm_memory_bytes_used`), and its `jvm_gc_collection_seconds`. The java launcher's manual,
options -Xmx, -Xms, -XX:MaxHeapSize, -XX:MaxRAMPercentage. The JVM does not start if an initial, least or soft size
exceeds the largest one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cotenant.base.resource import KIB, MIB
from cotenant.base.runtimes.heap import HeapFact, Select

USED: Final = ("jvm_memory_used_bytes", "jvm_memory_bytes_used")
COMMITTED: Final = ("jvm_memory_committed_bytes", "jvm_memory_bytes_committed")
MAXIMUM: Final = ("jvm_memory_max_bytes", "jvm_memory_bytes_max")
COLLECTING: Final = ("jvm_gc_pause_seconds_sum", "jvm_gc_collection_seconds_sum")
LEAST_HOURS: Final = 24
_UNITS: Final[Mapping[str, int]] = {"": 1, "k": KIB, "m": MIB, "g": KIB * MIB, "t": MIB * MIB}
_SIZE: Final = r"(?P<amount>\d{1,15})(?P<unit>[kKmMgGtT]?)"
_END: Final = r"(?=[\s\"',;]|$)"
_LARGEST: Final = re.compile(r"(?<![\w:-])(?:-Xmx|-XX:MaxHeapSize=)" + _SIZE + _END, re.ASCII)
_SHARE: Final = re.compile(r"(?<![\w:-])-XX:MaxRAMPercentage=\d{1,3}(?:\.\d+)?" + _END, re.ASCII)
_FIRST: Final = re.compile(r"(?<![\w:-])(?P<flag>-Xms|-XX:(?:Initial|Min|SoftMax)HeapSize=)" + _SIZE + _END, re.ASCII)
_ANY: Final = re.compile(r"-Xm[xs]|-XX:(?:(?:Max|Initial|Min|SoftMax)HeapSize|MaxRAMPercentage)=", re.ASCII)


@dataclass(frozen=True, slots=True)
class Jvm:
    """The Java virtual machine as a `ManagedRuntime`."""

    name: str = "jvm"
    flag: str = "-Xmx"
    metrics: tuple[str, ...] = MAXIMUM

    def questions(self, select: Select, by: str, span: str) -> Mapping[HeapFact, str]:
        """Return queries that add up the pools of a JVM, then take the highest of a container's targets.

        A pool without a bound reports -1; a heap of several bounded pools is bounded by their sum. The live size is
        queried only for targets that were scraped for a day, because load varies by the hour.
        """

        def of_target(text: str) -> str:
            return f"sum by ({by}, instance, job) ({text})"

        def highest(text: str) -> str:
            return f"max by ({by}) ({text})"

        heap, other = of_target(select(USED, area="heap")), of_target(select(USED, area="nonheap"))
        committed = of_target(select(COMMITTED, area="heap"))
        is_seen_enough = f"count_over_time(({heap})[{span}:1h]) >= {LEAST_HOURS}"
        rates = of_target(" or ".join(f"rate({select((name,))}[1h])" for name in COLLECTING))
        return {
            HeapFact.MAXIMUM: highest(of_target(f"{select(MAXIMUM, area='heap')} > 0")),
            HeapFact.LIVE: highest(f"max_over_time(min_over_time(({heap})[1h:5m])[{span}:1h]) and {is_seen_enough}"),
            HeapFact.COMMITTED: highest(f"max_over_time(({committed})[{span}:5m])"),
            HeapFact.OTHER: highest(f"max_over_time(({other})[{span}:5m])"),
            HeapFact.COLLECTING: highest(f"quantile_over_time(0.95, ({rates})[{span}:1h])"),
        }

    def size_in(self, text: str) -> int | None:
        """Return the largest heap in bytes that a command line sets, or None if it sets none."""
        sizes = [_bytes(match) for match in _LARGEST.finditer(text)]
        return sizes[-1] if sizes else None

    def with_heap_bytes(self, text: str, amount_bytes: int) -> str | None:
        """Return the command line with this largest heap and no larger initial one; None if its flags are unclear."""
        flags = sum(len(pattern.findall(text)) for pattern in (_LARGEST, _SHARE, _FIRST))
        if flags < len(_ANY.findall(text)) or not (_LARGEST.search(text) or _SHARE.search(text)):
            return None
        size = f"{amount_bytes // MIB}m" if amount_bytes % MIB == 0 else str(amount_bytes)
        largest = _SHARE.sub(f"-Xmx{size}", _LARGEST.sub(f"-Xmx{size}", text))

        def first(match: re.Match[str]) -> str:
            return f"{match['flag']}{size}" if _bytes(match) > amount_bytes else match[0]

        return _FIRST.sub(first, largest)


def _bytes(match: re.Match[str]) -> int:
    return int(match["amount"]) * _UNITS[match["unit"].lower()]
