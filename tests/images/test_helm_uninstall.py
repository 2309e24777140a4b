"""`helm uninstall` while a batch pod is suppressed: the node's cgroups are as the kubelet sets them.

The chart with everything on, our images, a real kubelet. What the kubelet sets is read from itself: of the tiers before
the installation, of a pod from one of the same tier that starts after cotenant's end.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from bench.platform.helm_install import (
    LIMIT_SECONDS,
    NODE,
    batch_pod,
    cluster,
    leftovers,
    share,
    state,
    throttled_periods,
    values,
)
from cotenant.enforcer.knob_table import SPECS
from tests.cli.charts import chart, release
from tests.cluster import needing
from tests.cluster.waiting import wait_for
from tests.node.containerd import CGROUPS
from tests.node.kubelet import Kubelet, pod_body, running

pytestmark = [pytest.mark.soak, pytest.mark.cluster, pytest.mark.slow, pytest.mark.xdist_group("cluster")]

BATCH_BYTES = 128 * 2**20
"""The batch pod's memory."""
TIERS = ("kubepods", "kubepods/burstable", "kubepods/besteffort")


def knobs(node: Kubelet, *groups: str) -> dict[str, str]:
    """Every file that the node agent may write, of cgroups below the node's own; the values by index and file."""
    files = {(spec.v1.controller, name) for spec in SPECS.values() if spec.v1 for name in spec.v1.names}
    return {
        f"{number} {name}": node.runtime.read(controller, f"{node.runtime.base}/{group}", name).strip()
        for number, group in enumerate(groups)
        for controller, name in files
        if (CGROUPS / controller / node.runtime.base / group / name).is_file()
    }


def pod_groups(node: Kubelet, name: str) -> tuple[str, str]:
    """Cgroups of a best-effort pod and of its container."""
    pod = running(node.plane, "batch", name)
    container = node.cgroup(pod, "besteffort").removeprefix(f"{node.runtime.base}/")
    return container.rpartition("/")[0], container


def suppress(node: Kubelet) -> None:
    """Install everything, and wait until the kernel holds a batch pod back."""
    plane = node.plane
    release(plane, "install", "cotenant", str(chart()), "--create-namespace", values=values(plane, node))
    share(plane)
    wait_for("the webhook", lambda: batch_pod(plane), LIMIT_SECONDS, 1.0)
    running(plane, "batch", "burn")
    wait_for("a suppressed batch pod", lambda: throttled_periods(node) > 0, LIMIT_SECONDS, 0.5)


def test_helm_uninstall_gives_back_the_cgroups_of_a_suppressed_pod(
    image_archives: Mapping[str, Path], kubelet_binary: None
) -> None:
    needing.kubernetes()
    needing.helm()
    with cluster(image_archives.values()) as (plane, node):
        tiers = knobs(node, *TIERS)
        assert len(tiers) > 3 * 8
        try:
            suppress(node)
        except BaseException:
            print(state(plane))
            raise
        pod = pod_groups(node, "burn")
        wait_for("the agent's limit", lambda: int(knobs(node, *pod)["0 memory.limit_in_bytes"]) <= BATCH_BYTES)
        assert knobs(node, *TIERS) != tiers

        release(plane, "uninstall", "cotenant")

        assert leftovers(plane) == []
        wait_for("the tiers as they were", lambda: knobs(node, *TIERS) == tiers)
        plane.api().create("/api/v1/namespaces/batch/pods", pod_body("plain", NODE, {}))
        assert knobs(node, *pod) == knobs(node, *pod_groups(node, "plain"))
