"""The recorder at scale: 5,000 kubelets of 20 pods each, one round, and a slot of all of them in the store.

Every first container has a quota, so that each kubelet is asked for cAdvisor's page too: 4,600 lines, as up to 1.35.

    .venv/bin/python -m bench.profiler.recorder_scale [NODES PODS]      # other sizes are shown and not recorded

The kubelets are TLS servers in another process of this machine, with the answers of a kubelet; reader and store are the
product's, in a process of their own that is measured from its start: its CPU time, not the wall's.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.record import Row, below, record
from cotenant.base.identity import NodeRef
from cotenant.base.kube.auth import Access
from cotenant.base.store.store import Store
from cotenant.profiler.recorder.exposition import container_ref, parse_resource_metrics, parse_throttled_time
from cotenant.profiler.recorder.kubelets import SPREAD, THROTTLING, KubeletRules, Kubelets
from cotenant.profiler.recorder.pod_records import KubeletAddress
from cotenant.profiler.recorder.slots import UsageSlots
from cotenant.profiler.recorder.writing import slot_usage
from tests.support.kubelets import TOKEN, KubeletServers

FULL = (5_000, 20)
ROUNDS = 4
THROTTLED_ROUNDS = 2
"""The last ones, spread over half of the interval as the recorder's are: to write cAdvisor's pages costs these kubelets
on the same two cores more than to read them does."""
INTERVAL_SECONDS = 300.0


def recorded(authority: str, addresses: list[KubeletAddress], folder: str) -> None:
    """Read some rounds, store one slot, print what it took; run in a fresh process."""
    begun_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    containers = UsageSlots(lambda _, labels: container_ref(labels), INTERVAL_SECONDS)
    nodes = UsageSlots(lambda node, _: NodeRef(node), INTERVAL_SECONDS)
    access = Access("bench", "", lambda: f"Bearer {TOKEN}", ca_file=authority)
    kubelets = Kubelets(access, KubeletRules(), INTERVAL_SECONDS)
    throttling = Kubelets(access, KubeletRules(), INTERVAL_SECONDS, page=THROTTLING)

    def take(node: str, text: bytes, received: float) -> None:
        metrics = parse_resource_metrics(text)
        containers.add(
            node, metrics.container_cpu, metrics.container_memory, metrics.container_starts, received_seconds=received
        )
        nodes.add(node, metrics.node_cpu, metrics.node_memory, received_seconds=received)

    def take_throttled(node: str, text: bytes, received: float) -> None:
        containers.add_throttled(node, parse_throttled_time(text), received_seconds=received)

    async def read(throttled: bool) -> None:
        spread = SPREAD if throttled else 0.0
        own = throttling.read_round(addresses if throttled else [], take_throttled, spread=spread)
        await asyncio.gather(kubelets.read_round(addresses, take, spread=spread), own)

    cpu, wall = [], []
    for k in range(ROUNDS):
        cpu_begun, start = time.process_time(), time.monotonic()
        asyncio.run(read(k >= ROUNDS - THROTTLED_ROUNDS))
        cpu.append(time.process_time() - cpu_begun)
        wall.append(time.monotonic() - start)
        time.sleep(15)
    read_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    cpu_begun = time.process_time()
    blocks = slot_usage(containers.close(time.time() + 600), nodes.close(time.time() + 600))
    store = Store(f"file://{folder}", "bench")
    for signal, usage in blocks:
        store.append(signal, usage)
    print(
        json.dumps(
            {
                "round_cpu": max(cpu[:-THROTTLED_ROUNDS]),
                "round_wall": max(wall[:-THROTTLED_ROUNDS]),
                "throttled_cpu": max(cpu[-THROTTLED_ROUNDS:]),
                "asked": kubelets.asked + throttling.asked,
                "failed": len(kubelets.errors) + len(throttling.errors),
                "series": len(containers),
                "values": sum(usage.values.size for _, usage in blocks),
                "write_cpu": time.process_time() - cpu_begun,
                "begun_mib": begun_mib,
                "read_mib": read_mib,
                "write_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            }
        )
    )


def main(nodes: int, pods: int) -> None:
    with tempfile.TemporaryDirectory() as name, KubeletServers(Path(name), nodes, pods) as kubelets:
        job = json.dumps(
            [str(kubelets.authority), [(a.node, a.host, a.port) for a in kubelets.addresses], f"{name}/store"]
        )
        child = subprocess.run(
            [sys.executable, "-m", "bench.profiler.recorder_scale", "child"],
            input=job,
            capture_output=True,
            text=True,
            check=False,
        )
    if child.returncode:
        raise SystemExit(child.stderr[-3000:])
    figures = json.loads(child.stdout.splitlines()[-1])
    print(json.dumps(figures, indent=1))
    if figures["failed"] or figures["asked"] != (ROUNDS + THROTTLED_ROUNDS) * nodes:
        raise SystemExit(f"{figures['failed']} kubelets failed; {figures['asked']} questions for {ROUNDS} rounds")
    rows = [
        below("one round of all kubelets: CPU time of the reader", round(figures["round_cpu"], 1), "s", 30),
        below("the same with throttled time of all", round(figures["throttled_cpu"], 1), "s", 30),
        Row(
            "one round: wall, with the kubelets themselves on the same two cores", round(figures["round_wall"], 1), "s"
        ),
        below("memory at its most, reading", round(figures["read_mib"]), "MiB", 600),
        below("memory at its most, a slot of all series written", round(figures["write_mib"]), "MiB", 600),
        Row("a slot of all series written: CPU time", round(figures["write_cpu"], 1), "s"),
    ]
    record("recorder_scale", ".venv/bin/python -m bench.profiler.recorder_scale", rows, is_kept=(nodes, pods) == FULL)


if __name__ == "__main__":
    if sys.argv[1:] == ["child"]:
        authority, addresses, folder = json.loads(sys.stdin.read())
        recorded(authority, [KubeletAddress(*one) for one in addresses], folder)
    else:
        main(*(tuple(map(int, sys.argv[1:3])) or FULL))
