"""The role of a pod among those of its workload, by its name where no label says it."""

from __future__ import annotations

import time

import pytest

from cotenant.base.identity import WorkloadRef
from cotenant.base.inventory.pod_templates import role_of


@pytest.mark.parametrize(
    ("pod", "role"),
    [
        ("lake-worker-2-x7k9q", "lake-worker"),
        ("lake-worker-7c5d8f9b6d-22222-0", "lake-worker"),
        ("lake-0", ""),
        ("lake-head-0-a", "lake-head"),
    ],
)
def test_a_pods_role_is_its_name_without_what_kubernetes_put_at_its_end(pod: str, role: str) -> None:
    assert role_of(WorkloadRef("data", "RayCluster", "lake"), pod, {}, None) == role


def test_a_pods_name_of_many_endings_takes_no_longer_than_another() -> None:
    # The longest name of a pod has 253 characters: 41 endings of 6 leave room for the rest.
    began = time.process_time()
    assert role_of(WorkloadRef("data", "RayCluster", "x"), "x" + "-22222" * 41 + "-a-b", {}, None)
    assert time.process_time() - began < 0.5
