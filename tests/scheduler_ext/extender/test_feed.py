"""The watcher beside a real API server: a process of its own or a thread, started again when it dies."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from cotenant.base.kube import access_review
from cotenant.scheduler_ext.extender.columns import SnapshotColumn
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from cotenant.scheduler_ext.extender.watch.cluster_reader import read_cluster
from cotenant.scheduler_ext.extender.watch.feed import Feed, SnapshotFeed
from tests.cluster.accounts import account
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fixtures import FakeNodes
from tests.cluster.waiting import wait_for
from tests.scheduler_ext.extender.live import EXTENDER, install_crds


@contextmanager
def feeding(plane: ControlPlane, **settings: Any) -> Iterator[tuple[SnapshotFeed, Feed]]:
    """A feed whose view is complete."""
    view = SnapshotFeed()
    feed = Feed(view, plane.client(account(plane, EXTENDER)), ExtenderSettings(**settings))
    feed.start()
    try:
        wait_for("a complete view", lambda: bool(view.snapshot.names) and not view.snapshot.problem())
        yield view, feed
    finally:
        feed.stop()


def create(plane: ControlPlane, namespace: str, name: str, node: str) -> None:
    container = {"name": "main", "image": "example.invalid/app:1", "resources": {"requests": {"cpu": "100m"}}}
    body = {"metadata": {"name": name}, "spec": {"containers": [container], "nodeName": node}}
    plane.api().create(f"/api/v1/namespaces/{namespace}/pods", body)


def requested(view: SnapshotFeed, node: str) -> float:
    snapshot = view.snapshot
    return float(snapshot.column(SnapshotColumn.REQUESTED_CPU)[snapshot.rows[node]]) if node in snapshot.rows else -1.0


@pytest.mark.parametrize("watcher", ["process", "thread"])
def test_pods_and_nodes_reach_the_view_as_they_come_and_go(
    control_plane: ControlPlane, namespace: str, fake_nodes: FakeNodes, watcher: str
) -> None:
    install_crds(control_plane)
    (node,) = fake_nodes(1)
    with feeding(control_plane, watcher=watcher) as (view, _):
        wait_for("the node is there", lambda: requested(view, node) == 0.0)
        create(control_plane, namespace, "p", node)
        wait_for("the pod counts", lambda: requested(view, node) == 100.0)
        uid = control_plane.api().get(f"/api/v1/namespaces/{namespace}/pods/p")["metadata"]["uid"]
        assert view.shares[uid].used_cpu > 0.0
        control_plane.api().delete(f"/api/v1/namespaces/{namespace}/pods/p", gracePeriodSeconds="0")
        wait_for("the pod is gone", lambda: requested(view, node) == 0.0)
        assert uid not in view.shares


def test_a_watcher_that_is_killed_is_started_again_and_its_view_ages_meanwhile(
    control_plane: ControlPlane, namespace: str, fake_nodes: FakeNodes
) -> None:
    install_crds(control_plane)
    (node,) = fake_nodes(1)
    with feeding(control_plane) as (view, feed):
        wait_for("the node is there", lambda: requested(view, node) == 0.0)
        first = feed.process
        assert first is not None
        taken = view.snapshot.taken_seconds
        first.kill()
        assert view.snapshot.age_seconds(taken + 1000.0) >= 1000.0
        create(control_plane, namespace, "p", node)
        wait_for("the next watcher sees the pod", lambda: requested(view, node) == 100.0)
        assert feed.process is not None
        assert feed.process.pid != first.pid


def test_one_look_gives_the_view_that_a_watcher_has(
    control_plane: ControlPlane, namespace: str, fake_nodes: FakeNodes
) -> None:
    install_crds(control_plane)
    (node,) = fake_nodes(1)
    create(control_plane, namespace, "p", node)
    reading = read_cluster(control_plane.client(account(control_plane, EXTENDER)), ExtenderSettings())
    assert [n.name for n in reading.nodes] == list(reading.snapshot.names)
    assert reading.snapshot.column(SnapshotColumn.REQUESTED_CPU)[reading.snapshot.rows[node]] == 100.0
    assert reading.snapshot.problem() == ""


def test_who_may_not_list_is_told_what_is_missing(control_plane: ControlPlane) -> None:
    view = SnapshotFeed()
    client = control_plane.client(control_plane.user("nobody-at-all"))
    feed = Feed(view, client, ExtenderSettings(watcher="thread"))
    feed.start()
    try:
        wait_for("it says so", lambda: "cannot list nodes" in view.snapshot.problem())
        assert view.snapshot.names == ()
    finally:
        feed.stop()


def test_the_watcher_ends_when_nobody_reads_it(control_plane: ControlPlane) -> None:
    from cotenant.base.settings.sections import TelemetrySettings
    from cotenant.scheduler_ext.extender.watch.watcher import WatcherConfig

    job = WatcherConfig(
        control_plane.client(account(control_plane, EXTENDER)).settings, ExtenderSettings(), TelemetrySettings()
    )
    command = [sys.executable, "-m", "cotenant.scheduler_ext.extender.watch.watcher"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(job) + b"\n")
        process.stdin.flush()
        assert len(process.stdout.read(4)) == 4
        process.stdout.close()
        ends = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < ends:
            time.sleep(0.05)
        assert process.poll() is not None


def test_the_shipped_rights_are_no_more_than_it_needs(control_plane: ControlPlane) -> None:
    """Every feed of this file has them and its view completes; besides binding pods they change nothing."""
    client = control_plane.client(account(control_plane, EXTENDER))
    assert access_review(client, "create", "pods", subresource="binding")
    for verb, resource in (("delete", "pods"), ("patch", "pods"), ("patch", "nodes"), ("list", "secrets")):
        assert not access_review(client, verb, resource)


def test_a_watcher_that_stands_still_is_ended_and_started_again(
    control_plane: ControlPlane, namespace: str, fake_nodes: FakeNodes
) -> None:
    install_crds(control_plane)
    (node,) = fake_nodes(1)
    with feeding(control_plane) as (view, feed):
        wait_for("the node is there", lambda: requested(view, node) == 0.0)
        first = feed.process
        assert first is not None
        first.send_signal(signal.SIGSTOP)  # to its reader the same as an object that holds the interpreter
        create(control_plane, namespace, "p", node)
        wait_for("the next watcher sees the pod", lambda: requested(view, node) == 100.0, seconds=120)
        assert first.poll() == -signal.SIGKILL
