"""Writes forecasting/node_peaks/peak_tails.py: tails of studentised peak scores from public traces, by shape.

    COTENANT_TRACES=... .venv/bin/python -m bench.peak_prior

A score is (peak that came - base) / spread at a decision (forecasting.node_peaks.peak_risk), standardised by the median
and the 90th percentile of its population's scores: z = (score - median) / (p90 - median). A tail is the rates at which
a mixture of all populations exceeds z, each population with the same weight.

Traces (their files are described in the folder's README) and licences, which allow derived figures:

- azure_v1_vms (AzurePublicDatasetV1, CC BY 4.0): groups of 20 and of 3-8 VMs;
- azure_v2_vms (AzurePublicDatasetV2, CC BY 4.0): groups of 3-5 VMs;
- google2011_jobs and google2011_machines (ClusterData2011, CC BY 4.0), google2019_cells (ClusterData2019, CC BY 4.0);
- smd_servers (Server Machine Dataset, MIT).

Memory: the three Google tables alone, for the others hold none. Not used: bitbrains_rnd, whose trace states no licence,
and the Alibaba tables, which are for research or study. So bitbrains_rnd is a trace that the tails know nothing of;
bench.decisions_reclaim judges azure_v1 by tails without azure_v1.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import numpy as np

from bench.populations import SEEDS, Population, azure, azure_small, azure_v2, google_jobs, servers
from bench.record import traces
from cotenant.apps.backtest.reclaim import prepared
from cotenant.core.model.resource import Resource
from cotenant.core.settings.sections.forecasts import NodePeakSettings
from forecasting.node_peaks.peak_risk import upper_quantile
from forecasting.node_peaks.peak_tails import EXCEEDANCES

FILE = Path(__file__).resolve().parent.parent / "forecasting" / "node_peaks" / "peak_tails.py"
DRAWS = 2
Scores = dict[str, list[np.ndarray]]


def populations(folder: Path) -> Iterator[Population]:
    cpu, memory = Resource.CPU, Resource.MEMORY
    yield from azure(folder)
    yield azure_small(folder)
    yield azure_v2(folder)
    yield google_jobs(folder, "cpu_pct", cpu)
    yield servers(folder, "google2011_machines", "cpu_usage_norm", None, cpu)
    yield servers(folder, "google2019_cells", "cpu_sum_raw", None, cpu)
    yield servers(folder, "smd_servers", "c00", 1.0, cpu)
    yield google_jobs(folder, "mem_pct", memory)
    yield servers(folder, "google2011_machines", "mem_usage_norm", None, memory)
    yield servers(folder, "google2019_cells", "mem_sum_raw", None, memory)


def standardised(of: Population) -> dict[str, np.ndarray]:
    """By shape: rising z of all decisions of some draws."""
    trials = [of.trial(seed) for seed in SEEDS[: 1 if of.alone else DRAWS]]
    parts: Scores = {}
    for ready in (prepared(trial.blocks, trial) for trial in trials):
        usable = ready.usable(NodePeakSettings())
        for name, base, spread in zip(ready.names, ready.bases, ready.spreads, strict=True):
            parts.setdefault(name, []).append(((ready.after - base) / spread)[usable])
    rising = {name: np.sort(np.concatenate(scores)) for name, scores in parts.items()}
    middles = {name: upper_quantile(scores, 0.5) for name, scores in rising.items()}
    return {n: (s - middles[n]) / (upper_quantile(s, 0.1) - middles[n]) for n, s in rising.items()}


def tails(of: Iterable[Population], without: Collection[str] = ()) -> dict[str, tuple[float, ...]]:
    """By shape: z at the exceedances; `without`: beginnings of the names of populations that have no part."""
    scores: Scores = {}
    for one in of:
        if not one.name.startswith(tuple(without)):
            for name, z in standardised(one).items():
                scores.setdefault(name, []).append(z)
    return {name: mixed(parts) for name, parts in scores.items()}


def mixed(parts: list[np.ndarray]) -> tuple[float, ...]:
    """The smallest z that the parts, each with the same weight, exceed no more often than each exceedance."""
    z = np.concatenate(parts)
    weight = np.concatenate([np.full(len(part), 1 / len(part) / len(parts)) for part in parts])
    order = np.argsort(z)
    above = 1 - np.cumsum(weight[order])
    return tuple(round(float(z[order][np.argmax(above <= rate + 1e-9)]), 2) for rate in EXCEEDANCES)


def main() -> None:
    folder = traces()
    if folder is None:
        print("no real traces: set COTENANT_TRACES to their folder; nothing was written")
        return
    text = FILE.read_text()
    FILE.write_text(text[: text.index("TAILS:")] + written(tails(populations(folder))))


def written(of: Mapping[str, tuple[float, ...]]) -> str:
    """The table as it stands in the module."""
    rows = "".join(f'    "{name}": {points},\n' for name, points in of.items())
    return f"TAILS: Final[Mapping[str, tuple[float, ...]]] = {{\n{rows}}}\n"


if __name__ == "__main__":
    main()
