"""What the invariant checker reads and reports: frozen records, each with the moment at which its writer wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Json = Mapping[str, Any]

ACCOUNTS: Final = "system:serviceaccount:cotenant:cotenant-"
MANAGER: Final = f"{ACCOUNTS}manager"
NODE_AGENT: Final = f"{ACCOUNTS}enforcer"


@dataclass(frozen=True, slots=True)
class ApiWrite:
    """A write that the API server carried out, as its audit log has it; refusals and dry runs are not among them.

    asked_seconds, answered_seconds: Unix time of the request and of its answer, by the API server's own clock: what the
    write changed, changed between the two. credential: what tells two holders of one account apart, "" = nothing does.
    sent: body of the request; stored: the object afterwards, empty where the answer was only a Status.
    """

    asked_seconds: float
    answered_seconds: float
    account: str
    credential: str
    verb: str
    resource: str
    """Plural, with its subresource: "pods", "pods/binding"."""
    namespace: str
    name: str
    sent: Json = field(default_factory=dict)
    stored: Json = field(default_factory=dict)

    @property
    def where(self) -> str:
        """The object in words: resource, namespace and name."""
        return " ".join(part for part in (self.resource, f"{self.namespace}/{self.name}".lstrip("/")) if part)


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A row of the ledger: its event, the change that it is about, who wrote it, Unix time."""

    seconds: float
    event: str
    subject: str
    actor: str = ""


@dataclass(frozen=True, slots=True)
class CgroupValue:
    """A value that a node agent set, by its notes or its action log, and what the file says after the end.

    present: None where the cgroup is gone, or nobody read it.
    """

    node: str
    path: str
    knob: str
    original: str
    written: tuple[str, ...]
    present: str | None
    noted: bool = True
    """False: known from the action log alone, the notes have forgotten it."""


@dataclass(frozen=True, slots=True)
class Recording:
    """Everything that was written down of one run, in the order of the answers; `end_seconds`: Unix time of its end."""

    writes: tuple[ApiWrite, ...] = ()
    ledger: tuple[LedgerEntry, ...] = ()
    cgroups: tuple[CgroupValue, ...] = ()
    end_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long things may last; each number is a setting or a constant of the product with the patience of a reader.

    gate_seconds: by scheduling gate (`reservations.gate_seconds`, 60 s, and as long again for a manager that comes back
    and for the webhook, which lifts gates of a manager that is gone); a gate that is missing here has no limit: who
    waits for a quota waits for its turn. quota_delay_seconds: `queues.delay_evict_seconds` with one minute for the
    evictions; None where nothing is taken back (`queues.revoke` off).
    """

    gate_seconds: Mapping[str, float] = field(default_factory=lambda: {"cotenant.dev/reservation": 120.0})
    quota_delay_seconds: float | None = 180.0
    outcome_seconds: float = 30.0
    """Longest that an accepted change may be without an outcome: as long as a restart may take to settle it."""
    view_seconds: float = 30.0
    """Age of what a decision was based on: of a write, what stood within so many seconds before may have been seen. A
    busy machine takes its time between a look and a write; what is older than this is no excuse."""


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that was broken: its name, since when (Unix time), of what, and a sentence with the numbers."""

    invariant: str
    seconds: float
    subject: str
    why: str
