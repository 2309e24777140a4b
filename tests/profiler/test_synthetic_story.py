"""The demo's story in the generator: told on demand, and without it the cluster is what it always was."""

from __future__ import annotations

import numpy as np
import pytest

from cotenant.base.cluster import Inventory
from cotenant.base.identity import WorkloadRef
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import HOUR_SECONDS, Signal
from cotenant_lab.simulation.controllers.autoscaler import demand_of
from cotenant_lab.synthetic import SyntheticCluster, SyntheticSpec, generate

RANK = WorkloadRef("feed", "Deployment", "rank")
VAULT = WorkloadRef("pay", "Deployment", "vault")


@pytest.fixture(scope="module")
def rushing() -> SyntheticCluster:
    return generate(SyntheticSpec(nodes=16, workloads=60, days=7, rush=True))


def refs(inventory: Inventory) -> set[WorkloadRef]:
    return {workload.ref for workload in inventory.workloads}


def test_without_a_rush_nobody_of_the_rush_is_there() -> None:
    plain = generate(SyntheticSpec(nodes=16, workloads=60, days=1)).inventory
    assert RANK in refs(plain)
    assert VAULT not in refs(plain)
    assert next(w for w in plain.workloads if w.ref == RANK).autoscaler is None


def test_rank_outgrows_its_usual_pods_in_the_evening(rushing: SyntheticCluster) -> None:
    rank = next(w for w in rushing.inventory.workloads if w.ref == RANK)
    scaler = rank.autoscaler
    assert scaler is not None
    demand = demand_of(rushing, [RANK])
    capacity = scaler.targets[Resource.CPU] / 100 * sum(c.requests[Resource.CPU] for c in rank.staying)
    usual = scaler.min_replicas * capacity
    days = [rushing.inventory.time_seconds - rushing.inventory.time_seconds % 86_400 - 86_400 * d for d in range(1, 6)]
    noon = [demand.at(RANK, day + 10 * HOUR_SECONDS) for day in days]
    evening = [max(demand.at(RANK, day + h * HOUR_SECONDS / 2) or 0.0 for h in range(37, 43)) for day in days]
    assert np.median([value or 0.0 for value in noon]) < usual
    assert np.median(evening) > usual


def test_vault_is_guaranteed_and_lets_its_class_go(rushing: SyntheticCluster) -> None:
    vault = next(w for w in rushing.inventory.workloads if w.ref == VAULT)
    for container in vault.containers:
        assert container.requests == container.limits
        assert set(container.requests) == set(Resource)
    assert vault.annotations["cotenant.dev/keep-qos-class"] == "false"


def test_demand_is_the_sum_over_a_workload_s_pods_at_the_same_time_last_week(rushing: SyntheticCluster) -> None:
    demand = demand_of(rushing, [VAULT])
    usage = rushing.usage[Signal.CPU_USAGE_MEAN]
    owners = rushing.inventory.owners()
    mine = [i for i, ref in enumerate(usage.refs) if owners[ref.namespace, ref.pod] == VAULT]
    slot = usage.grid.size - 10
    total = np.nansum(usage.values[mine, slot])
    at = usage.grid.start_seconds + slot * usage.grid.step_seconds
    if np.isfinite(usage.values[mine, slot]).any():
        assert demand.at(VAULT, at + 7 * 86_400) == pytest.approx(total, rel=1e-3)
    assert demand.at(WorkloadRef("no", "Deployment", "body"), at) is None
