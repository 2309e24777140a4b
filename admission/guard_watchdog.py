"""EDGE: lifts guards and scheduling gates that a manager which is gone has left behind; runs in the webhook process.

A hand-over guards its node in the SwapGuard for seconds. When the manager ends in between and none takes over, nobody
could be bound there any more, for the policy knows no time. So what ought to have ended a minute ago, and that no
manager promises to look after, is taken out; the placeholders and the owners are left to the next manager. Likewise the
gate of pods that wait for capacity: a minute after the manager's promise ran out they are scheduled like any pod.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any, Final

import structlog

from cotenant.core.adapters.clock import Clock
from cotenant.core.adapters.kube import KubeClient, Writer, send_all
from cotenant.core.model.errors import CotenantError
from cotenant.core.model.kubernetes.intent import Address, Patch
from cotenant.core.model.kubernetes.protocol import OWN_GROUP, RESERVATION_GATE, SWAP_GUARD
from cotenant.core.model.reservations.reservation import moment_of
from cotenant.core.model.reservations.scheduling_gate import gates_of, without_gate

GRACE_SECONDS: Final = 60.0
PAUSE_SECONDS: Final = 20.0
FIELD_MANAGER: Final = "cotenant-webhook"
WAITING: Final = "spec.nodeName=,status.phase=Pending"
"""Pods without a node, as a field selector."""
ADDRESS: Final = Address(OWN_GROUP, "swapguards", SWAP_GUARD)
_log = structlog.get_logger(__name__)


def overdue(guard: Mapping[str, Any], now_seconds: float) -> Patch | None:
    """What frees the nodes of forgotten hand-overs; None when nothing is forgotten. Pure."""
    spec = guard.get("spec") or {}
    served = moment_of(spec.get("servedUntil"), SWAP_GUARD) or 0.0
    swaps = spec.get("swaps") or []
    expired = [moment_of(swap.get("expires"), SWAP_GUARD) or 0.0 for swap in swaps]
    if not swaps or now_seconds < max(served, *expired) + GRACE_SECONDS:
        return None
    fields = [name for name in ("swaps", "nodes") if name in spec]
    version = {"op": "replace", "path": "/metadata/resourceVersion", "value": guard["metadata"]["resourceVersion"]}
    removals = [{"op": "remove", "path": f"/spec/{name}"} for name in fields]
    return Patch(ADDRESS, (version, *removals), why="no manager has looked after these hand-overs for a minute")


def served_until(guard: Mapping[str, Any] | None) -> float:
    """Until when (Unix time) a manager promises to hand capacity over; 0 when none ever did. Pure."""
    return moment_of(((guard or {}).get("spec") or {}).get("servedUntil"), SWAP_GUARD) or 0.0


def forgotten(pods: Iterable[Mapping[str, Any]]) -> list[Patch]:
    """What lets pods (JSON) be scheduled that wait in our gate. Pure."""
    patches = []
    for pod in pods:
        meta, gates = pod["metadata"], gates_of(pod)
        if RESERVATION_GATE in gates and not meta.get("deletionTimestamp"):
            address = Address("v1", "pods", meta["name"], meta["namespace"])
            operations = tuple(without_gate(gates, meta["resourceVersion"]))
            patches.append(Patch(address, operations, why="no manager hands room over any more"))
    return patches


class GuardWatchdog:
    """Looks now and then, in a thread of its own."""

    def __init__(self, client: KubeClient, clock: Clock) -> None:
        """Nothing is asked yet."""
        self._client, self._clock = client, clock
        self._freed_until = -1.0
        """End of the promise after which no pod was left in our gate: until there is another, none gets it."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="guard", daemon=True)

    def start(self) -> None:
        """Look from now on."""
        self._thread.start()

    def stop(self) -> None:
        """No more; a call under way is left to end with the process."""
        self._stopping.set()

    def look(self) -> bool:
        """Free what is forgotten; whether something was. CotenantError when the API server refuses."""
        guard = self._client.get(ADDRESS.path)
        patch = overdue(guard, self._clock.now_seconds()) if guard else None
        if patch is not None:
            Writer(self._client, FIELD_MANAGER).send(patch)
            _log.warning("freed nodes of forgotten hand-overs", object=str(ADDRESS))
        return bool(self._lift(served_until(guard))) or patch is not None

    def _lift(self, promised_seconds: float) -> int:
        """End our gate on every pod when the promise ran out a minute ago; on how many."""
        if self._clock.now_seconds() < promised_seconds + GRACE_SECONDS or promised_seconds == self._freed_until:
            return 0
        pods = self._client.list("/api/v1/pods", dict[str, Any], fieldSelector=WAITING)
        patches = forgotten(pods)
        outcomes = send_all(self._client, patches, FIELD_MANAGER) if patches else []
        for outcome in outcomes:
            if outcome.error is not None:
                _log.warning("pod stays in our gate", pod=str(outcome.intent.address), error=str(outcome.error))
        lifted = sum(outcome.ok for outcome in outcomes)
        if lifted:
            _log.warning("no manager hands room over: pods that waited may be scheduled", pods=lifted)
        if not patches:
            self._freed_until = promised_seconds
        return lifted

    def _run(self) -> None:
        while not self._stopping.wait(PAUSE_SECONDS):
            try:
                self.look()
            except CotenantError as error:
                _log.info("swap guard not looked at", error=error.message)
            except Exception:  # noqa: BLE001 - it looks again
                _log.exception("swap guard not looked at")
