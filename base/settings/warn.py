"""EDGE: warnings about keys that are still set though they are constants now."""

from __future__ import annotations

from typing import Any

import structlog

from cotenant.base.settings.load import Loaded

log = structlog.get_logger(__name__)


def log_ignored_settings(loaded: Loaded[Any]) -> None:
    """Log one warning per former setting that a file, a variable or a flag still sets."""
    for ignored in loaded.ignored:
        log.warning(
            "no setting any more, the value is ignored: a constant takes its place",
            setting=ignored.former.key,
            place=ignored.where,
            constant=ignored.former.constant,
            page="docs/constants.md",
        )
