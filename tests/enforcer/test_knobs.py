"""The table of knobs: text of both cgroup versions, silent changes of the kernel, what no kernel takes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.enforcer.contract import NO_LIMIT, Knob, Value
from cotenant.enforcer.decide.knobs import (
    UNLIMITED_BYTES,
    Dialect,
    as_text,
    from_text,
    kept,
    least_quota,
    newer_weight_of,
    objection,
    round_for_write,
    same,
    shares_of,
    weight_of,
)
from cotenant.enforcer.knob_table import SPECS, Version

V1 = Dialect(dict.fromkeys(("cpu", "cpuacct", "cpuset", "memory", "blkio"), Version.V1))
V2 = Dialect(dict.fromkeys(("cpu", "cpuset", "memory", "io"), Version.V2))
HYBRID = Dialect({"cpu": Version.V1, "memory": Version.V2})
BYTES = st.integers(0, 1 << 45)
DEVICES = st.dictionaries(st.sampled_from(["8:0", "8:16", "254:0"]), st.integers(1, 1 << 40)).map(
    lambda found: ",".join(f"{device} {amount}" for device, amount in sorted(found.items()))
)
VALUES: dict[Knob, st.SearchStrategy[Value]] = {
    Knob.CPU_SHARES: st.integers(0, 300_000),
    Knob.CPU_QUOTA: st.one_of(st.just(NO_LIMIT), st.integers(0, 10_000_000)),
    Knob.CPU_BURST: st.integers(0, 10_000_000),
    Knob.MEMORY_LIMIT: st.one_of(st.just(NO_LIMIT), BYTES),
    Knob.MEMORY_HIGH: st.one_of(st.just(NO_LIMIT), BYTES),
    Knob.MEMORY_LOW: BYTES,
    Knob.CPUSET_CPUS: st.sets(st.integers(0, 200), min_size=1).map(lambda s: ",".join(map(str, s))),
    Knob.BLKIO_READ_BPS: DEVICES,
    Knob.IO_WEIGHT: st.integers(1, 10_000),
}


@pytest.mark.parametrize(
    ("knob", "value", "dialect", "text"),
    [
        (Knob.CPU_SHARES, 512, V1, ("512",)),
        (Knob.CPU_SHARES, 512, V2, ("20",)),  # 1 + 510 * 9999 // 262142
        (Knob.CPU_SHARES, 2, V2, ("1",)),
        (Knob.CPU_SHARES, 999_999, V2, ("10000",)),
        (Knob.CPU_QUOTA, NO_LIMIT, V1, ("-1",)),
        (Knob.CPU_QUOTA, NO_LIMIT, V2, ("max",)),
        (Knob.CPU_QUOTA, 20_000, V2, ("20000",)),  # cpu.max keeps its period
        (Knob.MEMORY_LIMIT, NO_LIMIT, V2, ("max",)),
        (Knob.CPUSET_CPUS, "", V2, ("\n",)),  # an empty write is no write
        (Knob.BLKIO_READ_BPS, "8:0 1024,8:16 0", V1, ("8:0 1024", "8:16 0")),
        (Knob.BLKIO_WRITE_IOPS, "8:0 9", V2, ("8:0 wiops=9",)),
        (Knob.BLKIO_WRITE_IOPS, "", V2, ()),
    ],
)
def test_a_value_is_written_as_its_version_wants(
    knob: Knob, value: Value, dialect: Dialect, text: tuple[str, ...]
) -> None:
    assert as_text(knob, value, dialect) == text


@pytest.mark.parametrize(
    ("knob", "text", "dialect", "value"),
    [
        (Knob.CPU_QUOTA, "max 100000\n", V2, NO_LIMIT),
        (Knob.CPU_QUOTA, "10000 20000", V2, 50_000),
        (Knob.CPU_QUOTA, "-1", V1, NO_LIMIT),
        (Knob.CPU_SHARES, "0", V2, None),  # an idle cgroup's
        (Knob.MEMORY_LIMIT, str(UNLIMITED_BYTES), V1, NO_LIMIT),
        (Knob.CPUSET_CPUS, "0-1,3,2\n", V1, "0-3"),
        (Knob.BLKIO_READ_BPS, "8:0 rbps=1024 wbps=max riops=max wiops=max\n8:16 rbps=max wbps=5", V2, "8:0 1024"),
        (Knob.BLKIO_WRITE_BPS, "8:0 rbps=1024 wbps=max\n8:16 rbps=max wbps=5", V2, "8:16 5"),
        (Knob.IO_WEIGHT, "default 250\n8:0 300", V2, 250),
        (Knob.CPU_IDLE, "", V1, None),
        (Knob.CPU_QUOTA, "?", V2, None),
    ],
)
def test_a_file_is_read_as_its_version_writes_it(knob: Knob, text: str, dialect: Dialect, value: Value | None) -> None:
    assert from_text(knob, text, dialect) == value


@pytest.mark.parametrize("page_bytes", [4096, 16_384, 65_536])
def test_memory_is_read_and_compared_in_the_kernels_own_pages(page_bytes: int) -> None:
    """A kernel of 64 KiB pages reads 2**63 - 64 KiB where there is no limit, and rounds limits down to such pages."""
    kernel = Dialect({"memory": Version.V1}, page_bytes)
    assert from_text(Knob.MEMORY_LIMIT, str(2**63 - page_bytes), kernel) == NO_LIMIT
    assert same(Knob.MEMORY_LIMIT, NO_LIMIT, 2**63 - page_bytes, kernel)
    assert same(Knob.MEMORY_LIMIT, 100 * 65_536 + page_bytes - 1, 100 * 65_536, kernel)
    assert not same(Knob.MEMORY_LIMIT, 100 * 65_536 + page_bytes, 100 * 65_536, kernel)


def test_devices_that_are_no_longer_named_are_set_free() -> None:
    assert as_text(Knob.BLKIO_READ_BPS, "8:0 7", V2, present="8:16 5") == ("8:0 rbps=7", "8:16 rbps=max")
    assert as_text(Knob.BLKIO_READ_BPS, "8:0 7", V1, present="8:16 5") == ("8:0 7", "8:16 0")


@given(
    st.sampled_from(sorted(VALUES)).flatmap(lambda knob: st.tuples(st.just(knob), VALUES[Knob(knob)])), st.booleans()
)
@settings(max_examples=300)
def test_what_was_written_reads_back_as_the_same(case: tuple[Knob, Value], v2: bool) -> None:
    knob, value = case
    dialect = V2 if v2 else V1
    texts = as_text(knob, value, dialect)
    if knob is Knob.BLKIO_READ_BPS:
        file_text = "\n".join(texts)
    else:
        file_text = str(kept(knob, int(texts[0]), V1)) if knob is Knob.CPU_SHARES and not v2 else texts[0]
    back = from_text(knob, file_text, dialect)
    assert back is not None
    assert same(knob, back, value, dialect)
    assert same(knob, kept(knob, value, dialect), value, dialect)


@pytest.mark.parametrize(
    ("shares", "weight"),
    # the ends and the default of both ranges; 2000 as runc 1.4.0-rc.1 shows it (opencontainers/runc#4896)
    [(0, 1), (2, 1), (102, 17), (1024, 100), (2000, 170), (2048, 174), (262_144, 10_000), (999_999, 10_000)],
)
def test_newer_runtimes_make_the_default_weight_of_the_default_shares(shares: int, weight: int) -> None:
    assert newer_weight_of(shares) == weight


@given(st.integers(1, 10_000))
@settings(max_examples=100)
def test_a_weight_survives_the_way_through_shares(weight: int) -> None:
    assert weight_of(shares_of(weight)) == weight


@given(st.sampled_from([Knob.CPU_QUOTA, Knob.CPU_BURST]), st.integers(1, 100), st.integers(1, 10_000_000))
@settings(max_examples=100)
def test_cpu_time_survives_a_period_that_is_not_ours(knob: Knob, period_milliseconds: int, amount: int) -> None:
    rounded, period = round_for_write(knob, amount), period_milliseconds * 1000
    back = from_text(knob, as_text(knob, rounded, V1, period)[0], V1, period)
    # the kernel takes no quota below 1000 us of any period
    least = -(-1000 * 100_000 // period)
    assert back == (max(rounded, least) if knob is Knob.CPU_QUOTA else rounded)
    assert least_quota(period) == least


@pytest.mark.parametrize(("dialect", "quota"), [(V1, "10000"), (V2, "10000")])
def test_what_may_be_saved_up_is_written_in_the_cgroups_own_period(dialect: Dialect, quota: str) -> None:
    """A core in a kubelet's cpuCFSQuotaPeriod of 10 ms is 10000 us, of which the kernel takes no more as burst."""
    for knob in (Knob.CPU_QUOTA, Knob.CPU_BURST):
        assert as_text(knob, 100_000, dialect, 10_000) == (quota,)
        assert from_text(knob, quota, dialect, 10_000) == 100_000


