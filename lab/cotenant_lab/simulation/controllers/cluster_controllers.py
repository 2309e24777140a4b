"""EDGE: simulated controller-manager, scheduler, kubelets and autoscalers on the embedded server.

Level-triggered and called from outside: `step(now)` handles what changed since the last step and what is due by time,
and writes the decisions of `rollouts`, `scheduler`, `kubelet` and `autoscaler`. Steps are repeated until none of them
writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cotenant.base.kubernetes.pod_request import sum_amounts
from cotenant.base.kubernetes.pod_wire import requests_of_pod
from cotenant.base.kubernetes.protocol import ENDED_PHASES, OWN_GROUP, SCHEDULING_GROUP, SWAP_GUARD
from cotenant.scheduler_ext.reservations.guard import Guard
from cotenant.scheduler_ext.reservations.model.reservation import Reservation
from cotenant.scheduler_ext.reservations.pod_gate import Offers, add_reservation_gate
from cotenant_lab.simulation import batch_load
from cotenant_lab.simulation.api_server.admission import status_of, used_by
from cotenant_lab.simulation.api_server.refusal import Refusal
from cotenant_lab.simulation.api_server.state import Collection, Feed, Key, ObjectState
from cotenant_lab.simulation.batch_load import Evening
from cotenant_lab.simulation.controllers import kubelet, rollouts
from cotenant_lab.simulation.controllers import scheduler as placing
from cotenant_lab.simulation.controllers.autoscaler import CpuDemand, desired_replicas
from cotenant_lab.simulation.controllers.scheduler import NodeCapacity
from cotenant_lab.simulation.local_client import LocalClient, path_of
from cotenant_lab.simulation.population import KINDS, replica_set, set_name, template_hash

Json = dict[str, Any]
Owner = tuple[str, str, str]
"""(namespace, kind, name) of a controller."""

PODS: Final[Collection] = ("", "pods")
NODES: Final[Collection] = ("", "nodes")
QUOTAS: Final[Collection] = ("", "resourcequotas")
SETS: Final[Collection] = ("apps", "replicasets")
RESERVATIONS: Final[Collection] = (SCHEDULING_GROUP.partition("/")[0], "reservations")
GUARDS: Final[Collection] = (OWN_GROUP.partition("/")[0], "swapguards")
SCALERS: Final[Collection] = ("autoscaling", "horizontalpodautoscalers")
CONTROLLED: Final[Mapping[str, Collection]] = {
    kind: ("apps", KINDS[kind][1]) for kind in ("Deployment", "StatefulSet", "DaemonSet")
}
SCALE_SECONDS: Final = 15.0
"""Between two looks of the autoscalers."""
STEADY_SECONDS: Final = 300.0
"""Kubernetes' default stabilisation of an autoscaler that goes down."""
BATCH_SECONDS: Final = 30.0
"""Between two looks for holes that batch work takes."""
MOST_STEPS: Final = 200
"""Of `settled`: a rollout of many pods takes a few turns at one moment."""


