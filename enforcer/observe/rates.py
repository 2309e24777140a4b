"""Turns the kernel's counters into usage per second. Pure; a value that is missing or unreadable is None.

Counters only grow: one that is smaller than before was reset (a cgroup of the same name was created), and the sample is
dropped instead of shown as a spike. Time is the monotonic time that passed between the two readings. Sources: kernel
documentation of cgroup v1 (cpuacct, cpu, memory), cgroup v2, proc(5), PSI.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cotenant.enforcer.contract import CpuUse, MemoryUse

NANOSECONDS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class CpuCounters:
    """The cumulative CPU counters of a cgroup or of the machine, read at the monotonic time `at`, in seconds."""

    at: float
    used_nanoseconds: int
    periods: int = 0
    throttled_periods: int = 0
    throttled_nanoseconds: int = 0


def cpu_use(before: CpuCounters | None, now: CpuCounters) -> CpuUse:
    """Return the CPU usage between two readings; unknown after a first reading, a reset, or when no time has passed."""
    if before is None or now.at <= before.at:
        return CpuUse()
    used = now.used_nanoseconds - before.used_nanoseconds
    periods = now.periods - before.periods
    throttled = now.throttled_periods - before.throttled_periods
    waited = now.throttled_nanoseconds - before.throttled_nanoseconds
    if min(used, periods, throttled, waited) < 0:
        return CpuUse()
    return CpuUse(used / (now.at - before.at) / 1e6, periods, throttled, waited / NANOSECONDS)


# --- text of files ----------------------------------------------------------------------------------------------
def number(text: bytes) -> int | None:
    """Return the first word of a text as an integer; None if it is not one."""
    word = text.rstrip()
    if not word.isdigit():  # more than a number, or none at all
        fields = word.split(None, 1)
        word = fields[0] if fields else b""
    return int(word) if word.isdigit() else None


def value_of(text: bytes, name: bytes) -> int | None:
    """Return the value of one name in a file of "name number" lines, without parsing the rest."""
    at = 0 if text.startswith(name + b" ") else text.find(b"\n" + name + b" ") + 1
    if at == 0 and not text.startswith(name + b" "):
        return None
    start = at + len(name) + 1
    end = text.find(b"\n", start)
    digits = text[start : end if end >= 0 else len(text)].strip()
    return int(digits) if digits.isdigit() else None


def cpu_counters_v1(at: float, usage: bytes, stat: bytes) -> CpuCounters | None:
    """Parse cpuacct.usage and cpu.stat of cgroup v1; None if the usage is unreadable."""
    used = number(usage)
    if used is None:
        return None
    return CpuCounters(at, used, *_throttle_counters(stat, b"throttled_time"))


def cpu_counters_v2(at: float, stat: bytes) -> CpuCounters | None:
    """Parse cpu.stat of cgroup v2; None if the text has no usage."""
    used = value_of(stat, b"usage_usec")
    if used is None:
        return None
    periods, throttled, microseconds = _throttle_counters(stat, b"throttled_usec")
    return CpuCounters(at, used * 1000, periods, throttled, microseconds * 1000)


def _throttle_counters(stat: bytes, waited: bytes) -> tuple[int, int, int]:
    """Return periods, throttled periods, and throttled time in the file's own unit; 0 for what the file lacks."""
    fields = stat.split()
    at = fields.index(b"nr_periods") if b"nr_periods" in fields else len(fields)
    values = fields[at + 1 : at + 6 : 2]
    if fields[at : at + 6 : 2] == [b"nr_periods", b"nr_throttled", waited] and b"".join(values).isdigit():
        periods, throttled, time_waited = map(int, values)
        return periods, throttled, time_waited
    return value_of(stat, b"nr_periods") or 0, value_of(stat, b"nr_throttled") or 0, value_of(stat, waited) or 0


def memory_use(usage: bytes, stat: bytes, v1: bool, oom_kills: int = 0, high_events: int = 0) -> MemoryUse | None:
    """Parse usage and memory.stat; on v1 the totals are used, which include child cgroups, as usage does."""
    used = number(usage)
    if used is None:
        return None
    inactive = value_of(stat, b"total_inactive_file" if v1 else b"inactive_file") or 0
    anon = value_of(stat, b"total_rss" if v1 else b"anon") or 0
    return MemoryUse(used, max(used - inactive, 0), anon, oom_kills, high_events)


def pressure_percent(text: bytes) -> float | None:
    """Return from a PSI file in how many percent of the last 10 s some tasks waited; None if it cannot be parsed."""
    some = next((line.split() for line in text.splitlines() if line.startswith(b"some ")), [])
    averages = dict(pair.split(b"=", 1) for pair in some[1:] if b"=" in pair)
    try:
        return float(averages.get(b"avg10", b""))
    except ValueError:
        return None


def machine_counters(at: float, stat: bytes, ticks_per_second: int) -> CpuCounters | None:
    """Parse CPU time in /proc/stat: user (guests included), nice, system, irq and softirq, but not stolen time."""
    fields = stat.split(b"\n", 1)[0].split()
    if len(fields) < 8 or fields[0] != b"cpu" or not all(word.isdigit() for word in fields[1:]):
        return None
    user, nice, system, _, _, interrupt, soft = map(int, fields[1:8])
    return CpuCounters(at, (user + nice + system + interrupt + soft) * NANOSECONDS // ticks_per_second)


def meminfo_bytes(text: bytes, name: bytes) -> int | None:
    """Return the value of one line of /proc/meminfo in bytes (the file has KiB); None if it is missing."""
    for line in text.splitlines():
        if line.startswith(name + b":"):
            kib = number(line[len(name) + 1 :])
            return None if kib is None else kib * 1024
    return None


# --- time spent waiting for a CPU -------------------------------------------------------------------------------
Waits = dict[int, int]
"""By thread id, nanoseconds for which the thread was runnable and did not run (/proc/<pid>/task/<tid>/schedstat)."""


def waiting_rate(before: Waits, now: Waits, seconds: float) -> float | None:
    """Return the seconds per second for which the tasks in both readings waited; None without such tasks or time."""
    both = before.keys() & now.keys()
    if not both or seconds <= 0:
        return None
    return sum(max(now[task] - before[task], 0) for task in both) / NANOSECONDS / seconds
