"""What the real kernel (cgroup v1) answers to our writes: each refusal is an errno, nothing is raised, nothing made."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cotenant.base.errors import NodeUnreadable
from cotenant.enforcer.contract import NO_LIMIT, Knob, Value
from cotenant.enforcer.observe.cgroupfs import Hierarchy, Unavailable
from tests.enforcer.own_cgroups import ROOT, Subtree, wait_for

CORES = os.cpu_count() or 1
ALL = f"0-{CORES - 1}" if CORES > 1 else "0"


@pytest.mark.parametrize(
    ("knob", "value", "expected", "reads"),
    [
        (Knob.CPU_QUOTA, 999, 0, 1000),  # our own clamp: the kernel refuses less than 1 ms
        (Knob.CPU_QUOTA, 0, 0, 1000),
        (Knob.CPU_QUOTA, 50_000, 0, 50_000),
        (Knob.CPU_QUOTA, NO_LIMIT, 0, NO_LIMIT),
        (Knob.CPU_BURST, 1000, 0, 1000),  # without a quota any burst is taken
        (Knob.CPU_SHARES, 0, 0, 2),
        (Knob.CPU_SHARES, 1, 0, 2),
        (Knob.CPU_SHARES, 999_999, 0, 262_144),
        (Knob.CPU_IDLE, 2, errno.EINVAL, 0),
        (Knob.CPU_BVT, -1, errno.ENOENT, Unavailable.ABSENT),
        (Knob.MEMORY_HIGH, 1 << 30, errno.ENOENT, Unavailable.ABSENT),
        (Knob.MEMORY_LIMIT, (64 << 20) + 5, 0, 64 << 20),
        (Knob.MEMORY_LIMIT, NO_LIMIT, 0, NO_LIMIT),
        (Knob.CPUSET_CPUS, "0-", errno.EINVAL, ALL),
        (Knob.CPUSET_CPUS, "0-65000", errno.ERANGE, ALL),
        (Knob.CPUSET_CPUS, "x" * 5000, errno.E2BIG, ALL),
        (Knob.CPUSET_MEMS, "1", errno.EINVAL, "0"),
        (Knob.CPUSET_CPUS, "0", 0, "0"),
        (Knob.BLKIO_READ_BPS, "999:0 1024", errno.ENODEV, ""),
    ],
)
def test_a_write_is_taken_or_refused_as_the_kernel_says(
    subtree: Subtree, knob: Knob, value: Value, expected: int, reads: Value | Unavailable
) -> None:
    subtree.make("a")
    hierarchy = subtree.hierarchy()
    assert hierarchy.write_knob("a", knob, value) == expected
    assert hierarchy.read_knob("a", knob) == reads


def test_a_quota_cannot_fall_below_the_burst_nor_the_burst_rise_above_the_quota(subtree: Subtree) -> None:
    subtree.make("a")
    hierarchy = subtree.hierarchy()
    assert hierarchy.write_knob("a", Knob.CPU_QUOTA, 50_000) == 0
    assert hierarchy.write_knob("a", Knob.CPU_BURST, 50_001) == errno.EINVAL
    assert hierarchy.write_knob("a", Knob.CPU_BURST, 50_000) == 0
    assert hierarchy.write_knob("a", Knob.CPU_QUOTA, 20_000) == errno.EINVAL


def test_a_memory_limit_takes_that_of_memory_and_swap_along(subtree: Subtree) -> None:
    """A runtime sets both to the same; the kernel takes no limit above the other (EINVAL)."""
    subtree.make("a")
    hierarchy = subtree.hierarchy()
    assert hierarchy.write_knob("a", Knob.MEMORY_LIMIT, 64 << 20) == 0
    subtree.write("memory", "a", "memory.memsw.limit_in_bytes", str(64 << 20))
    for value in (96 << 20, NO_LIMIT):
        assert hierarchy.write_knob("a", Knob.MEMORY_LIMIT, value) == 0
        assert hierarchy.read_knob("a", Knob.MEMORY_LIMIT) == value


def test_quotas_are_nested(subtree: Subtree) -> None:
    subtree.make("a/b")
    hierarchy = subtree.hierarchy()
    assert hierarchy.write_knob("a", Knob.CPU_QUOTA, 50_000) == 0
    assert hierarchy.write_knob("a/b", Knob.CPU_QUOTA, 60_000) == errno.EINVAL
    assert hierarchy.write_knob("a/b", Knob.CPU_QUOTA, 50_000) == 0
    assert hierarchy.write_knob("a", Knob.CPU_QUOTA, 40_000) == errno.EINVAL


def test_the_period_of_a_cgroup_is_heeded(subtree: Subtree) -> None:
    subtree.make("a")
    subtree.write("cpu", "a", "cpu.cfs_period_us", "20000")
    hierarchy = subtree.hierarchy()
    assert hierarchy.write_knob("a", Knob.CPU_QUOTA, 50_000) == 0
    # 50 ms of 100 ms are 10 ms of 20 ms
    assert subtree.read("cpu", "a", "cpu.cfs_quota_us") == "10000"
    assert hierarchy.read_knob("a", Knob.CPU_QUOTA) == 50_000


def test_shares_are_hidden_and_refused_while_a_cgroup_is_idle(subtree: Subtree) -> None:
    subtree.make("a")
    hierarchy = subtree.hierarchy()
    hierarchy.write_knob("a", Knob.CPU_SHARES, 512)
    assert hierarchy.write_knob("a", Knob.CPU_IDLE, 1) == 0
    assert hierarchy.write_knob("a", Knob.CPU_SHARES, 512) == errno.EINVAL
    assert hierarchy.write_knob("a", Knob.CPU_IDLE, 0) == 0
    assert hierarchy.read_knob("a", Knob.CPU_SHARES) == 1024  # the kernel has forgotten 512


@pytest.mark.server
@pytest.mark.skipif(CORES < 2, reason="needs two CPUs")
def test_cpu_lists_are_nested_and_never_empty_with_tasks(subtree: Subtree) -> None:
    subtree.make("a/b")
    hierarchy = subtree.hierarchy()
    subtree.run("a/b")
    assert hierarchy.write_knob("a", Knob.CPUSET_CPUS, "0") == errno.EBUSY
    assert hierarchy.write_knob("a/b", Knob.CPUSET_CPUS, "") == errno.ENOSPC
    assert hierarchy.write_knob("a/b", Knob.CPUSET_CPUS, "0") == 0
    assert hierarchy.write_knob("a", Knob.CPUSET_CPUS, "0") == 0
    assert hierarchy.write_knob("a/b", Knob.CPUSET_CPUS, "0-1") == errno.EACCES


@pytest.mark.server
def test_a_memory_limit_below_what_cannot_be_dropped_is_refused_and_nobody_is_killed(subtree: Subtree) -> None:
    subtree.make("a")
    hierarchy = subtree.hierarchy()
    hold = "import time; x = bytearray(64 << 20); print(1, flush=True); time.sleep(600)"
    process = subtree.run("a", [sys.executable, "-c", hold])
    wait_for(lambda: int(subtree.read("memory", "a", "memory.usage_in_bytes")) > 64 << 20)
    assert hierarchy.write_knob("a", Knob.MEMORY_LIMIT, 16 << 20) == errno.EBUSY
    assert hierarchy.read_knob("a", Knob.MEMORY_LIMIT) == NO_LIMIT
    assert process.poll() is None


@pytest.mark.parametrize("hold", [True, False])
def test_a_removed_cgroup_is_gone_also_when_its_name_is_used_again(subtree: Subtree, hold: bool) -> None:
    subtree.make("a")
    hierarchy = subtree.hierarchy()
    hierarchy.write_knob("a", Knob.CPU_SHARES, 512)
    assert hierarchy.read("a", "cpu", "cpu.shares", hold=hold) == b"512\n"
    subtree.remove("a")
    assert hierarchy.read("a", "cpu", "cpu.shares", hold=hold) is Unavailable.GONE
    assert hierarchy.write_knob("a", Knob.CPU_SHARES, 2) is Unavailable.GONE
    subtree.make("a")
    # a cgroup of its own: what is read is its default, never the old one's value
    assert hierarchy.read("a", "cpu", "cpu.shares", hold=hold) == b"1024\n"
    assert hierarchy.write_knob("a", Knob.CPU_SHARES, 2) == 0


def test_nothing_is_ever_created(subtree: Subtree) -> None:
    subtree.make("a")
    hierarchy = subtree.hierarchy()
    before = sorted(subtree.folder("cpu", "a").iterdir())
    assert hierarchy.write_knob("b", Knob.CPU_SHARES, 2) is Unavailable.GONE
    assert hierarchy.write_knob("a", Knob.CPU_BVT, -1) == errno.ENOENT
    assert sorted(subtree.folder("cpu", "a").iterdir()) == before
    assert hierarchy.children("", "cpu") == ["a"]


def test_the_knobs_of_this_kernel_are_found_in_a_cgroup(subtree: Subtree) -> None:
    subtree.make("a")
    knobs = subtree.hierarchy().probe("a")
    assert {Knob.CPU_SHARES, Knob.CPU_QUOTA, Knob.CPUSET_CPUS, Knob.MEMORY_LIMIT} <= knobs
    assert not {Knob.CPU_BVT, Knob.MEMORY_HIGH, Knob.MEMORY_WMARK_RATIO} & knobs


AS_NOBODY = """
import os, sys
from cotenant.enforcer.observe.cgroupfs import Hierarchy
from cotenant.enforcer.contract import Knob
os.setgid(65534); os.setuid(65534)
with Hierarchy(base=sys.argv[1]) as h:
    print(h.write_knob("a", Knob.CPU_SHARES, 2), h.read_knob("a", Knob.CPU_SHARES))
