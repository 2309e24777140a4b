"""One leader: two candidates never lead at the same time, and one that slept past its lease writes nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cotenant.base.errors import NotLeader
from cotenant.base.kube import Lease, Writer, fresh_identity
from cotenant.base.kube.leader_election.election import (
    ElectionStep,
    Record,
    Sighting,
    move,
    next_transitions,
    update_sighting,
)
from cotenant.base.kubernetes.intent import Address, Apply
from cotenant.base.process.clock import FixedClock, SystemClock
from cotenant.base.settings.sections import ManagerSettings
from tests.cluster import faults
from tests.cluster.control_plane import ControlPlane
from tests.cluster.faults import FaultProxy
from tests.cluster.namespaces import unique_name
from tests.cluster.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
LEASE, DEADLINE = 15.0, 10.0
QUICK = ManagerSettings(lease_seconds=4.0)
LEASES = "/apis/coordination.k8s.io/v1/namespaces"


# --- the rules, without a server --------------------------------------------------------------------------------------
def held_by(holder: str, version: str = "1", transitions: int = 0) -> Record:
    return Record(holder, LEASE, transitions, version, "uid")


def test_a_lease_that_never_was_is_created_at_once() -> None:
    assert move(update_sighting(None, None, 5.0, LEASE), "me", 5.0) is ElectionStep.CREATE


def test_a_lease_of_another_is_taken_a_whole_duration_after_its_last_change_was_seen() -> None:
    sighting = update_sighting(None, held_by("you"), 100.0, LEASE)
    sighting = update_sighting(sighting, held_by("you"), 114.9, LEASE)
    assert move(sighting, "me", 114.9) is ElectionStep.WAIT
    assert move(sighting, "me", 115.0) is ElectionStep.TAKE
    renewed = update_sighting(sighting, held_by("you", "2"), 114.9, LEASE)
    assert move(renewed, "me", 129.8) is ElectionStep.WAIT


def test_the_longer_of_both_durations_counts() -> None:
    sighting = update_sighting(None, Record("you", 60.0, 0, "1"), 0.0, LEASE)
    assert (move(sighting, "me", 59.9), move(sighting, "me", 60.0)) == (ElectionStep.WAIT, ElectionStep.TAKE)


def test_a_lease_that_was_given_back_is_taken_at_once() -> None:
    assert move(update_sighting(None, held_by(""), 0.0, LEASE), "me", 0.0) is ElectionStep.TAKE


def test_a_lease_that_somebody_deleted_is_not_free_before_its_holder_must_have_stopped() -> None:
    sighting = update_sighting(None, held_by("you", transitions=4), 0.0, LEASE)
    after_deletion = update_sighting(sighting, None, 14.0, LEASE)
    assert (move(after_deletion, "me", 28.9), move(after_deletion, "me", 29.0)) == (
        ElectionStep.WAIT,
        ElectionStep.CREATE,
    )
    # it goes on counting, so that the new holder's records can be told from the old one's
    assert next_transitions(after_deletion, ElectionStep.CREATE) == 5


def test_its_own_holder_makes_a_deleted_lease_again_at_once_but_only_while_it_leads() -> None:
    mine = update_sighting(None, held_by("me"), 0.0, LEASE)
    assert move(update_sighting(mine, None, 5.0, LEASE, leading=True), "me", 5.0) is ElectionStep.CREATE
    assert move(update_sighting(mine, None, 5.0, LEASE), "me", 5.0) is ElectionStep.WAIT


def test_the_count_grows_with_every_new_holder_and_not_with_a_renewal() -> None:
    mine, yours = held_by("me", transitions=3), held_by("you", transitions=3)
    assert next_transitions(Sighting(mine, 0.0, 3), ElectionStep.RENEW) == 3
    assert next_transitions(Sighting(yours, 0.0, 3), ElectionStep.TAKE) == 4
    assert next_transitions(Sighting(None, 0.0), ElectionStep.CREATE) == 0


class Candidate:
    """What `Lease` does around the rules, with the steps apart so that anything may happen in between."""

    def __init__(self, identity: str, ahead: float) -> None:
        self.identity, self.ahead = identity, ahead
        self.seen: Sighting | None = None
        self.looked: tuple[float, Record | None] | None = None
        self.deadline = float("-inf")
        self.token = -1


class Election(RuleBasedStateMachine):
    """Three candidates whose clocks differ, a server that takes conditional writes, and any delay between steps."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.version = 0
        self.record: Record | None = None
        self.born = 0
        self.candidates = [self.newcomer() for _ in range(3)]
        self.tokens: list[tuple[int, str]] = []
        self.counted = True

    def newcomer(self) -> Candidate:
        self.born += 1
        return Candidate(f"candidate-{self.born}", 600.0 * (self.born % 3 - 1))

    @rule(seconds=st.sampled_from([0.1, 1.0, 4.0, 9.9, 14.9, 20.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(i=st.integers(0, 2))
    def look(self, i: int) -> None:
        member = self.candidates[i]
        member.looked = (self.now + member.ahead, self.record)

    @rule(i=st.integers(0, 2))
    def act(self, i: int) -> None:
        member = self.candidates[i]
        if member.looked is None:
            return
        (looked_at, record), now = member.looked, self.now + member.ahead
        member.looked = None
        member.seen = update_sighting(member.seen, record, now, LEASE, leading=now < member.deadline)
        chosen = move(member.seen, member.identity, now)
        if chosen is ElectionStep.WAIT:
            member.deadline = float("-inf")
        elif self.record == record:  # the server takes it only over what was seen
            self.version += 1
            token = next_transitions(member.seen, chosen)
            self.record = Record(member.identity, LEASE, token, str(self.version), "uid")
            member.deadline, member.token = looked_at + DEADLINE, token

    @precondition(lambda self: self.record is not None)
    @rule(i=st.integers(0, 2))
    def crash(self, i: int) -> None:
        self.candidates[i] = self.newcomer()

    @rule(i=st.integers(0, 2))
    def release(self, i: int) -> None:
        member = self.candidates[i]
        if member.looked is None and self.record and self.record.holder == member.identity:
            member.deadline = float("-inf")
            self.version += 1
            self.record = Record("", LEASE, self.record.transitions, str(self.version), "uid")

    @precondition(lambda self: all(c.seen and c.seen.record for c in self.candidates))
    @rule()
    def somebody_deletes_it(self) -> None:
        newest = min(c.seen.transitions for c in self.candidates if c.seen)
        self.counted &= self.record is None or newest == self.record.transitions
        self.record = None

    def leading(self) -> list[Candidate]:
        return [c for c in self.candidates if self.now + c.ahead < c.deadline]

    @invariant()
    def nobody_leads_beside_another(self) -> None:
        assert len(self.leading()) <= 1

    @invariant()
    def the_token_tells_holders_apart_and_grows(self) -> None:
        for member in self.leading():
            mark = (member.token, member.identity)
            if self.counted and self.tokens and self.tokens[-1] != mark:
                assert mark[0] > self.tokens[-1][0] or mark[1] == self.tokens[-1][1]
            self.tokens.append(mark)


TestElection = pytest.mark.slow(Election.TestCase)
TestElection.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


# --- on a real API server ---------------------------------------------------------------------------------------------
@pytest.fixture
def candidate(control_plane: ControlPlane, namespace: str) -> Iterator[Callable[..., Lease]]:
    leases: list[Lease] = []

    def make(identity: str, name: str = "leader", **more: Any) -> Lease:
        clock = more.pop("clock", SystemClock())
        client = more.pop("client", None) or control_plane.admin_client()
        lease = Lease(client, namespace, name, identity, more.pop("settings", QUICK), clock)
        leases.append(lease)
        return lease

    yield make
    for candidate_lease in leases:
        candidate_lease.stop()


def test_of_candidates_that_race_for_a_missing_lease_one_wins(candidate: Any) -> None:
    for number in range(12):
        racers = [candidate(f"racer-{i}", f"race-{number}") for i in range(4)]
        barrier = threading.Barrier(len(racers))

        def race(lease: Lease, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            lease.step()

        threads = [threading.Thread(target=race, args=(racer,)) for racer in racers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(racer.is_leading for racer in racers) == 1
        assert [racer.error for racer in racers] == [None] * 4


def test_candidates_that_take_over_at_the_same_moment_are_told_apart(candidate: Any) -> None:
    holder = candidate("holder")
    assert holder.step()
    others = [candidate(f"other-{i}") for i in range(4)]
    for other in others:
        other.step()
    holder.stop()
    threads = [threading.Thread(target=lease.step) for lease in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(lease.is_leading for lease in others) == 1
    assert [lease.transitions for lease in others if lease.is_leading] == [1]


def test_it_is_renewed_given_back_and_taken_without_waiting(
    control_plane: ControlPlane, candidate: Any, namespace: str
) -> None:
    first, second = candidate("first"), candidate("second")
    first.start()
    assert first.wait_until_leading(60)
    second.start()
    path = f"{LEASES}/{namespace}/leases/leader"
    renewed = control_plane.api().get(path)["spec"]["renewTime"]
    wait_for("a renewal", lambda: control_plane.api().get(path)["spec"]["renewTime"] != renewed)
    first.require()
    with pytest.raises(NotLeader, match="not held by this replica"):
        second.require()
    first.stop()
    assert not first.is_leading
    assert second.wait_until_leading(60)
    spec = control_plane.api().get(path)["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"], second.transitions) == ("second", 1, 1)
    # one field manager for all holders, and one for whoever created it: the list does not grow with replicas
    managers = control_plane.api().get(path)["metadata"]["managedFields"]
    assert len(managers) <= 2


def test_clocks_that_are_ten_minutes_wrong_do_no_harm(candidate: Any) -> None:
    now = time.time()
    early, late = candidate("early", clock=FixedClock(now - 600)), candidate("late", clock=FixedClock(now + 600))
    assert early.step()
    assert not late.step()
    assert early.step(), "the holder renews although its stamp is older than the other one's clock"
    assert not late.step()


def test_a_leader_that_cannot_renew_stops_at_its_deadline_before_another_may_begin(
    control_plane: ControlPlane, fault_proxy: FaultProxy, candidate: Any
) -> None:
    cut_off = candidate("cut-off", client=control_plane.client(fault_proxy.kubeconfig))
    other = candidate("other")
    assert cut_off.step()
    fault_proxy.refuse()
    both = 0
    start = time.monotonic()
    while not other.is_leading:
        cut_off.step()
        other.step()
        both += cut_off.is_leading and other.is_leading
        assert time.monotonic() - start < 60
    assert both == 0
    assert time.monotonic() - start >= QUICK.lease_seconds - 0.5
    with pytest.raises(NotLeader, match="s overdue; nothing was sent"):
        cut_off.require()
    assert cut_off.error is not None


def test_a_slow_api_server_costs_the_leader_its_lead_not_its_word(
    control_plane: ControlPlane, fault_proxy: FaultProxy, candidate: Any
) -> None:
    slow = candidate("slow", client=control_plane.client(fault_proxy.kubeconfig))
    assert slow.step()
    fault_proxy.fault = faults.delayed(8.0)
    deadline = time.monotonic() + 60
    while slow.is_leading and time.monotonic() < deadline:
        slow.step()  # gives up within half the deadline
    with pytest.raises(NotLeader):
        slow.require()


def test_it_says_in_words_who_leads(control_plane: ControlPlane, fault_proxy: FaultProxy, candidate: Any) -> None:
    first = candidate("first")
    second = candidate("second", client=control_plane.client(fault_proxy.kubeconfig))
    assert first.description.startswith("This replica tries to acquire the Lease ")
    first.step()
    second.step()
    assert first.description.startswith("This replica holds the Lease ")
    assert second.description.startswith("first holds the Lease ")
    fault_proxy.refuse()
    second.step()
    assert "cannot be acquired: " in second.description


def test_a_lease_that_was_deleted_is_made_again_by_its_holder(
    control_plane: ControlPlane, candidate: Any, namespace: str
) -> None:
    holder = candidate("holder")
    assert holder.step()
    control_plane.api().delete(f"{LEASES}/{namespace}/leases/leader")
    assert holder.step()


def test_what_the_guard_holds_back_is_not_sent(control_plane: ControlPlane, candidate: Any, namespace: str) -> None:
    never = candidate("never")
    where = Address("v1", "configmaps", "one", namespace)
    with pytest.raises(NotLeader):
        Writer(control_plane.admin_client(), "cotenant-test", never.require).send(Apply(where, {"kind": "ConfigMap"}))
    assert not control_plane.api().exists(where.path)


@given(st.floats(2.0, 600.0))
def test_a_leader_tries_several_times_and_stops_writing_before_it_can_be_replaced(lease_seconds: float) -> None:
    times = ManagerSettings(lease_seconds=lease_seconds)
    assert times.retry_seconds * 4 < times.renew_deadline_seconds < times.lease_seconds
    assert (ManagerSettings().renew_deadline_seconds, ManagerSettings().retry_seconds) == (10.0, 2.0), "client-go's"


def test_two_processes_never_share_an_identity() -> None:
    assert fresh_identity() != fresh_identity()


def test_a_leader_that_is_stopped_past_its_lease_writes_nothing_when_it_wakes(
    control_plane: ControlPlane, namespace: str
) -> None:
    arguments = [str(control_plane.admin_kubeconfig), namespace, unique_name("stopped")]
    api = control_plane.api()
    holders: list[subprocess.Popen[str]] = []

    def begin(identity: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.support.lease_holder", *arguments, identity]
        holders.append(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True))
        return holders[-1]

    def version(identity: str) -> str:
        return str(api.get(f"/api/v1/namespaces/{namespace}/configmaps/by-{identity}")["metadata"]["resourceVersion"])

    try:
        leader = begin("leader")
        assert leader.stdout is not None
        assert leader.stdout.readline() == "led\n"
        standby = begin("standby")
        leader.send_signal(signal.SIGSTOP)
        assert standby.stdout is not None
        assert standby.stdout.readline() == "led\n"
        before, others = version("leader"), version("standby")
        leader.send_signal(signal.SIGCONT)
        # it has come back to its writes and was held back, fifty times
        texts = [leader.stdout.readline() for _ in range(50)]
        assert set(texts) == {"refused\n"}
        assert version("leader") == before
        wait_for("the standby to write on", lambda: version("standby") != others)
    finally:
        for process in holders:
            process.kill()
            process.wait()
