"""EDGE: send intents: server-side apply, JSON patch with `test`, delete, create. There are no other writes.

After a broken connection an apply and a delete are retried, because doing them twice has the same result. A JSON patch
and a create are not: a patch's own `test` would refuse the second try, a create would find its object, and success
would be reported as failure; the error says that the outcome is unknown, and the caller reads the object again. A busy
server (429, 503) has done nothing, so every intent is retried after Retry-After.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import urlencode

import msgspec

from cotenant.base.errors import (
    ClusterAbsent,
    ClusterDenied,
    ClusterError,
    ClusterInvalid,
    ClusterObjectGone,
    ClusterUnreachable,
    CotenantError,
    NotLeader,
)
from cotenant.base.json_documents.json_decoders import UNDECODABLE, decoder_of
from cotenant.base.kube.client import KubeClient, refusal
from cotenant.base.kube.connection import ApiRequest
from cotenant.base.kubernetes.intent import Create, Delete, Intent, Outcome, Patch

WRITE_CONNECTIONS: Final = 8
"""Number of connections over which objects are written at the same time: fewer than API Priority and Fairness allows
one client, so that others are not delayed."""

IntentT = TypeVar("IntentT", bound=Intent)
Json: TypeAlias = dict[str, Any]

APPLY_TYPE: Final = "application/apply-patch+yaml"
PATCH_TYPE: Final = "application/json-patch+json"
METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
_VERBS: Final[dict[type, str]] = {Delete: "delete", Create: "create"}
_ENDING: Final = (NotLeader, ClusterUnreachable)
"""After one of these the others would fail alike, each after all its tries."""


class _WrittenMeta(msgspec.Struct, rename="camel", omit_defaults=True):
    name: str = ""  # an eviction and a binding are answered by a Status, which has none
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0


class _Headed(msgspec.Struct):
    metadata: _WrittenMeta


def no_lease_required() -> None:
    """Permit every write; given as the `guard` of a writer that needs no Lease."""


class Writer:
    """A sender of single writes (Apply, Patch, Delete, Create) under the name of one field manager; for one thread.

    `guard` is called before each try, with the connection open; if it raises NotLeader, nothing is sent. `cap_bytes` is
    the size of the largest body that is sent, by default that of the settings (an installer's CRDs are larger).
    """

    def __init__(
        self,
        client: KubeClient,
        field_manager: str,
        guard: Callable[[], None] = no_lease_required,
        cap_bytes: int | None = None,
    ) -> None:
        self.client = client
        self.field_manager = field_manager
        self._guard = guard
        self._cap_bytes = client.settings.body_cap_bytes if cap_bytes is None else cap_bytes

    def send(self, intent: Intent, dry_run: bool = False, full_response: bool = True) -> Json:
        """Make a write and return the object as the server then has it; {} for an object that is deleted or gone.

        With `full_response` false, only `metadata` is returned: name, namespace, uid, resourceVersion and generation.
        Raise ClusterConflict (409: re-read and re-decide, a bounded number of times), ClusterInvalid (400, 413, 422),
        ClusterDenied (403: a rule refuses this object), ClusterAbsent (404), ClusterForbidden (401, 403: a missing
        right), ClusterUnreachable, NotLeader, or ClusterError.
        """
        request = request_of(intent, self.field_manager, dry_run)
        if not full_response and not isinstance(intent, Delete):
            request = replace(request, accept=METADATA)
        if len(request.body) > self._cap_bytes:
            raise ClusterInvalid(
                f"{intent.address} has {len(request.body)} bytes, more than the limit of {self._cap_bytes}",
                fix="Nothing was sent. Shorten the object.",
            )
        verb = _VERBS.get(type(intent), "patch")
        again = not isinstance(intent, Patch | Create)
        try:
            answer = self.client.request(verb, request, repeatable=again, before=self._guard)
        except ClusterDenied as error:
            # The same refusal in words that name the object: the server's own need not.
            named_error = ClusterDenied(f"cannot {verb} {intent.address}: {error.answer}", fix=error.fix)
            named_error.status, named_error.answer = error.status, error.answer
            named_error.retry_after_seconds = error.retry_after_seconds
            raise named_error from error
        if isinstance(intent, Delete) and answer.status in (200, 202, 404):
            return {}
        if answer.status not in (200, 201):
            fix_error = refusal(f"{verb} {intent.address}", answer)
            if isinstance(fix_error, ClusterObjectGone):
                fix_error.fix = "The object was deleted meanwhile."
            elif isinstance(fix_error, ClusterAbsent):
                fix_error.fix = "Check that its CRD is installed (`cotenant install --print`) and its namespace exists."
            raise fix_error
        try:
            if full_response:
                return decoder_of(Json).decode(answer.body)
            return dict(msgspec.to_builtins(decoder_of(_Headed).decode(answer.body)))
        except UNDECODABLE as error:
            raise ClusterError(f"{verb} {intent.address}: written, but the answer is not JSON: {error}") from error


def request_of(intent: Intent, field_manager: str, dry_run: bool = False) -> ApiRequest:
    """Return the HTTP request that makes this write under the field manager's name. Pure."""
    path, content_type = intent.address.path, "application/json"
    parameters = {"dryRun": "All"} if dry_run else {}
    body: Any
    if isinstance(intent, Delete):
        demanded = {"uid": intent.uid, "resourceVersion": intent.version}
        preconditions = {name: value for name, value in demanded.items() if value}
        method, body = "DELETE", {"preconditions": preconditions} if preconditions else {}
        body |= {} if intent.grace_seconds is None else {"gracePeriodSeconds": intent.grace_seconds}
    else:
        parameters |= {"fieldManager": field_manager, "fieldValidation": "Strict"}
        if intent.subresource:
            path += f"/{intent.subresource}"
        if isinstance(intent, Create):
            path = path if intent.subresource else intent.address.collection
            method, body = "POST", intent.body
        elif isinstance(intent, Patch):
            method, body, content_type = "PATCH", intent.operations, PATCH_TYPE
        else:
            parameters |= {"force": "true" if intent.force else "false"}
            method, body, content_type = "PATCH", intent.body, APPLY_TYPE
    query = f"?{urlencode(parameters)}" if parameters else ""
    return ApiRequest(path + query, method, msgspec.json.encode(body), content_type)


def send_all(
    client: KubeClient,
    intents: Sequence[IntentT],
    field_manager: str,
    guard: Callable[[], None] = no_lease_required,
    workers: int | None = None,
    dry_run: bool = False,
) -> list[Outcome]:
    """Send several writes at once over temporary connections; return the outcomes in the order of the writes."""
    with closing(WriteConnections(client, field_manager, guard, workers)) as connections:
        return connections.send(intents, dry_run)


class WriteConnections:
    """Several connections for writes, kept from one batch to the next: a TLS handshake costs more than a small write.

    For one thread. Each of the `workers` (default WRITE_CONNECTIONS) gets a sibling of the client.
    """

    def __init__(
        self,
        client: KubeClient,
        field_manager: str,
        guard: Callable[[], None] = no_lease_required,
        workers: int | None = None,
    ) -> None:
        self._client, self._field_manager, self._guard = client, field_manager, guard
        self._most = WRITE_CONNECTIONS if workers is None else workers
        self._siblings: list[KubeClient] = []

    def send(self, intents: Sequence[IntentT], dry_run: bool = False, seconds: float | None = None) -> list[Outcome]:
        """Send many writes at once; return the outcomes in the order of the writes.

        After `seconds` no further write is sent, but the first always is; a write that was not sent has no outcome. A
        refused write does not stop the others. A lost Lease or an API server that does not respond stops all: writes
        that were not sent get that error. For Kubernetes' own kinds an outcome has only the object's metadata, because
        5,000 complete Nodes would be 500 MiB.
        """
        count = min(self._most, len(intents))
        self._siblings += [self._client.sibling() for _ in range(count - len(self._siblings))]
        batch = _Batch(intents, math.inf if seconds is None else time.monotonic() + seconds)
        writers = [Writer(sibling, self._field_manager, self._guard) for sibling in self._siblings[:count]]
        threads = [
            threading.Thread(target=batch.work, args=(writer, dry_run), name=f"write-{i}")
            for i, writer in enumerate(writers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return batch.outcomes()

    def close(self) -> None:
        """Close the connections; the next batch opens new ones."""
        for sibling in self._siblings:
            sibling.close()
        self._siblings = []


class _Batch:
    """Intents that several threads take and send one by one."""

    def __init__(self, intents: Sequence[Intent], until: float) -> None:
        self._intents, self._until = intents, until
        self._done: list[Outcome | None] = [None] * len(intents)
        self._numbers = iter(range(len(intents)))
        self._lock = threading.Lock()
        self._ended: CotenantError | None = None

    def work(self, writer: Writer, dry_run: bool) -> None:
        """Send intents that no thread has taken yet, until none is left or the batch is stopped."""
        while self._ended is None:
            with self._lock:
                number = next(self._numbers, None)
            if number is None or (number and time.monotonic() >= self._until):
                return
            intent = self._intents[number]
            try:
                outcome = Outcome(intent, writer.send(intent, dry_run, full_response=_is_custom(intent)))
            except CotenantError as error:
                if isinstance(error, _ENDING):
                    self._ended = error
                outcome = Outcome(intent, error=error)
            except Exception as error:  # noqa: BLE001 - a thread's error must reach the caller, and the others go on
                outcome = Outcome(intent, error=error)
            self._done[number] = outcome

    def outcomes(self) -> list[Outcome]:
        """Return an outcome for each intent that was sent, or that the stop kept from being sent."""
        both = zip(self._intents, self._done, strict=True)
        return [done or Outcome(intent, error=self._ended) for intent, done in both if done or self._ended]


def _is_custom(intent: Intent) -> bool:
    """Return whether the intent's kind is defined by a CRD.

    The groups "apps", "" and every "....k8s.io" except "sigs.k8s.io" ones are Kubernetes itself.
    """
    group = intent.address.api_version.rpartition("/")[0]
    return "." in group and (not group.endswith(".k8s.io") or group.endswith(".sigs.k8s.io"))
