"""EDGE: frees nodes that a manager which is gone has left guarded; the webhook outlives it.

A hand-over guards its node in the SwapGuard for seconds. When the manager ends in between and none takes over, nobody
could be bound there any more, for the policy knows no time. So what ought to have ended a minute ago, and that no
manager promises to look after, is taken out; the placeholders and the pods are left to the next manager.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

import structlog

from cotenant.edges.clock import Clock
from cotenant.edges.kube import KubeClient, Writer
from cotenant.model.errors import CotenantError
from cotenant.model.intent import Address, Patch
from cotenant.model.protocol import OWN_GROUP, SWAP_GUARD
from cotenant.model.reservation import moment_of

GRACE_SECONDS: Final = 60.0
PAUSE_SECONDS: Final = 20.0
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


class GuardWatchdog:
    """Looks now and then, in a thread of its own."""

    def __init__(self, client: KubeClient, clock: Clock) -> None:
        """Nothing is asked yet."""
        self._client, self._clock = client, clock
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
        if patch is None:
            return False
        Writer(self._client, "cotenant-webhook").send(patch)
        _log.warning("freed nodes of forgotten hand-overs", object=str(ADDRESS))
        return True

    def _run(self) -> None:
        while not self._stopping.wait(PAUSE_SECONDS):
            try:
                self.look()
            except CotenantError as error:
                _log.info("swap guard not looked at", error=error.message)
            except Exception:  # noqa: BLE001 - it looks again
                _log.exception("swap guard not looked at")
