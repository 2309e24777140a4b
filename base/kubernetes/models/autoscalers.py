"""The fields that cotenant reads of HorizontalPodAutoscalers, VerticalPodAutoscalers and their checkpoints. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from cotenant.base.kubernetes.models.metadata import DatedMeta
from cotenant.base.resource import Resource


class TargetRef(msgspec.Struct):
    """The object in the same namespace whose pods an autoscaler changes."""

    kind: str
    name: str


class _UpdatePolicy(msgspec.Struct, rename="camel"):
    update_mode: str | None = None


class _VerticalSpec(msgspec.Struct, rename="camel"):
    target_ref: TargetRef | None = None
    update_policy: _UpdatePolicy | None = None


class VerticalAutoscalerObject(msgspec.Struct):
    """A VerticalPodAutoscaler: its target workload and its update mode."""

    metadata: DatedMeta
    spec: _VerticalSpec = msgspec.field(default_factory=_VerticalSpec)

    @property
    def writes(self) -> str:
        """A sentence which says that the autoscaler sets its pods' requests; "" if it only recommends them."""
        mode = (self.spec.update_policy.update_mode if self.spec.update_policy else None) or "Auto"
        return "" if mode == "Off" else f"VerticalPodAutoscaler {self.metadata.name} sets pods' requests in mode {mode}"


def vertical_writer(kind: str, name: str, autoscalers: Iterable[VerticalAutoscalerObject]) -> str:
    """Return the sentence that names the VerticalPodAutoscaler that sets a workload's requests, or "" if none does."""
    targets = ((vpa.spec.target_ref, vpa.writes) for vpa in autoscalers)
    return next((why for target, why in targets if target and (target.kind, target.name) == (kind, name) and why), "")


class HistogramStatus(msgspec.Struct, rename="camel"):
    """A decaying histogram of a checkpoint: weight by bucket number, and the time to which the weights refer."""

    reference_timestamp: datetime | None = None
    bucket_weights: dict[int, float] = msgspec.field(default_factory=dict)
    total_weight: float = 0.0


class CheckpointStatus(msgspec.Struct, rename="camel"):
    """The status of a VerticalPodAutoscalerCheckpoint: the usage histograms of one container."""

    version: str = ""
    first_sample_start: datetime | None = None
    last_sample_start: datetime | None = None
    total_samples_count: int = 0
    cpu_histogram: HistogramStatus = msgspec.field(default_factory=HistogramStatus)
    memory_histogram: HistogramStatus = msgspec.field(default_factory=HistogramStatus)


class _CheckpointSpec(msgspec.Struct, rename="camel"):
    vpa_object_name: str = ""
    container_name: str = ""


class CheckpointObject(msgspec.Struct):
    """A VerticalPodAutoscalerCheckpoint; its status is decoded separately: its CRD permits any content there."""

    metadata: DatedMeta
    spec: _CheckpointSpec = msgspec.field(default_factory=_CheckpointSpec)
    status: msgspec.Raw = msgspec.Raw(b"{}")


class _Target(msgspec.Struct, rename="camel"):
    type: str = ""
    average_utilization: int | None = None


class _MetricResource(msgspec.Struct):
    name: str
    target: _Target
    container: str = ""


class MetricWire(msgspec.Struct, rename="camel"):
    """One metric of an autoscaling/v2 HorizontalPodAutoscaler, if its source is usage of pods or of one container."""

    type: str
    resource: _MetricResource | None = None
    container_resource: _MetricResource | None = None


def utilization_targets(metrics: Iterable[MetricWire]) -> tuple[dict[Resource, int], tuple[Resource, ...]]:
    """Return an autoscaler's targets in percent of the request, and the resources whose targets cannot be adapted.

    A target can be adapted to changed requests if it is of the whole pod and the only one of its resource. Targets in
    absolute amounts are left out.
    """
    targets: dict[Resource, list[int | None]] = {}
    for metric in metrics:
        source = metric.resource or metric.container_resource
        if source and source.name in set(Resource) and source.target.type == "Utilization":
            percent = source.target.average_utilization if metric.resource else None
            targets.setdefault(Resource(source.name), []).append(percent)
    solvable = {r: first for r, (first, *others) in targets.items() if first is not None and not others}
    return solvable, tuple(r for r in targets if r not in solvable)
