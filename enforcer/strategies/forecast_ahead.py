"""Headroom ahead of a predicted peak: what the node's use is expected to rise by soon is kept free already now. Pure.

    rise   = max(0, highest p95 of the half hours that the next `ahead_seconds` touch - p95 of the present half hour)
    online = max(online now, min(online now + rise, that highest p95))

The forecast is of the whole node, best effort included; so its level says little of the online part, its rise does, and
a rise of best effort's own only makes this more careful. A target made of it is never above the reactive one, whatever
the forecast says: `online` is never below what it is now. Without a valid forecast it is the reactive one.
"""

from __future__ import annotations

from cotenant.enforcer.contract import NodeForecast


def online_ahead(
    online_millicores: int, forecast: NodeForecast | None, wall_seconds: float, ahead_seconds: float
) -> int:
    """Use that best effort must leave capacity for, millicores; at least `online_millicores`."""
    if forecast is None or forecast.step_seconds <= 0 or wall_seconds >= forecast.valid_until_seconds:
        return online_millicores
    first = _slot(forecast, wall_seconds)
    last = _slot(forecast, wall_seconds + ahead_seconds)
    if first < 0 or first >= len(forecast.q95_cpu_millicores):
        return online_millicores
    peak = max(forecast.q95_cpu_millicores[first : last + 1])
    rise = peak - forecast.q95_cpu_millicores[first]
    return max(online_millicores, min(online_millicores + rise, peak))


def _slot(forecast: NodeForecast, at_seconds: float) -> int:
    return int((at_seconds - forecast.start_seconds) // forecast.step_seconds)
