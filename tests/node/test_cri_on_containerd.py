"""The CRI proxy before a real containerd with runc: what stands in the cgroup files, and what survives which death."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from cotenant.enforcer.runtime.cri_forward import _UNARY, _UNARY_IMAGES
from cotenant.enforcer.runtime.messages import cri as messages
from tests.cluster.waiting import wait_for
from tests.node import pods
from tests.node.containerd import CGROUPS, Containerd
from tests.node.cri import Cri, Outcome, Pod, container
from tests.node.proxying import ProxyProcess

NOBODY = b"\x0a\x06nobody"
"""Field 1, a text: the id in most requests."""


@pytest.fixture(scope="module")
def proxy(_debian_containerd: Containerd) -> Iterator[ProxyProcess]:
    with ProxyProcess(_debian_containerd.folder, _debian_containerd.socket) as process:
        yield process


@pytest.fixture
def cri(containerd: Containerd, proxy: ProxyProcess) -> Iterator[Cri]:
    """A client of the proxy, which serves again whatever the test before has done to it."""
    if not proxy.server.running:
        proxy.start()
    client = proxy.client()
    yield client
    client.close()


def batch_pod(runtime: Containerd, **chosen: bool) -> Pod:
    return Pod(runtime.base, labels=pods.labels("BE", **chosen), annotations=pods.batch())


def cpu_of(runtime: Containerd, of: Pod, name: str) -> tuple[int, int]:
    """(shares, quota) of a container's cgroup."""
    path = f"{of.cgroup_parent}/{name}"
    return int(runtime.read("cpu", path, "cpu.shares")), int(runtime.read("cpu", path, "cpu.cfs_quota_us"))


BATCH = (pods.SHARES, pods.QUOTA)


def test_containers_start_with_what_their_class_gets(containerd: Containerd, cri: Cri) -> None:
    batch = batch_pod(containerd)
    service = Pod(containerd.base, "burstable", pods.labels("LS"), pods.batch())
    pinned = Pod(containerd.base, "", pods.labels("LSR"), pods.own_cpus("0"))
    main = cri.run(batch, cpu_shares=2)
    assert cpu_of(containerd, batch, main) == BATCH
    limit = containerd.read("memory", f"{batch.cgroup_parent}/{main}", "memory.limit_in_bytes")
    assert int(limit) == pods.BATCH_BYTES
    web = cri.run(service, cpu_shares=256, cpu_quota=40_000, cpu_period=100_000)
    assert cpu_of(containerd, service, web) == (256, 40_000)
    fixed = cri.run(pinned, cpu_shares=1024, cpu_quota=100_000, cpu_period=100_000)
    assert cpu_of(containerd, pinned, fixed) == (1024, -1)
    assert containerd.read("cpuset", f"{pinned.cgroup_parent}/{fixed}", "cpuset.cpus") == "0"


def test_an_update_does_not_undo_what_was_set_and_a_services_passes(containerd: Containerd, cri: Cri) -> None:
    batch, service = batch_pod(containerd), Pod(containerd.base, "burstable", pods.labels("LS"))
    main, web = cri.run(batch, cpu_shares=2), cri.run(service, cpu_shares=256)
    cri.update(main, cpu_shares=2, cpu_quota=-1, cpu_period=100_000, cpuset_cpus="0")
    cri.update(web, cpu_shares=300, cpu_quota=70_000, cpu_period=100_000)
    assert cpu_of(containerd, batch, main) == BATCH
    assert containerd.read("cpuset", f"{batch.cgroup_parent}/{main}", "cpuset.cpus") == "0"
    assert cpu_of(containerd, service, web) == (300, 70_000)


def test_a_pod_with_the_skip_label_starts_as_the_kubelet_said(containerd: Containerd, cri: Cri) -> None:
    skipped = batch_pod(containerd, skip=True)
    main = cri.run(skipped, cpu_shares=2)
    cri.update(main, cpu_shares=3)
    assert cpu_of(containerd, skipped, main) == (3, -1)


