"""Busy nodes are tainted on a real control plane, with a stock scheduler and the rights of the documented account."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cotenant.base.errors import ClusterDenied
from cotenant.base.kube import Writer
from cotenant.base.kubernetes.intent import Patch
from cotenant.base.kubernetes.node_taints import NODES, node_address
from cotenant.base.logs.metrics import Metrics
from cotenant.manager.features import NAMES
from cotenant.manager.run import Manager, Options
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from cotenant.scheduler_ext.load_taints.controller import LoadTaintController
from cotenant.scheduler_ext.load_taints.settings import LoadTaintSettings
from tests.cluster import needing
from tests.cluster.api import Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for
from tests.manager.scene import Scene
from tests.scheduler_ext.extender.worlds import metric_json

PAGE = Path(__file__).resolve().parents[2] / "docs" / "load-taints.md"
LOAD = {"key": "cotenant.dev/load", "effect": "NoSchedule"}
THEIRS = {"key": "example.com/theirs", "effect": "PreferNoSchedule"}
METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One of its own: shares are of all nodes of a cluster, and taints are none of other tests' business."""
    needing.kubernetes()
    with ControlPlane(tmp_path_factory.mktemp("tainted")) as plane:
        yield plane


def report(cluster: Scene, node: str, cpu: str) -> None:
    body = metric_json(node, cpu=cpu, memory="1Gi", updated=time.time())
    status = body.pop("status")
    if not cluster.api.exists(f"{METRICS}/{node}"):
        cluster.api.create(METRICS, {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", **body})
    cluster.api.patch(f"{METRICS}/{node}/status", {"status": status})


@contextmanager
def running(cluster: Scene, **own: Any) -> Iterator[Manager]:
    """A manager with this feature alone; own: its settings."""
    off = [name for name in NAMES if name != "load-taints"]
    taints = {"enabled": True, "dry_run": False, "interval_seconds": 1, "hold_seconds": 0, **own}
    settings = msgspec.structs.replace(
        cluster.settings(features_off=off), load_taints=msgspec.convert(taints, LoadTaintSettings)
    )
    client = cluster.plane.client(cluster.account, watch_backoff_seconds=2.0)
    with Manager(client, settings, Metrics("test", "3"), Options("test")) as manager:
        yield manager


def taints(cluster: Scene, node: str) -> list[Json]:
    return list(cluster.api.get(f"{NODES}/{node}")["spec"].get("taints") or ())


def placed(cluster: Scene, count: int) -> list[str]:
    """Nodes that the stock scheduler gives to so many pods."""
    path = f"/api/v1/namespaces/{cluster.namespace}/pods"
    spec = {"containers": [{"name": "main", "image": "app", "resources": {"requests": {"cpu": "1"}}}]}
    for _ in range(count):
        cluster.api.create(path, {"metadata": {"generateName": "p-"}, "spec": spec})
    wait_for("all are bound", lambda: all(pod["spec"].get("nodeName") for pod in cluster.api.items(path)))
    return [pod["spec"]["nodeName"] for pod in cluster.api.items(path)]


def test_a_busy_node_gets_no_pods_also_while_the_manager_is_away_and_is_given_back(
    cluster: Scene, fake_nodes: Callable[..., list[str]]
) -> None:
    busy, *others = nodes = fake_nodes(10, cpu="10")
    cluster.api.patch(f"{NODES}/{busy}", {"spec": {"taints": [THEIRS]}})
    for node in nodes:
        report(cluster, node, "9" if node == busy else "1")
    with running(cluster, dry_run=True) as manager:
        wait_for("looks of a dry run", lambda: manager.rounds("load-taints") > 1)
        assert taints(cluster, busy) == [THEIRS]
    with running(cluster):
        # 9 of 10 cores are more than 65 %; one of ten nodes may be refused (10 %)
        wait_for("the busy node is refused", lambda: taints(cluster, busy) == [THEIRS, LOAD])
        wait_for(
            "an Event says so",
            lambda: cluster.api.items("/apis/events.k8s.io/v1/events", fieldSelector="reason=LoadRefused"),
        )
    assert not any(taints(cluster, node) for node in others)
    assert busy not in placed(cluster, 10)
    with running(cluster):  # the next manager goes on with it
        report(cluster, busy, "1")
        wait_for("it is given back", lambda: taints(cluster, busy) == [THEIRS])
        report(cluster, busy, "9")
        wait_for("it is refused again", lambda: taints(cluster, busy) == [THEIRS, LOAD])
    daemons = f"/apis/apps/v1/namespaces/{cluster.namespace}/daemonsets"
    labels = {"app": "logs"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "app"}]}}
    body = {"metadata": {"name": "logs"}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
    cluster.api.create(daemons, body)
    with running(cluster):
        # pods of the DaemonSet would be kept away
        wait_for(
            "it is avoided only", lambda: taints(cluster, busy) == [THEIRS, {**LOAD, "effect": "PreferNoSchedule"}]
        )
        wait_for("the feature says why", lambda: "DaemonSets" in cluster.state("load-taints").get("message", ""))
    with running(cluster, enabled=False):
        wait_for("everything is given back", lambda: taints(cluster, busy) == [THEIRS])


def test_what_is_to_be_given_back_is_looked_at_until_it_is_gone(
    cluster: Scene, fake_nodes: Callable[..., list[str]]
) -> None:
    (node,) = fake_nodes(1, cpu="10")
    cluster.api.patch(f"{NODES}/{node}", {"spec": {"taints": [LOAD]}})
    with closing(cluster.plane.client(cluster.account)) as client:
        controller = LoadTaintController(client, LoadTaintSettings(), ExtenderSettings())
        (patch,) = controller.decide({}, 0.0).intents
        controller.sent([])  # a node that was refused shortly before is left alone for a while: nothing was sent
        assert controller.decide({}, 5.0).intents == (patch,)
        Writer(client, "cotenant-manager").send(patch)
        assert controller.decide({}, 10.0).intents == controller.decide({}, 15.0).intents == ()


def test_the_documented_command_takes_the_taint_off_every_node_though_it_fails_for_those_without(
    cluster: Scene, fake_nodes: Callable[..., list[str]]
) -> None:
    refused, free = fake_nodes(2, cpu="10")
    cluster.api.patch(f"{NODES}/{refused}", {"spec": {"taints": [THEIRS, LOAD]}})
    command = next(line for line in PAGE.read_text().split("\n") if line.startswith("kubectl taint"))
    with pytest.raises(subprocess.CalledProcessError) as failed:
        cluster.plane.kubectl(*shlex.split(command)[1:])
    assert "not found" in failed.value.stderr
    assert (taints(cluster, refused), taints(cluster, free)) == ([THEIRS], [])


def test_the_manager_may_change_nothing_of_a_node_but_its_taints(
    cluster: Scene, fake_nodes: Callable[..., list[str]]
) -> None:
    (node,) = fake_nodes(1, cpu="10")
    client = cluster.plane.client(cluster.account)
    writer = Writer(client, "cotenant-manager")

    def denial_of(path: str, value: object) -> str:
        try:
            writer.send(Patch(node_address(node), ({"op": "add", "path": path, "value": value},)), dry_run=True)
        except ClusterDenied as error:
            return error.message
        return ""

    wait_for("the guard", lambda: "cotenant-emptying" in denial_of("/spec/unschedulable", True))
    assert (
        denial_of("/spec/taints", [LOAD]) == denial_of("/spec/taints", [{**LOAD, "effect": "PreferNoSchedule"}]) == ""
    )
    for path, value in (("/spec/taints", [{**LOAD, "effect": "NoExecute"}]), ("/metadata/labels/mine", "1")):
        assert "cotenant-emptying" in denial_of(path, value)
    client.close()
