"""What the CRI proxy makes of a request, without any runtime: changed fields, and everything else as it came."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cotenant.enforcer.contract import NO_LIMIT, ContainerSpec, PodSpec
from cotenant.enforcer.decide.container_resources import ContainerSettings
from cotenant.enforcer.runtime.bounded import Bounded, Late
from cotenant.enforcer.runtime.cri_hooks import CriHooks, ForwardedCall, patience
from cotenant.enforcer.runtime.cri_messages import cgroup_parent_of, lay_over, merge_environment
from cotenant.enforcer.runtime.facts import Decide
from cotenant.enforcer.runtime.hook_servers import HookServers
from cotenant.enforcer.runtime.messages import cri
from cotenant.enforcer.settings import RuntimeSettings
from tests.node import pods
from tests.node.cri import Pod, container
from tests.support.open_files import none_left

T = TypeVar("T")
UNKNOWN = b"\xc2\x3e\x03new"
"""Field 1000, a text: of no CRI that there is yet."""
BOUND = Bounded(60.0)
METHODS = sorted(CriHooks(pods.decide, HookServers("", 1.0), BOUND).methods)


def hooks(decide: Decide = pods.decide, bounded: Bounded = BOUND) -> CriHooks:
    return CriHooks(decide, HookServers("", 1.0), bounded)


def run(work: Coroutine[Any, Any, T]) -> T:
    """In a thread of its own: a test of a browser, in the same process, may have left a loop running in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def creation(pod: Pod, **resources: Any) -> bytes:
    request = cri.CreateContainerRequest(pod_sandbox_id="s", config=container(**resources), sandbox_config=pod.config())
    return bytes(request.SerializeToString()) + UNKNOWN


def batch_pod() -> Pod:
    return Pod("x", labels=pods.labels("BE"), annotations=pods.batch())


def test_only_the_decided_fields_change_and_unknown_ones_pass() -> None:
    raw = creation(batch_pod(), cpu_shares=2, oom_score_adj=1000)
    sent = run(hooks().enter("CreateContainer", raw)).request
    assert UNKNOWN in sent
    before, after = cri.CreateContainerRequest.FromString(raw), cri.CreateContainerRequest.FromString(sent)
    resources = after.config.linux.resources
    assert (resources.cpu_shares, resources.cpu_quota) == (pods.SHARES, pods.QUOTA)
    assert (resources.cpu_period, resources.memory_limit_in_bytes) == (100_000, pods.BATCH_BYTES)
    assert resources.oom_score_adj == 1000
    resources.CopyFrom(before.config.linux.resources)
    assert after == before


@pytest.mark.parametrize("qos", ["LS", "LSR", "LSE", "SYSTEM", ""])
def test_a_service_passes_byte_for_byte(qos: str) -> None:
    raw = creation(Pod("x", "burstable", pods.labels(qos), pods.batch()), cpu_shares=256, cpu_quota=40_000)
    assert run(hooks().enter("CreateContainer", raw)).request == raw


def test_a_container_sees_the_gpus_that_its_pod_has_shares_of() -> None:
    raw = creation(Pod("x", "burstable", pods.labels("LS"), pods.own_gpus("GPU-a", "GPU-b")))
    sent = cri.CreateContainerRequest.FromString(run(hooks().enter("CreateContainer", raw)).request)
    assert [(env.key, env.value) for env in sent.config.envs] == [("NVIDIA_VISIBLE_DEVICES", "GPU-a,GPU-b")]


def test_a_decision_that_raises_or_hangs_passes_the_request_as_it_came() -> None:
    over = threading.Event()

    def broken(_: PodSpec, __: ContainerSpec, ___: str) -> ContainerSettings:
        raise ZeroDivisionError

    def hanging(_: PodSpec, __: ContainerSpec, ___: str) -> ContainerSettings:
        over.wait(60)
        return ContainerSettings(cpu_shares=3)

    raw = creation(batch_pod())
    assert run(hooks(broken).enter("CreateContainer", raw)).request == raw
    late = hooks(hanging, Bounded(0.02))
    assert run(late.enter("CreateContainer", raw)).request == raw
    assert run(late.enter("CreateContainer", raw)).request == raw
    over.set()
    assert late.counters.failed == 2


