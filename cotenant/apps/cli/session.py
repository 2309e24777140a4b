"""EDGE: what the global options said, handed to every command: where the settings come from and where log lines go.

`main` makes one Session per run and puts it on typer's context; commands ask `session_of(ctx)`.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from cotenant.core.model.errors import UsageError

if TYPE_CHECKING:
    import typer

    from cotenant.core.settings.load import Loaded
    from cotenant.core.settings.root import Settings


@dataclass(frozen=True, slots=True)
class CliSession:
    """The global options of one run; `overrides` maps a setting's path to the text given by --set."""

    config: Path | None = None
    overrides: Mapping[str, str] = field(default_factory=dict)
    log_format: str | None = None
    debug: bool = False

    def load(self, flags: Mapping[str, Any] | None = None) -> Loaded[Settings]:
        """The settings: defaults < file < environment < --set < the command's own `flags` (None = not given).

        Log lines go to stderr from here on, in the form and from the level that the settings say.
        """
        from cotenant.core.adapters.telemetry import configure_logging
        from cotenant.core.settings.load import default_config, load

        options = {"telemetry.log_format": self.log_format, "telemetry.log_level": "debug" if self.debug else None}
        overrides = {path: value for path, value in {**options, **(flags or {})}.items() if value is not None}
        loaded = load(self.config or default_config(os.environ), os.environ, {**self.overrides, **overrides})
        configure_logging(loaded.settings.telemetry, cast("TextIO", _PresentStderr()))
        return loaded

    def with_config(self, file: Path) -> CliSession:
        """The same session with another settings file."""
        return replace(self, config=file)


class _PresentStderr(io.TextIOBase):
    """sys.stderr as it is when a line is written: progress bars put a stream in its place that prints above them."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()

    def isatty(self) -> bool:
        """Whether colour is welcome."""
        return sys.stderr.isatty() and not os.environ.get("NO_COLOR")


def session_of(ctx: typer.Context) -> CliSession:
    """The Session of this run."""
    return ctx.ensure_object(CliSession)


def parse_overrides(pairs: list[str]) -> dict[str, str]:
    """["section.key=value"] -> {"section.key": "value"}; UsageError names a pair without "=" or key."""
    overrides = {}
    for pair in pairs:
        path, equals, value = pair.partition("=")
        if not equals or not path.strip():
            raise UsageError(f"--set {pair!r} is not section.key=value", fix="Write --set profiler.window_days=7.")
        overrides[path.strip()] = value
    return overrides
