"""From counters to use: real time, resets, odd text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.enforcer.contract import CpuUse, MemoryUse
from cotenant.enforcer.observe.rates import (
    CpuCounters,
    cpu_counters_v1,
    cpu_counters_v2,
    cpu_use,
    machine_counters,
    meminfo_bytes,
    memory_use,
    number,
    pressure_percent,
    value_of,
    waiting_rate,
)

COUNT = st.integers(0, 1 << 50)
COUNTERS = st.builds(CpuCounters, st.floats(0, 1e6), COUNT, COUNT, COUNT, COUNT)


def test_use_is_over_the_time_that_really_passed() -> None:
    before = CpuCounters(10.0, 1_000_000_000, 10, 2, 5_000_000)
    now = CpuCounters(14.0, 3_000_000_000, 50, 12, 205_000_000)
    # 2 s of CPU in 4 s are half a core; 10 of 40 periods throttled for 0.2 s
    assert cpu_use(before, now) == CpuUse(500.0, 40, 10, 0.2)


@pytest.mark.parametrize(
    "before",
    [
        None,
        CpuCounters(5.0, 0),  # no time has passed
        CpuCounters(6.0, 0),  # nor runs it backwards
        CpuCounters(1.0, 11),  # made anew: counters restart
        CpuCounters(1.0, 0, periods=5),
    ],
)
def test_without_two_readings_of_one_cgroup_there_is_no_use(before: CpuCounters | None) -> None:
    assert cpu_use(before, CpuCounters(5.0, 10)) == CpuUse()


@given(COUNTERS, COUNTERS)
@settings(max_examples=100)
def test_use_is_never_negative(before: CpuCounters, now: CpuCounters) -> None:
    use = cpu_use(before, now)
    assert use.millicores is None or use.millicores >= 0
    assert min(use.periods, use.throttled_periods) >= 0
    assert use.throttled_seconds >= 0


def test_both_versions_files_say_the_same() -> None:
    v1 = cpu_counters_v1(1.0, b"7000\n", b"nr_periods 4\nnr_throttled 3\nthrottled_time 2000\nnr_bursts 0\n")
    v2 = cpu_counters_v2(1.0, b"usage_usec 7\nuser_usec 5\nnr_periods 4\nnr_throttled 3\nthrottled_usec 2\n")
    assert v1 == v2 == CpuCounters(1.0, 7000, 4, 3, 2000)
    assert cpu_counters_v2(1.0, b"user_usec 5") is None
    assert cpu_counters_v1(1.0, b"", b"") is None


def test_memory_is_without_the_cache_that_nobody_used_lately() -> None:
    v1 = b"cache 9\ninactive_file 1\nrss 5\ntotal_rss 60\ntotal_inactive_file 30\n"
    assert memory_use(b"100\n", v1, v1=True) == MemoryUse(100, 70, 60)
    assert memory_use(b"100\n", b"anon 60\nfile 40\ninactive_file 130\n", v1=False, high_events=3) == MemoryUse(
        100, 0, 60, 0, 3
    )
    assert memory_use(b"", b"", v1=False) is None


def test_pressure_is_read_and_its_absence_told() -> None:
    some = b"some avg10=1.50 avg60=1.00 avg300=0.50 total=9\n"
    assert pressure_percent(some + b"full avg10=0.25 avg60=0.00 avg300=0.00 total=1\n") == 1.5
    assert pressure_percent(some) == 1.5
    assert pressure_percent(b"") is None
    assert pressure_percent(b"some avg10=x") is None


def test_the_machine_counts_work_and_not_waiting() -> None:
    # user 100, nice 10, system 20, idle 999, iowait 888, irq 3, softirq 7: 140 ticks of 10 ms
    counters = machine_counters(1.0, b"cpu  100 10 20 999 888 3 7 55 66 0\ncpu0 1 1\n", 100)
    assert counters == CpuCounters(1.0, 1_400_000_000)
    assert machine_counters(1.0, b"intr 1", 100) is None


def test_lines_of_long_files_are_found_by_their_whole_name() -> None:
    text = b"total_anon 1\nanon_thp 2\nanon 3\n"
    assert value_of(text, b"anon") == 3
    assert value_of(text, b"total_anon") == 1
    assert value_of(text, b"thp") is None
    assert meminfo_bytes(b"MemTotal:  16 kB\nMemFree: 1 kB\n", b"MemTotal") == 16 * 1024


def test_waiting_counts_only_threads_seen_both_times() -> None:
    # thread 1 waited 0.5 s more in 2 s; 2 ended, 3 is new
    assert waiting_rate({1: 0, 2: 9}, {1: 500_000_000, 3: 10**12}, 2.0) == 0.25
    assert waiting_rate({}, {1: 5}, 2.0) is None
    assert waiting_rate({1: 0}, {1: 5}, 0.0) is None


@given(st.binary(max_size=80))
@settings(max_examples=200)
def test_no_text_breaks_the_readers(text: bytes) -> None:
    for parsed in (
        number(text),
        pressure_percent(text),
        value_of(text, b"a"),
        cpu_counters_v2(0.0, text),
        meminfo_bytes(text, b"M"),
    ):
        assert parsed is None or isinstance(parsed, int | float | CpuCounters)
    machine = machine_counters(0.0, b"cpu " + text, 100)
    assert machine is None or machine.used_nanoseconds >= 0
