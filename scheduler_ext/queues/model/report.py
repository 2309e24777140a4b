"""What people read of queues: one row per quota and resource, one row per waiting pod, one row per gang. Pure.

The command line, REST and the page Queues show the same rows. Amounts: cpu in millicores, others in their own unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class GangState(StrEnum):
    """The state of a gang."""

    INVALID = "Invalid"
    INCOMPLETE = "Incomplete"
    """Fewer members exist than must be placed together."""
    WAITS_FOR_QUOTA = "WaitsForQuota"
    QUEUED = "Queued"
    """It could be placed; another gang is ahead, or it backs off after a failed attempt."""
    NO_CAPACITY = "NoRoom"
    """It cannot fit now, or not even on empty nodes: the reason says which, with the shortage."""
    PLACING = "Placing"
    """Its capacity is being reserved, piece by piece; nothing of it runs yet."""
    SCHEDULING = "Scheduling"
    """Kubernetes' own gang scheduling has it and has not placed it yet."""
    OPENING = "Opening"
    """All of its capacity is reserved and is being handed over."""
    RUNNING = "Running"
    TIMED_OUT = "TimedOut"


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """One quota and one resource.

    depth: 0 below the root. borrowed: use above the guarantee (min). lent: guarantee that others may use now.
    over_since_seconds, borrows_since_seconds: Unix time since which use exceeds runtime, or the min; None when it does
    not, or nobody has noted it. problem: of the quota, or "". namespaces: whose pods count against it or a quota below
    it, and those that it is bound to: who does not read all of them does not see it.
    """

    tree: str
    quota: str
    parent: str
    depth: int
    resource: str
    minimum: int
    maximum: int | None
    weight: int
    runtime: int
    request: int
    used: int
    borrowed: int
    lent: int
    waiting_pods: int = 0
    over_since_seconds: float | None = None
    borrows_since_seconds: float | None = None
    problem: str = ""
    namespaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WaitingPodRow:
    """A pod that waits behind a gate of ours, and why.

    gang: "namespace/name" of its gang, or "". position: in its quota's or the gangs' queue, from 1. code: a reason of
    `cotenant.base.reasons`. missing: what the resource lacks for it. holders: who uses it beyond their own
    guarantee, the largest first, as (quota, amount). likely_seconds: Unix time at which it is likely to be let go,
    None where nothing says so; likely_basis: what says so.
    """

    namespace: str
    pod: str
    quota: str
    gang: str
    since_seconds: float
    position: int
    code: str
    reason: str
    blocking_quota: str = ""
    resource: str = ""
    requested: int = 0
    missing: int = 0
    holders: tuple[tuple[str, int], ...] = ()
    likely_seconds: float | None = None
    likely_basis: str = ""


@dataclass(frozen=True, slots=True)
class GangRow:
    """A gang and its state. members: pods there are; placed: bound or reserved; placed_by: by whom."""

    namespace: str
    gang: str
    quota: str
    state: GangState
    members: int
    placed: int
    min_available: int
    total: int
    since_seconds: float
    reason: str = ""
    placed_by: str = "cotenant"


@dataclass(frozen=True, slots=True)
class QueueReport:
    """All of it at one moment. problems: (object, what is wrong with it), of what could not be used.

    narrowed: it is of some namespaces alone, those that its reader reads.
    """

    at_seconds: float
    quotas: tuple[QuotaRow, ...] = ()
    waiting: tuple[WaitingPodRow, ...] = ()
    gangs: tuple[GangRow, ...] = ()
    problems: tuple[tuple[str, str], ...] = ()
    narrowed: bool = False
