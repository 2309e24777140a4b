"""`cotenant serve recorder` in a process, with the token of its account, beside an API server and kubelets."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cotenant.base.store.store import Store
from cotenant.base.usage.usage import Signal, TimeGrid
from cotenant.profiler.recorder.status import STATUS_DOCUMENT, NodeSource, RecorderStatus
from tests.cluster.accounts import account
from tests.cluster.control_plane import ControlPlane
from tests.cluster.process import free_port
from tests.cluster.waiting import wait_for
from tests.support.kubelets import KubeletServers, containers_of

ENTRY = "from cotenant.cli.main import run; run()"
NODES, PODS = 3, 4
INTERVAL_SECONDS = 15
COVERED_SECONDS = 75
"""More than a slot needs, wherever the two slots of a run meet."""


@pytest.fixture
def kubeconfig(control_plane: ControlPlane) -> Path:
    return account(control_plane, "cotenant-recorder")


@pytest.fixture
def kubelets(control_plane: ControlPlane, kubeconfig: Path, tmp_path: Path) -> Iterator[KubeletServers]:
    """Kubelets that the API server knows as nodes."""
    (token,) = re.findall(r"token: (\S+)", kubeconfig.read_text())
    with KubeletServers(tmp_path, NODES, PODS, token) as servers, contextlib.closing(control_plane.api()) as api:
        for address in servers.addresses:
            status = {
                "addresses": [{"type": "InternalIP", "address": address.host}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": address.port}},
            }
            api.create("/api/v1/nodes", {"metadata": {"name": address.node}, "status": status})
        yield servers
        with contextlib.closing(control_plane.api()) as later:  # the server closes connections that were quiet
            for address in servers.addresses:
                later.delete(f"/api/v1/nodes/{address.node}")


def test_the_process_records_what_kubelets_report_and_stores_the_open_slot_when_it_is_ended(
    kubelets: KubeletServers, kubeconfig: Path, tmp_path: Path
) -> None:
    url, port, start = (tmp_path / "store").as_uri(), free_port(), time.time()
    argv = [
        "serve",
        "recorder",
        "--kubeconfig",
        str(kubeconfig),
        "--store",
        url,
        "--cluster",
        "c",
        "--port",
        str(port),
    ]
    argv += ["--interval", str(INTERVAL_SECONDS), "--kubelet-ca-file", str(kubelets.authority)]
    log = (tmp_path / "log").open("wb")
    process = subprocess.Popen([sys.executable, "-c", ENTRY, *argv], stdout=log, stderr=log)

    def is_ready() -> bool:
        assert process.poll() is None, (tmp_path / "log").read_text()
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5).status == 200
        return False

    try:
        wait_for("the recorder to be ready", is_ready, 120)
        ready = time.time()
        wait_for("a slot's share", lambda: time.time() > ready + COVERED_SECONDS + 2 * INTERVAL_SECONDS, 300)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, (tmp_path / "log").read_text()
    finally:
        process.kill()

    store = Store(url, "c")
    usage = store.read(Signal.CPU_USAGE_MEAN, TimeGrid.from_span(int(start) // 300 * 300, int(time.time()) + 600, 300))
    # Every container of every kubelet, once; each uses half a core all the time.
    assert {(r.namespace, r.pod, r.container) for r in usage.refs} == {
        ref for node in range(NODES) for ref in containers_of(node, PODS)
    }
    values = usage.values[np.isfinite(usage.values)]
    assert values == pytest.approx(np.full(len(values), 500.0), rel=0.01)
    nodes = store.read(Signal.NODE_CPU_USAGE_MEAN, usage.grid)
    assert {ref.name for ref in nodes.refs} == {address.node for address in kubelets.addresses}
    status = store.read_document(STATUS_DOCUMENT, RecorderStatus)
    assert status is not None and status.nodes[NodeSource.KUBELET] == NODES
