"""The runtime hooks on a real cgroup v2 kernel; run inside the guest by test_runtime_on_cgroup_v2, as root."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cotenant.enforcer.runtime.bounded import Bounded
from cotenant.enforcer.runtime.nri.plugin import NriPlugin
from cotenant.enforcer.settings import RuntimeSettings
from tests.cluster.waiting import wait_for
from tests.node import pods
from tests.node.containerd import UNIFIED, Containerd, impossible
from tests.node.cri import Cri, Pod
from tests.node.proxying import ProxyProcess

BATCH = {"cpu.weight": "20", "cpu.max": "50000 100000", "memory.max": str(pods.BATCH_BYTES)}
"""runc turns shares into a weight: 1 + (512 - 2) * 9999 // 262142 = 20."""
FREE = {"cpu.weight": "1", "cpu.max": "max 100000", "memory.max": "max"}


@pytest.fixture(scope="module")
def runtime() -> Iterator[Containerd]:
    assert (UNIFIED, impossible(with_nri=True)) == (True, "")
    with Containerd(with_nri=True) as containerd:
        yield containerd


def batch_pod(runtime: Containerd) -> Pod:
    return Pod(runtime.base, labels=pods.labels("BE"), annotations=pods.batch())


def values(runtime: Containerd, pod: Pod, container: str) -> dict[str, str]:
    return {name: runtime.read("", f"{pod.cgroup_parent}/{container}", name) for name in BATCH}


def held_through_an_update(runtime: Containerd, cri: Cri) -> None:
    batch, service = batch_pod(runtime), Pod(runtime.base, "burstable", pods.labels("LS"))
    main, web = cri.run(batch, cpu_shares=2), cri.run(service, cpu_shares=2)
    assert values(runtime, batch, main) == BATCH
    assert values(runtime, service, web) == FREE
    cri.update(main, cpu_shares=2, cpu_quota=-1, cpu_period=100_000)
    assert values(runtime, batch, main) == BATCH
    cri.remove_all()


def test_the_nri_plugin_sets_and_keeps_v2_values(runtime: Containerd) -> None:
    plugin = NriPlugin(RuntimeSettings(nri_socket=str(runtime.nri_socket)), pods.decide_as_a_node)
    plugin.bounded = Bounded(60.0)
    plugin.start()
    wait_for("the registration", lambda: plugin.registered)
    held_through_an_update(runtime, runtime.client())
    plugin.stop()
    assert plugin.counters.adjusted == 2


def test_the_cri_proxy_sets_and_keeps_v2_values(runtime: Containerd) -> None:
    with ProxyProcess(runtime.folder, runtime.socket) as proxy:
        client = proxy.client()
        held_through_an_update(runtime, client)
        client.close()
    assert runtime.client().sandboxes() == []
