"""Devices of a node: what pods ask for, which devices they get, and the wire forms that Koordinator reads."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.allocation.device_placement import DevicePlacement, place_devices
from cotenant.base.allocation.device_request import (
    GPU,
    GPU_SHARED,
    HINT_ANNOTATION,
    JOINT_ANNOTATION,
    NVIDIA_GPU,
    PARTITION_ANNOTATION,
    demand_of,
)
from cotenant.base.allocation.devices import (
    FPGA,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_PARTITION_POLICY_LABEL,
    GPU_PARTITIONS_ANNOTATION,
    RDMA,
    WHOLE,
    Allocations,
    DeviceInventory,
    DeviceKind,
    DeviceShare,
    GpuPartition,
    NodeDevice,
    TakenDevices,
    VirtualFunction,
    decode_allocations,
    encode_allocations,
    inventory_of,
)
from cotenant.base.errors import UsageError

GIB = 1 << 30


def gpu(minor: int, pcie: str = "", numa_node: int = -1, **fields: Any) -> NodeDevice:
    """A card of 16 GiB."""
    amounts = {GPU_CORE: 100, GPU_MEMORY_RATIO: 100, GPU_MEMORY: 16 * GIB}
    return NodeDevice(DeviceKind.GPU, minor, f"GPU-{minor}", amounts=amounts, pcie=pcie, numa_node=numa_node, **fields)


def rdma(minor: int, pcie: str = "", numa_node: int = -1, **fields: Any) -> NodeDevice:
    return NodeDevice(
        DeviceKind.RDMA, minor, f"mlx5_{minor}", amounts={RDMA: 100}, pcie=pcie, numa_node=numa_node, **fields
    )


def place(
    devices: Iterable[NodeDevice] | DeviceInventory,
    requests: dict[str, int],
    pods: Iterable[Allocations] = (),
    **annotations: Any,
) -> DevicePlacement:
    """annotations: hint, joint, partition."""
    inventory = devices if isinstance(devices, DeviceInventory) else DeviceInventory(tuple(devices))
    names = {"hint": HINT_ANNOTATION, "joint": JOINT_ANNOTATION, "partition": PARTITION_ANNOTATION}
    texts = {names[key]: json.dumps(value) for key, value in annotations.items()}
    return place_devices(inventory, TakenDevices.of(pods), demand_of(requests, texts))


def minors(placement: DevicePlacement, kind: DeviceKind = DeviceKind.GPU) -> list[int]:
    assert placement.refusal == ""
    return [share.minor for share in placement.allocations[kind]]


def share(minor: int, percent: int) -> Allocations:
    amounts = {GPU_CORE: percent, GPU_MEMORY_RATIO: percent, GPU_MEMORY: percent * 16 * GIB // 100}
    return {DeviceKind.GPU: (DeviceShare(minor, amounts),)}


# --- requests ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("requests", "count", "each"),
    [
        ({NVIDIA_GPU: 2}, 2, {GPU_CORE: 100, GPU_MEMORY_RATIO: 100}),
        ({GPU: 50}, 1, {GPU_CORE: 50, GPU_MEMORY_RATIO: 50}),
        ({GPU: 300}, 3, {GPU_CORE: 100, GPU_MEMORY_RATIO: 100}),
        ({GPU_CORE: 30, GPU_MEMORY_RATIO: 60}, 1, {GPU_CORE: 30, GPU_MEMORY_RATIO: 60}),
        ({GPU_CORE: 200, GPU_MEMORY_RATIO: 200}, 2, {GPU_CORE: 100, GPU_MEMORY_RATIO: 100}),
        ({GPU_MEMORY: 8 * GIB}, 1, {GPU_MEMORY: 8 * GIB}),
        # 4 shares: 100 / 4 = 25 percent of the cores and 8 GiB / 4 = 2 GiB of each
        ({GPU_SHARED: 4, GPU_CORE: 100, GPU_MEMORY: 8 * GIB}, 4, {GPU_CORE: 25, GPU_MEMORY: 2 * GIB}),
    ],
)
def test_a_request_of_gpus_is_a_number_of_devices_and_a_share_of_each(
    requests: dict[str, int], count: int, each: dict[str, int]
) -> None:
    request = demand_of(requests, {}).requests[DeviceKind.GPU]
    assert (request.count, request.share) == (count, each)


@pytest.mark.parametrize(
    ("requests", "phrase"),
    [
        ({GPU: 150}, "koordinator.sh/gpu 150 is not a whole number of devices"),
        ({RDMA: 101}, "koordinator.sh/rdma 101 is not a whole number of devices"),
        ({GPU: 50, NVIDIA_GPU: 1}, "cannot be requested together"),
        ({GPU_CORE: 50}, "must request GPU memory exactly once"),
        ({GPU_MEMORY: GIB, GPU_MEMORY_RATIO: 10}, "must request GPU memory exactly once"),
        ({GPU_CORE: 200, GPU_MEMORY_RATIO: 100}, "koordinator.sh/gpu-core 200 is over 100 percent of one device"),
        ({GPU_SHARED: 3, GPU_MEMORY_RATIO: 100}, "gpu-memory-ratio 100 is not divisible by the 3 requested GPUs"),
    ],
)
def test_a_request_that_no_device_can_serve_is_refused_with_its_name_and_amount(
    requests: dict[str, int], phrase: str
) -> None:
    with pytest.raises(UsageError, match="pod shop/train") as refused:
        demand_of(requests, {}, "pod shop/train")
    assert phrase in refused.value.message
    assert refused.value.fix


@pytest.mark.parametrize("name", [HINT_ANNOTATION, JOINT_ANNOTATION, PARTITION_ANNOTATION])
def test_an_annotation_that_cannot_be_read_is_named(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        demand_of({GPU: 100}, {name: '{"deviceTypes": 3, "gpu": 3, "allocatePolicy": 3}'})


# --- the best fit -----------------------------------------------------------------------------------------------------
def test_a_share_goes_to_the_device_that_is_left_with_the_least() -> None:
    # 40 percent fits on 0 (all free), 1 (50 free, 10 left) and not on 2 (30 free)
    pods = [share(1, 50), share(2, 70)]
    placement = place([gpu(0), gpu(1), gpu(2)], {GPU: 40}, pods)
    assert minors(placement) == [1]


def test_memory_is_counted_in_percent_and_in_bytes_whichever_was_asked_for() -> None:
    (by_percent,) = place([gpu(0)], {GPU: 25}).allocations[DeviceKind.GPU]
    # 25 percent of 16 GiB
    assert by_percent.amounts == {GPU_CORE: 25, GPU_MEMORY_RATIO: 25, GPU_MEMORY: 4 * GIB}
    (by_bytes,) = place([gpu(0)], {GPU_MEMORY: 8 * GIB}).allocations[DeviceKind.GPU]
    # 8 of 16 GiB
    assert by_bytes.amounts == {GPU_MEMORY: 8 * GIB, GPU_MEMORY_RATIO: 50}


def test_a_full_or_ill_device_serves_nobody_and_the_refusal_counts_them() -> None:
    ill = gpu(1, healthy=False)
    assert place([gpu(0), ill], {GPU: 60}, [share(0, 50)]).refusal == (
        "0 of 1 gpu devices have koordinator.sh/gpu-core 60, koordinator.sh/gpu-memory-ratio 60 free; the pod needs 1"
    )
    assert place([ill], {GPU: 60}).refusal == "no healthy gpu on the node"
    assert place([], {FPGA: 100}).refusal == "no healthy fpga on the node"


def test_several_gpus_come_from_one_switch_then_one_numa_node_then_anywhere() -> None:
    cards = [gpu(0, "a", 0), gpu(1, "b", 0), gpu(2, "b", 0), gpu(3, "c", 1)]
    assert minors(place(cards, {GPU: 200})) == [1, 2]
    assert minors(place(cards, {GPU: 200}, [share(2, 10)])) == [0, 1]
    assert minors(place(cards, {GPU: 400})) == [0, 1, 2, 3]
    near = {"gpu": {"requiredTopologyScope": "NUMANode"}}
    assert "near enough" in place(cards, {GPU: 400}, hint=near).refusal


def test_the_switch_that_is_left_with_the_least_gives_them() -> None:
    cards = [gpu(0, "a"), gpu(1, "a"), gpu(2, "a"), gpu(3, "b"), gpu(4, "b")]
    assert minors(place(cards, {GPU: 200})) == [3, 4]


# --- joint allocation -------------------------------------------------------------------------------------------------
GPU_AND_RDMA = {"deviceTypes": ["gpu", "rdma"]}
SAME_SWITCH = {**GPU_AND_RDMA, "requiredScope": "SamePCIe"}


def test_a_gpu_and_its_network_card_come_from_one_switch_else_one_numa_node() -> None:
    cards = [gpu(0, "a", 0), gpu(1, "b", 1), rdma(0, "b", 1), rdma(1, "c", 0)]
    request = {GPU: 100, RDMA: 100}
    joint = place(cards, request, joint=GPU_AND_RDMA)
    assert (minors(joint), minors(joint, DeviceKind.RDMA)) == ([1], [0])
    # 1 is taken: 0 has a card on its NUMA node, but none on its switch
    pods = [share(1, 10)]
    wider = place(cards, request, pods, joint=GPU_AND_RDMA)
    assert (minors(wider), minors(wider, DeviceKind.RDMA)) == ([0], [1])
    assert "gpu and rdma near enough" in place(cards, request, pods, joint=SAME_SWITCH).refusal


def test_required_switches_may_be_several_when_each_has_both() -> None:
    cards = [gpu(0, "a"), gpu(1, "b"), gpu(2, "c"), rdma(0, "b"), rdma(1, "c")]
    both = place(cards, {GPU: 200, RDMA: 200}, joint=SAME_SWITCH)
    assert (minors(both), minors(both, DeviceKind.RDMA)) == ([1, 2], [0, 1])
    # one card is asked for, and the GPUs are on two switches: max(1, 2) cards
    fewer = place(cards, {GPU: 200, RDMA: 100}, joint=SAME_SWITCH)
    assert (minors(fewer), minors(fewer, DeviceKind.RDMA)) == ([1, 2], [0, 1])
    # three GPUs need three switches, and a has no card
    assert "near enough" in place(cards, {GPU: 300, RDMA: 100}, joint=SAME_SWITCH).refusal


def test_a_virtual_function_is_given_to_one_pod() -> None:
    functions = (VirtualFunction(0, "1f:00.2", {"class": "fast"}), VirtualFunction(1, "1f:00.3", {"class": "slow"}))
    card = rdma(0, functions=functions)
    fast = {"rdma": {"vfSelector": {"matchLabels": {"class": "fast"}}}}
    first = place([card], {RDMA: 1}, hint=fast)
    assert [function.bus for function in first.allocations[DeviceKind.RDMA][0].functions] == ["1f:00.2"]
    assert "0 of 1 rdma" in place([card], {RDMA: 1}, [first.allocations], hint=fast).refusal


def test_hints_select_devices_count_them_and_keep_them_apart() -> None:
    cards = [rdma(0, "a", labels={"net": "x"}), rdma(1, "a", labels={"net": "y"}), rdma(2, "b", labels={"net": "x"})]
    selector = {"selector": {"matchLabels": {"net": "x"}}}
    every = {"rdma": {**selector, "allocateStrategy": "ApplyForAll"}}
    assert minors(place(cards, {RDMA: 1}, hint=every), DeviceKind.RDMA) == [0, 2]
    counted = {"rdma": {"allocateStrategy": "RequestsAsCount", "exclusivePolicy": "PCIeLevel"}}
    assert minors(place(cards, {RDMA: 2}, hint=counted), DeviceKind.RDMA) == [0, 2]
    assert "near enough" in place(cards, {RDMA: 3}, hint=counted).refusal


# --- partitions -------------------------------------------------------------------------------------------------------
PAIRS = {
    2: (GpuPartition(frozenset({0, 1}), 1), GpuPartition(frozenset({2, 3}), 5, 400)),
    4: (GpuPartition(frozenset({0, 1, 2, 3}), 9),),
}
FOUR = tuple(gpu(minor) for minor in range(4))


def test_whole_gpus_follow_the_partitions_the_best_first() -> None:
    honoured = DeviceInventory(FOUR, PAIRS, honoured=True)
    assert minors(place(honoured, {GPU: 200})) == [2, 3]
    assert minors(place(honoured, {GPU: 200}, [share(3, 10)])) == [0, 1]
    assert place(honoured, {GPU: 200}, [share(3, 10), share(0, 10)]).refusal == "no partition of 2 GPUs is free"
    assert place(honoured, {GPU: 300}).refusal == "no partition of 3 GPUs is free"
    preferred = DeviceInventory(FOUR, PAIRS)
    assert minors(place(preferred, {GPU: 200}, [share(3, 10), share(0, 10)])) == [1, 2]


def test_a_pod_may_insist_on_the_best_partition_or_on_its_bandwidth() -> None:
    preferred = DeviceInventory(FOUR, PAIRS)
    taken = [share(3, 10)]
    for partition in ({"allocatePolicy": "Restricted"}, {"ringBusBandwidth": "400"}):
        assert minors(place(preferred, {GPU: 200}, partition=partition)) == [2, 3]
        assert place(preferred, {GPU: 200}, taken, partition=partition).refusal == "no partition of 2 GPUs is free"


def test_a_share_of_one_gpu_needs_no_partition() -> None:
    assert minors(place(DeviceInventory(FOUR, PAIRS, honoured=True), {GPU: 50})) == [0]


# --- properties -------------------------------------------------------------------------------------------------------
shapes = st.lists(
    st.one_of(
        st.integers(1, 99).map(lambda n: {GPU: n}),
        st.integers(1, 4).map(lambda n: {GPU: 100 * n}),
        st.integers(1, 16 * GIB).map(lambda n: {GPU_MEMORY: n}),
        st.tuples(st.integers(1, 100), st.integers(1, 100)).map(lambda p: {GPU_CORE: p[0], GPU_MEMORY_RATIO: p[1]}),
        st.integers(1, 100).map(lambda n: {RDMA: n, GPU: n}),
    ),
    max_size=30,
)


@given(shapes=shapes, releases=st.lists(st.integers(0, 29), max_size=10), joint=st.booleans())
def test_no_device_is_given_beyond_all_of_it_and_a_release_gives_back_what_was_had(
    shapes: list[dict[str, int]], releases: list[int], joint: bool
) -> None:
    cards = [gpu(0, "a", 0), gpu(1, "a", 0), gpu(2, "b", 1), gpu(3), rdma(0, "a", 0), rdma(1, "b", 1)]
    annotations = {"joint": GPU_AND_RDMA} if joint else {}
    pods: dict[int, Allocations] = {}
    for number, requests in enumerate(shapes):
        free_before = {card.key: TakenDevices.of(pods.values()).free_amounts(card) for card in cards}
        placement = place(cards, requests, pods.values(), **annotations)
        if placement.refusal:
            continue
        pods[number] = placement.allocations
        taken = TakenDevices.of(pods.values())
        for card in cards:
            used = taken.amounts.get(card.key, {})
            assert all(used.get(name, 0) <= amount for name, amount in card.amounts.items())
        if number in releases:
            del pods[number]
            assert {card.key: TakenDevices.of(pods.values()).free_amounts(card) for card in cards} == free_before


@given(shares=st.lists(st.integers(1, 99), max_size=5), percent=st.integers(1, 99))
def test_no_other_device_would_have_been_left_with_less(shares: list[int], percent: int) -> None:
    cards = [gpu(minor) for minor in range(6)]
    pods = [share(minor, taken) for minor, taken in enumerate(shares)]
    free = [WHOLE - (shares[minor] if minor < len(shares) else 0) for minor in range(6)]
    fitting = [amount for amount in free if amount >= percent]
    (minor,) = minors(place(cards, {GPU: percent}, pods))
    assert free[minor] == min(fitting)


# --- wire forms -------------------------------------------------------------------------------------------------------
allocations = st.dictionaries(
    st.sampled_from(DeviceKind),
    st.lists(
        st.builds(
            DeviceShare,
            st.integers(0, 2**31 - 1),
            st.dictionaries(st.sampled_from([GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, RDMA]), st.integers(0, 2**62)),
            st.text(max_size=20),
            st.lists(st.builds(VirtualFunction, st.integers(0, 99), st.text(max_size=12)), max_size=2).map(tuple),
        ),
        max_size=3,
    ).map(tuple),
)


@pytest.mark.slow
@given(allocations)
def test_allocations_survive_their_annotation(allocated: Allocations) -> None:
    assert decode_allocations(encode_allocations(allocated)) == allocated


def test_the_annotation_has_koordinators_form() -> None:
    allocated = {DeviceKind.GPU: (DeviceShare(0, {GPU_CORE: 50, GPU_MEMORY: 8 * GIB}, "GPU-0"),)}
    assert json.loads(encode_allocations(allocated)) == {
        "gpu": [{"minor": 0, "resources": {GPU_CORE: "50", GPU_MEMORY: "8Gi"}, "id": "GPU-0"}]
    }


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        allocated = decode_allocations(text, "pod shop/train")
    except UsageError as refused:
        assert "pod shop/train" in refused.message
    else:
        assert set(allocated) <= set(DeviceKind)


def test_a_device_object_is_read_whole() -> None:
    body = {
        "metadata": {
            "name": "n1",
            "labels": {GPU_PARTITION_POLICY_LABEL: "Honor"},
            "annotations": {GPU_PARTITIONS_ANNOTATION: '{"2": [{"minors": [0, 1], "allocationScore": 3}]}'},
        },
        "spec": {
            "devices": [
                {
                    "type": "gpu",
                    "id": "GPU-0",
                    "minor": 0,
                    "health": True,
                    "resources": {GPU_CORE: 100, GPU_MEMORY: "16Gi", GPU_MEMORY_RATIO: "100"},
                    "topology": {"socketID": 0, "nodeID": 1, "pcieID": "p0"},
                },
                {"type": "rdma", "id": "mlx5_0", "vfGroups": [{"labels": {"a": "b"}, "vfs": [{"busID": "1f:00.2"}]}]},
                {"type": "xpu", "minor": 0},
            ]
        },
    }
    card = NodeDevice(
        DeviceKind.RDMA, 0, "mlx5_0", False, {RDMA: 100}, functions=(VirtualFunction(0, "1f:00.2", {"a": "b"}),)
    )
    partitions = {2: (GpuPartition(frozenset({0, 1}), 3),)}
    assert inventory_of(body) == DeviceInventory((gpu(0, "p0", 1), card), partitions, honoured=True)


@pytest.mark.parametrize(
    ("spec", "annotations", "phrase"),
    [
        ({"devices": [{"type": "gpu"}, {"type": "gpu"}]}, {}, "gpu 0 is listed twice"),
        ({"devices": [{"type": "gpu", "resources": {GPU_CORE: "many"}}]}, {}, "Device n1, gpu 0: 'many'"),
        ({"devices": 3}, {}, "this is not a Device"),
        ({}, {GPU_PARTITIONS_ANNOTATION: "[]"}, "gpu-partitions is '\\[\\]'"),
    ],
)
def test_a_device_object_that_cannot_be_read_is_named(
    spec: dict[str, Any], annotations: dict[str, str], phrase: str
) -> None:
    with pytest.raises(UsageError, match=phrase):
        inventory_of({"metadata": {"name": "n1", "annotations": annotations}, "spec": spec})
