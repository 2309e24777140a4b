"""The driver of devices without a kubelet: what is offered, what a claim gets, the sockets that are called."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.allocation.allocator import Holding
from cotenant.base.allocation.cpu_topology import regular_topology
from cotenant.base.allocation.devices import (
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    DeviceInventory,
    DeviceKind,
    NodeDevice,
)
from cotenant.base.errors import CotenantError, StoreError, UsageError
from cotenant.base.identity import NodeIdentity
from cotenant.base.kubernetes.intent import Apply, Delete
from cotenant.base.settings.sections import TelemetrySettings
from cotenant.enforcer.assembly import assemble_agent
from cotenant.enforcer.contract import ContainerSpec, PodSpec
from cotenant.enforcer.decide.container_resources import LEAVE
from cotenant.enforcer.dra.claim import (
    CDI_KIND,
    ClaimRefused,
    ClaimWire,
    cdi_spec,
    claim_in,
    keys_in,
    prepare_claim,
    request_key,
)
from cotenant.enforcer.dra.claims import NOTE, Claims
from cotenant.enforcer.dra.offer import (
    DRIVER,
    GONE,
    ContainerEdits,
    OfferedDevice,
    offered_cores,
    offered_devices,
    publication,
    unshared_offers,
    with_claimed,
)
from cotenant.enforcer.optional_parts import HookDecision
from cotenant.enforcer.runtime.dra_service import REGISTRATION_SERVICE, SERVICE, DraService
from cotenant.enforcer.runtime.messages import dra, registration
from cotenant.enforcer.runtime.parents import Parents
from cotenant.enforcer.runtime.socket_guard import SocketGuard, SocketTaken
from cotenant.enforcer.settings import EnforcerSettings
from cotenant.settings import Settings
from tests.base.allocation.cpu_machines import caches_of
from tests.cluster.process import free_port

NODE = NodeIdentity("n1", "u-n1")
CARD = NodeDevice(DeviceKind.GPU, 0, "GPU-0", amounts={GPU_MEMORY: 8 << 30}, labels={"model": "T4", "a/b": "c"})
OFFERS = {
    one.name: one
    for one in [
        *offered_devices(DeviceInventory((CARD,)), {CARD.key: ContainerEdits({"A": "b"}, ("/dev/x",))}),
        *offered_cores(regular_topology(1, 2, 2), frozenset({0, 1, 2, 3})),
    ]
}


def claim(uid: str, *results: str, name: str = "c", **fields: Any) -> ClaimWire:
    """results: REQUEST=DEVICE."""
    listed = [
        {"request": r, "device": d, "driver": DRIVER, "pool": "n1", **fields}
        for r, _, d in (result.partition("=") for result in results)
    ]
    body = {
        "metadata": {"namespace": "shop", "name": name, "uid": uid},
        "status": {"allocation": {"devices": {"results": listed}}},
    }
    return msgspec.convert(body, ClaimWire)


# --- what is offered --------------------------------------------------------------------------------------------------
def test_a_core_is_offered_when_all_of_its_threads_are() -> None:
    # regular_topology(1, 2, 2): core 0 has threads 0 and 2, core 1 has 1 and 3
    cores = offered_cores(regular_topology(1, 2, 2), frozenset({0, 1, 3}))
    assert [(core.name, core.cpus) for core in cores] == [("cpu-1", frozenset({1, 3}))]
    with pytest.raises(UsageError, match="no CPU 7"):
        offered_cores(regular_topology(1, 2, 2), frozenset({0, 7}))


def test_a_core_says_which_caches_it_shares_and_whether_it_is_isolated() -> None:
    machine = regular_topology(2, 2, 2)  # core n has threads n and n + 4; cores 0-1 are on socket 0
    machine = replace(machine, isolated=frozenset({5}), caches=caches_of(machine.processors))
    (write,) = publication(NODE, offered_cores(machine, frozenset(range(8))), [])
    assert isinstance(write, Apply)
    attributes = [device["attributes"] for device in write.body["spec"]["devices"]]
    assert [(attribute["l2"]["int"], attribute["l3"]["int"]) for attribute in attributes] == [
        (0, 0),
        (1, 0),
        (2, 1),
        (3, 1),
    ]
    assert [attribute["isolated"]["bool"] for attribute in attributes] == [False, True, False, False]
    (plain,) = offered_cores(regular_topology(1, 1), frozenset({0}))
    assert not {"l2", "l3"} & plain.attributes.keys()  # a machine that does not say


def test_an_ill_device_is_not_offered() -> None:
    assert offered_devices(DeviceInventory((NodeDevice(DeviceKind.GPU, 1, healthy=False),))) == []


def test_a_slice_says_of_a_device_what_a_claim_may_select_by() -> None:
    (write,) = publication(NODE, [OFFERS["gpu-0"]], [])
    assert isinstance(write, Apply)
    assert write.body["spec"] == {
        "driver": DRIVER,
        "nodeName": "n1",
        "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
        "devices": [
            {
                "name": "gpu-0",
                "attributes": {
                    "kind": {"string": "gpu"},
                    "model": {"string": "T4"},
                    "minor": {"int": 0},
                    "id": {"string": "GPU-0"},
                },
                "capacity": {"memory": {"value": "8Gi"}},
            }
        ],
    }


def test_a_label_of_a_device_takes_the_place_of_none_of_its_attributes() -> None:
    labels = {"kind": "cpu", "numaNode": "1", "pcie": "p9", "minor": "7", "id": "x", "model": "T4"}
    offers = offered_devices(DeviceInventory((replace(CARD, labels=labels),)))
    (write,) = publication(NODE, offers, [])
    assert isinstance(write, Apply)
    # CARD has no NUMA node and no PCIe switch: its labels do not give it one
    assert write.body["spec"]["devices"][0]["attributes"] == {
        "kind": {"string": "gpu"},
        "model": {"string": "T4"},
        "minor": {"int": 0},
        "id": {"string": "GPU-0"},
    }


def test_what_pods_have_shares_of_is_not_offered() -> None:
    card = replace(CARD, amounts={GPU_CORE: 100, GPU_MEMORY_RATIO: 100, GPU_MEMORY: 8 << 30})
    inventory = DeviceInventory((card, replace(card, minor=1)))
    offers = [*offered_devices(inventory), *offered_cores(regular_topology(1, 2, 2), frozenset(range(4)))]
    share = {"gpu": [{"minor": 1, "resources": {"koordinator.sh/gpu-core": "50"}}]}
    texts = {
        "scheduling.koordinator.sh/device-allocated": json.dumps(share),
        "scheduling.koordinator.sh/resource-status": '{"cpuset": "2"}',
    }
    requested = {GPU_CORE: 50, GPU_MEMORY_RATIO: 50, "cpu": 1000}
    # thread 2 is of core 0
    unshared = unshared_offers(offers, inventory, [Holding("shop/a", "u", texts, requested)])
    assert ([device.name for device in unshared[0]], unshared[1]) == (["gpu-0", "cpu-1"], ["gpu-1", "cpu-0"])
    # an annotation that its pod does not ask for keeps nothing from claims
    assert unshared_offers(offers, inventory, [Holding("shop/a", "u", texts, {})]) == (offers, [])


def test_what_a_claim_has_stays_in_the_first_slice_when_nothing_else_is_left_of_its_kind() -> None:
    # 128 cores fill a slice: behind them the GPU would move to the second one, and stand in neither between two writes
    cores = offered_cores(regular_topology(1, 128), frozenset(range(128)))
    ill = DeviceInventory((replace(CARD, healthy=False),))
    listed = with_claimed(cores, offered_devices(ill, claimed=["gpu-0"]), ["gpu-0", "gpu-5", "cpu-3"])
    assert [(device.name, device.kind) for device in listed[:2]] == [("gpu-0", "gpu"), ("gpu-5", GONE)]
    assert [device.name for device in listed].count("cpu-3") == 1
    first, second = publication(NODE, listed, [])
    assert isinstance(first, Apply) and isinstance(second, Apply)
    # 2 devices and 128 cores are 130, of which a slice takes 128
    assert [len(write.body["spec"]["devices"]) for write in (first, second)] == [128, 2]
    assert [gpu["name"] for gpu in first.body["spec"]["devices"][:2]] == ["gpu-0", "gpu-5"]


@given(st.lists(st.integers(0, 400), min_size=1, max_size=4))
def test_slices_follow_what_is_offered_and_rest_when_nothing_changes(counts: list[int]) -> None:
    published: dict[str, Any] = {}
    for count in counts:
        offers = [OfferedDevice(f"cpu-{number}", "cpu") for number in range(count)]
        for write in publication(NODE, offers, published.values()):
            if isinstance(write, Delete):
                del published[write.address.name]
            else:
                assert isinstance(write, Apply)
                published[write.address.name] = write.body
        specs = [slice_body["spec"] for slice_body in published.values()]
        names = [device["name"] for spec in specs for device in spec["devices"]]
        assert sorted(names) == sorted(offer.name for offer in offers)
        assert {(s["pool"]["resourceSliceCount"], s["pool"]["generation"]) for s in specs} <= {
            (len(specs), specs[0]["pool"]["generation"] if specs else 0)
        }
        assert publication(NODE, offers, published.values()) == []


# --- what a claim gets ------------------------------------------------------------------------------------------------
def test_a_claims_containers_get_its_devices_variables_and_files() -> None:
    ready = prepare_claim(claim("u-1", "card=gpu-0", "cores/large=cpu-0", "cores/large=cpu-1"), "n1", OFFERS, [])
    spec = cdi_spec(ready)
    assert spec["kind"] == "node.cotenant.dev/claim"
    assert {device["name"]: device["containerEdits"] for device in spec["devices"]} == {
        "u_1_card": {
            "env": ["A=b", "COTENANT_CLAIM_u_1_card=gpu-0", "COTENANT_GPU_IDS=GPU-0", "NVIDIA_VISIBLE_DEVICES=GPU-0"],
            "deviceNodes": [{"path": "/dev/x"}],
        },
        "u_1_cores": {"env": ["COTENANT_CLAIM_u_1_cores=0-3"]},
    }
    env = [line for device in spec["devices"] for line in device["containerEdits"]["env"]]
    assert set(keys_in(env)) == {request_key("u-1", "card"), request_key("u-1", "cores")}
    assert ready.cpus() == {"u_1_cores": frozenset({0, 1, 2, 3})}


def test_a_device_of_another_claim_is_refused_but_to_an_administrator() -> None:
    first = prepare_claim(claim("u-1", "one=gpu-0"), "n1", OFFERS, [])
    with pytest.raises(ClaimRefused, match="gpu-0, which claim shop/c still has"):
        prepare_claim(claim("u-2", "one=gpu-0"), "n1", OFFERS, [first])
    watcher = prepare_claim(claim("u-2", "one=gpu-0", adminAccess=True), "n1", OFFERS, [first])
    assert watcher.exclusive == set()


def test_a_claim_that_cannot_be_prepared_says_why() -> None:
    with pytest.raises(ClaimRefused, match="claim shop/c has device gpu-7, which node n1 does not offer"):
        prepare_claim(claim("u-1", "one=gpu-7"), "n1", OFFERS, [])
    with pytest.raises(ClaimRefused, match="not allocated"):
        prepare_claim(ClaimWire(), "n1", OFFERS, [])
    assert prepare_claim(claim("u-1", "one=gpu-0", driver="another"), "n1", OFFERS, []).requests == ()


# --- notes and sockets ------------------------------------------------------------------------------------------------
class Cluster:
    """Claims of the API server, by name."""

    def __init__(self) -> None:
        self.claims: dict[str, ClaimWire] = {}
        self.reads = 0

    def __call__(self, namespace: str, name: str) -> ClaimWire | None:
        self.reads += 1
        return self.claims.get(name) if namespace == "shop" else None


def begin(folder: Path, cluster: Cluster) -> Claims:
    claims = Claims(folder / "state", folder / "cdi", "n1", cluster)
    claims.offers = OFFERS
    return claims


def test_a_claim_is_the_same_after_a_restart_whatever_is_offered_then(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.claims["c"] = claim("u-1", "one=gpu-0", "two=cpu-0")
    before = begin(tmp_path, cluster)
    ready = before.prepare("shop", "c", "u-1")
    (file,) = (tmp_path / "cdi").iterdir()
    text = file.read_bytes()
    file.unlink()  # the machine booted
    after = Claims(tmp_path / "state", tmp_path / "cdi", "n1", cluster)
    assert [path.read_bytes() for path in (tmp_path / "cdi").iterdir()] == [text]
    assert after.prepare("shop", "c", "u-1") == ready
    assert cluster.reads == 1
    assert after.cpus_of("shop", ["u_1_two", "u_9_two"]) == {0, 2}
    assert after.devices() == {"gpu-0", "cpu-0"}
    after.unprepare("u-1")
    assert after.devices() == set()
    after.unprepare("u-1")
    assert not list((tmp_path / "cdi").iterdir())
    assert after.count == Claims(tmp_path / "state", tmp_path / "cdi", "n1", cluster).count == 0


def test_a_variable_that_a_pod_of_another_namespace_wrote_itself_gives_it_no_cpus(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.claims["c"] = claim("u-1", "cores=cpu-0")
    claims = begin(tmp_path, cluster)
    claims.prepare("shop", "c", "u-1")
    assert claims.cpus_of("elsewhere", keys_in(["COTENANT_CLAIM_u_1_cores=0,2"])) == set()


@pytest.mark.parametrize("stopping", [False, True])
def test_a_container_gets_its_claimed_cpus_before_the_first_tick_and_when_the_agent_stops(
    tmp_path: Path, stopping: bool
) -> None:
    cluster = Cluster()
    cluster.claims["c"] = claim("u-1", "cores=cpu-0")
    claims = begin(tmp_path, cluster)
    claims.prepare("shop", "c", "u-1")
    own = EnforcerSettings(node_name="n1", state_dir=str(tmp_path / "state"), pods_file=str(tmp_path / "pods.json"))
    settings = Settings(enforcer=own, telemetry=TelemetrySettings(health_port=free_port()))
    (tmp_path / "cgroup.controllers").touch()  # version 2, where no parent's CPUs narrow a container's
    with assemble_agent(settings, {}) as assembly:
        decide = HookDecision(assembly.agent, lambda: stopping, Parents(tmp_path), claims.cpus_of)
        pod, plain = PodSpec("shop", "web", "u-web", resources_known=False), ContainerSpec("main")
        claiming = replace(plain, claims=("u_1_cores",))
        # regular_topology(1, 2, 2): core 0 has threads 0 and 2
        assert decide(pod, claiming, "").cpuset_cpus == "0,2"
        assert decide(pod, plain, "") == LEAVE
        # of a pod that is read from the API server it is known whether it names a claim, or only wrote the variable
        assert decide(replace(pod, resources_known=True, claims=True), claiming, "").cpuset_cpus == "0,2"
        assert decide(replace(pod, resources_known=True), claiming, "") == LEAVE


def test_a_new_claim_waits_until_the_nodes_devices_are_read(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.claims["c"] = claim("u-1", "one=gpu-0")
    claims = Claims(tmp_path / "state", tmp_path / "cdi", "n1", cluster)
    with pytest.raises(ClaimRefused, match="not been read yet"):
        claims.prepare("shop", "c", "u-1")
    claims.offers = OFFERS
    assert claims.prepare("shop", "c", "u-1").exclusive == {"gpu-0"}


@pytest.mark.parametrize("damage", [Path.unlink, lambda note: note.write_text("{")], ids=["lost", "damaged"])
def test_without_its_note_an_agent_takes_the_claims_of_running_pods_from_their_files(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    cluster = Cluster()
    cluster.claims |= {"c": claim("u-1", "one=gpu-0", "two=cpu-0"), "d": claim("u-2", "one=cpu-1", name="d")}
    before = begin(tmp_path, cluster)
    ready = before.prepare("shop", "c", "u-1")
    before.prepare("shop", "d", "u-2")
    unreadable = tmp_path / "cdi" / f"{DRIVER}-claim-u-2.json"
    unreadable.write_text("{}")
    files = {file: file.read_bytes() for file in (tmp_path / "cdi").iterdir()}
    damage(tmp_path / "state" / NOTE)
    again = begin(tmp_path, cluster)
    assert {file: file.read_bytes() for file in (tmp_path / "cdi").iterdir()} == files
    assert again.cpus_of("shop", ["u_1_two", "u_2_one"]) == {0, 2}
    assert again.prepare("shop", "c", "u-1") == ready
    assert cluster.reads == 2
    again.prepare("shop", "d", "u-2")
    # regular_topology(1, 2, 2): core 1 has threads 1 and 3
    assert again.cpus_of("shop", ["u_1_two", "u_2_one"]) == {0, 1, 2, 3}


@given(
    st.binary(max_size=60)
    | st.text(max_size=60).map(lambda text: msgspec.json.encode({"annotations": {CDI_KIND: text}}))
)
def test_a_file_that_is_none_of_ours_is_told_by_one_error(text: bytes) -> None:
    with pytest.raises((msgspec.MsgspecError, UnicodeError)):
        claim_in(text)


names = st.text("abc-", min_size=1, max_size=9)


@given(names, st.dictionaries(st.sampled_from(sorted(OFFERS)), names, max_size=3))
def test_a_claim_is_read_from_its_file_as_it_was_prepared(uid: str, requests: dict[str, str]) -> None:
    ready = prepare_claim(
        claim(uid, *(f"{request}={device}" for device, request in requests.items())), "n1", OFFERS, []
    )
    assert claim_in(msgspec.json.encode(cdi_spec(ready))) == ready


def test_nothing_is_given_that_could_not_be_noted(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.claims["c"] = claim("u-1", "one=gpu-0")
    claims = begin(tmp_path, cluster)
    (tmp_path / "state").write_text("a file where the folder should be")
    with pytest.raises(StoreError, match="cannot be recorded"):
        claims.prepare("shop", "c", "u-1")
    assert not (tmp_path / "cdi").exists()


def nothing() -> None:
    """What is done when a claim changes."""


def call(socket: Path, service: str, method: str, request: Any, response_type: Any) -> Any:
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        send = channel.unary_unary(f"/{service}/{method}", type(request).SerializeToString, response_type.FromString)
        return send(request, timeout=20)


def test_the_kubelets_calls_are_answered_claim_by_claim(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    sockets = tmp_path_factory.mktemp("dra")  # a socket's path has 107 bytes at most
    cluster = Cluster()
    cluster.claims |= {"c": claim("u-1", "one=gpu-0", "one=cpu-0"), "d": claim("u-2", "one=gpu-7")}
    notified: list[bool] = []
    claims = begin(tmp_path, cluster)
    with DraService(claims, sockets / "plugin", sockets / "registry", lambda: notified.append(True)) as service:
        door = sockets / "registry" / f"{DRIVER}-reg.sock"
        info = call(door, REGISTRATION_SERVICE, "GetInfo", registration.InfoRequest(), registration.PluginInfo)
        assert (info.type, info.name, list(info.supported_versions)) == ("DRAPlugin", DRIVER, ["v1.DRAPlugin"])
        status = registration.RegistrationStatus(plugin_registered=True)
        call(door, REGISTRATION_SERVICE, "NotifyRegistrationStatus", status, registration.RegistrationStatusResponse)
        assert (notified, service.kubelet_knows) == ([True], True)

        request = dra.ClaimsRequest(
            claims=[dra.Claim(namespace="shop", name=name, uid=uid) for name, uid in (("c", "u-1"), ("d", "u-2"))]
        )
        endpoint = Path(info.endpoint)
        response = call(endpoint, SERVICE, "NodePrepareResources", request, dra.PrepareResponse)
        ready, refused = (entry.value for entry in response.claims)
        devices = [(device.device_name, device.pool_name, list(device.cdi_device_ids)) for device in ready.devices]
        assert devices == [("gpu-0", "n1", ["node.cotenant.dev/claim=u_1_one"]), ("cpu-0", "n1", [])]
        assert "gpu-7, which node n1 does not offer" in refused.error
        given_back = call(endpoint, SERVICE, "NodeUnprepareResources", request, dra.UnprepareResponse)
        assert [(entry.key, entry.value.error) for entry in given_back.claims] == [("u-1", ""), ("u-2", "")]

        with pytest.raises(SocketTaken), DraService(claims, sockets / "plugin", sockets / "registry", nothing):
            pass
        door.unlink()
        service.heal()
        assert door.is_socket()
    assert not list(sockets.glob("*/*.sock"))


def test_a_driver_that_may_not_register_leaves_no_socket_behind(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    sockets = tmp_path_factory.mktemp("dra")
    other = SocketGuard(sockets / "registry" / f"{DRIVER}-reg.sock")
    other.take()
    service = DraService(begin(tmp_path, Cluster()), sockets / "plugin", sockets / "registry", nothing)
    with pytest.raises(SocketTaken), service:
        pass
    assert not list(sockets.glob("plugin/*.sock"))
    other.release()
    with service:  # nor does it hold the lock of the first socket
        assert (sockets / "plugin" / "dra.sock").is_socket()


def test_a_socket_path_has_room_for_the_private_name_beside_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("s")
    # The kernel takes 107 bytes; .NAME.4194304, the longest private name, has 9 more than NAME: 98 are left.
    for size, refused in ((98, nullcontext()), (99, pytest.raises(CotenantError, match="99 bytes long"))):
        guard = SocketGuard(folder / ("s" * (size - len(str(folder)) - 1)))
        with refused:
            guard.take()
            guard.release()


def test_a_contract_field_is_where_the_kubelet_reads_it() -> None:
    """k8s.io/kubelet pkg/apis/dra/v1: NodePrepareResourcesResponse is map<string, ...> = 1, its devices are 1."""
    response = dra.PrepareResponse()
    response.claims.add(key="u").value.devices.add(device_name="gpu-0")
    # 0a = field 1, bytes; an entry of 0a 01 'u' (key) and 12 .. (value); in it 0a .. (devices), 1a 05 "gpu-0" (name)
    assert response.SerializeToString() == b"\x0a\x0e\x0a\x01u\x12\x09\x0a\x07\x1a\x05gpu-0"
    assert json.loads(msgspec.json.encode(cdi_spec(prepare_claim(claim("u"), "n1", {}, []))))["devices"] == []
