"""Batch amounts of NUMA zones: never more than the node lends, written where an agent keeps the zones."""

from __future__ import annotations

from typing import Any

import jsonpatch
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.resource import GIB, Resource
from cotenant.recommender.colocation.zones import Topology, publish_zones

CPU, MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
OFFERED = {"n1": {Resource.CPU: 20_000, Resource.MEMORY: 40 * GIB}}
PLENTY = {"n1": {Resource.CPU: 10**6, Resource.MEMORY: 10**15}}


def topology(*published: dict[str, str]) -> dict[str, Any]:
    """Two zones of 16 cores and 64 GiB, with our resources as they stand there."""
    zones = []
    for number, ours in enumerate(published or ({}, {})):
        amounts = {"cpu": "16", "memory": "64Gi", **ours}
        resources = [{"name": n, "capacity": v, "allocatable": v, "available": v} for n, v in amounts.items()]
        zones.append({"name": f"node-{number}", "type": "Node", "resources": resources})
    return {"metadata": {"name": "n1"}, "topologyPolicies": ["None"], "zones": zones}


def lending(cpu: list[int], memory: list[int]) -> Any:
    return lambda _node, resource, _capacities: np.array(cpu if resource is Resource.CPU else memory)


def after(body: dict[str, Any], offered: dict[str, dict[Resource, int]], lend: Any) -> Any:
    patches = list(publish_zones([Topology.parse(body)], offered, lend, 0.0))
    assert len(patches) <= 1
    return jsonpatch.apply_patch(body, [dict(op) for patch in patches for op in patch.operations])


def amounts(body: dict[str, Any], name: str) -> list[str | None]:
    zone_resources = [{r["name"]: r for r in zone["resources"]} for zone in body["zones"]]
    return [zone.get(name, {}).get("allocatable") for zone in zone_resources]


def test_zones_get_what_they_can_lend_and_keep_their_own_amounts() -> None:
    zoned_body = after(topology(), OFFERED, lending([12_000, 8_000], [1, 2]))
    assert amounts(zoned_body, CPU) == ["12000", "8000"] and amounts(zoned_body, MEMORY) == ["1", "2"]
    assert amounts(zoned_body, "cpu") == ["16", "16"]


def test_zones_never_lend_more_than_their_node() -> None:
    zoned_body = after(topology(), OFFERED, lending([16_000, 16_000], [1, 1]))
    # 2 x 16,000 are scaled by 20,000 / 32,000
    assert amounts(zoned_body, CPU) == ["10000", "10000"]


def test_what_the_node_does_not_offer_any_more_is_withdrawn() -> None:
    standing = {CPU: "10000", MEMORY: "5"}
    zoned_body = after(topology(standing, standing), {}, lending([1, 1], [1, 1]))
    assert amounts(zoned_body, CPU) == amounts(zoned_body, MEMORY) == [None, None]
    assert amounts(zoned_body, "memory") == ["64Gi", "64Gi"]
    half = after(topology(standing, standing), {"n1": {Resource.MEMORY: 10}}, lending([], [5, 5]))
    assert amounts(half, CPU) == [None, None] and amounts(half, MEMORY) == ["5", "5"]


def test_a_small_move_is_not_written() -> None:
    standing = {CPU: "10000", MEMORY: "7"}
    parsed = Topology.parse(topology(standing, standing))
    assert list(publish_zones([parsed], PLENTY, lending([10_900] * 2, [7, 7]), 0.1)) == []
    (patch,) = publish_zones([parsed], PLENTY, lending([11_100] * 2, [7, 7]), 0.1)
    written = {op["path"] for op in patch.operations if op["op"] == "replace"}
    assert written == {"/zones/0/resources/2", "/zones/1/resources/2"}


def test_an_object_that_moved_meanwhile_is_not_written_to() -> None:
    body = topology({CPU: "1"}, {})
    (patch,) = publish_zones([Topology.parse(body)], OFFERED, lending([50, 50], [50, 50]), 0.0)
    body["zones"].reverse()
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch(body, [dict(op) for op in patch.operations])


@given(
    given_cpu=st.lists(st.sampled_from(["16", "500m", "x", "-1", "1e999999", None]), min_size=1, max_size=4),
    kinds=st.lists(st.sampled_from(["Node", "Socket"]), min_size=4, max_size=4),
    offered=st.integers(0, 10**6),
    lent=st.integers(0, 10**6),
)
def test_whatever_an_agent_writes_the_sum_of_the_zones_is_within_the_node(
    given_cpu: list[str | None], kinds: list[str], offered: int, lent: int
) -> None:
    zones = [
        {"name": f"z{i}", "type": kind, "resources": [{"name": "cpu", "capacity": cpu}] if cpu else None}
        for i, (cpu, kind) in enumerate(zip(given_cpu, kinds, strict=False))
    ]
    body = {"metadata": {"name": "n1"}, "zones": zones}
    zoned_body = after(body, {"n1": {Resource.CPU: offered}}, lambda _node, _resource, of: np.full(len(of), lent))
    written = [int(r["allocatable"]) for z in zoned_body["zones"] for r in z["resources"] or [] if r["name"] == CPU]
    assert sum(written) <= offered
