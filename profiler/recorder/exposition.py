"""Parses a kubelet's `/metrics/resource`, and throttled time in its `/metrics/cadvisor`, into columns. Pure.

One regular expression per metric finds all its lines at once and numpy converts the numbers, so that Python processes
no single lines. Labels stay bytes: they are the same in every answer, so that a reader parses each text only once
(`container_ref`).
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.identity import PodContainerRef

Floats = npt.NDArray[np.float64]

MILLISECONDS_PER_SECOND: Final = 1000.0


@dataclass(frozen=True, slots=True, eq=False)
class SampleColumns:
    """Samples of one metric: label text between the braces, value, and Unix time that the sample states (NaN = none).

    All three columns have the same length; labels are empty for a metric without any.
    """

    labels: list[bytes]
    values: Floats
    times: Floats


@dataclass(frozen=True, slots=True, eq=False)
class ResourceAnswer:
    """The samples that a kubelet reports of its node and its containers.

    `cpu` is seconds of CPU time since the start; `memory` is bytes of the working set and of swapped memory; `starts`
    are Unix times. `malformed` counts samples whose value is not a number, which are left out.
    """

    container_cpu: SampleColumns
    container_memory: SampleColumns
    container_starts: SampleColumns
    node_cpu: SampleColumns
    node_memory: SampleColumns
    malformed: int = 0

    @property
    def samples(self) -> int:
        """Number of samples that were parsed."""
        parts = (self.container_cpu, self.container_memory, self.container_starts, self.node_cpu, self.node_memory)
        return sum(len(part.labels) for part in parts)


def _lines_of(metric: str) -> re.Pattern[bytes]:
    """Return the pattern for the lines of a metric: labels, value and optional time in milliseconds."""
    # No label value of a kubelet has a brace: names of Kubernetes are of letters, digits, dots and dashes.
    return re.compile(
        rb"\n"
        + metric.encode()
        + rb"(?:\{([^}\n]*)\})?[ \t]+([^ \t\r\n]{1,64})(?:[ \t]+(-?[0-9]{1,20}))?[ \t\r]*(?=\n|\Z)"
    )


_CONTAINER_CPU: Final = _lines_of("container_cpu_usage_seconds_total")
_CONTAINER_MEMORY: Final = _lines_of("container_memory_working_set_bytes")
_CONTAINER_SWAP: Final = _lines_of("container_swap_usage_bytes")
_CONTAINER_START: Final = _lines_of("container_start_time_seconds")
_NODE_CPU: Final = _lines_of("node_cpu_usage_seconds_total")
_NODE_MEMORY: Final = _lines_of("node_memory_working_set_bytes")
THROTTLED: Final = "container_cpu_cfs_throttled_seconds_total"
"""cAdvisor's counter of a container's wait for its quota, on all CPUs; containers without a quota do not have it."""
_THROTTLED: Final = _lines_of(THROTTLED)
_NAMING: Final = re.compile(rb'(?:^|,)(container|namespace|pod)="([^"]*)"')
_PAUSE: Final = b"POD"
"""Name of a pod's sandbox under Docker, in kubelets before 1.24."""
_LABEL: Final = re.compile(r'(?<![a-zA-Z0-9_])([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\(.)")


def parse_resource_metrics(text: bytes) -> ResourceAnswer:
    """Parse the samples in the text of `/metrics/resource`; swap is added to memory, other metrics are skipped."""
    lines = b"\n" + text
    parts = [
        _columns(pattern, lines)
        for pattern in (_CONTAINER_CPU, _CONTAINER_MEMORY, _CONTAINER_START, _NODE_CPU, _NODE_MEMORY)
    ]
    cpu, memory, starts, node_cpu, node_memory = (part for part, _ in parts)
    swap, _ = _columns(_CONTAINER_SWAP, lines)
    if out := dict(
        zip(swap.labels, swap.values.tolist(), strict=True)
    ):  # a container needs what is swapped out as well
        values = memory.values + np.array([out.get(label, 0.0) for label in memory.labels])
        memory = SampleColumns(memory.labels, values, memory.times)
    return ResourceAnswer(cpu, memory, starts, node_cpu, node_memory, sum(malformed for _, malformed in parts))


def parse_throttled_time(text: bytes) -> SampleColumns:
    """Parse the seconds for which containers were throttled, with the same labels as in `/metrics/resource`.

    Cgroups of whole pods and of the node, which name no container, are skipped.
    """
    columns, _ = _columns(_THROTTLED, b"\n" + text)
    labels = [_container_labels(label) for label in columns.labels]
    readable = [i for i, label in enumerate(labels) if label]
    return SampleColumns([labels[i] for i in readable], columns.values[readable], columns.times[readable])


def _container_labels(labels: bytes) -> bytes:
    """Return the text by which `/metrics/resource` names the same container; "" if none is named."""
    fields = dict(_NAMING.findall(labels))
    container, namespace, pod = fields.get(b"container"), fields.get(b"namespace"), fields.get(b"pod")
    if not container or container == _PAUSE or not namespace or not pod:
        return b""
    return b'container="%b",namespace="%b",pod="%b"' % (container, namespace, pod)


def _columns(pattern: re.Pattern[bytes], text: bytes) -> tuple[SampleColumns, int]:
    """Return the samples of one metric, and how many were left out."""
    rows = pattern.findall(text)
    if not rows:
        return SampleColumns([], np.empty(0), np.empty(0)), 0
    labels, value_texts, time_texts = map(list, zip(*rows, strict=True))
    values = _numbers(value_texts)
    readable = np.isfinite(values) & (values >= 0)
    times = _numbers([time or b"nan" for time in time_texts]) / MILLISECONDS_PER_SECOND
    if readable.all():
        return SampleColumns(labels, values, times), 0
    valid = np.flatnonzero(readable)
    return SampleColumns([labels[i] for i in valid], values[valid], times[valid]), len(labels) - len(valid)


def _numbers(texts: list[bytes]) -> Floats:
    """Return the numbers; NaN for a text that is no number."""
    try:
        return np.array(texts).astype(np.float64)
    except ValueError:
        return np.array([_number(text) for text in texts])


def _number(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def container_ref(labels: bytes) -> PodContainerRef | None:
    """Return the container that a text of labels names; None if it names none."""
    try:
        fields = dict(_LABEL.findall(labels.decode()))
    except UnicodeDecodeError:
        return None
    namespace, pod, container = (_ESCAPED.sub(r"\1", fields.get(key, "")) for key in ("namespace", "pod", "container"))
    if not (namespace and pod and container):
        return None
    return PodContainerRef(sys.intern(namespace), pod, sys.intern(container))
