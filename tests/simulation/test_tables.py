"""`kubectl get` on the embedded API shows the printer columns of a definition."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cotenant_lab.simulation.api_server import EmbeddedServer
from cotenant_lab.simulation.api_server.tables import BUILT_IN, table
from tests.cluster import binaries
from tests.cluster.crds import install_crd
from tests.contract.target import embedded_api

COLUMNS = (
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
    {"name": "Owner", "type": "string", "jsonPath": ".status.owners[*].name"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
)


def item(**status: object) -> dict[str, object]:
    return {"metadata": {"name": "web", "creationTimestamp": "1970-01-01T00:00:00Z"}, "status": status}


@pytest.mark.parametrize(
    ("seconds", "age"), [(0, "0s"), (119, "119s"), (120, "2m"), (10_799, "179m"), (10_800, "3h"), (172_800, "2d")]
)
def test_a_row_has_the_name_each_column_and_the_age(seconds: float, age: str) -> None:
    full = item(phase="Held", owners=[{"name": "a"}, {"name": "b"}])
    body = {"kind": "XList", "metadata": {"resourceVersion": "7"}, "items": [full, item()]}
    document = table(body, COLUMNS, seconds)
    assert [row["cells"] for row in document["rows"]] == [["web", "Held", "a", age], ["web", None, None, age]]
    assert [column["name"] for column in document["columnDefinitions"]] == ["Name", "Phase", "Owner", "Age"]
    assert document["metadata"] == {"resourceVersion": "7"}
    assert table(full, (), seconds)["rows"][0]["cells"] == ["web", age]


STARTED = {"ready": True, "restartCount": 2, "state": {"running": {}}}
CRASHED = {"ready": False, "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}


@pytest.mark.parametrize(
    ("plural", "parts", "cells"),
    [
        # of two containers one is ready; restarts are summed
        (
            "pods",
            {
                "spec": {"containers": [{}, {}], "nodeName": "n1"},
                "status": {"phase": "Running", "containerStatuses": [STARTED, CRASHED]},
            },
            ["1/2", "CrashLoopBackOff", 5, "0s", "n1"],
        ),
        ("pods", {"spec": {"containers": [{}]}}, ["0/1", "Pending", 0, "0s", None]),
        (
            "nodes",
            {"spec": {"unschedulable": True}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}},
            ["Ready,SchedulingDisabled", "0s"],
        ),
        ("nodes", {}, ["Unknown", "0s"]),
        ("deployments", {"spec": {"replicas": 3}, "status": {"readyReplicas": 2}}, ["2/3", 0, 0, "0s"]),
        (
            "horizontalpodautoscalers",
            {"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "minReplicas": 2, "maxReplicas": 9}},
            ["Deployment/web", 2, 9, 0, "0s"],
        ),
        ("configmaps", {"data": {"a": "1", "b": "2"}}, [2, "0s"]),
    ],
)
def test_built_in_kinds_have_the_columns_that_people_know(
    plural: str, parts: dict[str, object], cells: list[object]
) -> None:
    body = item() | parts
    assert table(body, BUILT_IN[plural], 0.0)["rows"][0]["cells"] == ["web", *cells]


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.server
def test_kubectl_prints_the_columns_of_a_plan(tmp_path: Path) -> None:
    with EmbeddedServer() as server:
        api = embedded_api(server)
        install_crd(api, "reservationplans.cotenant.dev")
        api.create("/api/v1/namespaces", {"metadata": {"name": "shop"}})
        window = {"start": "2027-03-05T18:00:00Z", "end": "2027-03-05T20:00:00Z"}
        spec = {
            "source": "Manual", "owner": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "amount": {"perPod": {"cpu": "2"}, "count": 4}, "window": window,
        }  # fmt: skip
        head = {"apiVersion": "cotenant.dev/v1alpha1", "kind": "ReservationPlan", "metadata": {"name": "peak"}}
        api.create("/apis/cotenant.dev/v1alpha1/namespaces/shop/reservationplans", {**head, "spec": spec})
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        command = (
            str(binaries.find("kubectl")),
            "--kubeconfig",
            str(kubeconfig),
            *("get", "rplan", "-n", "shop", "--cache-dir", str(tmp_path)),
        )
        shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    titles, row = (line.split() for line in shown.splitlines())
    assert titles[:3] == ["NAME", "OWNER", "SOURCE"] and "COUNT" in titles and titles[-1] == "AGE"
    assert row[:3] == ["peak", "web", "Manual"] and "4" in row