class ClusterControllers:
    """The controllers of the simulated cluster, for one thread at a time.

    The initial state counts as already handled.
    """

    def __init__(self, state: ObjectState, hand: LocalClient, demand: CpuDemand, batch: Evening | None = None) -> None:
        """Listens from now on. batch: when batch work fills the cluster."""
        self._state, self._hand, self._demand = state, hand, demand
        self._batch, self._batched_at = batch, float("-inf")
        self._kinds = {collection: kind for kind, collection in CONTROLLED.items()}
        self._feeds: list[tuple[Collection, Feed]] = []
        for collection in (PODS, *CONTROLLED.values()):
            feed, _ = state.subscribe(collection, state.version)
            self._feeds.append((collection, feed))
        self._owners: set[Owner] = set()
        self._waiting: set[Key] = set()
        self._starting: set[Key] = set()
        self._resizing: set[Key] = set()
        self._scaled_at = float("-inf")
        self._sizes = placing.Sizes()
        self._wanted: dict[str, list[tuple[float, int]]] = {}
        self._moved: set[str] = set()

    def settled(self, now_seconds: float) -> bool:
        """Make steps at one time until one writes nothing, at most MOST_STEPS; return whether any step wrote."""
        done = 0
        while self.step(now_seconds) and done < MOST_STEPS:
            done += 1
        return done > 0

    def step(self, now_seconds: float) -> bool:
        """Handle all changes once; return whether something was written."""
        for collection, feed in self._feeds:
            while not feed.empty():
                change = feed.get()
                if change is not None:
                    self._note(collection, change.key, change.after or change.before or {}, change.after)
        scalers = []
        if now_seconds - self._scaled_at >= SCALE_SECONDS:
            self._scaled_at = now_seconds
            scalers = self._state.items(SCALERS)
        wrote = [
            *[self._scale_one(scaler, now_seconds) for _, scaler in scalers],
            self._recount(),
            *[self._turn(owner, now_seconds) for owner in sorted(self._owners)],
            self._place(now_seconds),
        ]
        for key in sorted(self._starting):
            pod = self._state.get(PODS, key)
            status = kubelet.started_status(pod, now_seconds) if pod else None
            wrote.append(bool(pod and status and self._hand.told(pod, status)))
        wrote += [
            *[self._resize(key, now_seconds) for key in sorted(self._resizing)],
            self._lend(now_seconds),
        ]
        return any(wrote)

    def _note(self, collection: Collection, key: Key, item: Json, after: Json | None) -> None:
        if collection in self._kinds:
            if after is not None:
                self._owners.add((key[0], self._kinds[collection], key[1]))
            return
        self._moved.add(key[0])
        if after is None:
            self._sizes.forget(item)
        for owner in item["metadata"].get("ownerReferences") or ():
            if owner["kind"] == "ReplicaSet":
                self._owners.add((key[0], "Deployment", owner["name"].rpartition("-")[0]))
            elif owner["kind"] in CONTROLLED:
                self._owners.add((key[0], owner["kind"], owner["name"]))
        for keys, is_member in (
            (self._waiting, after is not None and placing.waits(after)),
            (self._starting, after is not None and bool(after["spec"].get("nodeName")) and _phase(after) == "Pending"),
            (self._resizing, after is not None and _phase(after) == "Running"),
        ):
            (keys.add if is_member else keys.discard)(key)

    def _turn(self, owner: Owner, now_seconds: float) -> bool:
        """A controller's turn; it is looked at again when one of its pods, or itself, changed."""
        self._owners.discard(owner)
        namespace, kind, name = owner
        controller = self._state.get(CONTROLLED[kind], (namespace, name))
        if controller is None:
            return False
        pods, wrote = self._pods_of(controller), list[bool]()
        owner_of_new = None
        if kind == "Deployment":
            owner_of_new, wrote = self._sets(controller, pods)
        turn = rollouts.next_rollout_step(controller, pods, len(self._state.items(NODES)), owner_of_new, now_seconds)
        wrote += [self._hand.ended(pod) for pod in turn.ended]
        reservations, guard = self._state.items(RESERVATIONS), self._state.get(GUARDS, ("", SWAP_GUARD))
        for fresh in turn.made:
            pod = fresh
            if reservations and guard is not None:  # as our webhook makes it: gated where a Reservation waits for it
                until_seconds = Guard.parse(guard).served_until_seconds
                offers = Offers.of((Reservation.parse(body) for _, body in reservations), until_seconds)
                pod = dict(add_reservation_gate(fresh, offers, namespace, now_seconds))
            wrote.append(self._create(pod))
        if turn.status is not None:
            wrote.append(self._hand.told(controller, turn.status))
        return any(wrote)

    def _sets(self, deployment: Json, pods: Sequence[Json]) -> tuple[Json | None, list[bool]]:
        """The ReplicaSet of the present template, made where there is none, and whether their counts were written."""
        meta = deployment["metadata"]
        digest = template_hash(deployment["spec"]["template"])
        key = meta["namespace"], set_name(meta["name"], digest)
        wrote = []
        if self._state.get(SETS, key) is None:
            fresh = replica_set(deployment, digest, 0)
            wrote.append(self._hand.create(path_of(fresh).rpartition("/")[0], fresh))
        for (namespace, name), owned in self._state.items(SETS):
            if namespace == key[0] and owned["metadata"]["ownerReferences"][0]["uid"] == meta["uid"]:
                mine = [p for p in pods if p["metadata"]["ownerReferences"][0]["name"] == name]
                replicas, ready = len(mine), sum(rollouts.is_ready(p) for p in mine)
                if owned["spec"]["replicas"] != replicas:
                    steps = [{"op": "replace", "path": "/spec/replicas", "value": replicas}]
                    wrote.append(self._hand.patched(owned, steps))
                live = self._state.get(SETS, (namespace, name))
                status = {"replicas": replicas, "readyReplicas": ready, "availableReplicas": ready}
                if live is not None and live.get("status") != status:
                    wrote.append(self._hand.told(live, status))
        return self._state.get(SETS, key), wrote

    def _create(self, pod: Json) -> bool:
        try:
            return self._hand.create(path_of(pod).rpartition("/")[0], pod)
        except Refusal:  # a quota or a LimitRange: the controller stays short, as on a real cluster
            return False

    def _pods_of(self, controller: Json) -> list[Json]:
        """Return the pods that match the controller's selector and have an owner.

        A bare pod with the same labels belongs to no controller.
        """
        labels = controller["spec"]["selector"]["matchLabels"].items()
        return [
            pod
            for (namespace, _), pod in self._state.items(PODS)
            if namespace == controller["metadata"]["namespace"]
            and labels <= (pod["metadata"].get("labels") or {}).items()
            and pod["metadata"].get("ownerReferences")
        ]

    def _place(self, now_seconds: float) -> bool:
        waiting = (self._state.get(PODS, key) for key in self._waiting)
        pods = [pod for pod in waiting if pod is not None and placing.waits(pod)]
        if not pods:
            return False
        wrote = False
        for pod, node in placing.assign_nodes(pods, self._places()):
            if node:
                done, live = self._hand.bound(pod, node), self._state.get(PODS, _key(pod))
                wrote |= done and live is not None and self._hand.told(live, kubelet.bound_status(live, now_seconds))
            else:
                status = kubelet.unschedulable_status(pod, len(self._state.items(NODES)), now_seconds)
                wrote |= status != pod.get("status") and self._hand.told(pod, status)
        return wrote

    def _places(self) -> list[NodeCapacity]:
        """Return the free capacity of nodes, and the pods it is limited to while a hand-over is in progress there."""
        guard = self._state.get(GUARDS, ("", SWAP_GUARD))
        nodes, pods = (node for _, node in self._state.items(NODES)), (pod for _, pod in self._state.items(PODS))
        return placing.places(nodes, pods, self._sizes, Guard.parse(guard).nodes if guard else {})

    def _resize(self, key: Key, now_seconds: float) -> bool:
        pod = self._state.get(PODS, key)
        node = self._state.get(NODES, ("", pod["spec"].get("nodeName", ""))) if pod else None
        if pod is None or node is None:
            self._resizing.discard(key)
            return False
        neighbours = (
            other
            for at, other in self._state.items(PODS)
            if other["spec"].get("nodeName") == pod["spec"]["nodeName"] and at != key
            if _phase(other) not in ENDED_PHASES
        )
        others = sum_amounts(map(requests_of_pod, neighbours))
        status = kubelet.resized_status(pod, node["status"]["allocatable"], others, now_seconds)
        if status is None:
            self._resizing.discard(key)
            return False
        return self._hand.told(pod, status)

    def _scale_one(self, scaler: Json, now_seconds: float) -> bool:
        target = scaler["spec"]["scaleTargetRef"]
        place = CONTROLLED.get(target["kind"])
        controller = self._state.get(place, (scaler["metadata"]["namespace"], target["name"])) if place else None
        if controller is None:
            return False
        # The most that was wanted in the last minutes: replicas go slowly and come at once.
        history = self._wanted.setdefault(scaler["metadata"]["uid"], [])
        history[:] = [(at, count) for at, count in history if now_seconds - at < STEADY_SECONDS]
        history.append((now_seconds, desired_replicas(scaler, controller, self._demand, now_seconds)))
        replicas = max(count for _, count in history)
        if replicas == controller["spec"].get("replicas", 1):
            return False
        steps: Sequence[Json] = [{"op": "replace", "path": "/spec/replicas", "value": replicas}]
        return self._hand.patched(controller, steps)

    def _lend(self, now_seconds: float) -> bool:
        """Batch work of the evening: what is done goes, and in the next look others fill what is left."""
        if self._batch is None or now_seconds - self._batched_at < BATCH_SECONDS:
            return False
        self._batched_at = now_seconds
        places = self._places()  # capacity of those that end now is offered to who waits before the next look
        mine = [pod for _, pod in self._state.items(PODS) if batch_load.is_evening_pod(pod)]
        ended = mine if not self._batch.now(now_seconds) else batch_load.ended_pods(mine, now_seconds, self._batch)
        wrote = [self._hand.ended(pod) for pod in ended]
        if self._batch.now(now_seconds):
            wrote += [self._create(pod) for pod in batch_load.filling_pods(places, now_seconds)]
        return any(wrote)

    def _recount(self) -> bool:
        """Quotas of namespaces in which pods came or went, as their controller counts them."""
        namespaces, self._moved = self._moved, set()
        wrote = False
        for (namespace, name), quota in self._state.items(QUOTAS) if namespaces else ():
            if namespace in namespaces:
                pods = (pod for (inside, _), pod in self._state.items(PODS) if inside == namespace)
                counted = status_of(quota, used_by(pods))
                if counted != quota:
                    self._state.put(QUOTAS, (namespace, name), counted)
                    wrote = True
        return wrote


def _key(pod: Json) -> Key:
    return pod["metadata"].get("namespace", ""), pod["metadata"]["name"]


def _phase(pod: Json) -> str:
    return str((pod.get("status") or {}).get("phase") or "")
