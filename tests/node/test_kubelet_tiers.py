"""Why best effort is protected by weight and not by cpu.idle: what a real kubelet makes of the best-effort tier."""

from __future__ import annotations

from pathlib import Path

from cotenant.enforcer.settings import BestEffortSettings
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for
from tests.node.containerd import CGROUPS, Containerd
from tests.node.kubelet import Kubelet


def tier(runtime: Containerd, name: str) -> Path:
    return CGROUPS / "cpu" / runtime.base / "kubepods" / "besteffort" / name


def test_a_kubelet_starts_again_over_a_tier_of_the_smallest_weight_but_not_over_an_idle_one(
    control_plane: ControlPlane, containerd: Containerd, kubelet_binary: None
) -> None:
    with Kubelet(control_plane, containerd, containerd.socket, "tiers") as kubelet:
        assert tier(containerd, "cpu.shares").read_text().strip() == "2"
        kubelet.server.kill()
        kubelet.start()
        wait_for("the node to be Ready again", kubelet.ready)

        tier(containerd, "cpu.idle").write_text("1")
        try:
            kubelet.server.kill()
            kubelet.start()
            wait_for("the kubelet to give up", lambda: not kubelet.server.running)
            assert "BestEffort QOS cgroup" in kubelet.server.written()
        finally:
            tier(containerd, "cpu.idle").write_text("0")
        kubelet.start()
        wait_for("the node to be Ready in the end", kubelet.ready)
    assert BestEffortSettings().protect == "shares"
