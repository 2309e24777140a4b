"""Stores the margins of `recommender.cotenant.cpu_day_risk` between analyses, so that they fall slowly.

Two weeks have only a few days on which many containers' usage jumps; a margin calibrated on them alone would follow
each jump. Each analysis therefore stores the margins that it used, and the next one lowers them no further than the
time between the two allows (`day_risk.least_later_margin`). With another risk the margins start anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.store import Store
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.recommender.model.recommendation import Recommendation
from cotenant.recommender.strategies.cotenant import day_risk
from cotenant.settings import Settings

_FOLDER: Final = "day-margins"
_BLOCK: Final = "cpu"
_TEXTS: Final = ("namespace", "kind", "name", "container")


def read(store: Store, settings: Settings, now_seconds: float) -> dict[ContainerRef, float]:
    """Return the lowest allowed CPU margin factor of each container; empty if none is stored for the settings' risk."""
    risk = settings.recommender.cotenant.cpu_day_risk
    stored = store.read_block(_FOLDER, _BLOCK) if risk is not None else None
    if stored is None or stored[1]["risk"] != repr(risk):
        return {}
    block, stamp = stored
    days = max(0.0, now_seconds - float(stamp["computed_seconds"])) / DAY_SECONDS
    rows = zip(*(block[text].tolist() for text in _TEXTS), block["margin"].tolist(), strict=True)
    return {
        ContainerRef(WorkloadRef(namespace, kind, name), container): day_risk.least_later_margin(margin, days)
        for namespace, kind, name, container, margin in rows
    }


def write(store: Store, settings: Settings, recommendations: Iterable[Recommendation], now_seconds: float) -> None:
    """Store the CPU margins of these recommendations; store nothing if the setting `cpu_day_risk` is None.

    The margin of a container that was not evaluated anew is stored as low as it may have fallen by `now_seconds`.
    """
    risk = settings.recommender.cotenant.cpu_day_risk
    if risk is None:
        return
    listed = tuple(recommendations)
    newest_seconds = max((recommendation.end_seconds for recommendation in listed), default=0)
    made_now = _margins(recommendation for recommendation in listed if recommendation.end_seconds == newest_seconds)
    margins = _margins(listed) | read(store, settings, now_seconds) | made_now
    if not margins:
        return
    texts = zip(*((r.workload.namespace, r.workload.kind, r.workload.name, r.container) for r in margins), strict=True)
    block = {name: np.array(column, dtype=object) for name, column in zip(_TEXTS, texts, strict=True)}
    stamp = {"risk": repr(risk), "computed_seconds": repr(float(now_seconds))}
    store.write_block(_FOLDER, _BLOCK, {**block, "margin": np.array(list(margins.values()))}, stamp)


def _margins(recommendations: Iterable[Recommendation]) -> dict[ContainerRef, float]:
    name = day_risk.MARGIN_INPUT
    return {r.container: float(v.inputs[name]) for r in recommendations for v in r.values if name in v.inputs}
