"""The NRI plugin on a real, current containerd with runc: what stands in the cgroup files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from cotenant.enforcer.contract import ContainerSpec, PodSpec
from cotenant.enforcer.decide.container_resources import ContainerSettings
from cotenant.enforcer.runtime.bounded import Bounded
from cotenant.enforcer.runtime.facts import Decide
from cotenant.enforcer.runtime.nri.plugin import NriEvent, NriEventType, NriPlugin
from cotenant.enforcer.settings import RuntimeSettings
from tests.cluster.waiting import wait_for
from tests.node import pods
from tests.node.containerd import Containerd
from tests.node.cri import Cri, Pod, container

MakePlugin = Callable[..., NriPlugin]


@pytest.fixture
def cri(containerd_with_nri: Containerd) -> Cri:
    return containerd_with_nri.client()


@pytest.fixture
def plugin(containerd_with_nri: Containerd) -> Iterator[MakePlugin]:
    started: list[NriPlugin] = []

    def make(decide: Decide = pods.decide, answer_seconds: float = 60.0) -> NriPlugin:
        chosen = RuntimeSettings(nri_socket=str(containerd_with_nri.nri_socket), nri_retry_seconds=0.1)
        nri_events: list[NriEvent] = []
        nri_plugin = NriPlugin(chosen, decide, nri_events.append)
        nri_plugin.heard = nri_events  # type: ignore[attr-defined]
        nri_plugin.bounded = Bounded(answer_seconds)
        nri_plugin.start()
        started.append(nri_plugin)
        wait_for("the registration", lambda: nri_plugin.registered)
        return nri_plugin

    yield make
    for running_plugin in started:
        running_plugin.stop()


def batch_pod(runtime: Containerd, **chosen: bool) -> Pod:
    return Pod(runtime.base, labels=pods.labels("BE", **chosen), annotations=pods.batch())


def cpu_of(runtime: Containerd, of: Pod, container: str) -> tuple[int, int]:
    """(shares, quota) of a container's cgroup."""
    path = f"{of.cgroup_parent}/{container}"
    return int(runtime.read("cpu", path, "cpu.shares")), int(runtime.read("cpu", path, "cpu.cfs_quota_us"))


def test_containers_start_with_what_their_class_gets(
    containerd_with_nri: Containerd, cri: Cri, plugin: MakePlugin
) -> None:
    nri_plugin = plugin()
    batch = batch_pod(containerd_with_nri)
    service = Pod(containerd_with_nri.base, "burstable", pods.labels("LS"), pods.batch())
    pinned = Pod(containerd_with_nri.base, "", pods.labels("LSR"), pods.own_cpus("0"))
    main = cri.run(batch, cpu_shares=2)
    assert cpu_of(containerd_with_nri, batch, main) == (pods.SHARES, pods.QUOTA)
    limit = containerd_with_nri.read("memory", f"{batch.cgroup_parent}/{main}", "memory.limit_in_bytes")
    assert int(limit) == pods.BATCH_BYTES
    web = cri.run(service, cpu_shares=256, cpu_quota=40_000, cpu_period=100_000)
    assert cpu_of(containerd_with_nri, service, web) == (256, 40_000)
    fixed = cri.run(pinned, cpu_shares=1024, cpu_quota=100_000, cpu_period=100_000)
    assert cpu_of(containerd_with_nri, pinned, fixed) == (1024, -1)
    assert containerd_with_nri.read("cpuset", f"{pinned.cgroup_parent}/{fixed}", "cpuset.cpus") == "0"
    assert nri_plugin.counters.adjusted == 2


def test_a_process_sees_the_gpus_that_its_pod_has_shares_of(
    containerd_with_nri: Containerd, cri: Cri, plugin: MakePlugin
) -> None:
    plugin()
    of_gpus = Pod(containerd_with_nri.base, "burstable", pods.labels("LS"), pods.own_gpus("GPU-a", "GPU-b"))
    sandbox, config = cri.run_sandbox(of_gpus), container()
    config.envs.add(key="NVIDIA_VISIBLE_DEVICES", value="all")
    main = cri.create(sandbox, of_gpus, config)
    cri.start(main)
    shown = cri.exec(main, "/bin/sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES")
    assert shown.stdout == b"GPU-a,GPU-b\n"


def test_an_update_does_not_undo_what_it_set(containerd_with_nri: Containerd, cri: Cri, plugin: MakePlugin) -> None:
    plugin()
    batch = batch_pod(containerd_with_nri)
    service = Pod(containerd_with_nri.base, "burstable", pods.labels("LS"))
    main, web = cri.run(batch, cpu_shares=2), cri.run(service, cpu_shares=256)
    cri.update(main, cpu_shares=2, cpu_quota=-1, cpu_period=100_000)
    cri.update(web, cpu_shares=300, cpu_quota=70_000, cpu_period=100_000)
    assert cpu_of(containerd_with_nri, batch, main) == (pods.SHARES, pods.QUOTA)
    assert cpu_of(containerd_with_nri, service, web) == (300, 70_000)


