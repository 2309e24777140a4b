"""Registered hook servers, behind a proxy before a real containerd: what they change, and what their death does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cotenant.enforcer.runtime.hook_servers import HookServer as Registered
from cotenant.enforcer.runtime.hook_servers import parse
from cotenant.enforcer.runtime.messages import cri as messages
from cotenant.enforcer.runtime.messages import hook
from tests.cluster.waiting import wait_for
from tests.node import pods
from tests.node.containerd import Containerd
from tests.node.cri import Cri, Pod, container
from tests.node.hooking import POINTS, HookServer
from tests.node.proxying import ProxyProcess


@pytest.fixture
def server(containerd: Containerd) -> Iterator[HookServer]:
    with HookServer(containerd.folder / "hook.sock") as hook_server:
        yield hook_server


@pytest.fixture
def proxy(containerd: Containerd, server: HookServer) -> Iterator[ProxyProcess]:
    process = ProxyProcess(containerd.folder, containerd.socket, "hooked")
    process.register("koordlet", server.socket, POINTS)
    with process:
        yield process
    (process.hook_dir / "koordlet.json").unlink(missing_ok=True)


@pytest.fixture
def cri(proxy: ProxyProcess) -> Iterator[Cri]:
    client = proxy.client()
    yield client
    client.close()


def registered_times(proxy: ProxyProcess, times: int) -> bool:
    return proxy.server.written().count("hook servers are registered") >= times


def test_it_is_asked_at_every_point_with_the_pods_own_facts(
    containerd: Containerd, cri: Cri, server: HookServer
) -> None:
    pod = Pod(containerd.base, labels={**pods.labels("LS"), "app": "web"}, annotations={"note": "x"})
    sandbox = cri.run_sandbox(pod)
    config = container(cpu_shares=256)
    config.envs.add(key="A", value="1")
    main = cri.create(sandbox, pod, config)
    cri.start(main)
    cri.update(main, cpu_shares=300)
    cri.call("StopContainer", messages.StopContainerRequest(container_id=main))
    wait_for("the container's end", lambda: "PostStopContainer" in server.points())
    cri.call("StopPodSandbox", messages.SandboxId(pod_sandbox_id=sandbox))
    wait_for("the last call", lambda: len(server.asked) == 7)
    assert set(server.points()) == set(POINTS)
    request = server.of("PreCreateContainer")
    assert (request.pod_meta.uid, request.container_meta.name) == (pod.uid, "main")
    assert dict(request.pod_labels)["app"] == "web"
    assert dict(request.pod_annotations)["note"] == "x"
    assert request.pod_cgroup_parent == pod.cgroup_parent
    assert request.container_resources.cpu_shares == 256
    assert dict(request.container_envs) == {"A": "1"}
    assert server.of("PreRunPodSandbox").cgroup_parent == pod.cgroup_parent
    assert server.of("PreUpdateContainerResources").container_resources.cpu_shares == 300
    assert server.of("PostStartContainer").container_meta.id == main


def test_its_answer_is_merged_field_by_field(containerd: Containerd, cri: Cri, server: HookServer) -> None:
    server.answers["PreRunPodSandbox"] = hook.SandboxResponse(labels={"mine": "1"}, annotations={"note": "y"})
    server.answers["PreCreateContainer"] = hook.ContainerResponse(
        container_resources=hook.Resources(cpu_quota=30_000, cpu_period=100_000),
        container_envs={"A": "2", "B": "3"},
        container_annotations={"seen": "yes"},
    )
    pod = Pod(containerd.base, annotations={"note": "x"})
    sandbox = cri.run_sandbox(pod)
    config = container(cpu_shares=256)
    config.envs.add(key="A", value="1")
    main = cri.create(sandbox, pod, config)
    cri.start(main)
    path = f"{pod.cgroup_parent}/{main}"
    assert containerd.read("cpu", path, "cpu.cfs_quota_us") == "30000"
    assert containerd.read("cpu", path, "cpu.shares") == "256"
    # on a busy machine a runtime may answer before it has copied what a program that ends at once has written
    wait_for("the environment", lambda: cri.exec(main, "/bin/sh", "-c", "echo $A$B").stdout == b"23\n")
    [sandbox_status] = cri.sandboxes()
    assert (sandbox_status.labels["mine"], sandbox_status.annotations["note"]) == ("1", "y")


def test_it_sees_our_decision_and_has_the_last_word(containerd: Containerd, cri: Cri, server: HookServer) -> None:
    server.answers["PreCreateContainer"] = hook.ContainerResponse(container_resources=hook.Resources(cpu_quota=20_000))
    pod = Pod(containerd.base, labels=pods.labels("BE"), annotations=pods.batch())
    main = cri.run(pod, cpu_shares=2)
    assert server.of("PreCreateContainer").container_resources.cpu_quota == pods.QUOTA
    path = f"{pod.cgroup_parent}/{main}"
    assert containerd.read("cpu", path, "cpu.cfs_quota_us") == "20000"
    assert containerd.read("cpu", path, "cpu.shares") == str(pods.SHARES)


def test_it_is_not_asked_about_a_pod_that_wants_to_be_left_alone(
    containerd: Containerd, cri: Cri, server: HookServer
) -> None:
    main = cri.run(Pod(containerd.base, labels=pods.labels("BE", skip=True)))
    cri.update(main, cpu_shares=3)
    assert server.asked == []


def test_a_dead_server_with_policy_ignore_changes_nothing(containerd: Containerd, cri: Cri, server: HookServer) -> None:
    server.stop()
    pod = Pod(containerd.base, labels=pods.labels("BE"), annotations=pods.batch())
    main = cri.run(pod, cpu_shares=2)
    assert containerd.read("cpu", f"{pod.cgroup_parent}/{main}", "cpu.cfs_quota_us") == str(pods.QUOTA)


def test_what_a_server_has_set_outlives_it_and_an_update_of_the_kubelet(
    containerd: Containerd, cri: Cri, server: HookServer
) -> None:
    server.answers["PreCreateContainer"] = hook.ContainerResponse(container_resources=hook.Resources(cpu_quota=20_000))
    pod = Pod(containerd.base, labels=pods.labels("LS"))
    main = cri.run(pod, cpu_shares=256, cpu_quota=40_000, cpu_period=100_000)
    server.stop()
    cri.update(main, cpu_shares=300, cpu_quota=70_000, cpu_period=100_000)
    path = f"{pod.cgroup_parent}/{main}"
    assert containerd.read("cpu", path, "cpu.cfs_quota_us") == "20000"
    assert containerd.read("cpu", path, "cpu.shares") == "300"


def test_a_server_that_hangs_holds_a_call_up_for_its_limit_only(
    containerd: Containerd, proxy: ProxyProcess, server: HookServer
) -> None:
    server.hold.clear()
    pod = Pod(containerd.base)
    with ProxyProcess(containerd.folder, containerd.socket, "hasty", hook_seconds=0.1) as hasty:
        client = hasty.client()
        sandbox = client.run_sandbox(pod)
        assert client.create(sandbox, pod, container())
        client.close()
        told_why = [line for line in hasty.server.written().splitlines() if "DEADLINE_EXCEEDED" in line]
    assert [point for point in POINTS if any(point in line for line in told_why)] == [
        "PreRunPodSandbox",
        "PreCreateContainer",
    ]


def test_a_dead_server_with_policy_fail_refuses_until_it_is_back(
    containerd: Containerd, cri: Cri, server: HookServer, proxy: ProxyProcess
) -> None:
    proxy.register("koordlet", server.socket, ["PreCreateContainer"], "Fail")
    wait_for("the new registration", lambda: registered_times(proxy, 2))
    server.stop()
    pod = Pod(containerd.base)
    sandbox = cri.run_sandbox(pod)
    request = messages.CreateContainerRequest(
        pod_sandbox_id=sandbox, config=container(), sandbox_config=pod.config()
    ).SerializeToString()
    refused = cri.outcome("CreateContainer", request)
    assert refused.code is grpc.StatusCode.FAILED_PRECONDITION
    assert "hook server koordlet.json failed at PreCreateContainer" in refused.details
    server.start()
    wait_for("the server", lambda: cri.outcome("CreateContainer", request).code is grpc.StatusCode.OK)


def test_a_registration_that_is_taken_away_is_forgotten(
    containerd: Containerd, cri: Cri, server: HookServer, proxy: ProxyProcess
) -> None:
    (proxy.hook_dir / "koordlet.json").unlink()
    (proxy.hook_dir / "broken.json").write_text("{")
    wait_for("the folder to be read", lambda: registered_times(proxy, 2) and "broken.json" in proxy.server.written())
    cri.run(Pod(containerd.base))
    (proxy.hook_dir / "broken.json").unlink()
    assert server.asked == []


def test_a_registration_is_read_as_upstream_writes_it(tmp_path: Path) -> None:
    text = {"remote-endpoint": "/run/k.sock", "failure-policy": "Fail", "runtime-hooks": ["PreCreateContainer", "New"]}
    hook_server = parse("k.json", json.dumps(text).encode())
    assert hook_server == Registered("k.json", "unix:/run/k.sock", frozenset({"PreCreateContainer"}), fail=True)


def test_without_a_policy_a_server_is_ignored_when_it_fails() -> None:
    assert not parse("k.json", b'{"remote-endpoint": "unix:///run/k.sock"}').fail


@settings(max_examples=60)
@given(st.binary(max_size=120) | st.text(max_size=60).map(lambda t: json.dumps({"remote-endpoint": t}).encode()))
@example(b'{"remote-endpoint": "relative.sock"}')
@example(b'{"remote-endpoint": "/run/a\\u0000b"}')
def test_a_registration_is_read_or_refused_in_words(text: bytes) -> None:
    try:
        hook_server = parse("x.json", text)
    except ValueError as error:
        assert str(error).startswith("x.json: ")
    else:
        assert hook_server.endpoint.startswith("unix:/")
