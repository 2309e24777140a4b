"""What the embedded server adds to the contract: kubeconfig, snapshot, kubectl, our own client, an end."""

from __future__ import annotations

import json
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cotenant.base.errors import ClusterConflict, ClusterForbidden, ClusterInvalid, ClusterUnreachable, StoreCorrupt
from cotenant.base.kube import KubeClient, Mirror, Writer, access_review, connect
from cotenant.base.kubernetes.intent import Address, Apply, Delete, Patch
from cotenant.base.process.clock import FixedClock, SystemClock
from cotenant.base.settings.sections import KubeSettings
from cotenant_lab.simulation.api_server import AccessRule, Account, EmbeddedServer
from tests.cluster import binaries, needing
from tests.cluster.api import ApiError
from tests.contract.target import embedded_api

ADDRESS = Address("v1", "configmaps", "c", "default")


def body(name: str = "c", **data: str) -> dict:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data}


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    with EmbeddedServer(clock=FixedClock(1_800_000_000.0)) as running:
        yield running


def client_of(server: EmbeddedServer, folder: Path, token: str = "") -> KubeClient:
    path = server.write_kubeconfig(folder / f"kubeconfig{len(token)}", token)
    return connect(KubeSettings(kubeconfig=str(path)))


def test_our_own_client_reads_and_writes_it(server: EmbeddedServer, tmp_path: Path) -> None:
    client = client_of(server, tmp_path)
    writer = Writer(client, "cotenant-manager")
    assert writer.send(Apply(ADDRESS, body(a="1")))["data"] == {"a": "1"}
    steps = ({"op": "test", "path": "/data/a", "value": "1"}, {"op": "replace", "path": "/data/a", "value": "2"})
    assert writer.send(Patch(ADDRESS, steps))["data"] == {"a": "2"}
    with pytest.raises(ClusterInvalid):
        writer.send(Patch(ADDRESS, steps))
    with pytest.raises(ClusterConflict):
        Writer(client, "other").send(Apply(ADDRESS, body(a="9"), force=False))
    assert client.list("/api/v1/configmaps")[0]["data"] == {"a": "2"}
    writer.send(Delete(ADDRESS))
    assert client.get(ADDRESS.path) is None


def test_a_mirror_that_lists_again_reads_only_what_changed(server: EmbeddedServer, tmp_path: Path) -> None:
    client, read = client_of(server, tmp_path), list[str]()

    def data_of(config_map: dict[str, Any]) -> dict[str, str]:
        read.append(config_map["metadata"]["name"])
        return dict(config_map["data"])

    mirror = Mirror(client, "/api/v1/namespaces/default/configmaps", project=data_of)
    writer = Writer(client, "test")
    for name in ("a", "b"):
        writer.send(Apply(replace(ADDRESS, name=name), body(name, v="1")))
    mirror.list_once()
    writer.send(Apply(replace(ADDRESS, name="b"), body("b", v="2")))
    mirror.list_once()
    assert mirror.snapshot() == {("default", "a"): {"v": "1"}, ("default", "b"): {"v": "2"}}
    assert read == ["a", "b", "b"]


def test_its_answers_carry_the_clocks_time_and_a_client_counts_ages_by_it(
    server: EmbeddedServer, tmp_path: Path
) -> None:
    before = time.monotonic()
    counted = client_of(server, tmp_path).clock().now_seconds()
    # Years from this machine's time, so that the server's is believed; the header has no fractions of a second.
    assert 1_800_000_000.0 - 1 <= counted <= 1_800_000_000.0 + 1 + time.monotonic() - before


def test_a_client_goes_by_the_machine_where_both_clocks_agree(tmp_path: Path) -> None:
    with EmbeddedServer() as running:
        assert isinstance(client_of(running, tmp_path).clock(), SystemClock)


def test_objects_carry_the_clocks_time(server: EmbeddedServer, tmp_path: Path) -> None:
    config_map = Writer(client_of(server, tmp_path), "one").send(Apply(ADDRESS, body()))
    # 1,800,000,000 s after the epoch
    assert config_map["metadata"]["creationTimestamp"] == "2027-01-15T08:00:00Z"


