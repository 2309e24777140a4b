"""EDGE: send a feature's writes under the Lease: test each kind of right with few writes first, send no write twice.

A write that the mirror does not show yet would be decided again; it is held back until the object's change arrives, or
for `SEEN_SECONDS`. An object that the server refused, or at which it failed, is not written for a growing time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, Protocol

from cotenant.base.controllers.contract import FIELD_MANAGER
from cotenant.base.errors import (
    ClusterAbsent,
    ClusterDenied,
    ClusterError,
    ClusterForbidden,
    ClusterInvalid,
    ClusterNamespaceGone,
    ClusterObjectGone,
    ClusterUnreachable,
    NotLeader,
)
from cotenant.base.kube import KubeClient, WriteConnections
from cotenant.base.kubernetes.intent import Address, Apply, Create, Delete, Intent, Outcome, Patch

Place = tuple[Address, str]
"""An object and the subresource that is written."""

SEEN_SECONDS: Final = 30.0
FIRST_REFUSAL_SECONDS: Final = 30.0
"""Time for which an object that the server refused is not written; it doubles with each further refusal."""
FIRST_MOMENTARY_SECONDS: Final = 1.0
"""The same after a refusal that may be temporary: of a patch whose `test` failed because somebody wrote in between, or
by a policy or webhook that does not know the object yet. A hand-over has 15 s."""
LONGEST_REFUSAL_SECONDS: Final = 3600.0
LONGEST_FAULT_SECONDS: Final = 60.0
"""The longest such time after an error of the server (5xx), which may be that of a webhook and may end at any time."""
WITHOUT_RIGHT: Final = (ClusterForbidden, ClusterAbsent)
"""Errors that the other intents of the kind would meet as well, unless only this object is gone."""
PROBES: Final = 2
"""Number of writes of a kind that are tried before its right counts as missing: rights may exist in some namespaces
only, and a proxy may word the refusal of one object like a missing right."""
LASTING: Final = (ClusterInvalid, ClusterNamespaceGone, ClusterObjectGone)
"""Errors that the server would return for this object again."""
ENDING: Final = (NotLeader, ClusterUnreachable)
"""Errors that all other intents would meet as well."""


class Leadership(Protocol):
    """The right to write, which a Lease gives to one process."""

    @property
    def is_leading(self) -> bool:
        """True if this process leads, as far as it knows."""

    @property
    def description(self) -> str:
        """A sentence that names the current leader, or the reason why it is not known."""

    def require(self) -> None:
        """Raise NotLeader unless this process leads now."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    """The time until which an object is not written, the number of earlier refusals, and the last error."""

    until: float
    times: int
    error: Exception


def write_target(intent: Intent) -> Place:
    """Return the address and subresource of the object that is written."""
    return intent.address, "" if isinstance(intent, Delete) else intent.subresource


class Sender:
    """Sends the writes of one feature, in one thread; `now` returns monotonic seconds."""

    def __init__(
        self,
        client: KubeClient,
        leadership: Leadership,
        now: Callable[[], float],
        mirrored: bool = True,
        listed: frozenset[str] = frozenset(),
    ) -> None:
        """Create a sender; nothing is sent yet.

        `mirrored` is true if a mirror reads back what is written; otherwise the feature remembers it. `listed` are
        resources that the feature lists again for each decision.
        """
        self._mirrored, self._listed = mirrored, listed
        self._connections = WriteConnections(client, FIELD_MANAGER, leadership.require)
        self._now = now
        self._awaited: dict[Place, float] = {}
        self._refused: dict[Place, _Refusal] = {}
        self._forbidden: dict[Place, float] = {}
        """Time at which a right was last found missing, by object and subresource."""
        self._unmade: dict[Place, Exception] = {}

    def seen(self, collection: str, keys: Iterable[tuple[str, str]]) -> None:
        """Stop holding back writes to these objects: their changes have arrived, so the next decision sees them."""
        if self._awaited:
            key_set = set(keys)
            self._awaited = {
                place: until
                for place, until in self._awaited.items()
                if not (_is_mirrored(place[0], collection) and (place[0].namespace, place[0].name) in key_set)
            }

    def due(self, intents: Sequence[Intent]) -> list[Intent]:
        """Return the writes to send now: those neither held back nor recently refused; forget old refusals."""
        now = self._now()
        self._awaited = {place: until for place, until in self._awaited.items() if until > now}
        self._refused = {p: r for p, r in self._refused.items() if now - r.until < LONGEST_REFUSAL_SECONDS}
        self._forbidden = {p: at for p, at in self._forbidden.items() if now - at < LONGEST_REFUSAL_SECONDS}
        blocked = self._awaited.keys() | {place for place, refusal in self._refused.items() if refusal.until > now}
        return [intent for intent in intents if write_target(intent) not in blocked]

    def refusal(self, intents: Sequence[Intent]) -> Exception | None:
        """Return the error of the first of these writes that the server refused when it was last sent, or None."""
        return next((self._refused[p].error for p in map(write_target, intents) if p in self._refused), None)

    def unmade(self, intents: Sequence[Intent]) -> dict[str, Exception]:
        """Return the errors of the writes that failed, by the object on whose behalf each was to be made (`asker`)."""
        askers = {write_target(i): i.asker for i in intents if isinstance(i, Apply | Create) and i.asker}
        self._unmade = {place: error for place, error in self._unmade.items() if place in askers}
        return {askers[place]: error for place, error in self._unmade.items()}

    def send(self, intents: Sequence[Intent], seconds: float | None = None) -> list[Outcome]:
        """Send the writes and return an outcome for each that was tried; the others wait for the next decision.

        The writes of one (resource, subresource) need the same right. They are sent one by one until one succeeds or
        has another error than a missing right: the rest is then sent at once, for at most `seconds`. The rest is not
        tried after `PROBES` errors for a missing right, or one for a missing kind. A missing namespace proves neither.
        A lost Lease or a server that does not respond ends everything.
        """
        outcomes: list[Outcome] = []
        # Group intents by the target of a right: API version, resource and subresource, in order of appearance
        groups: dict[tuple[str, str, str], list[Intent]] = {}
        for intent in intents:
            address, subresource = write_target(intent)
            groups.setdefault((address.api_version, address.resource, subresource), []).append(intent)
        later = list(groups.values())
        while later:
            probed, rest = self._probe(later.pop(0))
            outcomes += probed
            error = probed[-1].error
            if isinstance(error, ClusterUnreachable):
                rest += chain.from_iterable(later)
            if isinstance(error, (ClusterUnreachable, *WITHOUT_RIGHT)):
                self._unmade |= {write_target(intent): error for intent in rest}
            if isinstance(error, ENDING):
                break
            if isinstance(error, ClusterObjectGone) or not isinstance(error, WITHOUT_RIGHT):
                outcomes += self._batch(rest, seconds)
        return outcomes

    def close(self) -> None:
        """Close the connections; a later write opens new ones."""
        self._connections.close()

    def _probe(self, group: Sequence[Intent]) -> tuple[list[Outcome], list[Intent]]:
        """Send one by one until it is known whether the right exists; return the outcomes and the remaining intents."""
        rest = sorted(group, key=lambda intent: self._forbidden.get(write_target(intent), 0.0))
        outcomes: list[Outcome] = []
        missing = 0
        while rest and missing < PROBES:
            outcomes += self._batch(rest[:1])
            error, namespace, rest = outcomes[-1].error, rest[0].address.namespace, rest[1:]
            others = [intent for intent in rest if intent.address.namespace != namespace]
            if isinstance(error, ClusterNamespaceGone):
                self._unmade |= {write_target(i): error for i in rest if i.address.namespace == namespace}
                rest = others
            elif isinstance(error, ClusterForbidden) and error.status is not None:  # not 401, which concerns all
                missing += 1
                rest = others + [intent for intent in rest if intent.address.namespace == namespace]
            else:
                break
        return outcomes, rest

    def _batch(self, intents: Sequence[Intent], seconds: float | None = None) -> list[Outcome]:
        outcomes = self._connections.send(intents, seconds=seconds)
        now = self._now()
        for outcome in outcomes:
            place = write_target(outcome.intent)
            if outcome.error is not None and not isinstance(outcome.error, NotLeader):
                self._unmade[place] = outcome.error
            if outcome.ok:
                self._unmade.pop(place, None)
                if self._mirrored and place[0].resource not in self._listed:
                    self._awaited[place] = now + SEEN_SECONDS
                self._refused.pop(place, None)
                self._forbidden.pop(place, None)
            elif isinstance(outcome.error, ClusterForbidden):
                self._forbidden[place] = now
            elif isinstance(error := outcome.error, ClusterError) and (
                isinstance(error, LASTING) or (error.status or 0) >= 500
            ):
                fault = not isinstance(error, LASTING)
                times = self._refused[place].times + 1 if place in self._refused else 0
                operations = outcome.intent.operations if isinstance(outcome.intent, Patch) else ()
                tested = any(change["op"] == "test" for change in operations)
                momentary = fault or tested or isinstance(error, ClusterDenied)
                first = FIRST_MOMENTARY_SECONDS if momentary else FIRST_REFUSAL_SECONDS
                longest = LONGEST_FAULT_SECONDS if fault else LONGEST_REFUSAL_SECONDS
                until = now + min(first * 2.0 ** min(times, 20), longest)
                self._refused[place] = _Refusal(until, times, error)
        return outcomes


def _is_mirrored(address: Address, collection: str) -> bool:
    """Return whether a mirror of `collection` shows the object; a namespaced kind is mirrored for all namespaces."""
    everywhere = Address(address.api_version, address.resource, address.name)
    return collection in (address.collection, everywhere.collection)
