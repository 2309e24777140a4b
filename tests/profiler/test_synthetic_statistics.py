from __future__ import annotations

import time

import numpy as np
import pytest

from cotenant.base.resource import Resource
from cotenant.base.usage.usage import Signal
from cotenant_lab.synthetic import SyntheticCluster, SyntheticSpec, generate

# Bands: quartiles of published VM traces (GWA-T-12 "rnd", Azure 2017) as `bench synthetic_calibration` finds them.


@pytest.fixture(scope="module")
def cluster() -> SyntheticCluster:
    return generate(SyntheticSpec(nodes=20, workloads=300, days=14, seed=2))


def long_series(cluster: SyntheticCluster, signal: Signal) -> np.ndarray:
    values: np.ndarray = cluster.usage[signal].values
    gapless: np.ndarray = values[np.isfinite(values).mean(axis=1) > 0.95]
    return gapless


def requested(cluster: SyntheticCluster, kind: Resource) -> float:
    running = (pod for pod in cluster.inventory.pods if pod.running)
    allocatable = sum(node.allocatable[kind] for node in cluster.inventory.nodes)
    return sum(pod.requests.get(kind, 0) for pod in running) / allocatable


def used(cluster: SyntheticCluster, kind: Resource) -> float:
    signal = Signal.NODE_CPU_USAGE_MEAN if kind is Resource.CPU else Signal.NODE_MEMORY_WORKING_SET_MAX
    allocatable = sum(node.allocatable[kind] for node in cluster.inventory.nodes)
    return float(np.nanmean(cluster.usage[signal].values, axis=1).sum()) / allocatable


def test_the_cluster_requests_and_uses_the_shares_of_its_spec(cluster: SyntheticCluster) -> None:
    spec = cluster.spec
    assert requested(cluster, Resource.CPU) == pytest.approx(spec.cpu_requested, abs=0.03)
    assert used(cluster, Resource.CPU) == pytest.approx(spec.cpu_used, abs=0.03)
    assert requested(cluster, Resource.MEMORY) == pytest.approx(spec.memory_requested, abs=0.03)
    assert used(cluster, Resource.MEMORY) == pytest.approx(spec.memory_used, abs=0.03)


def test_other_shares_can_be_asked_for() -> None:
    cluster = generate(SyntheticSpec(nodes=20, workloads=300, days=3, cpu_requested=0.6, cpu_used=0.15))
    assert requested(cluster, Resource.CPU) == pytest.approx(0.6, abs=0.03)
    assert used(cluster, Resource.CPU) == pytest.approx(0.15, abs=0.03)


def test_tails_are_as_heavy_as_in_traces(cluster: SyntheticCluster) -> None:
    values = long_series(cluster, Signal.CPU_USAGE_MEAN)
    ratio = np.nanpercentile(values, 95, axis=1) / np.nanmean(values, axis=1)
    assert 1.5 < np.median(ratio) < 2.6


def test_a_third_of_the_series_has_a_clear_day(cluster: SyntheticCluster) -> None:
    values = long_series(cluster, Signal.CPU_USAGE_MEAN)
    filled = np.where(np.isnan(values), np.nanmean(values, axis=1, keepdims=True), values)
    hours = filled.reshape(len(values), -1, 12).mean(axis=2)
    hours -= hours.mean(axis=1, keepdims=True)
    acf = (hours[:, 24:] * hours[:, :-24]).mean(axis=1) / (hours**2).mean(axis=1)
    assert 0.05 < np.median(acf) < 0.5
    assert 0.2 < (acf > 0.5).mean() < 0.5


def test_many_containers_do_nearly_nothing(cluster: SyntheticCluster) -> None:
    usage = cluster.usage[Signal.CPU_USAGE_MEAN]
    limit = cluster.usage[Signal.CPU_LIMIT]
    rows = {ref: i for i, ref in enumerate(usage.refs)}
    mean = np.nanmean(usage.values[[rows[ref] for ref in limit.refs]], axis=1)
    share = mean / np.nanmax(limit.values, axis=1)
    assert 0.1 < np.nanmean(share < 0.005) < 0.5
    assert 0.0 < np.nanmedian(share) < 0.12


@pytest.mark.slow
def test_the_demo_cluster_has_the_announced_size_and_is_made_in_time() -> None:
    began = time.process_time()
    cluster = generate(SyntheticSpec())
    assert time.process_time() - began < 60
    templates = {workload.ref: len(workload.containers) for workload in cluster.inventory.workloads}
    containers = sum(templates[pod.workload] for pod in cluster.inventory.pods if pod.running)
    assert 1400 <= containers <= 1700
    usage = cluster.usage[Signal.NODE_CPU_USAGE_MEAN]
    hour = (usage.grid.times() // 3600) % 24
    total = np.nansum(usage.values, axis=0)
    by_hour = [total[hour == h].mean() for h in range(24)]
    assert int(np.argmax(by_hour)) in (17, 18)
