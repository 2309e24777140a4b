"""Recorders that are killed, cut off or misled: what is lost is a gap that is named, and nothing is counted twice.

Real processes beside an API server and kubelets, by a clock that runs twenty or thirty times as fast as the machine's:
a slot takes 10 to 15 s. Every container and node uses half a core all the time, so that any other mean is a wrong one.
"""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

from cotenant.base.usage.usage import FIVE_MINUTES_SECONDS, Signal
from tests.cluster.accounts import account, certified
from tests.cluster.control_plane import ControlPlane
from tests.cluster.faults import FaultProxy
from tests.cluster.waiting import wait_for
from tests.support.fast_recorder import FastRecording
from tests.support.recorder_kills import TOLERANCE, TRUE_MILLICORES, kill_at_random

pytestmark = pytest.mark.slow

SPEED = 30.0


@pytest.fixture
def recording(control_plane: ControlPlane, tmp_path: Path) -> Iterator[FastRecording]:
    with FastRecording(tmp_path, control_plane, SPEED) as running:
        yield running


def lost_slots(recording: FastRecording, until: int, node: str = "") -> list[int]:
    """Begins of the slots without a value between the first that has one and a moment."""
    measured = recording.measured_slots(node)
    return [at for at in range(min(recording.measured_slots()), until, FIVE_MINUTES_SECONDS) if at not in measured]


def assert_true_means(recording: FastRecording) -> None:
    """Each mean is what was used: nothing was counted twice, and no gap as a zero."""
    means = recording.means()
    assert means == pytest.approx([TRUE_MILLICORES] * len(means), rel=TOLERANCE)


@pytest.mark.parametrize("kills", [8, pytest.param(100, marks=pytest.mark.soak)])
def test_each_kill_costs_at_most_one_slot_which_is_named_and_nothing_is_doubled(
    control_plane: ControlPlane, tmp_path: Path, kills: int
) -> None:
    with FastRecording(tmp_path, control_plane, speed=20) as recording:
        report = kill_at_random(recording, kills, seed=1)

    assert len(report.lost) <= report.allowed
    assert report.unnamed == []
    assert report.wrong == []
    # One restart and one kill of the pod's container before each kill of a recorder.
    assert (report.restarts, report.ooms) == (kills, kills)
    assert report.slots >= 2


def test_the_next_holder_of_the_lease_loses_at_most_one_slot_and_the_former_writes_no_more(
    recording: FastRecording,
) -> None:
    first, second = recording.process(), recording.process()
    first.begin()
    recording.wait_stored("a slot", 1)
    second.begin()
    recording.wait(FIVE_MINUTES_SECONDS)
    first.stop_between_writes(recording.folder / "store")  # it sleeps past its Lease and wakes when another one records
    stopped = recording.slot_now()
    recording.wait_stored("a slot of the second one", stopped + 2 * FIVE_MINUTES_SECONDS)
    first.send(signal.SIGCONT)
    end = recording.slot_now() + 2 * FIVE_MINUTES_SECONDS
    recording.wait_stored("the slots after it", end)
    first.end()
    second.end()

    assert len(lost_slots(recording, end)) <= 1
    assert_true_means(recording)
    assert any("no recorder ran" in str(gap) for gap in recording.gaps)


def test_while_the_disk_is_full_slots_wait_and_none_is_lost(recording: FastRecording) -> None:
    process = recording.process()
    process.begin()
    recording.wait_stored("a slot", 1)
    # No file of the process can grow by a byte, as on a full disk; what is there can still be read.
    _, most = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, most))
    full_since = recording.slot_now()
    wait_for("it to say so", lambda: "usage is not stored yet" in process.text)
    recording.wait(2 * FIVE_MINUTES_SECONDS)
    assert recording.status is not None
    assert recording.status.until_seconds <= full_since + FIVE_MINUTES_SECONDS
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most, most))
    end = recording.slot_now() + FIVE_MINUTES_SECONDS
    recording.wait_stored("all slots", end)
    process.end()

    assert lost_slots(recording, end) == []
    assert_true_means(recording)


