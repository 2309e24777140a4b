"""CPU burst on real cgroups and a real process: the kernel throttles without it and does not with it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cotenant.base.kubernetes.models.pod import NodePodWire
from cotenant.enforcer.contract import PodSpec
from cotenant.enforcer.decide.changes import WriteOutcome
from cotenant.enforcer.observe.layout import Layout
from cotenant.enforcer.sources.wire import pod_of
from cotenant.enforcer.strategies.burst import Burst
from tests.enforcer.one_strategy import OneStrategy
from tests.enforcer.own_cgroups import wait_for
from tests.support.kubepods import Kubepods, Pod, missing

pytestmark = pytest.mark.server

HALF_A_CORE = {"limits": {"cpu": "500m"}, "requests": {"cpu": "250m"}}
REQUESTS = 8
QUOTA_ONLY = {"cpuBurstStrategy": {"policy": "cfsQuotaBurstOnly", "cfsQuotaBurstPercent": 150}}
SHARES = 65_536
"""Of the test's tree, lest others on the machine take the CPU that it is throttled for."""


@pytest.fixture
def node() -> Iterator[Kubepods]:
    if reason := missing():
        pytest.skip(f"CPU BURST IS NOT TESTED ON REAL CGROUPS: {reason}")
    with Kubepods(outer_shares=SHARES) as kubepods:
        yield kubepods


def half_a_core(node: Kubepods) -> tuple[Pod, list[PodSpec]]:
    web = node.pod("web", qos="LS", kube="Burstable", resources=HALF_A_CORE)
    for path in (web.path, web.container):
        node.write(path, "cpu", "cpu.cfs_quota_us", 50_000)
    return web, [pod_of(msgspec.convert(web.body, NodePodWire))]


def throttled(node: Kubepods, web: Pod) -> int:
    return int(node.read(web.container, "cpu", "cpu.stat").split("nr_throttled ")[1].split()[0])


def serve(node: Kubepods, web: Pod, count: int = REQUESTS) -> int:
    """Periods in which the container was throttled while it served; 75 ms of work each 250 ms, 0.3 core."""
    before = throttled(node, web)
    command = [sys.executable, "-m", "tests.enforcer.bursty_service", str(count), "250", "75"]
    process = node.run(web, command, stdout=subprocess.DEVNULL)
    assert process.wait(120) == 0
    return throttled(node, web) - before


def test_the_kernel_takes_what_may_be_saved_up_also_in_a_kubelets_own_period(node: Kubepods, tmp_path: Path) -> None:
    """cpuCFSQuotaPeriod: 10ms. Half a core is 5000 us of that, and the kernel refuses a larger burst (EINVAL)."""
    web, specs = half_a_core(node)
    files = (("cpu.cfs_period_us", 10_000), ("cpu.cfs_quota_us", 5000))
    for path, in_order in ((web.path, files), (web.container, files[::-1])):  # no child with more than its parent
        for name, value in in_order:
            node.write(path, "cpu", name, value)
    node.run(web, ["sleep", "600"])
    agent = OneStrategy(Burst(), tmp_path, Layout(base=(node.base,)))
    try:
        done = agent.tick(specs, {"cpuBurstStrategy": {"policy": "cpuBurstOnly"}})
        assert {d.outcome for d in done} == {WriteOutcome.WRITTEN}
        # 1000 % of half a core, at most the quota
        for path in (web.container, web.path):
            assert node.read(path, "cpu", "cpu.cfs_burst_us") == "5000"
        assert agent.tick(specs, {"cpuBurstStrategy": {"policy": "cpuBurstOnly"}}) == []
    finally:
        agent.restore()
    assert [node.read(path, "cpu", "cpu.cfs_burst_us") for path in (web.container, web.path)] == ["0", "0"]


@pytest.mark.slow
def test_saving_up_ends_throttling_and_is_given_back(node: Kubepods, tmp_path: Path) -> None:
    web, pods = half_a_core(node)
    agent = OneStrategy(Burst(), tmp_path, Layout(base=(node.base,)))
    # 75 ms of work against 50 ms a period: throttled at each request, unless the machine itself is too busy to serve.
    without = next((number for number in (serve(node, web) for _ in range(8)) if number >= REQUESTS // 2), 0)
    assert without >= REQUESTS // 2
    agent.tick(pods, {"cpuBurstStrategy": {"policy": "cpuBurstOnly"}})
    buffers = [node.read(path, "cpu", "cpu.cfs_burst_us") for path in (web.path, web.container)]
    # 0.5 core * 1000 % is more than the kernel takes: as much as the quota.
    assert buffers == ["50000", "50000"]
    # 50 ms and 50 ms saved are more than 75 ms; only the interpreter's start may still be throttled, and requests that
    # a busy machine has let pile up.
    assert any(serve(node, web) <= max(without // 2, 3) for _ in range(8))
    agent.restore()
    assert [node.read(path, "cpu", "cpu.cfs_burst_us") for path in (web.path, web.container)] == ["0", "0"]


def test_a_kubelet_that_lowers_a_limit_is_in_the_way_of_no_buffer_for_long(node: Kubepods, tmp_path: Path) -> None:
    web, pods = half_a_core(node)
    agent = OneStrategy(Burst(), tmp_path, Layout(base=(node.base,)))
    saving = {"cpuBurstStrategy": {"policy": "cpuBurstOnly"}}
    agent.tick(pods, saving)
    with pytest.raises(OSError, match="Invalid argument"):  # the kernel takes no quota below the buffer
        node.write(web.container, "cpu", "cpu.cfs_quota_us", 20_000)
    web.body["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "200m"}}  # a resize is in the spec first
    agent.tick([pod_of(msgspec.convert(web.body, NodePodWire))], saving)
    for path in (web.container, web.path):
        node.write(path, "cpu", "cpu.cfs_quota_us", 20_000)
    agent.restore()
    assert [node.read(path, "cpu", "cpu.cfs_quota_us") for path in (web.path, web.container)] == ["20000", "20000"]


@pytest.mark.slow
def test_a_throttled_containers_quota_grows_to_its_bound_pod_first_and_comes_back(
    node: Kubepods, tmp_path: Path
) -> None:
    web, pods = half_a_core(node)
    agent = OneStrategy(Burst(), tmp_path, Layout(base=(node.base,)))
    node.run(web, ["/bin/sh", "-c", "while :; do :; done"])
    quotas: list[tuple[str, ...]] = []
    agent.tick(pods, QUOTA_ONLY)
    before = throttled(node, web)
    while len(quotas) < 40 and (not quotas or quotas[-1] != ("75000", "75000")):
        wait_for(lambda: throttled(node, web) > before)  # noqa: B023 - called at once
        before = throttled(node, web)
        agent.tick(pods, QUOTA_ONLY)
        quotas.append(tuple(node.read(path, "cpu", "cpu.cfs_quota_us") for path in (web.path, web.container)))
    # 50,000 * 1.2 = 60,000, * 1.2 = 72,000, and then its bound of 50,000 * 150 %; a busy moment of the machine may
    # take a step back between.
    assert quotas[-1] == ("75000", "75000")
    assert {"60000", "72000"} <= {container for _, container in quotas}
    agent.restore()
    assert [node.read(path, "cpu", "cpu.cfs_quota_us") for path in (web.path, web.container)] == ["50000", "50000"]
