"""The KubeSchedulerConfiguration that adds this extender to a kube-scheduler. Pure.

Two entries, because a bind verb without managed resources would make us the binder of every pod: the first filters,
ranks and vetoes preemption for all pods and is stepped over while we are away; the second binds only pods that ask for
it, by a resource that the scheduler's own fit does not look at, and is never stepped over. Where all other pods are
left to the scheduler (`managed_only`), one entry does both.
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
    """The scheduler's way to the extender; files are paths on its machine, empty for plain HTTP on loopback."""

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
    """The document; scheduler_name: of a second scheduler with a leader of its own; managed_only: as in `extenders`."""
    document: dict[str, Any] = {"apiVersion": API_VERSION, "kind": "KubeSchedulerConfiguration"}
    if kubeconfig:
        document["clientConnection"] = {"kubeconfig": kubeconfig}
    if scheduler_name:
        document["leaderElection"] = {"leaderElect": True, "resourceName": scheduler_name}
        document["profiles"] = [{"schedulerName": scheduler_name}]
    return document | {"extenders": extenders(reach, settings, managed_only=managed_only)}


def extenders(reach: Reach, settings: ExtenderSettings, *, managed_only: bool = False) -> list[dict[str, Any]]:
    """Two entries of `extenders`: one with the rules, which the scheduler may ignore, one that binds, which it may not.

    They are apart because `ignorable` holds for a whole entry: without the rules scheduling goes on, but a bind that
    got no answer has failed. So have their times to answer: a process that is frozen, or behind a slow network, costs
    every pod the whole time of the rules, and a bind that is cut off has to be done again.

    managed_only: one entry with all verbs, for the pods alone that request a resource which we give out: a resource
    may stand in one entry only, and these pods cannot be bound without us anyway. All other pods cost the scheduler
    nothing; load taints keep them away from busy nodes. Batch resources cannot be listed: the scheduler refuses names
    with the prefix kubernetes.io/.
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