def test_no_quota_is_set_that_the_cgroups_above_would_refuse(containerd: Containerd, cri: Cri) -> None:
    """While best effort as a whole may use a tenth of a core, the kernel takes no half core below it (EINVAL)."""
    first, second = batch_pod(containerd), batch_pod(containerd)
    tier = CGROUPS / "cpu" / containerd.base / "kubepods" / "besteffort" / "cpu.cfs_quota_us"
    held_back = cri.run(first, cpu_shares=2)
    cri.call("StopContainer", messages.StopContainerRequest(container_id=held_back))
    cri.remove_all()
    tier.write_text("10000")
    try:
        assert cpu_of(containerd, second, cri.run(second, cpu_shares=2)) == (pods.SHARES, -1)
    finally:
        cri.remove_all()
        tier.write_text("-1")


def test_no_cpus_are_set_that_the_cgroups_above_do_not_have(containerd: Containerd, cri: Cri) -> None:
    pinned = Pod(containerd.base, "", pods.labels("LSR"), pods.own_cpus("0,900"))
    main = cri.run(pinned, cpu_shares=1024)
    every = (CGROUPS / "cpuset" / containerd.base / "cpuset.cpus").read_text().strip()
    assert containerd.read("cpuset", f"{pinned.cgroup_parent}/{main}", "cpuset.cpus") == every


@pytest.mark.slow
def test_the_policy_file_is_followed_as_it_changes(containerd: Containerd, tmp_path: Path) -> None:
    """While best effort as a whole is held by a quota, no pod below it has one (upstream's cfsQuota policy)."""
    policy = tmp_path / "slo.json"
    policy.write_text("{}")
    with ProxyProcess(containerd.folder, containerd.socket, "policed", policy) as policed:
        client = policed.client()
        pod = batch_pod(containerd)
        assert cpu_of(containerd, pod, client.run(pod, cpu_shares=2)) == BATCH
        draft = tmp_path / "draft"
        draft.write_text('{"resourceUsedThresholdWithBE": {"enable": true, "cpuSuppressPolicy": "cfsQuota"}}')
        draft.rename(policy)
        two = batch_pod(containerd)
        assert cpu_of(containerd, two, client.run(two, cpu_shares=2)) == (pods.SHARES, -1)
        policy.write_text("nonsense: [")
        three = batch_pod(containerd)
        assert cpu_of(containerd, three, client.run(three, cpu_shares=2)) == (pods.SHARES, -1)
        client.close()


def test_a_container_that_started_without_its_limits_gets_them_when_the_decision_comes(
    containerd: Containerd, tmp_path: Path
) -> None:
    """The decision hangs: its policy is a pipe that nobody writes to yet."""
    policy, draft = tmp_path / "slo.json", tmp_path / "draft"
    os.mkfifo(policy)
    draft.write_text("{}")
    with ProxyProcess(containerd.folder, containerd.socket, "hanging", policy, hook_seconds=0.2) as hanging:
        client = hanging.client()
        batch = batch_pod(containerd)
        main = client.run(batch, cpu_shares=2)
        assert cpu_of(containerd, batch, main) == (2, -1)
        with policy.open("w") as pipe:
            draft.rename(policy)
            pipe.write("{}")
        wait_for("its limits", lambda: cpu_of(containerd, batch, main) == BATCH)
        client.close()


def test_a_proxy_that_was_killed_knows_its_containers_again(
    containerd: Containerd, cri: Cri, proxy: ProxyProcess
) -> None:
    batch = batch_pod(containerd)
    main = cri.run(batch, cpu_shares=2)
    proxy.server.kill()
    assert cri.outcome("Version").code is grpc.StatusCode.UNAVAILABLE
    proxy.start()
    wait_for("the proxy", cri.ready)
    cri.update(main, cpu_shares=2, cpu_quota=-1)
    assert cpu_of(containerd, batch, main) == BATCH


