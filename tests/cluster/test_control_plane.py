from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.cluster import control_plane as module
from tests.cluster.api import ApiError
from tests.cluster.control_plane import APISERVER, CONTROLLER_MANAGER, ETCD, KWOK, SCHEDULER, ControlPlane
from tests.cluster.process import state
from tests.cluster.waiting import wait_for

pytestmark = pytest.mark.server

CONFIG_MAPS = "/api/v1/namespaces/{}/configmaps"


def config_map(name: str, **data: str) -> dict:
    return {"metadata": {"name": name}, "data": data}


def test_every_component_runs_and_the_ways_in_agree(control_plane: ControlPlane, namespace: str) -> None:
    assert set(control_plane.servers) == {ETCD, APISERVER, CONTROLLER_MANAGER, SCHEDULER, KWOK}
    assert all(server.running for server in control_plane.servers.values())
    assert control_plane.api().exists(f"/api/v1/namespaces/{namespace}")
    assert namespace in control_plane.kubectl("get", "namespaces", "-o", "name")
    live = control_plane.admin_client().get(f"/api/v1/namespaces/{namespace}")
    assert live is not None and live["metadata"]["name"] == namespace


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_has_a_namespace_of_its_own(control_plane: ControlPlane, namespace: str, turn: int) -> None:
    control_plane.api().create(CONFIG_MAPS.format(namespace), config_map("mine", turn=str(turn)))
    items = control_plane.api().items(CONFIG_MAPS.format(namespace), fieldSelector="metadata.name=mine")
    assert [item["data"] for item in items] == [{"turn": str(turn)}]


def test_a_user_may_do_what_a_role_grants_and_nothing_else(control_plane: ControlPlane, namespace: str) -> None:
    jane = control_plane.user("jane", ["readers"])
    path = CONFIG_MAPS.format(namespace)
    with pytest.raises(ApiError) as refused:
        control_plane.api(jane).get(path)
    assert refused.value.status == 403
    control_plane.kubectl("create", "role", "reader", "--verb=list", "--resource=configmaps", "-n", namespace)
    control_plane.kubectl("create", "rolebinding", "reader", "--role=reader", "--group=readers", "-n", namespace)

    def allowed() -> bool:
        try:
            return bool(control_plane.api(jane).get(path))
        except ApiError:
            return False

    wait_for("the right to list", allowed)
    with pytest.raises(ApiError) as refused:
        control_plane.api(jane).create(path, config_map("no"))
    assert refused.value.status == 403


def test_what_was_written_outlives_a_killed_api_server(control_plane: ControlPlane, namespace: str) -> None:
    api = control_plane.api()
    api.create(CONFIG_MAPS.format(namespace), config_map("kept", answer="42"))
    before = control_plane.servers[APISERVER].pid
    control_plane.restart_apiserver()
    assert control_plane.servers[APISERVER].pid != before
    stored = control_plane.api().get(f"{CONFIG_MAPS.format(namespace)}/kept")
    assert stored["data"] == {"answer": "42"}


@pytest.mark.parametrize("name", [APISERVER, ETCD])
def test_a_paused_server_is_silent_and_answers_when_it_goes_on(control_plane: ControlPlane, name: str) -> None:
    api = control_plane.api(timeout=1)
    assert api.get("/api/v1/namespaces/default")
    server = control_plane.servers[name]
    server.pause()
    try:
        assert state(server.pid) == "T"
        with pytest.raises(TimeoutError):  # a write needs both of them
            api.patch("/api/v1/namespaces/default", {"metadata": {"labels": {"paused": name}}})
    finally:
        server.resume()
    wait_for("an answer", control_plane.ready)
    patched = control_plane.api().patch("/api/v1/namespaces/default", {"metadata": {"labels": {"paused": None}}})
    assert "paused" not in patched["metadata"]["labels"]


def test_a_list_that_is_read_across_a_compaction_is_expired(control_plane: ControlPlane, namespace: str) -> None:
    api, path = control_plane.api(), CONFIG_MAPS.format(namespace)
    for number in range(3):
        api.create(path, config_map(f"item-{number}"))
    page = api.get(path, limit="1")
    api.create(path, config_map("later"))
    control_plane.compact()
    control_plane.restart_apiserver()  # its cache of recent lists is gone too
    with pytest.raises(ApiError) as expired:
        control_plane.api().get(path, limit="1", **{"continue": page["metadata"]["continue"]})
    assert expired.value.status == 410


def test_requests_are_counted_as_the_api_server_does(control_plane: ControlPlane, namespace: str) -> None:
    before = control_plane.requests("POST", "configmaps")
    for number in range(3):
        control_plane.api().create(CONFIG_MAPS.format(namespace), config_map(f"counted-{number}"))
    assert control_plane.requests("POST", "configmaps") - before >= 3


def test_a_port_that_somebody_took_first_is_left_to_them(
    control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken, real = [other.getsockname()[1], module.free_port()], module.free_port  # the second is for the peers
        monkeypatch.setattr(module, "free_port", lambda: taken.pop() if taken else real())
        plane = ControlPlane(tmp_path)
        try:
            plane.start_etcd()
            assert taken == []
            assert "address already in use" in (tmp_path / "etcd.log").read_text()
            assert plane.servers[ETCD].running
        finally:
            plane.stop()
    assert not plane.servers[ETCD].running


CHILD = """
import sys, time
from pathlib import Path
from tests.cluster.process import Server
server = Server("sleep", ["/bin/sleep", "3600"], Path(sys.argv[1]))
server.start()
print(server.pid, flush=True)
time.sleep(3600)
"""


def test_nothing_is_left_of_a_session_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CHILD, str(tmp_path / "log")]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as child:
        assert child.stdout is not None
        pid = int(child.stdout.readline())
        wait_for("the program behind the launcher", lambda: b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes()[:10])
        child.send_signal(signal.SIGKILL)
    wait_for("its end", lambda: state(pid) in ("", "Z"))


def test_the_control_plane_is_one_for_the_session(control_plane: ControlPlane) -> None:
    assert threading.current_thread() is threading.main_thread()  # servers end with the thread that started them
    assert control_plane.admin_kubeconfig.is_file()
