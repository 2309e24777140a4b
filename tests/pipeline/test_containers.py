"""Recommendations and findings: the same whether all workloads are judged at once or a few after another."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from cotenant.base.cluster import Container, OwnAmounts
from cotenant.base.identity import PodContainerRef
from cotenant.base.inventory.partial_inventory import without_over
from cotenant.base.progress import Silent
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.severity import Waste
from cotenant.base.store import Store
from cotenant.base.usage.sparse_usage import SparseUsage
from cotenant.base.usage.usage import Signal, TimeGrid
from cotenant.pipeline import stored_history
from cotenant.pipeline.analysis import History
from cotenant.pipeline.containers import assess, evidences
from cotenant.recommender.model.finding import FindingKind
from cotenant.recommender.model.recommendation import Action
from cotenant.recommender.model.savings import total_change
from cotenant.recommender.settings import FindingSettings, RecommenderSettings
from cotenant.settings import Settings
from cotenant_lab.simulation.demo import CLUSTER, fill
from cotenant_lab.synthetic import SyntheticSpec

EVERYTHING = 1_000_000
MOST = 12
ZEROED = (Signal.CPU_USAGE_MEAN, Signal.CPU_USAGE_MAX, Signal.MEMORY_WORKING_SET_MAX)
"""What a sandboxed runtime shows of a container: 0 everywhere."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    filled_store = Store(tmp_path_factory.mktemp("store").as_uri(), CLUSTER)
    fill(filled_store, SyntheticSpec(nodes=4, workloads=24, days=3, seed=11), Silent())
    return filled_store


@pytest.fixture(scope="module")
def history(store: Store) -> History:
    return stored_history.load(store, Settings())


@pytest.mark.parametrize("strategy", ["cotenant", "krr-simple", "vpa"])
def test_parts_say_the_same_as_the_whole(history: History, strategy: str) -> None:
    looser = FindingSettings(minimum_days=1, idle_pod_millicores=10_000)
    settings = Settings(recommender=RecommenderSettings(strategy=strategy, findings=looser))
    all_at_once = assess(history, settings, series_at_once=EVERYTHING)
    parts = assess(history, settings, series_at_once=MOST)
    assert len(all_at_once.recommendations) == sum(len(w.containers) for w in without_over(history.inventory).workloads)
    assert parts.recommendations == all_at_once.recommendations
    assert all_at_once.findings and parts.findings == all_at_once.findings


def test_waste_is_large_only_by_what_the_whole_cluster_requests(history: History) -> None:
    usual = assess(history, Settings()).recommendations
    assert any(recommendation.waste is Waste.LARGE for recommendation in usual)
    # of a million cores and an EiB nothing is a large share, in whichever part the pod that requests them is
    first, *others = history.inventory.pods
    giant = replace(first, end_seconds=None, requests={Resource.CPU: 10**9, Resource.MEMORY: 2**60})
    among = replace(history, inventory=replace(history.inventory, pods=(giant, *others)))
    for most in (EVERYTHING, MOST):
        recommendations = assess(among, Settings(), series_at_once=most).recommendations
        assert {recommendation.waste for recommendation in recommendations} == {Waste.NONE, Waste.SMALL, Waste.MEDIUM}


@pytest.mark.parametrize("strategy", ["cotenant", "krr-simple", "vpa"])
def test_nothing_falls_and_nothing_is_idle_where_usage_is_all_zeros(history: History, strategy: str) -> None:
    looser = FindingSettings(minimum_days=1, idle_pod_millicores=10_000)
    settings = Settings(recommender=RecommenderSettings(strategy=strategy, findings=looser))
    zeros = dict(history.usage)
    for signal in ZEROED:
        usage = zeros[signal]
        assert isinstance(usage, SparseUsage)
        zeros[signal] = replace(usage, cells=usage.cells * np.float32(0))
    results = assess(replace(history, usage=zeros), settings)
    values = [v for r in results.recommendations for v in r.values if v.action is not Action.WITHHELD]
    assert [v for v in values if v.change is None or v.change <= 0] == []
    assert [f for f in results.findings if f.kind is FindingKind.IDLE_WORKLOAD] == []


