"""The mutating webhook for pods: old names, accepted values, profiles, resources, scheduling gate. Pure; never refuses.

A second run changes nothing. The API server may call again within a request (reinvocation), after other webhooks have
changed the pod: the annotation `cotenant.dev/profiles` (`admission.profile_record`) says which profiles were applied or
not drawn, and when, so that key mappings, suffixes and draws do not run twice; profiles that match only now are
applied. On a new pod, a record that is older than a request can last, or that we did not sign for this pod, is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cotenant.admission.annotated import apply_annotated_resources
from cotenant.admission.namespace_limits.defaults import RangeDefault, without_given
from cotenant.admission.profile import Profile, apply_to
from cotenant.admission.profile_record import (
    RECORD_ANNOTATION,
    RECORD_SECONDS,
    ProfileRecord,
    outcome_of,
    read_record,
    record_text,
)
from cotenant.admission.resources import (
    SIDES,
    amounts_beside,
    containers,
    rename_legacy_resources,
    translate_resources,
    with_extended_spec,
    without_later,
)
from cotenant.admission.view import ClusterView
from cotenant.base.allocation.allocator import HardwareClaim
from cotenant.base.allocation.cpu_allocator import CpuAllocator
from cotenant.base.allocation.device_allocator import DeviceAllocator
from cotenant.base.allocation.device_request import shared_resources_of
from cotenant.base.errors import CotenantError, UsageError
from cotenant.base.kubernetes.pod_identity import PodIdentity
from cotenant.base.kubernetes.pod_wire import requests_of
from cotenant.base.kubernetes.protocol import (
    BIND_RESOURCE,
    MIRROR_ANNOTATION,
    MUTATING_UPDATE_LABEL,
    OPERATING_MODE_LABEL,
    PLACEHOLDER_LABEL,
    SKIP_HOOKS_LABEL,
    SUB_PRIORITY_LABEL,
)
from cotenant.base.kubernetes.qos import PRIORITY_CLASS_LABEL, QOS_LABEL, priority_of, qos_of, with_default
from cotenant.base.kubernetes.quota_tree import NAME_LABEL, PREEMPTIBLE_LABEL, TREE_LABEL
from cotenant.scheduler_ext.queues.admission.pod_gates import add_queue_gates, with_tree_affinity
from cotenant.scheduler_ext.queues.model.gang import LIGHT_MINIMUM_LABEL, LIGHT_NAME_LABEL, POD_GROUP_LABEL
from cotenant.scheduler_ext.reservations.pod_gate import add_reservation_gate

FIXED_LABELS: Final = (
    QOS_LABEL,
    PRIORITY_CLASS_LABEL,
    SUB_PRIORITY_LABEL,
    SKIP_HOOKS_LABEL,
    NAME_LABEL,
    TREE_LABEL,
    PREEMPTIBLE_LABEL,
    POD_GROUP_LABEL,
    LIGHT_NAME_LABEL,
    LIGHT_MINIMUM_LABEL,
    PLACEHOLDER_LABEL,
    OPERATING_MODE_LABEL,
)
"""Labels that a pod keeps for life: whoever may patch a running pod could otherwise remove its limits or its quota."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AdmissionCall:
    """An admission request without its pod. `uid` seeds `Profile.drawn`; `key` signs each `ProfileRecord` on a pod."""

    operation: str
    namespace: str
    uid: str = ""
    now_seconds: float = 0.0
    translate_overhead: bool = False
    key: bytes = b""


@dataclass(frozen=True, slots=True)
class Mutation:
    """The mutated pod, warnings for its creator, and the profiles that were applied in this call."""

    pod: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    applied: tuple[str, ...] = ()


@dataclass(slots=True)
class _Work:
    """The state of one mutation; `repeated` are profiles of an earlier call whose changes somebody has undone since.

    `again` says whether an earlier call of this request has translated the pod.
    """

    pod: Json
    record: ProfileRecord
    repeated: frozenset[str] = frozenset()
    again: bool = False
    warnings: list[str] = field(default_factory=list)
    applied: list[str] = field(default_factory=list)
    dealt_with: set[str] = field(default_factory=set)


