"""A scan without an address reads the store of a recorder that runs, and asks for a Prometheus where none does."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from cotenant.base.store import Store
from cotenant.profiler.recorder.status import STATUS_DOCUMENT, NodeSource, RecorderStatus
from tests.support import dashboard as support
from tests.support.command_line import LEAN, cotenant

NOWHERE = {"HOME": "/nonexistent", "KUBECONFIG": "", "KUBERNETES_SERVICE_HOST": ""}


def recorder_wrote(store: Store, seconds_ago: float) -> None:
    now = time.time()
    status = RecorderStatus(now - 9000, now - seconds_ago, int(now - seconds_ago), nodes={NodeSource.KUBELET: 4})
    store.write_document(STATUS_DOCUMENT, status)


def scan(store: Store, *arguments: str) -> subprocess.CompletedProcess[str]:
    return cotenant("scan", "--store", store.url, "-o", "json", *arguments, variables={**LEAN, **NOWHERE})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A week of usage of one cluster, as a pull or a recorder stores it."""
    return support.results(tmp_path, spec=support.WEEK).store


@pytest.mark.slow
def test_the_rows_are_those_of_the_store_and_the_source_is_named(store: Store) -> None:
    recorder_wrote(store, 120)

    done, offline = scan(store), scan(store, "--offline")

    assert done.returncode == 0, done.stderr
    assert "the recorder (4 nodes from kubelet): recording since" in done.stderr
    assert json.loads(done.stdout) == json.loads(offline.stdout) != []


@pytest.mark.parametrize("seconds_ago", [None, 3600.0], ids=["no recorder", "one that ended"])
def test_without_a_recorder_that_runs_a_source_has_to_be_named(store: Store, seconds_ago: float | None) -> None:
    if seconds_ago is not None:
        recorder_wrote(store, seconds_ago)

    done = scan(store)

    assert done.returncode == 2
    assert "no Prometheus is configured" in done.stderr
    assert ("nothing was written since" in done.stderr) is (seconds_ago is not None)


def test_a_recorder_of_another_cluster_does_not_count(store: Store) -> None:
    recorder_wrote(store, 120)

    done = scan(store, "--cluster", "another")

    assert done.returncode == 2
    assert "no Prometheus is configured" in done.stderr


def test_a_recorder_without_a_whole_slot_says_when_it_began(tmp_path: Path) -> None:
    empty = Store(tmp_path.as_uri(), "c")
    now = time.time()
    empty.write_document(STATUS_DOCUMENT, RecorderStatus(now - 60, now))
    inventory = support.results(tmp_path / "other", spec=support.WEEK).store.read_inventory()
    assert inventory is not None
    empty.write_inventory(inventory)

    done = scan(empty)

    assert done.returncode != 0
    assert "recording since" in done.stderr and "first five minutes" in done.stderr


def test_a_recorder_that_reads_no_kubelet_says_why(tmp_path: Path) -> None:
    empty, now = Store(tmp_path.as_uri(), "c"), time.time()
    why = {"node-1": "the kubelet answers 403"}
    empty.write_document(STATUS_DOCUMENT, RecorderStatus(now - 60, now, nodes={NodeSource.NONE: 1}, troubles=why))

    done = scan(empty)

    assert done.returncode != 0
    assert "node node-1: the kubelet answers 403" in done.stderr
