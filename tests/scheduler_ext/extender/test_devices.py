"""Nodes that have devices for a pod: the filter's counts against the allocator itself, and what nodes without say."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.allocation.allocator import HardwareClaim, Holding, NodeHardware
from cotenant.base.allocation.device_allocator import COLLECTION, NO_DEVICES, DeviceAllocator
from cotenant.base.allocation.device_request import (
    HINT_ANNOTATION,
    JOINT_ANNOTATION,
    PARTITION_ANNOTATION,
    SHARED_RESOURCES,
)
from cotenant.base.allocation.devices import (
    DEVICE_ALLOCATED_ANNOTATION,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_PARTITION_POLICY_LABEL,
    GPU_PARTITIONS_ANNOTATION,
    RDMA,
)
from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.pod_identity import PodIdentity
from cotenant.scheduler_ext.extender import devices
from cotenant.scheduler_ext.extender.judgement import Code, words_of
from cotenant.scheduler_ext.extender.metric import ExtenderNode, LoadMetric, NodeSlice, SliceWire, slice_of
from cotenant.scheduler_ext.extender.pod import NewPod
from cotenant.scheduler_ext.extender.serve.scheduler_configuration import Reach, extenders
from cotenant.scheduler_ext.extender.settings import (
    DeviceAllocationSettings,
    ExtenderSettings,
    LoadAwareSettings,
)
from cotenant.scheduler_ext.extender.snapshot import NodeSnapshot, next_snapshot
from cotenant.scheduler_ext.extender.watch.frame import FreeDevices
from cotenant.scheduler_ext.extender.watch.table import NodeTable

ON = DeviceAllocationSettings(on=True)
GPU = "koordinator.sh/gpu"


def body(gpus: int) -> dict[str, Any]:
    amounts = {GPU_CORE: "100", GPU_MEMORY_RATIO: "100", GPU_MEMORY: "16Gi"}
    listed = [{"type": "gpu", "minor": minor, "health": True, "resources": amounts} for minor in range(gpus)]
    return {"metadata": {"name": "n"}, "spec": {"devices": listed}}


def pod(requests: dict[str, int], name: str = "p", node: str = "", annotations: dict[str, str] | None = None) -> NewPod:
    return NewPod(PodIdentity("shop", name, f"u-{name}", {}, annotations or {}, ()), node=node, requests=requests)


def hardware(gpus: int) -> NodeHardware:
    return NodeHardware("n", documents={COLLECTION: body(gpus)})


def placed_on(
    node: NodeHardware, holders: list[NewPod], requests: dict[str, int], wishes: dict[str, str] | None = None
) -> NewPod | None:
    """The pod as it is bound there beside the holders; None where it is refused."""
    holdings = [Holding(p.key, p.identity.uid, p.identity.annotations, p.requests) for p in holders]
    facts = pod(requests, f"p-{len(holders)}", annotations=wishes)
    allotment = DeviceAllocator().allocate(node, HardwareClaim(facts.identity, requests), holdings)
    if allotment.refusal:
        return None
    return pod(requests, facts.identity.name, node.name, {**(wishes or {}), **allotment.annotations})


amounts = st.one_of(
    st.integers(1, 99).map(lambda n: {GPU: n}),
    st.integers(1, 3).map(lambda n: {GPU: 100 * n}),
    st.integers(1, 16 << 30).map(lambda n: {GPU_MEMORY: n}),
    st.integers(1, 100).map(lambda n: {GPU_CORE: n, GPU_MEMORY_RATIO: 100 - n // 2}),
)


@given(st.lists(amounts, max_size=10), amounts)
def test_the_filter_passes_a_node_where_the_bind_verb_would_place_the_pod(
    earlier: list[dict[str, int]], requests: dict[str, int]
) -> None:
    node, holders = hardware(3), list[NewPod]()
    for holder_requests in earlier:
        bound = placed_on(node, holders, holder_requests)
        holders += [bound] if bound else []
    room = devices.free_devices(node, holders)
    demand = DeviceAllocator().request(HardwareClaim(pod(requests).identity, requests))
    passes = devices.refusal(room, demand) is Code.PASS
    assert passes is (placed_on(node, holders, requests) is not None)


def switches(gpus: list[int], cards: list[int]) -> dict[str, Any]:
    """A Device of GPUs and RDMA cards, given the PCIe switch of each."""
    amounts = {"gpu": {GPU_CORE: "100", GPU_MEMORY_RATIO: "100", GPU_MEMORY: "16Gi"}, "rdma": {RDMA: "100"}}
    listed = [
        {"type": kind, "minor": minor, "health": True, "resources": amounts[kind], "id": f"{kind}-{minor}",
         "topology": {"socketID": 0, "nodeID": switch // 2, "pcieID": str(switch)}}
        for kind, places in (("gpu", gpus), ("rdma", cards))
        for minor, switch in enumerate(places)
    ]  # fmt: skip
    return {"metadata": {"name": "n"}, "spec": {"devices": listed}}


joint_requests = st.builds(
    lambda gpus, cards: {GPU: 100 * gpus, RDMA: cards},
    st.integers(1, 4), st.one_of(st.integers(1, 99), st.sampled_from([100, 200])),
)  # fmt: skip
joint_wishes = st.sampled_from(
    [
        {},
        *({JOINT_ANNOTATION: json.dumps({"deviceTypes": kinds, **scope})}
          for kinds in (["gpu", "rdma"], ["rdma", "gpu"]) for scope in ({}, {"requiredScope": "SamePCIe"})),
    ]
)  # fmt: skip


@given(
    st.lists(st.integers(0, 2), min_size=2, max_size=6),
    st.lists(st.integers(0, 3), min_size=1, max_size=4),
    st.lists(st.tuples(joint_requests, joint_wishes), max_size=4),
    joint_requests,
    joint_wishes,
)
def test_the_filter_passes_a_joint_allocation_exactly_where_the_bind_verb_would_place_it(
    gpus: list[int],
    cards: list[int],
    earlier: list[tuple[dict[str, int], dict[str, str]]],
    requests: dict[str, int],
    wishes: dict[str, str],
) -> None:
    node, holders = NodeHardware("n", documents={COLLECTION: switches(gpus, cards)}), list[NewPod]()
    for holder_requests, wished in earlier:
        bound = placed_on(node, holders, holder_requests, wished)
        holders += [bound] if bound else []
    # as it comes to the serving process
    room = msgspec.msgpack.decode(msgspec.msgpack.encode(devices.free_devices(node, holders)), type=FreeDevices | None)
    demand = DeviceAllocator().request(HardwareClaim(pod(requests, annotations=wishes).identity, requests))
    passes = devices.refusal(room, demand) is Code.PASS
    assert passes is (placed_on(node, holders, requests, wishes) is not None)


def test_a_node_whose_free_devices_are_apart_is_not_chosen_for_a_joint_allocation() -> None:
    table = NodeTable(LoadAwareSettings())
    # a: GPUs and cards on other switches; b: a card at each GPU's switch
    for name, cards in (("a", [2, 3]), ("b", [0, 1])):
        table.put_node(name, ExtenderNode(name))
        table.put_document(COLLECTION, name, switches([0, 1], cards))
    snapshot, requests = snapshot_of(table), {GPU: 100, RDMA: 100}
    codes = {}
    for scope in ("", "SamePCIe"):
        joint_annotations = {JOINT_ANNOTATION: json.dumps({"deviceTypes": ["gpu", "rdma"], "requiredScope": scope})}
        values = np.zeros(2, np.int8)
        devices.apply(values, snapshot, snapshot.rows_of(["a", "b"]), pod(requests, annotations=joint_annotations), ON)
        codes[scope] = [Code(code) for code in values.tolist()]
    # nearness that is only preferred refuses no node
    assert codes == {"": [Code.PASS, Code.PASS], "SamePCIe": [Code.DEVICES_UNFIT, Code.PASS]}


def test_nodes_in_the_same_state_are_placed_on_once() -> None:
    node = NodeHardware("n", documents={COLLECTION: switches([0, 1], [0, 1])})
    other = switches([0, 1], [0, 1])
    for device in other["spec"]["devices"]:
        device["id"] = f"other-{device['id']}"
    rooms = [devices.free_devices(n, []) for n in (node, NodeHardware("m", documents={COLLECTION: other}))]
    assert rooms[0] is not None and rooms[1] is not None
    assert rooms[0].digest == rooms[1].digest != b""
    holder = placed_on(node, [], {GPU: 100, RDMA: 100})
    assert holder is not None
    used = devices.free_devices(node, [holder])
    assert used is not None and used.digest != rooms[0].digest


def hinted(kind: str, **hint: object) -> dict[str, str]:
    return {HINT_ANNOTATION: json.dumps({kind: hint})}


def fast(*labels: str) -> dict[str, Any]:
    """A hint's selector."""
    return {"matchExpressions": [{"key": "speed", "operator": "In", "values": list(labels)}]}


