"""The unit and the sign of a number. Pure."""

from __future__ import annotations

from enum import StrEnum


class Unit(StrEnum):
    """The unit of a quantity; a page or command may show a multiple of it, such as cores or GiB."""

    MILLICORES = "millicores"
    CORES = "cores"
    BYTES = "bytes"
    OF_RESOURCE = "millicores of CPU, bytes of memory, percent of one GPU"
    """Unit of an amount of the resource that is named next to it."""
    RATIO = "ratio"
    """0.41 is shown as 41 %."""
    PERCENT = "percent"
    COUNT = "count"
    NUMBER = "number"
    """Without a unit: a quantile's level, a loss divided by another."""
    MONTHLY = "currency a month"
    DAILY = "currency a day"
    MONEY = "currency"
    NODE_SECONDS = "node-seconds"
    CONTAINER_MINUTES = "container-minutes"
    MOMENT = "Unix seconds"
    SECONDS = "seconds"
    MINUTES = "minutes"
    DAYS = "days"
    CORE_HOURS = "core-hours"
    GIB_HOURS = "GiB-hours"
    CORE_HOURS_DAILY = "core-hours a day"


class Sign(StrEnum):
    """The possible signs of a quantity, and the meaning of a positive or negative value."""

    NEVER_NEGATIVE = "never negative"
    FREED = "positive: freed or saved"
    RAISED = "positive: more than now"
    EITHER = "either sign"
