"""A small cluster with both real controllers in it: writes that come late, crashes, and other pods that want the room.

Objects are JSON, changed as the API server would. Each controller decides on what it sees, and its writes go out one by
one while everything else goes on. The scheduler takes pods in any order and ignores nominations; bindings to guarded
nodes are refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
from jsonpatch import JsonPatch

from cotenant.base.kubernetes.intent import Create, Delete, Intent, Patch
from cotenant.base.kubernetes.moments import moment_of
from cotenant.base.kubernetes.pod_wire import requests_of
from cotenant.base.kubernetes.protocol import (
    GANG_GATE,
    PLACEHOLDER_LABEL,
    RESERVATION_ALLOCATED_ANNOTATION,
    RESERVATION_GATE,
)
from cotenant.scheduler_ext.queues.gangs.reservations import member_uid
from cotenant.scheduler_ext.queues.gangs.state import GangDecision, gangs_decided
from cotenant.scheduler_ext.queues.model.gang import Gang, gang_key, gang_of_pod, gangs_of
from cotenant.scheduler_ext.queues.model.queue_pod import Placement, QueuePod
from cotenant.scheduler_ext.queues.model.settings import QueueSettings
from cotenant.scheduler_ext.queues.view import QueueNode, QueueView
from cotenant.scheduler_ext.reservations.decide import decide
from cotenant.scheduler_ext.reservations.guard import Guard
from cotenant.scheduler_ext.reservations.model.reservation import Reservation
from cotenant.scheduler_ext.reservations.model.settings import ReservationSettings
from cotenant.scheduler_ext.reservations.view import PodView, ReservationView

Json = dict[str, Any]
BEGIN = 1_000_000.0
GUARD = "swapguards/swaps"
PREFIX = "gang.scheduling.koordinator.sh/"
GATES = [{"name": GANG_GATE}, {"name": RESERVATION_GATE}]
CONTROLLERS = ("queues", "reservations")


@dataclass
class GangWorld:
    """The state. nodes: cores by name. queues: writes of each controller that have not gone out yet."""

    nodes: dict[str, int]
    settings: QueueSettings = field(default_factory=QueueSettings)
    pod_groups: dict[str, Gang] = field(default_factory=dict)
    objects: dict[str, Json] = field(default_factory=dict)
    queues: dict[str, list[Intent]] = field(default_factory=lambda: {name: [] for name in CONTROLLERS})
    attempts: dict[str, tuple[int, float]] = field(default_factory=dict)
    noticed: dict[str, float] = field(default_factory=dict)
    now: float = BEGIN
    created: int = 0
    decision: GangDecision = field(default_factory=GangDecision)
    partial: list[str] = field(default_factory=list)

    # --- what people do -----------------------------------------------------------------------------------------------
    def pod(self, name: str, cpu: int = 1, gang: str = "", **annotations: str) -> None:
        """A new pod; a member of a gang waits behind our gates."""
        gang_annotations = {PREFIX + key.replace("_", "-"): value for key, value in annotations.items()}
        gang_annotations |= {PREFIX + "name": gang} if gang else {}
        spec = {"containers": [{"name": "x", "resources": {"requests": {"cpu": str(cpu)}}}]}
        meta = {"name": name, "namespace": "shop", "annotations": gang_annotations}
        self.create(
            f"pods/shop/{name}", {"metadata": meta, "spec": spec | ({"schedulingGates": GATES} if gang else {})}
        )

    def gang(self, name: str, size: int, cpu: int = 1, **annotations: str) -> None:
        """All members of a gang at once."""
        for number in range(size):
            self.pod(f"{name}-{number}", cpu, name, **{"min_available": str(size), **annotations})

    def create(self, key: str, body: Json) -> None:
        """A new object, with what the server adds."""
        self.created += 1
        stamp = datetime.fromtimestamp(int(self.now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        meta = body["metadata"] | {"uid": f"uid-{self.created:06d}", "creationTimestamp": stamp}
        self.put(key, {"status": {}, **body, "metadata": meta})

    def put(self, key: str, body: Json) -> None:
        """A changed object with a new version."""
        self.created += 1
        copied = msgspec.json.decode(msgspec.json.encode(body))
        copied["metadata"]["resourceVersion"] = str(self.created)
        self.objects[key] = copied

    # --- what is seen -------------------------------------------------------------------------------------------------
    def pods(self) -> dict[str, Json]:
        """All pods by key."""
        return {key: body for key, body in self.objects.items() if key.startswith("pods/")}

    def bound(self, gang: str) -> list[str]:
        """Names of members that have a node."""
        return [p.name for p in self.queue_pods() if p.gang == f"shop/{gang}" and p.node]

    def members(self, gang: str) -> list[str]:
        """Names of all members."""
        return [p.name for p in self.queue_pods() if p.gang == f"shop/{gang}"]

    def reservation_names(self) -> list[str]:
        """Names of Reservations."""
        return [key for key in self.objects if key.startswith("reservations/")]

    def queue_pods(self) -> tuple[QueuePod, ...]:
        """Pods as the queue controller sees them."""
        return tuple(_queue_pod(body) for body in self.pods().values())

    def state(self, gang: str) -> str:
        """Where a gang stood in the last decision."""
        return next(s.state for s in self.decision.statuses if f"shop/{gang}" in (m.gang.key for m in s.group.gangs))

    def reservations(self) -> dict[str, Reservation]:
        """By name."""
        held_reservations = (Reservation.parse(self.objects[key]) for key in self.reservation_names())
        return {reservation.name: reservation for reservation in held_reservations}

    def queue_view(self) -> QueueView:
        """What the gang controller sees."""
        nodes = [QueueNode(name, {"cpu": cores * 1000, "pods": 110}) for name, cores in self.nodes.items()]
        pods = self.queue_pods()
        declared = [pod.declared_gang for pod in pods if pod.declared_gang]
        return QueueView(
            self.now,
            gangs=gangs_of(self.pod_groups.values(), declared),
            pods=pods,
            nodes=tuple(nodes),
            reservations=tuple(self.reservations().values()),
            attempts=self.attempts,
        )

    # --- what controllers do ------------------------------------------------------------------------------------------
    def decide(self, controller: str) -> None:
        """One round of a controller whose writes have gone out."""
        if controller == "queues":
            self.decision = gangs_decided(self.queue_view(), self.settings)
            self.attempts = dict(self.decision.attempts)
            self.queues[controller] = list(self.decision.intents)
        else:
            self.queues[controller] = list(decide(self._reservation_view(), ReservationSettings()).intents)

    def write(self, controller: str, number: int = 0) -> None:
        """One of its writes reaches the server."""
        queue = self.queues[controller]
        if queue:
            self._written(queue.pop(number % len(queue)))

    def crash(self, controller: str) -> None:
        """It forgets everything, its writes that have not gone out too."""
        self.queues[controller] = []
        if controller == "queues":
            self.attempts = {}
        else:
            self.noticed = {}

    def schedule(self, number: int = 0, fair: bool = False) -> None:
        """The scheduler tries one pod that waits on any node with room; fair: where a binding is not refused."""
        waiting = [k for k, b in self.pods().items() if not b["spec"].get("nodeName") and not _gates(b)]
        if not waiting:
            return
        key = waiting[number % len(waiting)]
        body = self.objects[key]
        cores = _cores(body)
        guard = self._guard().nodes
        fitting = [n for n, free in self.free().items() if free >= cores and _admitted(n, body)]
        if not fitting:
            refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
            if body.get("status", {}).get("conditions") != [refused]:
                self.put(key, {**body, "status": {**body.get("status", {}), "conditions": [refused]}})
            return
        if fair:
            fitting.sort(key=lambda n: n in guard and key.removeprefix("pods/") not in guard[n])
        node = fitting[0 if fair else number % len(fitting)]
        if node in guard and key.removeprefix("pods/") not in guard[node]:
            return
        self.put(key, {**body, "spec": {**body["spec"], "nodeName": node}, "status": {"phase": "Running"}})
        self._judge(key)

    def free(self) -> dict[str, int]:
        """Cores by node that no pod is bound to."""
        used: dict[str, int] = dict.fromkeys(self.nodes, 0)
        for body in self.pods().values():
            if node := body["spec"].get("nodeName"):
                used[node] += _cores(body)
        return {node: cores - used[node] for node, cores in self.nodes.items()}

    def settle(self, rounds: int = 40) -> None:
        """Everybody works until nothing changes any more; time passes by tenths of seconds."""
        for _ in range(rounds):
            before = {key: body["metadata"]["resourceVersion"] for key, body in self.objects.items()}
            for controller in CONTROLLERS:
                self.decide(controller)
                while self.queues[controller]:
                    self.write(controller)
            for number in range(len(self.pods())):
                self.schedule(number, fair=True)
            self.now += 0.6
            if before == {key: body["metadata"]["resourceVersion"] for key, body in self.objects.items()}:
                if self.decision.wake_seconds > 10:
                    return
                self.now += self.decision.wake_seconds

    def _judge(self, key: str) -> None:
        """Note a gang's first bound member while room for its minimum is neither held nor being handed over."""
        pod = _queue_pod(self.objects[key])
        if not pod.gang:
            return
        members = [p for p in self.queue_pods() if p.gang == pod.gang]
        gang = self.queue_view().gangs[pod.gang]
        if sum(bool(p.node) for p in members) > 1:
            return  # only the first one starts a gang
        guarded = {s.owner.uid for s in self._guard().swaps if s.owner}
        placeholders = (b for b in self.pods().values() if PLACEHOLDER_LABEL in b["metadata"].get("labels", {}))
        placed = {b["metadata"]["ownerReferences"][0]["uid"] for b in placeholders if b["spec"].get("nodeName")}
        owners = {member_uid(reservation) for reservation in self.reservations().values() if reservation.uid in placed}
        ready = [p for p in members if p.node or p.uid in guarded or p.uid in owners]
        if len(ready) < gang.min_available:
            self.partial.append(f"{pod.gang}: {len(ready)} of {gang.min_available}")

    def _guard(self) -> Guard:
        return Guard.parse(self.objects[GUARD]) if GUARD in self.objects else Guard()

    def _reservation_view(self) -> ReservationView:
        guard = self._guard()
        ids = {swap.id for swap in guard.swaps}
        self.noticed = {id_: self.noticed.get(id_, self.now) for id_ in ids}
        pods = [PodView.parse(body) for body in self.pods().values()]
        return ReservationView(
            reservations=self.reservations(),
            guard=guard,
            pending=tuple(p for p in pods if not p.node),
            reserved=tuple(p for p in pods if "cotenant.dev/reservation" in p.identity.labels),
            nodes=frozenset(self.nodes),
            settled=frozenset(ids),
            noticed=dict(self.noticed),
            lingered=frozenset(ids),
            now_seconds=self.now,
        )

    def _written(self, intent: Intent) -> None:
        a = intent.address
        key = f"pods/{a.namespace}/{a.name}" if a.resource == "pods" else f"{a.resource}/{a.name}"
        body = self.objects.get(key)
        if isinstance(intent, Create):
            if body is None:
                meta = {**intent.body["metadata"], "namespace": a.namespace}
                self.create(key, {**intent.body, "metadata": meta})
        elif isinstance(intent, Delete):
            if body is not None and intent.uid in ("", body["metadata"]["uid"]):
                del self.objects[key]
        elif isinstance(intent, Patch):
            if body is not None:
                new = JsonPatch(list(intent.operations)).apply(body)
                if all(new["metadata"][name] == body["metadata"][name] for name in ("resourceVersion", "uid")):
                    self.put(key, new)
        elif body is None and not intent.subresource:
            self.create(key, dict(intent.body))
        elif body is not None:
            version = intent.body["metadata"].get("resourceVersion", body["metadata"]["resourceVersion"])
            if version == body["metadata"]["resourceVersion"]:
                parts = {name: part for name, part in intent.body.items() if name in ("spec", "status")}
                if any(body.get(name) != part for name, part in parts.items()):
                    self.put(key, {**body, **parts})