SCOPES = ("Device", "PCIe", "NUMANode", "Node")
single_wishes = st.one_of(
    st.just({}),
    st.sampled_from(SCOPES).map(lambda scope: hinted("gpu", requiredTopologyScope=scope)),
    st.sampled_from(["fast", "slow", "none"]).map(lambda label: hinted("gpu", selector=fast(label))),
    st.sampled_from(["fast", "slow"]).map(lambda label: hinted("rdma", selector=fast(label))),
    st.sampled_from(["a", "b"]).map(lambda label: hinted("rdma", vfSelector=fast(label))),
    st.sampled_from(["ApplyForAll", "RequestsAsCount"]).map(lambda how: hinted("rdma", allocateStrategy=how)),
    st.just(hinted("rdma", exclusivePolicy="PCIeLevel")),
    st.just(hinted("rdma", allocateStrategy="RequestsAsCount", exclusivePolicy="DeviceLevel")),
    st.builds(
        lambda policy, bandwidth: {
            PARTITION_ANNOTATION: json.dumps({"allocatePolicy": policy, "ringBusBandwidth": bandwidth})
        },
        st.sampled_from(["", "BestEffort", "Restricted"]), st.sampled_from(["0", "100Gi", "400Gi"]),
    ),
)  # fmt: skip
"""What one kind of devices may be chosen by: scope, label, function, exclusiveness, all of them, partition."""


