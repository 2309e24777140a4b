"""Recommendation objects (analysis.koordinator.sh/v1alpha1): one per workload, written when it changes.

An object is written if an amount differs from the published one by more than the dead-band (downwards at most once a
day), if its state changes (ready, withheld, stale) or if the settings behind it change. That is rare on a normal day:
the API server is no time-series database, and the store has the full records. A workload without history any more is
marked stale and keeps its last amounts. When a workload is deleted, Kubernetes deletes its object by ownerReference.

Values for which Koordinator's schema has no field (percentiles, limits, digests, span) are in one annotation. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from cotenant.base.controllers.contract import MANAGED_BY, MANAGED_BY_LABEL, ControllerDecision, ObjectNote, camel
from cotenant.base.controllers.published import ExistingObject, PublishedCondition, PublishedMeta, seconds_of
from cotenant.base.identity import WorkloadRef
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.kubernetes.intent import Address, Apply
from cotenant.base.kubernetes.moments import moment
from cotenant.base.kubernetes.pod_request import readable_amounts
from cotenant.base.kubernetes.protocol import ANALYSIS_GROUP
from cotenant.base.kubernetes.quantity import format_amount
from cotenant.base.reasons import SENTENCES, Reason
from cotenant.base.resource import Resource
from cotenant.base.text import percent
from cotenant.base.usage.usage import HOUR_SECONDS
from cotenant.manager.decisions.results import RunResults, WorkloadAdvice
from cotenant.recommender.model.recommendation import PLURAL, object_name

RECOMMENDATION_DEAD_BAND_FRACTION: Final = 0.1
"""A published amount that changes by no more than this share is not written again. The dead band of proposals
themselves: less is noise."""
RECOMMENDATION_FALL_HOURS: Final = 24.0
"""Lower amounts are published at most so often; higher ones at once. One whole day, so that a quiet night lowers
nothing."""
RECOMMENDATION_STALE_HOURS: Final = 24.0
"""A recommendation whose history ended so long ago is marked stale. One whole daily pattern that was not seen."""

EVIDENCE_ANNOTATION: Final = "cotenant.dev/evidence"
STATE_LABEL: Final = "cotenant.dev/state"
CURRENT: Final = "current"
WITHHELD: Final = "withheld"
STALE: Final = "stale"
HISTORY_ENDED: Final = "HistoryEnded"
CONDITIONS: Final = ("Ready", "Stale", "Withheld")
"""The conditions that this controller writes; Regressed belongs to whoever verifies accepted changes."""


class _RecommendedWorkload(msgspec.Struct):
    kind: str = ""
    name: str = ""


class _RecommendationTarget(msgspec.Struct):
    workload: _RecommendedWorkload = msgspec.field(default_factory=_RecommendedWorkload)


class _RecommendationSpec(msgspec.Struct):
    target: _RecommendationTarget = msgspec.field(default_factory=_RecommendationTarget)


class _RecommendedContainer(msgspec.Struct, rename="camel"):
    container_name: str = ""
    resources: dict[str, str | int] | None = None


class _RecommendedPodStatus(msgspec.Struct, rename="camel"):
    container_statuses: list[_RecommendedContainer] | None = None


class _PublishedStatus(msgspec.Struct, rename="camel"):
    pod_status: _RecommendedPodStatus = msgspec.field(default_factory=_RecommendedPodStatus)
    conditions: list[PublishedCondition] | None = None
    update_time: str = ""


class RecommendationObject(msgspec.Struct):
    """A Recommendation object as read from the cluster."""

    metadata: PublishedMeta
    spec: _RecommendationSpec = msgspec.field(default_factory=_RecommendationSpec)
    status: _PublishedStatus = msgspec.field(default_factory=_PublishedStatus)

    @property
    def workload(self) -> WorkloadRef:
        """The workload that the recommendation is for."""
        target = self.spec.target.workload
        return WorkloadRef(self.metadata.namespace, target.kind, target.name)

    def amounts(self) -> dict[str, dict[Resource, int]]:
        """Return the published requests by container, in millicores and bytes, without unreadable quantities."""
        return {
            c.container_name: readable_amounts(c.resources or {})
            for c in self.status.pod_status.container_statuses or ()
        }


@dataclass(frozen=True, slots=True)
class RecommendationView:
    """The controller's input: results, published Recommendations by (namespace, name), and workloads that own them."""

    results: RunResults
    there: Mapping[tuple[str, str], RecommendationObject]
    owners: Mapping[WorkloadRef, ExistingObject]


