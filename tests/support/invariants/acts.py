"""Invariants of what our processes do: Lease, evictions, outcomes of changes, gates, cgroups. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from tests.support.invariants.lives import Pod, changed_pods
from tests.support.invariants.records import MANAGER, NODE_AGENT, ApiWrite, Bounds, Json, Recording, Violation

LEASE: Final = "cotenant-manager"
OUTCOMES: Final = frozenset(
    {"applied", "refused", "cancelled", "rolled-back", "rollback-refused", "rollback-lost", "verified", "regressed"}
)
"""Events that say what the cluster has of a change."""
BEGINNINGS: Final = frozenset({"accepted", "confirmed", "resumed", "rollback-accepted"})
"""Events after which somebody is about to send."""
WAITS: Final = frozenset({"waiting", "awaited"})
"""Events after which nobody is, until a person or a soak time says so."""
QOS: Final = "koordinator.sh/qosClass"
PLACEHOLDER: Final = "cotenant.dev/placeholder"
QUOTA: Final = "quota.scheduling.koordinator.sh/name"
_NO_OBJECTS: Final = frozenset(
    {"leases", "events", "subjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "tokenreviews"}
)
"""Writes that need no Lease: the Lease itself, Events, and questions."""


@dataclass(frozen=True, slots=True)
class _Term:
    """Who holds the Lease, from the request that took it until it may be another's."""

    credential: str
    holder: str
    begin_seconds: float
    end_seconds: float


def written_under_the_lease(recording: Recording, _bounds: Bounds) -> Iterator[Violation]:
    """No write is made by a manager that does not hold the Lease.

    A manager is told by its credential, by which it renews the Lease and writes. Every request of the manager's account
    but for the Lease, Events and questions about rights reaches the API server while the last renewal by the same
    credential is younger than the Lease's duration and no other holder has taken it. Nothing is said of a credential
    that two holders share, or where the run has no Lease: nobody could tell.
    """
    terms = list(_terms(recording.writes))
    holders: dict[str, set[str]] = {}
    for term in terms:
        holders.setdefault(term.credential, set()).add(term.holder)
    shared = {credential for credential, names in holders.items() if len(names) > 1 or not credential}
    for write in recording.writes:
        needs = write.account == MANAGER and write.resource.partition("/")[0] not in _NO_OBJECTS
        if not (terms and needs) or write.credential in shared:
            continue
        own = [term for term in terms if term.credential == write.credential]
        if not any(term.begin_seconds <= write.asked_seconds <= term.end_seconds for term in own):
            why = (
                f"{write.verb} {write.where} by {write.credential or 'an unknown credential'}, which held no Lease then"
            )
            yield Violation("written-under-the-lease", write.asked_seconds, write.where, why)


def _terms(writes: Iterable[ApiWrite]) -> Iterator[_Term]:
    """A term for each renewal; that another one takes the Lease ends all of its holder's."""
    own: list[_Term] = []
    for write in writes:
        if write.resource != "leases" or write.name != LEASE:
            continue
        spec = write.stored.get("spec") or {}
        holder = "" if write.verb == "delete" else spec.get("holderIdentity") or ""
        if own and own[-1].holder != holder:
            yield from (replace(term, end_seconds=min(term.end_seconds, write.answered_seconds)) for term in own)
            own = []
        if holder:
            until = write.answered_seconds + float(spec["leaseDurationSeconds"])
            own.append(_Term(write.credential, holder, write.asked_seconds, until))
    yield from own


def no_latency_sensitive_pod_evicted(recording: Recording, _bounds: Bounds) -> Iterator[Violation]:
    """No latency-sensitive pod is evicted by us.

    Latency-sensitive is a pod whose QoS label is LSE, LSR, LS or SYSTEM, and without a label every pod of a priority
    outside of the bands batch and free (3000 to 5999) that asks for something. By us is an eviction or a deletion by
    the node agent, for whatever reason; by the manager it is one without a reason that a person gave: a PodMigrationJob
    that names the pod, or a quota that the pod was submitted to. Placeholders are ours and go when we want.
    """
    pods: dict[tuple[str, str], Pod] = {}
    moved: set[tuple[str, str]] = set()
    for write in recording.writes:
        key = (write.namespace, write.name)
        if write.resource == "podmigrationjobs" and write.stored:
            ref = (write.stored.get("spec") or {}).get("podRef") or {}
            moved.add((ref.get("namespace", ""), ref.get("name", "")))
        is_end = write.resource == "pods/eviction" or (write.resource == "pods" and write.verb == "delete")
        pod = pods.get(key)
        if is_end and pod is not None and _is_sensitive(pod.body):
            labels = pod.body["metadata"].get("labels") or {}
            is_asked_for = write.account == MANAGER and (key in moved or QUOTA in labels)
            if write.account in (MANAGER, NODE_AGENT) and not is_asked_for:
                by = write.account.rpartition("-")[2]
                why = f"{by} {write.verb}s {write.resource}; its QoS label is {labels.get(QOS, 'not set')}"
                yield Violation("no-latency-sensitive-pod-evicted", write.asked_seconds, pod.name, why)
        for changed, over in changed_pods(pods, write):
            pods[key] = changed
            if over:
                pods.pop(key, None)