def _queue_pod(body: Json) -> QueuePod:
    meta, spec = body["metadata"], body["spec"]
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    created = moment_of(meta["creationTimestamp"], "pod") or 0.0
    return QueuePod(
        meta["namespace"],
        meta["name"],
        meta["uid"],
        version=meta["resourceVersion"],
        node=spec.get("nodeName") or "",
        gates=tuple(_gates(body)),
        requests=requests_of(spec),
        created_seconds=created,
        gang=gang_key("shop", labels, annotations),
        placeholder=PLACEHOLDER_LABEL in labels,
        placement=Placement(),
        declared_gang=gang_of_pod("shop", meta["name"], labels, annotations, created),
        handed_over=RESERVATION_ALLOCATED_ANNOTATION in annotations,
    )


def _gates(body: Json) -> list[str]:
    return [gate["name"] for gate in body["spec"].get("schedulingGates") or ()]


def _cores(body: Json) -> int:
    return requests_of(body["spec"]).get("cpu", 0) // 1000


def _admitted(node: str, body: Json) -> bool:
    """Required affinity to a node by name, which placeholders that are held anew have."""
    affinity = (body["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    terms = (required or {}).get("nodeSelectorTerms") or ()
    fields = [f for t in terms for f in t.get("matchFields") or ()]
    return all(node in f["values"] for f in fields)
