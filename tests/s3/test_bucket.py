"""The store in a bucket: the same answers as in a folder, one writer at a time, and clear words when it is refused."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import obstore
import pytest
from obstore.exceptions import GenericError

from cotenant.base.errors import NoData, StoreBusy, StoreConflict, StoreError, StoreForbidden, UsageError
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.store import Store, bucket_lease, buckets, days
from cotenant.base.store.bucket_lease import LeaseHolder
from cotenant.base.store.buckets import BucketFiles, BucketPatience
from cotenant.base.store.files import Folder
from cotenant.base.table import Column, Kind, Schema, Table
from cotenant.base.usage.quality import QualityRecord
from cotenant.base.usage.usage import Signal, TimeGrid
from cotenant.forecasting.settings import ForecastingSettings
from cotenant.pipeline import daily_analysis
from cotenant.pipeline.daily_analysis import Sharding
from cotenant.pipeline.shards.executors import Here, Processes
from cotenant.pipeline.shards.plan import ShardSize
from cotenant.recommender.model.views import RECLAIMABLE, RECOMMENDATIONS, WORKLOADS
from cotenant.settings import Settings
from cotenant_lab.simulation.demo import CLUSTER, fill
from cotenant_lab.synthetic import SyntheticSpec
from tests.cluster.process import free_port
from tests.cluster.waiting import wait_for
from tests.s3.conftest import Bucket
from tests.support.careless_s3 import CarelessServer, running
from tests.support.fleet import START, filled, refs_of, usage_of, values_of

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("s3")]

CPU = Signal.CPU_USAGE_MEAN
SETTINGS = Settings(forecasting=ForecastingSettings(history_days=2, booster_rows=0, origins=1))


def test_history_in_a_bucket_is_read_back_whole_and_in_part(bucket: Bucket) -> None:
    values = values_of(30, 2)
    store = filled(bucket.url, values)
    grid = TimeGrid(START, 300, values.shape[1])
    usage = store.read(CPU, grid)
    assert np.array_equal(usage.values, values)
    low, high = usage.refs[7], usage.refs[19]
    between = (low.namespace, low.pod, low.container), (high.namespace, high.pod, high.container)
    part = store.read_sparse(CPU, grid, between)
    assert part.refs == usage.refs[7:19]
    assert np.array_equal(part.dense().values, values[7:19])
    assert Store.clusters(bucket.url) == ("big",)
    store.remove()
    assert Store.clusters(bucket.url) == ()


def test_shards_of_an_analysis_are_read_from_a_bucket_as_from_a_folder(bucket: Bucket, tmp_path: Path) -> None:
    spec, results = SyntheticSpec(nodes=2, workloads=8, days=2, seed=5), []
    for url, executor in ((bucket.url, Processes(2)), (tmp_path.as_uri(), Here())):
        store = Store(url, CLUSTER)
        clock = FixedClock(fill(store, spec, Silent()).inventory.time_seconds)
        by_two = Sharding(executor, ShardSize(workloads=4))
        analysis = daily_analysis.analyse(store, SETTINGS, clock, Silent(), sharding=by_two)
        daily_analysis.publish(analysis, store, SETTINGS)
        tables = [list(store.read_table(schema).rows()) for schema in (WORKLOADS, RECOMMENDATIONS, RECLAIMABLE)]
        results.append((analysis.division.firsts, tables))
    assert results[0] == results[1]
    assert len(results[0][0]) == 1


def test_two_writers_take_turns_so_that_no_block_is_lost(bucket: Bucket) -> None:
    values = values_of(6, 1)
    stores = [Store(bucket.url, "big") for _ in range(2)]
    threads = [
        threading.Thread(
            target=lambda s=store, k=k: [s.append(CPU, usage_of(values[:, i : i + 1], i)) for i in (k, k + 2)]
        )
        for k, store in enumerate(stores)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.array_equal(stores[0].read(CPU, TimeGrid(START, 300, 4)).values, values[:, :4])


def test_a_lease_of_another_refuses_and_one_that_nobody_renews_is_taken_over(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, other = Folder(bucket.url), LeaseHolder("t", "far", 7, "a scan")
    folder.write("big/.lock", msgspec.json.encode(other))
    with pytest.raises(StoreBusy, match=r"process 7 on far .* a scan"), folder.exclusive("big/.lock", "", 0.0):
        pass
    assert folder.read("big/.lock") == msgspec.json.encode(other)
    monkeypatch.setattr(bucket_lease, "LEASE_SECONDS", 0.2)
    with folder.exclusive("big/.lock", "mine"):
        holder = msgspec.json.decode(folder.read("big/.lock") or b"", type=LeaseHolder)
        assert holder.what == "mine" and holder.pid == os.getpid()
    assert msgspec.json.decode(folder.read("big/.lock") or b"", type=LeaseHolder).host == ""


def test_a_renewal_that_was_stored_but_failed_costs_no_lease(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_lease, "RENEW_SECONDS", 0.05)
    folder, put, lost = Folder(bucket.url), obstore.put, [2, 1]

    def unanswered(store: Any, key: str, content: bytes, **conditions: Any) -> Any:
        result = put(store, key, content, **conditions)
        if lost and key.endswith("lock") and msgspec.json.decode(content, type=LeaseHolder).beats == lost[-1]:
            lost.pop()
            raise GenericError("timed out")
        return result

    def beats() -> int:
        return msgspec.json.decode(folder.read("lock") or b"", type=LeaseHolder).beats

    monkeypatch.setattr(obstore, "put", unanswered)
    with folder.exclusive("lock", "mine"):
        wait_for("the lease is renewed after that", lambda: beats() > 4, every=0.02)
    assert msgspec.json.decode(folder.read("lock") or b"", type=LeaseHolder).host == ""


def test_a_lease_is_left_soon_when_the_server_is_away(
    careless: CarelessServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_lease, "QUICK", BucketPatience(retry_seconds=0.1, timeout_seconds=1.0))
    careless.conditions = True
    with Folder("s3://careless/x").exclusive("lock"):
        careless.busy, began = 10**6, time.monotonic()
    assert time.monotonic() - began < 20.0  # a request of data is tried for 30 s


@pytest.fixture
def passing(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Leases of paused processes, which renew nothing, pass on at once. Called: who writes next is another process."""
    monkeypatch.setattr(bucket_lease, "LEASE_SECONDS", 0.1)
    monkeypatch.setattr(bucket_lease, "RENEW_SECONDS", 1e6)
    return bucket_lease._threads.clear


