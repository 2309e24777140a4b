"""An analysis in shards: nothing depends on who computes them, and little on how the workloads are divided."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import BufferReader, parquet

from cotenant.base.cluster import Container, Inventory, Pod, VpaHistory, Workload
from cotenant.base.errors import CotenantError, UsageError
from cotenant.base.identity import ContainerRef, PodContainerRef, WorkloadRef
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.resource import Resource
from cotenant.base.settings.sections import PipelineSettings
from cotenant.base.severity import Waste
from cotenant.base.store import Store
from cotenant.base.usage.usage import Signal
from cotenant.forecasting.settings import ForecastingSettings
from cotenant.pipeline import daily_analysis
from cotenant.pipeline.analysis import Division
from cotenant.pipeline.daily_analysis import Sharding
from cotenant.pipeline.shards import plan
from cotenant.pipeline.shards.executors import (
    Dask,
    Executor,
    Here,
    Numbered,
    Processes,
    Tls,
    WorkerLost,
    choose_executor,
    in_turn,
    run_in_order,
)
from cotenant.pipeline.shards.plan import ShardSize
from cotenant.pipeline.stored_history import load, of_shard
from cotenant.profiler.settings import ProfilerSettings, PrometheusSettings
from cotenant.settings import Settings
from cotenant_lab.synthetic import SyntheticCluster, SyntheticSpec
from tests.cluster.pki import Authority
from tests.cluster.waiting import wait_for
from tests.support.worker_tasks import fail, interrupt, kill_always, kill_once, process_of

pytestmark = pytest.mark.slow

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")
SPEC = SyntheticSpec(nodes=4, workloads=24, days=4, seed=11)
QUICK = Settings(forecasting=ForecastingSettings(booster_rows=0, origins=1))
SIZE = ShardSize(workloads=7)
"""24 workloads make four shards."""
LEARNED_TOGETHER = frozenset({"forecasts.parquet", "plans.parquet", "weeks.parquet", "replicas.parquet"})
"""Results that rest on forecasts of workloads, which are learned from the series of a shard together."""


class Backwards:
    """Computes in this process, the last task first: the worst order in which results may come."""

    def run(self, work: Callable[[TaskT], ResultT], tasks: Sequence[TaskT]) -> Numbered[ResultT]:
        for number in reversed(range(len(tasks))):
            yield number, work(tasks[number])

    def close(self) -> None: ...


@dataclass
class Travelling:
    """Computes in this process what tasks are after their way to a worker, and keeps what travelled."""

    sent: list[bytes] = field(default_factory=list)

    def run(self, work: Callable[[TaskT], ResultT], tasks: Sequence[TaskT]) -> Numbered[ResultT]:
        for number, task in enumerate(tasks):
            self.sent.append(pickle.dumps(task))
            yield number, work(pickle.loads(self.sent[-1]))

    def close(self) -> None: ...


def published(
    store: Store, cluster: SyntheticCluster, folder: Path, executor: Executor, size: ShardSize = SIZE
) -> tuple[Store, dict[str, bytes]]:
    """A store with the results of an analysis, and the content of each of their files."""
    shutil.copytree(Path(store.url.removeprefix("file://")) / store.cluster, folder / store.cluster)
    own, clock = Store(folder.as_uri(), store.cluster), FixedClock(cluster.inventory.time_seconds)
    daily_analysis.publish(
        daily_analysis.analyse(own, QUICK, clock, Silent(), sharding=Sharding(executor, size)), own, QUICK
    )
    (run,) = (folder / store.cluster / "results" / "runs").iterdir()
    files = {path.name: path.read_bytes() for path in run.iterdir()}
    learned = folder / store.cluster / "results" / "learned-forecasts"
    return own, files | {path.name: path.read_bytes() for path in learned.iterdir()}


@pytest.fixture(scope="module")
def sharded(store: Store, cluster: SyntheticCluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    files = published(store, cluster, tmp_path_factory.mktemp("sharded"), Here())[1]
    assert len(json.loads(files["shards.json"])["document"]["firsts"]) == 3
    assert {"workloads-cpu-00000.parquet", "workloads-memory-00003.parquet", "recommendations.parquet"} <= set(files)
    return files


def test_processes_publish_what_this_process_does(
    store: Store, cluster: SyntheticCluster, tmp_path: Path, sharded: dict[str, bytes]
) -> None:
    assert published(store, cluster, tmp_path, Processes(2))[1] == sharded


def test_no_secret_of_the_settings_travels_to_workers(store: Store, cluster: SyntheticCluster) -> None:
    executor, clock = Travelling(), FixedClock(cluster.inventory.time_seconds)
    source = PrometheusSettings(headers={"Authorization": "Bearer 5ecret"})
    settings = msgspec.structs.replace(QUICK, profiler=ProfilerSettings(prometheus=source))
    daily_analysis.analyse(store, settings, clock, Silent(), sharding=Sharding(executor, SIZE))
    assert len(executor.sent) >= 4
    assert not [task for task in executor.sent if b"5ecret" in task]


def test_the_order_in_which_shards_are_finished_changes_nothing(
    store: Store, cluster: SyntheticCluster, tmp_path: Path, sharded: dict[str, bytes]
) -> None:
    assert published(store, cluster, tmp_path, Backwards())[1] == sharded


@pytest.mark.parametrize("workloads", [3, 1000])
def test_what_is_not_learned_together_does_not_depend_on_the_division(
    store: Store, cluster: SyntheticCluster, tmp_path: Path, sharded: dict[str, bytes], workloads: int
) -> None:
    _, files = published(store, cluster, tmp_path, Here(), ShardSize(workloads=workloads))
    results = {name for name in sharded if not name.startswith("workloads-")}
    assert results == {name for name in files if not name.startswith("workloads-")}
    unequal = {name for name in results if files[name] != sharded[name]} - LEARNED_TOGETHER
    # rows of a shard are a group of their own in the files of workloads, recommendations and portraits
    grouped = {name for name in unequal if name.startswith("portraits@")} | {
        "workloads.parquet",
        "recommendations.parquet",
    }
    assert unequal - grouped <= {"shards.json", "overview.json"}
    for name in grouped:
        columns, others = (parquet.read_table(BufferReader(of[name])).to_pydict() for of in (files, sharded))
        for column in columns.keys() - {"peak_time", "peak_cpu", "model", "forecast_error"}:
            np.testing.assert_equal(columns[column], others[column])
    documents = [json.loads(of["overview.json"])["document"] for of in (files, sharded)]
    for document in documents:
        document["peak"].pop("led_by")  # the workload whose forecast rises most
    assert documents[0] == documents[1]


def test_waste_of_a_shard_is_graded_by_what_the_whole_cluster_requests(
    store: Store, cluster: SyntheticCluster, tmp_path: Path
) -> None:
    shutil.copytree(Path(store.url.removeprefix("file://")) / store.cluster, tmp_path / store.cluster)
    own, clock = Store(tmp_path.as_uri(), store.cluster), FixedClock(cluster.inventory.time_seconds)
    first, *others = cluster.inventory.pods
    giant = replace(first, end_seconds=None, requests={Resource.CPU: 10**9, Resource.MEMORY: 2**60})
    grades = []
    for pods in (cluster.inventory.pods, (giant, *others)):
        own.write_inventory(replace(cluster.inventory, pods=pods))
        for sharding in (Sharding(Here()), Sharding(Here(), SIZE)):
            analysis = daily_analysis.analyse(own, QUICK, clock, Silent(), sharding=sharding)
            grades.append(
                {recommendation.container: recommendation.waste for recommendation in analysis.recommendations}
            )
    assert grades[0] == grades[1] and Waste.LARGE in grades[0].values()
    assert grades[2] == grades[3] and Waste.LARGE not in grades[2].values()


def test_a_second_analysis_keeps_the_division_and_what_its_shards_learned(
    store: Store, cluster: SyntheticCluster, tmp_path: Path
) -> None:
    own, files = published(store, cluster, tmp_path, Here())
    clock = FixedClock(cluster.inventory.time_seconds)
    # a little smaller than what the division was made for: its shards are still of a fair size
    again = daily_analysis.analyse(own, QUICK, clock, Silent(), sharding=Sharding(Here(), ShardSize(workloads=6)))
    assert len(again.division.firsts) == 3
    assert again.learned == {}
    other = daily_analysis.analyse(own, QUICK, clock, Silent(), sharding=Sharding(Here()))
    assert other.division == Division()
    daily_analysis.publish(other, own, QUICK)
    groups = [name for name in own.block_names("learned-forecasts") if name.startswith("workloads-cpu")]
    assert set(groups) == {"workloads-cpu-00000", "workloads-cpu-00000-trees"}
    assert sum(name.startswith("workloads-cpu-") for name in files) == 8  # series and trees of four shards


def test_shards_read_every_series_once(store: Store, cluster: SyntheticCluster) -> None:
    history = load(store, QUICK)
    division = plan.divide(cluster.inventory, None, SIZE)
    parts = [of_shard(store, shard, history.window) for shard in plan.shards(cluster.inventory, division)]
    for signal_read, usage in history.usage.items():
        assert sorted(ref for part in parts for ref in part[signal_read].refs) == list(usage.refs)
    for part in parts:
        cpu = part[Signal.CPU_USAGE_MEAN]
        rows = [history.usage[Signal.CPU_USAGE_MEAN].refs.index(ref) for ref in cpu.refs]
        expected = history.usage[Signal.CPU_USAGE_MEAN].rows(np.array(rows))
        np.testing.assert_array_equal(cpu.rows(slice(None)), expected)


NAMES = st.sampled_from(["a", "a-b", "ab", "b", "c"])
PODS = st.lists(st.tuples(NAMES, NAMES, NAMES, NAMES, st.integers(0, 3)), max_size=30)


def inventory_of(pods: list[tuple[str, str, str, str, int]]) -> Inventory:
    """Pods by (namespace, name, workload's namespace, workload's name, start); every second workload is described."""
    all_pods = [
        Pod(namespace, name, WorkloadRef(of, "Deployment", owner), "n", start)
        for namespace, name, of, owner, start in pods
    ]
    refs = sorted({pod.workload for pod in all_pods})[::2]
    histories = tuple(VpaHistory(ContainerRef(ref, "x"), "vpa", 0, 100, 1, {}) for ref in refs)
    workloads = tuple(Workload(ref, 1, (Container("x"),)) for ref in refs)
    return Inventory("c", 100, (), workloads, tuple(all_pods), vpa_histories=histories)


@given(PODS, st.lists(st.tuples(NAMES, NAMES), max_size=4, unique=True), st.integers(1, 5))
def test_each_series_and_workload_is_in_one_shard_and_its_key_in_the_shards_range(
    pods: list[tuple[str, str, str, str, int]], firsts: list[tuple[str, str]], most: int
) -> None:
    inventory = inventory_of(pods)
    for division in (
        Division(tuple(sorted(firsts))),
        plan.divide(inventory, None, ShardSize(workloads=most, series=most)),
    ):
        shards = plan.shards(inventory, division)
        names = {(pod.namespace, pod.name) for pod in inventory.pods} | {("b", "nobody"), ("z", "z")}
        series = [PodContainerRef(*name, "x") for name in sorted(names)]
        mine = np.array([shard.mine(series) for shard in shards])
        assert (mine.sum(axis=0) == 1).all()
        for shard, rows in zip(shards, mine, strict=True):
            low, high = shard.between
            for ref in (series[row] for row in np.flatnonzero(rows)):
                key = (ref.namespace, ref.pod, ref.container)
                assert (low is None or key >= low) and (high is None or key < high)
        workloads = Counter(w.ref for shard in shards for w in shard.inventory.workloads)
        assert workloads == Counter(w.ref for w in inventory.workloads)
        for shard in shards:
            measured = {history.container.workload for history in shard.inventory.vpa_histories}
            assert measured == {w.ref for w in shard.inventory.workloads}


@given(PODS, st.integers(1, 6))
def test_no_shard_holds_much_more_than_its_size_unless_one_place_does(
    pods: list[tuple[str, str, str, str, int]], most: int
) -> None:
    inventory = inventory_of(pods)
    division = plan.divide(inventory, None, ShardSize(workloads=most, series=1000))
    assert plan.divide(inventory, division, ShardSize(workloads=most, series=1000)) == division
    for shard in plan.shards(inventory, division):
        places = Counter((w.ref.namespace, w.ref.name) for w in shard.inventory.workloads)
        # cuts are made at the middle of a place, so up to half a place more
        assert len(places) <= 1 or sum(places.values()) <= most + max(places.values())


def test_only_a_division_of_an_earlier_run_may_be_larger_than_a_new_one(cluster: SyntheticCluster) -> None:
    # 24 workloads in shards of 20: 1.2 times what one holds, which only a division that is kept may have
    size = ShardSize(workloads=20)
    assert len(plan.divide(cluster.inventory, None, size).firsts) == 1
    assert plan.divide(cluster.inventory, Division(), size) == Division()


def test_pods_of_daemonsets_and_nodes_are_known_to_all_shards(cluster: SyntheticCluster) -> None:
    inventory = cluster.inventory
    daemons = {pod.name for pod in inventory.pods if pod.running and pod.workload.kind == "DaemonSet"}
    shards = plan.shards(inventory, plan.divide(inventory, None, SIZE))
    assert daemons and len(shards) == 4
    for shard in shards:
        assert daemons <= {pod.name for pod in shard.inventory.pods}
        assert shard.inventory.nodes == inventory.nodes
        assert len(shard.inventory.pods) == len(set(map(id, shard.inventory.pods)))


@given(st.permutations(range(6)))
def test_results_come_in_the_order_of_their_tasks(order: list[int]) -> None:
    assert list(in_turn((number, str(number)) for number in order)) == [str(number) for number in range(6)]


def started_counts(folder: Path, names: Sequence[str]) -> Mapping[str, int]:
    return {name: len((folder / name).read_text()) for name in names}


def test_a_killed_process_costs_only_what_it_was_doing(tmp_path: Path) -> None:
    names = ["a", "killer", "b", "c"]
    with closing(Processes(2)) as executor:
        results = dict(executor.run(kill_once, [str(tmp_path / name) for name in names]))
    assert [results[number] for number in range(4)] == names
    assert started_counts(tmp_path, names) == {"a": 1, "killer": 2, "b": 1, "c": 1}


def test_a_task_that_ends_every_worker_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(WorkerLost, match="3 times while it computed dark"):
        list(Processes(1).run(kill_always, ["dark"]))


def ended(process: int) -> bool:
    """Whether it is gone and its parent knows."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


