"""Of the writes of a run: what each pod had of its node from when to when, and what each node offered. Pure.

Two writes overlap by less than their answers take: a pod counts from the answer to what bound it until the request that
ended it, so that what is called an overlap was one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Final

from tests.support.invariants.amounts import Amounts, amounts, pod_request
from tests.support.invariants.records import ApiWrite, Json

CPUS: Final = "scheduling.koordinator.sh/resource-status"
DEVICES: Final = "scheduling.koordinator.sh/device-allocated"
FOREVER: Final = float("inf")
_PERCENTS: Final = (
    "koordinator.sh/gpu-core",
    "koordinator.sh/gpu-memory-ratio",
    "koordinator.sh/rdma",
    "koordinator.sh/fpga",
)
_ENDED: Final = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod as far as the writes say: its last known object, and its node once it is bound.

    bound_seconds: Unix time of the answer to its binding; ended_seconds: of the request that ended it.
    """

    uid: str
    body: Json
    made_seconds: float
    node: str = ""
    came_with_node: bool = False
    bound_seconds: float = FOREVER
    ended_seconds: float = FOREVER

    @property
    def name(self) -> str:
        """namespace/name."""
        meta = self.body["metadata"]
        return f"{meta['namespace']}/{meta['name']}"


@dataclass(frozen=True, slots=True)
class Share:
    """Amounts that a holder surely had of its node from its begin until its end.

    promised: somebody chose the node, or these amounts on it; False: the pod came with its node, and nobody was asked.
    """

    place: str
    holder: str
    amounts: Amounts
    begin_seconds: float
    end_seconds: float
    promised: bool = True


@dataclass(frozen=True, slots=True)
class Offer:
    """What a node's status offers since a write: it may have been seen since `asked_seconds`."""

    asked_seconds: float
    answered_seconds: float
    amounts: Amounts


@dataclass(slots=True)
class _Pods:
    """Pods by namespace and name while they live, and all that ever did."""

    living: dict[tuple[str, str], Pod] = field(default_factory=dict)
    shares: list[Share] = field(default_factory=list)
    started: dict[str, tuple[float, Amounts, bool]] = field(default_factory=dict)
    """By uid: since when a bound pod has these amounts, and whether they were promised."""


def shares(writes: Iterable[ApiWrite]) -> list[Share]:
    """What pods had of their nodes: their requests, and the CPUs and devices that their annotations name."""
    pods = _Pods()
    for write in writes:
        _follow(pods, write)
    for pod in list(pods.living.values()):
        _end(pods, pod, FOREVER)
    return pods.shares


def _follow(pods: _Pods, write: ApiWrite) -> None:
    for pod, over in changed_pods(pods.living, write):
        key = (pod.body["metadata"]["namespace"], pod.body["metadata"]["name"])
        if over:
            pods.living.pop(key, None)
            _end(pods, pod, write.asked_seconds)
            continue
        pods.living[key] = pod
        if not pod.node:
            continue
        has = {**pod_request(pod.body["spec"]), **hardware(pod.body["metadata"].get("annotations") or {})}
        since, before, promised = pods.started.setdefault(pod.uid, (pod.bound_seconds, has, not pod.came_with_node))
        if before != has:
            _share(pods, Share(pod.node, pod.name, before, since, write.asked_seconds, promised))
            pods.started[pod.uid] = (write.answered_seconds, has, True)


def _end(pods: _Pods, pod: Pod, seconds: float) -> None:
    if pod.uid in pods.started:
        since, has, promised = pods.started.pop(pod.uid)
        _share(pods, Share(pod.node, pod.name, has, since, seconds, promised))


def _share(pods: _Pods, share: Share) -> None:
    if share.begin_seconds < share.end_seconds:
        pods.shares.append(share)


