"""Choosing shares of GPUs on a node of 8 and of 16, half of them taken: time of one call of the allocator.

The whole call, as the bind verb makes it: the Device object and the other pods' annotations are read, the best fit is
chosen, the annotation is written. Pods come and go, so that shares of all sizes lie beside each other. Processor time
of the calling thread, so that other work on the machine counts little. That no device is given beyond 100 percent is
counted on the annotations, apart from the allocator.
"""

from __future__ import annotations

import gc
import json
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from bench.record import Row, above, below, record
from cotenant.base.allocation.allocator import HardwareClaim, Holding, NodeHardware
from cotenant.base.allocation.device_allocator import COLLECTION, DeviceAllocator
from cotenant.base.allocation.device_request import GPU, JOINT_ANNOTATION
from cotenant.base.allocation.devices import DEVICE_ALLOCATED_ANNOTATION, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, RDMA
from cotenant.base.kubernetes.pod_identity import PodIdentity
from cotenant.base.resource import GIB

CALLS: Final = 4000
SIZES: Final = (8, 16)
JOINT: Final = {JOINT_ANNOTATION: json.dumps({"deviceTypes": ["gpu", "rdma"]})}
ASKED: Final[Sequence[tuple[int, Mapping[str, int], Mapping[str, str]]]] = (
    (40, {GPU: 10}, {}),
    (30, {GPU: 25}, {}),
    (20, {GPU: 50}, {}),
    (15, {GPU_CORE: 30, GPU_MEMORY: 20 * GIB}, {}),
    (5, {GPU: 100}, {}),
    (2, {GPU: 200, RDMA: 100}, JOINT),
)
"""Weight, requests and annotations of the pods that come."""


def node(gpus: int) -> NodeHardware:
    """GPUs of 80 GiB, four to a PCIe switch, each switch with a card of RDMA, half of the switches to a NUMA node."""
    amounts = {GPU_CORE: 100, GPU_MEMORY_RATIO: 100, GPU_MEMORY: "80Gi"}
    devices: list[dict[str, Any]] = [
        {"type": "gpu", "minor": n, "id": f"GPU-{n}", "resources": amounts, "health": True, "topology": place(n, gpus)}
        for n in range(gpus)
    ]
    for switch in range(gpus // 4):
        topology = place(4 * switch, gpus)
        devices.append(
            {"type": "rdma", "minor": switch, "resources": {RDMA: 100}, "health": True, "topology": topology}
        )
    return NodeHardware("n", documents={COLLECTION: {"metadata": {"name": "n"}, "spec": {"devices": devices}}})


def place(minor: int, gpus: int) -> dict[str, Any]:
    numa_node = 2 * minor // gpus
    return {"socketID": numa_node, "nodeID": numa_node, "pcieID": f"p{minor // 4}"}


def beyond(pods: Sequence[Holding]) -> int:
    """Devices of which pods have more than 100 percent, by their annotations."""
    percent: Counter[tuple[str, int]] = Counter()
    for pod in pods:
        for kind, shares in json.loads(pod.annotations[DEVICE_ALLOCATED_ANNOTATION]).items():
            for share in shares:
                name = GPU_CORE if kind == "gpu" else RDMA
                percent[kind, share["minor"]] += int(share["resources"][name])
    return sum(amount > 100 for amount in percent.values())


def measure(gpus: int) -> list[Row]:
    dice, allocator, hardware = random.Random(gpus), DeviceAllocator(), node(gpus)
    pods: list[tuple[int, Holding]] = []
    milliseconds: list[float] = []
    wrong = refused = number = 0
    while len(milliseconds) < CALLS:
        while sum(percent for percent, _ in pods) > 50 * gpus:
            pods.pop(dice.randrange(len(pods)))
        (_, requests, annotations), number = dice.choices(ASKED, [weight for weight, *_ in ASKED])[0], number + 1
        identity = PodIdentity("shop", f"p-{number}", f"u-{number}", {}, annotations)
        claim, holdings = HardwareClaim(identity, requests), [holding for _, holding in pods]
        start_ns = time.thread_time_ns()
        allotment = allocator.allocate(hardware, claim, holdings)
        milliseconds.append((time.thread_time_ns() - start_ns) / 1e6)
        refused += bool(allotment.refusal)
        if not allotment.refusal:
            percent = requests.get(GPU, requests.get(GPU_CORE, 0))
            pods.append((percent, Holding(f"shop/p-{number}", identity.uid, allotment.annotations, entered=True)))
            wrong += beyond([holding for _, holding in pods])
    p50, p99 = (round(float(np.percentile(milliseconds, percent)), 3) for percent in (50, 99))
    return [
        below(f"shares of {gpus} GPUs, half taken, p99", p99, "ms", 1, f"{CALLS} calls, processor time"),
        Row("the same, p50", p50, "ms"),
        below(f"of {gpus}: devices beyond 100 percent", wrong, "devices", 0),
        above(f"of {gpus}: calls that got their share", CALLS - refused, "calls", 0.95 * CALLS, f"{refused} refused"),
    ]


def main() -> None:
    gc.disable()
    rows = [row for gpus in SIZES for row in measure(gpus)]
    record("device_allocation", ".venv/bin/python -m bench.allocation.device_allocation", rows)


if __name__ == "__main__":
    main()