def test_an_idle_process_that_is_killed_costs_nothing() -> None:
    with closing(Processes(1)) as executor:
        results = executor.run(process_of, ["first", "second"])
        _, first = next(results)
        os.kill(first, signal.SIGKILL)
        wait_for("the worker's end", lambda: ended(first))
        ((number, second),) = results
    assert number == 1 and second != first


def test_processes_stay_for_the_next_run_and_end_when_they_are_closed() -> None:
    with closing(Processes(1)) as executor:
        ((_, first),) = executor.run(process_of, ["a"])
        ((_, second),) = executor.run(process_of, ["b"])
        assert second == first
    assert ended(first)


def test_workers_leave_an_interrupt_to_their_parent() -> None:
    with closing(Processes(1)) as executor:
        assert list(executor.run(interrupt, ["a"])) == [(0, "a")]


def test_workers_end_with_the_analysis_that_is_given_up_before_its_last_shard() -> None:
    with pytest.raises(RuntimeError, match="given up"), run_in_order(Processes(1), process_of, ["a", "b"]) as results:
        process = next(results)
        raise RuntimeError("given up")
    assert ended(process)


def test_an_error_of_a_shard_is_the_analysis_error() -> None:
    with pytest.raises(UsageError, match="no such thing"):
        list(Processes(2).run(fail, ["no such thing"] * 3))