@dataclass(frozen=True, slots=True)
class _ConditionState:
    """One condition to publish."""

    type: str
    true: bool
    reason: str
    message: str


_NOT_READY: Final = _ConditionState("Ready", False, "Stale", "No recommended request is usable now.")


def decide(view: RecommendationView, now_seconds: float) -> ControllerDecision:
    """Return the writes of Recommendations that differ from the results; new objects get a status in the next round."""
    advised = {w.ref: w for w in view.results.workloads}
    intents: list[Apply] = []
    notes: list[ObjectNote] = []
    for ref, advice in advised.items():
        owner = view.owners.get(ref)
        if owner is None:
            continue  # gone, or of a kind that nobody let us list: Kubernetes could never collect its CR
        key = (ref.namespace, object_name(ref))
        published = view.there.get(key)
        if published is not None and not published.metadata.ours:
            notes.append(ObjectNote(f"{PLURAL}/{key[0]}/{key[1]}", "NotOurs", "Unchanged: not made by cotenant."))
            continue
        intents += _write(advice, owner, published, now_seconds)
    for published in view.there.values():
        if published.metadata.ours and published.workload not in advised and published.workload in view.owners:
            # Mark stale, once, what history no longer covers; its last amounts stay readable.
            advice_owner = view.owners[published.workload]
            states = [
                _ConditionState("Ready", False, "Stale", "The usage history no longer contains this workload."),
                _ConditionState("Stale", True, "NoData", SENTENCES[Reason.NO_DATA]),
                _ConditionState("Withheld", False, "None", "Nothing is withheld."),
            ]
            if _published_conditions(published) != {(s.type, s.true, s.reason) for s in states}:
                intents.extend(_mark_stale(published, advice_owner, states, now_seconds, "no usage history left"))
    return ControllerDecision(tuple(intents), tuple(notes), _before(intents, view.there))


def decide_without_results(view: RecommendationView, until_seconds: float, now_seconds: float) -> ControllerDecision:
    """Return the writes that mark our Recommendations stale while no run has results; their last amounts are kept.

    The history behind all published amounts ends at `until_seconds` (Unix seconds) or before.
    """
    intents: list[Apply] = []
    for published in view.there.values():
        if not published.metadata.ours or any(c[:2] == ("Stale", True) for c in _published_conditions(published)):
            continue
        # End of the history in the evidence, Unix seconds: the last run's may be later.
        owner = view.owners.get(published.workload)
        end = max(until_seconds, seconds_of(_published_evidence(published, "to")) or 0)
        if owner is None or not is_stale(end, now_seconds):
            continue
        message = f"No run of the pipeline has produced results; the history ended {moment(int(end))} or before."
        states = [_NOT_READY, _ConditionState("Stale", True, HISTORY_ENDED, message)]
        # the condition that says which resources are left out, as it stands
        withheld = (c for c in published.status.conditions or () if c.type == "Withheld")
        states += [_ConditionState(c.type, c.status == "True", c.reason, c.message) for c in withheld]
        intents += _mark_stale(published, owner, states, now_seconds, "no run of the pipeline has results")
    return ControllerDecision(tuple(intents), (), _before(intents, view.there))


def is_stale(end_seconds: float, now_seconds: float) -> bool:
    """Return whether recommendations from a history that ended at `end_seconds` (Unix seconds) are too old to use."""
    return now_seconds - end_seconds > RECOMMENDATION_STALE_HOURS * HOUR_SECONDS


