"""Values on new pods and quotas that cannot be parsed, or that have another effect than intended. Pure.

The API server accepts any text in a label or annotation, and `200m` of batch-cpu, which is a fifth of a millicore. The
author is warned at once; the object is admitted, as in Koordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from cotenant.admission.resources import CLASS_NAMES, SIDES, amounts, containers
from cotenant.base.allocation.device_request import HINT_ANNOTATION, JOINT_ANNOTATION, PARTITION_ANNOTATION
from cotenant.base.errors import CotenantError
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.kubernetes.protocol import (
    BLKIO_QOS_ANNOTATION,
    CPU_BURST_ANNOTATION,
    CPU_QOS_ANNOTATION,
    EXTENDED_SPEC_ANNOTATION,
    MEMORY_QOS_ANNOTATION,
    MUTATING_UPDATE_LABEL,
    NUMA_SPEC_ANNOTATION,
    OPERATING_MODE_LABEL,
    PREDICTED_USAGE_ANNOTATION,
    RESCTRL_ANNOTATION,
    RESERVATION_AFFINITY_ANNOTATION,
    RESERVATION_IGNORED_LABEL,
    RESOURCE_SPEC_ANNOTATION,
    RUN_SECONDS_ANNOTATION,
    SKIP_HOOKS_LABEL,
    SUB_PRIORITY_LABEL,
)
from cotenant.base.kubernetes.qos import PRIORITY_CLASS_LABEL, QOS_LABEL, PriorityClass, QosClass
from cotenant.base.kubernetes.quantity import parse_millicores
from cotenant.base.kubernetes.quota_tree import (
    FORCE_LABEL,
    IGNORE_DEFAULT_TREE_LABEL,
    IS_PARENT_LABEL,
    IS_ROOT_LABEL,
    LENT_LABEL,
    PREEMPTIBLE_LABEL,
)
from cotenant.base.text import format_value
from cotenant.scheduler_ext.queues.model.gang import MINIMUM_ANNOTATION, gang_of_pod
from cotenant.scheduler_ext.reservations.pod_gate import MISSPELT, gates_of, misspelt

Json = Mapping[str, Any]
Check = tuple[str, Callable[[str], bool]]
"""What a value has to be, in words, and whether a text is that."""
SCHEDULING: Final = "scheduling.koordinator.sh/"
INT32: Final = 2**31


def _is_int32(text: str) -> bool:
    try:
        return -INT32 <= int(text) < INT32 and text.strip() == text and "_" not in text
    except ValueError:
        return False


def _seconds(text: str) -> bool:
    try:
        return 0 <= float(text) < float("inf")
    except ValueError:
        return False


def _json_checker(kind: Any) -> Callable[[str], bool]:
    def readable(text: str) -> bool:
        try:
            msgspec.json.decode(text, type=kind)
        except UNDECODABLE:
            return False
        return True

    return readable


def _one_of(*texts: str) -> Check:
    return f"one of {', '.join(texts)}", frozenset(texts).__contains__


BOOLEAN: Final = _one_of("true", "false")
WHOLE: Final[Check] = ("a whole number of 32 bits", _is_int32)
SECONDS: Final[Check] = ("a number of seconds", _seconds)
OBJECT: Final[Check] = ("a JSON object", _json_checker(dict[str, Any]))
LEAST_MILLICORES: Final = 100
PAGE_BYTES: Final = 4096
"""Amounts of a container below these are likely written in another unit."""
LABELS: Final[Mapping[str, Check]] = {
    QOS_LABEL: _one_of(*(qos_class.value for qos_class in QosClass if qos_class)),
    PRIORITY_CLASS_LABEL: _one_of(*(priority_class.value for priority_class in PriorityClass if priority_class)),
    SUB_PRIORITY_LABEL: WHOLE,
    "koordinator.sh/eviction-enabled": BOOLEAN,
    PREEMPTIBLE_LABEL: BOOLEAN,
    RESERVATION_IGNORED_LABEL: BOOLEAN,
    SKIP_HOOKS_LABEL: BOOLEAN,
    MUTATING_UPDATE_LABEL: BOOLEAN,
    OPERATING_MODE_LABEL: _one_of("Pod", "Reservation"),
}
ANNOTATIONS: Final[Mapping[str, Check]] = {
    "koordinator.sh/eviction-priority": WHOLE,
    "koordinator.sh/eviction-policy": ("a JSON list of names", _json_checker(list[str])),
    f"{SCHEDULING}eviction-cost": WHOLE,
    f"{SCHEDULING}load-estimated-scaling-factors": OBJECT,
    f"{SCHEDULING}load-estimated-seconds-after-pod-scheduled": SECONDS,
    f"{SCHEDULING}load-estimated-seconds-after-initialized": SECONDS,
    RUN_SECONDS_ANNOTATION: SECONDS,
    **dict.fromkeys(
        (
            RESOURCE_SPEC_ANNOTATION,
            NUMA_SPEC_ANNOTATION,
            EXTENDED_SPEC_ANNOTATION,
            CPU_BURST_ANNOTATION,
            CPU_QOS_ANNOTATION,
            MEMORY_QOS_ANNOTATION,
            BLKIO_QOS_ANNOTATION,
            RESCTRL_ANNOTATION,
            HINT_ANNOTATION,
            JOINT_ANNOTATION,
            PARTITION_ANNOTATION,
            RESERVATION_AFFINITY_ANNOTATION,
            PREDICTED_USAGE_ANNOTATION,
        ),
        OBJECT,
    ),
}
_BINDING: Final = ("", "Default", "None", "FullPCPUs", "SpreadByPCPUs", "ConstrainedBurst")
WORDS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    RESOURCE_SPEC_ANNOTATION: {
        "requiredCPUBindPolicy": _BINDING,
        "preferredCPUBindPolicy": _BINDING,
        "preferredCPUExclusivePolicy": ("", "None", "PCPULevel", "NUMANodeLevel"),
    },
    NUMA_SPEC_ANNOTATION: {"numaTopologyPolicy": ("", "None", "BestEffort", "Restricted", "SingleNUMANode")},
    CPU_BURST_ANNOTATION: {"policy": ("", "none", "cpuBurstOnly", "cfsQuotaBurstOnly", "auto")},
}
"""Annotation -> field of its JSON object -> the words that Koordinator knows there."""
QUOTA_LABELS: Final[Mapping[str, Check]] = dict.fromkeys(
    (IS_PARENT_LABEL, IS_ROOT_LABEL, FORCE_LABEL, LENT_LABEL, IGNORE_DEFAULT_TREE_LABEL), BOOLEAN
)


def misread_on_pod(pod: Json, namespace: str) -> Iterator[str]:
    """Yield a warning for each label, annotation and amount of a new pod that cannot be understood."""
    metadata = pod["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    yield from _misread(labels, LABELS)
    yield from _misread(annotations, ANNOTATIONS)
    for key in WORDS.keys() & annotations.keys():
        try:
            document = msgspec.json.decode(str(annotations[key]), type=dict[str, Any])
        except UNDECODABLE:
            continue  # named as no JSON object already
        for name, choices in WORDS[key].items():
            word = document.get(name)
            if word is not None and word not in choices:
                valid_words = ", ".join(filter(None, choices))
                yield f"{key}: {name} {format_value(word, 24)} is not one of {valid_words}; it has no effect"
    gang = gang_of_pod(namespace, str(metadata.get("name") or ""), labels, annotations)
    if gang is not None:  # a missing minimum may be in the gang's PodGroup
        gang_notes = [*gang.notes, *([gang.problem] if MINIMUM_ANNOTATION in annotations and gang.problem else [])]
        yield from (text.removeprefix(f"{gang.source}: ") for text in gang_notes)
    yield from (f"spec.schedulingGates: {format_value(gate, 48)}: {MISSPELT}" for gate in misspelt(gates_of(pod)))
    for where, name, value in _class_amounts(pod):
        yield from _amount(where, name, value)


def _class_amounts(pod: Json) -> Iterator[tuple[str, str, Any]]:
    for container in containers(pod, "initContainers", "containers"):
        for side in SIDES:
            for name in sorted(CLASS_NAMES & amounts(container, side).keys()):
                yield f"container {container.get('name')}", name, amounts(container, side)[name]


def small_amounts(pod: Json) -> Iterator[str]:
    """Yield a warning for each batch or mid amount of less than 0.1 cores or a memory page: its unit may be wrong."""
    for where, name, value in _class_amounts(pod):
        with suppress(CotenantError):
            number, is_cpu = parse_millicores(value) // 1000, name.endswith("-cpu")
            if 0 < number < (LEAST_MILLICORES if is_cpu else PAGE_BYTES):
                unit = f"millicores: write {number}000 for {number} cores" if is_cpu else f"bytes: write {number}Mi"
                yield f"{where}: {name} {format_value(value, 16)} is only {number} {unit}"


def misread_on_quota(quota: Json) -> Iterator[str]:
    """Yield a warning for each ElasticQuota label that is not "true" or "false", and for each fractional amount."""
    yield from _misread(quota["metadata"].get("labels") or {}, QUOTA_LABELS)
    for side in ("min", "max"):
        limited = (quota.get("spec") or {}).get(side) or {}
        for name in sorted(CLASS_NAMES & limited.keys()):
            yield from _amount(f"spec.{side}", name, limited[name])


def _misread(texts: Mapping[str, Any], checks: Mapping[str, Check]) -> Iterator[str]:
    for key in checks.keys() & texts.keys():
        kind, understood = checks[key]
        text = str(texts[key])
        if text and not understood(text):
            yield f"{key} {format_value(text, 24)} is not {kind}; it has no effect"


def _amount(where: str, name: str, value: Any) -> Iterator[str]:
    """Yield a warning if an amount of batch or mid resources is not a whole number of millicores or bytes."""
    try:
        thousandths = parse_millicores(value)
    except CotenantError:
        return  # the API server refuses what is no quantity
    if thousandths % 1000:
        unit = "millicores" if name.endswith("-cpu") else "bytes"
        number = f"{thousandths / 1000:g} {unit}"
        yield f"{where}: {name} {format_value(value, 16)} is {number}, rounded up: write whole {unit}"
