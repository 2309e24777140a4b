"""The soak of hours: its list of faults, what counts as growth, and a short one on a live cluster."""

from __future__ import annotations

import os
import threading
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.manager.process_growth import LEAST_SAMPLES, ProcessSample, growth, longest_life, sample
from bench.manager.soak_faults import FAULTS, seeded_faults
from bench.manager.soak_hours import PROCESSES, Soaked, rows, soaked
from tests.cluster import needing
from tests.support.invariants import Violation

MINUTES = float(os.environ.get("SOAK_MINUTES", "12"))
"""Of wall time, the time of faults not counted."""


@pytest.mark.slow
@given(st.integers(0, 200), st.integers(0, 1000))
def test_every_fault_comes_as_often_as_the_others_and_no_process_begins_anew_after_a_third(
    count: int, seed: int
) -> None:
    faults = seeded_faults(count, seed)
    assert faults == seeded_faults(count, seed) and len(faults) == count
    assert not any(fault.harsh for fault in faults[count // 3 :])
    late = Counter(fault.name for fault in faults[count // 3 :] + [f for f in FAULTS if not f.harsh])
    assert max(late.values()) - min(late.values()) <= count // 3 + 1
    if count >= 3 * len(FAULTS):
        assert {fault.name for fault in faults} == {fault.name for fault in FAULTS}


@given(st.floats(1.0, 1e9), st.floats(-0.5, 3.0), st.integers(LEAST_SAMPLES, 90))
def test_growth_is_the_last_third_over_the_first_of_a_warm_life(first: float, grown: float, count: int) -> None:
    warm = count - int(count * 0.25)
    third = warm // 3
    values = [first] * (count - third) + [first * (1 + grown)] * third
    assert growth(values) == pytest.approx(grown)
    # What fills while a process warms up is no growth.
    assert growth([0.0] * int(count * 0.25) + [first] * warm) == 0.0


def test_of_too_few_samples_nothing_is_said() -> None:
    assert growth([1.0] * (LEAST_SAMPLES - 1)) is None
    assert growth([0.0] * LEAST_SAMPLES) == 0.0


def test_the_longest_life_of_a_name_counts() -> None:
    lives = [ProcessSample("manager", pid, 0.0, 1, 1, 1) for pid in (7, 8, 8, 8, 9)]
    other = [ProcessSample("webhook", 8, 0.0, 1, 1, 1)] * 9
    assert longest_life([*other, *lives], "manager") == (lives[1],) * 3
    assert longest_life(other, "manager") == ()


def test_a_process_is_read_while_it_lives() -> None:
    end, threads = threading.Event(), 3
    before = sample("self", os.getpid(), 1.0)
    started = [threading.Thread(target=end.wait) for _ in range(threads)]
    for thread in started:
        thread.start()
    with Path("/dev/null").open():
        process_sample = sample("self", os.getpid(), 2.0)
    end.set()
    assert before is not None and process_sample is not None
    assert (process_sample.threads - before.threads, process_sample.open_files - before.open_files) == (threads, 1)
    assert process_sample.memory_bytes > 1 << 20
    assert sample("nobody", 1 << 30, 1.0) is None


def test_what_grew_broke_or_stayed_is_a_missed_goal() -> None:
    life = [ProcessSample(name, 1, minute, 100 + minute, 10, 5) for name in PROCESSES for minute in range(40)]
    soak = Soaked({"manager killed": [3.0, 70.0]}, life, [10.0] * 40)
    soak.broken = (Violation("hardware-given-once", 0.0, "n", "w"),)
    soak.ended = ("scheduler", "extender")  # a stock scheduler that lost its Lease ends on purpose
    soak.left = ("configmaps/shop/cotenant",)
    rows_by_metric = {row.metric: row for row in rows(soak, 2.0)}
    assert rows_by_metric["faults struck"].met and rows_by_metric["slowest recovery"].met is False
    ended = rows_by_metric["processes of ours that ended by themselves"]
    assert (ended.value, ended.met, ended.note) == (1, False, "scheduler 1, extender 1")
    assert (
        rows_by_metric["invariants broken"].met is False
        and rows_by_metric["objects left by an uninstallation"].met is False
    )
    # 40 samples, of which 10 warm up; medians of minutes 10 to 19 and 30 to 39: (134.5 - 114.5) / 114.5 = 17.5 %.
    assert rows_by_metric["manager: growth of memory_bytes"].value == pytest.approx(0.1747, abs=1e-4)
    assert (
        rows_by_metric["manager: growth of memory_bytes"].met is False
        and rows_by_metric["webhook: growth of threads"].met
    )


@pytest.mark.soak
@pytest.mark.cluster
def test_a_live_cluster_works_again_after_every_fault_and_breaks_no_invariant(tmp_path: Path) -> None:
    needing.kubernetes()
    rows_by_metric = {row.metric: row for row in rows(soaked(tmp_path, MINUTES), MINUTES)}
    must = ("faults struck", "slowest recovery", "processes of ours that ended by themselves", "invariants broken",
            "objects left by an uninstallation")  # fmt: skip
    assert {name: rows_by_metric[name] for name in must if not rows_by_metric[name].met} == {}
