"""EDGE: reads the settings of Karpenter and cluster-autoscaler once from the Kubernetes API. Nothing is written.

Which nodes could be removed does not depend on these settings, so settings that cannot be read become a note beside the
obstacles, not a gap of the computed size.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from cotenant.base.errors import ClusterAbsent, ClusterForbidden
from cotenant.base.json_documents.json_decoders import mapping_or_empty
from cotenant.base.kube import KubeClient
from cotenant.scheduler_ext.cluster_size.autoscalers.model import (
    NodeAutoscalers,
    NodeBudget,
    NodeClaim,
    NodeGroup,
    NodePool,
)

Json = dict[str, Any]
KARPENTER: Final = "/apis/karpenter.sh"
STATUS_PATH: Final = "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status"
PROGRAM: Final = "cluster-autoscaler"
_REFUSED: Final = (ClusterForbidden, ClusterAbsent)


def read_autoscalers(client: KubeClient, pods: Iterable[str]) -> NodeAutoscalers:
    """Return the autoscalers of a cluster; cluster-autoscaler is searched among `pods`, given as NAMESPACE/NAME."""
    unread: list[str] = []
    pools, claims = _list_karpenter(client, "nodepools", unread), _list_karpenter(client, "nodeclaims", unread)
    pod = min((name for name in pods if PROGRAM in name.partition("/")[2]), default="")
    path = f"/api/v1/namespaces/{pod.replace('/', '/pods/')}"
    flags = flags_of(_get(client, path, f"pod {pod}", unread) or {}) if pod else None
    status = _get(client, STATUS_PATH, "the status of cluster-autoscaler", unread)
    groups: tuple[NodeGroup, ...] = ()
    if status is not None:
        groups = groups_of_status(str((status.get("data") or {}).get("status", "")))
    elif flags:
        groups = groups_of_flags(flags, pod)
    return NodeAutoscalers(
        pools=None if pools is None else tuple(sorted(map(pool_of, pools), key=lambda pool: pool.name)),
        claims=tuple(sorted(map(claim_of, claims or ()), key=lambda claim: claim.name)),
        pod=pod,
        flags=flags or None,
        groups=groups,
        status=status is not None,
        unread=tuple(unread),
    )


def _list_karpenter(client: KubeClient, kind: str, unread: list[str]) -> list[Json] | None:
    """Return Karpenter's objects in the API server's preferred version; None if it is not installed or unreadable."""
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


STATUS: Final = "ConfigMap kube-system/cluster-autoscaler-status"
_OLD_NAME: Final = re.compile(r"^\s*Name:\s*(\S+)\s*$")
_OLD_TARGET: Final = re.compile(r"cloudProviderTarget=(\d{1,9})")
_OLD_SMALLEST: Final = re.compile(r"minSize=(\d{1,9})")


def pool_of(body: Json) -> NodePool:
    """Parse a NodePool of karpenter.sh/v1 or v1beta1; a value of the wrong type counts as absent."""
    spec = mapping_or_empty(body.get("spec"))
    disruption, template = mapping_or_empty(spec.get("disruption")), mapping_or_empty(spec.get("template"))
    budgets, replicas = list[NodeBudget](), spec.get("replicas")
    for budget in _objects(disruption.get("budgets")):
        reasons = budget.get("reasons")
        reason_names = tuple(str(reason) for reason in reasons) if isinstance(reasons, list) else ()
        schedule, duration = str(budget.get("schedule") or ""), str(budget.get("duration") or "")
        budgets.append(NodeBudget(str(budget.get("nodes", "")), reason_names, schedule, duration))
    return NodePool(
        name=_name(body),
        policy=str(disruption.get("consolidationPolicy") or ""),
        consolidate_after=str(disruption.get("consolidateAfter") or ""),
        budgets=tuple(budgets),
        annotations=_texts(mapping_or_empty(template.get("metadata")).get("annotations")),
        replicas=replicas if isinstance(replicas, int) else None,
    )


def claim_of(body: Json) -> NodeClaim:
    """Parse a NodeClaim of karpenter.sh/v1 or v1beta1."""
    meta = mapping_or_empty(body.get("metadata"))
    node = str(mapping_or_empty(body.get("status")).get("nodeName") or "")
    return NodeClaim(_name(body), node, _texts(meta.get("annotations")))


def groups_of_status(text: str) -> tuple[NodeGroup, ...]:
    """Return the node groups in the text of cluster-autoscaler's status, old or new format; () if it has none."""
    import yaml

    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError:
        document = None
    groups: list[NodeGroup] = []
    if isinstance(document, dict) and "nodeGroups" in document:
        for group in _objects(document["nodeGroups"]):
            health = mapping_or_empty(group.get("health"))
            least, target_size = health.get("minSize"), health.get("cloudProviderTarget")
            if isinstance(least, int):
                target = target_size if isinstance(target_size, int) else None
                groups.append(NodeGroup(str(group.get("name", "")), least, target, STATUS))
        return tuple(groups)
    name = ""
    for line in text.splitlines():
        if old_name := _OLD_NAME.match(line):
            name = old_name[1]
        elif name and (old_target := _OLD_TARGET.search(line)) and (smallest := _OLD_SMALLEST.search(line)):
            groups.append(NodeGroup(name, int(smallest[1]), int(old_target[1]), STATUS))
            name = ""
    return tuple(groups)


def flags_of(pod: Json) -> dict[str, tuple[str, ...]]:
    """Return the flags of a pod's containers, each with its values in order; a flag without a value is "true"."""
    flags: dict[str, list[str]] = defaultdict(list)
    for container in _objects(mapping_or_empty(pod.get("spec")).get("containers")):
        arguments = [str(word) for part in ("command", "args") for word in container.get(part) or ()]
        for number, word in enumerate(arguments):
            if not word.startswith("-"):
                continue
            name, equals, value = word.lstrip("-").partition("=")
            after = arguments[number + 1] if number + 1 < len(arguments) else "-"
            flags[name].append(value if equals else "true" if after.startswith("-") else after)
    return {name: tuple(values) for name, values in flags.items()}


def groups_of_flags(flags: Mapping[str, tuple[str, ...]], pod: str) -> tuple[NodeGroup, ...]:
    """Return the node groups in cluster-autoscaler's `--nodes=MIN:MAX:NAME` flags; their desired size is unknown."""
    groups = []
    for value in flags.get("nodes", ()):
        smallest, _, rest = value.partition(":")
        name = rest.partition(":")[2]
        if smallest.isdecimal() and name:
            groups.append(NodeGroup(name, int(smallest), None, f"Pod {pod}"))
    return tuple(groups)


def _name(body: Json) -> str:
    return str(mapping_or_empty(body.get("metadata")).get("name", ""))


def _objects(value: Any) -> list[Json]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _texts(value: Any) -> dict[str, str]:
    return {str(key): str(text) for key, text in mapping_or_empty(value).items()}