def test_an_account_may_do_what_its_rules_say(server: EmbeddedServer, tmp_path: Path) -> None:
    reader = Account("reader", (AccessRule(("get", "list"), ("",), ("configmaps",)),))
    client = client_of(server, tmp_path, server.account("reader", reader))
    assert client.list("/api/v1/configmaps") == []
    assert access_review(client, "list", "configmaps")
    assert not access_review(client, "list", "pods")
    with pytest.raises(ClusterForbidden):
        client.list("/api/v1/pods")


def test_nobody_without_a_token_is_served(server: EmbeddedServer) -> None:
    with pytest.raises(ApiError) as refused:
        embedded_api(server, "guessed").get("/api/v1/nodes")
    assert refused.value.status == 401


def test_the_kubeconfig_is_for_its_owner_alone(server: EmbeddedServer, tmp_path: Path) -> None:
    path = server.write_kubeconfig(tmp_path / "kubeconfig")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_snapshot_brings_everything_back(server: EmbeddedServer, tmp_path: Path) -> None:
    live = embedded_api(server).create("/api/v1/namespaces/default/configmaps", body(a="1"))
    saved = server.save(tmp_path / "state.json")
    with EmbeddedServer(snapshot=saved) as again:
        api = embedded_api(again)
        assert api.get("/api/v1/namespaces/default/configmaps/c") == live
        with pytest.raises(ApiError):
            api.create("/api/v1/namespaces", {"metadata": {"name": "default"}})


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"version": 1, "objects": [1]}', '{"version":'])
def test_a_snapshot_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(StoreCorrupt):
        EmbeddedServer(snapshot=tmp_path / "state.json")


def test_stopping_ends_open_watches(tmp_path: Path) -> None:
    server = EmbeddedServer()
    server.start()
    api = embedded_api(server)
    events = api.watch("/api/v1/namespaces", timeoutSeconds="600")
    assert next(events)["object"]["metadata"]["name"] == "default"
    rest: list[object] = []
    reader = threading.Thread(target=lambda: rest.extend(events))
    reader.start()
    server.stop()
    reader.join(30)
    assert not reader.is_alive()


def test_stopping_ends_connections_that_are_kept_open(tmp_path: Path) -> None:
    server = EmbeddedServer()
    server.start()
    client = client_of(server, tmp_path)
    assert client.get("/api/v1/namespaces/default") is not None
    server.stop()
    with pytest.raises(ClusterUnreachable):
        client.get("/api/v1/namespaces/default")


def test_a_history_that_is_full_forgets_the_oldest(tmp_path: Path) -> None:
    with EmbeddedServer(keep=5) as server:
        api = embedded_api(server)
        since = api.get("/api/v1/configmaps")["metadata"]["resourceVersion"]
        for index in range(8):
            api.patch(ADDRESS.path, body(a=str(index)), "apply", fieldManager="one")
        event = next(api.watch("/api/v1/configmaps", resourceVersion=since))
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


def test_a_body_beyond_the_cap_is_refused_unread(server: EmbeddedServer) -> None:
    api = embedded_api(server)
    with pytest.raises((ApiError, OSError)) as refused:
        api.create("/api/v1/namespaces/default/configmaps", body(a="x" * 4_000_000))
    assert not isinstance(refused.value, ApiError) or refused.value.status == 413


@pytest.mark.cluster
def test_kubectl_reads_it(server: EmbeddedServer, tmp_path: Path) -> None:
    needing.kubernetes()
    embedded_api(server).create("/api/v1/namespaces/default/configmaps", body(a="1"))
    path = server.write_kubeconfig(tmp_path / "kubeconfig")

    def kubectl(*arguments: str) -> str:
        command = [str(binaries.find("kubectl")), "--kubeconfig", str(path), "--cache-dir", str(tmp_path), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    assert json.loads(kubectl("get", "cm", "-o", "json"))["items"][0]["data"] == {"a": "1"}
    assert "default" in kubectl("get", "ns")
    kubectl("delete", "configmap", "c")
    assert kubectl("get", "cm").strip() == ""
