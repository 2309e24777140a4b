"""The workload behind a pod's direct controller, derived from names where the controller itself is not read. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from cotenant.base.identity import WorkloadRef

TEMPLATE_HASH_LABEL: Final = "pod-template-hash"
"""Of a Deployment's pods; the hash ends the name of their ReplicaSet."""
DEPLOYMENT_CONFIG_LABEL: Final = "deploymentconfig"
"""Of a DeploymentConfig's pods (OpenShift)."""
LINKED: Final = frozenset({"ReplicaSet", "ReplicationController", "Job", "Pod"})
"""Kinds that lead on to their own controller; the owners of other kinds, such as a StatefulSet's operator, are not
read."""
WORKLOAD_API_VERSIONS: Final = {
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "ReplicaSet": "apps/v1",
    "Job": "batch/v1",
    "CronJob": "batch/v1",
}
"""API version of each kind of workload whose objects we may list, and which can so own an object of ours."""
MOST_LINKS: Final = 8
"""Longer chains of owners are loops."""
_HASHED: Final = re.compile(r"-[a-z0-9]{1,10}$")  # a Deployment's ReplicaSets end in the hash of their template
_NUMBERED: Final = re.compile(r"-\d+$")  # a DeploymentConfig's ReplicationControllers are named by its version
_SCHEDULED_MINUTE: Final = re.compile(r"-\d{8}$")
"""A CronJob's Jobs are named by the minute for which they were scheduled, since 1970."""


def owner_by_name(
    ref: WorkloadRef, template_hash: str, config_label: str, known_refs: Collection[WorkloadRef] = ()
) -> WorkloadRef | None:
    """Return the owner of a ReplicaSet, ReplicationController or Job, derived from its name; None if not confirmed.

    The owner is confirmed if a label of the pods matches (template hash, DeploymentConfig) or if it is in `known_refs`.
    """
    match ref.kind:
        case "ReplicaSet":
            by_label = deployment_of(ref, template_hash)
            guess = WorkloadRef(ref.namespace, "Deployment", _HASHED.sub("", ref.name))
        case "ReplicationController":
            by_label = deployment_config_of(ref, config_label)
            guess = WorkloadRef(ref.namespace, "DeploymentConfig", _NUMBERED.sub("", ref.name))
        case "Job":
            by_label, guess = ref, cron_job_of(ref)
        case _:
            return None
    if by_label != ref:
        return by_label
    return guess if guess in known_refs else None


def workload_by_name(owner: WorkloadRef, template_hash: str, config_label: str) -> WorkloadRef:
    """Return the workload of a pod's direct controller, derived from the controller's name and the pod's labels."""
    return cron_job_of(deployment_config_of(deployment_of(owner, template_hash), config_label))


def deployment_of(owner: WorkloadRef, template_hash: str) -> WorkloadRef:
    """Return the Deployment of a ReplicaSet whose name ends with the pod template's hash, else the owner itself."""
    suffix = f"-{template_hash}"
    if owner.kind != "ReplicaSet" or not template_hash or not owner.name.endswith(suffix):
        return owner
    return WorkloadRef(owner.namespace, "Deployment", owner.name.removesuffix(suffix))


def deployment_config_of(owner: WorkloadRef, label: str) -> WorkloadRef:
    """Return the DeploymentConfig of a ReplicationController if `label` names it; otherwise the owner itself."""
    name = _NUMBERED.sub("", owner.name)
    if owner.kind != "ReplicationController" or not label or label != name or name == owner.name:
        return owner
    return WorkloadRef(owner.namespace, "DeploymentConfig", name)


def cron_job_of(owner: WorkloadRef) -> WorkloadRef:
    """Return the CronJob of a Job whose name ends with a scheduled minute; otherwise the owner itself."""
    name = _SCHEDULED_MINUTE.sub("", owner.name)
    if owner.kind != "Job" or name in ("", owner.name):
        return owner
    return WorkloadRef(owner.namespace, "CronJob", name)
