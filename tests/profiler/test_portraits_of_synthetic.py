"""From a generated cluster to totals and portraits: sums agree and the pattern that was generated is found."""

from __future__ import annotations

import numpy as np
import pytest

from cotenant.base.identity import WorkloadRef
from cotenant.base.usage.portrait import Pattern, Portraits
from cotenant.base.usage.usage import Signal, Usage
from cotenant.profiler.pool import by_cluster, by_container, by_workload, demand, total
from cotenant.profiler.portrait import build
from cotenant.profiler.settings import PortraitSettings
from cotenant_lab.synthetic import Shape, SyntheticCluster, SyntheticSpec, generate

SETTINGS = PortraitSettings()


@pytest.fixture(scope="module")
def cluster() -> SyntheticCluster:
    return generate(SyntheticSpec(nodes=8, workloads=120, days=14, seed=3))


@pytest.fixture(scope="module")
def workloads(cluster: SyntheticCluster) -> Usage[WorkloadRef]:
    usage = cluster.usage[Signal.CPU_USAGE_MEAN]
    return total(usage, by_workload(usage.refs, cluster.inventory))


@pytest.fixture(scope="module")
def portraits(workloads: Usage[WorkloadRef]) -> Portraits[WorkloadRef]:
    return build(workloads.refs, np.arange(len(workloads.refs)), workloads, SETTINGS)


def test_a_total_is_at_least_the_plain_sum_and_equal_where_nobody_is_silent(
    cluster: SyntheticCluster, workloads: Usage[WorkloadRef]
) -> None:
    usage = cluster.usage[Signal.CPU_USAGE_MEAN]
    members = by_workload(usage.refs, cluster.inventory)
    plain = np.zeros(workloads.values.shape)
    np.add.at(plain, members.rows, np.nan_to_num(usage.values).astype(np.float64))
    measured = ~np.isnan(workloads.values)
    assert (workloads.values[measured] >= plain[measured] * (1 - 1e-5)).all()
    # Stand-ins fill single missed scrapes and the last hour of pods that vanished: a small part of all use.
    assert workloads.values[measured].sum() < 1.05 * plain[measured].sum()


def test_an_outage_of_the_whole_cluster_is_a_gap_in_its_total(cluster: SyntheticCluster) -> None:
    usage = cluster.usage[Signal.CPU_USAGE_MEAN]
    cluster_total = total(usage, by_cluster(usage.refs, cluster.inventory))
    silent = np.isnan(usage.values).all(axis=0)
    assert silent.any()
    assert np.isnan(cluster_total.values[0, silent]).all()
    assert not np.isnan(cluster_total.values[0, ~silent]).any()


def test_the_generated_shape_is_found_again(cluster: SyntheticCluster, portraits: Portraits[WorkloadRef]) -> None:
    patterns = dict(zip(portraits.refs, portraits.pattern, strict=True))
    busy = {ref for ref, mean in zip(portraits.refs, portraits.mean, strict=True) if mean > 50}
    seasonal = [ref for ref in busy if cluster.truth.shape[ref] in {Shape.DAILY, Shape.WEEKLY}]
    right = [patterns[ref] in {Pattern.DAILY, Pattern.WEEKLY} for ref in seasonal]
    assert len(right) >= 10
    assert np.mean(right) >= 0.8


def test_demand_is_never_below_usage_and_portraits_hold_their_bounds(cluster: SyntheticCluster) -> None:
    usage = cluster.usage[Signal.CPU_USAGE_MEAN]
    demanded = demand(usage, cluster.usage[Signal.CPU_THROTTLED_MEAN])
    measured = ~np.isnan(usage.values)
    assert (demanded.values[measured] >= usage.values[measured]).all()
    members = by_container(demanded.refs, cluster.inventory)
    built = build(members.refs, members.rows, demanded, SETTINGS, members.start_seconds)
    values = built.samples > 0
    assert (built.mean[values] <= built.maximum[values]).all()
    assert (built.coverage[values] > 0).all()
    assert (built.coverage <= 1).all()
    # Every sample is either steady or start-up.
    assert built.samples.sum() + built.startup_samples.sum() == measured.sum()
