"""A back-test of forecasts, from its plan to the table of scores with one row per forecaster and group of series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from cotenant.backtesting.sources import USAGE, Series
from cotenant.base.errors import NoData, NotEnoughHistory, UsageError
from cotenant.base.progress import Progress
from cotenant.base.resource import Resource
from cotenant.base.table import Column, Kind, Schema, Table
from cotenant.base.tables.quantity import Sign, Unit
from cotenant.base.text import percent
from cotenant.base.usage.backtest import Horizon
from cotenant.base.usage.forecast import LEVELS
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.forecasting.backtest import scores
from cotenant.forecasting.backtest.baselines import BASELINE, DEFAULT, SHORT_NAMES, STRONG, by_name
from cotenant.forecasting.backtest.contenders import Contender, PathContender
from cotenant.forecasting.backtest.engine import EngineContender
from cotenant.forecasting.backtest.plan import HALF_HOURS, HOURLY_WEEK, BacktestPlan, origins
from cotenant.forecasting.backtest.run import BacktestScores, run


def plan_of(horizon: Horizon, resource: Resource, known_share: float) -> BacktestPlan:
    """Return the plan of a back-test that forecasts 24 hours by half hours, or 7 days by hours, as the horizon says."""
    plan = HALF_HOURS if horizon is Horizon.DAY else HOURLY_WEEK
    return replace(plan, known_share=known_share, statistic=USAGE[resource].spec.statistic)


def contenders(baselines: str | None, resource: Resource, horizon: Horizon) -> list[Contender]:
    """Return the forecasters to compare: B1, requested baselines ("B2,B14"), and cotenant's if `horizon` is a day."""
    requested = [b.strip() for b in baselines.split(",")] if baselines else list(DEFAULT)
    for name in requested:
        if name not in SHORT_NAMES:
            raise UsageError(f"there is no baseline {name!r}", fix=f"The baselines are {', '.join(SHORT_NAMES)}.")
    names = dict.fromkeys([BASELINE, *requested])
    paths: list[Contender] = [PathContender(by_name(name)) for name in names]
    return [EngineContender(resource), *paths] if horizon is Horizon.DAY else paths


def run_backtest(
    series: Series, plan: BacktestPlan, who: list[Contender], most: int, progress: Progress
) -> BacktestScores:
    """Score the forecasters `who` from up to `most` past times; raise NotEnoughHistory if the history is too short."""
    at = origins(series.grid, plan, most)
    needed = plan.history_days + plan.horizon_hours / 24
    if not at:
        days = series.grid.size * series.grid.step_seconds / DAY_SECONDS
        fix = "Keep more history."
        raise NotEnoughHistory(f"{series.title} spans {days:.1f} days; a back-test needs {needed:.0f} days", fix=fix)
    if plan.step_seconds % series.grid.step_seconds:
        raise UsageError(
            f"{series.title} has a value every {series.grid.step_seconds} s, which cannot be joined to half hours",
            fix="Use the horizon 7d, which only needs whole hours.",
        )
    progress.stage("Back-test", series.shard_count * len(at) * len(who))
    ledger = run(series.shards(), who, plan, at, progress)
    if not (ledger.of_trial["slots"] > 0).any():
        raise NoData(
            f"no series of {series.title} has data for {percent(plan.known_share)} of {needed:.0f} days in a row"
        )
    return ledger


ALL: Final = "all"
SHOWN_LEVELS: Final = (0.5, 0.8, 0.9, 0.95, 0.98)

_NUMBERS: Final = (
    ("rel_wql", "relWQL", "Loss / loss of B1, which repeats the day before with empirical residual quantiles.", 0),
    ("rel_wql_low", "low", "Lower end of the 95 % interval of relWQL.", 0),
    ("rel_wql_high", "high", "Upper end of the 95 % interval of relWQL.", 0),
    ("vs_b14", "vs B14", "Loss divided by the loss of B14, the strongest cheap baseline, on the same data.", 0),
    ("vs_b14_low", "low ", "Lower end of the 95 % interval of the loss relative to B14.", 0),
    ("vs_b14_high", "high ", "Upper end of the 95 % interval of the loss relative to B14; below 1: better.", 0),
    ("pooled_wql", "Pooled WQL", "2 x sum of the pinball losses / sum of the usage.", 1),
    ("mase", "MASE", "Error of the forecast median / error of a naive forecast on the history.", 1),
    ("winkler", "Winkler", "Winkler score of the 80 % interval / mean usage.", 1),
)
_RATIOS: Final = (
    *(
        (f"coverage_{100 * q:.0f}", f"p{100 * q:.0f} held", f"Share of values up to forecast p{100 * q:.0f}.", q < 0.95)
        for q in SHOWN_LEVELS
    ),
    ("worst_95", "Worst tenth", "p95 coverage of the tenth of the series with the lowest coverage.", False),
    ("capture", "Capture", "Mean usage in the forecast / in the actual 2-h peak window, on days with a peak.", False),
    ("hit", "Hit +-1 h", "Share of forecast peak windows that start within an hour of the actual window.", False),
    ("equal_peaks", "Equal peaks", "Share of days with several equal peaks, on which the hit rate means little.", True),
    ("iou", "IoU", "Overlap of the forecast and the actual peak window / their union.", True),
    ("height_50", "Height p50", "Median of (forecast - actual) / actual 24-h peak.", True),
    ("height_90", "Height p90", "90 % quantile of (forecast - actual) / actual 24-h peak.", True),
    ("abstain_precision", "No-peak precision", "Share of the days forecast without a peak that had no peak.", True),
    ("abstain_recall", "No-peak recall", "Share of the days without a peak that were forecast without a peak.", True),
    (
        "window_precision",
        "Windows right",
        "Share of forecast peak windows above half the peak's height that match an actual window.",
        True,
    ),
    (
        "window_recall",
        "Windows found",
        "Share of actual windows above half the peak's height that were forecast.",
        True,
    ),
    ("peak_held_95", "Peak p95 held", "Share of actual 24-h peaks at or below the forecast p95 of the peak.", True),
)

