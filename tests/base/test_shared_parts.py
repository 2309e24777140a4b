"""Pods of an inventory that is read from a store."""

from __future__ import annotations

from pathlib import Path

from cotenant.base.cluster import Inventory, Pod
from cotenant.base.identity import WorkloadRef
from cotenant.base.resource import Resource
from cotenant.base.store import Store


def test_pods_that_are_read_are_those_that_were_written_and_share_what_is_equal(tmp_path: Path) -> None:
    amounts: tuple[dict[Resource, int], ...] = (
        {Resource.CPU: 500},
        {Resource.CPU: 500},
        {Resource.CPU: 250, Resource.MEMORY: 2**30},
        {},
    )
    pods = tuple(
        Pod("shop", f"web-{i}", WorkloadRef("shop", "Deployment", "web"), "n1", i, requests=requests)
        for i, requests in enumerate(amounts)
    )
    written = Inventory("c", 900, (), (), pods)
    store = Store(tmp_path.as_uri(), "c")
    store.write_inventory(written)
    read = store.read_inventory()
    assert read == written
    first, second, third, fourth = read.pods
    assert first.requests is second.requests
    assert (third.requests, fourth.requests) == (amounts[2], {})
    assert len({id(pod.workload) for pod in read.pods}) == 1
