"""Devices of several kinds near each other: each PCIe switch of the first kind gets one of every other kind.

Expected values are those of Koordinator's DeviceShare plugin: the second kind is given max(asked, switches) times,
where `switches` is on how many PCIe switches the first kind was placed, those at these switches first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
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
    GPU_MEMORY_RATIO,
    RDMA,
    Allocations,
    DeviceInventory,
    DeviceKind,
    DeviceShare,
    GpuPartition,
    NodeDevice,
    TakenDevices,
    VirtualFunction,
)

G, R, F = DeviceKind.GPU, DeviceKind.RDMA, DeviceKind.FPGA
NAMES = {G: (GPU_CORE, GPU_MEMORY_RATIO), R: (RDMA,), F: (FPGA,)}
HINT, JOINT, PARTITION = HINT_ANNOTATION, JOINT_ANNOTATION, PARTITION_ANNOTATION
NEAR = {"deviceTypes": ["gpu", "rdma"]}
SAME = {**NEAR, "requiredScope": "SamePCIe"}


def device(kind: DeviceKind, minor: int, switch: int | None, numa_node: int = -1, **more: Any) -> NodeDevice:
    """All of it is 100 percent."""
    pcie = "" if switch is None else str(switch)
    amounts = dict.fromkeys(NAMES[kind], 100)
    return NodeDevice(kind, minor, f"{kind}-{minor}", amounts=amounts, pcie=pcie, numa_node=numa_node, **more)


def machine(gpus: Sequence[int], cards: Sequence[int], numa_nodes: int = 2, kind: DeviceKind = R) -> list[NodeDevice]:
    """gpus, cards: how many each PCIe switch has; the switches are divided over the NUMA nodes in order.

    Minors of each kind count on from switch to switch, those of cards from 1, as in Koordinator's examples.
    """
    on = [switch * numa_nodes // len(gpus) for switch in range(len(gpus))]
    of_gpus = [switch for switch, number in enumerate(gpus) for _ in range(number)]
    of_cards = [switch for switch, number in enumerate(cards) for _ in range(number)]
    first = [device(G, minor, switch, on[switch]) for minor, switch in enumerate(of_gpus)]
    return first + [device(kind, minor, switch, on[switch]) for minor, switch in enumerate(of_cards, start=1)]


EIGHT = machine((2, 2, 2, 2), (1, 1, 1, 1))
"""GPUs 0 to 7 two by two on switches 0 to 3, with cards 1 to 4; switches 0 and 1 are NUMA node 0."""


def place(
    devices: Iterable[NodeDevice] | DeviceInventory,
    requests: Mapping[str, int],
    pods: Iterable[Allocations] = (),
    **annotations: Any,
) -> DevicePlacement:
    """annotations: hint, joint, partition."""
    inventory = devices if isinstance(devices, DeviceInventory) else DeviceInventory(tuple(devices))
    names = {"hint": HINT, "joint": JOINT, "partition": PARTITION}
    texts = {names[key]: json.dumps(value) for key, value in annotations.items()}
    return place_devices(inventory, TakenDevices.of(pods), demand_of(requests, texts))


def given_to(placement: DevicePlacement, *kinds: DeviceKind) -> list[list[int]]:
    """Minors by kind."""
    assert placement.refusal == ""
    return [[share.minor for share in placement.allocations[kind]] for kind in kinds or (G, R)]


def taken(kind: DeviceKind, *minors: int, percent: int = 100) -> Allocations:
    return {kind: tuple(DeviceShare(minor, dict.fromkeys(NAMES[kind], percent)) for minor in minors)}


# --- Koordinator's examples -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("joint", [NEAR, SAME], ids=["preferred", "required"])
@pytest.mark.parametrize("rdma", [1, 100], ids=["a share of a card", "a card"])
@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        # switches of the GPUs: 1, 1, 2, 2, 3, 4
        (1, [[0], [1]]),
        (2, [[0, 1], [1]]),
        (3, [[0, 1, 2], [1, 2]]),
        (4, [[0, 1, 2, 3], [1, 2]]),
        (6, [[0, 1, 2, 3, 4, 5], [1, 2, 3]]),
        (8, [[0, 1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4]]),
    ],
)
def test_each_switch_of_the_gpus_gives_a_card(joint: Any, rdma: int, gpus: int, expected: list[list[int]]) -> None:
    placement = place(EIGHT, {NVIDIA_GPU: gpus, RDMA: rdma}, joint=joint)
    assert given_to(placement) == expected
    # each card is given as far as one was asked for
    assert {share.amounts[RDMA] for share in placement.allocations[R]} == {rdma}
    # PCIeLevel keeps the cards apart, not the GPUs of one pod
    level = {kind: {"exclusivePolicy": "PCIeLevel"} for kind in ("gpu", "rdma")}
    assert given_to(place(EIGHT, {NVIDIA_GPU: gpus, RDMA: rdma}, joint=joint, hint=level)) == expected


@pytest.mark.parametrize("joint", [NEAR, SAME], ids=["preferred", "required"])
@pytest.mark.parametrize(
    ("cards", "requests", "pods", "expected"),
    [
        # GPU 0 is taken: two of one switch are on switch 1, and three on NUMA node 0 are 1, 2 and 3
        ((1, 1, 1, 1), {NVIDIA_GPU: 2, RDMA: 1}, [taken(G, 0)], [[2, 3], [2]]),
        ((1, 1, 1, 1), {NVIDIA_GPU: 3, RDMA: 1}, [taken(G, 0), taken(R, 1, percent=1)], [[1, 2, 3], [1, 2]]),
        # NUMA node 0 is taken: the cards of switches 2 and 3
        ((1, 1, 1, 1), {NVIDIA_GPU: 4, RDMA: 1}, [taken(G, 0, 1, 2, 3)], [[4, 5, 6, 7], [3, 4]]),
        # two cards a switch (1, 2 / 3, 4 / 5, 6 / 7, 8), four asked for: the first of each switch, then the second
        ((2, 2, 2, 2), {NVIDIA_GPU: 4, RDMA: 400}, [taken(G, 0, 1, 2, 3)], [[4, 5, 6, 7], [5, 6, 7, 8]]),
        # one card asked for, two switches: one of each
        ((2, 2, 2, 2), {NVIDIA_GPU: 4, RDMA: 100}, [], [[0, 1, 2, 3], [1, 3]]),
        # the first switch has three cards (1, 2, 3): it gives one of four all the same
        ((3, 1, 1, 1), {NVIDIA_GPU: 8, RDMA: 400}, [], [[0, 1, 2, 3, 4, 5, 6, 7], [1, 4, 5, 6]]),
        # a card that is used fits best, and one that is used up is none
        ((2, 2, 2, 2), {NVIDIA_GPU: 2, RDMA: 50}, [taken(R, 2, percent=30)], [[0, 1], [2]]),
        ((2, 2, 2, 2), {NVIDIA_GPU: 4, RDMA: 50}, [taken(R, 1, 3, percent=60)], [[0, 1, 2, 3], [2, 4]]),
    ],
)
def test_cards_are_those_at_the_switches(
    joint: Any,
    cards: Sequence[int],
    requests: dict[str, int],
    pods: list[Allocations],
    expected: list[list[int]],
) -> None:
    assert given_to(place(machine((2, 2, 2, 2), cards), requests, pods, joint=joint)) == expected


def test_a_virtual_function_of_each_switch_s_card() -> None:
    cards = [
        device(R, minor, minor - 1, functions=(VirtualFunction(0, f"{minor}f:00.2", {"type": "general"}),))
        for minor in range(1, 5)
    ]
    node = [node_device for node_device in EIGHT if node_device.kind is G] + cards
    hint = {"rdma": {"vfSelector": {"matchLabels": {"type": "general"}}}}
    first = place(node, {NVIDIA_GPU: 8, RDMA: 1}, joint=SAME, hint=hint)
    assert [share.functions[0].bus for share in first.allocations[R]] == ["1f:00.2", "2f:00.2", "3f:00.2", "4f:00.2"]
    # card 1 has no function left: GPUs of other switches when all must have one, else GPUs of two switches share one
    pods = [{R: first.allocations[R][:1]}]
    assert given_to(place(node, {NVIDIA_GPU: 2, RDMA: 1}, pods, joint=SAME, hint=hint)) == [[2, 3], [2]]
    # only card 1 has a function, four GPUs: no more than it has to give, as one was asked for
    only = [node_device for node_device in EIGHT if node_device.kind is G] + [
        cards[0],
        *(node_device for node_device in EIGHT if node_device.kind is R),
    ][:1]
    assert given_to(place(only, {NVIDIA_GPU: 4, RDMA: 1}, joint=NEAR, hint=hint)) == [[0, 1, 2, 3], [1]]


def test_every_card_for_a_pod_on_the_host_s_network_is_no_matter_of_switches() -> None:
    hint = {"rdma": {"allocateStrategy": "ApplyForAll"}}
    for joint in (NEAR, SAME):
        assert given_to(place(EIGHT, {NVIDIA_GPU: 4, RDMA: 1}, joint=joint, hint=hint)) == [[0, 1, 2, 3], [1, 2, 3, 4]]


@pytest.mark.parametrize("strategy", ["", "RequestsAsCount", "ApplyForAll"])
@pytest.mark.parametrize(("rdma", "count"), [(200, 2), (300, 3), (400, 4)])
def test_whole_cards_are_a_number_whatever_the_strategy(strategy: str, rdma: int, count: int) -> None:
    # Above 100 a multiple of 100 is that many whole cards; the strategies are for amounts up to 100.
    hint = {"rdma": {"allocateStrategy": strategy}}
    placement = place(EIGHT, {NVIDIA_GPU: 2, RDMA: rdma}, joint=NEAR, hint=hint)
    assert given_to(placement) == [[0, 1], list(range(1, count + 1))]
    assert {share.amounts[RDMA] for share in placement.allocations[R]} == {100}
    # 2 GPUs on one switch and 2 cards at one: no card is left where the first strategy counts 100 cards
    refused = place(EIGHT, {NVIDIA_GPU: 2, RDMA: 100}, hint={"rdma": {"allocateStrategy": "RequestsAsCount"}})
    assert "the pod needs 100" in refused.refusal


@pytest.mark.parametrize(
    "annotations",
    [
        {"joint": {"deviceTypes": ["gpu", "xpu", "rdma"]}},
        {"joint": {"deviceTypes": ["gpu", "rdma"], "requiredScope": None}},
        {"joint": NEAR, "hint": {"xpu": {}, "fpga": {"allocateStrategy": "ApplyForAll"}, "rdma": None}},
        {"joint": NEAR, "hint": {"rdma": {"selector": None, "exclusivePolicy": None, "requiredTopologyScope": None}}},
        {"joint": NEAR, "hint": None, "partition": None},
        {"joint": NEAR, "partition": {"allocatePolicy": None, "ringBusBandwidth": None}},
    ],
)
def test_nulls_and_kinds_that_the_pod_does_not_ask_for_have_no_effect(annotations: dict[str, Any]) -> None:
    assert given_to(place(EIGHT, {NVIDIA_GPU: 4, RDMA: 1}, **annotations)) == [[0, 1, 2, 3], [1, 2]]
    # without any kinds nothing is placed jointly: one card
    assert given_to(place(EIGHT, {NVIDIA_GPU: 4, RDMA: 1}, joint={"deviceTypes": None})) == [[0, 1, 2, 3], [1]]


# --- switches without a card, and other limits ------------------------------------------------------------------------
def test_a_switch_without_a_card() -> None:
    bare = machine((2, 2), (0, 1), numa_nodes=1)
    # two GPUs fit where the card is, four do not
    assert given_to(place(bare, {NVIDIA_GPU: 2, RDMA: 100}, joint=SAME)) == [[2, 3], [1]]
    assert "near enough" in place(bare, {NVIDIA_GPU: 4, RDMA: 100}, joint=SAME).refusal
    # preferred: one was asked for, and there is no second one
    assert given_to(place(bare, {NVIDIA_GPU: 4, RDMA: 100}, joint=NEAR)) == [[0, 1, 2, 3], [1]]
    # two switches: two cards, of which one has to come from elsewhere; switch 2 is of the same NUMA node, 3 is not
    more = machine((2, 2, 0, 0), (0, 1, 1, 1))
    nearby = [*more[:5], device(R, 2, 3, 1), device(R, 3, 2, 0)]
    assert given_to(place(nearby, {NVIDIA_GPU: 4, RDMA: 100}, joint=NEAR)) == [[0, 1, 2, 3], [1, 3]]


def test_gpus_of_one_pod_are_near_each_other_before_they_are_near_a_card() -> None:
    # Both GPUs of switch 0 have no card there; GPUs 2 and 3 have one each, on two switches.
    node = machine((2, 1, 1), (0, 1, 1), numa_nodes=1)
    assert given_to(place(node, {NVIDIA_GPU: 2, RDMA: 100}, joint=NEAR)) == [[0, 1], [1]]
    assert given_to(place(node, {NVIDIA_GPU: 2, RDMA: 100}, joint=SAME)) == [[2, 3], [1, 2]]
    # of GPUs that are on several switches anyway those with a card
    scattered = machine((1, 1, 1), (0, 1, 1), numa_nodes=1)
    assert given_to(place(scattered, {NVIDIA_GPU: 2, RDMA: 100}, joint=NEAR)) == [[1, 2], [1, 2]]


def test_more_cards_than_one_switch_has_take_more_switches_when_all_must_be_together() -> None:
    # Two cards for two GPUs, one card a switch: one GPU each of two switches.
    assert given_to(place(EIGHT, {NVIDIA_GPU: 2, RDMA: 200}, joint=SAME)) == [[0, 2], [1, 2]]
    # two for one GPU would need two cards on a switch
    assert "near enough" in place(EIGHT, {NVIDIA_GPU: 1, RDMA: 200}, joint=SAME).refusal
    assert given_to(place(EIGHT, {NVIDIA_GPU: 1, RDMA: 200}, joint=NEAR)) == [[0], [1, 2]]


def test_the_second_kind_may_be_another_and_there_may_be_a_third() -> None:
    boards = machine((2, 2, 2, 2), (1, 1, 1, 1), kind=F)
    joint = {"deviceTypes": ["gpu", "fpga"], "requiredScope": "SamePCIe"}
    assert given_to(place(boards, {NVIDIA_GPU: 8, FPGA: 100}, joint=joint), G, F)[1] == [1, 2, 3, 4]
    three = [*EIGHT, *(board for board in boards if board.kind is F)]
    joint = {"deviceTypes": ["gpu", "rdma", "fpga"], "requiredScope": "SamePCIe"}
    placement = place(three, {NVIDIA_GPU: 4, RDMA: 1, FPGA: 100}, joint=joint)
    assert given_to(placement, G, R, F) == [[0, 1, 2, 3], [1, 2], [1, 2]]
    # a kind that is not named is given as it was asked for
    placement = place(three, {NVIDIA_GPU: 4, RDMA: 1, FPGA: 100}, joint=SAME)
    assert given_to(placement, G, R, F) == [[0, 1, 2, 3], [1, 2], [1]]


def test_gpus_that_follow_are_never_more_than_asked_for() -> None:
    # Two cards of two switches lead; one GPU was asked for, and a GPU is not given unasked.
    node = machine((2, 2), (1, 1), numa_nodes=1)
    joint = {"deviceTypes": ["rdma", "gpu"]}
    assert given_to(place(node, {NVIDIA_GPU: 1, RDMA: 200}, joint=joint)) == [[0], [1, 2]]
    together = {**joint, "requiredScope": "SamePCIe"}
    assert "near enough" in place(node, {NVIDIA_GPU: 1, RDMA: 200}, joint=together).refusal
    assert given_to(place(node, {NVIDIA_GPU: 2, RDMA: 200}, joint=together)) == [[0, 2], [1, 2]]


def test_shares_of_gpus_follow_the_same_rule() -> None:
    # Half of one GPU: the one that is used already, and the card of its switch.
    pods = [taken(G, 5, percent=50)]
    for joint in (NEAR, SAME):
        assert given_to(place(EIGHT, {GPU: 50, RDMA: 1}, pods, joint=joint)) == [[5], [3]]
        # four halves: a switch has two GPUs, NUMA node 1 four, of which one is half used
        request = {GPU_SHARED: 4, GPU_CORE: 200, GPU_MEMORY_RATIO: 200, RDMA: 1}
        assert given_to(place(EIGHT, request, pods, joint=joint)) == [[4, 5, 6, 7], [3, 4]]


@pytest.mark.parametrize(
    ("scope", "gpus", "expected"),
    [
        ("Device", 1, [[0], [1]]),
        ("PCIe", 2, [[0, 1], [1]]),
        ("PCIe", 3, None),
        ("NUMANode", 4, [[0, 1, 2, 3], [1, 2]]),
        ("NUMANode", 5, None),
        ("Node", 5, [[0, 1, 2, 3, 4], [1, 2, 3]]),
    ],
)
def test_the_scope_that_a_hint_requires_is_of_its_own_kind(
    scope: str, gpus: int, expected: list[list[int]] | None
) -> None:
    hint = {"gpu": {"requiredTopologyScope": scope}}
    for joint in (NEAR, SAME):
        placement = place(EIGHT, {NVIDIA_GPU: gpus, RDMA: 1}, joint=joint, hint=hint)
        if expected is None:
            assert "near enough" in placement.refusal
        else:
            assert given_to(placement) == expected
    # a card of the other NUMA node is none of the GPUs' business
    far = [
        *(node_device for node_device in EIGHT if node_device.kind is G and node_device.minor < 2),
        device(R, 9, 3, 1),
    ]
    assert given_to(place(far, {NVIDIA_GPU: 1, RDMA: 1}, joint=NEAR, hint=hint)) == [[0], [9]]


def test_partitions_over_several_switches_and_a_card_of_each() -> None:
    quads = (GpuPartition(frozenset({0, 1, 2, 3}), 1), GpuPartition(frozenset({4, 5, 6, 7}), 1))
    pairs = (GpuPartition(frozenset({0, 2}), 1), GpuPartition(frozenset({4, 5}), 1))
    honoured = DeviceInventory(tuple(EIGHT), {2: pairs, 4: quads}, honoured=True)
    for joint in (NEAR, SAME):
        assert given_to(place(honoured, {NVIDIA_GPU: 4, RDMA: 1}, joint=joint)) == [[0, 1, 2, 3], [1, 2]]
        # of the pairs that of one switch
        assert given_to(place(honoured, {NVIDIA_GPU: 2, RDMA: 1}, joint=joint)) == [[4, 5], [3]]
    used_up = [taken(R, 3)]
    assert given_to(place(honoured, {NVIDIA_GPU: 2, RDMA: 1}, used_up, joint=SAME)) == [[0, 2], [1, 2]]
    assert "no partition" in place(honoured, {NVIDIA_GPU: 2, RDMA: 1}, [*used_up, taken(R, 1)], joint=SAME).refusal


def test_devices_whose_switch_is_not_known_get_what_was_asked_for_and_are_together_with_none() -> None:
    unknown = [device(G, 0, None), device(G, 1, None), device(R, 1, None), device(R, 2, None)]
    assert given_to(place(unknown, {NVIDIA_GPU: 2, RDMA: 100}, joint=NEAR)) == [[0, 1], [1]]
    assert "near enough" in place(unknown, {NVIDIA_GPU: 1, RDMA: 100}, joint=SAME).refusal


def test_a_kind_by_itself_is_given_as_it_was_asked_for() -> None:
    joints: tuple[dict[str, Any], ...] = (SAME, {"deviceTypes": ["gpu", "gpu"]}, {"deviceTypes": []})
    for joint in joints:
        assert given_to(place(EIGHT, {NVIDIA_GPU: 8}, joint=joint), G) == [[0, 1, 2, 3, 4, 5, 6, 7]]
    assert given_to(place(EIGHT, {NVIDIA_GPU: 8, RDMA: 100})) == [[0, 1, 2, 3, 4, 5, 6, 7], [1]]


# --- every machine of up to four switches -----------------------------------------------------------------------------
@st.composite
def scenes(draw: st.DrawFn) -> tuple[list[NodeDevice], int, int, list[Allocations]]:
    """A machine, GPUs and cards asked for, and what is taken."""
    switches = draw(st.integers(1, 4))
    gpus = draw(st.lists(st.integers(0, 3), min_size=switches, max_size=switches))
    cards = draw(st.lists(st.integers(0, 2), min_size=switches, max_size=switches))
    node = machine(gpus, cards, draw(st.integers(1, 2)))
    pods = []
    for node_device in node:
        percent = draw(st.sampled_from([0, 0, 0, 40, 100]))
        if percent:
            pods.append(taken(node_device.kind, node_device.minor, percent=percent))
    return node, draw(st.integers(1, 6)), draw(st.sampled_from([1, 50, 100, 200, 300])), pods


def free(node: list[NodeDevice], pods: list[Allocations], kind: DeviceKind, percent: int) -> list[NodeDevice]:
    occupied = TakenDevices.of(pods)
    return [
        node_device
        for node_device in node
        if node_device.kind is kind and min(occupied.free_amounts(node_device).values()) >= percent
    ]


def switches_of(node: list[NodeDevice], placement: DevicePlacement, kind: DeviceKind) -> list[str]:
    by_minor = {node_device.minor: node_device.pcie for node_device in node if node_device.kind is kind}
    return [by_minor[minor] for minor in given_to(placement, kind)[0]]


@given(scenes())
def test_what_must_be_together_is_found_wherever_it_exists(
    case: tuple[list[NodeDevice], int, int, list[Allocations]],
) -> None:
    node, gpus, rdma, pods = case
    count = max(1, rdma // 100)
    cards = [node_device.pcie for node_device in free(node, pods, R, min(rdma, 100))]

    def together(chosen: Iterable[NodeDevice]) -> bool:
        """Whether cards at the switches of these GPUs suffice: max(asked, switches), one of each at least."""
        switches = {node_device.pcie for node_device in chosen}
        return switches <= set(cards) and sum(card in switches for card in cards) >= max(count, len(switches))

    placement = place(node, {NVIDIA_GPU: gpus, RDMA: rdma}, pods, joint=SAME)
    possible = any(together(chosen) for chosen in combinations(free(node, pods, G, 100), gpus))
    assert (placement.refusal == "") is possible
    if possible:
        of_gpus, of_cards = switches_of(node, placement, G), switches_of(node, placement, R)
        assert set(of_gpus) == set(of_cards)
        assert (len(of_gpus), len(of_cards)) == (gpus, max(count, len(set(of_gpus))))


@given(scenes())
def test_what_should_be_together_is_refused_only_for_want_of_devices(
    case: tuple[list[NodeDevice], int, int, list[Allocations]],
) -> None:
    node, gpus, rdma, pods = case
    count, cards = max(1, rdma // 100), free(node, pods, R, min(rdma, 100))
    placement = place(node, {NVIDIA_GPU: gpus, RDMA: rdma}, pods, joint=NEAR)
    enough = len(free(node, pods, G, 100)) >= gpus and len(cards) >= count
    assert (placement.refusal == "") is enough
    if enough:
        of_gpus, of_cards = switches_of(node, placement, G), switches_of(node, placement, R)
        cards_needed = max(count, len(set(of_gpus)))
        assert len(of_cards) == min(cards_needed, len(cards))
        # every switch of the GPUs that has a free card gives one, and no other card is given instead of such a one
        served = {card.pcie for card in cards} & set(of_gpus)
        assert served <= set(of_cards)
        here = sum(card.pcie in set(of_gpus) for card in cards)
        assert sum(switch in set(of_gpus) for switch in of_cards) == min(cards_needed, here)
