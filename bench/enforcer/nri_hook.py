"""What the NRI plugin adds to the creation of a container.

.venv/bin/python -m bench.enforcer.nri_hook [--rounds 120]

On containerd 2.4 with one sandbox: containers are created and removed in turns of ten, with the plugin registered and
without, over and over, so that a busy moment hits both. The plugin is a process of its own. Needs containerd 2.4:
python -m tests.cluster.binaries containerd containerd-shim-runc-v2 ctr
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time

import numpy as np

from bench.record import Row, below, record
from cotenant.enforcer.runtime.messages import cri
from cotenant.enforcer.runtime.nri.plugin import NriPlugin
from cotenant.enforcer.settings import RuntimeSettings
from tests.cluster import binaries
from tests.cluster.process import Server
from tests.cluster.waiting import wait_for
from tests.node import pods
from tests.node.containerd import Containerd, impossible
from tests.node.cri import Cri, Pod, container

TURN = 10


def turn(client: Cri, sandbox: str, pod: Pod) -> list[float]:
    """Seconds of each creation."""
    took = []
    for _ in range(TURN):
        began = time.perf_counter()
        container_id = client.create(sandbox, pod, container(cpu_shares=2))
        took.append(time.perf_counter() - began)
        client.call("RemoveContainer", cri.ContainerId(container_id=container_id))
    return took


def plugged(runtime: Containerd) -> Server:
    """A registered plugin, in a process of its own as in life; its last line says what it did."""
    command = [sys.executable, "-m", "bench.enforcer.nri_hook", "--plugin", str(runtime.nri_socket)]
    server = Server("plugin", command, runtime.folder / "plugin.log")
    server.start()
    server.wait_until(lambda: "synchronized" in server.written())
    return server


def serve(socket: str) -> None:
    """Be the plugin until SIGTERM."""
    plugin = NriPlugin(RuntimeSettings(nri_socket=socket), pods.decide)
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    plugin.start()
    wait_for("the registration", lambda: plugin.registered)
    print("synchronized", flush=True)
    ended.wait()
    plugin.stop()
    print(f"adjusted {plugin.counters.adjusted} late {plugin.counters.late}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=120)
    parser.add_argument("--plugin", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.plugin:
        serve(options.plugin)
        return 0
    if reason := impossible(with_nri=True):
        print(f"no containers here: {reason}", file=sys.stderr)
        return 0
    binaries.ensure(binaries.CONTAINERD)
    took: dict[bool, list[float]] = {False: [], True: []}
    adjusted = late = 0
    with Containerd(with_nri=True) as runtime:
        client = runtime.client()
        pod = Pod(runtime.base, labels=pods.labels("BE"), annotations=pods.batch())
        sandbox = client.run_sandbox(pod)
        turn(client, sandbox, pod)
        for _ in range(options.rounds // TURN):
            took[False] += turn(client, sandbox, pod)
            plugin = plugged(runtime)
            took[True] += turn(client, sandbox, pod)
            plugin.stop()
            fields = plugin.written().split()
            adjusted, late = adjusted + int(fields[-3]), late + int(fields[-1])
    without, hooked = np.array(took[False]) * 1000, np.array(took[True]) * 1000
    difference = float(np.median(hooked) - np.median(without))
    record(
        "nri_hook",
        ".venv/bin/python -m bench.enforcer.nri_hook",
        [
            below("added to CreateContainer, p50", round(difference, 2), "ms", 1.0),
            Row("CreateContainer without, p50", round(float(np.median(without)), 2), "ms"),
            Row("CreateContainer with, p50", round(float(np.median(hooked)), 2), "ms"),
            Row("CreateContainer without, p99", round(float(np.percentile(without, 99)), 1), "ms"),
            Row("CreateContainer with, p99", round(float(np.percentile(hooked, 99)), 1), "ms"),
            Row("containers adjusted", adjusted, "", f"= {len(hooked)}", adjusted == len(hooked)),
            below("answers that came too late", late, "", 0),
        ],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
