"""EDGE: the effective settings for Python: as for the command line, from a file and the environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from cotenant.base.errors import UsageError
from cotenant.base.settings.load import default_config, load
from cotenant.python_api.arguments import require_text
from cotenant.settings import Settings


def settings_of(
    file: str | Path | None, overrides: dict[str, Any] | None = None, cluster: str | None = None
) -> Settings:
    """Defaults < the file (None: $COTENANT_CONFIG, else the user's) < environment < overrides by path.

    cluster: whose own part of the file counts too.
    """
    if file is not None and not isinstance(file, str | os.PathLike):
        raise UsageError(f"settings={file!r} is no file", fix="Write the path of a settings file, or leave it out.")
    named = Path(file).expanduser() if file is not None else default_config(os.environ)
    loaded = load(Settings(), named, os.environ, overrides or {}, cluster)
    return loaded.settings


def with_strategy(settings: Settings, strategy: str | None) -> Settings:
    """The same settings with another strategy; None leaves theirs."""
    if strategy is None:
        return settings
    require_text("strategy", strategy, "Write 'cotenant', 'krr-simple', 'krr-simple-limit', 'vpa' or a plug-in.")
    recommender = msgspec.structs.replace(settings.recommender, strategy=strategy)
    return msgspec.structs.replace(settings, recommender=recommender)