def compute_mutation(pod: Mapping[str, Any], view: ClusterView, call: AdmissionCall) -> Mutation:
    """Return the pod with all matching profiles applied. The caller has checked that metadata and spec are objects."""
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    if MIRROR_ANNOTATION in (metadata.get("annotations") or {}):
        return Mutation(pod)
    if call.operation != "CREATE" and labels.get(MUTATING_UPDATE_LABEL) != "true":
        return Mutation(pod)
    work = _begun(pod, view, call)
    if call.operation == "CREATE":
        return _mutate_new_pod(work, view, call)
    # A running pod gets its profiles' labels and annotations; its QoS and priorities are immutable.
    _apply_profiles(work, view, call)
    if not work.applied:
        return Mutation(pod, tuple(work.warnings))
    _write_record(work, view, call)
    changed = {k: v for k, v in (work.pod["metadata"].get("labels") or {}).items() if k not in FIXED_LABELS}
    changed |= {key: labels[key] for key in FIXED_LABELS if key in labels}
    metadata = {**metadata, "labels": changed, "annotations": work.pod["metadata"]["annotations"]}
    return Mutation({**pod, "metadata": metadata}, tuple(work.warnings), tuple(work.applied))


def _mutate_new_pod(work: _Work, view: ClusterView, call: AdmissionCall) -> Mutation:
    """Apply all steps to a new pod, in order: names, accepted values, profiles, resources, annotation, gate, record."""
    work.warnings += rename_legacy_resources(work.pod)
    defaults = [d for d in view.demands.get(call.namespace, ()) if isinstance(d, RangeDefault)]
    without_given(work.pod, defaults, profiled=False)
    work.warnings += apply_annotated_resources(work.pod, view.annotated, call.namespace)
    _apply_profiles(work, view, call)
    without_given(work.pod, defaults)
    # Resources are renamed by the pod's class, unless one of the profiles that matched says to leave them.
    leave = any(profile.skips_resources for profile in view.profiles if profile.name in work.dealt_with)
    if work.dealt_with and not leave:
        labels, value = work.pod["metadata"].get("labels") or {}, work.pod["spec"].get("priority")
        raw = priority_of(labels, value if isinstance(value, int) else None)
        priority, kept_before = with_default(qos_of(labels), raw), work.record.kept if work.again else None
        beside = sorted(amounts_beside(work.pod, priority))
        if kept_before is not None:
            work.warnings += without_later(work.pod, priority, {*beside} - {*kept_before})
        work.record.kept = beside if kept_before is None else kept_before
        work.warnings += translate_resources(work.pod, priority, overhead=call.translate_overhead)
    if any(profile.requests_bind for profile in _existing_profiles(view, work.record.applied)):
        work.warnings += with_bind_request(work.pod, call.namespace)
    work.warnings += with_extended_spec(work.pod)
    work.pod = dict(add_reservation_gate(work.pod, view.offers, call.namespace, call.now_seconds))
    work.pod = dict(with_tree_affinity(work.pod, view.quotas, view.quota_profiles, call.namespace))
    served = view.queues_served_until_seconds
    work.pod = dict(add_queue_gates(work.pod, view.quotas, served, call.namespace, call.now_seconds, view.natives))
    if work.dealt_with:
        _write_record(work, view, call)
    else:
        # Take off a record that is not of this request.
        metadata = work.pod["metadata"]
        annotations = metadata.get("annotations") or {}
        if RECORD_ANNOTATION in annotations:
            metadata["annotations"] = {key: text for key, text in annotations.items() if key != RECORD_ANNOTATION}
    return Mutation(work.pod, tuple(work.warnings), tuple(work.applied))


