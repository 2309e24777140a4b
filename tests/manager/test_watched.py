"""What the manager's mirrors keep of pods: a placeholder takes nothing from what may be lent out."""

from __future__ import annotations

import msgspec
import pytest

from cotenant.edges.kube.observed import PodWire
from cotenant.manager.watched import watched_pod
from cotenant.model.resource import Resource


@pytest.mark.parametrize(
    ("namespace", "labels", "counts"),
    [
        ("cotenant-reservations", {"cotenant.dev/placeholder": "true"}, False),
        ("shop", {"cotenant.dev/placeholder": "true"}, True),
        ("cotenant-reservations", {}, True),
    ],
    ids=["a placeholder", "somebody who carries its label", "somebody in its namespace"],
)
def test_only_placeholders_take_nothing(namespace: str, labels: dict[str, str], counts: bool) -> None:
    pod = {
        "metadata": {"name": "p", "namespace": namespace, "labels": labels},
        "spec": {"nodeName": "n1", "containers": [{"resources": {"requests": {"cpu": "3"}}}]},
        "status": {"phase": "Running"},
    }
    found = watched_pod(msgspec.convert(pod, PodWire))
    assert (found.end_seconds is None) is counts
    assert (found.requests, found.batch_millicores) == ({Resource.CPU: 3000}, 0)


def test_of_a_batch_pod_its_reclaimed_cpu_is_kept() -> None:
    requests = {"kubernetes.io/batch-cpu": "1500", "kubernetes.io/batch-memory": "1Gi"}
    pod = {
        "metadata": {"name": "p", "namespace": "lab", "labels": {"koordinator.sh/qosClass": "BE"}},
        "spec": {"nodeName": "n1", "containers": [{"resources": {"requests": requests}}]},
        "status": {"phase": "Running"},
    }
    found = watched_pod(msgspec.convert(pod, PodWire))
    assert (found.requests, found.batch_millicores) == ({}, 1500)
