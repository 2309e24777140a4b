"""UsageForecast objects (cotenant.dev/v1alpha1): one per node, from which other processes read the node's forecast.

Each has the next 48 half hours (p50 and p95, millicores and bytes) and the 24-hour peak. It is written at most once per
`forecast_interval_seconds`, and only if the forecast changed by more than the dead-band or if the published one ends in
less than `forecast_refresh_hours`. When a node is deleted, its object is deleted by the ownerReference. A forecast must
not be used after its validUntil. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np

from cotenant.base.controllers.contract import MANAGED_BY, MANAGED_BY_LABEL, ControllerDecision, ObjectNote
from cotenant.base.controllers.published import ExistingObject, is_ours, seconds_of
from cotenant.base.errors import QuantityError
from cotenant.base.kubernetes.intent import Address, Apply
from cotenant.base.kubernetes.models.own_kinds import UsageForecast
from cotenant.base.kubernetes.moments import moment
from cotenant.base.kubernetes.protocol import OWN_GROUP
from cotenant.base.kubernetes.quantity import format_amount, parse_amount
from cotenant.base.resource import MIB, Resource
from cotenant.base.settings.sections import ManagerSettings
from cotenant.base.text import percent
from cotenant.base.usage.usage import HOUR_SECONDS
from cotenant.manager.decisions.results import NodeOutlook, RunResults, SeriesOutlook

FORECAST_DEAD_BAND_FRACTION: Final = 0.1
"""A forecast that moves by no more than this share of its peak is not written again. Within a forecast's own error."""
FORECAST_REFRESH_HOURS: Final = 12.0
"""A UsageForecast that reaches less far ahead is written again, moved or not. Half of the forecast's 24 hours, so
that consumers always look half a day ahead."""

PLURAL: Final = "usageforecasts"
PEAK_QUANTILE: Final = 0.95


@dataclass(frozen=True, slots=True)
class ForecastView:
    """The controller's input: results of the last run, published UsageForecasts by name, and existing nodes by name."""

    results: RunResults
    there: Mapping[str, UsageForecast]
    nodes: Mapping[str, ExistingObject]


def decide(view: ForecastView, now_seconds: float, settings: ManagerSettings) -> ControllerDecision:
    """Return one write for each node whose published forecast is missing, differs from the new one, or ends soon."""
    intents: list[Apply] = []
    notes: list[ObjectNote] = []
    for outlook in view.results.nodes:
        node, published = view.nodes.get(outlook.node), view.there.get(outlook.node)
        if node is None or outlook.end_seconds <= now_seconds:
            continue  # the node is gone, or the run is so old that nothing of its horizon is left
        if published is not None and not is_ours(published.metadata):
            notes.append(ObjectNote(f"{PLURAL}/{outlook.node}", "NotOurs", "Unchanged: not made by cotenant."))
            continue
        if why := news(outlook, published, now_seconds, settings):
            address = Address(OWN_GROUP, PLURAL, outlook.node)
            spec = {
                "start": moment(outlook.start_seconds),
                "stepSeconds": outlook.step_seconds,
                "validUntil": moment(outlook.end_seconds),
                "settingsDigest": outlook.settings_digest,
                "historyStart": moment(outlook.history_start_seconds),
                "historyEnd": moment(outlook.history_end_seconds),
                **{r.value: _series(r, series) for r, series in outlook.series.items()},
            }
            metadata = {"labels": {MANAGED_BY_LABEL: MANAGED_BY}, "ownerReferences": [node.reference()]}
            intents.append(Apply(address, address.manifest("UsageForecast", metadata, spec=spec), why=why))
    # Start and peaks of the forecasts to be replaced.
    replaced = {i.address: view.there.get(i.address.name) for i in intents}
    shorts = {}
    for address, forecast in replaced.items():
        if forecast is not None:
            peaks = {r: series.peak for r in Resource if (series := forecast.spec.series(r)) is not None}
            shorts[address] = msgspec.json.encode({"start": forecast.spec.start, "peak": peaks}).decode()
    return ControllerDecision(tuple(intents), tuple(notes), shorts)


def news(outlook: NodeOutlook, published: UsageForecast | None, now_seconds: float, settings: ManagerSettings) -> str:
    """Return why a node's UsageForecast must be written now; "" if it need not be written, or not yet."""
    if published is None:
        return "new node"
    start, until = seconds_of(published.spec.start), seconds_of(published.spec.valid_until)
    if start is None or until is None:
        return "the published forecast cannot be read"
    if outlook.start_seconds - start < settings.forecast_interval_seconds:
        return ""
    band = FORECAST_DEAD_BAND_FRACTION
    reasons = {
        f"the published forecast ends {moment(until)}": until - now_seconds < FORECAST_REFRESH_HOURS * HOUR_SECONDS,
        "the settings of the forecast changed": outlook.settings_digest != published.spec.settings_digest,
        f"the forecast moved by more than {percent(band)} of its peak": _has_moved(outlook, published, start, band),
    }
    return next((why for why, true in reasons.items() if true), "")


def _has_moved(outlook: NodeOutlook, published: UsageForecast, start: int, band: float) -> bool:
    """Return whether the peak, or a half hour that both cover, differs by more than `band` of the published peak.

    Different steps, or a resource that only one of the two has, also count as moved.
    """
    if published.spec.step_seconds != outlook.step_seconds:
        return True
    skip = (outlook.start_seconds - start) // outlook.step_seconds
    for resource in Resource:
        new, old = outlook.series.get(resource), published.spec.series(resource)
        if new is None and old is None:
            continue
        if new is None or old is None:
            return True
        peak = _amount(resource, old.peak)
        largest = max(
            abs(_amount(resource, _peak(resource, new.peak)) - peak),
            _largest_difference(old.median[skip:], new.median),
            _largest_difference(old.high[skip:], new.high),
        )
        if largest > band * peak:
            return True
    return False


def _largest_difference(old: list[int], new: list[int]) -> float:
    shared = min(len(old), len(new))
    return float(np.abs(np.subtract(new[:shared], old[:shared])).max()) if shared else 0.0


def _amount(resource: Resource, text: str | int) -> int:
    """Return a published peak; 0 if it is not a quantity, so that it counts as moved."""
    try:
        return parse_amount(resource, text)
    except QuantityError:
        return 0


def _series(resource: Resource, series: SeriesOutlook) -> dict[str, Any]:
    unit = resource.unit.capitalize()
    at = {} if series.peak_seconds is None else {"peakTime": moment(series.peak_seconds)}
    return {
        f"q50{unit}": series.median,
        f"q95{unit}": series.high,
        "peak": _peak(resource, series.peak),
        "peakQuantile": PEAK_QUANTILE,
        "model": series.model,
        "reason": series.reason,
        **at,
    }


def _peak(resource: Resource, amount: int) -> str:
    """Return the peak as shown in a column: memory rounded up to a multiple of 1 Mi."""
    return f"{-(-amount // MIB)}Mi" if resource is Resource.MEMORY else format_amount(resource, amount)
