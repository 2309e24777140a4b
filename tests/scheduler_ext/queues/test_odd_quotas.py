"""Quotas as no webhook would let them in: with a value that cannot be read, and two of one name.

Only a quota that is gone lets its pods go.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cotenant.admission.webhook_server.cluster_state import WebhookMirrors
from cotenant.base.json_documents.difference import escape_pointer_key
from cotenant.base.kube import connect
from cotenant.base.kubernetes.protocol import QUEUED_ANNOTATION, QUOTA_GATE, QUOTA_GROUP
from cotenant.base.kubernetes.quota_tree import (
    NAME_LABEL,
    NAMESPACES_ANNOTATION,
    SHARED_WEIGHT_ANNOTATION,
    QuotaTree,
)
from cotenant.base.reasons import Reason
from cotenant.scheduler_ext.queues.admission.quota_rules import problems_of_deletion
from cotenant.scheduler_ext.queues.decide import decide
from cotenant.scheduler_ext.queues.model.settings import QueueSettings
from cotenant.scheduler_ext.queues.view import QueueView
from cotenant_lab.simulation.api_server import EmbeddedServer
from tests.scheduler_ext.queues.embedded_cluster import EmbeddedCluster

QUOTAS = f"/apis/{QUOTA_GROUP}/namespaces/shop/elasticquotas"

pytestmark = [pytest.mark.server]


class Cluster(EmbeddedCluster):
    """Node of 16 cores; quota `research` of 4 cores, bound to namespace lab; a pod of 2 cores that waits in `lab`."""

    namespaces = ("shop", "lab")

    def __init__(self, server: EmbeddedServer, folder: Path) -> None:
        super().__init__(server, folder)
        self.quota("research", {NAMESPACES_ANNOTATION: '["lab"]'})

    def quota(self, name: str, annotations: dict[str, str], namespace: str = "shop") -> None:
        """Of 4 cores."""
        meta = {"name": name, "annotations": annotations}
        spec = {"min": {"cpu": "4"}, "max": {"cpu": "4"}}
        body = {"apiVersion": QUOTA_GROUP, "kind": "ElasticQuota", "metadata": meta, "spec": spec}
        self.api.create(f"/apis/{QUOTA_GROUP}/namespaces/{namespace}/elasticquotas", body)

    def annotate(self, name: str, annotations: dict[str, str]) -> None:
        operations = [
            {"op": "add", "path": f"/metadata/annotations/{escape_pointer_key(key)}", "value": text}
            for key, text in annotations.items()
        ]
        self.api.patch(f"{QUOTAS}/{name}", operations, "json")

    def pod(self, name: str, cpu: str, labels: dict[str, str] | None = None, **spec: Any) -> None:
        """As the webhook lets it in for quota `research`."""
        containers = [{"name": "main", "image": "app", "resources": {"requests": {"cpu": cpu}}}]
        meta = {"name": name, "labels": labels or {}, "annotations": {QUEUED_ANNOTATION: "research"}}
        gated = {"schedulingGates": [{"name": QUOTA_GATE}], "containers": containers, **spec}
        self.api.create("/api/v1/namespaces/lab/pods", {"metadata": meta, "spec": gated})


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with EmbeddedServer() as server:
        yield Cluster(server, tmp_path)


def admitted_pods(view: QueueView) -> list[str]:
    """Pods whose gate is taken away."""
    writes = decide(view, QueueSettings(enabled=True))
    return [intent.address.name for intent in writes.intents if intent.address.resource == "pods"]


@pytest.mark.parametrize(
    ("annotations", "labels"),
    [
        ({SHARED_WEIGHT_ANNOTATION: "{cpu: 1}"}, {}),
        ({SHARED_WEIGHT_ANNOTATION: "{cpu: 1}"}, {NAME_LABEL: "research"}),
        # the namespaces themselves: which ones were bound is known of the pod alone
        ({NAMESPACES_ANNOTATION: "lab"}, {}),
    ],
)
def test_a_pod_waits_while_its_quota_cannot_be_read(
    cluster: Cluster, annotations: dict[str, str], labels: dict[str, str]
) -> None:
    # 6 cores are more than the max of 4: nothing but an absent quota lets the pod go
    cluster.pod("train", "6", labels)
    assert admitted_pods(cluster.view()) == []
    cluster.annotate("research", annotations)
    view = cluster.view()
    assert admitted_pods(view) == []
    (waiting,) = decide(view, QueueSettings(enabled=True)).report.waiting
    (key,) = annotations
    assert waiting.code == Reason.QUOTA_INVALID and f"metadata.annotations[{key}]" in waiting.reason


def test_a_pod_goes_once_the_quota_is_corrected_or_gone(cluster: Cluster) -> None:
    cluster.pod("train", "2")
    cluster.annotate("research", {SHARED_WEIGHT_ANNOTATION: "{cpu: 1}"})
    assert admitted_pods(cluster.view()) == []
    cluster.annotate("research", {SHARED_WEIGHT_ANNOTATION: '{"cpu": 1}'})
    assert admitted_pods(cluster.view()) == ["train"]
    cluster.annotate("research", {SHARED_WEIGHT_ANNOTATION: "{cpu: 1}"})
    cluster.api.delete(f"{QUOTAS}/research")
    assert admitted_pods(cluster.view()) == ["train"]


def test_webhook_and_manager_mean_the_same_one_of_two_quotas_of_a_name(cluster: Cluster) -> None:
    """Both were made before the webhook stood, which refuses a second one."""
    cluster.quota("lab", {}, namespace="shop")
    cluster.quota("lab", {}, namespace="lab")
    cluster.quota("team", {}, namespace="lab")
    cluster.quota("team", {}, namespace="shop")
    with closing(connect(cluster.kube)) as client:
        state = WebhookMirrors(client)
        state.mirrors["quotas"].list_once()
        webhook = state.view().quotas
    manager = QuotaTree(cluster.view().quotas)
    # the first namespace by name goes first
    assert {name: webhook.quotas[name].namespace for name in ("lab", "team")} == {"lab": "lab", "team": "lab"}
    assert webhook == manager
    # the second one bounds nobody, so that nothing keeps it; the first one is in use
    first, second = (cluster.api.get(f"{QUOTAS.replace('/shop/', f'/{place}/')}/team") for place in ("lab", "shop"))
    assert len(problems_of_deletion(first, webhook, 3)) == 1
    assert problems_of_deletion(second, webhook, 3) == []
