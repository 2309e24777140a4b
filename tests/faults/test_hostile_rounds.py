"""Whatever tenants write into objects, the inventory of a scan and of the recorder has all the others, in time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.platform.fuzz.hostile import annotated_pod, replaced, worst
from cotenant.base.cluster import Inventory
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import KubeClient, connect
from cotenant.base.kube.client import unread_objects
from cotenant.base.kube.live import AUTOSCALERS, CONTROLLERS, LIMIT_RANGES, PODS, QUOTAS, observe
from cotenant.base.kube.overlay import overlay
from cotenant.base.settings.sections.kube import KubeSettings
from cotenant.base.store.store import Store
from cotenant.profiler.recorder.writing import write_inventory
from cotenant.profiler.settings import ProfilerSettings
from cotenant.scheduler_ext.rebalance.cluster_reading import BUDGETS
from tests.support.api_server import ApiServer, make_certificate

pytestmark = pytest.mark.server
NOW = 1_795_089_600
SHORT = 1_000
"""Characters of a text: each object of a list has another one, and a list of 10 MB is none that one tenant writes."""
METADATA: dict[str, Any] = {
    "name": "good",
    "namespace": "shop",
    "uid": "u",
    "resourceVersion": "1",
    "creationTimestamp": "2026-11-01T00:00:00Z",
    "labels": {"app": "web"},
    "annotations": {"cotenant.dev/strategy": "cotenant"},
}
CONTAINER = {
    "name": "main",
    "image": "i",
    "env": [{"name": "JAVA_OPTS", "value": "-Xmx1g"}],
    "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
}
TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [CONTAINER]}}
CONTROLLER = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE}
JOB = {"parallelism": 1, "completions": 1, "backoffLimit": 1, "template": TEMPLATE}
METRIC = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
DOCUMENTS: dict[str, dict[str, Any]] = {
    CONTROLLERS["Deployment"]: {"spec": CONTROLLER},
    CONTROLLERS["ReplicaSet"]: {"spec": CONTROLLER},
    CONTROLLERS["StatefulSet"]: {"spec": CONTROLLER},
    CONTROLLERS["Job"]: {"spec": JOB},
    CONTROLLERS["CronJob"]: {"spec": {"schedule": "0 * * * *", "jobTemplate": {"spec": JOB}}},
    AUTOSCALERS: {
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "good"},
            "minReplicas": 1,
            "maxReplicas": 3,
            "metrics": [METRIC],
        }
    },
    LIMIT_RANGES: {"spec": {"limits": [{"type": "Container", "max": {"cpu": "4"}, "defaultRequest": {"cpu": "1"}}]}},
    QUOTAS: {"spec": {"hard": {"requests.cpu": "9", "limits.memory": "9Gi"}}, "status": {"hard": {"cpu": "9"}}},
    BUDGETS: {
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        "status": {"currentHealthy": 1},
    },
}


def hostile(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The object with each field at its worst, each under a name of its own, and the good one."""
    for number, (what, changed) in enumerate(worst(document, SHORT)):
        if what.startswith(("metadata.name", "metadata.uid", "metadata.resourceVersion", "metadata.creation")):
            continue  # the API server writes or checks these
        if what.endswith("no UTF-8"):
            continue  # the API server stores a mark in place of each such byte
        if isinstance(changed.get("metadata"), dict) and isinstance(changed["metadata"].get("name"), str):
            yield replaced(changed, ("metadata", "name"), f"bad-{number}")
    yield document


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServer]:
    make_certificate(tmp_path, "authority")
    make_certificate(tmp_path, "server", "authority")
    server = ApiServer(tmp_path / "server.pem", tmp_path / "authority.pem")
    for path in (PODS, "/api/v1/nodes", *CONTROLLERS.values(), *DOCUMENTS):
        server.objects[path] = []
    server.objects["/version"] = {"gitVersion": "v1.35.1"}
    yield server
    server.stop()


@pytest.fixture
def client(api: ApiServer, tmp_path: Path) -> KubeClient:
    file = tmp_path / "kubeconfig.yaml"
    cluster = {"server": api.url, "certificate-authority": str(tmp_path / "authority.pem")}
    document = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    file.write_text(yaml.safe_dump(document))
    return connect(KubeSettings(kubeconfig=str(file)))


def good_pod() -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "good", "uid": "r", "controller": True}
    pod = annotated_pod()
    status = {**pod.get("status", {}), "phase": "Running", "startTime": "2026-11-01T00:00:00Z"}
    spec = {**pod["spec"], "nodeName": "n1"}
    meta = {**pod["metadata"], **METADATA, "ownerReferences": [owner]}
    meta["annotations"] = pod["metadata"]["annotations"] | METADATA["annotations"]
    return {**pod, "metadata": meta, "spec": spec, "status": status}


def read(client: KubeClient, folder: Path) -> tuple[Inventory, float]:
    """What the store has after a round, and the processor time of it."""
    began = time.process_time()
    live = observe(client)
    store = Store(f"file://{folder}/store", "c")
    write_inventory(store, overlay(Inventory("c", NOW, (), (), ()), live), [], ProfilerSettings())
    found = store.read_inventory()
    assert found is not None
    return found, time.process_time() - began


@pytest.mark.slow
@pytest.mark.parametrize("path", [PODS, *DOCUMENTS], ids=lambda path: path.rpartition("/")[2])
def test_the_inventory_has_the_good_object_beside_each_hostile_one_of_its_kind(
    path: str, api: ApiServer, client: KubeClient, tmp_path: Path
) -> None:
    good = {PODS: good_pod(), **{place: {"metadata": METADATA, **parts} for place, parts in DOCUMENTS.items()}}
    documents = list(hostile(good[path]))
    api.objects |= {**{place: [document] for place, document in good.items()}, path: documents}
    assert len(documents) > 50
    found, seconds = read(client, tmp_path)
    assert "good" in {pod.name for pod in found.pods}
    assert WorkloadRef("shop", "CronJob", "good") in found.controllers
    if path not in (CONTROLLERS["ReplicaSet"],):
        assert WorkloadRef("shop", "Deployment", "good") in found.controllers
    if path != AUTOSCALERS:  # there another one may claim the same Deployment
        assert all(not subject.endswith("/good") for subject in unread_objects())
    # some tens of milliseconds for each object on a busy machine, however it is written
    assert seconds < 2 + 0.02 * len(documents)