def test_the_settings_choose_who_computes() -> None:
    assert choose_executor(PipelineSettings()) == Here()
    assert choose_executor(PipelineSettings(workers=4)) == Processes(4)
    tls = PipelineSettings(workers=4, scheduler="tls://d:8786", ca_file="c", client_cert_file="m", client_key_file="k")
    assert choose_executor(tls) == Dask("tls://d:8786", Tls("c", "m", "k"))
    with pytest.raises(UsageError, match="tls://d:8786 needs a CA"):
        choose_executor(PipelineSettings(scheduler="tls://d:8786", ca_file="c", client_cert_file="m"))


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """Address of a Dask scheduler with two worker processes."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0", host="127.0.0.1"
    ) as local:
        yield local.scheduler_address


@pytest.mark.server
def test_the_workers_of_a_dask_scheduler_publish_what_this_process_does(
    store: Store, cluster: SyntheticCluster, tmp_path: Path, sharded: dict[str, bytes], scheduler: str
) -> None:
    assert published(store, cluster, tmp_path, Dask(scheduler))[1] == sharded


@pytest.mark.server
def test_a_killed_worker_of_dask_costs_only_its_shard(scheduler: str, tmp_path: Path) -> None:
    names = ["a", "killer", "b", "c"]
    results = dict(Dask(scheduler).run(kill_once, [str(tmp_path / name) for name in names]))
    assert [results[number] for number in range(4)] == names
    counts = started_counts(tmp_path, names)
    assert counts["killer"] == 2
    assert sum(counts.values()) <= len(names) + 3, "only what the dead worker had is done again"


@pytest.mark.server
def test_nobody_at_the_address_is_said_in_words() -> None:
    pytest.importorskip("distributed")
    with pytest.raises(CotenantError, match="no Dask scheduler answers"):
        list(Dask("tcp://127.0.0.1:1", seconds=1).run(str, [1]))


@pytest.mark.server
def test_a_scheduler_without_workers_is_said_in_words() -> None:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=0, processes=False, protocol="tcp", dashboard_address="127.0.0.1:0", host="127.0.0.1"
        ) as local,
        pytest.raises(CotenantError, match="has no worker"),
    ):
        list(Dask(local.scheduler_address, seconds=1).run(str, [1]))


@pytest.mark.server
def test_a_scheduler_with_tls_is_reached_with_its_certificates_and_not_without(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    authority = Authority.create(tmp_path / "pki")
    certificate, key = authority.issue("dask", "dask", hosts=["127.0.0.1"])
    tls = Tls(str(authority.certificate), str(certificate), str(key))
    ends = {
        f"tls_{end}_{part}": value
        for end in ("client", "scheduler", "worker")
        for part, value in (("cert", tls.certificate_file), ("key", tls.key_file))
    }
    security = distributed.Security(tls_ca_file=tls.ca_file, require_encryption=True, **ends)
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        dashboard_address="127.0.0.1:0",
        security=security,
        protocol="tls",
    ) as local:
        assert local.scheduler_address.startswith("tls://")
        assert list(Dask(local.scheduler_address, tls).run(str, [7])) == [(0, "7")]
        with pytest.raises(CotenantError):
            list(Dask(local.scheduler_address.replace("tls://", "tcp://"), seconds=2).run(str, [7]))