def _is_sensitive(body: Json) -> bool:
    labels = body["metadata"].get("labels") or {}
    if PLACEHOLDER in labels:
        return False
    if labels.get(QOS):
        return labels[QOS] in ("LSE", "LSR", "LS", "SYSTEM")
    asks = any((c.get("resources") or {}).get("requests") for c in body["spec"].get("containers") or ())
    return asks and not 3000 <= (body["spec"].get("priority") or 0) < 6000


def every_change_has_an_outcome(recording: Recording, bounds: Bounds) -> Iterator[Violation]:
    """Every accepted change has an outcome.

    No change stays without one for longer than `outcome_seconds` after it was accepted, confirmed, resumed or asked
    back; one that waits for a person or for others to soak is not due. And no event of a change comes before its
    acceptance: whatever was done was accepted first.
    """
    open_since: dict[str, tuple[float, str]] = {}
    accepted: set[str] = set()
    for row in recording.ledger:
        if row.event not in BEGINNINGS | OUTCOMES | WAITS:
            continue
        if row.event == "accepted":
            accepted.add(row.subject)
        elif row.subject not in accepted:
            why = f"{row.event} by {row.actor or 'nobody'}, which nobody accepted before"
            yield Violation("every-change-has-an-outcome", row.seconds, row.subject, why)
        opened = open_since.pop(row.subject, None)
        if opened and row.event in OUTCOMES and row.seconds - opened[0] > bounds.outcome_seconds:
            yield _late(row.subject, opened, row.seconds, bounds)
        if row.event in BEGINNINGS:
            open_since[row.subject] = (row.seconds, row.event)
    for subject, opened in open_since.items():
        if recording.end_seconds - opened[0] > bounds.outcome_seconds:
            yield _late(subject, opened, recording.end_seconds, bounds)


def _late(subject: str, opened: tuple[float, str], until: float, bounds: Bounds) -> Violation:
    seconds, event = opened
    why = f"{event}, and no outcome for {until - seconds:.0f} s; {bounds.outcome_seconds:.0f} s are allowed"
    return Violation("every-change-has-an-outcome", seconds, subject, why)


def no_gate_beyond_its_limit(recording: Recording, bounds: Bounds) -> Iterator[Violation]:
    """No scheduling gate of ours stays longer than its limit (`gate_seconds`), counted from the pod's creation."""
    gated: dict[tuple[str, str, str], tuple[float, str]] = {}
    pods: dict[tuple[str, str], Pod] = {}
    for write in recording.writes:
        for pod, over in changed_pods(pods, write):
            key = (pod.body["metadata"]["namespace"], pod.body["metadata"]["name"])
            pods[key] = pod
            present = set() if over else {gate["name"] for gate in pod.body["spec"].get("schedulingGates") or ()}
            for gate in bounds.gate_seconds:
                if gate in present:
                    gated.setdefault((*key, gate), (pod.made_seconds, pod.name))
                elif gate_opened := gated.pop((*key, gate), None):
                    yield from _gate(gate_opened, gate, write.asked_seconds, bounds)
            if over:
                pods.pop(key, None)
    for (_, _, gate), gate_opened in gated.items():
        yield from _gate(gate_opened, gate, recording.end_seconds, bounds)


def _gate(gate_opened: tuple[float, str], gate: str, until: float, bounds: Bounds) -> Iterator[Violation]:
    seconds, pod = gate_opened
    limit = bounds.gate_seconds[gate]
    if until - seconds > limit:
        why = f"gate {gate} for {until - seconds:.0f} s; {limit:.0f} s are allowed"
        yield Violation("no-gate-beyond-its-limit", seconds, pod, why)


def no_cgroup_left_tightened(recording: Recording, _bounds: Bounds) -> Iterator[Violation]:
    """No cgroup is left with a value of ours after the end.

    Of every value that a node agent noted, or logged as written and never as given back: where its cgroup is still
    there, it says what stood there before, or something that somebody else set since.
    """
    for value in recording.cgroups:
        is_ours = value.present in value.written and value.present != value.original
        if value.present is not None and is_ours:
            source = "its notes" if value.noted else "its action log"
            why = f"{value.knob} is {value.present}, by {source} the agent's; {value.original} stood there before"
            yield Violation("no-cgroup-left-tightened", recording.end_seconds, f"{value.node} {value.path}", why)
