"""What people declared, through a real Prometheus: written as kube-state-metrics does, scraped, asked, found again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cotenant.base.cluster import ContainerRole, Inventory, Pod, Workload, pod_amount
from cotenant.base.identity import PodContainerRef
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import DAY_SECONDS, Signal, TimeGrid, TimeWindow
from cotenant.profiler.prometheus import PrometheusSource
from cotenant_lab.synthetic import SyntheticSpec, generate
from tests.profiler.conftest import Served, profiler_settings, pulled, serve, store_in
from tests.support.faultproxy import FaultProxy
from tests.support.openmetrics import Dress

pytestmark = [pytest.mark.slow, pytest.mark.prometheus]


@pytest.fixture(scope="module")
def declared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A cluster large enough for every role, and its server."""
    cluster = generate(SyntheticSpec(nodes=12, workloads=160, days=1, seed=4))
    dress = Dress(interval_seconds=300, noise=False)
    with serve(cluster, tmp_path_factory.mktemp("declared"), dress) as server:
        yield Served(cluster, server)


@pytest.fixture(scope="module")
def read_inventory(declared: Served) -> Inventory:
    """The inventory as the source gives it, before anything is stored."""
    return inventory_from(declared, declared.server.url)


def inventory_from(declared: Served, url: str) -> Inventory:
    source = PrometheusSource(profiler_settings(url).prometheus, declared.cluster.inventory.cluster)
    try:
        return source.inventory(declared.end - 1, TimeWindow(declared.end - 7200, declared.end))
    finally:
        source.close()


def as_metrics_show(workload: Workload) -> Workload:
    """Without what kube-state-metrics has no words for: who injected a container."""
    roles = {ContainerRole.INJECTED: ContainerRole.MAIN}
    return replace(
        workload,
        containers=tuple(replace(c, role=roles.get(c.role, c.role)) for c in workload.containers),
    )


def test_every_role_bound_and_annotation_occurs_in_the_cluster(declared: Served) -> None:
    truth = declared.cluster.inventory
    running = [w for w in truth.workloads if w.replicas]
    assert {c.role for w in running for c in w.containers} == set(ContainerRole)
    assert {r.namespace for r in truth.limit_ranges} == {q.namespace for q in truth.quotas} == {"pay", "shop"}
    assert sum(bool(w.annotations) for w in running) >= 2


def test_the_workloads_that_run_are_found_with_all_their_containers(
    declared: Served, read_inventory: Inventory
) -> None:
    truth = {w.ref: as_metrics_show(w) for w in declared.cluster.inventory.workloads if w.replicas}
    ours = {w.ref: w for w in read_inventory.workloads if w.replicas}
    assert set(ours) == set(truth)
    for ref, workload in ours.items():
        assert workload.containers == truth[ref].containers
        assert (workload.replicas, workload.autoscaler) == (truth[ref].replicas, truth[ref].autoscaler)
        assert workload.annotations == truth[ref].annotations


def test_bounds_nodes_and_version_are_found_as_they_are(declared: Served, read_inventory: Inventory) -> None:
    truth = declared.cluster.inventory
    assert read_inventory.limit_ranges == truth.limit_ranges
    assert sorted(read_inventory.quotas, key=str) == sorted(truth.quotas, key=str)
    assert read_inventory.nodes == truth.nodes
    assert read_inventory.server_version == truth.server_version == "1.35.4"


def test_a_running_pod_requests_what_the_scheduler_counts(declared: Served, read_inventory: Inventory) -> None:
    def running(inventory: Inventory) -> dict[tuple[str, str], Pod]:
        return {(p.namespace, p.name): p for p in inventory.pods if p.running}

    truth, ours = running(declared.cluster.inventory), running(read_inventory)
    assert set(ours) == set(truth)
    containers = {workload.ref: workload.containers for workload in declared.cluster.inventory.workloads}

    def counted(pod: Pod) -> dict[Resource, int]:
        """Of a resource that no container requests the API server counts the limits."""
        limits = {r: pod_amount(containers[pod.workload], r) for r in Resource if r not in pod.requests}
        return {**{r: amount for r, amount in limits.items() if amount}, **pod.requests}

    assert {name: pod.requests for name, pod in ours.items()} == {name: counted(pod) for name, pod in truth.items()}


def test_history_holds_what_sidecars_request_and_not_what_only_starts_a_pod(declared: Served, tmp_path: Path) -> None:
    store = store_in(tmp_path)
    pulled(store, declared.end, profiler_settings(declared.server.url))
    grid = TimeGrid.from_span(declared.end - DAY_SECONDS, declared.end, 3600)
    for signal in (Signal.CPU_REQUEST, Signal.MEMORY_LIMIT):
        truth, ours = declared.cluster.usage[signal], store.read(signal, grid)
        last_requests = {ref: values[-1] for ref, values in zip(ours.refs, ours.values, strict=True) if values[-1] > 0}
        meant = {ref: values[-1] for ref, values in zip(truth.refs, truth.values, strict=True) if values[-1] > 0}
        assert last_requests == meant
        roles = {ref: role_of(declared.cluster.inventory, ref) for ref in ours.refs}
        assert ContainerRole.SIDECAR in roles.values()
        assert ContainerRole.INIT not in roles.values()


def role_of(inventory: Inventory, ref: PodContainerRef) -> ContainerRole:
    owner = inventory.owners()[ref.namespace, ref.pod]
    container = next(w for w in inventory.workloads if w.ref == owner).container(ref.container)
    assert container is not None
    return container.role


def test_all_of_it_costs_one_query(declared: Served) -> None:
    with FaultProxy(declared.server.url) as proxy:
        inventory_from(declared, proxy.url)
    # names, survey, the series index, one snapshot, the pods' own rows, and the longest interval of their scrapes, of
    # those that are scraped often and of the rare ones
    assert proxy.count == 7
