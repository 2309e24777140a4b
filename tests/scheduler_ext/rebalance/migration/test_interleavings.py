"""One move in every order of events: mirrors that lag, writes that are lost, pods, schedulers and strangers at will.

The cluster is abstract; what it is given are the very intents of `decide`, and what is decided on are parsed objects.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cotenant.base.kubernetes.intent import Apply, Create, Delete, Intent
from cotenant.scheduler_ext.rebalance.load import RebalancePod
from cotenant.scheduler_ext.rebalance.migration.decide import decide
from cotenant.scheduler_ext.rebalance.migration.job import MigrationJob
from cotenant.scheduler_ext.rebalance.migration.room import is_capacity_reserved
from cotenant.scheduler_ext.rebalance.migration.view import MigrationView
from cotenant.scheduler_ext.reservations.model.reservation import Reservation
from tests.scheduler_ext.rebalance.migration.moments import moment
from tests.scheduler_ext.rebalance.migration.moves import SOURCE, TARGET, on_node, view
from tests.scheduler_ext.rebalance.small_cluster import NOW

ENDED = ("Succeeded", "Failed")
OTHERS = [on_node(f"web-{number}", f"n{number}") for number in range(5, 9)]
"""Further replicas, so that the workload's limit is 2."""


class MovedPod(RuleBasedStateMachine):
    """The true cluster, and what each mirror of the manager shows of it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        meta = {"name": "move", "uid": "move-uid", "creationTimestamp": moment(NOW - 20)}
        spec = {"podRef": {"namespace": "shop", "name": "web-1", "uid": "web-1"}, "ttl": "2m"}
        self.job: dict[str, Any] = {"metadata": meta, "spec": spec}
        self.pods: dict[str, RebalancePod] = {pod.facts.identity.name: pod for pod in (on_node("web-1"), *OTHERS)}
        self.room: dict[str, Any] | None = None
        self.allowed, self.robbed, self.evictions, self.rooms_made = 1, False, 0, 0
        self.mirrors: dict[str, Any] = {}
        for name in ("job", "pods", "room"):
            self.look(name)

    def look(self, name: str) -> None:
        current = getattr(self, name)
        copied = {"job": lambda: MigrationJob.parse(current), "pods": lambda: dict(current)}
        room = Reservation.parse(current) if name == "room" and current is not None else None
        self.mirrors[name] = copied[name]() if name in copied else room

    def shown(self) -> MigrationView:
        rooms = [self.mirrors["room"]] if self.mirrors["room"] is not None else []
        return view([self.mirrors["job"]], list(self.mirrors["pods"].values()), *rooms, now_seconds=self.now)

    def status(self) -> dict[str, Any]:
        return dict(self.job.get("status") or {})

    # --- the manager --------------------------------------------------------------------------------------------------
    @rule(name=st.sampled_from(("job", "pods", "room")))
    def a_mirror_catches_up(self, name: str) -> None:
        self.look(name)

    @rule(sent=st.integers(0, 4), fresh=st.booleans())
    def the_manager_decides_and_is_killed_after_some_writes(self, sent: int, fresh: bool) -> None:
        for name in ("job", "pods", "room") if fresh else ():
            self.look(name)
        for intent in decide(self.shown(), 3600).intents[:sent]:
            if intent.address.resource == "pods":
                assert self.mirrors["room"] is not None and is_capacity_reserved(self.mirrors["room"])
            self.write(intent)

    def write(self, intent: Intent) -> None:
        if isinstance(intent, Apply):
            self.job["status"] = dict(intent.body["status"])
        elif isinstance(intent, Delete):
            assert self.room is None or intent.uid == self.room["metadata"]["uid"]
            self.room = None
        elif isinstance(intent, Create) and intent.subresource == "eviction":
            self.evict()
        elif self.room is None:
            assert isinstance(intent, Create)
            self.rooms_made += 1
            meta = {"uid": f"room-{self.rooms_made}", "creationTimestamp": moment(self.now)}
            self.room = {**intent.body, "metadata": {**intent.body["metadata"], **meta}, "status": {"phase": "Pending"}}

    def evict(self) -> None:
        pod = self.pods.get("web-1")
        if pod is None or pod.leaving or self.allowed == 0:
            return
        room = (self.room or {}).get("status") or {}
        in_truth = room.get("phase") == "Available" and not room.get("currentOwners") and room.get("nodeName") == TARGET
        assert in_truth or self.robbed, "evicted without room"
        self.evictions += 1
        self.pods["web-1"] = replace(pod, leaving=True)

    # --- everybody else -----------------------------------------------------------------------------------------------
    @precondition(lambda self: self.room is not None and self.room["status"]["phase"] == "Pending")
    @rule(fits=st.booleans())
    def the_scheduler_looks_at_the_placeholder(self, fits: bool) -> None:
        assert self.room is not None
        full = {"type": "Scheduled", "status": "False", "message": "full", "lastTransitionTime": moment(self.now)}
        self.room["status"] = (
            {"phase": "Available", "nodeName": TARGET} if fits else {"phase": "Pending", "conditions": [full]}
        )

    @precondition(lambda self: self.pods.get("web-1") and self.pods["web-1"].leaving)
    @rule()
    def the_pod_has_ended(self) -> None:
        del self.pods["web-1"]

    @precondition(lambda self: "web-1" not in self.pods and "web-2" not in self.pods)
    @rule(webhook=st.booleans())
    def its_controller_makes_another(self, webhook: bool) -> None:
        takes = webhook and self.room is not None and self.room["status"]["phase"] == "Available"
        self.pods["web-2"] = on_node("web-2", TARGET if takes else SOURCE, ready_seconds=None)
        if takes:
            self.take("web-2")

    @precondition(lambda self: self.room is not None and self.room["status"]["phase"] == "Available")
    @rule()
    def a_further_replica_takes_the_room(self) -> None:
        self.robbed = True
        self.take("web-9")

    def take(self, name: str) -> None:
        assert self.room is not None
        owner = {"namespace": "shop", "name": name, "uid": name}
        self.room["status"] = {"phase": "Succeeded", "nodeName": TARGET, "currentOwners": [owner]}

    @precondition(lambda self: "web-2" in self.pods)
    @rule()
    def the_successor_is_ready(self) -> None:
        self.pods["web-2"] = replace(self.pods["web-2"], ready_seconds=self.now)

    @rule(allowed=st.integers(0, 1))
    def the_budget_changes(self, allowed: int) -> None:
        self.allowed = allowed

    @rule(seconds=st.sampled_from((1.0, 15.0, 60.0)))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    # --- what must hold -----------------------------------------------------------------------------------------------
    @invariant()
    def a_pod_is_evicted_once(self) -> None:
        assert self.evictions <= 1

    @invariant()
    def success_means_that_the_successor_is_ready_in_the_room(self) -> None:
        if self.status().get("phase") == "Succeeded":
            owner = self.status()["podRef"]["name"]
            assert "web-1" not in self.pods and (owner == "web-9" or self.pods[owner].ready_seconds is not None)

    def teardown(self) -> None:
        """Left in peace, every move comes to an end and leaves no room."""
        for _ in range(8):
            for name in ("job", "pods", "room"):
                self.look(name)
            for intent in decide(self.shown(), 3600).intents:
                self.write(intent)
            self.now += 30.0
        assert self.status()["phase"] in ENDED
        assert self.room is None or self.room["status"]["phase"] in ENDED


TestMovedPod = MovedPod.TestCase
TestMovedPod.settings = settings(max_examples=150, stateful_step_count=25)
