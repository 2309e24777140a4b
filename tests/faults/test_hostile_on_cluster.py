"""Whatever a real API server admits of the worst values of each field: others are answered, each feature goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from bench.platform.fuzz import seeds
from cotenant.admission.review import ReviewContext, answer
from cotenant.admission.webhook_server.cluster_state import WebhookMirrors
from cotenant.base.allocation.topology_document import COLLECTION
from cotenant.base.controllers.feature import ControllerCondition
from cotenant.base.kube import KubeClient
from cotenant.base.kube.live import CONTROLLERS, PODS
from cotenant.base.kubernetes.protocol import OWN_GROUP
from cotenant.base.logs.metrics import Metrics
from cotenant.base.settings.sections import ManagerSettings
from cotenant.enforcer.model.agents import EVENTS
from cotenant.manager.run import Manager
from cotenant.scheduler_ext.rebalance.migration.job import address_of
from cotenant.scheduler_ext.volumes.reading import VOLUMES
from cotenant.settings import Settings
from tests.cluster.api import Api, ApiError
from tests.cluster.control_plane import ControlPlane, Options
from tests.cluster.crds import FOLDER, install_crd
from tests.faults.test_hostile_rounds import (
    CONTAINER,
    DOCUMENTS,
    METADATA,
    READINGS,
    RESERVATIONS,
    WITH_PIPELINE,
    hostile,
    listed,
    of_cluster_size,
    of_extender,
    of_queues,
    of_rebalance,
)

pytestmark = [pytest.mark.soak, pytest.mark.cluster, pytest.mark.slow]
NAMESPACE = "shop"
POLICIES = f"/apis/{OWN_GROUP}/autopilotpolicies"
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "namespace": "shop", "uid": "u"}
TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}
POD = {**seeds.POD, "spec": {"nodeName": "n1", "nodeSelector": {"zone": "a"}, "containers": [CONTAINER]}}
KINDS: dict[str, dict[str, Any]] = {
    **{path: seed for _, documents, _ in READINGS.values() for path, seed in documents.items()},
    **{path: {"metadata": METADATA, **parts} for path, parts in DOCUMENTS.items()},
    address_of("").collection: seeds.MIGRATION_JOB,
    PODS: POD,
    CONTROLLERS["Job"]: {"metadata": METADATA, "spec": {"template": TEMPLATE}},
    RESERVATIONS: {**seeds.RESERVATION, "spec": {**seeds.RESERVATION["spec"], "owners": [{"controller": OWNER}]}},
    POLICIES: {**seeds.POLICY, "spec": {"mode": "Observe", "selector": seeds.POLICY["spec"]["selector"]}},
    EVENTS: {**seeds.EVENT, "action": "suppress", "reportingInstance": "n1"},
}
"""What tenants and nodes write, and an API server admits."""
WRITTEN_BY_SERVER = (
    "uid",
    "resourceVersion",
    "ownerReferences",
    "managedFields",
    "creationTimestamp",
    "deletionTimestamp",
)
NOBODYS = {VOLUMES, COLLECTION, CONTROLLERS["CronJob"]}
"""An administrator's, not installed here, and a Job with a clock."""
ONE_SECOND = 1.0
ENDLESS = b"1e999999999"
"""An amount whose exponent the API server itself multiplies out, for ever (Cmp of Quantity in k8s.io/apimachinery)."""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One of its own: nobody else is to live beside what is made here, and no controller makes pods of it."""
    with ControlPlane(tmp_path_factory.mktemp("hostile"), Options(frozenset())) as own:
        api = own.api()
        for file in sorted(FOLDER.glob("*.yaml")):
            install_crd(api, file.stem)
        api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        api.create(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}})
        yield own


def place(api: Api, path: str) -> tuple[str, dict[str, str]]:
    """Where objects of the collection are created, and what they say of their kind."""
    base, _, plural = path.replace(f"/namespaces/{NAMESPACE}", "").rpartition("/")
    (kind,) = (kind for kind in api.get(base)["resources"] if kind["name"] == plural)
    type_meta = {"apiVersion": base.removeprefix("/apis/").removeprefix("/api/"), "kind": kind["kind"]}
    return f"{base}/namespaces/{NAMESPACE}/{plural}" if kind["namespaced"] else path, type_meta


def admit(api: Api, at: tuple[str, dict[str, str]], body: dict[str, Any]) -> str:
    """Create an object with its status; why the API server does not admit it, or ""."""
    path, type_meta = at
    namespace = {"namespace": NAMESPACE} if "/namespaces/" in path else {}
    meta = {
        key: value
        for key, value in body["metadata"].items()
        if key not in WRITTEN_BY_SERVER and not key.endswith("Timestamp")
    }
    try:
        live = api.create(path, {**body, **type_meta, "metadata": meta | namespace})
    except ApiError as refused:
        return str(refused)
    if "status" in body:
        with suppress(ApiError):
            api.patch(f"{path}/{live['metadata']['name']}/status", {"status": body["status"]})
    return ""


def is_answered(path: str, body: dict[str, Any]) -> bool:
    """Whether the API server ends the check of an object: of its own kinds it compares every amount with nothing."""
    amounts = msgspec.json.encode([body.get("spec"), body.get("status")])
    return ".koordinator.sh/" in path or ".sigs.k8s.io/" in path or OWN_GROUP in path or ENDLESS not in amounts


def conditions(client: KubeClient) -> dict[str, ControllerCondition]:
    """How each feature that needs no analysis is after a round."""
    manager = Manager(client, Settings(manager=ManagerSettings(features_off=[*WITH_PIPELINE])), Metrics("test", "3"))
    listed(manager.mirrors)
    states = {runner.feature.name: runner.round() for runner in manager.runners}
    for runner in manager.runners:
        runner.close()
    return {name: state.condition for name, state in states.items()}


def test_each_process_goes_on_beside_every_hostile_object_that_is_admitted(plane: ControlPlane) -> None:
    api, client = plane.api(), plane.admin_client()
    before = conditions(client)
    # what bounds a namespace comes last, since it refuses pods
    kinds = sorted(KINDS.keys() - NOBODYS, key=lambda path: (path.endswith(("quotas", "limitranges")), path))
    admitted = {}
    for path in kinds:
        at = place(api, path)
        assert admit(api, at, KINDS[path]) == ""
        admitted[path] = sum(not admit(api, at, bad) for bad in hostile(KINDS[path]) if is_answered(path, bad))
    assert admitted[PODS] and sum(admitted.values()) > 500 and sum(map(bool, admitted.values())) > 10, admitted
    # an admission of somebody else's pod and each page's reading
    state = WebhookMirrors(client, native_gangs=True)
    listed(state.mirrors)
    state.view()
    resource = {"group": "", "version": "v1", "resource": "pods"}
    other = {**seeds.POD, "metadata": {"name": "other", "namespace": NAMESPACE}}
    request = {"uid": "u", "operation": "CREATE", "namespace": NAMESPACE, "resource": resource, "object": other}
    review = msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
    for path in ("/mutate-pod", "/validate-pod"):
        began = time.process_time()
        assert answer(path, review, ReviewContext(state.view(), time.time())).status == 200
        assert time.process_time() - began < ONE_SECOND
    node = seeds.NODE["metadata"]["name"]
    assert node in of_extender(client) and node in of_cluster_size(client) and node in of_rebalance(client)
    assert seeds.QUOTA["metadata"]["name"] in of_queues(client)
    assert conditions(client) == before
