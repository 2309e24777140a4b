"""The real kube-scheduler asks us: what it sends, what it makes of our answers, what happens without us.

Its wire format is pinned by what it sent in this very run; each trap of the protocol is shown on it.
"""

from __future__ import annotations

import copy
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from cotenant.base.allocation.cpu_topology import regular_topology
from cotenant.base.allocation.device_allocator import COLLECTION as DEVICES
from cotenant.base.allocation.topology_document import NodeCpus, annotations_of
from cotenant.base.kubernetes.protocol import CLAIM_DRIVER, PLACEHOLDER_NAMESPACE, RESOURCE_SLICES
from cotenant.scheduler_ext.extender.columns import SnapshotColumn
from cotenant.scheduler_ext.extender.serve.bind import Binder
from cotenant.scheduler_ext.extender.serve.certificates import issue
from cotenant.scheduler_ext.extender.serve.scheduler_configuration import Reach, extenders
from cotenant.scheduler_ext.extender.serve.server import ExtenderServer, ExtenderService
from cotenant.scheduler_ext.extender.serve.wire import EXTENDER_ARGS, BindArgs
from cotenant.scheduler_ext.extender.settings import (
    CpuAllocationSettings,
    DeviceAllocationSettings,
    ExtenderSettings,
)
from cotenant.scheduler_ext.reservations.model.reservation import Mode, Reservation
from cotenant.scheduler_ext.reservations.model.settings import ReservationSettings
from cotenant.scheduler_ext.reservations.placeholder import PlaceholderSpec, placeholder_creation
from tests.cluster import needing
from tests.cluster.accounts import account
from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane, Options
from tests.cluster.fake_nodes import NodeShape, create_nodes
from tests.cluster.namespaces import create_namespace, unique_name
from tests.cluster.process import free_port
from tests.cluster.topologies import PATH, install_topologies
from tests.cluster.waiting import wait_for
from tests.scheduler_ext.extender.live import EXTENDER, Recorder, install_crds, scheduler, service
from tests.scheduler_ext.extender.worlds import metric_json
from tests.support.shipped_rules import alerts

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.xdist_group("cluster")]
NODEMETRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
ON = CpuAllocationSettings(on=True)
NODES = ["node-0", "node-1", "node-2"]
SWAP_GUARDS = "/apis/cotenant.dev/v1alpha1/swapguards"
OF_THE_CLUSTER = (SWAP_GUARDS, DEVICES, RESOURCE_SLICES, PATH)
"""Collections without namespaces in which tests create objects."""


@dataclass
class Scheduling:
    """A cluster of three nodes of 4 cores whose scheduler asks an extender all verbs over TLS; `recorder` sees it."""

    plane: ControlPlane
    extender: ExtenderService
    recorder: Recorder
    settings: ExtenderSettings
    server: ExtenderServer

    @property
    def api(self) -> Api:
        return self.plane.api()

    def restart(self) -> None:
        """Another server on the same port with the same application."""
        self.server.stop()
        self.server = ExtenderServer(self.recorder, self.settings)
        self.server.start()


@pytest.fixture(scope="module")
def scheduling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduling]:
    needing.kubernetes()
    folder, port = tmp_path_factory.mktemp("extender"), free_port()
    url = f"https://127.0.0.1:{port}"
    issue(folder / "pki", url)
    certificates = str(folder / "pki" / "server")
    gpus = DeviceAllocationSettings(on=True)
    settings = ExtenderSettings(
        port=port, certificate_folder=certificates, weight=1, cpus=ON, devices=gpus, http_timeout_seconds=1.0
    )
    scheduler = {"extenders": extenders(_reach(folder / "pki" / "scheduler", url), settings)}
    with ControlPlane(folder / "cluster", Options(scheduler=scheduler)) as plane:
        install_crds(plane)
        install_topologies(plane.api())
        create_nodes(plane, len(NODES), NodeShape(prefix="node", cpu="4", memory="8Gi"))
        for name in NODES:
            report(plane.api(), name, "0")
        with service(plane, settings) as extender:
            scheduler_setup = Scheduling(plane, extender, Recorder(extender.app), settings, extender.server)
            scheduler_setup.restart()
            yield scheduler_setup
            scheduler_setup.server.stop()


def _reach(folder: Path, url: str) -> Reach:
    return Reach(url, str(folder / "ca.crt"), str(folder / "tls.crt"), str(folder / "tls.key"))