def test_a_paused_writer_of_records_overwrites_nothing(bucket: Bucket, passing: Callable[[], None]) -> None:
    store, other = Store(bucket.url, "big"), Store(bucket.url, "big")
    first, second, third = (QualityRecord(k, "s", 30.0, k, 0) for k in range(3))
    store.append_quality(first)
    read = store.read_quality

    def paused() -> tuple[QualityRecord, ...]:
        records = read()
        passing()
        other.append_quality(second)
        return records

    with pytest.MonkeyPatch.context() as patch, pytest.raises(StoreConflict, match="was changed by another writer"):
        patch.setattr(store, "read_quality", paused)
        store.append_quality(third)
    assert other.read_quality() == (first, second)


def test_a_paused_writer_of_a_table_overwrites_nothing(bucket: Bucket, passing: Callable[[], None]) -> None:
    schema = Schema("notes", (Column("text", "Text", Kind.TEXT, "A text."),), ("text",))

    def added(table: Table | None, text: str) -> Table:
        return Table.from_rows(schema, [*(table.rows() if table else ()), {"text": text}])

    store, other = Store(bucket.url, "big"), Store(bucket.url, "big")
    store.update_table(schema, lambda table: added(table, "a"))

    def paused(table: Table | None) -> Table:
        passing()
        other.update_table(schema, lambda newer: added(newer, "b"))
        return added(table, "c")

    with pytest.raises(StoreConflict, match="was changed by another writer"):
        store.update_table(schema, paused)
    assert [row["text"] for row in other.read_table(schema).rows()] == ["a", "b"]