SCHEMA: Final = Schema(
    "forecast_scores",
    (
        Column("stratum", "Stratum", Kind.TEXT, "Group of forecasts that the row scores, such as idle series."),
        Column("contender", "Contender", Kind.TEXT, "The scored forecaster: cotenant or a baseline."),
        Column("series", "Series", Kind.INTEGER, "Series that were scored."),
        Column("trials", "Trials", Kind.INTEGER, "Scored forecasts: series x forecast times."),
        Column("dropped", "Dropped", Kind.INTEGER, "Series not scored: usage or the baseline's loss is 0.", wide=True),
        *(Column(name, title, Kind.NUMBER, doc, wide=bool(wide)) for name, title, doc, wide in _NUMBERS),
        *(
            Column(n, title, Kind.RATIO, doc, wide, sign=Sign.EITHER if "height" in n else Sign.NEVER_NEGATIVE)
            for n, title, doc, wide in _RATIOS
        ),
        Column("late_minutes", "Off, minutes", Kind.NUMBER, "Mean error of the time of the peak.", wide=True),
    ),
    ("stratum", "contender"),
)

CURVES: Final = Schema(
    "forecast_coverage",
    (
        Column("contender", "Contender", Kind.TEXT, "The scored forecaster: cotenant or a baseline."),
        Column("level", "Level", Kind.NUMBER, "Quantile level."),
        Column("coverage", "Coverage", Kind.RATIO, "Share of actual values at or below the forecast quantile."),
        Column("worst_tenth", "Worst tenth", Kind.RATIO, "Coverage of the least covered tenth of the series."),
        Column("pinball", "Pinball", Kind.NUMBER, "Mean pinball loss of the quantile.", unit=Unit.OF_RESOURCE),
        Column("by_hour", "By hour", Kind.LIST, "Coverage in each hour of the day (UTC).", unit=Unit.RATIO),
    ),
    ("contender", "level"),
)


def table(ledger: BacktestScores, strata: Sequence[str] | None = None) -> Table:
    """Return the scores of every forecaster over all series, then by group of series (`strata`; None means all)."""
    masks = {ALL: None, **scores.strata(ledger)}
    selected = {name: mask for name, mask in masks.items() if strata is None or name in strata}
    return Table.from_rows(SCHEMA, [_row(ledger, c, n, m) for n, m in selected.items() for c in ledger.contenders])


def curves(ledger: BacktestScores) -> Table:
    """Return a table of coverage and loss by forecaster and quantile level, and coverage by hour (NaN without data)."""
    rows = []
    for contender in ledger.contenders:
        coverage, worst = scores.coverage(ledger, contender), scores.worst_decile(ledger, contender)
        loss, hourly = scores.pinball_by_level(ledger, contender), scores.hourly_coverage(ledger, contender)
        for index, level in enumerate(LEVELS):
            rows.append(
                {
                    "contender": contender,
                    "level": level,
                    "coverage": coverage[index],
                    "worst_tenth": worst[index],
                    "pinball": loss[index],
                    "by_hour": hourly[:, index].tolist(),
                }
            )
    return Table.from_rows(CURVES, rows)


def _row(ledger: BacktestScores, contender: str, stratum: str, mask: Any) -> dict[str, Any]:
    base = by_name(BASELINE).name
    relative = scores.relative(ledger, contender, base, mask)
    peak = scores.peaks(ledger, contender, mask)
    coverage = scores.coverage(ledger, contender, mask)
    row = {
        "stratum": stratum,
        "contender": contender,
        "series": relative.series,
        "trials": relative.trials,
        "dropped": relative.dropped,
        "rel_wql": relative.value,
        "rel_wql_low": relative.low,
        "rel_wql_high": relative.high,
        "pooled_wql": scores.pooled_wql(ledger, contender, mask),
        "mase": scores.mase(ledger, contender, mask),
        "winkler": scores.winkler(ledger, contender, mask),
        "worst_95": scores.worst_decile(ledger, contender, mask)[LEVELS.index(0.95)],
        "capture": peak.capture.value,
        "hit": peak.hit.value,
        "equal_peaks": peak.equal,
        "iou": peak.iou,
        "late_minutes": peak.late_minutes,
        "height_50": peak.height_50,
        "height_90": peak.height_90,
        "abstain_precision": peak.abstain_precision,
        "abstain_recall": peak.abstain_recall,
        "peak_held_95": peak.covered_95,
        "window_precision": peak.window_precision,
        "window_recall": peak.window_recall,
    }
    row |= {f"coverage_{100 * q:.0f}": coverage[LEVELS.index(q)] for q in SHOWN_LEVELS}
    strong = by_name(STRONG).name
    if strong in ledger.contenders:
        paired = scores.against(ledger, contender, strong, base, mask)
        row |= {"vs_b14": paired.value, "vs_b14_low": paired.low, "vs_b14_high": paired.high}
    return row