def test_while_the_api_server_is_away_kubelets_are_read_and_no_slot_is_lost(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    with FaultProxy(control_plane, tmp_path, certified(control_plane, "cotenant-recorder")) as proxy:
        document = yaml.safe_load(proxy.kubeconfig.read_text())
        token = yaml.safe_load(account(control_plane, "cotenant-recorder").read_text())["users"][0]["user"]
        proxy.kubeconfig.write_text(yaml.safe_dump({**document, "users": [{**document["users"][0], "user": token}]}))
        with FastRecording(tmp_path, control_plane, SPEED, proxy.kubeconfig) as recording:
            process = recording.process()
            process.begin()
            recording.wait_stored("a slot", 1)
            proxy.refuse()
            away_since = recording.slot_now()
            recording.wait(3 * FIVE_MINUTES_SECONDS)
            assert recording.status is not None
            assert recording.status.until_seconds <= away_since + FIVE_MINUTES_SECONDS  # without the Lease
            proxy.accept()
            end = recording.slot_now() + FIVE_MINUTES_SECONDS
            recording.wait_stored("all slots", end)
            process.end()

            assert lost_slots(recording, end) == []
            assert_true_means(recording)


def test_while_kubelets_are_away_there_is_a_gap_without_any_value(recording: FastRecording) -> None:
    process = recording.process()
    process.begin()
    recording.wait_stored("a slot", 1)
    recording.kubelets.kill()
    away_since = recording.node_clock.now_seconds()
    recording.wait(3 * FIVE_MINUTES_SECONDS)
    back_since = recording.node_clock.now_seconds()
    recording.kubelets.start()
    recording.wait_stored("a slot after it", back_since + FIVE_MINUTES_SECONDS)
    process.end()

    # No slot that lies in the outage has any value, of CPU or memory, of containers or nodes.
    for signal_of_gap in (
        Signal.CPU_USAGE_MEAN,
        Signal.CPU_USAGE_MAX,
        Signal.MEMORY_WORKING_SET_MAX,
        Signal.NODE_CPU_USAGE_MEAN,
        Signal.NODE_MEMORY_WORKING_SET_MAX,
    ):
        usage = recording.usage(signal_of_gap)
        times = usage.grid.times()
        inside = (times >= away_since + 60) & (times + FIVE_MINUTES_SECONDS <= back_since)
        assert inside.sum() >= 1
        assert np.isnan(usage.values[:, inside]).all(), signal_of_gap
    assert_true_means(recording)
    assert any("no kubelet answered" in str(gap) for gap in recording.gaps)


@pytest.mark.parametrize("jump_seconds", [7200.0, -7200.0], ids=["ahead", "back"])
@pytest.mark.parametrize("of_nodes", [False, True], ids=["recorder alone", "nodes too"])
def test_a_clock_that_jumps_and_is_mended_costs_a_gap_and_nothing_is_doubled(
    recording: FastRecording, jump_seconds: float, of_nodes: bool
) -> None:
    clocks = [recording.clock, *([recording.node_clock] if of_nodes else [])]
    process = recording.process()
    process.begin()
    recording.wait_stored("a slot", 1)
    jumped = recording.slot_now()
    for clock in clocks:
        clock.set_ahead(jump_seconds)
    recording.wait(2 * FIVE_MINUTES_SECONDS)
    for clock in clocks:
        clock.set_ahead(-jump_seconds)
    mended = recording.slot_now()
    wait_for(
        "a slot after it",
        lambda: mended + FIVE_MINUTES_SECONDS in recording.measured_slots(),
    )
    process.end()

    # From the second slot after the clock was mended on, each is there; the one in which it was mended may be lost.
    assert mended + FIVE_MINUTES_SECONDS in recording.measured_slots()
    assert not any(jumped + FIVE_MINUTES_SECONDS < at < mended for at in recording.measured_slots() if not of_nodes)
    assert_true_means(recording)
    assert recording.gaps
