"""The fields of workloads, autoscalers and bounds that cotenant reads; Pods and Nodes: `kubernetes.models`. Pure.

Fields that are not named here never become Python objects. `projection` converts the structs.
"""

from __future__ import annotations

import msgspec

from cotenant.base.kubernetes.models.autoscalers import MetricWire, TargetRef
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
    """A Deployment, StatefulSet, DaemonSet, ReplicaSet, Job or CronJob: its metadata and its template's containers."""

    metadata: DatedMeta
    spec: _ControllerSpec = msgspec.field(default_factory=_ControllerSpec)

    def template_names(self) -> frozenset[str] | None:
        """Return the names of the template's containers, including init containers; None if it has no template."""
        job = self.spec.job_template
        template = job.spec.template if job else self.spec.template
        if template is None:
            return None
        containers = [*(template.spec.containers or []), *(template.spec.init_containers or [])]
        return frozenset(container.name for container in containers)


class _AutoscalerSpec(msgspec.Struct, rename="camel"):
    scale_target_ref: TargetRef
    max_replicas: int
    min_replicas: int | None = None
    metrics: list[MetricWire] | None = None


class AutoscalerObject(msgspec.Struct):
    """An autoscaling/v2 HorizontalPodAutoscaler."""

    metadata: DatedMeta
    spec: _AutoscalerSpec


class LimitItem(msgspec.Struct, rename="camel"):
    """One item of a LimitRange; its `type` tells whether it bounds containers, pods or claims."""

    type: str
    min: Quantities | None = None
    max: Quantities | None = None
    max_limit_request_ratio: Quantities | None = None


class _LimitRangeSpec(msgspec.Struct):
    limits: list[LimitItem] | None = None


class LimitRangeObject(msgspec.Struct):
    """A LimitRange with its items."""

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
    """A ResourceQuota with its hard limits and the amounts used."""

    metadata: DatedMeta
    spec: _QuotaObjectSpec = msgspec.field(default_factory=_QuotaObjectSpec)
    status: _QuotaStatus = msgspec.field(default_factory=_QuotaStatus)

    @property
    def scoped(self) -> bool:
        """True if the quota counts only some of the namespace's pods."""
        selector = self.spec.scope_selector
        return bool(self.spec.scopes) or (selector is not None and bytes(selector) not in (b"", b"null", b"{}"))


class VersionObject(msgspec.Struct, rename="camel"):
    """The API server's response to /version."""

    git_version: str = ""
