"""The product alone, as who has no cotenant-lab installs it: a scan, its dashboard, and a change on a cluster."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.changes import world
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fixtures import FakeNodes
from tests.cluster.process import free_port
from tests.cluster.shell import Shell, environment_of
from tests.cluster.waiting import wait_for
from tests.support import kube_series
from tests.support.kube_series import STEP, Line, PodSpec

ROOT = Path(__file__).resolve().parents[2]
COTENANT = f"{sys.executable} -m tests.support.partial_install cli,scan,analytics,cluster,dashboard"
DAYS = 8


def series(pods: list[dict[str, Any]]) -> list[Line]:
    """What Prometheus has of the pods of a Deployment: for eight days each used 0.2 cores and 300 MiB."""
    until, meta = int(time.time()) // STEP * STEP, pods[0]["metadata"]
    owner = "ReplicaSet", meta["ownerReferences"][0]["name"]
    lines = [kube_series.link(*owner, ("Deployment", "web"), meta["namespace"])]
    for node in {pod["spec"]["nodeName"] for pod in pods}:
        lines += kube_series.node(node)
    for pod in pods:
        meta, node = pod["metadata"], pod["spec"]["nodeName"]
        lines += PodSpec(meta["name"], owner, ("app",), namespace=meta["namespace"], node=node).lines()
    return [replace(line, since=until - DAYS * 86_400, until=until) for line in lines]


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.prometheus
def test_a_scan_its_dashboard_and_a_change_need_nothing_of_the_lab(
    control_plane: ControlPlane, namespace: str, fake_nodes: FakeNodes, tmp_path: Path
) -> None:
    fake_nodes(2, cpu="8")
    web = world.deployed(control_plane, namespace)
    environment = {**environment_of(control_plane, tmp_path), "COTENANT_MANAGER__NAMESPACE": namespace}
    shell, port = Shell(environment, ROOT, tmp_path), free_port()
    with kube_series.served(tmp_path, {"own": series(world.pods(control_plane, web))}) as url:
        done = shell.run(f"{COTENANT} scan --prometheus {url} -l variant=own -n {namespace}")
    assert done.returncode == 0, done.stderr
    with (
        shell.keep("dashboard", f"{COTENANT} dashboard --act --port {port}") as dashboard_output,
        requests.Session() as browser,
    ):
        wait_for("the dashboard's address", lambda: f":{port}/" in dashboard_output())
        (address,) = re.findall(rf"http://\S+:{port}/\S*", dashboard_output())
        assert browser.get(address, timeout=60).ok
        at = f"http://127.0.0.1:{port}/api/v1"
        (row,) = browser.get(f"{at}/recommendations?namespace={namespace}", timeout=60).json()["rows"]
        headers = {"Idempotency-Key": "once", "X-CSRFToken": browser.get(f"{at}/me", timeout=60).json()["csrf"]}
        body = {"workloads": [f"{namespace}/Deployment/web"], "overridden": ["batch-share"]}
        response = browser.post(f"{at}/changes", json=body, headers=headers, timeout=120)
    # 200m used and a margin of a tenth are 220m; of 1 core one step takes 30 %, of 1 GiB 20 %: 819.2, in whole MiB 820
    assert (row["cpu_request"], row["cpu_step"], response.status_code) == (220, 700, 201), response.text
    assert world.template(control_plane, web)["requests"] == {"cpu": "700m", "memory": "820Mi"}