def test_a_pod_with_the_skip_label_starts_as_the_kubelet_said(
    containerd_with_nri: Containerd, cri: Cri, plugin: MakePlugin
) -> None:
    plugin()
    skipped = batch_pod(containerd_with_nri, skip=True)
    assert cpu_of(containerd_with_nri, skipped, cri.run(skipped, cpu_shares=2)) == (2, -1)


def test_a_container_made_while_the_plugin_was_away_is_put_right_when_it_is_back(
    containerd_with_nri: Containerd, cri: Cri, plugin: MakePlugin
) -> None:
    plugin().stop()
    batch = batch_pod(containerd_with_nri)
    main = cri.run(batch, cpu_shares=2)
    assert cpu_of(containerd_with_nri, batch, main) == (2, -1)
    plugin()
    wait_for("the container's limits", lambda: cpu_of(containerd_with_nri, batch, main) == (pods.SHARES, pods.QUOTA))


def test_a_decision_that_hangs_costs_its_limit_and_the_container_starts(
    containerd_with_nri: Containerd, cri: Cri, plugin: MakePlugin
) -> None:
    over = threading.Event()

    def slow(pod: PodSpec, container: ContainerSpec, _: str) -> ContainerSettings:
        over.wait(60)
        return pods.decide(pod, container)

    nri_plugin = plugin(slow, answer_seconds=0.2)
    batch = batch_pod(containerd_with_nri)
    assert cpu_of(containerd_with_nri, batch, cri.run(batch, cpu_shares=2)) == (2, -1)
    over.set()
    # Still registered: the runtime throws a plugin out only after two seconds.
    assert nri_plugin.registered
    wait_for("the decision to be over", lambda: not nri_plugin.bounded.busy)
    after = batch_pod(containerd_with_nri)
    assert cpu_of(containerd_with_nri, after, cri.run(after, cpu_shares=2)) == (pods.SHARES, pods.QUOTA)


def test_it_finds_a_runtime_that_was_killed_and_started_again(
    containerd_with_nri: Containerd, cri: Cri, plugin: MakePlugin
) -> None:
    nri_plugin = plugin()
    batch = batch_pod(containerd_with_nri)
    main = cri.run(batch, cpu_shares=2)
    containerd_with_nri.kill()
    wait_for("the end of the connection", lambda: not nri_plugin.registered)
    containerd_with_nri.start()
    wait_for("a new registration", lambda: nri_plugin.registered)
    assert nri_plugin.counters.registrations == 2
    assert cpu_of(containerd_with_nri, batch, main) == (pods.SHARES, pods.QUOTA)
    after = batch_pod(containerd_with_nri)
    assert cpu_of(containerd_with_nri, after, cri.run(after)) == (pods.SHARES, pods.QUOTA)


def test_a_second_plugin_that_wants_the_same_harms_nobody(
    containerd_with_nri: Containerd, cri: Cri, plugin: MakePlugin
) -> None:
    """NRI refuses a container of which two plugins set one field; the second sees what the first has set already."""
    plugin()
    plugin()
    batch = batch_pod(containerd_with_nri)
    assert cpu_of(containerd_with_nri, batch, cri.run(batch, cpu_shares=2)) == (pods.SHARES, pods.QUOTA)


def test_the_reconciler_is_woken_when_a_container_has_started(
    containerd_with_nri: Containerd, cri: Cri, plugin: MakePlugin
) -> None:
    nri_plugin = plugin()
    batch = batch_pod(containerd_with_nri)
    main = cri.run(batch)
    event = NriEvent(NriEventType.POST_START_CONTAINER, batch.uid, main)
    wait_for("the event", lambda: event in nri_plugin.heard)  # type: ignore[attr-defined]
    kinds = [e.event for e in nri_plugin.heard if e.pod_uid == batch.uid]  # type: ignore[attr-defined]
    assert kinds[:3] == [NriEventType.RUN_POD_SANDBOX, NriEventType.CREATE_CONTAINER, NriEventType.POST_START_CONTAINER]


def test_many_containers_at_once_all_start_with_their_limits(
    containerd_with_nri: Containerd, cri: Cri, plugin: MakePlugin
) -> None:
    plugin()
    pod_of_container: dict[str, Pod] = {}

    def work() -> None:
        pod = batch_pod(containerd_with_nri)
        pod_of_container[cri.run(pod, cpu_shares=2)] = pod

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert {cpu_of(containerd_with_nri, pod, name) for name, pod in pod_of_container.items()} == {
        (pods.SHARES, pods.QUOTA)
    }
    assert len(pod_of_container) == 8
