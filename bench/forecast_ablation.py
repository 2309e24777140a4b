"""What each part of a forecast earns, and what older back-tests cost, on the populations of bench.decisions.

Loss: pinball relative to that of the whole engine, geometric mean over series and trials, interval by paired bootstrap;
above 1 the part helps. Seconds: CPU time that the engine takes less without it, over all trials of all populations.
"back-tests n h old": members, booster and lifts were weighed n hours before the forecast, as in a scan that goes on
with what an earlier one learned, and from that much less history. The goal is that none is worse by more than 1 %.
Members were chosen on a third of these origins (see bench.decisions), so that gains lean a little upwards.
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

from bench.decisions import POPULATIONS
from bench.record import Row, below, record_on_traces
from cotenant.core.model.usage.forecast import LEVELS
from cotenant.core.settings.sections.forecasts import ForecastingSettings
from forecasting.backtest import scores
from forecasting.backtest.contenders import ContenderForecast
from forecasting.backtest.engine import ENGINE, EngineContender
from forecasting.backtest.plan import Past, origins
from forecasting.backtest.run import BacktestScores, run
from forecasting.members import MEMBERS

ORIGINS = 8
AGES_HOURS = (1.0, 12.0, 24.0)
AGED, WORSE = "back-tests", 1.01
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
        answer = self.engine.answer(past, horizon)
        self.seconds += time.process_time() - began
        return answer


def variants(engine: EngineContender) -> Iterator[Variant]:
    """The whole, with older back-tests, and without each part."""
    yield Variant(engine, ENGINE)
    for hours in AGES_HOURS:
        yield Variant(replace(engine, learned_hours=hours), f"{AGED} {hours:g} h old")
    yield Variant(replace(engine, settings=structs.replace(DEFAULTS, booster_rows=0)), "booster")
    for place, member in enumerate(MEMBERS[1:], 1):
        yield Variant(replace(engine, members=(*MEMBERS[:place], *MEMBERS[place + 1 :])), member.name)


def measure(folder: Path) -> list[Row]:
    """One row a part: the loss without it on each population, and the time."""
    gains: dict[str, list[str]] = {}
    ratios: dict[str, list[float]] = {}
    spent: dict[str, float] = {}
    for population in POPULATIONS:
        shard = population.shard(folder)
        contenders = list(variants(EngineContender(population.resource)))
        ledger = run([shard], contenders, population.plan, origins(shard.grid, population.plan, ORIGINS))
        held = float(scores.coverage(ledger, ENGINE)[Q95])
        for variant in contenders:
            spent[variant.name] = spent.get(variant.name, 0.0) + variant.seconds
            if variant.name != ENGINE:
                value, note = _of(ledger, variant.name, held)
                gains.setdefault(variant.name, []).append(f"{population.name} {note}")
                ratios.setdefault(variant.name, []).append(value)
    return [row for name, notes in gains.items() for row in _rows(name, ratios[name], "; ".join(notes), spent)]


def _rows(name: str, ratios: list[float], note: str, spent: dict[str, float]) -> Iterator[Row]:
    ratio = float(np.exp(np.mean(np.log(ratios))))
    if name.startswith(AGED):
        yield below(f"loss with {name} / with fresh ones", round(ratio, 4), "ratio", WORSE, note)
        return
    yield Row(f"loss without {name} / with it", round(ratio, 4), "ratio", note=note)
    yield Row(f"CPU time of {name}", round(spent[ENGINE] - spent[name], 2), "s", note=f"of {spent[ENGINE]:.1f} s")


def _of(ledger: BacktestScores, name: str, held: float) -> tuple[float, str]:
    paired = scores.against(ledger, name, ENGINE, ENGINE)
    covered = float(scores.coverage(ledger, name)[Q95])
    return paired.value, f"{paired.value:.4f} ({paired.low:.4f}..{paired.high:.4f}), q95 {held:.3f} to {covered:.3f}"


if __name__ == "__main__":
    record_on_traces("forecast_ablation", measure)
