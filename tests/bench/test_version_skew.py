"""Versions side by side: every step of every order of an upgrade is made, and the bench can miss its goals."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import combinations, permutations, product
from pathlib import Path

from bench.manager.version_skew import COMPONENTS, Skewed, Switch, only_from, rows, switches, tracebacks
from tests.support.invariants import Violation

ROOT = Path(__file__).resolve().parents[2]


def mixtures() -> list[frozenset[str]]:
    """Which processes are older before each switch, and at the end."""
    all_texts = [frozenset[str]()]
    for switch in switches():
        assert (switch.process in all_texts[-1]) is not switch.older
        all_texts.append(all_texts[-1] ^ {switch.process})
    return all_texts


def test_every_step_of_every_order_there_and_back_is_made_once_and_all_are_this_version_at_the_end() -> None:
    all_texts = mixtures()
    steps = [(mixture, switch.process) for mixture, switch in zip(all_texts, switches(), strict=False)]
    assert len(steps) == len(set(steps)) == len(COMPONENTS) * 2 ** len(COMPONENTS)
    assert not all_texts[-1]
    for order in permutations(COMPONENTS):
        older = frozenset[str]()
        for process in order * 2:
            assert (older, process) in steps
            older ^= {process}


def test_each_pair_of_processes_is_seen_in_every_mixture() -> None:
    pairs = {(a, a in older, b, b in older) for older in mixtures() for a, b in combinations(COMPONENTS, 2)}
    assert len(pairs) == len(list(combinations(COMPONENTS, 2))) * len(list(product((False, True), repeat=2)))


def test_what_an_older_process_starts_is_older_too(tmp_path: Path) -> None:
    package = tmp_path / "cotenant"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "version.py").write_text("print('older')\n")
    command = [sys.executable, "-m", "cotenant.version"]
    started = {**os.environ, **only_from(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=started, capture_output=True, text=True, check=True)
    assert done.stdout == "older\n"


def test_whatever_goes_wrong_misses_a_goal() -> None:
    good = Skewed([(switch, 1.0) for switch in switches()], acts=len(switches()))
    assert all(row.met for row in rows(good, len(switches())))
    bad = Skewed(
        [(Switch("manager", older=True), 61.0)],
        stuck="the dashboard does not serve yet",
        ended=("manager",),
        tracebacks=("webhook",),
        broken=(Violation("written-under-the-lease", 0.0, "a", "b"),),
        left=("besteffort cpu.cfs_quota_us: 100",),
        lifted=("finds the notes of a killed one",),
    )
    assert not any(row.met for row in rows(bad, len(switches())))


def test_a_traceback_in_a_log_is_found(tmp_path: Path) -> None:
    log = tmp_path / "manager.log"
    log.write_text("all is well\nTraceback (most recent call last):\n  File x\nKeyError: 1\n")
    assert list(tracebacks(log)) == ["Traceback (most recent call last):"]