def test_a_write_whose_answer_was_lost_is_sent_again(bucket: Bucket) -> None:
    folder = Folder(bucket.url)
    mark = folder.swap("big/own", b"own", None)
    assert folder.swap("big/own", b"own", None) == mark
    with pytest.raises(StoreConflict):
        folder.swap("big/own", b"other", None)


def test_a_part_that_a_paused_compaction_removes_is_never_a_later_one(bucket: Bucket) -> None:
    values = values_of(2, 1)
    store = Store(bucket.url, "big")
    for i in range(3):
        store.append(CPU, usage_of(values[:, i : i + 1], i))
    folder = Folder(bucket.url)
    paused = [n for n in folder.names(f"big/usage/{CPU.value}") if ".part-" in n]
    store.compact()
    store.append(CPU, usage_of(values[:, 3:4], 3))
    for name in paused:
        folder.remove(f"big/usage/{CPU.value}/{name}")
    assert len(paused) == 2
    assert np.array_equal(store.read(CPU, TimeGrid(START, 300, 4)).values, values[:, :4])


@contextmanager
def once_opened(file: Callable[[str], bool], act: Callable[[], object]) -> Iterator[None]:
    """Do this once, between the opening of such an object and the reading of its parts."""
    real, todo = BucketFiles.open, [act]

    def opened(files: BucketFiles, path: str, mode: str = "rb") -> buckets.RangeReader:
        handle = real(files, path, mode)
        if todo and file(path):
            todo.pop()()
        return handle

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BucketFiles, "open", opened)
        yield
    assert not todo


@pytest.mark.parametrize("part", [True, False])
def test_a_compaction_while_a_range_is_read_changes_nothing_for_the_reader(bucket: Bucket, part: bool) -> None:
    """It removes the part that was just opened, or replaces the day's file."""
    values = values_of(6, 1)
    store, other = Store(bucket.url, "big"), Store(bucket.url, "big")
    for i in range(2):
        store.append(CPU, usage_of(values[:, i : i + 1], i))
    grid, keys = TimeGrid(START, 300, 2), [days.key_of(ref) for ref in refs_of(6)]
    with once_opened(lambda path: (".part-" in path) is part, other.compact):
        read = store.read_sparse(CPU, grid, (keys[1], keys[4]))
    assert np.array_equal(read.dense().values, values[1:4, :2]) and store.holes() == ()


def test_wrong_credentials_and_a_missing_bucket_are_told_apart_from_no_data(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NoData):
        daily_analysis.analyse(Store(f"{bucket.url}/empty", "big"), SETTINGS, FixedClock(0), Silent())
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "mistyped-key")
    with pytest.raises(StoreForbidden, match=r"may not .* SignatureDoesNotMatch") as refused:
        Store(bucket.url, "big").append(CPU, usage_of(values_of(1, 1)))
    assert bucket.environ["AWS_ENDPOINT_URL"] in refused.value.message and "mistyped-key" not in refused.value.message
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", bucket.environ["AWS_SECRET_ACCESS_KEY"])
    with pytest.raises(StoreError, match="NoSuchBucket") as missing:
        Store("s3://no-such-bucket/x", "big").append(CPU, usage_of(values_of(1, 1)))
    assert "Create the bucket" in missing.value.fix
    for read in (Store("s3://no-such-bucket/x", "big").read_inventory, lambda: Store.clusters("s3://no-such-bucket/x")):
        with pytest.raises(StoreError, match="NoSuchBucket"):
            read()