@pytest.fixture
def place(scheduling: Scheduling) -> Iterator[str]:
    """A namespace of its own, emptied afterwards as the cluster's objects are, for a test may be run again."""
    name = create_namespace(scheduling.api, unique_name("sched"))
    scheduling.recorder.replace.clear()
    scheduling.recorder.seen.clear()
    yield name
    scheduling.recorder.replace.clear()
    scheduling.recorder.delay.clear()
    api = scheduling.api
    for namespace in (name, PLACEHOLDER_NAMESPACE):
        for pod in api.items(f"/api/v1/namespaces/{namespace}/pods"):
            api.delete(f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}", gracePeriodSeconds="0")
    for collection in OF_THE_CLUSTER:
        for created in api.items(collection):
            api.delete(f"{collection}/{created['metadata']['name']}")


def report(api: Api, node: str, cpu: str, updated: float | None = None) -> None:
    """A NodeMetric of now (or then) that says how much CPU the node uses."""
    body = metric_json(node, cpu=cpu, memory="1Gi", updated=time.time() if updated is None else updated)
    status = body.pop("status")
    if not api.exists(f"{NODEMETRICS}/{node}"):
        api.create(NODEMETRICS, {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", **body})
    api.patch(f"{NODEMETRICS}/{node}/status", {"status": status})


def reports(scheduling: Scheduling, cpu: dict[str, str]) -> None:
    """Nodes' use, as far as the extender's view."""
    now = time.time()
    for node in NODES:
        report(scheduling.api, node, cpu.get(node, "1m"), now)

    def seen() -> bool:
        updated = scheduling.extender.view.snapshot.column(SnapshotColumn.UPDATED)
        return bool((updated > now - 0.001).all())

    wait_for("the extender sees the reports", seen)


def wake(scheduling: Scheduling, place: str) -> None:
    """Something happens in the cluster: a refused pod is looked at again at the next event, of any kind."""
    create(scheduling.api, place, unique_name("event"), nodeName="node-0")


def create(api: Api, namespace: str, name: str, cpu: str = "100m", **spec: Any) -> str:
    amounts = {"requests": {"cpu": cpu, "memory": "64Mi", **spec.pop("requests", {})}, "limits": spec.pop("limits", {})}
    container = {"name": "main", "image": "example.invalid/app:1", "resources": amounts}
    labels = {"koordinator.sh/qosClass": "LS", **spec.pop("labels", {})}
    body = {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [container], **spec}}
    api.create(f"/api/v1/namespaces/{namespace}/pods", body)
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def node_of(api: Api, path: str) -> str:
    return str(api.get(path)["spec"].get("nodeName", ""))


def bound(api: Api, path: str) -> str:
    """The node that the pod is bound to, waiting for it."""
    return wait_for(f"{path} is bound", lambda: node_of(api, path))


def refusal(api: Api, path: str) -> str:
    """What the scheduler says of a pod that it cannot place, waiting for it."""

    def says() -> str:
        conditions = api.get(path)["status"].get("conditions", [])
        return next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")

    return wait_for(f"the scheduler's word on {path}", says)


def test_the_scheduler_is_told_who_is_busy_and_says_so_on_the_pod(scheduling: Scheduling, place: str) -> None:
    # 4 cores: 2,700 m used + 85 % of 100 m = 69.6 -> 70 %, above 65
    reports(scheduling, {"node-0": "2.7", "node-1": "2.7"})
    path = create(scheduling.api, place, "web")
    assert bound(scheduling.api, path) == "node-2"
    reports(scheduling, dict.fromkeys(NODES, "2.7"))
    path = create(scheduling.api, place, "waits")
    assert "3 cpu usage above 65 %" in refusal(scheduling.api, path)
    reports(scheduling, {})
    wake(scheduling, place)
    assert bound(scheduling.api, path) in NODES


def test_what_the_scheduler_sends_is_what_we_read(scheduling: Scheduling, place: str) -> None:
    """The golden bodies: keys and forms as the real scheduler of this run has them."""
    reports(scheduling, {"node-0": "1"})
    bound(scheduling.api, create(scheduling.api, place, "golden"))
    question, status, response = scheduling.recorder.of("/filter")[-1]
    sent = json.loads(question)
    assert (status, set(sent), sent["Nodes"], sorted(sent["NodeNames"])) == (
        200,
        {"Pod", "Nodes", "NodeNames"},
        None,
        NODES,
    )
    # the pod is ordinary JSON without kind, and still carries managedFields
    assert sent["Pod"]["metadata"]["name"] == "golden"
    assert "managedFields" in sent["Pod"]["metadata"]
    assert "kind" not in sent["Pod"]
    assert sorted(json.loads(response)["NodeNames"]) == NODES
    question, status, response = scheduling.recorder.of("/prioritize")[-1]
    assert (status, set(json.loads(question))) == (200, {"Pod", "Nodes", "NodeNames"})
    scores = {load["Host"]: load["Score"] for load in json.loads(response)}
    assert set(scores) == set(NODES)
    assert scores["node-0"] < scores["node-1"]


def test_an_empty_answer_would_mean_that_no_node_passes(scheduling: Scheduling, place: str) -> None:
    """Why {} is never sent: not an error for the scheduler, but an unschedulable pod."""
    scheduling.recorder.replace["/filter"] = (200, b"{}")
    path = create(scheduling.api, place, "nowhere")
    assert "0/3 nodes are available" in refusal(scheduling.api, path)
    assert node_of(scheduling.api, path) == ""


@pytest.mark.parametrize(
    "response",
    [(201, b'{"NodeNames": ["node-0"]}'), (500, b"broken"), (200, b'{"NodeNames": ["stranger"]}'), (200, b"<")],
)
def test_an_ignorable_extender_that_answers_wrongly_is_stepped_over(
    scheduling: Scheduling, place: str, response: tuple[int, bytes]
) -> None:
    scheduling.recorder.replace["/filter"] = response
    assert bound(scheduling.api, create(scheduling.api, place, "still")) in NODES


def test_an_answer_after_the_schedulers_patience_is_stepped_over(scheduling: Scheduling, place: str) -> None:
    scheduling.recorder.delay["/filter"] = 2 * scheduling.settings.http_timeout_seconds
    assert bound(scheduling.api, create(scheduling.api, place, "patient")) in NODES


ALERT: Final = "CotenantExtenderDelaysScheduling"
SELECTOR: Final = re.compile(r"rate\((\w+)({[^}]*})?\[")


def test_the_schedulers_own_metrics_show_what_a_frozen_extender_costs(scheduling: Scheduling, place: str) -> None:
    """The alert's sums over what a real kube-scheduler publishes, while the extender answers and while it does not."""
    (rule,) = [rule for rule in alerts() if rule["alert"] == ALERT]
    names = [name for name, _ in SELECTOR.findall(rule["expr"])]
    total, points, count = names  # in the order of the expression: (whole - points) / count > threshold
    threshold = float(rule["expr"].partition("> ")[2].split()[0])

    def waited(prefix: str) -> float:
        before = scheduling.plane.scheduler_samples()
        for number in range(3):
            bound(scheduling.api, create(scheduling.api, place, f"{prefix}-{number}"))
        after = scheduling.plane.scheduler_samples()

        def grown(name: str, **labels: str) -> float:
            return sum(
                value - before.get(key, 0.0)
                for key, value in after.items()
                if key[0] == name
                and all(re.fullmatch(text, dict(key[1]).get(label, "")) for label, text in labels.items())
            )

        assert grown(count) == 3
        return (grown(total) - grown(points, extension_point="PreFilter|Filter|PostFilter|PreScore|Score")) / 3

    assert waited("answered") < threshold
    scheduling.recorder.delay["/filter"] = 2 * scheduling.settings.http_timeout_seconds
    # each pod waits for the whole second of this configuration
    assert waited("frozen") > 0.9 * scheduling.settings.http_timeout_seconds > threshold


def test_a_score_above_ten_would_be_multiplied_on(scheduling: Scheduling, place: str) -> None:
    """Why ten is the most that is ever sent: nobody clips it. The busiest node outbids every plugin."""
    reports(scheduling, {"node-1": "2"})
    scheduling.recorder.replace["/prioritize"] = (200, b'[{"Host": "node-1", "Score": 1000}]')
    for number in range(3):
        assert bound(scheduling.api, create(scheduling.api, place, f"bid-{number}")) == "node-1"


def test_a_failing_scorer_stops_nobody(scheduling: Scheduling, place: str) -> None:
    scheduling.recorder.replace["/prioritize"] = (500, b"broken")
    assert bound(scheduling.api, create(scheduling.api, place, "unranked")) in NODES


def test_pods_that_ask_for_it_are_bound_by_us_and_no_others(scheduling: Scheduling, place: str) -> None:
    bound(scheduling.api, create(scheduling.api, place, "ordinary"))
    assert "/bind" not in scheduling.recorder.asked_about(place)
    ours = {"cotenant.dev/bind": "1"}
    path = create(scheduling.api, place, "asks", requests=ours, limits=ours)
    chosen = bound(scheduling.api, path)
    # The pod is bound while the extender still answers.
    wait_for("the bind verb's answer", lambda: scheduling.recorder.of("/bind"))
    question, status, response = scheduling.recorder.of("/bind")[-1]
    sent, pod = json.loads(question), scheduling.api.get(path)
    assert sent == {"PodName": "asks", "PodNamespace": place, "PodUID": pod["metadata"]["uid"], "Node": chosen}
    assert (status, json.loads(response)) == (200, {"Error": ""})


def test_a_scheduler_told_of_managed_pods_alone_asks_about_no_other(
    scheduling: Scheduling, place: str, tmp_path: Path
) -> None:
    reach = _reach(Path(scheduling.settings.certificate_folder).parent / "scheduler", scheduling.server.url)
    fields = {
        "profiles": [{"schedulerName": "frugal"}],
        "extenders": extenders(reach, scheduling.settings, managed_only=True),
    }
    ours = {"cotenant.dev/bind": "1"}
    with scheduler(scheduling.plane, tmp_path, fields):
        ordinary = create(scheduling.api, place, "ordinary", schedulerName="frugal")
        assert bound(scheduling.api, ordinary) in NODES
        assert scheduling.recorder.asked_about(place) == set()
        asks = create(scheduling.api, place, "asks", schedulerName="frugal", requests=ours, limits=ours)
        assert bound(scheduling.api, asks) in NODES
    assert scheduling.recorder.asked_about(place) >= {"/filter", "/prioritize", "/bind"}


def test_a_pod_of_class_lsr_gets_cpus_of_its_own_on_a_node_that_publishes_its_cpus(
    scheduling: Scheduling, place: str
) -> None:
    """A core of two threads on node-1, and nothing on the others: the second pod of two CPUs waits."""
    api = scheduling.api
    metadata = {"name": "node-1", "annotations": annotations_of(NodeCpus(regular_topology(1, 1, 2)))}
    head = {"apiVersion": "topology.node.k8s.io/v1alpha1", "kind": "NodeResourceTopology"}
    api.create(PATH, {**head, "metadata": metadata, "topologyPolicies": ["None"], "zones": []})
    wait_for("the extender sees the CPUs", lambda: "node-1" in scheduling.extender.view.snapshot.rooms)
    amounts = {"memory": "64Mi", "cotenant.dev/bind": "1", "cpu": "2"}
    asks: dict[str, Any] = {"requests": amounts, "limits": amounts, "labels": {"koordinator.sh/qosClass": "LSR"}}
    path = create(api, place, "lsr-0", **copy.deepcopy(asks))
    assert bound(api, path) == "node-1"
    text = api.get(path)["metadata"]["annotations"]["scheduling.koordinator.sh/resource-status"]
    assert json.loads(text) == {"cpuset": "0-1", "numaNodeResources": [{"node": 0, "resources": {"cpu": "2"}}]}
    view = scheduling.extender.view
    wait_for("the CPUs to be taken", lambda: view.snapshot.rooms["node-1"].free == [0])
    waits = create(api, place, "lsr-1", **copy.deepcopy(asks))
    message = refusal(api, waits)
    assert "2 the node publishes no readable CPU topology" in message and "1 too few free CPUs" in message
    api.delete(path, gracePeriodSeconds="0")
    wait_for("the CPUs to be free again", lambda: view.snapshot.rooms["node-1"].free == [2])
    wake(scheduling, place)
    assert bound(api, waits) == "node-1"


def test_a_binding_whose_answer_was_lost_is_done_once(scheduling: Scheduling, place: str) -> None:
    """The scheduler sees a failure where the pod is bound: it stays bound, and a second question finds it so."""
    ours = {"cotenant.dev/bind": "1"}
    scheduling.recorder.replace["/bind"] = (500, b"the answer was lost")
    path = create(scheduling.api, place, "lost", requests=ours, limits=ours)
    chosen = bound(scheduling.api, path)
    uid = scheduling.api.get(path)["metadata"]["uid"]
    binder = Binder(scheduling.plane.client(account(scheduling.plane, EXTENDER)).sibling)
    assert binder.bind(BindArgs("lost", place, uid, chosen)) == ""
    other = next(node for node in NODES if node != chosen)
    assert f"is bound to {chosen} already" in binder.bind(BindArgs("lost", place, uid, other))
    assert "does not exist any more" in binder.bind(BindArgs("lost", place, "another-uid", chosen))


def test_a_pod_that_did_not_ask_is_not_bound_by_us(scheduling: Scheduling, place: str) -> None:
    path = create(scheduling.api, place, "gated", schedulingGates=[{"name": "test.example/wait"}])
    binder = Binder(scheduling.plane.client(account(scheduling.plane, EXTENDER)).sibling)
    uid = scheduling.api.get(path)["metadata"]["uid"]
    assert "does not request a binding" in binder.bind(BindArgs("gated", place, uid, "node-0"))
    assert node_of(scheduling.api, path) == ""


def test_a_placeholder_is_displaced_by_its_owner_and_by_nobody_else(scheduling: Scheduling, place: str) -> None:
    """Preempt: the real scheduler, real priorities; victims come as uids."""
    api = scheduling.api
    for name, value in (("test-high", 1000), ("cotenant-below-test", -10)):
        if not api.exists(f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}"):
            api.create("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, "value": value})
    owners = [{"labelSelector": {"matchLabels": {"app": place}}}]
    api.create(
        "/apis/scheduling.koordinator.sh/v1alpha1/reservations",
        {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Reservation",
            "metadata": {"name": place},
            "spec": {"owners": owners, "template": {"spec": {"containers": [{"name": "m", "image": "x"}]}}},
        },
    )
    if not api.exists(f"/api/v1/namespaces/{PLACEHOLDER_NAMESPACE}"):
        create_namespace(api, PLACEHOLDER_NAMESPACE)
        account_of_placeholders = {"metadata": {"name": "cotenant-placeholder"}}
        api.create(f"/api/v1/namespaces/{PLACEHOLDER_NAMESPACE}/serviceaccounts", account_of_placeholders)
    reservation = Reservation.parse(api.get(f"/apis/scheduling.koordinator.sh/v1alpha1/reservations/{place}"))
    for node in NODES:  # the scheduler puts one on each: no node has room for two
        size = PlaceholderSpec(f"h-{place}-{node}", {"cpu": 3800})
        body = placeholder_creation(reservation, size, Mode.LAST_RESORT, {}, ReservationSettings()).body
        body = {
            **body,
            "spec": {**body["spec"], "priorityClassName": "cotenant-below-test", "terminationGracePeriodSeconds": 0},
        }
        api.create(f"/api/v1/namespaces/{PLACEHOLDER_NAMESPACE}/pods", body)
    wait_for("placeholders are seen", lambda: len(scheduling.extender.view.snapshot.placeholders) == len(NODES))
    wait_for("the reservation is seen", lambda: place in scheduling.extender.view.snapshot.reservations)
    stranger = create(api, place, "stranger", "1800m", priorityClassName="test-high")
    wait_for("preemption was asked", lambda: scheduling.recorder.of("/preempt"))
    question, status, response = scheduling.recorder.of("/preempt")[-1]
    sent = json.loads(question)
    assert set(sent) == {"Pod", "NodeNameToVictims", "NodeNameToMetaVictims"}
    victims = sent["NodeNameToMetaVictims"]
    assert {v["Pods"][0]["UID"] for v in victims.values()} <= set(scheduling.extender.view.snapshot.placeholders)
    assert (status, json.loads(response)) == (200, {"NodeNameToMetaVictims": {}})
    refusal(api, stranger)
    assert len(scheduling.extender.view.snapshot.placeholders) == len(NODES)
    # 85 % of 2,500 m is 53 % of 4 cores; 1,500 m are left, too little for the stranger
    owner = create(api, place, "owner", "2500m", priorityClassName="test-high", labels={"app": place})
    assert bound(api, owner) in NODES
    assert node_of(api, stranger) == ""


def test_during_a_hand_over_the_scheduler_finds_the_node_closed(scheduling: Scheduling, place: str) -> None:
    api = scheduling.api
    guard = {"apiVersion": "cotenant.dev/v1alpha1", "kind": "SwapGuard", "metadata": {"name": "swaps"}}
    nodes = {node: [f"{place}/owner"] for node in NODES}
    api.create(SWAP_GUARDS, {**guard, "spec": {"nodes": nodes}})
    wait_for("the guard is seen", lambda: set(scheduling.extender.view.snapshot.guards) == set(NODES))
    stranger = create(api, place, "stranger")
    assert "3 the node's capacity is being handed over to another pod" in refusal(api, stranger)
    assert bound(api, create(api, place, "owner")) in NODES
    api.delete(f"{SWAP_GUARDS}/swaps")
    wait_for("the guard is gone", lambda: not scheduling.extender.view.snapshot.guards)
    wake(scheduling, place)
    assert bound(api, stranger) in NODES


def test_without_us_pods_are_bound_and_with_us_again_the_rules_hold(scheduling: Scheduling, place: str) -> None:
    """Ignorable: the extender is killed, pods go on; it comes back on its port, and its refusals count again."""
    api = scheduling.api
    reports(scheduling, dict.fromkeys(NODES, "2.7"))
    waits = create(api, place, "waits")
    assert "cpu usage above 65 %" in refusal(api, waits)
    scheduling.server.stop()
    # nobody refuses any more; what was refused before goes on with the next event
    assert bound(api, create(api, place, "meanwhile")) in NODES
    assert bound(api, waits) in NODES
    scheduling.restart()
    again = create(api, place, "again")
    assert "cpu usage above 65 %" in refusal(api, again)
    reports(scheduling, {})
    wake(scheduling, place)
    assert bound(api, again) in NODES


def test_the_real_bodies_decode_into_what_we_wrote_down(scheduling: Scheduling, place: str) -> None:
    """Every body of this run is read by the strict decoders."""
    bound(scheduling.api, create(scheduling.api, place, "one"))
    bodies = [question for question, _, _ in scheduling.recorder.of("/filter")]
    assert bodies
    for body in bodies:
        assert EXTENDER_ARGS.decode(body).node_names


def test_pods_share_a_gpu_until_it_is_full(scheduling: Scheduling, place: str) -> None:
    """One GPU on node-2, and none on the others: two pods of 50 percent fit, the third waits for one to leave."""
    api, head = scheduling.api, {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Device"}
    amounts = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}
    card = {"type": "gpu", "minor": 0, "id": "GPU-0", "health": True, "resources": amounts}
    api.create(DEVICES, {**head, "metadata": {"name": "node-2"}, "spec": {"devices": [card]}})
    view = scheduling.extender.view
    wait_for("the extender sees the GPU", lambda: "node-2" in view.snapshot.device_rooms)
    half = {"koordinator.sh/gpu": "50"}
    paths = [create(api, place, f"half-{number}", requests=half, limits=half) for number in (1, 2)]
    for path in paths:
        assert bound(api, path) == "node-2"
        text = api.get(path)["metadata"]["annotations"]["scheduling.koordinator.sh/device-allocated"]
        share = {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50"}
        assert json.loads(text) == {"gpu": [{"minor": 0, "resources": share, "id": "GPU-0"}]}
    full_room = [({"koordinator.sh/gpu-core": 0, "koordinator.sh/gpu-memory-ratio": 0}, 0)]
    wait_for("the GPU to be full", lambda: view.snapshot.device_rooms["node-2"].free["gpu"] == full_room)
    third = create(api, place, "half-3", requests=half, limits=half)
    message = refusal(api, third)
    assert "2 the node has no readable Device object" in message and "1 too few of the node's devices" in message
    api.delete(paths[0], gracePeriodSeconds="0")

    def freed() -> bool:
        """Or given to the third pod already: the scheduler may be as fast as this look."""
        return view.snapshot.device_rooms["node-2"].free["gpu"] != full_room or bool(node_of(api, third))

    wait_for("a half to be free", freed)
    wake(scheduling, place)
    assert bound(api, third) == "node-2"
    # what a claim has, or may still get, is no room for shares
    pool = {"name": "node-2", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": CLAIM_DRIVER, "nodeName": "node-2", "pool": pool, "devices": [{"name": "gpu-0"}]}
    meta = {"name": "node-2-cotenant-0"}
    sliced = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": meta, "spec": spec}
    api.create(RESOURCE_SLICES, sliced)
    wait_for("the slice counts", lambda: not view.snapshot.device_rooms["node-2"].free)
    api.delete(f"{RESOURCE_SLICES}/node-2-cotenant-0")
    wait_for("the GPU is back", lambda: view.snapshot.device_rooms["node-2"].free)