"""
WITHOUT_FILES = """
import os, resource, sys
from cotenant.base.errors import NodeUnreadable
from cotenant.enforcer.observe.cgroupfs import Hierarchy
from cotenant.enforcer.contract import Knob
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
with Hierarchy(base=sys.argv[1], open_limit=100) as h:
    told = ""
    try:
        for name in sorted(h.children("", "cpu")):
            for file in ("cpu.stat", "cpu.shares", "cpu.cfs_quota_us"):
                h.read(name, "cpu", file, hold=True)
    except NodeUnreadable as bad:
        told = bad.message
    print(bool(told), h.open_files, h.read_knob("a", Knob.CPU_SHARES), "closed" in told)
"""
READ_ONLY = """
import sys
from cotenant.enforcer.observe.cgroupfs import Hierarchy
from cotenant.enforcer.contract import Knob
with Hierarchy(base=sys.argv[1]) as h:
    print(h.write_knob("a", Knob.CPU_SHARES, 2), h.read_knob("a", Knob.CPU_SHARES))
"""


def in_a_process(code: str, base: str, *before: str) -> list[str]:
    here = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [*before, sys.executable, "-c", code, base], cwd=here, capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout.split()


@pytest.mark.server
def test_without_the_right_to_write_it_only_reads(subtree: Subtree) -> None:
    subtree.make("a")
    assert in_a_process(AS_NOBODY, subtree.base) == [str(errno.EACCES), "1024"]


@pytest.mark.server
def test_a_read_only_mount_is_told_as_such(subtree: Subtree) -> None:
    subtree.make("a")
    remount = f'mount --bind {ROOT}/cpu {ROOT}/cpu && mount -o remount,ro,bind {ROOT}/cpu && exec "$@"'
    texts = in_a_process(READ_ONLY, subtree.base, "unshare", "-m", "sh", "-c", remount, "sh")
    assert texts == [str(errno.EROFS), "1024"]


@pytest.mark.server
def test_when_files_run_out_all_are_closed_and_the_next_tick_works(subtree: Subtree) -> None:
    for name in "abcdefgh":
        subtree.make(name)
    assert in_a_process(WITHOUT_FILES, subtree.base) == ["True", "0", "1024", "True"]


RAISED = """
import resource
from cotenant.enforcer.observe.cgroupfs import raise_file_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 256))
print(raise_file_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.server
def test_as_many_files_may_be_held_as_the_process_may_have() -> None:
    assert in_a_process(RAISED, "") == ["256", "256", "256"]


def test_a_path_of_many_letters_is_refused_before_anything_is_opened(subtree: Subtree) -> None:
    hierarchy: Hierarchy = subtree.hierarchy()
    with pytest.raises(Exception, match="is invalid") as refused:
        hierarchy.read_knob("../cpu", Knob.CPU_SHARES)
    assert not isinstance(refused.value, NodeUnreadable)
