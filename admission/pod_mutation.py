"""The mutating webhook for pods: old names, accepted values, profiles, resources, reserved room. Pure; never refuses.

Twice is once. The API server may call again within a request (reinvocation), with what others added in between: the
annotation `cotenant.dev/profiles` records which profiles were applied or not drawn, and when, so that key mappings,
suffixes and draws do not run again; new profiles that match by then are applied. On a new pod, a record older than a
request can live counts as copied from another pod and is written anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from admission.annotated import with_annotated
from admission.profile import Profile, apply_to
from admission.reservation_gate import gated
from admission.resources import compact, renamed, translated, with_extended_spec
from admission.view import ClusterView
from cotenant.model.errors import UsageError
from cotenant.model.protocol import MUTATING_UPDATE_LABEL, SKIP_RESOURCES_ANNOTATION, SUB_PRIORITY_LABEL
from cotenant.model.qos import PRIORITY_CLASS_LABEL, QOS_LABEL, priority_of, qos_of, with_default

RECORD_ANNOTATION: Final = "cotenant.dev/profiles"
RECORD_SECONDS: Final = 60
"""Longest that the API server lets one request live."""

MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
"""On the mirrors of a kubelet's own static pods, which cannot be changed."""
FIXED_LABELS: Final = (QOS_LABEL, PRIORITY_CLASS_LABEL, SUB_PRIORITY_LABEL)
"""Labels that a pod keeps for life."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """What the review says beside the object. now_seconds: Unix time; uid: seed of draws."""

    operation: str
    namespace: str
    uid: str = ""
    now_seconds: float = 0.0
    translate_overhead: bool = False


@dataclass(frozen=True, slots=True)
class Mutation:
    """The pod afterwards, what people should know, and the profiles that were applied just now."""

    pod: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    applied: tuple[str, ...] = ()


class Record(msgspec.Struct):
    """Profiles that this request has dealt with; at: Unix time of the first call."""

    at: int = 0
    applied: list[str] = msgspec.field(default_factory=list)
    skipped: list[str] = msgspec.field(default_factory=list)


@dataclass(slots=True)
class _Work:
    pod: Json
    record: Record
    warnings: list[str] = field(default_factory=list)
    applied: list[str] = field(default_factory=list)
    dealt_with: set[str] = field(default_factory=set)


def mutated(pod: Mapping[str, Any], view: ClusterView, call: Call) -> Mutation:
    """The pod as the profiles of this cluster want it; the same pod when nobody wants anything.

    pod: the object of a review; the caller has checked that metadata and spec are objects.
    """
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    if MIRROR_ANNOTATION in (metadata.get("annotations") or {}):
        return Mutation(pod)
    if call.operation != "CREATE" and labels.get(MUTATING_UPDATE_LABEL) != "true":
        return Mutation(pod)
    work = _Work(writable(pod), _record_of(pod, call))
    work.dealt_with |= {*work.record.applied, *work.record.skipped}
    return _created(work, view, call) if call.operation == "CREATE" else _updated(work, pod, view, call)


def _created(work: _Work, view: ClusterView, call: Call) -> Mutation:
    work.warnings += renamed(work.pod)
    work.warnings += with_annotated(work.pod, view.annotated, call.namespace)
    _apply_profiles(work, view, call)
    if work.dealt_with:
        _translate(work, call)
        _write_record(work, call)
    work.warnings += with_extended_spec(work.pod)
    work.pod = dict(gated(work.pod, view.offers, call.namespace, call.now_seconds))
    return Mutation(work.pod, tuple(work.warnings), tuple(work.applied))


def _updated(work: _Work, pod: Mapping[str, Any], view: ClusterView, call: Call) -> Mutation:
    """Of a living pod only labels and annotations change: the rest, QoS and priorities are immutable."""
    _apply_profiles(work, view, call)
    if not work.applied:
        return Mutation(pod, tuple(work.warnings))
    _write_record(work, call)
    old = pod["metadata"].get("labels") or {}
    labels = {k: v for k, v in (work.pod["metadata"].get("labels") or {}).items() if k not in FIXED_LABELS}
    labels |= {key: old[key] for key in FIXED_LABELS if key in old}
    metadata = {**pod["metadata"], "labels": labels, "annotations": work.pod["metadata"]["annotations"]}
    return Mutation({**pod, "metadata": metadata}, tuple(work.warnings), tuple(work.applied))


def writable(pod: Mapping[str, Any]) -> Json:
    """A copy of just what `admission.resources` writes on; everything else is shared with the pod given."""
    spec = dict(pod["spec"])
    for group in ("containers", "initContainers"):
        if spec.get(group):
            spec[group] = [_own_amounts(container) for container in spec[group]]
    if spec.get("overhead"):
        spec["overhead"] = dict(spec["overhead"])
    return {**pod, "metadata": dict(pod["metadata"]), "spec": spec}


def _own_amounts(container: Mapping[str, Any]) -> Json:
    resources = container.get("resources")
    if not resources:
        return dict(container)
    own = {side: dict(found) if isinstance(found, dict) else found for side, found in resources.items()}
    return {**container, "resources": own}


def _apply_profiles(work: _Work, view: ClusterView, call: Call) -> None:
    """Lay matching profiles over the pod in name order, again while labels that they wrote make others match."""
    namespace = view.namespaces.get(call.namespace, {})
    while True:
        labels = work.pod["metadata"].get("labels") or {}
        matching = [p for p in view.profiles if p.name not in work.dealt_with and p.matches(namespace, labels)]
        if not matching:
            return
        for profile in matching:
            _apply(work, profile, view, call)


def _apply(work: _Work, profile: Profile, view: ClusterView, call: Call) -> None:
    work.dealt_with.add(profile.name)
    if not profile.drawn(call.uid):
        work.record.skipped.append(profile.name)
        return
    try:
        work.pod = apply_to(work.pod, profile, view.priority_classes)
    except UsageError as error:
        work.warnings.append(f"profile {profile.name} was not applied: {error.message}")
        work.record.skipped.append(profile.name)
        return
    work.record.applied.append(profile.name)
    work.applied.append(profile.name)


def _translate(work: _Work, call: Call) -> None:
    metadata, spec = work.pod["metadata"], work.pod["spec"]
    if SKIP_RESOURCES_ANNOTATION in (metadata.get("annotations") or {}):
        return
    labels = metadata.get("labels") or {}
    value = spec.get("priority")
    raw = priority_of(labels, value if isinstance(value, int) else None)
    work.warnings += translated(work.pod, with_default(qos_of(labels), raw), overhead=call.translate_overhead)


def _record_of(pod: Mapping[str, Any], call: Call) -> Record:
    """What an earlier call of this request wrote down; an empty record when there was none."""
    text = (pod["metadata"].get("annotations") or {}).get(RECORD_ANNOTATION)
    try:
        found = msgspec.json.decode(text if isinstance(text, str) else "", type=Record)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return Record()
    fresh = call.operation != "CREATE" or 0 <= call.now_seconds - found.at <= RECORD_SECONDS
    return found if fresh else Record()


def _write_record(work: _Work, call: Call) -> None:
    metadata = work.pod["metadata"]
    record = {
        "applied": work.record.applied,
        "at": work.record.at or int(call.now_seconds),
        **({"skipped": work.record.skipped} if work.record.skipped else {}),
    }
    metadata["annotations"] = {**(metadata.get("annotations") or {}), RECORD_ANNOTATION: compact(record)}