def next_stale_seconds(workloads: Iterable[WorkloadAdvice], now_seconds: float) -> float:
    """Return when (Unix seconds) the next workload's recommendations become stale; infinity if all are stale."""
    last_moments = (w.end_seconds + RECOMMENDATION_STALE_HOURS * HOUR_SECONDS for w in workloads)
    return min((last for last in last_moments if last >= now_seconds), default=math.inf)


def _before(intents: Sequence[Apply], published: Mapping[tuple[str, str], RecommendationObject]) -> dict[Address, str]:
    """Return the published amounts of the workloads to be written."""
    replaced = {i.address: published.get((i.address.namespace, i.address.name)) for i in intents}
    return {a: msgspec.json.encode(r.amounts()).decode() for a, r in replaced.items() if r is not None}


def _write(
    advice: WorkloadAdvice, owner: ExistingObject, published: RecommendationObject | None, now_seconds: float
) -> Iterator[Apply]:
    """Yield the write of an object that is missing or has old evidence, and of its status if that differs."""
    # Why the CR must be written again, in words; empty when it need not.
    if published is None:
        why = ""
    else:
        before, after = published.amounts(), {c.name: c.amounts for c in advice.containers}
        if _published_conditions(published) != {(s.type, s.true, s.reason) for s in _states(advice, now_seconds)}:
            why = "the recommendation's state changed"
        elif before.keys() != after.keys():
            why = "the workload's containers changed"
        # Settings digest in the evidence; empty when it cannot be read.
        elif _published_evidence(published, "settings") != advice.settings_digest:
            why = "the settings of the recommendation changed"
        else:
            why = _movement(before, after, now_seconds - (seconds_of(published.status.update_time) or 0))
    states = _states(advice, now_seconds)
    address = Address(ANALYSIS_GROUP, PLURAL, object_name(advice.ref), advice.namespace)
    # The state in one word, for a column and a selector.
    true = {state.type for state in states if state.true}
    label = STALE if "Stale" in true else CURRENT if "Ready" in true else WITHHELD
    # The evidence for the amounts as JSON: digests, the span of the history, figures of the workload's total, limits.
    evidence_fields: dict[str, Any] = {
        "settings": advice.settings_digest,
        "record": advice.record_digest,
        "from": moment(advice.start_seconds),
        "to": moment(advice.end_seconds),
        **advice.figures,
    }
    limited = (c for c in advice.containers if c.limits)
    if limits := {c.name: {r.value: format_amount(r, a) for r, a in c.limits.items()} for c in limited}:
        evidence_fields["limits"] = limits
    evidence = msgspec.json.encode(evidence_fields, order="sorted").decode()
    if (
        published is None
        or [r.uid for r in published.metadata.owner_references or ()] != [owner.uid]
        or (why and _marks(published) != (label, evidence))
    ):
        missing = "new workload" if published is None else "new owner"
        yield Apply(address, _body(address, owner, label, evidence), why=why or missing)
    if published is not None and why:
        containers = [_container(c.name, c.amounts) for c in advice.containers]
        yield Apply(address, _status(address, containers, states, published, now_seconds), "status", why=why)


def _movement(
    before: Mapping[str, Mapping[Resource, int]], after: Mapping[str, Mapping[Resource, int]], age_seconds: float
) -> str:
    """Return a text about how an amount left the dead band; "" if none did.

    An increase counts at any time, a decrease only `recommendation_fall_hours` after the last write: too low a request
    does harm, too high a one for a day costs little, and an amount that swings around an edge of the band would be
    written in every run.
    """
    band = RECOMMENDATION_DEAD_BAND_FRACTION
    pairs = [(before[name], after[name]) for name in after]
    if any(old.keys() != new.keys() for old, new in pairs):
        return "a recommended request was added or removed"
    if any(new[r] > old[r] * (1 + band) for old, new in pairs for r in new):
        return f"a recommended request rose by more than {percent(band)}"
    waited = age_seconds >= RECOMMENDATION_FALL_HOURS * HOUR_SECONDS
    if waited and any(new[r] < old[r] * (1 - band) for old, new in pairs for r in new):
        return f"a recommended request fell by more than {percent(band)}"
    return ""