def test_nothing_is_proposed_freed_or_missed_beside_an_amount_of_the_pod_itself(history: History) -> None:
    """As of pods with spec.resources whose containers ask for no CPU."""
    own, settings = OwnAmounts({Resource.CPU: 8000}, {Resource.CPU: 8000}), Settings()
    bare = tuple(
        replace(w, own=own, autoscaler=None, containers=tuple(without_cpu(c) for c in w.containers))
        for w in history.inventory.workloads
    )
    before = assess(replace(history, inventory=replace(history.inventory, workloads=tuple(
        replace(w, own=OwnAmounts()) for w in bare))), settings)  # fmt: skip
    results = assess(replace(history, inventory=replace(history.inventory, workloads=bare)), settings)
    assert any(total_change(r, Resource.CPU) for r in before.recommendations)
    assert any("cpu" in str(f.evidence.get("missing")) for f in before.findings)
    of_cpu = [v for r in results.recommendations for v in r.values if v.resource is Resource.CPU]
    assert of_cpu and all(v.action is Action.WITHHELD for v in of_cpu)
    assert Reason.POD_AMOUNTS in {v.reason for v in of_cpu}
    assert not any(total_change(r, Resource.CPU) for r in results.recommendations)
    assert not any("cpu" in str(f.evidence.get("missing")) for f in results.findings)
    memory = [[v for v in r.values if v.resource is Resource.MEMORY] for r in results.recommendations]
    assert memory == [[v for v in r.values if v.resource is Resource.MEMORY] for r in before.recommendations]


def without_cpu(container: Container) -> Container:
    def memory(side: Mapping[Resource, int]) -> dict[Resource, int]:
        return {resource: amount for resource, amount in side.items() if resource is not Resource.CPU}

    return replace(container, requests=memory(container.requests), limits=memory(container.limits))


def test_means_stand_for_maxima_that_are_not_stored_of_any_day_or_of_the_last(store: Store, tmp_path: Path) -> None:
    source = Path(store.url.removeprefix("file://")) / CLUSTER
    means = store.read(Signal.CPU_USAGE_MEAN, stored_history.load(store, Settings()).window)
    maxima = replace(means, statistic=Signal.CPU_USAGE_MAX.spec.statistic)
    half = means.grid.size // 2
    grid = TimeGrid(means.grid.start_seconds, means.grid.step_seconds, half)
    stored = {"none": None, "all": maxima, "former": replace(maxima, grid=grid, values=maxima.values[:, :half])}
    results = {}
    for name, highest in stored.items():
        shutil.copytree(source, tmp_path / name / CLUSTER, ignore=shutil.ignore_patterns(Signal.CPU_USAGE_MAX.value))
        own_store = Store((tmp_path / name).as_uri(), CLUSTER)
        if highest is not None:
            own_store.append(Signal.CPU_USAGE_MAX, highest)
        history = stored_history.load(own_store, Settings())
        results[name] = assess(history, Settings())
        read, expected = history.usage[Signal.CPU_USAGE_MAX], history.usage[Signal.CPU_USAGE_MEAN]
        assert read.refs == expected.refs
        np.testing.assert_array_equal(read.rows(slice(None)), expected.rows(slice(None)))
    assert results["all"].recommendations
    for name in ("none", "former"):
        assert results[name].recommendations == results["all"].recommendations
        assert results[name].findings == results["all"].findings


def test_the_dense_usage_of_a_history_says_the_same(history: History) -> None:
    dense = replace(history, usage={signal: usage.dense() for signal, usage in history.usage.items()})
    results, of_dense = assess(history, Settings()), assess(dense, Settings())
    assert results.recommendations and of_dense.recommendations == results.recommendations
    assert of_dense.findings == results.findings


def test_no_part_is_larger_than_was_asked_for_unless_one_workload_is(history: History) -> None:
    parts = list(evidences(history, Settings(), None, MOST))
    assert len(parts) > 1
    for part in parts:
        series = max(len(usage.refs) for usage in part.usage.values())
        assert series <= MOST or len({w.ref for w in part.workloads}) == 1
    containers = [container for part in parts for container in part.containers]
    in_order = [(w.ref, c.name) for w in history.inventory.workloads for c in w.containers]
    assert [(c.workload, c.container) for c in containers] == in_order


def test_the_store_gives_the_same_series_sparse_and_dense(store: Store, history: History) -> None:
    for signal, usage in history.usage.items():
        assert isinstance(usage, SparseUsage)
        dense = store.read(signal, usage.grid)
        assert usage.refs == dense.refs
        assert usage.dense().values.tobytes() == dense.values.tobytes()
    cpu = history.usage[Signal.CPU_USAGE_MEAN]
    assert isinstance(cpu, SparseUsage) and isinstance(cpu.refs[0], PodContainerRef)
    assert cpu.cells.size < len(cpu.refs) * cpu.grid.size  # pods came and went


def test_signals_of_the_same_series_share_their_names(history: History) -> None:
    of_signals = [usage.refs for usage in history.usage.values()]
    shared = [(refs, other) for refs, other in combinations(of_signals, 2) if refs == other]
    assert shared and all(refs is other for refs, other in shared)
