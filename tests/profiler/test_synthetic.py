from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cotenant.base.cluster import ContainerRole, EventKind
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import DAY_SECONDS, Signal, Usage
from cotenant_lab.synthetic import MemoryShape, Shape, SyntheticCluster, SyntheticSpec, generate

SPEC = SyntheticSpec(nodes=20, workloads=300, days=28, seed=11)
CHECKOUT = WorkloadRef("pay", "Deployment", "checkout")
SMALL = st.builds(
    SyntheticSpec,
    nodes=st.integers(1, 6),
    workloads=st.integers(1, 40),
    days=st.integers(1, 4),
    seed=st.integers(0, 2**32),
    end_seconds=st.integers(1_600_000_000, 1_900_000_000),
)


@pytest.fixture(scope="module")
def cluster() -> SyntheticCluster:
    return generate(SPEC)


def rows(usage: Usage[Any]) -> Iterator[tuple[Any, np.ndarray]]:
    return zip(usage.refs, usage.values, strict=True)


def row(cluster: SyntheticCluster, signal: Signal, ref: object) -> np.ndarray:
    usage = cluster.usage[signal]
    values: np.ndarray = usage.values[usage.refs.index(ref)]
    return values


def test_the_same_seed_gives_the_same_bytes() -> None:
    spec = SyntheticSpec(nodes=3, workloads=40, days=3, seed=5)
    synthetic_cluster, two = generate(spec), generate(spec)
    assert synthetic_cluster.inventory == two.inventory
    assert synthetic_cluster.truth == two.truth
    assert all(
        synthetic_cluster.usage[s].values.tobytes() == two.usage[s].values.tobytes() for s in synthetic_cluster.usage
    )
    assert all(synthetic_cluster.usage[s].refs == two.usage[s].refs for s in synthetic_cluster.usage)


def test_another_seed_gives_another_cluster() -> None:
    synthetic_cluster, two = (generate(SyntheticSpec(nodes=3, workloads=40, days=3, seed=seed)) for seed in (5, 6))
    assert synthetic_cluster.inventory.workloads != two.inventory.workloads
    means = [cluster.usage[Signal.NODE_CPU_USAGE_MEAN].values for cluster in (synthetic_cluster, two)]
    assert not np.array_equal(means[0], means[1], equal_nan=True)


@pytest.mark.slow
def test_every_signal_but_pressure_is_there_with_its_own_grid_and_sorted_rows(cluster: SyntheticCluster) -> None:
    assert set(cluster.usage) == {s for s in Signal if s is not Signal.CPU_PRESSURE_MEAN and not s.startswith("gpu")}
    for signal, usage in cluster.usage.items():
        assert usage.grid.step_seconds == signal.spec.step_seconds
        assert (usage.resource, usage.statistic) == (signal.spec.resource, signal.spec.statistic)
        assert usage.grid.end_seconds == cluster.inventory.time_seconds
        assert list(usage.refs) == sorted(set(usage.refs))
        assert usage.values.dtype == np.float32


def test_every_kind_class_and_shape_occurs(cluster: SyntheticCluster) -> None:
    workloads = cluster.inventory.workloads
    assert {w.ref.kind for w in workloads} == {"Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob", "Pod"}
    assert {w.qos for w in workloads} == {
        QosClass.LSR, QosClass.LS, QosClass.BE, QosClass.SYSTEM, QosClass.NONE,
    }  # fmt: skip
    assert {w.priority for w in workloads} == set(PriorityClass)
    assert set(cluster.truth.shape.values()) == set(Shape)
    assert set(cluster.truth.memory.values()) == set(MemoryShape)
    assert any(w.autoscaler for w in workloads)
    assert any(not c.requests for w in workloads for c in w.containers)
    assert any(len(w.containers) == 2 for w in workloads)
    assert len(workloads) == SPEC.workloads
    assert len({w.ref for w in workloads}) == SPEC.workloads