@pytest.mark.parametrize(
    ("first", "other", "alike"),
    [
        ((Knob.CPU_SHARES, 1), 2, True),
        ((Knob.CPU_SHARES, 999_999), 262_144, True),
        ((Knob.CPU_SHARES, 3), 4, False),
        ((Knob.MEMORY_LOW, 1), 0, True),
        ((Knob.MEMORY_LIMIT, NO_LIMIT), UNLIMITED_BYTES, True),
        ((Knob.CPUSET_CPUS, "1,0"), "0-1", True),
        ((Knob.BLKIO_READ_BPS, "8:0 0"), "", True),
        ((Knob.CPU_QUOTA, 500), 1000, True),
        ((Knob.CPU_QUOTA, NO_LIMIT), 1000, False),
    ],
)
def test_what_the_kernel_changes_silently_counts_as_written(
    first: tuple[Knob, Value], other: Value, alike: bool
) -> None:
    assert same(*first, other, V1) is alike


def test_v2_keeps_shares_only_as_fine_as_weights() -> None:
    assert same(Knob.CPU_SHARES, 512, 505, V2)  # both weight 20
    assert not same(Knob.CPU_SHARES, 512, 505, V1)


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        (Knob.CPU_IDLE, 2),
        (Knob.CPU_SHARES, -1),
        (Knob.CPU_BURST, NO_LIMIT),
        (Knob.CPU_QUOTA, "50000"),
        (Knob.CPU_QUOTA, True),
        (Knob.CPUSET_CPUS, ""),
        (Knob.CPUSET_CPUS, "0-"),
        (Knob.CPUSET_CPUS, 3),
        (Knob.CPU_BVT, 3),
        (Knob.BLKIO_READ_BPS, "8:0"),
        (Knob.BLKIO_READ_BPS, "8:0 1\n8:1 2"),
        (Knob.IO_WEIGHT, 0),
        (Knob.MEMORY_HIGH, -2),
    ],
)
def test_what_no_kernel_takes_is_refused_in_words(knob: Knob, value: Value) -> None:
    assert objection(knob, value).startswith(f"{knob}: ")


@given(st.sampled_from(sorted(VALUES)).flatmap(lambda knob: st.tuples(st.just(knob), VALUES[Knob(knob)])))
@settings(max_examples=100)
def test_what_a_kernel_takes_is_not_refused(case: tuple[Knob, Value]) -> None:
    assert objection(*case) == ""


def test_a_hybrid_node_has_each_knob_where_its_controller_is() -> None:
    shares, high = HYBRID.file(Knob.CPU_SHARES), HYBRID.file(Knob.MEMORY_HIGH)
    assert shares is not None and shares.name == "cpu.shares"
    assert high is not None and high.name == "memory.high"
    assert HYBRID.file(Knob.CPUSET_CPUS) is None


def test_every_knob_has_a_row_and_a_default_or_a_parent() -> None:
    assert set(SPECS) == set(Knob)
    assert all(spec.v1 or spec.v2 for spec in SPECS.values())


@given(st.sampled_from(sorted(Knob)), st.text(max_size=60), st.booleans())
@settings(max_examples=300)
def test_no_text_of_a_file_breaks_the_reader(knob: Knob, text: str, v2: bool) -> None:
    parsed = from_text(Knob(knob), text, V2 if v2 else V1)
    assert parsed is None or isinstance(parsed, int | str)