def changed_pods(living: Mapping[tuple[str, str], Pod], write: ApiWrite) -> Iterator[tuple[Pod, bool]]:
    """Pods that a write made, changed or bound, with False, and those that it ended, with True."""
    resource, _, subresource = write.resource.partition("/")
    if resource != "pods" or subresource == "eviction":
        return
    key = (write.namespace, write.name)
    living_pod = living.get(key)
    if write.verb == "deletecollection":
        yield from ((pod, True) for (namespace, _), pod in list(living.items()) if namespace == write.namespace)
    elif subresource == "binding":
        if living_pod is not None:
            yield _bound(living_pod, write), False
    elif write.verb == "delete":
        if living_pod is not None and not _lingers(write, living_pod):
            yield living_pod, True
    elif write.stored.get("kind", "Pod") == "Pod" and write.stored:
        if living_pod is not None and living_pod.uid != write.stored["metadata"]["uid"]:
            yield living_pod, True  # nobody saw it go, but its name is another's now
            living_pod = None
        yield _seen(living_pod, write)


def _bound(pod: Pod, write: ApiWrite) -> Pod:
    """A binding may carry annotations, which the API server copies onto the pod."""
    meta = pod.body["metadata"]
    annotations_sent = (write.sent.get("metadata") or {}).get("annotations") or {}
    body = {**pod.body, "metadata": {**meta, "annotations": {**(meta.get("annotations") or {}), **annotations_sent}}}
    return replace(pod, body=body, node=write.sent["target"]["name"], bound_seconds=write.answered_seconds)


def _seen(known_pod: Pod | None, write: ApiWrite) -> tuple[Pod, bool]:
    body, uid = write.stored, write.stored["metadata"]["uid"]
    node = body["spec"].get("nodeName", "")
    pod = known_pod or Pod(uid, body, write.asked_seconds, came_with_node=bool(node))
    bound = write.answered_seconds if node and not pod.node else pod.bound_seconds
    later = replace(pod, body=body, node=node or pod.node, bound_seconds=bound)
    return later, (body.get("status") or {}).get("phase") in _ENDED


def _lingers(write: ApiWrite, pod: Pod) -> bool:
    """Whether a deletion leaves the pod to its node for a while: its object says for how long, or the request does."""
    grace_seconds = (write.stored.get("metadata") or {}).get("deletionGracePeriodSeconds", 0)
    at_once = write.sent.get("gracePeriodSeconds") == 0
    return bool(pod.node and write.stored.get("kind") == "Pod" and grace_seconds > 0 and not at_once)


def hardware(annotations: Mapping[str, str]) -> dict[str, Fraction]:
    """CPUs and devices that annotations name: each CPU once, each device by percent of the whole."""
    cpus = _read(annotations.get(CPUS)).get("cpuset", "")
    had = {f"CPU {number}": Fraction(1) for number in numbers(cpus)}
    for kind, devices in _read(annotations.get(DEVICES)).items():
        for device in devices:
            percents = amounts({r: v for r, v in (device.get("resources") or {}).items() if r in _PERCENTS})
            had |= {f"{kind} {device['minor']} {resource}": value / 100 for resource, value in percents.items()}
    return had


def numbers(cpus: str) -> list[int]:
    """A list of CPUs as the kernel writes it: "0-2,5"."""
    indexes: list[int] = []
    for part in cpus.split(",") if cpus else ():
        first, _, last = part.partition("-")
        indexes += range(int(first), int(last or first) + 1)
    return indexes


def _read(text: str | None) -> dict[str, Any]:
    document = json.loads(text) if text else {}
    return document if isinstance(document, dict) else {}


def offers(writes: Iterable[ApiWrite]) -> dict[str, list[Offer]]:
    """What each node offered, write by write; hardware is offered whole."""
    offers_by_node: dict[str, list[Offer]] = {}
    for write in writes:
        allocatable = amounts((write.stored.get("status") or {}).get("allocatable"))
        if write.resource.partition("/")[0] == "nodes" and allocatable:
            offers_by_node.setdefault(write.name, []).append(
                Offer(write.asked_seconds, write.answered_seconds, allocatable)
            )
    return offers_by_node


def most_offered(history: Iterable[Offer], resource: str, since: float, until: float) -> Fraction | None:
    """The most of a resource that was in force at some moment between two; None: nothing is known of the node then."""
    at_hand: list[Offer] = []
    for offer in history:
        if offer.asked_seconds > until:
            break
        if offer.answered_seconds <= since:
            at_hand.clear()
        at_hand.append(offer)
    return max((offer.amounts.get(resource, Fraction(0)) for offer in at_hand), default=None)