def test_requests_fit_the_nodes_at_every_moment(cluster: SyntheticCluster) -> None:
    allocatable = {node.name: node.allocatable for node in cluster.inventory.nodes}
    for resource in Resource:
        changes = sorted(
            change
            for pod in cluster.inventory.pods
            for change in (
                (pod.start_seconds, pod.node, pod.requests.get(resource, 0)),
                (pod.end_seconds or cluster.inventory.time_seconds + 1, pod.node, -pod.requests.get(resource, 0)),
            )
        )
        # At one moment the pods that end (negative changes) free their room before others start.
        changes.sort(key=lambda change: (change[0], change[2]))
        requested = dict.fromkeys(allocatable, 0)
        for _, node, amount in changes:
            requested[node] += amount
            assert requested[node] <= allocatable[node][resource]


def test_a_node_never_uses_more_than_it_has(cluster: SyntheticCluster) -> None:
    signals = {Resource.CPU: Signal.NODE_CPU_USAGE_MEAN, Resource.MEMORY: Signal.NODE_MEMORY_WORKING_SET_MAX}
    for resource, signal in signals.items():
        capacity = {node.name: node.capacity[resource] for node in cluster.inventory.nodes}
        assert all(np.nanmax(values) < capacity[ref.name] for ref, values in rows(cluster.usage[signal]))


def test_a_node_uses_what_its_pods_use_and_a_little_more(cluster: SyntheticCluster) -> None:
    node = {(pod.namespace, pod.name): pod.node for pod in cluster.inventory.pods}
    totals = {n.name: np.zeros(SPEC.grid.size) for n in cluster.inventory.nodes}
    for ref, values in rows(cluster.usage[Signal.CPU_USAGE_MEAN]):
        totals[node[ref.namespace, ref.pod]] += np.nan_to_num(values)
    for ref, values in rows(cluster.usage[Signal.NODE_CPU_USAGE_MEAN]):
        measured = ~np.isnan(values)
        system = (values - totals[ref.name])[measured]
        # 1.5 % of 16 to 64 cores plus 80 m, times log-normal noise of 8 %: 0.32 to 1.04 cores, give or take a third.
        assert system.min() > 200
        assert system.max() < 1500


def test_usage_stays_under_limits_and_the_mean_under_the_maximum(cluster: SyntheticCluster) -> None:
    for limit, signal in (
        (Signal.CPU_LIMIT, Signal.CPU_USAGE_MAX),
        (Signal.MEMORY_LIMIT, Signal.MEMORY_WORKING_SET_MAX),
    ):
        limits = {ref: np.nanmax(values) for ref, values in rows(cluster.usage[limit])}
        used = {ref: np.nanmax(values) for ref, values in rows(cluster.usage[signal]) if np.isfinite(values).any()}
        assert all(used[ref] <= limits[ref] * 1.0001 for ref in used.keys() & limits.keys())
    mean, top = (cluster.usage[s].values for s in (Signal.CPU_USAGE_MEAN, Signal.CPU_USAGE_MAX))
    assert (np.isnan(mean) == np.isnan(top)).all()
    assert np.nanmax(mean - top) <= 0


def test_only_containers_with_a_cpu_limit_are_throttled(cluster: SyntheticCluster) -> None:
    throttled = cluster.usage[Signal.CPU_THROTTLED_MEAN]
    assert set(throttled.refs) == set(cluster.usage[Signal.CPU_LIMIT].refs)
    assert np.nanmin(throttled.values) == 0
    assert np.nanmax(throttled.values) > 100


def test_usage_is_known_only_while_a_pod_lives(cluster: SyntheticCluster) -> None:
    pods = {(pod.namespace, pod.name): pod for pod in cluster.inventory.pods}
    assert any(pod.end_seconds for pod in pods.values())
    for ref, values in rows(cluster.usage[Signal.CPU_USAGE_MEAN]):
        pod, grid = pods[ref.namespace, ref.pod], SPEC.grid
        measured = grid.times()[~np.isnan(values)]
        end = grid.end_seconds if pod.end_seconds is None else pod.end_seconds
        assert end <= grid.end_seconds
        assert measured.size == 0 or (measured[0] >= pod.start_seconds and measured[-1] < end)


def test_a_workload_counts_its_running_pods(cluster: SyntheticCluster) -> None:
    running = [pod.workload for pod in cluster.inventory.pods if pod.running]
    assert all(workload.replicas == running.count(workload.ref) for workload in cluster.inventory.workloads)


