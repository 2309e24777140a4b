"""What the figures behind a proposed value are called where people read them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cotenant.base.table import NODE_GROUP_INPUT

_WORDS: Final[Mapping[str, str]] = {
    "demand_quantile": "demand at the chosen quantile",
    "daily_peak": "half hour busy on most days",
    "weekly_peak": "hour busy every week",
    "neediest_node_group": "neediest node group",
    "throttled_share": "share of demand throttled",
    "observed_max": "highest seen",
    "demand_max": "highest demand: use, and an estimate of what was throttled",
    "startup_max": "highest at start-up",
    "margin_fraction": "safety margin",
    "margin_millicores": "margin of the demand",
    "days": "days of history",
    "coverage": "time measured",
    "pods_seen": "pods seen",
    "runs": "runs seen",
    "oom_kills": "OOM kills",
    "after_oom": "needed after an OOM kill",
    "highest_pod_p95": "p95 of the highest pod",
    "median_pod_p95": "p95 of the median pod",
    "leak_bytes_per_day": "memory growth a day",
    "pod_request_without_it": "the pod's request without it",
    "sibling": "rests on the history of",
    "sibling_days": "days of history of the sibling",
    "hpa": "autoscaler",
    "hpa_target_now_percent": "autoscaler's target now, in percent",
    "hpa_target_percent": "autoscaler's target then, in percent",
    "hpa_trigger_millicores": "use at which the autoscaler adds pods",
    "hpa_trigger_bytes": "use at which the autoscaler adds pods",
}


def input_words(name: str) -> str:
    """Return the words for a figure by its name; a node group keeps its name, and any other its own in words."""
    return name if name.startswith(NODE_GROUP_INPUT) else _WORDS.get(name, name.replace("_", " "))