def labelled(
    body: dict[str, Any], speeds: list[str], functions: list[str], pairs: bool, honoured: bool
) -> NodeHardware:
    """The Device with a label on each device, functions of its cards, and GPUs in pairs of different bandwidth."""
    for index, device in enumerate(body["spec"]["devices"]):
        device["labels"] = {"speed": speeds[index % len(speeds)]}
        if device["type"] == "rdma":
            listed: list[dict[str, Any]] = [
                {"minor": i, "busID": f"{index}:{i}", "labels": {"speed": f}} for i, f in enumerate(functions)
            ]
            device["vfGroups"] = [{"labels": {"speed": f["labels"]["speed"]}, "vfs": [f]} for f in listed]
    if pairs:
        count = sum(device["type"] == "gpu" for device in body["spec"]["devices"])
        table = [
            {"minors": [i, i + 1], "gpuLinkType": "NVLink", "ringBusBandwidth": "400Gi" if i else "200Gi",
             "allocationScore": i}
            for i in range(0, count - 1, 2)
        ]  # fmt: skip
        body["metadata"]["annotations"] = {GPU_PARTITIONS_ANNOTATION: json.dumps({"2": table})}
    labels = {GPU_PARTITION_POLICY_LABEL: "Honor"} if honoured else {}
    return NodeHardware("n", labels, documents={COLLECTION: body})