def test_a_deployments_pods_change_with_a_deploy(cluster: SyntheticCluster) -> None:
    (deploy,) = (
        e
        for e in cluster.inventory.events
        if e.kind is EventKind.DEPLOY and (e.subject.namespace, e.subject.pod[:9]) == ("pay", "checkout-")
        and cluster.inventory.owners()[e.subject.namespace, e.subject.pod] == CHECKOUT
    )  # fmt: skip
    pods = [pod for pod in cluster.inventory.pods if pod.workload == CHECKOUT]
    old = {pod.name.split("-")[1] for pod in pods if pod.end_seconds == deploy.time_seconds}
    new = {pod.name.split("-")[1] for pod in pods if pod.start_seconds == deploy.time_seconds}
    assert len(old) == len(new) == 1
    assert old.isdisjoint(new)


def test_a_kill_comes_at_the_limit_and_frees_memory(cluster: SyntheticCluster) -> None:
    memory = cluster.usage[Signal.MEMORY_WORKING_SET_MAX]
    limits = {ref: np.nanmax(values) for ref, values in rows(cluster.usage[Signal.MEMORY_LIMIT])}
    kills = [e for e in cluster.inventory.events if e.kind is EventKind.OOM_KILL]
    freed = 0
    for kill in kills:
        slot = memory.grid.index_of(kill.time_seconds)
        before, after = row(cluster, Signal.MEMORY_WORKING_SET_MAX, kill.subject)[slot - 1 : slot + 1]
        if not np.isnan(before + after):
            freed += 1
            limit = kill.memory_limit_bytes or limits.get(kill.subject)
            assert limit is None or before >= 0.99 * limit
            assert after < 0.93 * before
    assert freed > len(kills) / 2 > 2


def test_counters_of_kills_and_restarts_are_the_events(cluster: SyntheticCluster) -> None:
    for signal, kind in ((Signal.OOM_KILLS, EventKind.OOM_KILL), (Signal.RESTARTS, EventKind.RESTART)):
        events = [e for e in cluster.inventory.events if e.kind is kind]
        assert np.nansum(cluster.usage[signal].values) == len(events) > 0
        for event in events[:50]:
            hour = cluster.usage[signal].grid.index_of(event.time_seconds)
            assert row(cluster, signal, event.subject)[hour] >= 1


