"""Names on new pods and quotas that differ slightly from those of the protocol, so that nothing reads them. Pure.

The API server accepts any key of a label or annotation, any field in an annotation's JSON and any extended resource.
The author is warned of a name that is spelt almost like one of the protocol, or of an annotation that should be a
label. Other unknown names are ignored: they may belong to other programs. Names that cotenant reads are the constants
of its own modules; the protocol's other names are listed here, so that none is taken for a misspelling. Source:
koordinator-sh/koordinator 1.8 `apis/extension`.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from types import ModuleType
from typing import Any, Final

import msgspec

from cotenant.admission.profile_record import RECORD_ANNOTATION
from cotenant.admission.resources import CLASS_NAMES, SIDES, amounts, containers
from cotenant.admission.values.misread import ANNOTATIONS, LABELS, QUOTA_LABELS, WORDS
from cotenant.base.allocation import device_request
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.json_documents.struct_validation import field_names
from cotenant.base.kubernetes import protocol, quota_tree
from cotenant.base.text import format_value
from cotenant.enforcer.model.node_policy import BlkioQos, CpuBurst, CpuQos, MemoryQos
from cotenant.scheduler_ext.queues.model import gang
from cotenant.scheduler_ext.reservations.view import MISSED_ANNOTATION

Json = Mapping[str, Any]
_FAMILIES: Final = ("koordinator.sh", "cotenant.dev")
"""Last two parts of the domains whose names are compared."""
_OF_RESOURCES: Final = ("kubernetes.io", "koordinator.sh")
_ALIKE: Final = 0.8
"""Least ratio of `difflib`: one letter of five, or two of ten, may differ."""
_RESOURCES: Final = frozenset((*CLASS_NAMES, *device_request.DEVICE_RESOURCES, *protocol.RESOURCE_ALIASES))
_WRITTEN: Final = _RESOURCES - protocol.RESOURCE_ALIASES.keys()
_LONGEST: Final = 80
"""Characters of a name that are compared; those of the protocol are shorter."""
_MOST: Final = 16
"""Unknown names that are compared in one place: an answer to the API server may not take long."""


def _constants(ending: str, *modules: ModuleType) -> frozenset[str]:
    return frozenset(
        value
        for module in modules
        for name, value in vars(module).items()
        if name.endswith(ending) and isinstance(value, str) and ("koordinator.sh/" in value or "cotenant.dev/" in value)
    )


def _below(domain: str, names: str) -> frozenset[str]:
    return frozenset(f"{domain}/{name}" for name in names.split())


_SCHEDULING: Final = "scheduling.koordinator.sh"
_INTERNAL: Final = f"internal.{_SCHEDULING}"
LABEL_NAMES: Final = frozenset().union(
    _constants("_LABEL", protocol, quota_tree),
    LABELS,
    QUOTA_LABELS,
    _below("pod.koordinator.sh", "skip-enhanced-validation is-pre-allocatable"),
    _below(_SCHEDULING, "scheduler-name preemption-policy disable-preemptible pre-allocation-required"),
    _below(_SCHEDULING, "reservation-order questioned-object-key topology-key-to-explain"),
    ("koordinator.sh/gpu-isolation-provider", "config.koordinator.sh/controller-managed"),
)
ANNOTATION_NAMES: Final = frozenset().union(
    _constants("_ANNOTATION", protocol, quota_tree, gang, device_request),
    ANNOTATIONS,
    protocol.ANNOTATION_ALIASES,
    (RECORD_ANNOTATION, MISSED_ANNOTATION, "koordinator.sh/networkQOS"),
    _below(_SCHEDULING, "bind-gang-group-id bind-gang-member-count scheduling-hint"),
    _below(_INTERNAL, "bind-gang-group-id bind-gang-member-count scheduling-hint original-scheduler-name"),
    _below("quota.scheduling.koordinator.sh", "guaranteed allocated admission"),
    _below("gang.scheduling.koordinator.sh", "timeout network-topology-index network-topology-spec"),
    _below("pod.koordinator.sh", "pre-allocatable-priority replace-resources"),
    _below(_SCHEDULING, "device-allocated gpu-partitions usage-thresholds network-topology-selector"),
    _below(_SCHEDULING, "reservation-owners reservation-current-owner reservation-restricted-options"),
    _below(_SCHEDULING, "exact-match-reservation reservation-order"),
)
ELSEWHERE: Final = frozenset().union(
    _below("node.koordinator.sh", "cpu-normalization-enabled cpu-basic-info gpu-vendor gpu-model gpu-driver-version"),
    _below("node.koordinator.sh", "gpu-partition-policy secondary-device-well-planned enable-numa-reservation"),
    _below("cotenant.dev", "keep-qos-class profile reservation-mode resources"),
)
"""Names on nodes, workloads and Reservations that resemble one of a pod, so that they are no misspelling of it."""
FIELDS: Final[Mapping[str, Collection[str]]] = {
    protocol.RESOURCE_SPEC_ANNOTATION: WORDS[protocol.RESOURCE_SPEC_ANNOTATION].keys(),
    protocol.NUMA_SPEC_ANNOTATION: ("numaTopologyPolicy", "singleNUMANodeExclusive"),
    protocol.CPU_BURST_ANNOTATION: field_names(CpuBurst),
    protocol.CPU_QOS_ANNOTATION: field_names(CpuQos),
    protocol.MEMORY_QOS_ANNOTATION: {"policy", *field_names(MemoryQos)},
    protocol.BLKIO_QOS_ANNOTATION: field_names(BlkioQos),
    protocol.RESERVATION_AFFINITY_ANNOTATION: (
        *("name", "reservationSelector", "tolerations"),
        *("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"),
    ),
    device_request.JOINT_ANNOTATION: ("deviceTypes", "requiredScope"),
    device_request.PARTITION_ANNOTATION: ("allocatePolicy", "ringBusBandwidth"),
    device_request.HINT_ANNOTATION: (
        *("selector", "vfSelector", "allocateStrategy"),
        *("requiredTopologyScope", "exclusivePolicy"),
    ),
}
"""Annotation -> the fields of its JSON object; for the device hint, those of each object in that object."""
_KNOWN: Final = LABEL_NAMES | ANNOTATION_NAMES | ELSEWHERE
_NO_ANNOTATION: Final = LABEL_NAMES - ANNOTATION_NAMES
_NO_LABEL: Final = ANNOTATION_NAMES - LABEL_NAMES


def misspelt_on_pod(pod: Json) -> Iterator[str]:
    """Yield a warning for each name on a new pod that no program reads, with the name that is probably meant."""
    yield from misspelt_keys(pod["metadata"])
    # Fields of annotations' JSON objects; what is no object is named elsewhere (`misread`).
    annotations = pod["metadata"].get("annotations") or {}
    for key in sorted(annotations.keys() & FIELDS.keys()):
        try:
            document = msgspec.json.decode(str(annotations[key]), type=dict[str, Any])
        except UNDECODABLE:
            continue
        objects: dict[str, Any] = {key: document}
        if key == device_request.HINT_ANNOTATION:
            objects = {f"{key}: {kind[:_LONGEST]}": inner for kind, inner in islice(document.items(), _MOST)}
        for where, inner in objects.items():
            if isinstance(inner, dict):
                yield from _meant(f"{where}: ", inner.keys() - set(FIELDS[key]), FIELDS[key])
    for container in containers(pod, "initContainers", "containers"):
        names = sorted({name for side in SIDES for name in amounts(container, side) if "/" in name} - _RESOURCES)
        for name in names[:_MOST]:
            # Whichever of the protocol's domains is written before the name.
            written = [r for r in _WRITTEN if _of_a_family(name, (*_OF_RESOURCES, r.rpartition("/")[0]))]
            yield from _meant(f"container {container.get('name')}: ", (name,), written)


def misspelt_keys(metadata: Json) -> Iterator[str]:
    """Yield a warning for each label or annotation of the protocol that is misplaced or misspelt."""
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    yield from (
        f"label {format_value(key, 96)} is an annotation: as a label it has no effect"
        for key in sorted(labels.keys() & _NO_LABEL)
    )
    yield from (
        f"annotation {format_value(key, 96)} is a label: as an annotation it has no effect"
        for key in sorted(annotations.keys() & _NO_ANNOTATION)
    )
    for kind, keys in (("label", labels), ("annotation", annotations)):
        unknown = (key for key in sorted(keys) if key not in _KNOWN and _of_a_family(key))
        yield from _meant(f"{kind} ", islice(unknown, _MOST), _KNOWN)


def _of_a_family(key: str, families: Iterable[str] = _FAMILIES) -> bool:
    """Return whether the key's domain ends like one of the protocol's."""
    domain = ".".join(key.rpartition("/")[0].split(".")[-2:])
    return any(_ratio(domain, family) >= _ALIKE for family in families)


def _meant(where: str, names: Iterable[str], valid: Collection[str]) -> Iterator[str]:
    """Return a question that suggests the most similar name, the first of several by name; "" for none."""
    for name in sorted(names)[:_MOST]:
        own = name.rpartition("/")[2]
        near = [candidate for candidate in valid if _ratio(own, candidate.rpartition("/")[2]) >= _ALIKE]
        best = min(near, key=lambda candidate: (-_ratio(name, candidate), candidate), default="")
        if best:
            yield f"{where}{format_value(name, 72)}: do you mean {best}?"


def _ratio(name: str, other: str) -> float:
    """Return the similarity of two names, 0 to 1, ignoring case, hyphens and underscores."""
    return difflib.SequenceMatcher(None, _plain(name), _plain(other)).ratio()


def _plain(name: str) -> str:
    return name[:_LONGEST].lower().replace("-", "").replace("_", "")
