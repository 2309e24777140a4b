"""A workload on which an analysis stands still is left out by the next runs, and all others have results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from bench.platform.fuzz.hostile import ROOT
from cotenant.base.resource import Resource
from cotenant.base.store import Store
from cotenant.forecasting.settings import ForecastingSettings
from cotenant.recommender.settings import RecommenderSettings
from cotenant.settings import Settings
from cotenant_lab.synthetic import SyntheticSpec, generate

pytestmark = pytest.mark.slow
ODD_BYTES = 424_242
PLUG_IN = f"""
import re
from cotenant.base.resource import Resource
from cotenant.recommender.strategies.cotenant import Cotenant

class Holding(Cotenant):
    def recommend(self, evidence, settings):
        for workload in evidence.workloads:
            if any(c.requests.get(Resource.MEMORY) == {ODD_BYTES} for c in workload.containers):
                re.match("(a+)+b", "a" * 60)  # exponential, in C that never lets go of the interpreter
        return super().recommend(evidence, settings)
"""
"""A strategy of somebody's that never ends for one workload, as an installed plug-in."""
RUN = """
import json, sys
import msgspec
from cotenant.base.process.clock import FixedClock
from cotenant.base.process.in_hand import keep_notes
from cotenant.base.progress import Silent
from cotenant.base.store import Store
from cotenant.pipeline import daily_analysis
from cotenant.pipeline.daily_analysis import Sharding
from cotenant.pipeline.shards.executors import Processes
from cotenant.pipeline.shards.plan import ShardSize
from cotenant.settings import Settings
keep_notes("standing", 10.0)
settings = msgspec.convert(json.loads(sys.argv[2]), Settings)
store = Store(sys.argv[1], "demo")
workers = Sharding(Processes(2, 10.0), ShardSize(4))
sharding = workers if sys.argv[4] == "workers" else None
analysis = daily_analysis.analyse(store, settings, FixedClock(int(sys.argv[3])), Silent(), sharding=sharding)
print(json.dumps(sorted({
    f"{r.container.workload}: {v.reason.value}" for r in analysis.recommendations for v in r.values
})))
"""


@pytest.mark.parametrize("where", ["here", "workers"])
def test_a_workload_on_which_an_analysis_never_ends_is_found_by_the_next_runs(tmp_path: Path, where: str) -> None:
    plug_ins = tmp_path / "plug_ins"
    about = plug_ins / "holding-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: holding\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[cotenant.strategies]\nholding = holding:Holding\n")
    (plug_ins / "holding.py").write_text(PLUG_IN)
    store, cluster = Store(str(tmp_path / "store"), "demo"), generate(SyntheticSpec(2, 8, 2, 11))
    for signal, usage in cluster.usage.items():
        store.append(signal, usage)
    bad, *others = cluster.inventory.workloads
    asking: Mapping[Resource, int] = {Resource.CPU: 100, Resource.MEMORY: ODD_BYTES}
    hostile = replace(bad, containers=tuple(replace(c, requests=asking) for c in bad.containers))
    store.write_inventory(replace(cluster.inventory, workloads=(hostile, *others)))
    quick = ForecastingSettings(booster_rows=0, origins=1)
    settings = Settings(forecasting=quick, recommender=RecommenderSettings(strategy="holding"))
    arguments = [store.url, msgspec.json.encode(settings).decode(), str(cluster.inventory.time_seconds), where]
    env = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": f"{plug_ins}:{ROOT}"}

    def run() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", RUN, *arguments]
        return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=120)

    # the first stands still; eight workloads in 32 parts by the first character of their digests: so do one or two
    # more. A worker that ends is begun anew, three times a run
    ended = next((outcome for outcome in (run() for _ in range(4)) if outcome.returncode == 0), None)
    assert ended is not None
    document = json.loads(ended.stdout.splitlines()[-1])  # the log stands before it
    assert {line for line in document if line.startswith(f"{bad.ref}:")} == {f"{bad.ref}: failed"}
    assert not any(line.endswith(": failed") for line in document if not line.startswith(f"{bad.ref}:"))
    assert {line.partition(":")[0] for line in document} == {str(w.ref) for w in cluster.inventory.workloads}
    if where == "here":  # of two workers it may be the other one that has the shard next
        assert run().returncode == 0
