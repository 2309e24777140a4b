"""A pod's own CPU through the NRI plugin on a real cgroup v2 with several CPUs; run by test_runtime_on_cgroup_v2."""

from __future__ import annotations

from pathlib import Path

from cotenant.enforcer.runtime.bounded import Bounded
from cotenant.enforcer.runtime.nri.plugin import NriPlugin
from cotenant.enforcer.settings import RuntimeSettings
from tests.cluster.waiting import wait_for
from tests.node import pods
from tests.node.containerd import UNIFIED, Containerd, impossible
from tests.node.cri import Pod, container

WRITES_ITS_CPUS = ("/bin/sh", "-c", "/bin/cat /proc/self/status > /first; exec /bin/sleep 100000")


def first_cpus(runtime: Containerd, group: str) -> str:
    """What the container's first instruction wrote, "" before it did."""
    pids = runtime.read("", group, "cgroup.procs").split()
    file = Path("/proc", pids[0], "root", "first") if pids else Path("/nothing")
    text = file.read_text() if file.exists() else ""
    return text.partition("Cpus_allowed_list:")[2].split("\n")[0].strip()


def test_an_lsr_pod_starts_on_its_cpu_and_keeps_it_through_an_update() -> None:
    assert (UNIFIED, impossible(with_nri=True)) == (True, "")
    with Containerd(with_nri=True) as runtime:
        plugin = NriPlugin(RuntimeSettings(nri_socket=str(runtime.nri_socket)), pods.decide_as_a_node)
        plugin.bounded = Bounded(60.0)
        plugin.start()
        wait_for("the registration", lambda: plugin.registered, 120)
        cri, pinned = runtime.client(), Pod(runtime.base, "", pods.labels("LSR"), pods.own_cpus("1"))
        config = container("main", WRITES_ITS_CPUS, cpu_shares=1024, cpu_quota=100_000, cpu_period=100_000)
        own = cri.create(cri.run_sandbox(pinned), pinned, config)
        cri.start(own)
        group = f"{pinned.cgroup_parent}/{own}"
        wait_for("its first instruction", lambda: first_cpus(runtime, group), 120)
        assert first_cpus(runtime, group) == runtime.read("", group, "cpuset.cpus.effective") == "1"
        assert runtime.read("", group, "cpu.max") == "max 100000"
        cri.update(own, cpu_shares=1024, cpu_quota=100_000, cpu_period=100_000)
        assert runtime.read("", group, "cpuset.cpus.effective") == "1"
        plugin.stop()