def test_containers_that_are_made_at_the_same_time_are_all_decided_on() -> None:
    """A kubelet starts its pods side by side: who comes second waits for its turn within its own limit."""
    going, over = threading.Event(), threading.Event()

    def unhurried(pod: PodSpec, of: ContainerSpec, _: str) -> ContainerSettings:
        going.set()
        over.wait(60)
        return pods.decide(pod, of)

    async def together(at: CriHooks) -> list[ForwardedCall]:
        first, second = (asyncio.create_task(at.enter("CreateContainer", creation(batch_pod()))) for _ in range(2))
        await asyncio.to_thread(going.wait, 60)
        over.set()
        return list(await asyncio.gather(first, second))

    at = hooks(unhurried)
    sent = [cri.CreateContainerRequest.FromString(passage.request) for passage in run(together(at))]
    assert [request.config.linux.resources.cpu_shares for request in sent] == [pods.SHARES, pods.SHARES]
    assert at.counters.failed == 0


@pytest.mark.parametrize(
    ("time_left", "seconds"),
    [(None, 10.0), (120.0, 10.0), (8.0, 2.0), (0.0, 0.0), (-1.0, 0.0)],  # a quarter of what the caller waits
)
def test_a_hook_takes_no_more_than_its_limit_and_a_quarter_of_the_callers_time(
    time_left: float | None, seconds: float
) -> None:
    assert patience(10.0, time_left) == seconds


def test_a_slow_decision_is_waited_for_as_long_as_a_kubelet_bears() -> None:
    """On a busy node a thread gets its turn late; after a tenth of a second the container went without limits."""

    def slow(pod: PodSpec, of: ContainerSpec, _: str) -> ContainerSettings:
        time.sleep(0.3)  # the fault itself
        return pods.decide(pod, of)

    at = hooks(slow, Bounded(RuntimeSettings().cri_hook_seconds))
    sent = cri.CreateContainerRequest.FromString(run(at.enter("CreateContainer", creation(batch_pod()), 120.0)).request)
    assert (sent.config.linux.resources.cpu_shares, at.counters.failed) == (pods.SHARES, 0)


def test_a_container_that_started_without_a_decision_is_set_right() -> None:
    over = threading.Event()
    sent: list[tuple[str, Any]] = []

    def hanging(pod: PodSpec, of: ContainerSpec, _: str) -> ContainerSettings:
        over.wait(60)
        return ContainerSettings(cpu_shares=512, cpu_quota=NO_LIMIT, memory_limit=pods.BATCH_BYTES)

    async def update(container_id: str, resources: Any) -> None:
        sent.append((container_id, resources))

    async def life(at: CriHooks) -> None:
        created = await at.enter("CreateContainer", creation(batch_pod(), cpu_shares=2, cpu_quota=5000))
        assert created.done is not None
        await created.done(cri.ContainerId(container_id="c").SerializeToString())
        with pytest.raises(Late):
            await at.repair(update)
        over.set()
        while at.store.undecided():  # the hanging decision is over when it gets its turn
            with contextlib.suppress(Late):
                await at.repair(update)
        await at.repair(update)

    at = hooks(hanging, Bounded(0.2))
    run(life(at))
    [(container_id, resources)] = sent
    # the kubelet had set a quota: it is taken away by -1, and not left standing by 0
    assert (container_id, resources.cpu_shares, resources.cpu_quota) == ("c", 512, -1)
    assert resources.memory_limit_in_bytes == pods.BATCH_BYTES
    assert at.store.containers["c"].decided.cpu_shares == 512
    assert at.counters.repaired == 1


def test_hook_servers_stay_registered_while_their_folder_cannot_be_read(tmp_path: Path) -> None:
    """A proxy that has used up its files for a moment goes on; it used to give its socket up."""
    servers = HookServers(str(tmp_path), 1.0)
    registration = {"remote-endpoint": "/run/x.sock", "runtime-hooks": ["PreCreateContainer"]}
    (tmp_path / "one.json").write_text(json.dumps(registration))
    servers.refresh()
    with none_left():
        servers.refresh()
        assert servers.wanted("PreCreateContainer")
    (tmp_path / "one.json").unlink()
    servers.refresh()
    assert not servers.wanted("PreCreateContainer")


def test_what_was_set_is_kept_when_a_later_decision_fails() -> None:
    broken = threading.Event()

    def decide(pod: PodSpec, of: ContainerSpec, _: str) -> ContainerSettings:
        if broken.is_set():
            raise ZeroDivisionError
        return pods.decide(pod, of)

    async def life() -> ForwardedCall:
        at = hooks(decide)
        created = await at.enter("CreateContainer", creation(batch_pod()))
        assert created.done is not None
        await created.done(cri.ContainerId(container_id="c").SerializeToString())
        broken.set()
        update = cri.UpdateContainerResourcesRequest(container_id="c", linux=cri.Resources(cpu_shares=2, cpu_quota=-1))
        return await at.enter("UpdateContainerResources", update.SerializeToString())

    linux = cri.UpdateContainerResourcesRequest.FromString(run(life()).request).linux
    assert (linux.cpu_shares, linux.cpu_quota) == (pods.SHARES, pods.QUOTA)
    assert linux.memory_limit_in_bytes == 0, "not said: the present limit stays, whatever is used by now"


