"""Writes forecasting/node_peaks/peak_tails.py: tails of studentised peak scores from public traces, by shape.

    COTENANT_TRACES=... .venv/bin/python -m bench.forecasting.peak_prior

A score is (peak that came - base) / spread at a decision (`cotenant.forecasting.node_peaks.peak_risk`). A tail is the
rates at which a mixture of all populations exceeds a score, each population with the same weight: once of scores as
they are, nearly in shares of the limit, and once of scores standardised by the median and the 90th percentile of their
population, z = (score - median) / (p90 - median).

Traces (their files are described in the folder's README) and licences, which allow derived figures:

- azure_v1_vms (AzurePublicDatasetV1, CC BY 4.0): groups of 20 and of 3-8 VMs;
- azure_v2_vms (AzurePublicDatasetV2, CC BY 4.0): groups of 3-5 VMs;
- google2011_jobs and google2011_machines (ClusterData2011, CC BY 4.0), google2019_cells (ClusterData2019, CC BY 4.0);
- service_telemetry, the CPU of six machines (Numenta Anomaly Benchmark, MIT): of scores as they are alone, for the p90
  of such steady machines is their median, and nothing can be measured in it.

Memory: the three Google tables alone, for the others hold none. Not used: bitbrains_rnd, whose trace states no licence,
and the Alibaba tables, which are for research or study; smd_servers, which was scaled to 0..1 over either half of its
days by itself, so that its limit is none and its middle holds a jump that never was. So bitbrains_rnd is a trace that
the tails know nothing of; bench.forecasting.peak_populations tests every trace by tails without it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import numpy as np

from bench.forecasting.populations import (
    SEEDS,
    Population,
    azure,
    azure_small,
    azure_v2,
    google_jobs,
    machines,
    servers,
)
from bench.record import ROOT, traces
from cotenant.backtesting.reclaim import prepare_decisions
from cotenant.base.resource import Resource
from cotenant.forecasting.node_peaks.peak_risk import upper_quantile
from cotenant.forecasting.node_peaks.peak_tails import EXCEEDANCES, Tail
from cotenant.forecasting.settings import NodePeakSettings

FILE = ROOT / "forecasting" / "node_peaks" / "peak_tails.py"
DRAWS = 2
STEADY = "service_telemetry"
"""Beginning of the names of populations without a part in standardised tails."""
Scores = dict[str, list[np.ndarray]]


def populations(folder: Path) -> Iterator[Population]:
    cpu, memory = Resource.CPU, Resource.MEMORY
    yield from azure(folder)
    yield azure_small(folder)
    yield azure_v2(folder)
    yield google_jobs(folder, "cpu_pct", cpu)
    yield servers(folder, "google2011_machines", "cpu_usage_norm", None, cpu)
    yield servers(folder, "google2019_cells", "cpu_sum_raw", None, cpu)
    yield machines(folder)
    yield google_jobs(folder, "mem_pct", memory)
    yield servers(folder, "google2011_machines", "mem_usage_norm", None, memory)
    yield servers(folder, "google2019_cells", "mem_sum_raw", None, memory)


def rising_scores(of: Population) -> dict[str, np.ndarray]:
    """By shape: rising scores of all decisions of some draws."""
    trials = [of.trial(seed) for seed in SEEDS[: 1 if of.alone else DRAWS]]
    parts: Scores = {}
    for ready in (prepare_decisions(trial.blocks, trial) for trial in trials):
        usable = ready.usable(NodePeakSettings())
        for name, base, spread in zip(ready.names, ready.bases, ready.spreads, strict=True):
            parts.setdefault(name, []).append(((ready.after - base) / spread)[usable])
    return {name: np.sort(np.concatenate(scores)) for name, scores in parts.items()}


def standardised(scores: np.ndarray) -> np.ndarray:
    """Rising z of rising scores."""
    middle = upper_quantile(scores, 0.5)
    z: np.ndarray = (scores - middle) / (upper_quantile(scores, 0.1) - middle)
    return z


def tails(of: Iterable[Population], without: Collection[str] = ()) -> dict[str, Tail]:
    """By shape: scores at the exceedances; `without`: beginnings of the names of populations that have no part."""
    plain: Scores = {}
    scaled: Scores = {}
    for one in of:
        if one.name.startswith(tuple(without)):
            continue
        for name, scores in rising_scores(one).items():
            plain.setdefault(name, []).append(scores)
            scaled.setdefault(name, []).extend([] if one.name.startswith(STEADY) else [standardised(scores)])
    return {name: Tail(mixed(parts, 3), mixed(scaled[name], 2)) for name, parts in plain.items()}


def mixed(parts: list[np.ndarray], digits: int) -> tuple[float, ...]:
    """The smallest z that the parts, each with the same weight, exceed no more often than each exceedance."""
    z = np.concatenate(parts)
    weight = np.concatenate([np.full(len(part), 1 / len(part) / len(parts)) for part in parts])
    order = np.argsort(z)
    above = 1 - np.cumsum(weight[order])
    return tuple(round(float(z[order][np.argmax(above <= rate + 1e-9)]), digits) for rate in EXCEEDANCES)


def main() -> None:
    folder = traces()
    if folder is None:
        print("no real traces: set COTENANT_TRACES to their folder; nothing was written")
        return
    text = FILE.read_text()
    FILE.write_text(text[: text.index("TAILS:")] + written(tails(populations(folder))))


def written(of: Mapping[str, Tail]) -> str:
    """The table as it stands in the module."""
    rows = "".join(
        f'    "{name}": Tail(\n        {tail.scores},\n        {tail.scaled},\n    ),\n' for name, tail in of.items()
    )
    return f"TAILS: Final[Mapping[str, Tail]] = {{\n{rows}}}\n"


if __name__ == "__main__":
    main()
