"""The fields of workloads, autoscalers and bounds that we read; Pods and Nodes: `kubernetes.models`. Pure.

What is not named here never becomes a Python object. `projection` turns them into the vocabulary.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from cotenant.base.kubernetes.models.metadata import DatedMeta
from cotenant.base.kubernetes.models.pod import NamedTemplate, Quantities


class _JobSpec(msgspec.Struct):
    template: NamedTemplate | None = None


class _JobTemplate(msgspec.Struct):
    spec: _JobSpec = msgspec.field(default_factory=_JobSpec)


class _ControllerSpec(msgspec.Struct, rename="camel"):
    template: NamedTemplate | None = None
    job_template: _JobTemplate | None = None


class ControllerObject(msgspec.Struct):
    """A Deployment, StatefulSet, DaemonSet, ReplicaSet, Job or CronJob: whose it is and what its template names."""

    metadata: DatedMeta
    spec: _ControllerSpec = msgspec.field(default_factory=_ControllerSpec)

    def template_names(self) -> frozenset[str] | None:
        """Names of the template's containers, init containers included; None when it has no template."""
        job = self.spec.job_template
        template = job.spec.template if job else self.spec.template
        if template is None:
            return None
        containers = [*(template.spec.containers or []), *(template.spec.init_containers or [])]
        return frozenset(container.name for container in containers)


class _Target(msgspec.Struct, rename="camel"):
    type: str = ""
    average_utilization: int | None = None


class _MetricResource(msgspec.Struct):
    name: str
    target: _Target
    container: str = ""


class _Metric(msgspec.Struct, rename="camel"):
    type: str
    resource: _MetricResource | None = None
    container_resource: _MetricResource | None = None


class _ScaleTarget(msgspec.Struct):
    kind: str
    name: str


class _AutoscalerSpec(msgspec.Struct, rename="camel"):
    scale_target_ref: _ScaleTarget
    max_replicas: int
    min_replicas: int | None = None
    metrics: list[_Metric] | None = None


class AutoscalerObject(msgspec.Struct):
    """An autoscaling/v2 HorizontalPodAutoscaler."""

    metadata: DatedMeta
    spec: _AutoscalerSpec


class _UpdatePolicy(msgspec.Struct, rename="camel"):
    update_mode: str | None = None


class _VerticalSpec(msgspec.Struct, rename="camel"):
    target_ref: _ScaleTarget | None = None
    update_policy: _UpdatePolicy | None = None


class VerticalAutoscalerObject(msgspec.Struct):
    """A VerticalPodAutoscaler: whose containers it watches, and how it changes them."""

    metadata: DatedMeta
    spec: _VerticalSpec = msgspec.field(default_factory=_VerticalSpec)


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


class LimitItem(msgspec.Struct, rename="camel"):
    """One item of a LimitRange; `type` says what it bounds."""

    type: str
    min: Quantities | None = None
    max: Quantities | None = None
    max_limit_request_ratio: Quantities | None = None


class _LimitRangeSpec(msgspec.Struct):
    limits: list[LimitItem] | None = None


class LimitRangeObject(msgspec.Struct):
    """A LimitRange."""

    metadata: DatedMeta
    spec: _LimitRangeSpec = msgspec.field(default_factory=_LimitRangeSpec)


class _QuotaObjectSpec(msgspec.Struct, rename="camel"):
    hard: Quantities | None = None
    scopes: list[str] | None = None
    scope_selector: msgspec.Raw | None = None


class _QuotaStatus(msgspec.Struct):
    hard: Quantities | None = None
    used: Quantities | None = None


class QuotaObject(msgspec.Struct):
    """A ResourceQuota."""

    metadata: DatedMeta
    spec: _QuotaObjectSpec = msgspec.field(default_factory=_QuotaObjectSpec)
    status: _QuotaStatus = msgspec.field(default_factory=_QuotaStatus)

    @property
    def scoped(self) -> bool:
        """True if the quota counts only some of the namespace's pods."""
        selector = self.spec.scope_selector
        return bool(self.spec.scopes) or (selector is not None and bytes(selector) not in (b"", b"null", b"{}"))


class VersionObject(msgspec.Struct, rename="camel"):
    """The answer of /version."""

    git_version: str = ""
