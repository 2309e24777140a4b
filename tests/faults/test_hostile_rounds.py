"""Whatever tenants and nodes write into objects, each process has all the others, in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from bench.platform.fuzz import seeds
from bench.platform.fuzz.hostile import annotated_pod, replaced, worst
from cotenant.admission.review import ReviewContext, answer
from cotenant.admission.webhook_server.cluster_state import WebhookMirrors
from cotenant.autopilot.rounds.cluster_state import read_policies
from cotenant.base.allocation.topology_document import COLLECTION
from cotenant.base.cluster import Inventory
from cotenant.base.controllers.feature import ControllerCondition
from cotenant.base.errors import ClusterAbsent, UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import KubeClient, Mirror, connect
from cotenant.base.kube.client import unread_objects
from cotenant.base.kube.live import AUTOSCALERS, CONTROLLERS, LIMIT_RANGES, PODS, QUOTAS, observe
from cotenant.base.kube.overlay import overlay
from cotenant.base.kubernetes.protocol import (
    CONFIG_GROUP,
    OWN_GROUP,
    PROFILE_GROUP,
    QUOTA_GROUP,
    SCHEDULING_GROUP,
    SLO_GROUP,
)
from cotenant.base.logs.metrics import Metrics
from cotenant.base.settings.sections import KubeSettings, ManagerSettings
from cotenant.base.store.store import Store
from cotenant.enforcer.model.agents import EVENTS, ask
from cotenant.manager.run import Manager
from cotenant.profiler.recorder.writing import write_inventory
from cotenant.profiler.settings import ProfilerSettings
from cotenant.scheduler_ext.cluster_size.reading import read_cluster
from cotenant.scheduler_ext.extender.settings import CpuAllocationSettings, DeviceAllocationSettings, ExtenderSettings
from cotenant.scheduler_ext.extender.snapshot import NodeSnapshot, next_snapshot
from cotenant.scheduler_ext.extender.watch.cluster_reader import read_cluster as read_extended
from cotenant.scheduler_ext.extender.watch.frame import DECODER, ENCODER
from cotenant.scheduler_ext.extender.watch.watcher import Watching
from cotenant.scheduler_ext.queues.commands.live_queues import read_report
from cotenant.scheduler_ext.queues.model.tables import tables_of
from cotenant.scheduler_ext.queues.service.queue_view import read_view
from cotenant.scheduler_ext.queues.view import QueueView
from cotenant.scheduler_ext.rebalance.arguments import DEFAULT_ARGS
from cotenant.scheduler_ext.rebalance.cluster_reading import BUDGETS
from cotenant.scheduler_ext.rebalance.cluster_reading import read as read_rebalance
from cotenant.scheduler_ext.rebalance.decide import decide
from cotenant.scheduler_ext.reservations.model.plan_wire import parse_plan
from cotenant.scheduler_ext.reservations.model.settings import PlanSettings
from cotenant.scheduler_ext.reservations.plan_decisions import PlanView
from cotenant.scheduler_ext.reservations.plan_decisions import decide as decide_plans
from cotenant.scheduler_ext.reservations.service.plans import plans, preview_plan
from cotenant.scheduler_ext.volumes.reading import CLAIMS, VOLUMES
from cotenant.settings import Settings
from tests.support.api_server import ApiServer, make_certificate

pytestmark = pytest.mark.server
NOW = 1_795_089_600
WITH_PIPELINE = ("autopilot", "forecasts", "ladders", "recommendations")
"""Features that wait for an analysis."""
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
    inventory = store.read_inventory()
    assert inventory is not None
    return inventory, time.process_time() - began


@pytest.mark.slow
@pytest.mark.parametrize("path", [PODS, *DOCUMENTS], ids=lambda path: path.rpartition("/")[2])
def test_the_inventory_has_the_good_object_beside_each_hostile_one_of_its_kind(
    path: str, api: ApiServer, client: KubeClient, tmp_path: Path
) -> None:
    good = {PODS: good_pod(), **{place: {"metadata": METADATA, **parts} for place, parts in DOCUMENTS.items()}}
    documents = list(hostile(good[path]))
    api.objects |= {**{place: [document] for place, document in good.items()}, path: documents}
    assert len(documents) > 50
    inventory, seconds = read(client, tmp_path)
    assert "good" in {pod.name for pod in inventory.pods}
    assert WorkloadRef("shop", "CronJob", "good") in inventory.controllers
    if path not in (CONTROLLERS["ReplicaSet"],):
        assert WorkloadRef("shop", "Deployment", "good") in inventory.controllers
    if path != AUTOSCALERS:  # there another one may claim the same Deployment
        assert all(not subject.endswith("/good") for subject in unread_objects())
    # some tens of milliseconds for each object on a busy machine, however it is written
    assert seconds < 2 + 0.02 * len(documents)


def listed(mirrors: Mapping[str, Mirror[Any]]) -> None:
    """List each once; not the kinds that the cluster lacks."""
    for mirror in mirrors.values():
        with suppress(ClusterAbsent):
            mirror.list_once()


def of_queues(client: KubeClient) -> set[str]:
    """Quotas and gangs of the tables that command line, REST and page Queues show."""
    tables = tables_of(read_report(client, Settings(), NOW)[1])
    return {*tables["quotas"].columns["quota"], *tables["gangs"].columns["gang"]}


def of_webhook(client: KubeClient) -> set[str]:
    """What the webhook goes by while it answers."""
    state = WebhookMirrors(client, native_gangs=True)
    listed(state.mirrors)
    view = state.view()
    resource = {"group": "", "version": "v1", "resource": "pods"}
    request = {"uid": "u", "operation": "CREATE", "namespace": "shop", "resource": resource, "object": seeds.POD}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    for path in ("/mutate-pod", "/validate-pod"):
        assert answer(path, msgspec.json.encode(review), ReviewContext(view, NOW)).status == 200
    return {*view.quotas.quotas, *(profile.name for profile in view.profiles)}


def of_extender(client: KubeClient) -> set[str]:
    """Nodes in the frames of the watcher, and in the one look of `cotenant explain pod`."""
    settings = ExtenderSettings(cpus=CpuAllocationSettings(on=True), devices=DeviceAllocationSettings(on=True))
    watching = Watching(client, settings, threading.Event())
    listed(watching.mirrors)
    for mirror in watching.mirrors.values():
        mirror._synced.set()
    snapshot = next_snapshot(NodeSnapshot(), DECODER.decode(ENCODER.encode(watching.frame())))
    assert "web-0" in {name for _, name in watching.table.pods}
    return {*snapshot.names} & {*read_extended(client, settings).snapshot.names}


def of_rebalance(client: KubeClient) -> set[str]:
    inputs = read_rebalance(client, ExtenderSettings().load_aware, NOW).inputs
    assert decide(inputs, DEFAULT_ARGS, with_forecast=True) is not None
    pods = {pod.facts.identity.name for load in inputs.loads for pod in load.pods}
    return {*(load.node.name for load in inputs.loads), *pods}


def of_cluster_size(client: KubeClient) -> set[str]:
    cluster = read_cluster(client)
    return {*(node.name for node in cluster.nodes), *(pod.name for pod in cluster.pods)}


def of_enforcement(client: KubeClient) -> set[str]:
    return {act.pod for act in ask(client, NOW).acts}


def of_preview(client: KubeClient) -> set[str]:
    """Whether a preview of a plan finds nodes for its pods."""
    preview = preview_plan(client, parse_plan(seeds.PLAN), NOW, Settings())
    return {"placed"} if preview.nodes and not preview.unplaced else set()


QUOTAS_PATH, GROUPS = f"/apis/{QUOTA_GROUP}/elasticquotas", f"/apis/{QUOTA_GROUP}/podgroups"
NODES, METRICS = "/api/v1/nodes", f"/apis/{SLO_GROUP}/nodemetrics"
RESERVATIONS = f"/apis/{SCHEDULING_GROUP}/reservations"
VOLUME: dict[str, Any] = {"metadata": {"name": "pv"}, "spec": {"capacity": {"storage": "1Gi"}, "csi": {"driver": "d"}}}
READINGS: dict[str, tuple[Callable[[KubeClient], set[str]], dict[str, dict[str, Any]], set[str]]] = {
    "queues": (
        of_queues,
        {
            QUOTAS_PATH: seeds.QUOTA,
            GROUPS: seeds.POD_GROUP,
            f"/apis/{PROFILE_GROUP}/elasticquotaprofiles": seeds.QUOTA_PROFILE,
            RESERVATIONS: seeds.RESERVATION,
            PODS: seeds.POD,
            NODES: seeds.NODE,
        },
        {"team-a", "train"},
    ),
    "webhook": (
        of_webhook,
        {
            f"/apis/{CONFIG_GROUP}/clustercolocationprofiles": seeds.PROFILE,
            QUOTAS_PATH: seeds.QUOTA,
            GROUPS: seeds.POD_GROUP,
            LIMIT_RANGES: seeds.LIMIT_RANGE,
            QUOTAS: seeds.RESOURCE_QUOTA,
            RESERVATIONS: seeds.RESERVATION,
            CONTROLLERS["Deployment"]: DOCUMENTS[CONTROLLERS["Deployment"]] | {"metadata": METADATA},
        },
        {"team-a", "batch"},
    ),
    "extender": (
        of_extender,
        {
            NODES: seeds.NODE,
            METRICS: seeds.NODE_METRIC,
            COLLECTION: seeds.TOPOLOGY,
            RESERVATIONS: seeds.RESERVATION,
            PODS: seeds.POD,
        },
        {"n1"},
    ),
    "rebalance": (
        of_rebalance,
        {NODES: seeds.NODE, METRICS: seeds.NODE_METRIC, BUDGETS: seeds.BUDGET, CLAIMS: seeds.CLAIM, PODS: seeds.POD},
        {"n1", "web-0"},
    ),
    "cluster size": (
        of_cluster_size,
        {NODES: seeds.NODE, BUDGETS: seeds.BUDGET, CLAIMS: seeds.CLAIM, VOLUMES: VOLUME, PODS: seeds.POD},
        {"n1", "web-0"},
    ),
    "enforcement": (of_enforcement, {EVENTS: seeds.EVENT, PODS: seeds.POD}, {"shop/web"}),
    "plans": (
        lambda client: {plan.name for plan in plans(client).plans},
        {f"/apis/{OWN_GROUP}/reservationplans": seeds.PLAN},
        {"evening"},
    ),
    "preview": (
        of_preview,
        {
            f"/apis/{OWN_GROUP}/reservationplans": seeds.PLAN,
            "/api/v1/namespaces/shop/resourcequotas": seeds.RESOURCE_QUOTA,
            NODES: seeds.NODE,
            PODS: {**seeds.POD, "spec": {**seeds.POD["spec"], "nodeName": "n2"}},
        },
        {"placed"},
    ),
    "autopilot": (
        lambda client: {policy.name for policy in read_policies(client)},
        {f"/apis/{OWN_GROUP}/autopilotpolicies": seeds.POLICY},
        {"p"},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "path"),
    [(name, path) for name, (_, documents, _) in READINGS.items() for path in documents],
    ids=lambda part: part.rpartition("/")[2],
)
def test_what_a_page_or_a_process_shows_has_the_good_objects_beside_each_hostile_one(
    name: str, path: str, api: ApiServer, client: KubeClient
) -> None:
    act, good, expected = READINGS[name]
    documents = list(hostile(good[path]))
    api.objects |= {place: [document] for place, document in good.items()} | {path: documents}
    began = time.process_time()
    assert act(client) >= expected
    assert time.process_time() - began < 2 + 0.02 * len(documents)


def test_tables_that_fail_on_one_object_are_made_without_it_and_name_it(api: ApiServer, client: KubeClient) -> None:
    _, good, _ = READINGS["queues"]
    api.objects |= {place: [document] for place, document in good.items()}
    quota: dict[str, Any] = seeds.QUOTA
    names = ("1", "2", "bad")
    api.objects[QUOTAS_PATH] = [{**quota, "metadata": {**quota["metadata"], "name": name}} for name in names]

    def use(view: QueueView) -> tuple[int, dict[str, str]]:
        return sum(int(name) for name in view.quotas), dict(view.unreadable)

    count, reasons = read_view(client, Settings(), NOW, use)
    assert count == 1 + 2
    assert "do not include this object" in reasons["elasticquotas/shop/bad"]


MANAGED: dict[str, dict[str, Any]] = {
    path: document
    for name, (_, documents, _) in READINGS.items()
    if name not in ("enforcement", "cluster size", "preview", "webhook")
    for path, document in documents.items()
}
"""What the manager's controllers mirror, of what tenants and nodes write."""


