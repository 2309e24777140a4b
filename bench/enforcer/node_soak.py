"""The node agent over many pods that come and go: does its memory grow, does a value get stuck?

.venv/bin/python -m bench.enforcer.node_soak [--containers 2000]        (--containers 200 tries it)

Real cgroups and the agent's own process at ten ticks a second, so that three minutes are half an hour of ticks of a
second. Forty pods live at any time; one after the other is replaced by a new one, some of them while the agent writes.
At the end the agent is told to stop, and every value of every cgroup that is left is compared with what stood there.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from bench.enforcer.node_footprint import POLICY, memory_mib
from bench.record import Row, below, record
from tests.enforcer.agents import BATCH, KNOBS, Running
from tests.support.kubepods import Kubepods, Pod, missing

LIVE: Final = 40
TICK_SECONDS: Final = 0.1
PAUSE_SECONDS: Final = 0.08
"""Between two replacements: 2,000 of them take about three minutes."""
ORIGINALS: Final = "originals.json"


def newcomer(node: Kubepods, number: int) -> Pod:
    """A pod as they come: two of three are batch."""
    if number % 3:
        return node.pod(f"p-{number}", qos="BE", priority=5500, resources=BATCH)
    limits = {"requests": {"cpu": "100m"}, "limits": {"cpu": "500m", "memory": "256Mi"}}
    return node.pod(f"p-{number}", qos="LS", kube="Burstable", priority=9500, resources=limits)


def churn(node: Kubepods, running: Running, count: int) -> list[float]:
    """Replace pods one by one; resident memory of the agent after each tenth of the way, in MiB."""
    assert running.process is not None
    memory_sizes: list[float] = []
    for number in range(LIVE, LIVE + count):
        oldest = next(iter(node.pods.values()))
        newcomer(node, number)
        if number % 2:  # half of them go before the agent hears of it
            node.remove(oldest)
            node.write_pods(running.folder / "pods.json")
        else:
            del node.pods[oldest.uid]
            node.write_pods(running.folder / "pods.json")
            node.pods[oldest.uid] = oldest
            node.remove(oldest)
        time.sleep(PAUSE_SECONDS)
        if (number - LIVE + 1) % max(1, count // 10) == 0:
            memory_sizes.append(memory_mib(running.process.pid))
    return memory_sizes


def soak(count: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as temp, Kubepods() as node:
        for number in range(LIVE):
            newcomer(node, number)
        # What a kubelet leaves on each of the two kinds: every pod that is left at the end must look like that again.
        fresh = {
            pod.path: {name: node.read(pod.path, h, name) for name, h in KNOBS.items()} for pod in node.pods.values()
        }
        kinds = {path.split("/")[1]: values for path, values in fresh.items()}
        tiers = {
            tier: {n: node.read(tier, h, n) for n, h in KNOBS.items()} for tier in ("kubepods/besteffort", "kubepods")
        }
        settings = {"enforcer.tick_seconds": TICK_SECONDS}
        with Running(node, Path(temp) / "a", policy=POLICY, settings=settings) as running:
            running.ticked(20)
            grown = churn(node, running, count)
            running.ticked(20)
            ticks, errors = running.ticks(), failures(running)
            originals = json.loads((running.folder / "state" / ORIGINALS).read_bytes())
            strangers = strays(node, json.dumps(originals))
            errors += running.end() != 0
        stuck = [
            p
            for p in node.pods.values()
            for n, h in KNOBS.items()
            if node.read(p.path, h, n) != kinds[p.path.split("/")[1]][n]
        ]
        stuck_tiers = [t for t, values in tiers.items() for n, h in KNOBS.items() if node.read(t, h, n) != values[n]]
    early, late = grown[1], grown[-1]
    note = f"{count} containers came and went in {ticks:,.0f} ticks; {early:.1f} then {late:.1f} MiB"
    return [
        below(
            "growth of resident memory, from a fifth of the way to its end", 100 * (late - early) / early, "%", 5, note
        ),
        below("values that were not given back", len(stuck) + len(stuck_tiers), "", 0),
        below("notes of cgroups that are gone", strangers, "", 0),
        below("ticks that failed, and an end with an error", errors, "", 0),
    ]


def strays(node: Kubepods, journal: str) -> int:
    """Uids in the journal of pods that are not there any more."""
    uids = {pod.uid for pod in node.pods.values()}
    parts = {
        part for word in journal.split('"') for part in word.split("/") if part.startswith("pod") and "-p-" in part
    }
    return sum(part.removeprefix("pod") not in uids for part in parts)


def failures(running: Running) -> float:
    lines = [x for x in running.ask("/metrics")[1].splitlines() if x.startswith("cotenant_enforcer_ticks_total")]
    return sum(float(x.rsplit(" ", 1)[1]) for x in lines if 'outcome="done"' not in x)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--containers", type=int, default=2000)
    options = parser.parse_args()
    if why := missing():
        print(f"node_soak: not measured: {why}", file=sys.stderr)
        return 0
    rows = soak(options.containers)
    record("node_soak", ".venv/bin/python -m bench.enforcer.node_soak", rows, is_kept=options.containers >= 2000)
    return 0


if __name__ == "__main__":
    sys.exit(main())