def writable(pod: Mapping[str, Any]) -> Json:
    """Copy only the parts of a pod that `cotenant.admission.resources` changes, and share all other parts."""
    spec = dict(pod["spec"])
    for group in (group for group in ("containers", "initContainers") if spec.get(group)):
        copies = []
        for container in spec[group]:
            resources = container.get("resources")
            own = {side: dict(q) if isinstance(q, dict) else q for side, q in (resources or {}).items()}
            copies.append({**container, "resources": own} if resources else dict(container))
        spec[group] = copies
    if spec.get("overhead"):
        spec["overhead"] = dict(spec["overhead"])
    return {**pod, "metadata": dict(pod["metadata"]), "spec": spec}


def _apply_profiles(work: _Work, view: ClusterView, call: AdmissionCall) -> None:
    """Apply matching profiles in name order, and repeat while labels that they wrote make others match.

    A profile that is not drawn for this request (its probability), or cannot be applied, is also recorded as handled,
    so that a second call within the request does not decide about it again.
    """
    namespace = view.namespaces.get(call.namespace, {})
    while True:
        labels = work.pod["metadata"].get("labels") or {}
        matching = [p for p in view.profiles if p.name not in work.dealt_with and p.matches(namespace, labels)]
        if not matching:
            return
        for profile in matching:
            work.dealt_with.add(profile.name)
            if not profile.drawn(call.uid):
                work.record.skipped.append(profile.name)
                continue
            try:
                laid = apply_to(work.pod, profile, view.priority_classes, again=profile.name in work.repeated)
            except UsageError as error:
                work.warnings.append(f"profile {profile.name} was not applied: {error.message}")
                work.record.skipped.append(profile.name)
                continue
            work.pod = laid.pod
            work.warnings += laid.warnings
            work.record.applied.append(profile.name)
            work.applied.append(profile.name)


def _begun(pod: Mapping[str, Any], view: ClusterView, call: AdmissionCall) -> _Work:
    """Return the work as earlier calls of this request left it; new work if there was none."""
    record = read_record(pod, call.key, call.namespace)
    new = call.operation == "CREATE"
    if record is None or (new and not 0 <= call.now_seconds - record.at <= RECORD_SECONDS):
        return _Work(writable(pod), ProfileRecord())
    if not new or outcome_of(pod, _existing_profiles(view, record.applied)) == record.outcome:
        return _Work(writable(pod), record, again=new, dealt_with={*record.applied, *record.skipped})
    fresh_record = ProfileRecord(record.at, [], list(record.skipped), kept=list(record.kept))
    return _Work(writable(pod), fresh_record, frozenset(record.applied), again=True, dealt_with={*record.skipped})


def _existing_profiles(view: ClusterView, names: Sequence[str]) -> list[Profile]:
    by_name = {profile.name: profile for profile in view.profiles}
    return [by_name[name] for name in names if name in by_name]


def _write_record(work: _Work, view: ClusterView, call: AdmissionCall) -> None:
    work.record.at = work.record.at or int(call.now_seconds)
    work.record.outcome = outcome_of(work.pod, _existing_profiles(view, work.record.applied))
    metadata = work.pod["metadata"]
    text = record_text(work.record, work.pod, call.key, call.namespace)
    metadata["annotations"] = {**(metadata.get("annotations") or {}), RECORD_ANNOTATION: text}


_ALLOCATORS: Final = (CpuAllocator(), DeviceAllocator())


def with_bind_request(pod: dict[str, Any], namespace: str) -> list[str]:
    """Request the extended resource BIND_RESOURCE for a pod that gets CPUs or devices of its own, and return warnings.

    The pod stays as it is if it requests the resource already, or requests shares of devices, which the extender binds.
    """
    try:
        requests = requests_of(pod["spec"])
    except CotenantError as error:
        return [f"{BIND_RESOURCE} was not requested: {error.message}"]
    claim = HardwareClaim(PodIdentity.parse(pod, namespace), requests)
    concerned = any(allocator.concerns(claim) for allocator in _ALLOCATORS)
    first = next(containers(pod, "containers"), None)
    if first is None or not concerned or BIND_RESOURCE in requests or shared_resources_of(requests):
        return []
    resources = first.get("resources") or {}
    first["resources"] = resources | {side: {**(resources.get(side) or {}), BIND_RESOURCE: "1"} for side in SIDES}
    return []
