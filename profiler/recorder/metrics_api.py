"""EDGE: reads usage from the metrics API (`metrics.k8s.io`), for nodes whose kubelet cannot be read.

It has CPU means and memory samples over short windows, with one request for all pods and one for all nodes. It has no
data between two windows, so maxima are those of means.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec
import numpy as np

from cotenant.base.errors import QuantityError
from cotenant.base.kube import KubeClient
from cotenant.base.kubernetes.models.metadata import ObjectName
from cotenant.base.kubernetes.moments import duration_seconds
from cotenant.base.kubernetes.quantity import parse_bytes, parse_millicores
from cotenant.profiler.recorder.slots import WindowMeans

PODS: Final = "/apis/metrics.k8s.io/v1beta1/pods"
NODES: Final = "/apis/metrics.k8s.io/v1beta1/nodes"


class _ContainerUsage(msgspec.Struct):
    name: str = ""
    usage: dict[str, str] = {}


class PodUsage(msgspec.Struct):
    """A PodMetrics object of the metrics API: the usage of one pod's containers over a window."""

    metadata: ObjectName
    timestamp: datetime
    window: str = ""
    containers: list[_ContainerUsage] = []


class NodeUsage(msgspec.Struct):
    """A NodeMetrics object of the metrics API: the usage of one node over a window."""

    metadata: ObjectName
    timestamp: datetime
    window: str = ""
    usage: dict[str, str] = {}


def read(
    client: KubeClient, nodes: Collection[str], node_of: Mapping[tuple[str, str], str]
) -> tuple[dict[str, WindowMeans], dict[str, WindowMeans]]:
    """Return the usage of these nodes' containers, and of the nodes themselves, each by node.

    `node_of` maps (namespace, pod) to its node. Raise ClusterError if the API is not served or refused.
    """
    pods: dict[str, list[tuple[bytes, PodUsage | NodeUsage, dict[str, str]]]] = {}
    for pod in client.list(PODS, PodUsage):
        node = node_of.get((pod.metadata.namespace, pod.metadata.name))
        if node in nodes and node is not None:
            pods.setdefault(node, []).extend(
                (container_labels(pod, container.name), pod, container.usage) for container in pod.containers
            )
    own = {
        n.metadata.name: means([(b"", n, n.usage)]) for n in client.list(NODES, NodeUsage) if n.metadata.name in nodes
    }
    return {node: means(rows) for node, rows in pods.items()}, own


def container_labels(pod: PodUsage, container: str) -> bytes:
    """Return the label text by which a kubelet's metrics name the same container."""
    return f'container="{container}",namespace="{pod.metadata.namespace}",pod="{pod.metadata.name}"'.encode()


def means(rows: Iterable[tuple[bytes, PodUsage | NodeUsage, Mapping[str, str]]]) -> WindowMeans:
    """Return objects of the metrics API, with their label texts, as columns; NaN for unreadable values."""
    listed = list(rows)
    return WindowMeans(
        [labels for labels, _, _ in listed],
        np.array([thing.timestamp.timestamp() for _, thing, _ in listed]),
        np.array([window_seconds(thing.window) for _, thing, _ in listed]),
        np.array([_amount(usage.get("cpu"), parse_millicores) for _, _, usage in listed]),
        np.array([_amount(usage.get("memory"), parse_bytes) for _, _, usage in listed]),
    )


def window_seconds(text: str) -> float:
    """Return the seconds of a Go duration; NaN if the text is not a duration."""
    seconds = duration_seconds(text)
    return float("nan") if seconds is None else seconds


def _amount(text: str | None, parse: Callable[[str], int]) -> float:
    try:
        return float("nan") if text is None else float(parse(text))
    except QuantityError:
        return float("nan")