def _mark_stale(
    published: RecommendationObject, owner: ExistingObject, states: list[_ConditionState], now_seconds: float, why: str
) -> Iterator[Apply]:
    """Yield the writes of label and status of an object that keeps its last amounts."""
    address = Address(ANALYSIS_GROUP, PLURAL, published.metadata.name, published.metadata.namespace)
    containers = [_container(name, amounts) for name, amounts in published.amounts().items()]
    yield Apply(address, _body(address, owner, STALE, _marks(published)[1]), why=why)
    yield Apply(address, _status(address, containers, states, published, now_seconds), "status", why=why)


def _states(advice: WorkloadAdvice, now_seconds: float) -> list[_ConditionState]:
    """Return the conditions. Ready: amounts exist; Withheld: some are missing on purpose; Stale: old history."""
    withheld = [(c.name, r, code) for c in advice.containers for r, code in sorted(c.withheld.items())]
    some = any(c.amounts for c in advice.containers)
    stale = is_stale(advice.end_seconds, now_seconds)
    reason = camel(withheld[0][2]) if withheld else "None"
    message = "; ".join(f"{name} {resource}: {SENTENCES[Reason(code)]}" for name, resource, code in withheld)
    ready = (True, "Computed") if some and not stale else (False, "Stale" if stale else reason)
    return [
        _ConditionState("Ready", *ready, "Computed from usage history." if ready[0] else _NOT_READY.message),
        _ConditionState(
            "Stale", stale, HISTORY_ENDED if stale else "Fresh", f"History ends {moment(advice.end_seconds)}."
        ),
        _ConditionState("Withheld", bool(withheld), reason, message or "Nothing is withheld."),
    ]


def _body(address: Address, owner: ExistingObject, state: str, evidence: str) -> dict[str, Any]:
    workload = {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name}
    metadata = {
        "labels": {MANAGED_BY_LABEL: MANAGED_BY, STATE_LABEL: state},
        "annotations": {EVIDENCE_ANNOTATION: evidence},
        "ownerReferences": [owner.reference()],
    }
    return address.manifest("Recommendation", metadata, spec={"target": {"type": "workload", "workload": workload}})


def _status(
    address: Address,
    containers: list[dict[str, Any]],
    states: list[_ConditionState],
    published: RecommendationObject,
    now_seconds: float,
) -> dict[str, Any]:
    """Return the status; as Kubernetes requires, a condition that stays the same keeps its transition time."""
    conditions = []
    for state in states:
        before = next((c for c in published.status.conditions or () if c.type == state.type), None)
        since = before.last_transition_time if before and before.status == str(state.true) else ""
        conditions.append(
            {
                "type": state.type,
                "status": str(state.true),
                "reason": state.reason,
                "message": state.message,
                "lastTransitionTime": since or moment(now_seconds),
            }
        )
    pods = {"containerStatuses": containers}
    status = {"updateTime": moment(now_seconds), "conditions": conditions, "podStatus": pods}
    return address.manifest("Recommendation", status=status)


def _container(name: str, amounts: Mapping[Resource, int]) -> dict[str, Any]:
    return {"containerName": name, "resources": {r.value: format_amount(r, a) for r, a in sorted(amounts.items())}}


def _published_conditions(published: RecommendationObject) -> set[tuple[str, bool, str]]:
    conditions = published.status.conditions or ()
    return {(c.type, c.status == "True", c.reason) for c in conditions if c.type in CONDITIONS}


def _marks(published: RecommendationObject) -> tuple[str, str]:
    """Return the published (state label, evidence)."""
    meta = published.metadata
    return (meta.labels or {}).get(STATE_LABEL, ""), (meta.annotations or {}).get(EVIDENCE_ANNOTATION, "")


def _published_evidence(published: RecommendationObject, name: str) -> str:
    try:
        return str(msgspec.json.decode(_marks(published)[1], type=dict[str, Any]).get(name, ""))
    except UNDECODABLE:
        return ""