def test_checkout_is_killed_on_day_nine_and_has_a_weekly_pattern(cluster: SyntheticCluster) -> None:
    owners = cluster.inventory.owners()
    kills = [
        e
        for e in cluster.inventory.events
        if e.kind is EventKind.OOM_KILL and owners[e.subject.namespace, e.subject.pod] == CHECKOUT
    ]
    assert {(e.time_seconds - SPEC.grid.start_seconds) // DAY_SECONDS for e in kills} == {9}
    total = np.zeros(SPEC.grid.size)
    for ref, values in rows(cluster.usage[Signal.CPU_USAGE_MEAN]):
        if owners[ref.namespace, ref.pod] == CHECKOUT and ref.container == "app":
            total += np.nan_to_num(values)
    days = total[-27 * 288 :].reshape(27, 288).mean(axis=1)
    weekday = (SPEC.grid.times()[-27 * 288 :: 288] // DAY_SECONDS + 3) % 7
    assert days[weekday >= 5].mean() > 1.2 * days[weekday < 4].mean()


def test_an_autoscaled_workload_changes_its_replicas_within_its_bounds(cluster: SyntheticCluster) -> None:
    moving = 0
    for workload in cluster.inventory.workloads:
        if workload.autoscaler is None:
            continue
        alive = np.zeros(SPEC.grid.size, dtype=int)
        for pod in cluster.inventory.pods:
            if pod.workload == workload.ref:
                end = SPEC.grid.size if pod.end_seconds is None else SPEC.grid.index_of(pod.end_seconds)
                alive[max(SPEC.grid.index_of(pod.start_seconds), 0) : end] += 1
        moving += len(set(alive[alive > 0])) > 1
        assert alive.max() <= workload.autoscaler.max_replicas
    assert moving >= 1


def test_an_outage_is_a_gap_in_every_series(cluster: SyntheticCluster) -> None:
    assert cluster.truth.outages
    grid = SPEC.grid
    for start, end in cluster.truth.outages:
        slots = slice(grid.index_of(start), grid.index_of(end))
        for signal in (Signal.CPU_USAGE_MEAN, Signal.MEMORY_WORKING_SET_MAX, Signal.NODE_CPU_USAGE_MEAN):
            assert np.isnan(cluster.usage[signal].values[:, slots]).all()


def test_a_spec_without_anything_in_it_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        SyntheticSpec(nodes=0)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SMALL)
def test_any_small_spec_gives_a_consistent_cluster(spec: SyntheticSpec) -> None:
    cluster = generate(spec)
    assert len(cluster.inventory.workloads) == spec.workloads
    assert len(cluster.inventory.nodes) == spec.nodes
    owners = cluster.inventory.owners()
    assert len(owners) == len(cluster.inventory.pods)
    workload_refs = {workload.ref for workload in cluster.inventory.workloads}
    assert set(owners.values()) <= workload_refs
    free = {n.name: dict(n.allocatable) for n in cluster.inventory.nodes}
    for pod in cluster.inventory.pods:
        for resource, amount in pod.requests.items() if pod.running else ():
            free[pod.node][resource] -= amount
    assert min(min(free_of_node.values()) for free_of_node in free.values()) >= 0
    for signal, usage in cluster.usage.items():
        assert not (usage.values < 0).any()
        assert not np.isinf(usage.values).any()
        if not signal.spec.per_node:
            assert all((ref.namespace, ref.pod) in owners for ref in usage.refs)


def test_every_role_of_a_container_occurs_and_only_those_that_stay_use_anything(cluster: SyntheticCluster) -> None:
    roles = {(w.ref, c.name): c.role for w in cluster.inventory.workloads for c in w.containers}
    assert set(roles.values()) == set(ContainerRole)
    owners = cluster.inventory.owners()
    used = {roles[owners[r.namespace, r.pod], r.container] for r in cluster.usage[Signal.CPU_USAGE_MEAN].refs}
    assert used == set(ContainerRole) - {ContainerRole.INIT}
    injected = {ref.namespace for (ref, _), role in roles.items() if role is ContainerRole.INJECTED}
    assert injected == {"shop"}
    assert roles[WorkloadRef("pay", "Deployment", "checkout"), "istio-proxy"] is ContainerRole.SIDECAR


def test_what_runs_keeps_the_bounds_of_its_namespace(cluster: SyntheticCluster) -> None:
    inventory = cluster.inventory
    assert {bounds.namespace for bounds in inventory.limit_ranges} == {"pay", "shop"}
    for bounds in inventory.limit_ranges:
        resource = bounds.resource
        inside = [c for w in inventory.workloads if w.ref.namespace == bounds.namespace for c in w.containers]
        assert inside
        for c in inside:
            assert bounds.minimum is not None and c.requests[resource] >= bounds.minimum
            if bounds.maximum is not None:
                assert bounds.max_ratio is not None
                assert c.limits[resource] <= bounds.maximum
                assert c.limits[resource] <= bounds.max_ratio * c.requests[resource]


def test_a_quota_counts_the_pods_that_run_and_has_a_tenth_left(cluster: SyntheticCluster) -> None:
    inventory = cluster.inventory
    quotas = [q for q in inventory.quotas if not q.of_limits]
    assert {(q.namespace, q.resource) for q in quotas} == {(n, r) for n in ("pay", "shop") for r in Resource}
    for quota in quotas:
        running = [p for p in inventory.pods if p.running and p.namespace == quota.namespace]
        assert quota.used == sum(p.requests.get(quota.resource, 0) for p in running)
        assert 1.1 * quota.used - 1 <= quota.hard


def test_a_few_workloads_are_annotated_and_the_server_has_a_version(cluster: SyntheticCluster) -> None:
    profiles = [w.annotations["cotenant.dev/profile"] for w in cluster.inventory.workloads if w.annotations]
    assert set(profiles) == {"conservative", "aggressive"}
    assert len(profiles) < 0.1 * len(cluster.inventory.workloads)
    assert cluster.inventory.server_version == "1.35.4"
