"""The knobs of a cgroup: each one's name, its file on cgroup v1 and v2, and its range. Pure.

    SPECS[Knob.CPU_QUOTA].v2 -> KnobFile("cpu", "cpu.max")

A new knob needs only a line here; `cotenant.enforcer.decide.knobs` has the few whose text differs from their value.
Sources: kernel documentation of cgroup v1 and v2; OCI runtimes for the names of their vendors' kernels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from typing import Final


class Knob(StrEnum):
    """A setting of a cgroup; its values are integers, or text where noted, and NO_LIMIT if it can be unlimited."""

    CPU_SHARES = "cpu.shares"
    """2..262144 in cgroup v1's unit; written as weight on v2."""
    CPU_QUOTA = "cpu.quota"
    """Microseconds per period of 100 ms; NO_LIMIT = none."""
    CPU_BURST = "cpu.burst"
    """Microseconds per period of 100 ms that may be saved up beyond the quota."""
    CPU_IDLE = "cpu.idle"
    """1 = runs only when no other pod needs the CPU."""
    CPU_BVT = "cpu.bvt_warp_ns"
    """Group identity -1..2; vendor kernels only."""
    CPUSET_CPUS = "cpuset.cpus"
    """Text, a list such as "0-2,5"."""
    CPUSET_MEMS = "cpuset.mems"
    """Text, NUMA nodes."""
    MEMORY_LIMIT = "memory.limit"
    """Bytes; NO_LIMIT = none."""
    MEMORY_MIN = "memory.min"
    MEMORY_LOW = "memory.low"
    MEMORY_HIGH = "memory.high"
    """Bytes; NO_LIMIT = none."""
    MEMORY_OOM_GROUP = "memory.oom.group"
    MEMORY_WMARK_RATIO = "memory.wmark_ratio"
    MEMORY_WMARK_SCALE = "memory.wmark_scale_factor"
    MEMORY_WMARK_MIN_ADJ = "memory.wmark_min_adj"
    MEMORY_PRIORITY = "memory.priority"
    MEMORY_USE_PRIORITY_OOM = "memory.use_priority_oom"
    PAGE_CACHE_LIMIT = "memory.pagecache_limit.bytes"
    PAGE_CACHE_LIMIT_ENABLE = "memory.pagecache_limit.enable"
    PAGE_CACHE_LIMIT_SYNC = "memory.pagecache_limit.sync"
    BLKIO_READ_BPS = "blkio.read_bps"
    BLKIO_WRITE_BPS = "blkio.write_bps"
    BLKIO_READ_IOPS = "blkio.read_iops"
    BLKIO_WRITE_IOPS = "blkio.write_iops"
    """Text: "major:minor amount" per device, joined by ",", in order of the device; 0 = no limit."""
    IO_WEIGHT = "io.weight"
    """1..10000."""


NO_LIMIT = -1
"""The value of a knob without a limit, whatever the file's text for it."""

Value = int | str


class Version(Enum):
    """The cgroup version of the hierarchy that has a controller."""

    V1 = 1
    V2 = 2


@dataclass(frozen=True, slots=True)
class KnobFile:
    """A controller's file for a cgroup setting (knob); `others` are its names in other kernels, tried in this order."""

    controller: str
    name: str
    others: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the file, in the order in which they are tried."""
        return (self.name, *self.others)


@dataclass(frozen=True, slots=True)
class KnobSpec:
    """A cgroup setting (knob): its files on cgroup v1 and v2 and its allowed range; bounds of texts are None."""

    v1: KnobFile | None
    v2: KnobFile | None
    least: int | None = None
    most: int | None = None
    limitless: bool = False
    """True if NO_LIMIT is a valid value."""


_BYTES: Final = 2**63 - 1


def _in_both(controller: str, v1: str, v2: str = "", least: int | None = 0, most: int | None = _BYTES) -> KnobSpec:
    """Return a knob that both versions have; `v2` is its file name there, "" if it is the same."""
    return KnobSpec(KnobFile(controller, v1), KnobFile(controller, v2 or v1), least, most)


def _same_name(knob: Knob, controller: str, least: int, most: int) -> KnobSpec:
    """Return a knob whose file has the knob's name in both versions."""
    return _in_both(controller, knob.value, "", least, most)


def _throttle(v1_name: str) -> KnobSpec:
    return KnobSpec(KnobFile("blkio", f"blkio.throttle.{v1_name}_device"), KnobFile("io", "io.max"))


SPECS: Final[dict[Knob, KnobSpec]] = {
    Knob.CPU_SHARES: _in_both("cpu", "cpu.shares", "cpu.weight"),
    Knob.CPU_QUOTA: replace(_in_both("cpu", "cpu.cfs_quota_us", "cpu.max"), limitless=True),
    Knob.CPU_BURST: _in_both("cpu", "cpu.cfs_burst_us", "cpu.max.burst"),
    Knob.CPU_IDLE: _same_name(Knob.CPU_IDLE, "cpu", 0, 1),
    Knob.CPU_BVT: _same_name(Knob.CPU_BVT, "cpu", -1, 2),
    Knob.CPUSET_CPUS: _in_both("cpuset", "cpuset.cpus", least=None, most=None),
    Knob.CPUSET_MEMS: _in_both("cpuset", "cpuset.mems", least=None, most=None),
    Knob.MEMORY_LIMIT: replace(_in_both("memory", "memory.limit_in_bytes", "memory.max"), limitless=True),
    Knob.MEMORY_MIN: _same_name(Knob.MEMORY_MIN, "memory", 0, _BYTES),
    Knob.MEMORY_LOW: _same_name(Knob.MEMORY_LOW, "memory", 0, _BYTES),
    Knob.MEMORY_HIGH: replace(_in_both("memory", "memory.high"), limitless=True),
    Knob.MEMORY_OOM_GROUP: _same_name(Knob.MEMORY_OOM_GROUP, "memory", 0, 1),
    Knob.MEMORY_WMARK_RATIO: _same_name(Knob.MEMORY_WMARK_RATIO, "memory", 0, 100),
    Knob.MEMORY_WMARK_SCALE: _same_name(Knob.MEMORY_WMARK_SCALE, "memory", 1, 1000),
    Knob.MEMORY_WMARK_MIN_ADJ: _same_name(Knob.MEMORY_WMARK_MIN_ADJ, "memory", -25, 50),
    Knob.MEMORY_PRIORITY: _same_name(Knob.MEMORY_PRIORITY, "memory", 0, 12),
    Knob.MEMORY_USE_PRIORITY_OOM: _same_name(Knob.MEMORY_USE_PRIORITY_OOM, "memory", 0, 1),
    Knob.PAGE_CACHE_LIMIT: _in_both("memory", "memory.pagecache_limit.size"),
    Knob.PAGE_CACHE_LIMIT_ENABLE: _same_name(Knob.PAGE_CACHE_LIMIT_ENABLE, "memory", 0, 1),
    Knob.PAGE_CACHE_LIMIT_SYNC: _same_name(Knob.PAGE_CACHE_LIMIT_SYNC, "memory", 0, 1),
    Knob.BLKIO_READ_BPS: _throttle("read_bps"),
    Knob.BLKIO_WRITE_BPS: _throttle("write_bps"),
    Knob.BLKIO_READ_IOPS: _throttle("read_iops"),
    Knob.BLKIO_WRITE_IOPS: _throttle("write_iops"),
    Knob.IO_WEIGHT: KnobSpec(
        KnobFile("blkio", "blkio.weight", ("blkio.bfq.weight",)),
        KnobFile("io", "io.weight", ("io.bfq.weight",)),
        1,
        10_000,
    ),
}
