"""VerticalPodAutoscalers and their checkpoints, as far as cotenant reads them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from cotenant.base.kubernetes.models.metadata import DatedMeta


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
    """A VerticalPodAutoscaler: whose containers it watches, and how it changes them."""

    metadata: DatedMeta
    spec: _VerticalSpec = msgspec.field(default_factory=_VerticalSpec)

    @property
    def writes(self) -> str:
        """Say that it writes the requests of its pods; "" where it only recommends."""
        mode = (self.spec.update_policy.update_mode if self.spec.update_policy else None) or "Auto"
        return "" if mode == "Off" else f"VerticalPodAutoscaler {self.metadata.name} sets its requests ({mode})"


def vertical_writer(kind: str, name: str, autoscalers: Iterable[VerticalAutoscalerObject]) -> str:
    """Why one of a namespace's VerticalPodAutoscalers writes a workload's requests; "" when none does."""
    targets = ((vpa.spec.target_ref, vpa.writes) for vpa in autoscalers)
    return next((why for target, why in targets if target and (target.kind, target.name) == (kind, name) and why), "")


class HistogramStatus(msgspec.Struct, rename="camel"):
    """One histogram of a checkpoint."""

    reference_timestamp: datetime | None = None
    bucket_weights: dict[int, float] = msgspec.field(default_factory=dict)
    total_weight: float = 0.0


class CheckpointStatus(msgspec.Struct, rename="camel"):
    """The status of a checkpoint: one container's samples."""

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
    """A VerticalPodAutoscalerCheckpoint; its definition lets anything be a status, so that one is decoded by itself."""

    metadata: DatedMeta
    spec: _CheckpointSpec = msgspec.field(default_factory=_CheckpointSpec)
    status: msgspec.Raw = msgspec.Raw(b"{}")
