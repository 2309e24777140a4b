"""Rows of the queue report: per quota and resource, per waiting pod, per gang. Pure.

Command line, REST and the page Queues show the same rows. Amounts: cpu in millicores, others in their unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class GangState(StrEnum):
    """The state of a gang: what it waits for, or how far its placement is."""

    INVALID = "Invalid"
    INCOMPLETE = "Incomplete"
    """Fewer members exist than must be placed together."""
    WAITS_FOR_QUOTA = "WaitsForQuota"
    QUEUED = "Queued"
    """It could be placed, but another gang is ahead, or it backs off after a failed attempt."""
    NO_CAPACITY = "NoRoom"
    """It does not fit now, or not even on empty nodes; the reason says which of these, and what is short."""
    PLACING = "Placing"
    """Its capacity is being reserved member by member; none of its pods runs yet."""
    SCHEDULING = "Scheduling"
    """It is left to Kubernetes' gang scheduling, which has not placed it yet."""
    OPENING = "Opening"
    """All of its capacity is reserved and is being handed over."""
    RUNNING = "Running"
    TIMED_OUT = "TimedOut"


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """The report row of one quota and resource.

    `depth` is 0 right below the root. `borrowed` is use above the guarantee (min), `lent` the guarantee that others may
    use now. `over_since_seconds` and `borrows_since_seconds` are Unix times since which use exceeds runtime or min;
    None if it does not, or if not recorded. `problem` is that of the quota, or "". `namespaces` are those whose pods
    count against the quota or one below it, and those bound to it; only a person who may read all of them sees the row.
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
    """The report row of a pod that a gate of cotenant keeps waiting.

    `gang` is "namespace/name", or "". `position` is in the queue of the quota or of gangs, from 1. `code` is a reason
    of `cotenant.base.reasons`. `missing` is the amount of the resource that the pod lacks. `holders` are (quota,
    amount) of quotas that use more than their guarantee, the largest first. `likely_seconds` is the Unix time at which
    it is likely to be admitted, None if unknown, and `likely_basis` the source of that estimate.
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
    """The row of a gang: the number of pods that exist (`members`) and that are bound or have capacity (`placed`)."""

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
    """All rows at one Unix time. `problems` are (object, problem) of objects that could not be used.

    `narrowed` is True if the report is limited to the namespaces that its reader may read.
    """

    at_seconds: float
    quotas: tuple[QuotaRow, ...] = ()
    waiting: tuple[WaitingPodRow, ...] = ()
    gangs: tuple[GangRow, ...] = ()
    problems: tuple[tuple[str, str], ...] = ()
    narrowed: bool = False
