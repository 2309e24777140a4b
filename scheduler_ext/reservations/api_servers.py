"""EDGE: asks every API server of the control plane which hand-overs it knows.

The API server that receives a binding checks it against its own copy of the SwapGuard (the object with all hand-overs),
which may be older than another server's. A server is asked by the dry run of a patch with the ids of hand-overs: the
policy `cotenant-reservation-known` refuses the patch if the server's copy lacks one. An earlier dry run of each server
names an id that no hand-over has: if it is accepted, the server lacks the policy (yet), and its answers mean nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from cotenant.base.controllers.contract import FIELD_MANAGER
from cotenant.base.errors import ClusterError, ClusterInvalid
from cotenant.base.kube import KubeClient, Writer
from cotenant.base.kubernetes.intent import Patch
from cotenant.base.kubernetes.protocol import KNOWN_SWAPS_ANNOTATION
from cotenant.scheduler_ext.reservations.guard import ADDRESS

POLICY: Final = "cotenant-reservation-known"
ANSWER_SECONDS: Final = 5.0
"""Timeout of a server's answer, after which it is asked again; hand-overs wait meanwhile."""
_UNCONFIGURED: Final = "failed to configure policy"
"""Error of a server for up to 30 seconds after its start, until it knows our CRDs: its policy refuses nothing yet."""
_NO_HAND_OVER: Final = "none"
"""An id that no hand-over has: ids are UIDs of pods, or names with a UID."""


class ApiServers:
    """All API servers that may receive bindings. `confirmed` queries without waiting; a later call has the answers."""

    def __init__(self, client: KubeClient, urls: Sequence[str]) -> None:
        """Connect to the servers at these URLs, such as https://10.0.0.5:6443; without URLs no server is asked."""
        patience = msgspec.structs.replace(client.settings, timeout_seconds=ANSWER_SECONDS, retries=0)
        self._servers = {url: _ApiServer(Writer(client.at(url, patience), FIELD_MANAGER)) for url in urls}

    def confirmed(self, ids: Iterable[str]) -> frozenset[str]:
        """Return which hand-overs (by id) every server is known to have, and ask the servers about the others."""
        swap_ids = frozenset(ids)
        return swap_ids.intersection(*(server.confirmed(swap_ids) for server in self._servers.values()))

    @property
    def problems(self) -> dict[str, str]:
        """Errors of the servers that could not answer, by URL; until they do, no hand-over continues."""
        return {url: server.problem for url, server in self._servers.items() if server.problem}


class _ApiServer:
    """One API server; one query at a time runs in its own thread, so that a slow answer blocks nothing else."""

    def __init__(self, writer: Writer) -> None:
        self.problem = ""
        self._writer = writer
        self._confirmed: frozenset[str] = frozenset()
        self._asking = False
        self._lock = threading.Lock()

    def confirmed(self, swap_ids: frozenset[str]) -> frozenset[str]:
        """Return which of these hand-overs the server is known to have, and ask it about the others.

        Hand-overs that are not among `swap_ids` are over, and are forgotten.
        """
        with self._lock:
            self._confirmed &= swap_ids
            open_ids = sorted(swap_ids - self._confirmed)
            if open_ids and not self._asking:
                self._asking = True
                threading.Thread(target=self._ask, args=(open_ids,), name="api-server", daemon=True).start()
            return self._confirmed

    def _ask(self, ids: Sequence[str]) -> None:
        """Ask the server whether it has all of these hand-overs, and record the answer.

        A server that refuses the connection counts as having them: no binding can reach it.
        """
        confirmed: frozenset[str] = frozenset()
        problem = ""
        try:
            if not self._refuses(_NO_HAND_OVER):
                problem = f"this API server does not enforce the policy {POLICY}: apply what `cotenant install` prints."
            elif not self._refuses(*ids):
                confirmed = frozenset(ids)
        except ClusterError as error:
            if isinstance(error.__cause__, ConnectionRefusedError):
                confirmed = frozenset(ids)
            else:
                problem = error.message
        finally:
            with self._lock:
                self._confirmed |= confirmed
                self.problem, self._asking = problem, False

    def _refuses(self, *ids: str) -> bool:
        """Return whether the server lacks any of these hand-overs; ClusterError if another error than the policy's."""
        value = {KNOWN_SWAPS_ANNOTATION: ",".join(ids)}
        try:
            question = Patch(ADDRESS, ({"op": "add", "path": "/metadata/annotations", "value": value},))
            self._writer.send(question, dry_run=True)
        except ClusterInvalid as error:
            if POLICY in error.message and _UNCONFIGURED not in error.message:
                return True
            raise
        return False
