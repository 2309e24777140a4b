"""The document of the dashboard's page Try a risk, from outcomes on the stored history. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from cotenant.base.usage.backtest import LentDay, RiskOutcome, WhatIf
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.experiment.outcome import Sharing, SharingOutcome

STORED: Final = "stored"
"""The trace of a scenario on the stored history."""
RISKS_PERCENT: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
"""Places of the page's slider."""


def what_if(outcomes: Sequence[SharingOutcome], computed_seconds: int) -> WhatIf | None:
    """Return the what-if document of the runs of one world; None where none of them is cotenant's."""
    ours = sorted((o for o in outcomes if o.sharing is Sharing.COTENANT), key=lambda o: o.knob)
    if not ours:
        return None
    by_use = next((o for o in outcomes if o.sharing is Sharing.KOORDINATOR), None)
    return WhatIf(
        computed_seconds,
        ours[0].scenario.nodes,
        float(ours[0].timeline.capacity_cores.mean()),
        tuple(_outcome(outcome, outcome.knob) for outcome in ours),
        None if by_use is None else _outcome(by_use, None),
    )


def _outcome(outcome: SharingOutcome, risk_percent: float | None) -> RiskOutcome:
    return RiskOutcome(
        risk_percent,
        outcome.batch_core_hours,
        outcome.utilisation_ratio,
        outcome.violation_ratio,
        outcome.latency_ratio,
        outcome.evictions,
        tuple(_days(outcome)),
    )


def _days(outcome: SharingOutcome) -> Iterator[LentDay]:
    line = outcome.timeline
    starts = line.time_seconds // DAY_SECONDS * DAY_SECONDS
    columns = (line.online_cores, line.offered_cores, line.batch_cores, line.short_ratio)
    for start in np.unique(starts).tolist():
        of_day = starts == start
        online, offered, batch, short = (float(column[of_day].mean()) for column in columns)
        yield LentDay(int(start), online, offered, batch, short, steps=int(of_day.sum()))