@pytest.mark.parametrize("field", ["count", "standby"])
def test_a_plan_of_more_pods_than_any_is_refused_before_each_of_them_gets_a_name(field: str) -> None:
    spec = seeds.PLAN["spec"]
    with pytest.raises(UsageError, match=f"amount.{field} is not between 0 and 10,000 pods"):
        parse_plan({**seeds.PLAN, "spec": {**spec, "amount": {**spec["amount"], field: 2**63 - 1}}})


def test_the_time_of_a_decision_grows_with_the_plans_and_not_with_their_square() -> None:
    def seconds(count: int) -> float:
        plan = parse_plan(seeds.PLAN)
        view = PlanView(tuple(replace(plan, name=f"p-{number}") for number in range(count)))
        began = time.process_time()
        decide_plans(view, NOW, PlanSettings())
        return time.process_time() - began

    few = min(seconds(100) for _ in range(3))
    # 8 times the plans take 8 times as long, by their square 64 times; twice that for a busy machine
    assert min(seconds(800) for _ in range(3)) < 20 * few


@pytest.mark.slow
@pytest.mark.parametrize("path", MANAGED, ids=lambda path: path.rpartition("/")[2])
def test_every_controller_decides_beside_each_hostile_object(path: str, api: ApiServer, client: KubeClient) -> None:
    documents = list(hostile(MANAGED[path]))
    manager = Manager(client, Settings(manager=ManagerSettings(features_off=[*WITH_PIPELINE])), Metrics("test", "3"))
    api.objects |= {mirror.path: [] for mirror in manager.mirrors.values()}
    api.objects |= {place: [document] for place, document in MANAGED.items()} | {path: documents}
    began = time.process_time()
    listed(manager.mirrors)
    states = {runner.feature.name: runner.round() for runner in manager.runners}
    seconds = time.process_time() - began
    for runner in manager.runners:
        runner.close()
    failed = {name: state.message for name, state in states.items() if state.condition is ControllerCondition.FAILED}
    assert failed == {}
    decided = [name for name, state in states.items() if state.condition is ControllerCondition.DRY_RUN]
    assert len(decided) > 4, states
    assert seconds < 10 + 0.05 * len(documents)


UNCOUNTED = {"status": {"currentHealthy": "many"}}


@pytest.mark.parametrize(
    ("path", "odd", "gaps_of"),
    [
        (BUDGETS, UNCOUNTED, lambda client: read_rebalance(client, ExtenderSettings().load_aware, NOW).gaps),
        (BUDGETS, UNCOUNTED, lambda client: read_cluster(client).gaps),
        (NODES, {"spec": {"unschedulable": "perhaps"}}, lambda client: read_cluster(client).gaps),
        (EVENTS, {"reportingController": 7}, lambda client: ask(client, NOW).gathering.notes),
    ],
)
def test_a_page_says_which_object_of_a_list_it_does_without(
    path: str, odd: dict[str, Any], gaps_of: Callable[[KubeClient], Any], api: ApiServer, client: KubeClient
) -> None:
    for name in ("rebalance", "enforcement"):
        api.objects |= {kind: [seed] for kind, seed in READINGS[name][1].items()}
    api.objects[path] = [*api.objects[path], {"metadata": {"name": "odd"}, **odd}]
    (gap,) = [gap for gap in gaps_of(client) if "/odd: " in gap]
    assert gap.startswith(f"{path.rpartition('/')[2]}/odd: the object cannot be read: ")