@given(
    st.builds(
        labelled,
        st.builds(
            switches, st.lists(st.integers(0, 2), min_size=2, max_size=5), st.lists(st.integers(0, 3), max_size=3)
        ),
        st.lists(st.sampled_from(["fast", "slow"]), min_size=1, max_size=3),
        st.lists(st.sampled_from(["a", "b"]), max_size=2),
        st.booleans(),
        st.booleans(),
    ),
    st.lists(st.tuples(st.one_of(amounts, joint_requests), st.one_of(single_wishes, joint_wishes)), max_size=3),
    st.one_of(amounts, joint_requests),
    st.one_of(single_wishes, joint_wishes),
)
def test_the_filter_passes_a_choice_of_devices_exactly_where_the_bind_verb_would_place_it(
    node: NodeHardware,
    earlier: list[tuple[dict[str, int], dict[str, str]]],
    requests: dict[str, int],
    wishes: dict[str, str],
) -> None:
    holders = list[NewPod]()
    for holder_requests, wished in earlier:
        with contextlib.suppress(UsageError):
            bound = placed_on(node, holders, holder_requests, wished)
            holders += [bound] if bound else []
    room = msgspec.msgpack.decode(msgspec.msgpack.encode(devices.free_devices(node, holders)), type=FreeDevices | None)
    try:
        demand = DeviceAllocator().request(HardwareClaim(pod(requests, annotations=wishes).identity, requests))
    except UsageError:
        return  # refused on every node
    passes = devices.refusal(room, demand) is Code.PASS
    assert passes is (placed_on(node, holders, requests, wishes) is not None)


def test_the_number_of_free_devices_alone_passes_no_hint_and_no_partition() -> None:
    # three free GPUs on three switches; the partitions are of GPUs 0 and 1 alone, at 200 Gi
    node = labelled(switches([0, 1, 2], [0]), ["slow", "fast", "slow"], [], pairs=True, honoured=True)
    room = devices.free_devices(node, [])
    requests = {GPU: 200}
    for wishes, code in (
        ({}, Code.PASS),
        (hinted("gpu", requiredTopologyScope="PCIe"), Code.DEVICES_UNFIT),  # no switch has two
        (hinted("gpu", selector=fast("fast")), Code.DEVICES_UNFIT),  # one alone is fast
        ({PARTITION_ANNOTATION: json.dumps({"ringBusBandwidth": "300Gi"})}, Code.DEVICES_UNFIT),
    ):
        demand = DeviceAllocator().request(HardwareClaim(pod(requests, annotations=wishes).identity, requests))
        assert devices.refusal(room, demand) is code, wishes


def snapshot_of(table: NodeTable) -> NodeSnapshot:
    return next_snapshot(NodeSnapshot(), table.take({}, 0.0, 0.0))


def gpu_nodes() -> NodeTable:
    """a: two GPUs, one with 60 percent in use; b: two that are free; c: none."""
    table = NodeTable(LoadAwareSettings())
    for name in "abc":
        table.put_node(name, ExtenderNode(name))
    table.put_document(COLLECTION, "a", body(2))
    table.put_document(COLLECTION, "b", body(2))
    bound = placed_on(NodeHardware("a", documents={COLLECTION: body(2)}), [], {GPU: 60})
    assert bound is not None
    table.put_pod(("shop", "p-0"), bound, 0.0)
    return table


def judged(snapshot: NodeSnapshot, requests: dict[str, int], settings: DeviceAllocationSettings = ON) -> list[Code]:
    rows = snapshot.rows_of(["a", "b", "c", "x"])
    codes = np.zeros(len(rows), np.int8)
    devices.apply(codes, snapshot, rows, pod(requests), settings)
    return [Code(code) for code in codes.tolist()]


@pytest.mark.parametrize(
    ("requests", "codes"),
    [
        ({GPU: 50}, [Code.PASS, Code.PASS, Code.NO_DEVICES, Code.PASS]),
        ({GPU: 200}, [Code.FEW_DEVICES, Code.PASS, Code.NO_DEVICES, Code.PASS]),
        ({GPU: 150}, [Code.DEVICE_REQUEST] * 3 + [Code.PASS]),
        ({"cpu": 1}, [Code.PASS] * 4),
    ],
)
def test_nodes_without_enough_devices_are_refused(requests: dict[str, int], codes: list[Code]) -> None:
    snapshot = snapshot_of(gpu_nodes())
    assert judged(snapshot, requests) == codes
    assert judged(snapshot, requests, DeviceAllocationSettings()) == [Code.PASS] * 4