@pytest.mark.slow
def test_a_runtime_that_was_killed_is_found_again_and_its_containers_live(containerd: Containerd, cri: Cri) -> None:
    batch = batch_pod(containerd)
    main = cri.run(batch, cpu_shares=2)
    containerd.kill()
    wait_for("the outage", lambda: cri.outcome("Version").code is grpc.StatusCode.UNAVAILABLE)
    containerd.start()
    wait_for("the runtime", cri.ready)
    wait_for("a sign of life", lambda: cri.exec(main, "/bin/echo", "alive").stdout == b"alive\n")
    cri.update(main, cpu_shares=2, cpu_quota=-1)
    assert cpu_of(containerd, batch, main) == BATCH


def test_a_proxy_that_is_stopped_and_continued_loses_no_call(
    containerd: Containerd, cri: Cri, proxy: ProxyProcess
) -> None:
    proxy.server.pause()
    call = cri.channel.unary_unary("/runtime.v1.RuntimeService/Version").future(b"", timeout=60)
    proxy.server.send(signal.SIGCONT)
    assert b"containerd" in call.result()


def test_output_larger_than_grpcs_default_passes(containerd: Containerd, cri: Cri) -> None:
    main = cri.run(Pod(containerd.base))
    # 5 MiB of stdout, over the default limit of 4 MiB
    assert len(cri.exec(main, "/bin/head", "-c", str(5 << 20), "/dev/zero").stdout) == 5 << 20


def test_what_streams_apart_from_grpc_gets_the_runtimes_own_address(containerd: Containerd, cri: Cri) -> None:
    """Exec, Attach and PortForward answer with a URL that the kubelet goes to itself: there is nothing to proxy."""
    main = cri.run(Pod(containerd.base))
    request = b"\x0a" + bytes([len(main)]) + main.encode() + b"\x12\x07/bin/sh\x28\x01"
    url = cri.outcome("Exec", request)
    assert url.code is grpc.StatusCode.OK
    assert b"http://127.0.0.1:" in url.body


@pytest.mark.parametrize("service", ["runtime.v1.RuntimeService", "runtime.v1alpha2.RuntimeService"])
@pytest.mark.parametrize("body", [b"", NOBODY, b"\xff\xff garbage"], ids=["empty", "nobody", "garbage"])
def test_every_runtime_method_ends_as_it_does_directly(
    containerd: Containerd, proxy: ProxyProcess, cri: Cri, service: str, body: bytes
) -> None:
    direct, through = containerd.client(service=service), proxy.client()
    through.service = service
    methods = [*_UNARY.split(), "GetContainerEvents", "NobodyHasIt"]
    differing = {m: pair for m in methods if _ending(pair := (direct.outcome(m, body), through.outcome(m, body)))}
    through.close()
    assert differing == {}


@pytest.mark.parametrize("service", ["runtime.v1.ImageService", "runtime.v1alpha2.ImageService"])
def test_every_image_method_ends_as_it_does_directly(
    containerd: Containerd, proxy: ProxyProcess, cri: Cri, service: str
) -> None:
    direct, through = containerd.client(service=service), proxy.client()
    through.service = service
    differing = {
        (m, body): pair
        for m in _UNARY_IMAGES.split()
        for body in (b"", b"\xff garbage")
        if _ending(pair := (direct.outcome(m, body), through.outcome(m, body)))
    }
    through.close()
    assert differing == {}


def _ending(pair: tuple[Outcome, Outcome]) -> bool:
    """Whether they differ; what a method answers may change from one call to the next, how it ends may not."""
    outcome, other = pair
    return (outcome.code, outcome.details, outcome.trailing) != (other.code, other.details, other.trailing)


def test_events_of_a_runtime_that_has_them_stream_through(containerd_with_nri: Containerd) -> None:
    with ProxyProcess(containerd_with_nri.folder, containerd_with_nri.socket) as before:
        client = before.client()
        events = client.channel.unary_stream("/runtime.v1.RuntimeService/GetContainerEvents")(b"", timeout=120)
        pod = batch_pod(containerd_with_nri)
        sandbox = client.run_sandbox(pod)
        main = client.create(sandbox, pod, container(cpu_shares=2))
        client.start(main)
        assert any(main.encode() in event for event in events)
        events.cancel()
        assert cpu_of(containerd_with_nri, pod, main) == BATCH
        client.close()
