"""EDGE: removes guards and scheduling gates that a manager left behind when it ended; runs in the webhook process.

While reserved capacity is handed over to its owner, an entry of the SwapGuard object closes the node for some seconds.
If the manager ends meanwhile and no other takes over, no pod could be bound to that node any more, because the
admission policy has no time limit. So guards that should have ended a minute ago, and that no manager promises to
handle, are removed; placeholders and owners are left to the next manager. Likewise the gates of pods that wait for
capacity, quota or gang: a minute after the manager's promise has expired, they are removed, and the pods are scheduled
like any others.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import structlog

from cotenant.base.errors import ClusterConflict, CotenantError
from cotenant.base.kube import KubeClient, Writer, send_all
from cotenant.base.kubernetes.intent import Address, Create, Patch
from cotenant.base.kubernetes.moments import moment_of
from cotenant.base.kubernetes.protocol import GANG_GATE, OWN_GROUP, RESERVATION_GATE, SWAP_GUARD, WEBHOOK
from cotenant.base.process.clock import Clock
from cotenant.scheduler_ext.queues.model.gang import group_named, native_group
from cotenant.scheduler_ext.reservations.guard import LONGEST_PROMISE_SECONDS, served_until
from cotenant.scheduler_ext.reservations.pod_gate import OUR_GATES, gates_of, without_gate

GRACE_SECONDS: Final = 60.0
RELIST_SECONDS: Final = 300.0
"""Interval of listing pods while none is known to wait and no manager handles them."""
PAUSE_SECONDS: Final = 20.0
FIELD_MANAGER: Final = WEBHOOK
WAITING: Final = "spec.nodeName=,status.phase=Pending"
"""Pods without a node, as a field selector."""
ADDRESS: Final = Address(OWN_GROUP, "swapguards", SWAP_GUARD)
_log = structlog.get_logger(__name__)


def overdue(guard: Mapping[str, Any], now_seconds: float) -> Patch | None:
    """Return the patch that empties the SwapGuard once its promise and all its hand-overs have expired; else None."""
    spec = guard.get("spec") or {}
    served = moment_of(spec.get("servedUntil"), SWAP_GUARD) or 0.0
    swaps = spec.get("swaps") or []
    expired = [moment_of(swap.get("expires"), SWAP_GUARD) or 0.0 for swap in swaps]
    fields = [name for name in ("swaps", "nodes") if spec.get(name)]
    if not fields or not all(_is_over(end, now_seconds) for end in (served, *expired)):
        return None
    version = {"op": "replace", "path": "/metadata/resourceVersion", "value": guard["metadata"]["resourceVersion"]}
    removals = [{"op": "remove", "path": f"/spec/{name}"} for name in fields]
    return Patch(ADDRESS, (version, *removals), why="no manager has handled these hand-overs for a minute")


def _is_over(end_seconds: float, now_seconds: float) -> bool:
    """Return whether a promise expired over a minute ago, or ends too far in the future to be valid."""
    return not end_seconds - LONGEST_PROMISE_SECONDS <= now_seconds < end_seconds + GRACE_SECONDS


def gate_removal_patches(pods: Iterable[Mapping[str, Any]], over: Collection[str] = OUR_GATES) -> list[Patch]:
    """Return the patches that remove our scheduling gates from waiting pods (JSON). Pure.

    `over` has the gates that no manager promises to handle. A pod that keeps its gang's gate keeps its Reservation's
    gate too, because it gets no capacity before its gang is placed.
    """
    patches = []
    for pod in pods:
        meta, gates = pod["metadata"], gates_of(pod)
        ended = {gate for gate in gates if gate in over}
        if GANG_GATE in gates and GANG_GATE not in over:
            ended.discard(RESERVATION_GATE)
        if ended and not meta.get("deletionTimestamp"):
            address = Address("v1", "pods", meta["name"], meta["namespace"])
            operations = tuple(without_gate(gates, meta["resourceVersion"], *ended))
            patches.append(Patch(address, operations, why="no manager handles waiting pods any more"))
    return patches


def absent_groups(pods: Iterable[Mapping[str, Any]], over: Collection[str]) -> list[Create]:
    """Return the creations of the Kubernetes PodGroups without which gangs would wait even with no gate left. Pure.

    `over` has the gates that no manager handles. A group lets its pods be scheduled one by one; existing groups stay.
    """
    if GANG_GATE not in over:
        return []
    leaving = (pod for pod in pods if GANG_GATE in gates_of(pod) and group_named(pod))
    places = sorted({(pod["metadata"]["namespace"], group_named(pod)) for pod in leaving})
    return [native_group(*place, why="no manager handles its gang any more") for place in places]


class GuardWatchdog:
    """A thread that removes SwapGuard entries and pods' scheduling gates that no manager handles any more."""

    def __init__(self, client: KubeClient, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self._freed: Mapping[str, float] = {}
        """Ends of the promises after which no pod was left in these gates: the webhook gives them to none."""
        self._look_again_seconds = 0.0
        """Unix time; somebody may write a gate of ours into a manifest himself."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="guard", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; a request in progress ends with the process."""
        self._stopping.set()

    def free_forgotten(self) -> bool:
        """Remove abandoned SwapGuard entries and gates; return True if any were, raise CotenantError if that fails."""
        guard = self._client.get(ADDRESS.path)
        patch = overdue(guard, self._clock.now_seconds()) if guard else None
        if patch is not None:
            Writer(self._client, FIELD_MANAGER).send(patch)
            _log.warning("expired hand-overs were removed from the SwapGuard", object=str(ADDRESS))
        # Each of our gates ends on every pod when its promise ran out a minute ago.
        now_seconds = self._clock.now_seconds()
        over = {gate: end for gate, end in served_until(guard).items() if _is_over(end, now_seconds)}
        if not over or (over == self._freed and now_seconds < self._look_again_seconds):
            return patch is not None
        pods = self._client.list("/api/v1/pods", dict[str, Any], fieldSelector=WAITING)
        groups = absent_groups(pods, over)
        for outcome in send_all(self._client, groups, FIELD_MANAGER) if groups else []:
            if outcome.error is not None and not isinstance(outcome.error, ClusterConflict):
                _log.warning("no PodGroup made", group=str(outcome.intent.address), error=str(outcome.error))
        patches = gate_removal_patches(pods, over)
        outcomes = send_all(self._client, patches, FIELD_MANAGER) if patches else []
        for outcome in outcomes:
            if outcome.error is not None:
                _log.warning("a pod's gate was not removed", pod=str(outcome.intent.address), error=str(outcome.error))
        if lifted := sum(outcome.ok for outcome in outcomes):
            _log.warning("no manager handles waiting pods: they may be scheduled", pods=lifted)
        if not any(gate in over for pod in pods for gate in gates_of(pod)):
            self._freed, self._look_again_seconds = over, now_seconds + RELIST_SECONDS
        return bool(lifted) or patch is not None

    def _run(self) -> None:
        while not self._stopping.wait(PAUSE_SECONDS):
            try:
                self.free_forgotten()
            except CotenantError as error:
                _log.info("the check of the SwapGuard failed", error=error.message)
            except Exception:  # noqa: BLE001 - it looks again
                _log.exception("the check of the SwapGuard failed")