def test_a_node_whose_devices_go_to_claims_gives_no_shares() -> None:
    table = gpu_nodes()
    table.put_node("b", ExtenderNode("b", labels={"cotenant.dev/devices": "claims"}))
    assert judged(snapshot_of(table), {GPU: 50}) == [Code.PASS, Code.NO_DEVICES, Code.NO_DEVICES, Code.PASS]
    node = NodeHardware("b", {"cotenant.dev/devices": "claims"}, documents={COLLECTION: body(2)})
    facts = pod({GPU: 50})
    assert DeviceAllocator().allocate(node, HardwareClaim(facts.identity, facts.requests), []).refusal == NO_DEVICES


def test_refusals_say_the_allocators_words() -> None:
    assert words_of(Code.NO_DEVICES, (0, 0), (0, 0)) == NO_DEVICES


def test_a_share_goes_where_a_device_is_in_use_already() -> None:
    snapshot = snapshot_of(gpu_nodes())
    rows = snapshot.rows_of(["b", "a"])

    def names(requests: dict[str, int]) -> list[str]:
        return [["b", "a"][place] for place in devices.begun(snapshot, pod(requests), rows, ON).tolist()]

    # 40 percent are free beside the 60 on a
    assert names({GPU: 40}) == ["a"]
    assert names({GPU: 41}) == names({GPU: 100}) == names({"cpu": 1}) == ["b", "a"]


def test_rooms_follow_pods_and_devices() -> None:
    table = gpu_nodes()
    snapshot = snapshot_of(table)
    table.put_pod(("shop", "p-0"), None, 1.0)
    table.put_document(COLLECTION, "b", None)
    after = next_snapshot(snapshot, table.take({}, 1.0, 1.0))
    assert after.device_rooms["a"].begun == {}
    assert set(after.device_rooms) == {"a"}
    assert isinstance(snapshot.device_rooms["b"], FreeDevices)


def test_a_device_that_a_slice_of_its_node_has_is_no_room_until_the_slice_drops_it() -> None:
    table = gpu_nodes()
    snapshot = snapshot_of(table)

    def gpus_of_b(node_slice: NodeSlice | None) -> int:
        table.put_slice("b-cotenant-0", node_slice)
        rooms = table.take({}, 1.0, 1.0).device_rooms or {}
        assert set(rooms) == {"b"}
        return len(rooms["b"].free.get("gpu", ()) if rooms["b"] else ())

    every = len(snapshot.device_rooms["b"].free["gpu"])
    assert gpus_of_b(NodeSlice("b", frozenset({"gpu-0", "cpu-0"}))) == every - 1
    assert gpus_of_b(NodeSlice("b", frozenset({"cpu-0"}))) == every
    assert gpus_of_b(NodeSlice("b", frozenset({"gpu-1"}))) == every - 1
    assert gpus_of_b(None) == every


@given(st.binary(max_size=200) | st.recursive(st.none() | st.text(), st.lists, max_leaves=5).map(msgspec.json.encode))
def test_any_slice_is_read_or_refused_by_the_decoder(text: bytes) -> None:
    with contextlib.suppress(msgspec.MsgspecError, UnicodeError):
        assert isinstance(slice_of(msgspec.json.decode(text, type=SliceWire)), NodeSlice)


def test_rooms_are_computed_again_for_other_pods_or_labels_and_not_for_other_usage() -> None:
    table = gpu_nodes()
    table.take({}, 0.0, 0.0)
    table.put_metric("a", LoadMetric(0.0))
    table.put_node("a", ExtenderNode("a", allocatable={"cpu": 4000}))
    assert table.take({}, 1.0, 1.0).device_rooms is None
    table.put_node("a", ExtenderNode("a", labels={"node.koordinator.sh/gpu-partition-policy": "Honor"}))
    assert set(table.take({}, 2.0, 2.0).device_rooms or ()) == {"a"}


def test_the_scheduler_leaves_these_resources_to_us_only_where_we_give_them() -> None:
    reach = Reach("http://127.0.0.1:9445")
    for settings, extra in ((ExtenderSettings(), ()), (ExtenderSettings(devices=ON), SHARED_RESOURCES)):
        _, binding = extenders(reach, settings)
        names = [resource["name"] for resource in binding["managedResources"]]
        assert names == ["cotenant.dev/bind", *extra]
    assert pod({GPU: 1}).wants_bind
    assert not pod({"cpu": 1, DEVICE_ALLOCATED_ANNOTATION: 1}).wants_bind
