"""EDGE: the volumes of all bound claims, read once from the Kubernetes API. Nothing is written."""

from __future__ import annotations

from typing import Any, Final

from cotenant.base.errors import ClusterAbsent, ClusterForbidden
from cotenant.base.kube import KubeClient
from cotenant.scheduler_ext.volumes.bound_volumes import ClaimedVolumes, bound_volume

CLAIMS: Final = "/api/v1/persistentvolumeclaims"
VOLUMES: Final = "/api/v1/persistentvolumes"


def read_volumes(client: KubeClient, gaps: list[str]) -> ClaimedVolumes | None:
    """Return the volumes by claim; None, with the reason appended to `gaps`, if claims or volumes cannot be read."""
    what = "volume claims"
    try:
        claims = client.list(CLAIMS, dict[str, Any])
        what = "volumes"
        volumes = client.list(VOLUMES, dict[str, Any]) if claims else []
    except (ClusterForbidden, ClusterAbsent) as error:
        gaps.append(f"{what} could not be read: {error.message}")
        return None
    by_name = {volume["metadata"]["name"]: bound_volume(volume) for volume in volumes}
    return {
        (claim["metadata"]["namespace"], claim["metadata"]["name"]): by_name.get(claim["spec"].get("volumeName", ""))
        for claim in claims
    }
