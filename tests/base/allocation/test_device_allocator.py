"""The allocator of devices: what it gives beside what other pods hold, and which of their annotations count."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from cotenant.base.allocation.allocator import Allotment, HardwareClaim, Holding, NodeHardware
from cotenant.base.allocation.device_allocator import COLLECTION, NO_DEVICES, DeviceAllocator
from cotenant.base.allocation.device_request import (
    GPU,
    HINT_ANNOTATION,
    JOINT_ANNOTATION,
)
from cotenant.base.allocation.devices import (
    DEVICE_ALLOCATED_ANNOTATION,
    GPU_CORE,
    GPU_MEMORY_RATIO,
    RDMA,
    DeviceKind,
    DeviceShare,
    decode_allocations,
    encode_allocations,
)
from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.pod_identity import PodIdentity
from tests.base.allocation.test_devices import share

DEVICE_BODY = {
    "metadata": {"name": "n1"},
    "spec": {
        "devices": [
            {"type": "gpu", "minor": minor, "health": True, "resources": {GPU_CORE: "100", GPU_MEMORY_RATIO: "100"}}
            for minor in range(2)
        ]
    },
}


def claim(name: str, requests: dict[str, int]) -> HardwareClaim:
    return HardwareClaim(PodIdentity("shop", name, name, {}, {}, ()), requests)


def allot(requests: dict[str, int], holdings: Iterable[Holding] = (), body: Any = DEVICE_BODY) -> Allotment:
    documents = {COLLECTION: body} if body else {}
    return DeviceAllocator().allocate(NodeHardware("n1", documents=documents), claim("p", requests), list(holdings))


def test_the_allocator_gives_what_holdings_leave() -> None:
    first = allot({GPU: 60})
    assert [
        share.minor for share in decode_allocations(first.annotations[DEVICE_ALLOCATED_ANNOTATION])[DeviceKind.GPU]
    ] == [0]
    holding = Holding("shop/a", "a", first.annotations, entered=True)
    second = allot({GPU: 60}, [holding])
    assert [
        share.minor for share in decode_allocations(second.annotations[DEVICE_ALLOCATED_ANNOTATION])[DeviceKind.GPU]
    ] == [1]
    assert (
        "0 of 2 gpu devices"
        in allot({GPU: 60}, [holding, Holding("shop/b", "b", second.annotations, entered=True)]).refusal
    )
    assert DeviceAllocator().concerns(claim("p", {GPU: 60}))
    assert not DeviceAllocator().concerns(claim("p", {"cpu": 60}))


def test_a_device_that_a_resource_claim_still_has_serves_no_share() -> None:
    node = NodeHardware("n1", documents={COLLECTION: DEVICE_BODY}, claimed=frozenset({"gpu-0", "cpu-3"}))
    allotment = DeviceAllocator().allocate(node, claim("p", {GPU: 60}), [])
    assert [
        share.minor for share in decode_allocations(allotment.annotations[DEVICE_ALLOCATED_ANNOTATION])[DeviceKind.GPU]
    ] == [1]
    two = DeviceAllocator().allocate(node, claim("p", {GPU: 200}), [])
    # of the two GPUs one is left
    assert two.refusal.startswith("1 of 1 gpu devices") and two.refusal.endswith(
        "; the node's ResourceSlices still have gpu-0"
    )


def test_an_annotation_that_claims_more_than_its_pod_asks_for_takes_nothing() -> None:
    stolen = {
        DEVICE_ALLOCATED_ANNOTATION: encode_allocations({kind: s for m in (0, 1) for kind, s in share(m, 100).items()})
    }
    for requests in ({"cpu": 1}, {GPU: 10}):
        assert allot({GPU: 200}, [Holding("shop/a", "a", stolen, requests)]).refusal == ""
    assert allot({GPU: 200}, [Holding("shop/a", "a", stolen, {GPU: 100})]).refusal
    assert allot({GPU: 200}, [Holding("shop/a", "a", {DEVICE_ALLOCATED_ANNOTATION: "{"}, entered=True)]).refusal == ""


def test_an_annotation_that_takes_nothing_hides_none_of_those_after_it() -> None:
    stolen = {DEVICE_ALLOCATED_ANNOTATION: encode_allocations(share(0, 100))}
    unread = {DEVICE_ALLOCATED_ANNOTATION: "{"}
    full_gpu = {DEVICE_ALLOCATED_ANNOTATION: encode_allocations(share(1, 100))}
    holdings = [
        Holding("shop/a", "a", stolen, {"cpu": 1}),
        Holding("shop/b", "b", unread, {GPU: 100}),
        Holding("shop/c", "c", full_gpu, {GPU: 100}),
    ]
    # of two GPUs the third pod has GPU 1: GPU 0 is left, and not two of them
    first = decode_allocations(allot({GPU: 100}, holdings).annotations[DEVICE_ALLOCATED_ANNOTATION])
    assert [device_share.minor for device_share in first[DeviceKind.GPU]] == [0]
    assert allot({GPU: 200}, holdings).refusal.startswith("1 of 2 gpu devices")


CARD_BODY = {"spec": {"devices": [{"type": "rdma", "minor": minor, "health": True} for minor in (0, 1)]}}


@pytest.mark.parametrize(
    ("percent", "hint", "percent_of_each", "refused"),
    [
        (100, '{"rdma": {"allocateStrategy": "ApplyForAll"}}', 100, True),
        (2, '{"rdma": {"allocateStrategy": "RequestsAsCount", "exclusivePolicy": "DeviceLevel"}}', 100, True),
        # one percent of each of the two cards is what was asked for, so that 100 percent take nothing
        (2, '{"rdma": {"allocateStrategy": "RequestsAsCount"}}', 100, False),
        (2, '{"rdma": {"allocateStrategy": "RequestsAsCount"}}', 1, True),
        (100, '{"rdma": {"allocateStrategy": "OfAnotherScheduler"}}', 100, False),
        (200, '{"rdma": {"allocateStrategy": "OfAnotherScheduler"}}', 100, True),
    ],
)
def test_a_holding_takes_what_its_hint_asked_for_and_no_more(
    percent: int, hint: str, percent_of_each: int, refused: bool
) -> None:
    cards = {DeviceKind.RDMA: tuple(DeviceShare(minor, {RDMA: percent_of_each}) for minor in (0, 1))}
    annotations = {DEVICE_ALLOCATED_ANNOTATION: encode_allocations(cards), HINT_ANNOTATION: hint}
    holding = Holding("shop/a", "a", annotations, {RDMA: percent})
    assert bool(allot({RDMA: 100}, [holding], CARD_BODY).refusal) is refused


@pytest.mark.parametrize(
    ("joint", "gpus", "refused"),
    [
        # two GPUs may be on two switches, each with a card; one GPU is on one, so that a second card is not its due
        ('{"deviceTypes": ["gpu", "rdma"]}', 2, True),
        ('{"deviceTypes": ["gpu", "rdma"]}', 1, False),
        ('{"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}', 2, True),
        # the second kind follows the first, not the first the second; nor does a kind that is not named
        ('{"deviceTypes": ["rdma", "gpu"]}', 2, False),
        ('{"deviceTypes": ["gpu"]}', 2, False),
        ("{}", 2, False),
        ('{"deviceTypes": 3}', 2, False),
    ],
)
def test_a_holding_takes_a_card_for_each_switch_of_its_gpus_and_no_more(joint: str, gpus: int, refused: bool) -> None:
    """Another scheduler placed the pod, or the ledger was lost: the cards are counted by the pod's annotations."""
    devices = {
        DeviceKind.RDMA: tuple(DeviceShare(minor, {RDMA: 100}) for minor in (0, 1)),
        DeviceKind.GPU: tuple(DeviceShare(minor, {GPU_CORE: 100, GPU_MEMORY_RATIO: 100}) for minor in range(gpus)),
    }
    annotations = {DEVICE_ALLOCATED_ANNOTATION: encode_allocations(devices), JOINT_ANNOTATION: joint}
    holding = Holding("shop/a", "a", annotations, {RDMA: 100, GPU: 100 * gpus})
    assert bool(allot({RDMA: 100}, [holding], CARD_BODY).refusal) is refused
    assert {HINT_ANNOTATION, JOINT_ANNOTATION} <= set(DeviceAllocator().wishes), "the ledger and the watch keep them"


def test_a_node_without_devices_and_a_pod_that_cannot_be_served_are_refused_with_the_reason() -> None:
    assert allot({GPU: 50}, body=None).refusal == allot({GPU: 50}, body={"spec": 3}).refusal == NO_DEVICES
    with pytest.raises(UsageError, match=r"koordinator\.sh/gpu 150 is not a whole number of devices"):
        allot({GPU: 150})
