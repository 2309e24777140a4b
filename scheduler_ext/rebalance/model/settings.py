"""Settings of the descheduler: whether the manager moves pods, how often it plans rounds, how many pods may move."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from cotenant.base.settings.base import Section, setting


class DeschedulerSettings(Section, frozen=True):
    """Settings of rounds of LowNodeLoad and HighNodeLoad, and of the PodMigrationJobs that move pods."""

    enabled: Annotated[
        bool,
        setting(
            "Let the manager plan rounds of the descheduler and execute PodMigrationJobs; with false it "
            "ignores PodMigrationJobs.",
            when="nodes should be relieved or emptied",
        ),
    ] = False
    dry_run: Annotated[
        bool,
        setting(
            "Only plan and report the manager's rounds: create no PodMigrationJobs and taint no nodes. Jobs "
            "that people create, and nodes that they approve to be emptied, are still processed.",
            when="the reported rounds are what you expect",
        ),
    ] = True
    handled_by: Annotated[
        Literal["cotenant", "koordinator"],
        setting(
            "Who executes PodMigrationJobs: with koordinator, Koordinator's descheduler does; the manager ignores them "
            "and reserves no capacity for them.",
            when="Koordinator's descheduler should execute PodMigrationJobs",
        ),
    ] = "cotenant"
    plugins: Annotated[
        list[Literal["LowNodeLoad", "HighNodeLoad"]],
        setting(
            "Which rounds the manager decides: LowNodeLoad relieves overloaded nodes, HighNodeLoad empties under-used "
            "ones. Moves that people approve are executed in any case.",
            when="under-used nodes should be emptied, too",
        ),
    ] = msgspec.field(default_factory=lambda: ["LowNodeLoad"])
    mode: Annotated[
        Literal["forecast", "observed"],
        setting(
            "Compare thresholds only with usage now (observed), or also with the mean of each half hour of the next 24 "
            "hours (forecast). Page Rebalance shows the highest of these means; the 5-minute peak on a node's page is "
            "another quantity.",
            when="only present usage should decide",
        ),
    ] = "forecast"
    interval_seconds: Annotated[
        float,
        setting(
            "Time between two rounds (Koordinator's deschedulingInterval).",
            when="your Koordinator has another deschedulingInterval",
            unit="seconds",
            ge=1,
            le=86_400,
        ),
    ] = 120.0
    configuration: Annotated[
        dict[str, Any],
        setting(
            "Configuration of the descheduler in Koordinator's form: a LowNodeLoadArgs object, or a "
            "DeschedulerConfiguration, whose pluginConfig may also have an entry HighNodeLoad. If empty, the "
            "thresholds of docs/descheduler.md apply.",
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
            "Largest share of all pods that is moved in any hour.",
            when="the cluster tolerates more, or fewer, moves",
            unit="percent",
            ge=0,
            le=100,
        ),
    ] = 1.0
    keep_ended_seconds: float = 86_400.0
    """Time after which ended PodMigrationJobs of the descheduler are deleted. One day: they can be read the next
    morning, and the hourly limit of moves is counted from them."""
