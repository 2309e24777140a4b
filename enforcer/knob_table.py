"""What can be set on a cgroup: each knob's name, its file on cgroup v1 and v2, and its range. Pure.

    SPECS[Knob.CPU_QUOTA].file(Version.V2) -> KnobFile("cpu", "cpu.max")

A knob is added here alone; `cotenant.enforcer.decide.knobs` has the few whose text differs from their value.
Sources: kernel documentation of cgroup v1 and v2; OCI runtimes for the names of their vendors' kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final


class Knob(StrEnum):
    """A setting of a cgroup; values are int, or text where noted; NO_LIMIT where "none" exists."""

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
"""The value of a knob that limits nothing, whatever the file calls it."""

Value = int | str


class Version(Enum):
    """The version of the hierarchy that has a controller."""

    V1 = 1
    V2 = 2


class Ordering(Enum):
    """The order that a write must follow; `cotenant.enforcer.decide.write_order` implements it."""

    FREE = "free"
    NESTED_QUOTA = "nested-quota"
    """v1: no child above its parent."""
    NESTED_SET = "nested-set"
    """v1: a child's CPUs are among its parent's."""


@dataclass(frozen=True, slots=True)
class KnobFile:
    """A file of a controller; others: names of the same thing in other kernels, tried in this order."""

    controller: str
    name: str
    others: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Return the file's names, in the order in which they are tried."""
        return (self.name, *self.others)


@dataclass(frozen=True, slots=True)
class KnobSpec:
    """One row: files, what is allowed (least, most; text knobs: None), how it is ordered."""

    v1: KnobFile | None
    v2: KnobFile | None
    least: int | None = None
    most: int | None = None
    limitless: bool = False
    """Whether NO_LIMIT is a value."""
    ordering: Ordering = Ordering.FREE
    default: Value | None = None
    """Of a new cgroup; None = depends on its parent."""

    def file(self, version: Version) -> KnobFile | None:
        """Its file, None where this version has none."""
        return self.v1 if version is Version.V1 else self.v2


def _same_name(knob: Knob, controller: str, least: int, most: int | None, default: Value | None = 0) -> KnobSpec:
    """A knob whose file is called as the knob in both versions."""
    file = KnobFile(controller, knob.value)
    return KnobSpec(file, file, least, most, default=default)


def _throttle(v1_name: str) -> KnobSpec:
    return KnobSpec(KnobFile("blkio", f"blkio.throttle.{v1_name}_device"), KnobFile("io", "io.max"), default="")


_BYTES: Final = 2**63 - 1
SPECS: Final[dict[Knob, KnobSpec]] = {
    Knob.CPU_SHARES: KnobSpec(KnobFile("cpu", "cpu.shares"), KnobFile("cpu", "cpu.weight"), 0, _BYTES, default=1024),
    Knob.CPU_QUOTA: KnobSpec(
        KnobFile("cpu", "cpu.cfs_quota_us"), KnobFile("cpu", "cpu.max"), 0, _BYTES, limitless=True,
        ordering=Ordering.NESTED_QUOTA, default=NO_LIMIT,
    ),
    Knob.CPU_BURST: KnobSpec(
        KnobFile("cpu", "cpu.cfs_burst_us"), KnobFile("cpu", "cpu.max.burst"), 0, _BYTES, default=0
    ),
    Knob.CPU_IDLE: _same_name(Knob.CPU_IDLE, "cpu", 0, 1),
    Knob.CPU_BVT: _same_name(Knob.CPU_BVT, "cpu", -1, 2),
    Knob.CPUSET_CPUS: KnobSpec(
        KnobFile("cpuset", "cpuset.cpus"), KnobFile("cpuset", "cpuset.cpus"), ordering=Ordering.NESTED_SET
    ),
    Knob.CPUSET_MEMS: KnobSpec(
        KnobFile("cpuset", "cpuset.mems"), KnobFile("cpuset", "cpuset.mems"), ordering=Ordering.NESTED_SET
    ),
    Knob.MEMORY_LIMIT: KnobSpec(
        KnobFile("memory", "memory.limit_in_bytes"), KnobFile("memory", "memory.max"), 0, _BYTES, limitless=True,
        default=NO_LIMIT,
    ),
    Knob.MEMORY_MIN: _same_name(Knob.MEMORY_MIN, "memory", 0, _BYTES),
    Knob.MEMORY_LOW: _same_name(Knob.MEMORY_LOW, "memory", 0, _BYTES),
    Knob.MEMORY_HIGH: KnobSpec(
        KnobFile("memory", "memory.high"), KnobFile("memory", "memory.high"), 0, _BYTES, limitless=True,
        default=NO_LIMIT,
    ),
    Knob.MEMORY_OOM_GROUP: _same_name(Knob.MEMORY_OOM_GROUP, "memory", 0, 1),
    Knob.MEMORY_WMARK_RATIO: _same_name(Knob.MEMORY_WMARK_RATIO, "memory", 0, 100),
    Knob.MEMORY_WMARK_SCALE: _same_name(Knob.MEMORY_WMARK_SCALE, "memory", 1, 1000, None),
    Knob.MEMORY_WMARK_MIN_ADJ: _same_name(Knob.MEMORY_WMARK_MIN_ADJ, "memory", -25, 50),
    Knob.MEMORY_PRIORITY: _same_name(Knob.MEMORY_PRIORITY, "memory", 0, 12),
    Knob.MEMORY_USE_PRIORITY_OOM: _same_name(Knob.MEMORY_USE_PRIORITY_OOM, "memory", 0, 1),
    Knob.PAGE_CACHE_LIMIT: KnobSpec(
        KnobFile("memory", "memory.pagecache_limit.size"), KnobFile("memory", "memory.pagecache_limit.size"), 0, _BYTES,
        default=0,
    ),
    Knob.PAGE_CACHE_LIMIT_ENABLE: _same_name(Knob.PAGE_CACHE_LIMIT_ENABLE, "memory", 0, 1),
    Knob.PAGE_CACHE_LIMIT_SYNC: _same_name(Knob.PAGE_CACHE_LIMIT_SYNC, "memory", 0, 1),
    Knob.BLKIO_READ_BPS: _throttle("read_bps"),
    Knob.BLKIO_WRITE_BPS: _throttle("write_bps"),
    Knob.BLKIO_READ_IOPS: _throttle("read_iops"),
    Knob.BLKIO_WRITE_IOPS: _throttle("write_iops"),
    Knob.IO_WEIGHT: KnobSpec(
        KnobFile("blkio", "blkio.weight", ("blkio.bfq.weight",)), KnobFile("io", "io.weight", ("io.bfq.weight",)),
        1, 10_000, default=100,
    ),
}  # fmt: skip
