"""The workload behind a pod's direct controller, read from names where the controller itself is not read. Pure."""

from __future__ import annotations

import re
from typing import Final

from cotenant.core.model.identity import WorkloadRef

TEMPLATE_HASH_LABEL: Final = "pod-template-hash"
"""Of a Deployment's pods; the hash ends the name of their ReplicaSet."""
DEPLOYMENT_CONFIG_LABEL: Final = "deploymentconfig"
"""Of a DeploymentConfig's pods (OpenShift)."""
LINKED: Final = frozenset({"ReplicaSet", "ReplicationController", "Job", "Pod"})
"""Kinds that lead on to their own controller; above others, such as a StatefulSet's operator, nobody looks."""
_NUMBERED: Final = re.compile(r"-\d+$")
"""A DeploymentConfig's ReplicationControllers are named by its version."""
_SCHEDULED_MINUTE: Final = re.compile(r"-\d{8}$")
"""A CronJob's Jobs are named by the minute for which they were scheduled, since 1970."""


def deployment_of(owner: WorkloadRef, template_hash: str) -> WorkloadRef:
    """The Deployment of a ReplicaSet that carries the hash of the pod's template in its name; else the owner itself."""
    suffix = f"-{template_hash}"
    if owner.kind != "ReplicaSet" or not template_hash or not owner.name.endswith(suffix):
        return owner
    return WorkloadRef(owner.namespace, "Deployment", owner.name.removesuffix(suffix))


def deployment_config_of(owner: WorkloadRef, label: str) -> WorkloadRef:
    """The DeploymentConfig of a ReplicationController whose pods carry its name in their label; else the owner."""
    name = _NUMBERED.sub("", owner.name)
    if owner.kind != "ReplicationController" or not label or label != name or name == owner.name:
        return owner
    return WorkloadRef(owner.namespace, "DeploymentConfig", name)


def cron_job_of(owner: WorkloadRef) -> WorkloadRef:
    """The CronJob of a Job that is named as one of its Jobs; else the owner itself."""
    name = _SCHEDULED_MINUTE.sub("", owner.name)
    if owner.kind != "Job" or name in ("", owner.name):
        return owner
    return WorkloadRef(owner.namespace, "CronJob", name)