def test_a_server_that_is_away_or_speaks_no_tls_is_named(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "MOST_RETRIES", 0)
    for endpoint, fix in ((bucket.environ["AWS_ENDPOINT_URL"].replace("http:", "https:"), "AWS_CA_BUNDLE"),
                          (f"http://127.0.0.1:{free_port()}", "AWS_ENDPOINT_URL")):  # fmt: skip
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        with pytest.raises(StoreError) as away:
            Store(bucket.url, "big").read_inventory()
        assert endpoint in away.value.message and fix in away.value.fix


@pytest.mark.parametrize(("url", "endpoint"), [("s3://", ""), ("s3://b/x", "ftp://here")])
def test_an_address_that_names_no_bucket_or_server_is_refused(url: str, endpoint: str) -> None:
    with pytest.raises(UsageError):
        buckets.open_bucket(url, {"AWS_ENDPOINT_URL": endpoint})


@pytest.fixture
def careless(monkeypatch: pytest.MonkeyPatch) -> Iterator[CarelessServer]:
    monkeypatch.setattr(bucket_lease, "_conditional", set())  # which servers this process has checked
    with running(CarelessServer()) as server:
        for name, value in {"ENDPOINT_URL": server.address, "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        yield server


def test_a_server_that_ignores_conditions_is_refused_before_anything_is_written(careless: CarelessServer) -> None:
    with pytest.raises(StoreError, match="has no conditional writes"):
        Store("s3://careless/x", "big").append_quality(QualityRecord(1, "s", 30.0, 1, 0))
    assert not [path for path in careless.objects if path.endswith("quality.json")]
    careless.conditions = True
    store = Store("s3://careless/x", "big")
    store.append_quality(QualityRecord(1, "s", 30.0, 1, 0))
    assert len(store.read_quality()) == 1


def test_a_busy_server_is_asked_until_the_time_has_passed(
    careless: CarelessServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "LONGEST_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(buckets, "FIRST_PAUSE_SECONDS", 0.01)
    folder = Folder("s3://careless/x")
    careless.busy = 25
    assert folder.read("absent") is None and careless.busy == 0
    careless.busy = 10**6
    began = time.monotonic()
    with pytest.raises(StoreError, match="SlowDown"):
        Store("s3://careless/x", "big", BucketPatience(retry_seconds=0.2)).read_inventory()
    assert 0.15 < time.monotonic() - began < 25.0  # the default is 30 s


def test_a_server_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for name, value in {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        began = time.monotonic()
        with pytest.raises(StoreError, match="cannot read"):
            Folder("s3://b/x", BucketPatience(retry_seconds=0.1, timeout_seconds=0.3)).read("absent")
        assert time.monotonic() - began < 30.0  # the default is 60 s


def test_a_server_that_dies_while_a_range_is_read_is_named(careless: CarelessServer) -> None:
    careless.conditions = True
    store = Store("s3://careless/x", "big", BucketPatience(retry_seconds=0.1))
    store.append(CPU, usage_of(values_of(3, 1)[:, :2]))

    def die() -> None:
        careless.busy = 10**6

    key = days.key_of(refs_of(3)[1])
    with once_opened(lambda _: True, die), pytest.raises(StoreError, match=r"cannot read .* SlowDown"):
        store.read_sparse(CPU, TimeGrid(START, 300, 2), (None, key))
    careless.busy = 0
    assert store.holes() == ()


def test_a_content_that_takes_longer_than_an_answer_may_is_written_and_read(
    careless: CarelessServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a slow line: no try is repeated, for the first one has used up the time."""
    monkeypatch.setattr(buckets, "PART_BYTES", 2048)
    folder = Folder("s3://careless/x", BucketPatience(retry_seconds=0.1, timeout_seconds=1.0))
    content, careless.kib_seconds = bytes(range(256)) * 100, 0.05  # 1.25 s
    folder.write("rows", content)
    assert folder.read("rows") == content
    handle = folder.open("rows")
    assert handle is not None and handle.read() == content
