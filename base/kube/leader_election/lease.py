"""EDGE: one leader among replicas, by a Lease of coordination.k8s.io written with server-side apply.

Two candidates that find no Lease both apply, each as its own field manager and without force: the second one's
holderIdentity conflicts with the first one's. Every later write carries the version and uid that were read, so it fails
if anybody else wrote in between. `require` is the guard of a `Writer`: it checks the local clock right before each try,
so that a process which slept past its deadline writes nothing when it wakes. A write can only slip through between this
check and the packet's departure; the `transitions` in a record identify even that one.
"""

from __future__ import annotations

import hashlib
import math
import os
import random
import threading
import time
import uuid
from typing import Any, Final

import msgspec

from cotenant.base.errors import ClusterConflict, CotenantError, NotLeader
from cotenant.base.kube.client import KubeClient
from cotenant.base.kube.leader_election.election import (
    ElectionStep,
    Record,
    Sighting,
    move,
    next_transitions,
    update_sighting,
)
from cotenant.base.kube.writes import Writer
from cotenant.base.kubernetes.intent import Address, Apply
from cotenant.base.kubernetes.models.metadata import ObjectIdentity
from cotenant.base.kubernetes.moments import micro_moment
from cotenant.base.process.clock import Clock
from cotenant.base.settings.sections import ManagerSettings

API_VERSION: Final = "coordination.k8s.io/v1"
FIELD_MANAGER: Final = "cotenant-lease"
NEVER: Final = -math.inf


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None


class _LeaseObject(msgspec.Struct):
    metadata: ObjectIdentity = msgspec.field(default_factory=ObjectIdentity)
    spec: _Spec = msgspec.field(default_factory=_Spec)


