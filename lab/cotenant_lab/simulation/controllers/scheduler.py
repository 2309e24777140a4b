"""A simulated scheduler: places each pod on the fitting node with most free CPU. Pure.

It considers requests, node selectors, node affinity (by name and by label; preferred nodes first), nominations,
unschedulable nodes, and nodes of a hand-over, on which only its own pods may be bound; it ignores all other rules.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cotenant.base.kubernetes.pod_request import parse_quantities
from cotenant.base.kubernetes.pod_wire import requests_of_pod
from cotenant.base.kubernetes.protocol import ENDED_PHASES, PREFERRED_TERMS, REQUIRED_TERMS, RESERVATION_LABEL
from cotenant.base.kubernetes.selector import LabelSelector

Json = dict[str, Any]
Amounts = dict[str, int]

_COUNTED_STATUS: Final = ("containerStatuses", "initContainerStatuses", "conditions", "resources", "allocatedResources")
"""Parts of a Pod's status that decide, beside its spec, what it counts with."""


@dataclass(slots=True)
class NodeCapacity:
    """A node with its free amounts, which decrease while pods are placed.

    `only` has namespace/name of the pods that may be bound there; None means any pod.
    """

    name: str
    labels: Mapping[str, str]
    free: Amounts
    only: Collection[str] | None = None


class Sizes:
    """A cache of pods' requests as the scheduler counts them, computed once per spec and kubelet's report.

    A cluster of thousands of pods is scheduled every few seconds.
    """

    def __init__(self) -> None:
        """Create an empty cache."""
        self._known: dict[str, tuple[tuple[Any, ...], Amounts]] = {}

    def of(self, pod: Json) -> Amounts:
        """Return the pod's requests by resource, and 1 for the resource `pods`."""
        status, uid = pod.get("status") or {}, pod["metadata"].get("uid", "")
        counted = (pod["spec"], *(status.get(part) for part in _COUNTED_STATUS))
        entry = self._known.get(uid)
        if entry is None or entry[0] != counted:  # what is the same object is not compared
            entry = counted, _request_of(pod)
            self._known[uid] = entry
        return entry[1]

    def forget(self, pod: Json) -> None:
        """Remove a pod that is gone from the cache."""
        self._known.pop(pod["metadata"].get("uid", ""), None)


def places(
    nodes: Iterable[Json], pods: Iterable[Json], sizes: Sizes, guarded: Mapping[str, Collection[str]]
) -> list[NodeCapacity]:
    """Return the free capacity of nodes: allocatable minus the requests of the pods that are bound there.

    `guarded` maps a node of a hand-over to the only pods that may be bound there (from the SwapGuard).
    """
    by_name = {
        node["metadata"]["name"]: NodeCapacity(
            node["metadata"]["name"],
            node["metadata"].get("labels") or {},
            parse_quantities(node["status"].get("allocatable") or {}),
            guarded.get(node["metadata"]["name"]),
        )
        for node in nodes
        if not (node.get("spec") or {}).get("unschedulable")
    }
    for pod in pods:
        place = by_name.get(pod["spec"].get("nodeName", ""))
        if place and (pod.get("status") or {}).get("phase") not in ENDED_PHASES:
            _take(place.free, sizes.of(pod))
    return list(by_name.values())


def waits(pod: Json) -> bool:
    """Return whether the pod waits for the scheduler."""
    spec, meta = pod["spec"], pod["metadata"]
    return not spec.get("nodeName") and not spec.get("schedulingGates") and not meta.get("deletionTimestamp")


def assign_nodes(pods: Sequence[Json], places: list[NodeCapacity]) -> list[tuple[Json, str]]:
    """Return (pod, node or "") of each waiting pod: pods in a hand-over of reserved capacity first, then the oldest."""
    assignments = []
    for pod in sorted(pods, key=_turn):
        requests = _request_of(pod)
        fitting = [
            p for p in places if _is_node_eligible(pod, p) and all(p.free.get(n, 0) >= a for n, a in requests.items())
        ]
        best = max(fitting, key=lambda p: (_preference(pod, p), p.free.get("cpu", 0)), default=None)
        if best:
            _take(best.free, requests)
        assignments.append((pod, best.name if best else ""))
    return assignments


def _turn(pod: Json) -> tuple[bool, str, str]:
    meta = pod["metadata"]
    ours = RESERVATION_LABEL in (meta.get("labels") or {}) and bool(
        _terms(pod) or _preferred_terms(pod) or _nominated_node(pod)
    )
    return not ours, meta.get("creationTimestamp", ""), meta["name"]


def _request_of(pod: Json) -> Amounts:
    return {**{name: amount for name, amount in requests_of_pod(pod).items() if amount}, "pods": 1}


def _take(free: Amounts, requests: Amounts) -> None:
    for name, amount in requests.items():
        free[name] = free.get(name, 0) - amount


def _affinity(pod: Json) -> Json:
    return (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}


def _terms(pod: Json) -> Sequence[Json]:
    required = _affinity(pod).get(REQUIRED_TERMS) or {}
    terms: Sequence[Json] = required.get("nodeSelectorTerms") or ()
    return terms


def _preferred_terms(pod: Json) -> Sequence[Json]:
    terms: Sequence[Json] = _affinity(pod).get(PREFERRED_TERMS) or ()
    return terms


def _nominated_node(pod: Json) -> str:
    return str((pod.get("status") or {}).get("nominatedNodeName") or "")


def _preference(pod: Json, place: NodeCapacity) -> tuple[bool, int]:
    """Return whether the pod is nominated for the node, and the sum of the weights of the preferred terms it meets."""
    weight = sum(int(term["weight"]) for term in _preferred_terms(pod) if _meets(term.get("preference") or {}, place))
    return _nominated_node(pod) == place.name, weight


def _is_node_eligible(pod: Json, place: NodeCapacity) -> bool:
    meta = pod["metadata"]
    if place.only is not None and f"{meta.get('namespace', '')}/{meta['name']}" not in place.only:
        return False
    selector = pod["spec"].get("nodeSelector") or {}
    if any(place.labels.get(key) != value for key, value in selector.items()):
        return False
    terms = _terms(pod)
    return not terms or any(_meets(term, place) for term in terms)


def _meets(term: Json, place: NodeCapacity) -> bool:
    """All its expressions, of labels and of the name."""
    labels = LabelSelector.parse({"matchExpressions": list(term.get("matchExpressions") or ())})
    fields = LabelSelector.parse({"matchExpressions": list(term.get("matchFields") or ())})
    return labels.matches(place.labels) and fields.matches({"metadata.name": place.name})
