"""An uninstallation where the API server refuses a part: the rest goes, and the rows say what stays and why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from typer.testing import CliRunner

from cotenant.base.commands.session import EXIT_PARTIAL
from cotenant.cli import main
from tests.support.api_server import ApiServer, Handler

OUT_OF_ORDER = "/apis/metrics.k8s.io/v1beta1"
POD = "/api/v1/namespaces/shop/pods/web"
NODE = "/api/v1/nodes/n1"
CONFIG = "/api/v1/namespaces/shop/configmaps/ours"
OURS = {"app.kubernetes.io/managed-by": "cotenant"}
LEASE = "/apis/coordination.k8s.io/v1/namespaces/koordinator-system/leases/cotenant-manager"
SWITCH = "/api/v1/namespaces/koordinator-system/configmaps/cotenant-autopilot"
AMOUNT = "kubernetes.io/batch-cpu"


class Refusing(Handler):
    """Serves groups of which one is out of order, refuses patches of a pod, and loses the first patch of a node."""

    server: RefusingServer
    disable_nagle_algorithm = True

    def do_GET(self) -> None:  # noqa: N802 - the name that the base class calls
        if urlsplit(self.path).path.startswith(OUT_OF_ORDER):
            self.status(503, "service unavailable")
        else:
            super().do_GET()

    def do_PATCH(self) -> None:  # noqa: N802 - the name that the base class calls
        operations = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.startswith(POD):
            self.status(403, "admission webhook kyverno denied the request")
            return
        node = self.server.objects[NODE]
        assert isinstance(node, dict)
        absent = any(operation["path"].endswith("gone") for operation in operations)
        node["metadata"]["annotations"].pop("cotenant.dev/gone", None)  # another process is faster, the first time
        if absent:
            self.status(422, "the server rejected our request due to an error in our request")
        else:
            self.server.given_back += [operation["path"] for operation in operations]
            self.answer(200, node)

    def do_DELETE(self) -> None:  # noqa: N802 - the name that the base class calls
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.deleted.append(self.path)
        lease = self.server.objects.pop(self.path)
        if self.path == LEASE and self.server.deleted.count(LEASE) == 1:  # its holder ends only now
            self.server.objects[LEASE] = {**lease, "metadata": {**lease["metadata"], "uid": "made again"}}  # type: ignore[dict-item, call-overload]
        self.answer(200, {})


class RefusingServer(ApiServer):
    def __init__(self) -> None:
        super().__init__(None, None)
        self.RequestHandlerClass = Refusing
        self.deleted: list[str] = []
        self.given_back: list[str] = []


@pytest.fixture
def server() -> Iterator[RefusingServer]:
    server = RefusingServer()
    fields: dict[str, Any] = {
        "f:metadata": {"f:annotations": {"f:cotenant.dev/gone": {}}},
        "f:status": {"f:capacity": {f"f:{AMOUNT}": {}}},
    }
    node = {
        "metadata": {
            "name": "n1",
            "annotations": {"cotenant.dev/gone": "1"},
            "managedFields": [{"manager": "cotenant-manager", "fieldsV1": fields}],
        },
        "status": {"capacity": {AMOUNT: "1000"}},
    }
    pod = {"metadata": {"name": "web", "namespace": "shop", "annotations": {"cotenant.dev/change": "c"}}, "spec": {}}
    config = {"metadata": {"name": "ours", "namespace": "shop", "uid": "u", "labels": OURS}}
    group = {"name": "metrics.k8s.io", "preferredVersion": {"groupVersion": "metrics.k8s.io/v1beta1"}}
    configmaps = {"name": "configmaps", "verbs": ["list", "delete"]}
    server.objects |= {
        "/apis": {"groups": [group]},
        "/api/v1": {"resources": [configmaps]},
        "/api/v1/nodes": [node],
        "/api/v1/pods": [pod],
        "/api/v1/configmaps": [config],
        NODE: node,
        POD: pod,
        CONFIG: config,
    }
    yield server
    server.stop()


@pytest.fixture
def willing(server: RefusingServer) -> RefusingServer:
    server.objects["/api/v1/pods"] = []  # no patch that is refused, and tried again for ten seconds
    return server


def kubeconfig(folder: Path, url: str) -> Path:
    config = folder / "config"
    cluster = {"name": "a", "cluster": {"server": url}}
    context = {"name": "a", "context": {"cluster": "a", "user": "a"}}
    user = {"name": "a", "user": {}}
    config.write_text(
        yaml.safe_dump({"current-context": "a", "contexts": [context], "clusters": [cluster], "users": [user]})
    )
    return config


@pytest.mark.slow
def test_what_the_server_refuses_stays_and_is_named_while_the_rest_goes(server: RefusingServer, tmp_path: Path) -> None:
    config = kubeconfig(tmp_path, server.url)
    arguments = ["uninstall", "--yes", "--kubeconfig", str(config), "-o", "json"]
    done = CliRunner().invoke(main.root, arguments)
    assert done.exit_code == EXIT_PARTIAL, done.output
    rows = {row["object"]: (row["state"], row["note"]) for row in json.loads(done.stdout)}
    assert rows.keys() == {"metrics.k8s.io/v1beta1", "pods/shop/web", "nodes/n1", "configmaps/shop/ours"}
    assert rows["metrics.k8s.io/v1beta1"][0] == rows["pods/shop/web"][0] == "refused"
    assert "not read: " in rows["metrics.k8s.io/v1beta1"][1] and "503" in rows["metrics.k8s.io/v1beta1"][1]
    assert "kyverno denied" in rows["pods/shop/web"][1]
    assert (rows["nodes/n1"][0], rows["configmaps/shop/ours"][0]) == ("give back", "delete")
    assert server.deleted == [CONFIG] and server.given_back == ["/status/capacity/kubernetes.io~1batch-cpu"]
    assert "2 objects removed or restored" in done.stderr


@pytest.mark.slow
def test_a_lease_that_its_holder_makes_again_while_it_ends_is_removed_too(
    server: RefusingServer, tmp_path: Path
) -> None:
    server.objects[LEASE] = {"metadata": {"name": "cotenant-manager", "namespace": "koordinator-system", "uid": "u"}}
    config = kubeconfig(tmp_path, server.url)
    done = CliRunner().invoke(main.root, ["uninstall", "--yes", "--kubeconfig", str(config), "-o", "json"])
    states = [row["state"] for row in json.loads(done.stdout) if row["object"].startswith("leases/")]
    assert states == ["delete", "delete"] and LEASE not in server.objects


@pytest.mark.slow
def test_a_manager_that_runs_on_outside_of_the_cluster_is_named_and_the_uninstallation_is_not_complete(
    willing: RefusingServer, tmp_path: Path
) -> None:
    # Its rights are not the ones that are removed: it makes its Lease again, and writes what it had written.
    lease: dict[str, Any] = {"metadata": {"name": "cotenant-manager", "namespace": "koordinator-system", "uid": "u"}}
    willing.objects[LEASE] = lease | {"spec": {"holderIdentity": "laptop_1"}}
    config = kubeconfig(tmp_path, willing.url)
    shown = CliRunner().invoke(main.root, ["uninstall", "--kubeconfig", str(config), "-o", "json"])
    notes = [row["note"] for row in json.loads(shown.stdout) if row["object"].startswith("leases/")]
    assert notes == ["held by laptop_1"]
    done = CliRunner().invoke(main.root, ["uninstall", "--yes", "--kubeconfig", str(config), "-o", "json"])
    assert done.exit_code == EXIT_PARTIAL, done.output
    rows = [row for row in json.loads(done.stdout) if row["object"].startswith("leases/")]
    assert [row["state"] for row in rows] == ["delete", "refused"]
    assert rows[1]["note"].startswith("held by laptop_1, which keeps running") and "end it" in rows[1]["note"]


@pytest.mark.slow
@pytest.mark.parametrize(("value", "stops"), [("false", False), ("paused by ann: incident", True)])
def test_the_autopilots_switch_goes_unless_it_stops_changes(
    willing: RefusingServer, tmp_path: Path, value: str, stops: bool
) -> None:
    # A later installation must not act against what a person stopped; a switch that stops nothing is our leftover.
    metadata = {"name": "cotenant-autopilot", "namespace": "koordinator-system", "uid": "u"}
    willing.objects[SWITCH] = {"metadata": metadata, "data": {"paused": value}}
    config = kubeconfig(tmp_path, willing.url)
    done = CliRunner().invoke(main.root, ["uninstall", "--yes", "--kubeconfig", str(config), "-o", "json"])
    rows = {row["object"]: row["state"] for row in json.loads(done.stdout)}
    assert rows.get("configmaps/koordinator-system/cotenant-autopilot") == (None if stops else "delete")
    assert (SWITCH in willing.objects) == stops


@pytest.mark.slow
def test_a_right_that_is_missing_for_one_object_stops_no_other_removal(willing: RefusingServer, tmp_path: Path) -> None:
    willing.forbidden = {LEASE}
    config = kubeconfig(tmp_path, willing.url)
    done = CliRunner().invoke(main.root, ["uninstall", "--yes", "--kubeconfig", str(config), "-o", "json"])
    assert done.exit_code == EXIT_PARTIAL, done.output
    rows = {row["object"]: row["state"] for row in json.loads(done.stdout)}
    assert rows["leases/koordinator-system/cotenant-manager"] == "refused"
    assert CONFIG in willing.deleted


def test_a_cluster_that_may_not_be_looked_at_is_not_said_to_hold_nothing(tmp_path: Path) -> None:
    server = ApiServer(None, None)
    server.objects |= {"/api/v1/namespaces/cotenant/pods": []}
    server.forbidden = {"/api/v1/nodes", "/api/v1/pods"}
    config = kubeconfig(tmp_path, server.url)
    done = CliRunner().invoke(main.root, ["uninstall", "--after-helm", "--yes", "--kubeconfig", str(config)])
    server.stop()
    assert done.exit_code == EXIT_PARTIAL, done.output
    assert "cotenant has nothing to remove here" not in done.output
    assert "nothing was removed" in done.output
