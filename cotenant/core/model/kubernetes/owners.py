"""The workload behind a pod's direct controller, read from names where the controller itself is not read. Pure."""

from __future__ import annotations

import re
from typing import Final

from cotenant.core.model.identity import WorkloadRef

TEMPLATE_HASH_LABEL: Final = "pod-template-hash"
"""Of a Deployment's pods; the hash ends the name of their ReplicaSet."""
_SCHEDULED_MINUTE: Final = re.compile(r"-\d{8}$")
"""A CronJob's Jobs are named by the minute for which they were scheduled, since 1970."""


def deployment_of(owner: WorkloadRef, template_hash: str) -> WorkloadRef:
    """The Deployment of a ReplicaSet that carries the hash of the pod's template in its name; else the owner itself."""
    suffix = f"-{template_hash}"
    if owner.kind != "ReplicaSet" or not template_hash or not owner.name.endswith(suffix):
        return owner
    return WorkloadRef(owner.namespace, "Deployment", owner.name.removesuffix(suffix))


def cron_job_of(owner: WorkloadRef) -> WorkloadRef:
    """The CronJob of a Job that is named as one of its Jobs; else the owner itself."""
    name = _SCHEDULED_MINUTE.sub("", owner.name)
    if owner.kind != "Job" or name in ("", owner.name):
        return owner
    return WorkloadRef(owner.namespace, "CronJob", name)
