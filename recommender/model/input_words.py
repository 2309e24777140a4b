"""Readable names for the figures behind a proposed value. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cotenant.base.table import NODE_GROUP_INPUT

_WORDS: Final[Mapping[str, str]] = {
    "demand_quantile": "demand at the chosen quantile",
    "daily_peak": "demand in the half hour that is busy on most days",
    "weekly_peak": "demand in the hour that is busy every week",
    "neediest_node_group": "demand in the node group with the largest need",
    "throttled_share": "share of demand throttled",
    "observed_max": "highest measured usage",
    "demand_max": "highest demand (usage + estimated throttling)",
    "startup_max": "highest usage at start-up",
    "margin_fraction": "safety margin",
    "margin_millicores": "margin added to the demand",
    "days": "days of history",
    "coverage": "share of the time with usage samples",
    "pods_seen": "pods seen",
    "runs": "runs seen",
    "oom_kills": "OOM kills",
    "after_oom": "memory needed after an OOM kill",
    "highest_pod_p95": "p95 of CPU usage, highest pod",
    "median_pod_p95": "p95 of CPU usage, median pod",
    "leak_bytes_per_day": "memory growth per day",
    "pod_request_without_it": "the pod's request without this container",
    "sibling": "sibling whose history is used",
    "sibling_days": "days of the sibling's history",
    "hpa": "autoscaler",
    "hpa_target_now_percent": "autoscaler's present target, in percent",
    "hpa_target_percent": "autoscaler's proposed target, in percent",
    "hpa_trigger_millicores": "usage at which the autoscaler adds pods",
    "hpa_trigger_bytes": "usage at which the autoscaler adds pods",
}


def input_words(name: str) -> str:
    """Return the readable name of a figure; a node group's name stays unchanged."""
    return name if name.startswith(NODE_GROUP_INPUT) else _WORDS.get(name, name.replace("_", " "))
