"""EDGE: the prepared claims of a node, saved before a device is used, and their CDI files for the runtime.

One JSON file in the agent's folder is replaced as a whole before a CDI file is written and after one is deleted, so
that a kubelet or an agent that restarts finds the same devices with the same claims. Each CDI file contains its claim,
so a lost JSON file is restored from them; if they are lost too, the kubelet requests each claim again when it starts.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec
import structlog

from cotenant.base.allocation.cpu_topology import Cpus
from cotenant.base.errors import StoreError
from cotenant.base.process.files import replace_atomically
from cotenant.enforcer.apply.atomic_write import UNUSABLE, set_aside
from cotenant.enforcer.dra.claim import ClaimRefused, ClaimWire, PreparedClaim, cdi_spec, claim_in, prepare_claim
from cotenant.enforcer.dra.offer import DRIVER, OfferedDevice

NOTE: Final = "claims.json"
_PREFIX: Final = f"{DRIVER}-claim-"
_log = structlog.get_logger(__name__)


class _Note(msgspec.Struct):
    claims: list[PreparedClaim]
    version: int = 1


class Claims:
    """The ResourceClaims that are prepared on one node; thread-safe."""

    def __init__(self, folder: Path, cdi_folder: Path, node: str, read: Callable[[str, str], ClaimWire | None]) -> None:
        """Load the saved claims or raise StoreError; `read` gets a claim by namespace and name from the API server."""
        self.offers: Mapping[str, OfferedDevice] | None = None
        """Devices that the node offers now, by name; None until they have been read."""
        self._note, self._cdi, self._node, self._read = folder / NOTE, cdi_folder, node, read
        self._lock = threading.Lock()
        self._claims: dict[str, PreparedClaim] = {claim.uid: claim for claim in self._noted_claims()}
        for claim in self._claims.values():  # a machine that booted has no files
            self._write(claim)

    @property
    def count(self) -> int:
        """The number of prepared claims."""
        return len(self._claims)

    def devices(self) -> set[str]:
        """Return the names of the claims' exclusive devices; wait for a claim that is being prepared."""
        with self._lock:
            return {device for claim in self._claims.values() for device in claim.exclusive}

    def prepare(self, namespace: str, name: str, uid: str) -> PreparedClaim:
        """Prepare a claim, or return the prepared one; raise ClaimRefused, ClusterError or StoreError on failure."""
        with self._lock:
            claim = self._claims.get(uid)
            if claim is None:
                if self.offers is None:
                    raise ClaimRefused("the node's devices have not been read yet", fix="Wait: the kubelet retries.")
                claim_object = self._read(namespace, name)
                if claim_object is None or claim_object.metadata.uid != uid:
                    what = f"claim {namespace}/{name} with uid {uid} does not exist any more"
                    raise ClaimRefused(what, fix="Delete the pod of that claim.")
                claim = prepare_claim(claim_object, self._node, self.offers, self._claims.values())
                self._save({**self._claims, uid: claim})
                _log.info("claim prepared", claim=f"{namespace}/{name}", devices=sorted(claim.exclusive))
            self._write(claim)
            return claim

    def unprepare(self, uid: str) -> None:
        """Release a claim's devices; do nothing if it is not prepared. Raise StoreError if that cannot be saved."""
        with self._lock:
            claim = self._claims.get(uid)
            self._file(uid).unlink(missing_ok=True)
            if claim is not None:
                self._save({key: claim for key, claim in self._claims.items() if key != uid})
                _log.info("claim unprepared", claim=f"{claim.namespace}/{claim.name}")

    def cpus_of(self, namespace: str, keys: Iterable[str]) -> Cpus:
        """Return the CPUs of these requests (`claim.request_key`) of claims in the namespace.

        The keys come from a container's variables, which anybody may write: what a pod gets by a variable, it could
        also get by naming the claim, which Kubernetes allows only within the claim's namespace.
        """
        own = (claim for claim in self._claims.values() if claim.namespace == namespace)
        by_key = {key: cpus for claim in own for key, cpus in claim.cpus().items()}
        return frozenset[int]().union(*(by_key.get(key, frozenset()) for key in keys))

    # --- files --------------------------------------------------------------------------------------------------------
    def _noted_claims(self) -> list[PreparedClaim]:
        try:
            return msgspec.json.decode(self._note.read_bytes(), type=_Note).claims
        except UNUSABLE as bad:
            if not isinstance(bad, FileNotFoundError):
                _log.warning("prepared claims are read from the CDI files instead", problem=set_aside(self._note, bad))
            return list(self._claims_of_files())

    def _claims_of_files(self) -> Iterator[PreparedClaim]:
        """Yield the claims of CDI files; an unreadable file stays, because a running pod may need it."""
        for file in sorted(self._cdi.glob(f"{_PREFIX}*.json")):
            try:
                yield claim_in(file.read_bytes())
            except UNUSABLE as bad:
                _log.warning("claim unknown until the kubelet prepares it", file=str(file), problem=str(bad))

    def _save(self, claims: dict[str, PreparedClaim]) -> None:
        self._replace(self._note, msgspec.json.encode(_Note(list(claims.values()))))
        self._claims = claims

    def _write(self, claim: PreparedClaim) -> None:
        """Write the CDI file of a claim, unless the file has this content already."""
        text, file = msgspec.json.encode(cdi_spec(claim)), self._file(claim.uid)
        with contextlib.suppress(OSError):
            if file.read_bytes() == text:
                return
        if claim.requests:
            self._replace(file, text)

    def _file(self, uid: str) -> Path:
        return self._cdi / f"{_PREFIX}{uid}.json"

    def _replace(self, file: Path, text: bytes) -> None:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            replace_atomically(file, text)
        except OSError as refused:
            raise StoreError(
                f"{file}: prepared claims cannot be recorded: {refused.strerror}",
                fix="Give the agent the right to write enforcer.state_dir and enforcer.dra.cdi_dir.",
            ) from None