def test_a_decision_knows_whether_the_container_has_been_made() -> None:
    """What has been made may use more than its memory limit; the real decision looks at its cgroup."""
    texts: list[str] = []

    def decide(pod: PodSpec, of: ContainerSpec, _: str) -> ContainerSettings:
        texts.append(of.id)
        return pods.decide(pod, of)

    async def life() -> None:
        at = hooks(decide)
        created = await at.enter("CreateContainer", creation(batch_pod()))
        assert created.done is not None
        await created.done(cri.ContainerId(container_id="c").SerializeToString())
        update = cri.UpdateContainerResourcesRequest(container_id="c", linux=cri.Resources(cpu_shares=2))
        await at.enter("UpdateContainerResources", update.SerializeToString())

    run(life())
    assert texts == ["", "c"]


def test_an_update_of_a_container_that_nobody_knows_passes() -> None:
    raw = cri.UpdateContainerResourcesRequest(container_id="?", linux=cri.Resources(cpu_shares=2)).SerializeToString()
    assert run(hooks().enter("UpdateContainerResources", raw)).request == raw


def test_removed_pods_and_containers_are_forgotten() -> None:
    async def life(at: CriHooks) -> None:
        for number in range(50):
            sandbox, container_id = f"s{number}", f"c{number}"
            ran = await at.enter(
                "RunPodSandbox", cri.RunPodSandboxRequest(config=Pod("x").config()).SerializeToString()
            )
            await ran.done(cri.SandboxId(pod_sandbox_id=sandbox).SerializeToString())  # type: ignore[misc]
            request = cri.CreateContainerRequest(pod_sandbox_id=sandbox, config=container())
            created = await at.enter("CreateContainer", request.SerializeToString())
            await created.done(cri.ContainerId(container_id=container_id).SerializeToString())  # type: ignore[misc]
            if number % 2:  # the kubelet removes containers first, or a sandbox with whatever is in it
                removal = await at.enter(
                    "RemoveContainer", cri.ContainerId(container_id=container_id).SerializeToString()
                )
                await removal.done(b"")  # type: ignore[misc]
            removed = await at.enter("RemovePodSandbox", cri.SandboxId(pod_sandbox_id=sandbox).SerializeToString())
            await removed.done(b"")  # type: ignore[misc]

    at = hooks()
    run(life(at))
    assert (at.store.sandboxes, at.store.containers) == ({}, {})


@settings(max_examples=120)
@given(st.sampled_from(METHODS), st.binary(max_size=120))
@example("CreateContainer", b"\xff\xff\xff")
def test_no_request_whatever_it_holds_raises_or_is_lost(method: str, raw: bytes) -> None:
    passage = run(hooks().enter(method, raw))
    assert passage.request == raw


LIMIT = st.none() | st.just(NO_LIMIT) | st.integers(1000, 10**6)


@given(LIMIT, st.sampled_from([-1, 0, 5000, 70_000]))
def test_a_limit_is_set_as_decided_and_taken_away_only_where_one_is_asked(decided: int | None, quota: int) -> None:
    resources = cri.Resources(cpu_quota=quota, memory_limit_in_bytes=quota)
    lay_over(resources, ContainerSettings(cpu_quota=decided, memory_limit=decided))
    expected = quota if decided is None or (decided == NO_LIMIT and quota <= 0) else decided
    assert (resources.cpu_quota, resources.memory_limit_in_bytes) == (expected, expected)


def test_a_variable_that_is_there_is_replaced_in_its_place() -> None:
    variables = cri.ContainerConfig(envs=[cri.KeyValue(key="A", value="1"), cri.KeyValue(key="B", value="2")]).envs
    merge_environment(variables, {"C": "3", "A": "9"})
    assert [(v.key, v.value) for v in variables] == [("A", "9"), ("B", "2"), ("C", "3")]


@given(st.text(max_size=60))
@example('{"config": {"linux": {"cgroup_parent": "/kubepods/pod1"}}}')
@example('{"config": 7}')
def test_what_a_runtime_adds_to_a_status_is_read_or_nothing(text: str) -> None:
    expected = "/kubepods/pod1" if "kubepods" in text else ""
    assert cgroup_parent_of(text) == expected
