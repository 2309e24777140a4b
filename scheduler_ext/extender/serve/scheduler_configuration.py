"""The KubeSchedulerConfiguration that adds this extender to a kube-scheduler. Pure.

It has two entries, because a bind verb without managed resources would make cotenant bind every pod. The first one
filters, ranks and vetoes preemption for all pods, and is skipped while the extender is down. The second binds only pods
that request it, by a resource that the scheduler's own fit ignores, and is never skipped. With `managed_only`, one
entry does both for such pods alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cotenant.base.allocation.device_request import SHARED_RESOURCES
from cotenant.base.kubernetes.protocol import BIND_RESOURCE
from cotenant.scheduler_ext.extender.settings import ExtenderSettings

API_VERSION = "kubescheduler.config.k8s.io/v1"
BIND_SECONDS = 1.0  # a bind is waited for at least so long: it writes to the API server before it answers


@dataclass(frozen=True, slots=True)
class Reach:
    """The scheduler's access to the extender; files are paths on its machine, empty for plain HTTP on loopback."""

    url: str
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    server_name: str = ""


def configuration(
    reach: Reach,
    settings: ExtenderSettings,
    scheduler_name: str = "",
    kubeconfig: str = "",
    *,
    managed_only: bool = False,
) -> dict[str, Any]:
    """Return a KubeSchedulerConfiguration; with `scheduler_name`, for a second scheduler with own leader election."""
    document: dict[str, Any] = {"apiVersion": API_VERSION, "kind": "KubeSchedulerConfiguration"}
    if kubeconfig:
        document["clientConnection"] = {"kubeconfig": kubeconfig}
    if scheduler_name:
        document["leaderElection"] = {"leaderElect": True, "resourceName": scheduler_name}
        document["profiles"] = [{"schedulerName": scheduler_name}]
    return document | {"extenders": extenders(reach, settings, managed_only=managed_only)}


def extenders(reach: Reach, settings: ExtenderSettings, *, managed_only: bool = False) -> list[dict[str, Any]]:
    """Return two entries of `extenders`: one with the rules, which the scheduler may ignore, and one that binds.

    They are separate because `ignorable` applies to a whole entry: scheduling may go on without the rules, but not
    without a bind. The rules' timeout is short, because a frozen process or a slow network costs every pod all of it;
    bind's is longer, because an aborted bind has to be done again.

    With `managed_only`, one entry has all verbs, only for pods that request a resource that cotenant assigns: a
    resource may be in one entry only, and these pods cannot be bound without cotenant anyway. Other pods cost the
    scheduler nothing; load taints keep them off busy nodes. Batch resources cannot be listed: the scheduler refuses
    names with the prefix kubernetes.io/.
    """
    rules: dict[str, Any] = {"filterVerb": "filter", "preemptVerb": "preempt", "ignorable": True}
    if settings.weight:
        rules |= {"prioritizeVerb": "prioritize", "weight": settings.weight}
    names = (BIND_RESOURCE, *(SHARED_RESOURCES if settings.devices.on else ()))
    managed = [{"name": name, "ignoredByScheduler": True} for name in names]
    binding = {"bindVerb": "bind", "managedResources": managed, "ignorable": False}
    seconds = settings.http_timeout_seconds
    with_time_to_bind = _common(reach, max(seconds, BIND_SECONDS))
    if managed_only:
        return [with_time_to_bind | rules | binding]
    return [_common(reach, seconds) | rules, with_time_to_bind | binding]


def _common(reach: Reach, timeout_seconds: float) -> dict[str, Any]:
    timeout = f"{round(timeout_seconds * 1000)}ms"
    entry = {"urlPrefix": reach.url.rstrip("/"), "nodeCacheCapable": True, "httpTimeout": timeout}
    if not reach.url.startswith("https://"):
        return entry
    # always with an authority: without one the scheduler does not verify at all
    files = {"caFile": reach.ca_file, "certFile": reach.cert_file, "keyFile": reach.key_file}
    name = {"serverName": reach.server_name} if reach.server_name else {}
    return {**entry, "enableHTTPS": True, "tlsConfig": {**files, **name}}
