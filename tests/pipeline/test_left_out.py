"""A workload on which the analysis fails is a row with a reason, and all others have what they have without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cotenant.base.cluster import Inventory, Workload
from cotenant.base.identity import NodeRef, WorkloadRef
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.store import Store
from cotenant.forecasting.settings import ForecastingSettings
from cotenant.pipeline import daily_analysis
from cotenant.pipeline.nodes import node_explanations
from cotenant.pipeline.shards import isolation, plan, work
from cotenant.pipeline.shards.executors import Here
from cotenant.pipeline.shards.plan import ShardSize
from cotenant.pipeline.shards.work import ShardResult, ShardTask
from cotenant.pipeline.stored_history import load_node_history
from cotenant.recommender.model.views import NODES
from cotenant.settings import Settings
from cotenant_lab.synthetic import SyntheticSpec, generate

pytestmark = pytest.mark.slow

SPEC = SyntheticSpec(nodes=2, workloads=8, days=2, seed=11)
QUICK = Settings(forecasting=ForecastingSettings(booster_rows=0, origins=1))
BEYOND = 10**400
"""More than any number of the machine: whatever adds, divides or stores it raises."""


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> ShardTask:
    folder: Path = tmp_path_factory.mktemp("store")
    store, cluster = Store(str(folder), "demo"), generate(SPEC)
    for signal, usage in cluster.usage.items():
        store.append(signal, usage)
    store.write_inventory(cluster.inventory)
    history = load_node_history(store, QUICK)
    inventory = history.inventory
    (shard,) = plan.shards(inventory, plan.divide(inventory, None, ShardSize()))
    return ShardTask(str(folder), "demo", QUICK, shard, replace(history, usage={}, node_usage={}))


def _with(task: ShardTask, hostile: frozenset[WorkloadRef]) -> ShardTask:
    """The task with these workloads' first container asking for more than any number."""

    def changed(workload: Workload) -> Workload:
        if workload.ref not in hostile:
            return workload
        first, *others = workload.containers
        asking: Mapping[Resource, int] = {Resource.CPU: 100, Resource.MEMORY: BEYOND}
        return replace(workload, containers=(replace(first, requests=asking), *others))

    inventory = task.shard.inventory
    changed_inventory = replace(inventory, workloads=tuple(changed(w) for w in inventory.workloads))
    return replace(task, shard=replace(task.shard, inventory=changed_inventory))


def _values(result: ShardResult) -> dict[str, list[tuple[str, str, object]]]:
    return {
        str(r.container): [(v.resource.value, v.reason.value, v.amount) for v in r.values]
        for r in result.container_results.recommendations
    }


def test_workloads_that_cannot_be_analysed_are_rows_with_a_reason_and_no_one_elses_failure(task: ShardTask) -> None:
    refs = [w.ref for w in task.shard.inventory.workloads]
    hostile = frozenset({refs[1], refs[4]})
    with pytest.raises((OverflowError, ValueError, TypeError)):
        work.compute(_with(task, hostile))
    result, undisturbed = isolation.compute(_with(task, hostile)), isolation.compute(task)
    assert (result.failed, undisturbed.failed) == (hostile, frozenset())
    values, usual = _values(result), _values(undisturbed)
    assert values.keys() == usual.keys()
    of_hostile = {c for c in usual if any(c.startswith(f"{ref}/") for ref in hostile)}
    assert of_hostile
    for container in of_hostile:
        assert {(reason, proposed) for _, reason, proposed in values[container]} == {(Reason.FAILED.value, None)}
    # what is proposed for the others does not rest on these two
    proposed = {c: [v[2] is None for v in values[c]] for c in values.keys() - of_hostile}
    assert proposed == {c: [v[2] is None for v in usual[c]] for c in usual.keys() - of_hostile}
    assert set(result.workloads.refs) == set(refs)


def _beyond(inventory: Inventory) -> Inventory:
    """The inventory with a node of which no number can hold the memory."""
    amounts = {Resource.CPU: 1000, Resource.MEMORY: BEYOND}
    return replace(inventory, nodes=(replace(inventory.nodes[0], capacity=amounts), *inventory.nodes[1:]))


def test_a_node_that_cannot_be_computed_costs_no_workload_its_results(task: ShardTask) -> None:
    beyond = replace(task, shard=replace(task.shard, inventory=_beyond(task.shard.inventory)))
    with pytest.raises((OverflowError, ValueError, TypeError)):
        work.compute(beyond)
    assert _values(isolation.compute(beyond)).keys() == _values(isolation.compute(task)).keys()


def test_a_failure_that_neither_workload_nor_node_causes_is_raised_as_it_is(task: ShardTask) -> None:
    broken: Any = None  # where the window's grid is to be
    with pytest.raises(AttributeError):
        isolation.compute(replace(task, history=replace(task.history, window=broken)))


def test_an_analysis_beside_a_node_that_cannot_be_computed_has_all_others(task: ShardTask) -> None:
    store = Store(task.url, "demo")
    history = load_node_history(store, QUICK)
    run = daily_analysis._Run(store, QUICK, Here(), Silent(), history.inventory.time_seconds)
    division = plan.divide(history.inventory, None, ShardSize())
    merger = run.merged(history, run.tasks(history, plan.shards(history.inventory, division), None))
    beyond = replace(history, inventory=_beyond(history.inventory))
    with pytest.raises((OverflowError, ValueError, TypeError)):
        run.analysis(beyond, merger, division)
    analysis = run.analysis_without_failing(beyond, merger, division)
    undisturbed = run.analysis(history, merger, division)
    bad = NodeRef(history.inventory.nodes[0].name)
    lent, usual = (
        {(r.node, r.resource, r.band): r.amount for r in of.reclaimable if r.node != bad.name}
        for of in (analysis, undisturbed)
    )
    assert lent == usual and lent


def test_results_are_published_beside_nodes_of_which_nothing_can_be_said(task: ShardTask) -> None:
    store = Store(task.url, "demo")
    analysis = daily_analysis.analyse(store, QUICK, FixedClock(task.shard.inventory.time_seconds), Silent())
    first, second = analysis.history.inventory.nodes
    no_map: Any = 7  # where a node's annotations are to be
    inventory = replace(analysis.history.inventory, nodes=(replace(first, annotations=no_map), second))
    bad = replace(analysis, history=replace(analysis.history, inventory=inventory))
    with pytest.raises(AttributeError):
        node_explanations.write(store, bad, QUICK.recommender.reclaimable)
    daily_analysis.publish(bad, store, QUICK)
    rows = {row["node"]: row for row in store.read_table(NODES).rows()}
    amounts = rows[first.name]["cpu_allocatable"], rows[second.name]["cpu_allocatable"]
    assert amounts == (None, second.allocatable[Resource.CPU])  # what is not known is no zero
    assert node_explanations.of_node(store, second.name).node == second.name
