"""Invariants of what is given out: node capacity, hardware, reclaimed capacity, quotas. Pure functions over records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Final

from tests.support.invariants.amounts import amounts, total
from tests.support.invariants.lives import Share, hardware, most_offered, offers, shares
from tests.support.invariants.records import ApiWrite, Bounds, Recording, Violation

RUNTIME: Final = "quota.scheduling.koordinator.sh/runtime"
WHOLE: Final = Fraction(1)


def capacity_promised_once(recording: Recording, bounds: Bounds) -> Iterator[Violation]:
    """No capacity is promised twice.

    Whenever a pod is bound to a node, the requests of all pods bound there (placeholders of Reservations among them)
    are at most what the node offered in the last `view_seconds`; no Reservation says that its owners have more than it
    holds; and no pod owns two Reservations at one time. A node that offers less afterwards breaks nothing: that is not
    a promise. Nor is a pod that comes with its node, which nobody was asked about; what it takes counts all the same.
    """
    history = offers(recording.writes)
    for share, sums in _begun(shares(recording.writes)):
        for resource in share.amounts if share.promised else ():
            most = most_offered(history.get(share.place, ()), resource, share.begin_seconds - bounds.view_seconds,
                                share.begin_seconds)  # fmt: skip
            if most is not None and not _is_hardware(resource) and sums[resource] > most:
                why = f"{share.holder} makes it {float(sums[resource]):g} of {resource}, of {float(most):g} there are"
                yield Violation("capacity-promised-once", share.begin_seconds, share.place, why)
    yield from _reservations(recording.writes)


def hardware_given_once(recording: Recording, _bounds: Bounds) -> Iterator[Violation]:
    """No device and no CPU is given twice.

    At no time do two pods of a node have the same exclusive CPU by their annotations, or more than the whole of a
    device by any of its percentages; nor do two entries of one NodeAllocation, where it is given before it is bound.
    """
    for share, sums in _begun(shares(recording.writes)):
        for resource in filter(_is_hardware, share.amounts):
            if sums[resource] > WHOLE:
                why = f"{share.holder} makes it {float(sums[resource]):g} of {resource}"
                yield Violation("hardware-given-once", share.begin_seconds, share.place, why)
    for write in recording.writes:
        if write.resource == "nodeallocations" and write.stored:
            entries = (write.stored.get("spec") or {}).get("pods") or ()
            totals = total(hardware(entry.get("annotations") or {}) for entry in entries)
            for resource, sum_ in totals.items():
                if sum_ > WHOLE:
                    why = f"entries have {float(sum_):g} of {resource}"
                    yield Violation("hardware-given-once", write.answered_seconds, write.where, why)


def _is_hardware(resource: str) -> bool:
    """Names that `hardware` makes have a blank, which no resource of Kubernetes has."""
    return " " in resource


def _begun(shares: Iterable[Share]) -> Iterator[tuple[Share, dict[str, Fraction]]]:
    """Each share as it begins, with the sums of its place at that moment."""
    by_place: dict[str, list[Share]] = {}
    for share in shares:
        by_place.setdefault(share.place, []).append(share)
    for place in by_place.values():
        place.sort(key=lambda share: share.begin_seconds)
        present: list[Share] = []
        for share in place:
            present = [other for other in present if other.end_seconds > share.begin_seconds] + [share]
            yield share, total(other.amounts for other in present)


def _reservations(writes: Iterable[ApiWrite]) -> Iterator[Violation]:
    owned: dict[str, dict[str, str]] = {}
    for write in writes:
        if write.resource.partition("/")[0] != "reservations":
            continue
        owned.pop(write.name, None)
        status = write.stored.get("status") or {}
        if write.verb in ("delete", "deletecollection") or status.get("phase") not in (
            None,
            "",
            "Pending",
            "Available",
        ):
            continue
        allocatable, has = amounts(status.get("allocatable")), amounts(status.get("allocated"))
        for resource, amount in has.items():
            if allocatable and amount > allocatable.get(resource, Fraction(0)):
                why = (
                    f"its owners have {float(amount):g} of {resource}, it holds {float(allocatable.get(resource, 0)):g}"
                )
                yield Violation("capacity-promised-once", write.answered_seconds, write.where, why)
        owned[write.name] = {
            owner["uid"]: write.name for owner in status.get("currentOwners") or () if owner.get("uid")
        }
        for other, owners in owned.items():
            for uid in owners.keys() & owned[write.name] if other != write.name else ():
                why = f"pod {uid} owns {other} as well"
                yield Violation("capacity-promised-once", write.answered_seconds, write.where, why)


def quotas_within_runtime(recording: Recording, bounds: Bounds) -> Iterator[Violation]:
    """No quota uses more than its runtime for longer than its delay.

    By what the ElasticQuota itself says: `status.used` against the annotation `runtime`, for every resource that the
    runtime names, without a break for more than `quota_delay_seconds`. Nothing is said where capacity is not taken
    back (None).
    """
    if bounds.quota_delay_seconds is None:
        return
    since: dict[str, tuple[float, str]] = {}
    for write in recording.writes:
        if write.resource.partition("/")[0] != "elasticquotas":
            continue
        over = "" if write.verb in ("delete", "deletecollection") else _over_runtime(write)
        if over:
            since.setdefault(write.where.partition(" ")[2], (write.answered_seconds, over))
        elif exceeded := since.pop(write.where.partition(" ")[2], None):
            yield from _too_long(write.where, exceeded, write.asked_seconds, bounds.quota_delay_seconds)
    for quota, exceeded in since.items():
        yield from _too_long(quota, exceeded, recording.end_seconds, bounds.quota_delay_seconds)


def _over_runtime(write: ApiWrite) -> str:
    annotations: Mapping[str, str] = (write.stored.get("metadata") or {}).get("annotations") or {}
    runtime = amounts(json.loads(annotations.get(RUNTIME) or "{}"))
    used = amounts((write.stored.get("status") or {}).get("used"))
    over = (
        f"{float(used[r]):g} of {r}, may {float(runtime[r]):g}" for r in used if r in runtime and used[r] > runtime[r]
    )
    return "; ".join(over)


def _too_long(quota: str, exceeded: tuple[float, str], until: float, delay: float) -> Iterator[Violation]:
    seconds, over = exceeded
    if until - seconds > delay:
        why = f"uses {over} for {until - seconds:.0f} s; after {delay:.0f} s it has to give back"
        yield Violation("quotas-within-runtime", seconds, quota, why)
