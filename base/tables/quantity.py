"""What one number means: definition, unit, sign, aggregation, time, and the function that computes it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Unit(StrEnum):
    """The unit of a quantity; a surface may show a multiple of it, such as cores or GiB."""

    MILLICORES = "millicores"
    CORES = "cores"
    BYTES = "bytes"
    OF_RESOURCE = "millicores of CPU, bytes of memory, percent of one GPU"
    """Of the resource that stands beside it."""
    RATIO = "ratio"
    """0.41 is shown as 41 %."""
    PERCENT = "percent"
    COUNT = "count"
    NUMBER = "number"
    """Without a unit: a quantile's level, a loss divided by another."""
    MONEY_PER_MONTH = "currency a month"
    MONEY_PER_DAY = "currency a day"
    MONEY = "currency"
    NODE_SECONDS = "node-seconds"
    CONTAINER_MINUTES = "container-minutes"
    MOMENT = "Unix seconds"
    SECONDS = "seconds"
    MINUTES = "minutes"
    DAYS = "days"
    CORE_HOURS = "core-hours"
    GIB_HOURS = "GiB-hours"
    CORE_HOURS_PER_DAY = "core-hours a day"


class Sign(StrEnum):
    """The possible signs of a quantity, and the meaning of a positive or negative value."""

    NEVER_NEGATIVE = "never negative"
    POSITIVE_IS_FREED = "positive: freed or saved"
    POSITIVE_IS_RAISED = "positive: more than now"
    EITHER = "either sign"


class Level(StrEnum):
    """The kind of entity that one value describes."""

    CONTAINER = "container"
    POD = "pod"
    WORKLOAD = "workload"
    NAMESPACE = "namespace"
    NODE = "node"
    CLUSTER = "cluster"
    SELECTION = "the rows chosen"
    PLAN = "plan"
    QUEUE = "queue"
    DEVICE = "device"
    SERIES = "series"


class Moment(StrEnum):
    """The time that a value is about."""

    NOW = "now"
    """Read at the moment of the question."""
    LAST_SCAN = "at the last scan"
    NEXT_24_HOURS = "the next 24 hours"
    AFTER_FIRST_STEP = "after the first step of each change"
    AFTER_ALL_STEPS = "after all steps"
    WINDOW = "the window of the history"
    LAST_7_DAYS = "the last 7 days"
    BACK_TEST = "the days of the back-test"
    PLAN_WINDOW = "the plan's window"
    SIMULATION = "the simulated days"
    EACH_SLOT = "each slot of the line"


class Surface(StrEnum):
    """The surface on which a person or a program reads a quantity."""

    TILE = "tile"
    SENTENCE = "sentence"
    CAPTION = "caption"
    CHART = "chart"
    TABLE = "table"
    DRAWER = "drawer"
    REVIEW = "review"
    EXPORT = "CSV export"
    CLI = "command line"
    REST = "REST"
    PYTHON = "Python"
    MCP = "MCP"
    REPORT = "HTML report"
    NOTE = "chat note"
    OBJECT = "object in the cluster"


IN_TABLES = (Surface.TABLE, Surface.EXPORT, Surface.CLI, Surface.REST, Surface.PYTHON, Surface.MCP)
"""Surfaces that show the cells of a result table."""


@dataclass(frozen=True, slots=True)
class Aggregation:
    """The entity that a value describes, its statistic, and the resolution of the samples behind it."""

    of: Level
    statistic: str = "value"
    """"sum over the nodes", "mean", "highest", "0.95 quantile"."""
    resolution: str = ""
    """"5 minutes", "half hour", "hour"; empty where no samples are behind it."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """One number that people and programs read, computed by one function."""

    key: str
    """Lower case with underscores and the unit at its end where the name would not say it; unique."""
    name: str
    """What surfaces call it."""
    definition: str
    """One sentence."""
    unit: Unit
    function: str
    """Dotted path of the pure function, or of the attribute of a dataclass, that everybody reads."""
    aggregation: Aggregation
    time: Moment
    sign: Sign = Sign.NEVER_NEGATIVE
    surfaces: tuple[Surface, ...] = ()
    columns: tuple[str, ...] = ()
    """Columns of result tables that hold it: "workloads.cpu_request"."""
    differs: Mapping[Surface, str] = field(default_factory=dict)
    """Surfaces that show another value on purpose, each with the reason in one sentence."""
