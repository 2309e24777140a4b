"""Settings of the load taints, which keep schedulers without the extender away from busy nodes.

The thresholds are the extender's: `extender.load_aware` for the present load, `extender.prediction` for forecast peaks.
"""

from __future__ import annotations

from typing import Annotated

from cotenant.base.settings.base import Section, setting


class LoadTaintSettings(Section, frozen=True):
    """The taint cotenant.dev/load: NoSchedule on nodes above the thresholds, PreferNoSchedule on the busiest others."""

    enabled: Annotated[
        bool,
        setting(
            "The manager sets load taints (see dry_run); false: the manager removes its load taints.",
            when="schedulers that do not call the extender should avoid busy nodes",
        ),
    ] = False
    dry_run: Annotated[
        bool,
        setting(
            "Only count and report the nodes to taint; no node has the load taint. false: nodes get the taint.",
            when="the reported counts are as expected",
        ),
    ] = True
    interval_seconds: float = 5.0
    """Time between two reconciliations. Period of the rounds: shorter than a burst of new pods takes to start."""
    hold_seconds: float = 120.0
    """Time for which a node keeps its taint at least; only a stricter one replaces it. Twice the interval of
    NodeMetrics, so that a taint does not flap between two reports."""
    refused_share_percent: Annotated[
        float,
        setting(
            "Largest share of the schedulable nodes with taint NoSchedule, rounded down; further nodes get "
            "PreferNoSchedule. 0: never NoSchedule.",
            when="more, or fewer, nodes may refuse pods at a time",
            unit="percent of nodes",
            ge=0,
            le=50,
        ),
    ] = 10.0
    avoided_share_percent: Annotated[
        float,
        setting(
            "Largest share of the schedulable nodes with taint PreferNoSchedule, rounded down.",
            when="more, or fewer, nodes may be avoided at a time",
            unit="percent of nodes",
            ge=0,
            le=90,
        ),
    ] = 25.0
