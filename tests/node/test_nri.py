"""The NRI plugin against a runtime that a test plays, fault by fault."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cotenant.enforcer.contract import ContainerSpec, PodSpec
from cotenant.enforcer.decide.container_resources import ContainerSettings
from cotenant.enforcer.runtime.bounded import Bounded
from cotenant.enforcer.runtime.facts import Decide
from cotenant.enforcer.runtime.messages import nri
from cotenant.enforcer.runtime.nri.plugin import NriEvent, NriEventType, NriPlugin
from cotenant.enforcer.settings import RuntimeSettings
from tests.cluster.waiting import wait_for
from tests.node import pods
from tests.node.fake_nri import TO_PLUGIN, FakeRuntime, Peer, PluginError, container, pod

pytestmark = pytest.mark.server

MakePlugin = Callable[..., NriPlugin]
BATCH = pod("b", pods.labels("BE"), pods.batch())
UNREADABLE = {"scheduling.koordinator.sh/device-allocated": "{"}


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[FakeRuntime]:
    fake_runtime = FakeRuntime(tmp_path / "nri.sock")
    yield fake_runtime
    fake_runtime.close()


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[MakePlugin]:
    started: list[NriPlugin] = []

    def make(decide: Decide = pods.decide, events: list[NriEvent] | None = None, **chosen: float) -> NriPlugin:
        values: dict[str, Any] = {"nri_socket": str(tmp_path / "nri.sock"), "nri_retry_seconds": 0.05}
        nri_plugin = NriPlugin(
            RuntimeSettings(**{**values, **chosen}), decide, ([] if events is None else events).append
        )
        if "nri_answer_seconds" not in chosen:
            nri_plugin.bounded = Bounded(60.0)  # a busy machine is no fault here
        nri_plugin.start()
        started.append(nri_plugin)
        return nri_plugin

    yield make
    for running_plugin in started:
        running_plugin.stop()


def test_it_registers_and_says_which_events_it_wants(runtime: FakeRuntime, plugin: MakePlugin) -> None:
    nri_plugin = plugin()
    with runtime.connection() as peer:
        stream, request = peer.take_registration()
        assert (request.name, request.index) == ("cotenant", "90")
        peer.accept(stream)
        response = nri.ConfigureResponse.FromString(peer.ask("Configure", b""))
        # bits 0, 2, 3, 6, 7, 10: RunPodSandbox, RemovePodSandbox, Create-, PostStart-, Update-, RemoveContainer
        assert response.events == 1 + 4 + 8 + 64 + 128 + 1024
        peer.synchronize([], [])
        wait_for("the registration", lambda: nri_plugin.registered)


def test_calls_that_come_before_the_registration_is_answered_are_answered(
    runtime: FakeRuntime, plugin: MakePlugin
) -> None:
    plugin()
    with runtime.connection() as peer:
        stream, _ = peer.take_registration()
        assert nri.ConfigureResponse.FromString(peer.ask("Configure", b"")).events
        peer.accept(stream)
        assert not peer.synchronize([], []).updates


def test_a_batch_container_gets_its_limits_and_a_service_is_left_alone(
    runtime: FakeRuntime, plugin: MakePlugin
) -> None:
    plugin()
    with runtime.connection() as peer:
        peer.welcome()
        cpu = peer.create(BATCH, container(of="b")).adjust.linux.resources.cpu
        assert (cpu.shares.value, cpu.quota.value, cpu.period.value) == (pods.SHARES, pods.QUOTA, 100_000)
        service = pod("s", pods.labels("LS"), pods.batch())
        assert not peer.create(service, container(of="s", shares=1024, quota=25_000)).ByteSize()


def test_a_pod_with_cpus_of_its_own_gets_them_and_loses_its_quota(runtime: FakeRuntime, plugin: MakePlugin) -> None:
    plugin()
    with runtime.connection() as peer:
        peer.welcome()
        pinned = pod("r", pods.labels("LSR"), pods.own_cpus("0-1"))
        cpu = peer.create(pinned, container(of="r", quota=200_000)).adjust.linux.resources.cpu
        assert (cpu.cpus, cpu.quota.value) == ("0-1", -1)


def test_a_pod_with_shares_of_gpus_sees_these_and_is_left_alone_when_another_plugin_said_so(
    runtime: FakeRuntime, plugin: MakePlugin
) -> None:
    plugin()
    with runtime.connection() as peer:
        peer.welcome()
        of_gpus = pod("g", pods.labels("LS"), pods.own_gpus("GPU-a", ""))
        created = container(of="g")
        created.env.append("NVIDIA_VISIBLE_DEVICES=all")  # as many images say
        adjust = peer.create(of_gpus, created).adjust
        # the second one has no id: its minor stands for it
        assert [(variable.key, variable.value) for variable in adjust.env] == [("NVIDIA_VISIBLE_DEVICES", "GPU-a,1")]
        created.env[:] = ["NVIDIA_VISIBLE_DEVICES=GPU-a,1"]
        assert not peer.create(of_gpus, created).ByteSize()
        for labels, texts in ((pods.labels("LS", skip=True), pods.own_gpus("GPU-a")), (pods.labels("LS"), UNREADABLE)):
            assert not peer.create(pod("h", labels, texts), container(of="h")).ByteSize()


def test_a_pod_with_the_skip_label_is_left_alone(runtime: FakeRuntime, plugin: MakePlugin) -> None:
    plugin()
    with runtime.connection() as peer:
        peer.welcome()
        skipped = pod("k", pods.labels("BE", skip=True), pods.batch())
        assert not peer.create(skipped, container(of="k")).ByteSize()


def test_an_update_of_the_kubelet_is_corrected_in_the_answer(runtime: FakeRuntime, plugin: MakePlugin) -> None:
    plugin()
    with runtime.connection() as peer:
        peer.welcome()
        resources = nri.Resources(cpu=nri.Cpu(shares=nri.UInt64(value=2), quota=nri.Int64(value=-1)))
        request = nri.ContainerRequest(pod=BATCH, container=container(of="b"), resources=resources)
        response = nri.UpdateContainerResponse.FromString(peer.ask("UpdateContainer", request.SerializeToString()))
        cpu = response.updates[0].linux.resources.cpu
        assert response.updates[0].container_id == "b-main"
        assert (cpu.shares.value, cpu.quota.value) == (pods.SHARES, pods.QUOTA)


def test_what_was_created_while_it_was_away_is_put_right_at_synchronize(
    runtime: FakeRuntime, plugin: MakePlugin
) -> None:
    plugin()
    wrong, right = container("main", "b", shares=2), container("main", "c", shares=512, quota=50_000)
    right.linux.resources.memory.limit.value = pods.BATCH_BYTES
    stopped = container("old", "b", state=4)
    same = pod("c", pods.labels("BE"), pods.batch())
    with runtime.connection() as peer:
        updates = peer.welcome([BATCH, same], [wrong, right, stopped, container(of="unknown")]).updates
        assert [(u.container_id, u.ignore_failure) for u in updates] == [("b-main", True)]


def test_parts_of_a_synchronize_are_echoed_and_answered_together(runtime: FakeRuntime, plugin: MakePlugin) -> None:
    plugin()
    with runtime.connection() as peer:
        stream, _ = peer.take_registration()
        peer.accept(stream)
        first = peer.synchronize([BATCH], [], more=True)
        assert first.more
        assert not first.updates
        last = peer.synchronize([], [container(of="b")])
        assert not last.more
        assert len(last.updates) == 1


def test_large_calls_arrive_and_large_answers_leave_in_small_frames(runtime: FakeRuntime, plugin: MakePlugin) -> None:
    plugin()
    batch = [pod(f"b{n}", pods.labels("BE"), pods.batch()) for n in range(1000)]
    many = [container(of=batch_pod.name) for batch_pod in batch]
    with runtime.connection() as peer:
        response = peer.welcome(batch, many)
        assert len(response.updates) == 1000
        assert response.ByteSize() > 32 * 1024
        assert peer.largest_frame <= 4096


@pytest.mark.parametrize("piece", [1, 7, 65_536])
def test_borders_of_frames_mean_nothing(runtime: FakeRuntime, plugin: MakePlugin, piece: int) -> None:
    plugin()
    with runtime.connection() as peer:
        peer.welcome()
        request = nri.ContainerRequest(pod=BATCH, container=container(of="b")).SerializeToString()
        response = nri.CreateContainerResponse.FromString(peer.ask("CreateContainer", request, piece=piece))
        assert response.adjust.linux.resources.cpu.quota.value == pods.QUOTA


def test_a_method_or_service_that_it_does_not_know_is_unimplemented(runtime: FakeRuntime, plugin: MakePlugin) -> None:
    plugin()
    with runtime.connection() as peer:
        peer.welcome()
        for method, service in (("ValidateContainerAdjustment", "nri.pkg.api.v1alpha1.Plugin"), ("Configure", "x.Y")):
            with pytest.raises(PluginError) as refused:
                peer.ask(method, b"", service)
            assert refused.value.code == 12


def test_a_decision_that_raises_changes_nothing_and_refuses_nothing(runtime: FakeRuntime, plugin: MakePlugin) -> None:
    def broken(_: PodSpec, __: ContainerSpec, ___: str) -> ContainerSettings:
        raise ZeroDivisionError

    nri_plugin = plugin(broken)
    with runtime.connection() as peer:
        peer.welcome([BATCH], [container(of="b")])
        assert not peer.create(BATCH, container(of="b")).ByteSize()
        assert nri_plugin.counters.failed == 2


def test_a_decision_that_hangs_is_answered_without_and_the_next_ones_do_not_queue(
    runtime: FakeRuntime, plugin: MakePlugin
) -> None:
    hanging, over = threading.Event(), threading.Event()

    def slow(pod_spec: PodSpec, of: ContainerSpec, _: str) -> ContainerSettings:
        if not over.is_set():
            hanging.set()
            over.wait(60)
        return pods.decide(pod_spec, of)

    nri_plugin = plugin(slow, nri_answer_seconds=0.05)
    with runtime.connection() as peer:
        peer.welcome()
        assert not peer.create(BATCH, container(of="b")).ByteSize()
        assert hanging.is_set()
        assert not peer.create(BATCH, container(of="b")).ByteSize()
        assert nri_plugin.counters.late == 2
        over.set()
        wait_for("a decision in time", lambda: peer.create(BATCH, container(of="b")).ByteSize() > 0)


def test_it_comes_back_after_every_end_of_the_connection(runtime: FakeRuntime, plugin: MakePlugin) -> None:
    nri_plugin = plugin()
    for times in (1, 2, 3):
        with runtime.connection() as peer:
            assert len(peer.welcome([BATCH], [container(of="b")]).updates) == 1
            assert nri_plugin.counters.registrations == times
    with runtime.connection() as peer:
        assert peer.take_registration()[0] == 1


def test_a_stream_that_makes_no_sense_is_left_for_a_new_one(runtime: FakeRuntime, plugin: MakePlugin) -> None:
    plugin()
    with runtime.connection() as peer:
        peer.welcome()
        peer.connection.sendall(struct.pack(">II", TO_PLUGIN, 2**31))
        with pytest.raises(ConnectionError):
            peer.receive(TO_PLUGIN)
    with runtime.connection() as peer:
        assert not peer.welcome().updates


def test_a_runtime_that_never_answers_the_registration_is_left_after_a_while(
    runtime: FakeRuntime, plugin: MakePlugin
) -> None:
    nri_plugin = plugin(nri_register_seconds=0.05)
    with runtime.connection() as silent:
        silent.take_registration()
        with pytest.raises(ConnectionError):
            silent.receive(2)
    with runtime.connection() as peer:
        peer.welcome()
        assert nri_plugin.counters.registrations == 1


def test_a_refused_registration_is_told_and_tried_again(runtime: FakeRuntime, plugin: MakePlugin) -> None:
    nri_plugin = plugin()
    with runtime.connection() as peer:
        stream, _ = peer.take_registration()
        peer.accept(stream, 9, "index taken")
        wait_for("the refusal", lambda: "index taken" in nri_plugin.state)
    with runtime.connection() as peer:
        peer.welcome()
        wait_for("the registration", lambda: nri_plugin.state.startswith("registered"))
        assert nri_plugin.counters.registrations == 1


def test_a_socket_that_appears_later_is_found(tmp_path: Path, plugin: MakePlugin) -> None:
    nri_plugin = plugin()
    wait_for("the missing socket", lambda: "No such file" in nri_plugin.state)
    late = FakeRuntime(tmp_path / "nri.sock")
    with late.connection() as peer:
        peer.welcome()
        wait_for("the registration", lambda: nri_plugin.registered)
        assert nri_plugin.counters.registrations == 1
    late.close()


def test_events_wake_who_listens_also_in_the_way_of_older_runtimes(runtime: FakeRuntime, plugin: MakePlugin) -> None:
    nri_events: list[NriEvent] = []
    plugin(events=nri_events)
    with runtime.connection() as peer:
        peer.welcome()
        peer.ask("RunPodSandbox", nri.ContainerRequest(pod=BATCH).SerializeToString())
        peer.ask("StateChange", nri.StateChange(event=7, pod=BATCH, container=container(of="b")).SerializeToString())
        peer.ask("StateChange", nri.StateChange(event=99, pod=BATCH).SerializeToString())
        peer.create(BATCH, container(of="b"))
        wait_for("four events", lambda: len(nri_events) == 4)
    assert [(e.event, e.pod_uid, e.container_id) for e in nri_events] == [
        (NriEventType.SYNCHRONIZE, "", ""),
        (NriEventType.RUN_POD_SANDBOX, "b-uid", ""),
        (NriEventType.POST_START_CONTAINER, "b-uid", "b-main"),
        (NriEventType.CREATE_CONTAINER, "b-uid", "b-main"),
    ]


def test_a_listener_that_raises_harms_nobody(runtime: FakeRuntime, tmp_path: Path) -> None:
    def broken(_: NriEvent) -> None:
        raise OSError("full")

    nri_plugin = NriPlugin(RuntimeSettings(nri_socket=str(tmp_path / "nri.sock")), pods.decide, broken)
    nri_plugin.start()
    with runtime.connection() as peer:
        peer.welcome()
        assert peer.create(BATCH, container(of="b")).ByteSize()
        assert peer.create(BATCH, container(of="b")).ByteSize()
        wait_for("three failures", lambda: nri_plugin.counters.failed == 3)
    nri_plugin.stop()


def test_it_never_calls_the_runtime_but_to_register(runtime: FakeRuntime, plugin: MakePlugin) -> None:
    plugin()
    with runtime.connection() as peer:
        peer.welcome([BATCH], [container(of="b")])
        for _ in range(20):
            peer.create(BATCH, container(of="b"))
        peer.ask("Shutdown", b"")
        assert [kind for connection, kind in peer.said if connection == 2] == [1]


def test_stopping_ends_the_thread_and_closes_the_connection(runtime: FakeRuntime, plugin: MakePlugin) -> None:
    nri_plugin = plugin()
    with runtime.connection() as peer:
        peer.welcome()
        nri_plugin.stop()
        with pytest.raises(ConnectionError):
            peer.receive(TO_PLUGIN)
    assert (nri_plugin.state, nri_plugin.registered) == ("stopped", False)


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    folder = tmp_path_factory.mktemp("nri")
    runtime = FakeRuntime(folder / "nri.sock")
    nri_plugin = NriPlugin(RuntimeSettings(nri_socket=str(folder / "nri.sock")), pods.decide)
    nri_plugin.start()
    with runtime.connection() as peer:
        peer.welcome()
        yield peer
    nri_plugin.stop()
    runtime.close()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["Configure", "Synchronize", "CreateContainer", "UpdateContainer", "StateChange", "Shutdown"]),
    st.binary(max_size=100),
)
def test_whatever_a_payload_holds_the_answer_is_no_error(lasting: Peer, method: str, payload: bytes) -> None:
    response = lasting.ask(method, payload)
    assert isinstance(response, bytes)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=40), st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=3))
def test_whatever_annotations_say_the_answer_is_no_error(lasting: Peer, text: str, labels: dict[str, str]) -> None:
    annotations = {"node.koordinator.sh/extended-resource-spec": text}
    response = lasting.create(pod("x", {**labels, **pods.labels("BE")}, annotations), container(of="x"))
    assert not response.updates
