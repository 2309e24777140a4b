"""Amounts that no machine has, in a workload that need never run: all others have their results, and it is named."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from cotenant.base.cluster import Container, Inventory, Pod, Workload
from cotenant.base.kubernetes.quantity import LARGEST, parse_bytes, parse_millicores
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.resource import Resource
from cotenant.base.store import Store
from cotenant.pipeline import daily_analysis
from cotenant.recommender.model.finding import FindingKind
from cotenant.recommender.model.views import WORKLOADS
from cotenant.settings import Settings
from cotenant_lab.simulation import cluster_population, demo
from cotenant_lab.synthetic import SyntheticCluster, SyntheticSpec

SPEC = SyntheticSpec(nodes=2, workloads=24, days=3, seed=11)
HUGE = {Resource.CPU: parse_millicores("9E"), Resource.MEMORY: parse_bytes("8E")}


@pytest.fixture(scope="module")
def population() -> SyntheticCluster:
    return cluster_population.resident(SPEC, cluster_population.fake_nodes(SPEC))


def asking(inventory: Inventory, victim: Workload, *, runs: bool) -> Inventory:
    """The inventory where two containers of a workload ask for 8E each; runs: and so do its pods."""
    shaped = tuple(dataclasses.replace(c, requests=HUGE, limits=HUGE) for c in victim.containers)
    extra = Container(name="beside", requests=HUGE, limits=HUGE)
    changed = dataclasses.replace(victim, containers=(*shaped, extra), replicas=2**31 - 1)
    total = dict.fromkeys(Resource, LARGEST)

    def pod(listed: Pod) -> Pod:
        return dataclasses.replace(listed, requests=total) if listed.workload == victim.ref and runs else listed

    fields: dict[str, Any] = {
        "workloads": tuple(changed if w.ref == victim.ref else w for w in inventory.workloads),
        "pods": tuple(map(pod, inventory.pods)),
    }
    return dataclasses.replace(inventory, **fields)


@pytest.mark.slow
@pytest.mark.parametrize("runs", [False, True])
def test_amounts_that_no_machine_has_end_no_analysis(population: SyntheticCluster, tmp_path: Path, runs: bool) -> None:
    store, end = Store((tmp_path / "store").as_uri(), "prod"), population.inventory.time_seconds
    victim = next(w for w in population.inventory.workloads if w.ref.kind == "Deployment" and w.one_template)
    inventory = asking(population.inventory, victim, runs=runs)
    demo.write(store, dataclasses.replace(population, inventory=inventory), Silent())
    for _ in range(2):  # the second reads what the first has noted
        analysis = daily_analysis.analyse(store, Settings(), FixedClock(end), Silent())
        daily_analysis.publish(analysis, store, Settings())
    assert len(store.read_table(WORKLOADS)) == len(inventory.workloads)
    subjects = [f.subject for f in analysis.findings if f.kind is FindingKind.UNSCHEDULABLE]
    assert subjects == [victim.ref]
    assert {r.container.workload for r in analysis.recommendations} == {w.ref for w in inventory.workloads}
