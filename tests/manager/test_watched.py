"""What the manager's mirrors keep of pods: a placeholder and best effort take nothing from what may be lent out."""

from __future__ import annotations

import msgspec
import pytest

from cotenant.apps.manager.watched import watched_pod
from cotenant.core.adapters.kube.observed import ObservedPodWire
from cotenant.core.model.cluster import Inventory, Node
from cotenant.core.model.resource import Resource
from cotenant.core.settings.sections.recommender import ReclaimableSettings
from recommender.colocation.formulas import Parameters, batch
from recommender.colocation.inventory import Usages, node_columns
from recommender.colocation.strategy import ColocationStrategy


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
    found = watched_pod(msgspec.convert(pod, ObservedPodWire))
    assert (found.end_seconds is None) is counts
    assert (found.requests, found.batch_millicores) == ({Resource.CPU: 3000}, 0)


def test_of_a_batch_pod_its_reclaimed_cpu_is_kept() -> None:
    requests = {"kubernetes.io/batch-cpu": "1500", "kubernetes.io/batch-memory": "1Gi"}
    pod = {
        "metadata": {"name": "p", "namespace": "lab", "labels": {"koordinator.sh/qosClass": "BE"}},
        "spec": {"nodeName": "n1", "containers": [{"resources": {"requests": requests}}]},
        "status": {"phase": "Running"},
    }
    found = watched_pod(msgspec.convert(pod, ObservedPodWire))
    assert (found.requests, found.batch_millicores) == ({}, 1500)


@pytest.mark.parametrize(
    ("status", "labels", "batch_cpu"),
    [
        ({"qosClass": "BestEffort"}, {}, 58_000),
        ({"qosClass": "Burstable"}, {}, 38_000),
        ({}, {}, 38_000),
        ({"qosClass": "BestEffort"}, {"koordinator.sh/qosClass": "LS"}, 38_000),
        ({"qosClass": "BestEffort"}, {"koordinator.sh/priority-class": "koord-prod"}, 38_000),
    ],
    ids=["BestEffort", "Burstable", "not known", "labelled LS", "labelled prod"],
)
def test_an_unlabelled_pod_of_kubernetes_best_effort_is_lent_what_it_uses(
    status: dict[str, str], labels: dict[str, str], batch_cpu: int
) -> None:
    # capacity 100 cores, margin 35, system 7, the pod uses 20: 100 - 35 - 7 = 58 without it, 38 with it
    pod = {
        "metadata": {"name": "p", "namespace": "lab", "labels": labels},
        "spec": {"nodeName": "n1", "containers": [{"resources": {}}]},
        "status": {"phase": "Running", **status},
    }
    node = Node("n1", {Resource.CPU: 100_000}, {Resource.CPU: 100_000})
    watched = watched_pod(msgspec.convert(pod, ObservedPodWire))
    inventory = Inventory("c", 0, nodes=(node,), pods=(watched,), workloads=())
    usages = Usages({("lab", "p"): 20_000.0}, {"n1": 27_000.0}, {"n1": 1e9})
    strategy = ColocationStrategy.of_settings(ReclaimableSettings(cpu_reclaim_percent=65))
    columns = node_columns(inventory, Resource.CPU, usages)
    (amount,) = batch(columns, Parameters.of([strategy], Resource.CPU), 1e9).messages()
    assert amount.amount == batch_cpu
