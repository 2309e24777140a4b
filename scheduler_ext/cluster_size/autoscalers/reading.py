"""EDGE: Karpenter and cluster-autoscaler, read once from the Kubernetes API. Nothing is written.

The answer on nodes needs none of it, so what cannot be read is a sentence beside the list of obstacles and no gap.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from cotenant.base.errors import ClusterAbsent, ClusterForbidden
from cotenant.base.kube import KubeClient
from cotenant.scheduler_ext.cluster_size.autoscalers.model import Autoscalers, NodeGroup
from cotenant.scheduler_ext.cluster_size.autoscalers.parsing import (
    claim_of,
    flags_of,
    groups_of_flags,
    groups_of_status,
    pool_of,
)

Json = dict[str, Any]
KARPENTER: Final = "/apis/karpenter.sh"
STATUS_PATH: Final = "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status"
PROGRAM: Final = "cluster-autoscaler"
_REFUSED: Final = (ClusterForbidden, ClusterAbsent)


def read_autoscalers(client: KubeClient, pods: Iterable[str]) -> Autoscalers:
    """The autoscalers of a cluster. pods: NAMESPACE/NAME of its pods, among which cluster-autoscaler's is searched."""
    unread: list[str] = []
    pools, claims = _list_karpenter(client, "nodepools", unread), _list_karpenter(client, "nodeclaims", unread)
    pod = min((name for name in pods if PROGRAM in name.partition("/")[2]), default="")
    flags = flags_of(_get(client, _pod_path(pod), f"pod {pod}", unread) or {}) if pod else None
    status = _get(client, STATUS_PATH, "the status of cluster-autoscaler", unread)
    groups: tuple[NodeGroup, ...] = ()
    if status is not None:
        groups = groups_of_status(str((status.get("data") or {}).get("status", "")))
    elif flags:
        groups = groups_of_flags(flags, pod)
    return Autoscalers(
        pools=None if pools is None else tuple(sorted(map(pool_of, pools), key=lambda pool: pool.name)),
        claims=tuple(sorted(map(claim_of, claims or ()), key=lambda claim: claim.name)),
        pod=pod,
        flags=flags or None,
        groups=groups,
        status=status is not None,
        unread=tuple(unread),
    )


def _list_karpenter(client: KubeClient, kind: str, unread: list[str]) -> list[Json] | None:
    """Objects of Karpenter in the version that the server prefers; None where it serves none, or refuses."""
    group = _get(client, KARPENTER, "the API of Karpenter", unread)
    if group is None:
        return None
    version = str((group.get("preferredVersion") or {}).get("version") or "v1")
    try:
        return list(client.list(f"{KARPENTER}/{version}/{kind}", Json))
    except _REFUSED as error:
        unread.append(f"{kind} of Karpenter could not be read: {error.message}")
        return None


def _get(client: KubeClient, path: str, what: str, unread: list[str]) -> Json | None:
    try:
        return client.get(path)
    except _REFUSED as error:
        sentence = f"{what} could not be read: {error.message}"
        if sentence not in unread:
            unread.append(sentence)
        return None


def _pod_path(address: str) -> str:
    namespace, _, name = address.partition("/")
    return f"/api/v1/namespaces/{namespace}/pods/{name}"
