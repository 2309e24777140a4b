"""The store in a bucket: the same answers as in a folder, one writer at a time, and clear words when it is refused."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from cotenant.apps.pipeline.fleet.executors import Processes
from cotenant.apps.pipeline.fleet.run import Fleet
from cotenant.core.adapters.store import Store, buckets
from cotenant.core.adapters.store.files import Folder
from cotenant.core.model.errors import NoData, StoreError, StoreForbidden, UsageError
from cotenant.core.model.resource import Resource
from cotenant.core.model.usage.usage import Signal, TimeGrid
from cotenant.core.settings.root import Settings
from cotenant.core.settings.sections.forecasts import ForecastingSettings
from tests.s3.conftest import Bucket
from tests.support.fleet import START, filled, usage_of, values_of

pytestmark = [pytest.mark.slow, pytest.mark.server]

CPU = Signal.CPU_USAGE_MEAN
SETTINGS = Settings(forecasting=ForecastingSettings(history_days=2, booster_rows=0, origins=1))


def test_history_in_a_bucket_is_read_back_whole_and_in_part(bucket: Bucket) -> None:
    values = values_of(30, 2)
    store = filled(bucket.url, values)
    grid = TimeGrid(START, 300, values.shape[1])
    whole = store.read(CPU, grid)
    assert np.array_equal(whole.values, values)
    low, high = whole.refs[7], whole.refs[19]
    part = store.read(CPU, grid, ((low.namespace, low.pod, low.container), (high.namespace, high.pod, high.container)))
    assert part.refs == whole.refs[7:19]
    assert np.array_equal(part.values, values[7:19])
    assert Store.clusters(bucket.url) == ("big",)
    store.remove()
    assert Store.clusters(bucket.url) == ()


def test_a_fleet_in_a_bucket_equals_one_in_a_folder(bucket: Bucket, tmp_path: object) -> None:
    values, found = values_of(120, 3), []
    for url in (bucket.url, f"file://{tmp_path}"):
        store = filled(url, values)
        summary = Fleet(store, SETTINGS, (Resource.CPU,), 60).run(Processes(2))
        assert (summary.computed, summary.series) == (2, 120)
        found.append([store.read_block(f"fleet/{summary.digest}", name) for name in ("cpu-00000", "cpu-00001")])
    for left, right in zip(*found, strict=True):
        assert left is not None and right is not None
        assert np.array_equal(left[0]["quantiles"], right[0]["quantiles"])
        assert left[0]["pod"].tolist() == right[0]["pod"].tolist()


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


def test_a_claim_of_another_refuses_and_one_that_is_too_old_does_not(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(bucket.url)
    folder.write("big/.locks/somebody", b"")
    monkeypatch.setattr(buckets, "WAIT_SECONDS", 0.0)
    with pytest.raises(StoreError, match="holds the claim"), folder.exclusive("big/.lock"):
        pass
    assert folder.names("big/.locks") == ["somebody"]
    monkeypatch.setattr(buckets, "CLAIM_SECONDS", -1.0)
    with folder.exclusive("big/.lock"):
        assert "somebody" not in folder.names("big/.locks")
    assert folder.names("big/.locks") == []


def test_wrong_credentials_and_a_missing_bucket_are_told_apart_from_no_data(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NoData):
        Fleet(Store(f"{bucket.url}/empty", "big"), SETTINGS).merge()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StoreForbidden, match="may not"):
        Store(bucket.url, "big").append(CPU, usage_of(values_of(1, 1)))


@pytest.mark.parametrize(("url", "endpoint"), [("s3://", ""), ("s3://b/x", "ftp://here")])
def test_an_address_that_names_no_bucket_or_server_is_refused(url: str, endpoint: str) -> None:
    with pytest.raises(UsageError):
        buckets.open_bucket(url, {"AWS_ENDPOINT_URL": endpoint})
