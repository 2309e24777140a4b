"""Settings of the descheduler: whether the manager moves pods, how often it looks, and how many it may move."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from cotenant.base.settings.base import Section, setting


class DeschedulerSettings(Section, frozen=True):
    """Rounds of LowNodeLoad and HighNodeLoad, and the PodMigrationJobs that move pods."""

    enabled: Annotated[
        bool,
        setting(
            "The manager executes PodMigrationJobs and decides rounds of the descheduler continuously; false: it "
            "ignores PodMigrationJobs.",
            when="nodes should be relieved or emptied",
        ),
    ] = False
    dry_run: Annotated[
        bool,
        setting(
            "The manager's rounds are decided and reported, and make no PodMigrationJobs and mark no nodes. Jobs "
            "that people create, and nodes that they approve to be emptied, are still processed.",
            when="its rounds have shown what you expect",
        ),
    ] = True
    handled_by: Annotated[
        Literal["cotenant", "koordinator"],
        setting(
            "koordinator: its own descheduler is installed and executes PodMigrationJobs; the manager ignores them, "
            "and reserves no capacity for them.",
            when="Koordinator's descheduler stays in charge",
        ),
    ] = "cotenant"
    plugins: Annotated[
        list[Literal["LowNodeLoad", "HighNodeLoad"]],
        setting(
            "Which rounds the manager decides: LowNodeLoad relieves overloaded nodes, HighNodeLoad empties under-used "
            "ones. What people approve is still executed.",
            when="under-used nodes should be emptied, too",
        ),
    ] = msgspec.field(default_factory=lambda: ["LowNodeLoad"])
    mode: Annotated[
        Literal["forecast", "observed"],
        setting(
            "forecast: thresholds are compared with usage now and with half hours' means of the next 24 hours, in % of "
            "capacity, the highest of which the page Rebalance shows; the 5-minute peak of a node's page is another "
            "quantity, and above it. observed: only with usage now.",
            when="only the present load should count",
        ),
    ] = "forecast"
    interval_seconds: Annotated[
        float,
        setting(
            "Between two rounds (Koordinator's deschedulingInterval).",
            when="your Koordinator has another deschedulingInterval",
            unit="seconds",
            ge=1,
            le=86_400,
        ),
    ] = 120.0
    configuration: Annotated[
        dict[str, Any],
        setting(
            "Koordinator's own configuration of its descheduler: a DeschedulerConfiguration, HighNodeLoad's "
            "arguments among its entries, or LowNodeLoadArgs alone. Empty: the thresholds of docs/descheduler.md.",
            when="your Koordinator has a configuration of its own",
        ),
    ] = msgspec.field(default_factory=dict)
    pause_seconds: Annotated[
        float,
        setting(
            "A pod stays this long on its node before it may be moved.",
            when="pods move too often",
            unit="seconds",
            ge=0,
            le=86_400,
        ),
    ] = 1800.0
    churn_percent: Annotated[
        float,
        setting(
            "Share of all pods that are moved in any hour, at most...",
            when="the cluster tolerates more, or fewer, moves",
            unit="percent",
            ge=0,
            le=100,
        ),
    ] = 1.0
    keep_ended_seconds: float = 86_400.0
    """PodMigrationJobs of the descheduler that have ended are deleted after this time; the limit of an hour is read
    from them. One day: what ended can still be read the next morning, and the hourly limit is counted from it.
    """
