"""The agent is gone and nobody starts it again: the watchdog gives back from the journal alone, on the real kernel."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cotenant.enforcer.apply.watchdog import WatchedAgent, restore, watch
from cotenant.enforcer.contract import NO_LIMIT, Knob
from tests.enforcer.own_cgroups import Subtree, wait_for

pytestmark = pytest.mark.server

TIER = "kubepods/besteffort"
AGENT = """
import sys, time
from pathlib import Path
from cotenant.enforcer.apply.apply import Applier
from cotenant.enforcer.observe.cgroupfs import Hierarchy
from cotenant.enforcer.contract import Knob, Level, StrategyPlan, Want
from cotenant.enforcer.apply.journal import OriginalValues
from cotenant.enforcer.observe.layout import Layout
from cotenant.enforcer.observe.observe import Observer
from cotenant.enforcer.contract import NodeReading
h = Hierarchy(base=sys.argv[1]); o = Observer(h, Layout())
a = Applier(h, OriginalValues(Path(sys.argv[2]), "b"), dry_run=False)
plan = StrategyPlan((Want("kubepods/besteffort", Knob.CPU_QUOTA, 5000, Level.QOS, "s", "w"),))
while True:
    a.apply([plan], o.read([], [], NodeReading("n")))
    time.sleep(0.05)
"""


def agent(subtree: Subtree, folder: Path) -> subprocess.Popen[bytes]:
    subtree.make(TIER)
    here = Path(__file__).resolve().parents[2]
    process = subprocess.Popen([sys.executable, "-c", AGENT, subtree.base, folder], cwd=here)
    wait_for(lambda: subtree.read("cpu", TIER, "cpu.cfs_quota_us") == "5000")
    return process


def test_it_waits_as_long_as_the_agent_lives_and_gives_back_when_it_was_killed(
    subtree: Subtree, tmp_path: Path
) -> None:
    process = agent(subtree, tmp_path)
    hierarchy, now = subtree.hierarchy(), [0.0]
    batches: list[Any] = []
    beats = [(tmp_path / "agent.lock").stat().st_mtime_ns]

    def wait(seconds: float) -> bool:
        """Time passes; in the first ten rounds the agent is given time to beat, then it is killed."""
        now[0] += seconds
        if now[0] <= 100:
            wait_for(lambda: (tmp_path / "agent.lock").stat().st_mtime_ns != beats[-1])
            beats.append((tmp_path / "agent.lock").stat().st_mtime_ns)
            assert batches == []
        elif process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
        return now[0] > 300

    watch(WatchedAgent(tmp_path, "b", 40.0), hierarchy, wait, batches.append, lambda: now[0])
    assert [[done.outcome for done in batch] for batch in batches] == [["restored"]]
    assert hierarchy.read_knob(TIER, Knob.CPU_QUOTA) == NO_LIMIT


def test_an_agent_that_stands_still_loses_its_values_and_takes_them_again_when_it_goes_on(
    subtree: Subtree, tmp_path: Path
) -> None:
    process, hierarchy = agent(subtree, tmp_path), subtree.hierarchy()
    try:
        process.send_signal(signal.SIGSTOP)
        assert [done.outcome for done in restore(WatchedAgent(tmp_path, "b", 1.0), hierarchy)] == ["restored"]
        assert hierarchy.read_knob(TIER, Knob.CPU_QUOTA) == NO_LIMIT
        process.send_signal(signal.SIGCONT)
        wait_for(lambda: hierarchy.read_knob(TIER, Knob.CPU_QUOTA) == 5000)
    finally:
        process.kill()
        process.wait()
    assert [done.value for done in restore(WatchedAgent(tmp_path, "b", 1.0), hierarchy)] == [NO_LIMIT]
    assert hierarchy.read_knob(TIER, Knob.CPU_QUOTA) == NO_LIMIT


def test_with_nothing_noted_nothing_is_done(subtree: Subtree, tmp_path: Path) -> None:
    assert restore(WatchedAgent(tmp_path, "b", 1.0), subtree.hierarchy()) == []