def boot_seconds() -> float:
    """Return the seconds since boot, by a clock that cannot be set and that counts suspended time."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def fresh_identity() -> str:
    """Return a name for this process that no other process has, not even its successor in the same pod."""
    return f"{os.uname().nodename[:80]}_{uuid.uuid4()}"


class Lease:
    """A candidate for one Lease; `is_leading`, `require` and `transitions` may be used from any thread.

    `identity` is unique per process (`fresh_identity()`).
    """

    def __init__(
        self, client: KubeClient, namespace: str, name: str, identity: str, settings: ManagerSettings, clock: Clock
    ) -> None:
        self.identity = identity
        self.address = Address(API_VERSION, "leases", name, namespace)
        self.error: CotenantError | None = None
        """The error that the last step met, or None."""
        self.transitions = 0
        """Number of the Lease's transitions when this candidate became leader: the fencing token of its writes."""
        self._settings = settings
        self._clock = clock
        patience = min(client.settings.timeout_seconds, settings.renew_deadline_seconds / 2)
        quick = msgspec.structs.replace(client.settings, timeout_seconds=patience, deadline_seconds=patience, retries=0)
        self._client = client.sibling(quick)
        self._seen: Sighting | None = None
        self._deadline_seconds = NEVER
        self._acquired = ""
        self._stopping, self._taken = threading.Event(), threading.Event()
        self._jitter = random.Random()  # noqa: S311 - spreads tries, guards nothing
        self._thread = threading.Thread(target=self.run, name=f"lease {name}", daemon=True)

    @property
    def is_leading(self) -> bool:
        """True if this process leads now, by its own clock."""
        return boot_seconds() < self._deadline_seconds

    @property
    def description(self) -> str:
        """A sentence that names the current leader, or the reason why it is not known."""
        where, error, sighting = f"Lease {self.address.namespace}/{self.address.name}", self.error, self._seen
        if self.is_leading:
            return f"This replica holds the {where}."
        if error is not None:
            return f"The {where} cannot be acquired: {error.message}. {error.fix}".rstrip()
        record = sighting.record if sighting else None
        if record and record.holder not in ("", self.identity):
            return f"{record.holder} holds the {where}."
        return f"This replica tries to acquire the {where}."

    def require(self) -> None:
        """Raise NotLeader unless this process leads; called right before each write."""
        late = boot_seconds() - self._deadline_seconds
        if late < 0:
            return
        ago = "the Lease is not held by this replica" if late == math.inf else f"the renewal is {late:.1f} s overdue"
        raise NotLeader(f"Lease {self.address.namespace}/{self.address.name}: {ago}; nothing was sent")

    def wait_until_leading(self, timeout_seconds: float) -> bool:
        """Wait until this process leads, or for the timeout; return whether it leads."""
        self._taken.wait(timeout_seconds)
        return self.is_leading

    def start(self) -> None:
        """Start to compete for the Lease in a thread."""
        self._thread.start()

    def run(self) -> None:
        """Acquire and renew the Lease until `stop` is called."""
        while not self._stopping.is_set():
            self.step()
            self._stopping.wait(self._settings.retry_seconds * (1 + 0.2 * self._jitter.random()))

    def stop(self) -> None:
        """Stop leading, then release the Lease so that the next leader need not wait; call it when no writer runs."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(2 * self._client.settings.timeout_seconds + 1)
        led, self._deadline_seconds = self.is_leading, NEVER
        try:
            record = self._read() if led else None
            if record and record.holder == self.identity:
                now = micro_moment(self._clock.now_seconds())
                spec = {"holderIdentity": "", "acquireTime": now, "renewTime": now}
                self._apply({**spec, "leaseTransitions": record.transitions}, record)
        except CotenantError as error:
            self.error = error  # it runs out by itself
        self._client.close()

    def step(self) -> bool:
        """Read the Lease, take the next step, and return whether this process leads; a failure is stored in `error`."""
        begin_seconds = boot_seconds()
        try:
            record, now = self._read(), boot_seconds()
            self._seen = update_sighting(self._seen, record, now, self._settings.lease_seconds, self.is_leading)
            chosen = move(self._seen, self.identity, now)
            if chosen is ElectionStep.WAIT:
                self._deadline_seconds = NEVER
            else:
                self._write(chosen, self._seen, begin_seconds)
            self.error = None
        except ClusterConflict:
            self.error = None  # somebody was faster; the next reading says who
        except CotenantError as error:
            self.error = error
        return self.is_leading

    def _read(self) -> Record | None:
        lease = self._client.get(self.address.path, _LeaseObject)
        if lease is None:
            return None
        spec, meta = lease.spec, lease.metadata
        return Record(
            spec.holder_identity or "",
            float(spec.lease_duration_seconds or 0),
            spec.lease_transitions or 0,
            meta.resource_version,
            meta.uid,
        )

    def _write(self, chosen: ElectionStep, sighting: Sighting, begin_seconds: float) -> None:
        """Create, renew or acquire the Lease; the deadline counts from before it was read."""
        now = micro_moment(self._clock.now_seconds())
        acquired = self._acquired if chosen is ElectionStep.RENEW and self._acquired else now
        transitions = next_transitions(sighting, chosen)
        spec = {"holderIdentity": self.identity, "acquireTime": acquired, "renewTime": now}
        self._apply({**spec, "leaseTransitions": transitions}, sighting.record)
        self._acquired, self.transitions = acquired, transitions
        self._deadline_seconds = begin_seconds + self._settings.renew_deadline_seconds
        self._taken.set()

    def _apply(self, spec: dict[str, Any], record: Record | None) -> None:
        """Write the Lease on condition that it still is `record`, or that there is none."""
        meta = {"name": self.address.name, "namespace": self.address.namespace}
        manager = FIELD_MANAGER
        if record:
            meta |= {"resourceVersion": record.version, "uid": record.uid}
        else:
            manager = f"{FIELD_MANAGER}-{hashlib.sha256(self.identity.encode()).hexdigest()[:16]}"
        spec["leaseDurationSeconds"] = math.ceil(self._settings.lease_seconds)
        body = {"apiVersion": API_VERSION, "kind": "Lease", "metadata": meta, "spec": spec}
        Writer(self._client, manager).send(Apply(self.address, body, force=record is not None))
