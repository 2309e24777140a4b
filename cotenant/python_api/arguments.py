"""EDGE: checks the arguments of the Python API, which raise UsageError, and reads the settings."""

from __future__ import annotations

import os
from collections.abc import Iterable
from numbers import Integral
from pathlib import Path
from typing import Any

import msgspec

from cotenant.base.errors import UsageError
from cotenant.base.resource import Resource
from cotenant.base.settings.load import default_config, load
from cotenant.base.table import Table
from cotenant.base.tables.queries import Relation, matching
from cotenant.settings import Settings


def resource_of(name: str) -> Resource:
    """Return the resource with this name; raise UsageError for anything else."""
    try:
        return Resource(name)
    except ValueError as error:
        raise UsageError(f"resource={name!r} is none", fix="Write 'cpu' or 'memory'.") from error


def require_integer(name: str, value: Any, fix: str, *, least: int = 1) -> None:
    """Raise UsageError if the argument called `name` is not a whole number of at least `least`."""
    if not isinstance(value, Integral) or int(value) < least:
        raise UsageError(f"{name}={value!r} is not a whole number of at least {least}", fix=fix)


def require_text(name: str, value: Any, fix: str) -> None:
    """Raise UsageError if the argument called `name` is not a string."""
    if not isinstance(value, str):
        raise UsageError(f"{name}={value!r} is not a string", fix=fix)


def require_sequence(name: str, values: Any, what: str, fix: str) -> list[Any]:
    """Return the items of an argument; raise UsageError if it is a string or no sequence. `what` names the items."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise UsageError(f"{name}={values!r} is not a sequence of {what}", fix=fix)
    return list(values)


def matching_rows(relation: Relation | Table, where: str) -> Table:
    """Return the rows that match the filter `where`; raise UsageError if it is no string or names an unknown column."""
    require_text("where", where, "Write a filter such as 'namespace=shop&severity=critical', or '' for all rows.")
    return matching(relation, where)


def settings_of(
    file: str | Path | None, overrides: dict[str, Any] | None = None, cluster: str | None = None
) -> Settings:
    """Return the settings: defaults < the file (None: $COTENANT_CONFIG, else the user's) < environment < overrides.

    Later ones override earlier ones. With `cluster`, that cluster's part of the file applies too.
    """
    if file is not None and not isinstance(file, str | os.PathLike):
        raise UsageError(f"settings={file!r} is not a file", fix="Write the path of a settings file, or settings=None.")
    config_path = Path(file).expanduser() if file is not None else default_config(os.environ)
    loaded = load(Settings(), config_path, os.environ, overrides or {}, cluster)
    return loaded.settings


def with_strategy(settings: Settings, strategy: str | None) -> Settings:
    """Return the settings with another recommendation strategy; None keeps the strategy of the settings."""
    if strategy is None:
        return settings
    require_text("strategy", strategy, "Write 'cotenant', 'krr-simple', 'krr-simple-limit', 'vpa' or a plug-in's name.")
    recommender = msgspec.structs.replace(settings.recommender, strategy=strategy)
    return msgspec.structs.replace(settings, recommender=recommender)
