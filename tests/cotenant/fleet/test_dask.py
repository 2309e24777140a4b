"""Shards on the workers of a Dask scheduler: the pool's blocks, also when a worker is killed, also by TLS."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cotenant.apps.pipeline.fleet.executors import Dask, Processes, Tls
from cotenant.apps.pipeline.fleet.run import Fleet
from cotenant.core.model.errors import CotenantError
from cotenant.core.model.resource import Resource
from cotenant.core.settings.root import Settings
from cotenant.core.settings.sections.forecasts import ForecastingSettings
from tests.cluster.pki import Authority
from tests.support.fleet import filled, values_of

pytestmark = [pytest.mark.server, pytest.mark.slow]

distributed = pytest.importorskip("distributed")
SETTINGS = Settings(forecasting=ForecastingSettings(history_days=2, booster_rows=0, origins=1))
VALUES = values_of(200, 3)


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Address of a scheduler with two worker processes."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0", host="127.0.0.1"
    ) as made:
        yield made.scheduler_address


def test_dask_and_the_pool_of_processes_write_equal_blocks(cluster: str, tmp_path: Path) -> None:
    found = []
    for executor, folder in ((Dask(cluster), "dask"), (Processes(1), "pool")):
        store = filled((tmp_path / folder).as_uri(), VALUES)
        summary = Fleet(store, SETTINGS, (Resource.CPU,), 100).run(executor)
        assert (summary.computed, summary.missing) == (2, 0)
        found.append([store.read_block(f"fleet/{summary.digest}", f"cpu-0000{i}") for i in range(2)])
    for left, right in zip(*found, strict=True):
        assert left is not None and right is not None
        for name in left[0]:
            texts = left[0][name].dtype == object
            assert np.array_equal(left[0][name], right[0][name], equal_nan=not texts), name


def kill_once(path: str) -> str:
    """A task that ends its worker the first time it is done by one; each beginning is noted."""
    mark = Path(path)
    with mark.open("a") as noted:
        noted.write("x")
    if mark.name == "killer" and mark.read_text() == "x":
        os.kill(os.getpid(), signal.SIGKILL)
    return mark.name


def test_a_killed_worker_costs_only_its_shard(cluster: str, tmp_path: Path) -> None:
    names = ["a", "killer", "b", "c"]
    assert sorted(Dask(cluster).run(kill_once, [str(tmp_path / name) for name in names])) == sorted(names)
    begun = {name: len((tmp_path / name).read_text()) for name in names}
    assert begun["killer"] == 2
    assert sum(begun.values()) <= len(names) + 3, "only what the dead worker had is done again"


def test_nobody_at_the_address_is_said_in_words(tmp_path: Path) -> None:
    with pytest.raises(CotenantError, match="no Dask scheduler answers"):
        list(Dask("tcp://127.0.0.1:1", seconds=1).run(str, [1]))


def test_a_scheduler_with_tls_is_reached_with_its_certificates_and_not_without(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path / "pki")
    certificate, key = authority.issue("dask", "dask", hosts=["127.0.0.1"])
    tls = Tls(str(authority.certificate), str(certificate), str(key))
    security = distributed.Security(
        tls_ca_file=tls.ca_file,
        tls_client_cert=tls.certificate_file,
        tls_client_key=tls.key_file,
        tls_scheduler_cert=tls.certificate_file,
        tls_scheduler_key=tls.key_file,
        tls_worker_cert=tls.certificate_file,
        tls_worker_key=tls.key_file,
        require_encryption=True,
    )
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        dashboard_address="127.0.0.1:0",
        security=security,
        protocol="tls",
    ) as made:
        assert made.scheduler_address.startswith("tls://")
        assert list(Dask(made.scheduler_address, tls).run(str, [7])) == ["7"]
        with pytest.raises(CotenantError):
            list(Dask(made.scheduler_address.replace("tls://", "tcp://"), seconds=2).run(str, [7]))
