"""What each part of a forecast earns, and what older back-tests cost, on the populations of bench decisions.

Loss: pinball relative to that of the whole engine, geometric mean over series and trials, interval by paired bootstrap;
above 1 the part helps, and one that does not help in the mean of the populations misses its goal. Seconds: CPU time
over all trials of all populations, of a member in its own calls, of the booster what the engine takes less without it;
beside it what the part saves by share of the engine's time.
"back-tests n h old": members, booster and lifts were weighed n hours before the forecast, as in a scan that goes on
with what an earlier one learned, and from that much less history. The goal is that none is worse by more than 1 %.
Members were chosen on a third of these origins (see bench.forecasting.decisions), so that gains lean a little upwards.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import numpy as np
from msgspec import structs

from bench.forecasting.decisions import POPULATIONS
from bench.record import Row, above, below, record_on_traces
from cotenant.base.usage.forecast import LEVELS
from cotenant.base.usage.usage import FloatMatrix, TimeGrid
from cotenant.forecasting.backtest import scores
from cotenant.forecasting.backtest.contenders import ContenderForecast
from cotenant.forecasting.backtest.engine import ENGINE, EngineContender
from cotenant.forecasting.backtest.plan import Past, origins
from cotenant.forecasting.backtest.run import BacktestScores, run
from cotenant.forecasting.base import Array, Forecaster
from cotenant.forecasting.members import MEMBERS
from cotenant.forecasting.settings import ForecastingSettings

ORIGINS = 8
AGES_HOURS = (1.0, 12.0, 24.0)
AGED, WORSE = "back-tests", 1.01
BOOSTER = "booster"
FIRST = "the whole, once before"
HELPS = 1.0
LEAST_SHARE = 0.001
"""Of the CPU time: what takes less counts as this."""
Q95 = LEVELS.index(0.95)
DEFAULTS = ForecastingSettings()


@dataclass
class Variant:
    """An engine that counts its CPU time."""

    engine: EngineContender
    name: str
    seconds: float = field(default=0.0)

    def answer(self, past: Past, horizon: int) -> ContenderForecast:
        began = time.process_time()
        prediction = self.engine.answer(past, horizon)
        self.seconds += time.process_time() - began
        return prediction


@dataclass
class TimedMember:
    """A member that counts the CPU time of its own calls."""

    inner: Forecaster
    seconds: float = field(default=0.0)

    @property
    def name(self) -> str:
        return self.inner.name

    def quantiles(self, history: FloatMatrix, grid: TimeGrid, horizon: int) -> Array:
        began = time.process_time()
        paths = self.inner.quantiles(history, grid, horizon)
        self.seconds += time.process_time() - began
        return paths


def variants(engine: EngineContender, timed: tuple[TimedMember, ...]) -> Iterator[Variant]:
    """The whole, with older back-tests, and without each part.

    At every origin the first one also pays for what all of them read for the first time: its time counts for nobody.
    """
    yield Variant(engine, FIRST)
    yield Variant(replace(engine, members=timed), ENGINE)
    for hours in AGES_HOURS:
        yield Variant(replace(engine, learned_hours=hours), f"{AGED} {hours:g} h old")
    yield Variant(replace(engine, settings=structs.replace(DEFAULTS, booster_rows=0)), BOOSTER)
    for number, member in enumerate(MEMBERS[1:], 1):
        yield Variant(replace(engine, members=(*MEMBERS[:number], *MEMBERS[number + 1 :])), member.name)


def measure(folder: Path) -> list[Row]:
    """One row a part: the loss without it on each population, and the time."""
    gains: dict[str, list[str]] = {}
    ratios: dict[str, list[float]] = {}
    spent: dict[str, float] = {}
    own: dict[str, float] = {}
    for population in POPULATIONS:
        shard = population.shard(folder)
        timed = tuple(TimedMember(member) for member in MEMBERS)
        contenders = list(variants(EngineContender(population.resource), timed))
        ledger = run([shard], contenders, population.plan, origins(shard.grid, population.plan, ORIGINS))
        coverage_before = float(scores.coverage(ledger, ENGINE)[Q95])
        for variant in contenders:
            spent[variant.name] = spent.get(variant.name, 0.0) + variant.seconds
            if variant.name not in (FIRST, ENGINE):
                value, note = _of(ledger, variant.name, coverage_before)
                gains.setdefault(variant.name, []).append(f"{population.name} {note}")
                ratios.setdefault(variant.name, []).append(value)
        for member in timed:
            own[member.name] = own.get(member.name, 0.0) + member.seconds
    own[BOOSTER] = spent[ENGINE] - spent[BOOSTER]
    return [
        row
        for name, notes in gains.items()
        for row in _rows(name, ratios[name], "; ".join(notes), (own.get(name, 0.0), spent[ENGINE]))
    ]


def _rows(name: str, ratios: list[float], note: str, seconds_of: tuple[float, float]) -> Iterator[Row]:
    """seconds_of: CPU time of the part and of the whole engine."""
    ratio = float(np.exp(np.mean(np.log(ratios))))
    if name.startswith(AGED):
        yield below(f"loss with {name} / with fresh ones", round(ratio, 4), "ratio", WORSE, note)
        return
    seconds, total_seconds = seconds_of
    yield above(f"loss without {name} / with it", round(ratio, 4), "ratio", HELPS, note)
    yield Row(f"CPU time of {name}", round(seconds, 3), "s", note=f"of {total_seconds:.1f} s")
    share, saved = seconds / total_seconds, 100 * (ratio - 1)
    by_share = round(saved / (100 * max(share, LEAST_SHARE)), 4)
    note = f"{saved:.2f} % for {100 * share:.1f} % of the CPU time"
    yield Row(f"loss that {name} saves by 1 % of the time", by_share, "%", note=note)


def _of(ledger: BacktestScores, name: str, coverage_before: float) -> tuple[float, str]:
    paired = scores.against(ledger, name, ENGINE, ENGINE)
    covered = float(scores.coverage(ledger, name)[Q95])
    return (
        paired.value,
        f"{paired.value:.4f} ({paired.low:.4f}..{paired.high:.4f}), q95 {coverage_before:.3f} to {covered:.3f}",
    )


if __name__ == "__main__":
    record_on_traces("forecast_ablation", measure)
