"""Versions side by side: every mixture comes up on the way there and back, and the bench can miss its goals."""

from __future__ import annotations

from pathlib import Path

from bench.manager.soak_hours import PROCESSES
from bench.manager.version_skew import ORDERS, Skewed, Switch, rows, switches, tracebacks
from tests.support.invariants import Violation


def test_every_mixture_of_versions_comes_up_and_all_are_this_version_at_the_end() -> None:
    older: set[str] = set()
    mixtures = {frozenset(older)}
    for switch in switches(ORDERS):
        assert (switch.process in older) is not switch.older
        older ^= {switch.process}
        mixtures.add(frozenset(older))
    assert not older
    assert len(mixtures) == 2 ** len(PROCESSES)


def test_whatever_goes_wrong_misses_a_goal() -> None:
    good = Skewed([(switch, 1.0) for switch in switches(1)])
    assert all(row.met for row in rows(good, 1))
    bad = Skewed(
        [(Switch("manager", older=True), 61.0)],
        ended=("manager",),
        tracebacks=("webhook",),
        broken=(Violation("written-under-the-lease", 0.0, "a", "b"),),
    )
    assert not any(row.met for row in rows(bad, 1))


def test_a_traceback_in_a_log_is_found(tmp_path: Path) -> None:
    log = tmp_path / "manager.log"
    log.write_text("all is well\nTraceback (most recent call last):\n  File x\nKeyError: 1\n")
    assert list(tracebacks(log)) == ["Traceback (most recent call last):"]
