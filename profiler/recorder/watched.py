"""EDGE: watches pods and nodes at the API server; all other objects are listed from time to time.

Every version of a pod from the watch is kept until it is taken, so that a pod that lived between two writes, and an OOM
kill that a later status no longer shows, are not missed. A process that does not write keeps none.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

import structlog

from cotenant.base.errors import CotenantError
from cotenant.base.kube import KubeClient, Mirror
from cotenant.base.kube.client import Many, unread_objects
from cotenant.base.kube.live import NODES, PODS, LiveCluster, observe_pods
from cotenant.base.kube.objects import ControllerObject
from cotenant.base.kube.projection import own_annotations
from cotenant.base.kube.reflection import Key
from cotenant.base.kubernetes.models.pod import StatedPod
from cotenant.base.process.in_hand import ObjectVersion
from cotenant.profiler.recorder.pod_records import KubeletAddress, PodRecords, RecordedNode, RecordedPod

ItemT = TypeVar("ItemT")
log = structlog.get_logger(__name__)
LISTED_SECONDS: Final = 600.0
"""Time between two lists of owners, autoscalers and bounds."""


class ClusterWatch:
    """Watches pods and nodes at the API server; each kind is listed once and then followed."""

    def __init__(self, client: KubeClient) -> None:
        """Create the watches; nothing is requested before `start`."""
        self._client = client.sibling()
        self._keeps_versions = False
        self._noted: deque[RecordedPod] = deque()
        self._records = PodRecords()
        self._pods: Mirror[RecordedPod] = Mirror(client, PODS, StatedPod, self._note, gather_seconds=0.5)
        self._nodes: Mirror[RecordedNode] = Mirror(client, NODES, RecordedNode, gather_seconds=0.5)
        self._lists: dict[str, tuple[float, Many[Any]]] = {}
        self._placed: dict[tuple[str, str], RecordedPod] = {}
        self._failing: dict[Key, str] = {}

    def start(self) -> None:
        """Start watching pods and nodes."""
        self._pods.start()
        self._nodes.start()

    def stop(self) -> None:
        """Stop watching pods and nodes, and close the connection."""
        self._pods.stop()
        self._nodes.stop()
        self._client.close()

    def wait_synced(self, timeout_seconds: float) -> bool:
        """Wait until pods and nodes are listed for the first time; return whether both lists are complete."""
        begun_seconds = time.monotonic()
        return self._pods.wait_synced(timeout_seconds) and self._nodes.wait_synced(
            max(0.0, timeout_seconds - (time.monotonic() - begun_seconds))
        )

    @property
    def is_synced(self) -> bool:
        """True if pods and nodes have both been listed completely once."""
        return self.wait_synced(0.0)

    @property
    def error(self) -> CotenantError | None:
        """The error that keeps one of the two watches from being up to date; None if both are up to date."""
        return self._pods.error or self._nodes.error

    def left_out(self) -> dict[str, str]:
        """Return why objects could not be read, or made the inventory fail, by kind, namespace and name."""
        mirrors: tuple[Mirror[Any], ...] = (self._pods, self._nodes)
        refusals = [(m.path, key, why) for m in mirrors for key, why in m.refusals.items()]
        refusals += [(PODS, key, why) for key, why in self._failing.items()]
        return {str(ObjectVersion(path, *key, "")): why for path, key, why in refusals} | unread_objects()

    def kubelets(self) -> list[KubeletAddress]:
        """Return the addresses of all kubelets whose node has published an address."""
        return [address for node in self._nodes.snapshot().values() if (address := node.kubelet) is not None]

    def pods(self) -> list[RecordedPod]:
        """Return the pods that exist now."""
        return list(self._pods.snapshot().values())

    def nodes_with_quotas(self) -> set[str]:
        """Return the names of the nodes with a running pod that has a CPU limit, and so may be throttled."""
        return {pod.node for pod in self._pods.snapshot().values() if pod.runs_with_quota}

    def keep_versions(self, keeps: bool) -> None:
        """Start or stop keeping each version of every pod that arrives; in both cases drop the versions kept so far."""
        self._keeps_versions = keeps
        self._noted.clear()
        self._placed = {}

    def take(self) -> list[RecordedPod]:
        """Return every pod version that was kept since the last call, in order of arrival."""
        versions = []
        while self._noted:
            versions.append(self._noted.popleft())
        self._placed.update((pod.key, pod) for pod in versions if pod.occupies_node)
        return versions

    def observe(self, without: Collection[Key] = ()) -> LiveCluster:
        """Return the cluster with its pods, and with those that `take` returned since the last `forget_placed`.

        For the pods in `without`, only their existence is read.
        """
        present = {pod.key: pod for pod in self.pods() if pod.occupies_node}
        pods = [pod for key, pod in {**self._placed, **present}.items() if key not in without]
        live = observe_pods(_Lists(self._client, self._lists, self._nodes.snapshot().values), pods)
        return replace(live, unread=live.unread.union(without))

    def leave_out(self, pods: Mapping[Key, str]) -> None:
        """Set which pods are left out, because the inventory fails on them; `pods` maps them to the reasons."""
        for key in pods.keys() - self._failing.keys():
            log.error("a pod is left out of the inventory", object=str(ObjectVersion(PODS, *key, "")), why=pods[key])
        self._failing = dict(pods)

    def forget_placed(self) -> None:
        """Forget the pods on nodes that `take` has returned, because the caller has stored them."""
        self._placed = {}

    def _note(self, pod: StatedPod) -> RecordedPod:
        record = self._records.of(pod)
        if self._keeps_versions:
            self._noted.append(record)
        return record


class _Lists:
    """Lists watched objects from memory, and others from the API server at most every LISTED_SECONDS."""

    def __init__(self, client: KubeClient, lists: dict[str, tuple[float, Many[Any]]], nodes: Callable[[], Any]) -> None:
        self._client, self._kept, self._nodes = client, lists, nodes

    def get(self, path: str, kind: type[ItemT]) -> ItemT | None:
        return self._client.get(path, kind)

    def list(self, path: str, kind: type[ItemT]) -> Many[ItemT]:
        if path == NODES:
            return list(self._nodes())
        now = time.monotonic()
        listed_at, items = self._kept.get(path, (-LISTED_SECONDS, []))
        if now - listed_at < LISTED_SECONDS:
            return items
        items = []
        for page in self._client.pages(path, kind):  # what is not read of an object goes page by page
            if page is None:
                items.clear()
                continue
            for thing in page.items or []:
                # Of a workload's object the annotations that are read: kubectl's own one repeats the whole object
                if isinstance(thing, ControllerObject):
                    thing.metadata.annotations = own_annotations(thing.metadata)
                items.append(thing)
        self._kept[path] = now, items
        return items
