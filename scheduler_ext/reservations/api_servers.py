"""EDGE: the API servers of the control plane: which hand-overs each of them knows.

The guard of hand-overs is judged by the API server that a binding reaches, by its own copy of the SwapGuard, and one
server's copy may be older than another's. The question is the dry run of a patch that carries the ids of hand-overs:
the policy `cotenant-reservation-known` refuses it where the copy that the guard reads lacks one of them. A hand-over
that nobody has is asked for first: a server that lets this pass has no such policy (yet), and its yes means nothing.
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
"""A server that takes longer is asked again; hand-overs wait meanwhile."""
_UNCONFIGURED: Final = "failed to configure policy"
"""What a server says for up to 30 seconds after its start, until it knows our CRDs: its guard refuses nothing yet."""
_NO_HAND_OVER: Final = "none"
"""The id of no hand-over: ids are UIDs of pods, or names with a UID."""


class ApiServers:
    """All API servers that bindings may reach. Nobody waits for an answer: the next look has it."""

    def __init__(self, client: KubeClient, urls: Sequence[str]) -> None:
        """urls: addresses as https://10.0.0.5:6443; none: nobody is asked."""
        patience = msgspec.structs.replace(client.settings, timeout_seconds=ANSWER_SECONDS, retries=0)
        self._servers = {url: _ApiServer(Writer(client.at(url, patience), FIELD_MANAGER)) for url in urls}

    def confirmed(self, ids: Iterable[str]) -> frozenset[str]:
        """Return the subset of these hand-overs that every server is known to know; asks servers about the others."""
        swap_ids = frozenset(ids)
        return swap_ids.intersection(*(server.confirmed(swap_ids) for server in self._servers.values()))

    @property
    def problems(self) -> dict[str, str]:
        """Why a server could not say, by URL: hand-overs wait for it."""
        return {url: server.problem for url, server in self._servers.items() if server.problem}


class _ApiServer:
    """One API server, asked one question at a time in a thread of its own: a slow answer holds nothing else up."""

    def __init__(self, writer: Writer) -> None:
        self.problem = ""
        self._writer = writer
        self._confirmed: frozenset[str] = frozenset()
        self._asking = False
        self._lock = threading.Lock()

    def confirmed(self, swap_ids: frozenset[str]) -> frozenset[str]:
        """Return the subset of these hand-overs that the server is known to know; asks it about the others.

        Confirmed hand-overs that are not among these, because they are over, are forgotten.
        """
        with self._lock:
            self._confirmed &= swap_ids
            open_ids = sorted(swap_ids - self._confirmed)
            if open_ids and not self._asking:
                self._asking = True
                threading.Thread(target=self._ask, args=(open_ids,), name="api-server", daemon=True).start()
            return self._confirmed

    def _ask(self, ids: Sequence[str]) -> None:
        """Ask the server whether it knows all of these, and record the answer.

        A server that refuses the connection counts as knowing them: where none listens, none lets a binding through.
        """
        confirmed: frozenset[str] = frozenset()
        problem = ""
        try:
            if not self._refuses(_NO_HAND_OVER):
                problem = f"the policy {POLICY} has no effect there: apply what `cotenant install` prints."
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
        """Return whether the server's copy lacks any of these; ClusterError where the answer is not the policy's."""
        value = {KNOWN_SWAPS_ANNOTATION: ",".join(ids)}
        try:
            question = Patch(ADDRESS, ({"op": "add", "path": "/metadata/annotations", "value": value},))
            self._writer.send(question, dry_run=True)
        except ClusterInvalid as error:
            if POLICY in error.message and _UNCONFIGURED not in error.message:
                return True
            raise
        return False
