"""Settings of the taints by which a stock scheduler keeps away from busy nodes.

What counts as busy are the thresholds of `extender.load_aware`, now and at the peaks that `extender.prediction` looks
at: one set of thresholds, whichever way enforces them.
"""

from __future__ import annotations

from typing import Annotated

from cotenant.core.settings.base import Section, setting


class LoadTaintSettings(Section, frozen=True):
    """The manager's taint cotenant.dev/load: NoSchedule above the thresholds, PreferNoSchedule on the busiest."""

    enabled: Annotated[
        bool,
        setting("The manager judges every node's load; false: it takes the taints away that it set earlier."),
    ] = False
    dry_run: Annotated[
        bool, setting("What would be tainted is counted and told, and no node has the taint; else nodes get it.")
    ] = True
    interval_seconds: Annotated[float, setting("Between two looks.", unit="seconds", ge=1, le=600)] = 5.0
    hold_seconds: Annotated[
        float,
        setting("A node keeps its taint for so long at least; only a stricter one replaces it.", unit="seconds", ge=0),
    ] = 120.0
    refuse_percent: Annotated[
        float,
        setting(
            "NoSchedule from this share of a threshold on: pods arrive before the taint does. 100: at the threshold.",
            unit="percent of the threshold",
            gt=0,
            le=200,
        ),
    ] = 97.0
    avoid_percent: Annotated[
        float,
        setting(
            "PreferNoSchedule on nodes from this share of a threshold on, the busiest first.",
            unit="percent of the threshold",
            gt=0,
            le=200,
        ),
    ] = 60.0
    leave_percent: Annotated[
        float,
        setting(
            "A taint goes when the node is so far below what it was set for; a node in the place of another is so much "
            "busier.",
            unit="percent of the threshold",
            ge=0,
            le=100,
        ),
    ] = 8.0
    refused_share_percent: Annotated[
        float,
        setting(
            "Share of the schedulable nodes that has NoSchedule, at most; rounded down. Beyond it nodes get "
            "PreferNoSchedule. 0: never NoSchedule.",
            unit="percent of nodes",
            ge=0,
            le=50,
        ),
    ] = 10.0
    avoided_share_percent: Annotated[
        float,
        setting(
            "Share of the schedulable nodes that has PreferNoSchedule, at most; rounded down.",
            unit="percent of nodes",
            ge=0,
            le=90,
        ),
    ] = 25.0
