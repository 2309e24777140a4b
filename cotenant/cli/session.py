"""What the global options said, handed to every command: where the settings come from and how to talk.

`main` makes one Session per run and puts it on typer's context; commands ask `session_of(ctx)`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cotenant.model.errors import UsageError

if TYPE_CHECKING:
    import typer

    from cotenant.settings.load import Loaded
    from cotenant.settings.root import Settings


@dataclass(frozen=True, slots=True)
class Session:
    """The global options of one run; `overrides` maps a setting's path to the text given by --set."""

    config: Path | None = None
    overrides: Mapping[str, str] = field(default_factory=dict)
    log_format: str | None = None
    debug: bool = False

    def load(self, flags: Mapping[str, Any] | None = None) -> Loaded[Settings]:
        """The settings: defaults < file < environment < --set < the command's own `flags` (None = not given)."""
        from cotenant.settings.load import load

        own = {path: value for path, value in (flags or {}).items() if value is not None}
        return load(self.config or default_config(os.environ), os.environ, {**self.overrides, **own})

    def with_config(self, file: Path) -> Session:
        """The same session with another settings file."""
        return replace(self, config=file)


def session_of(ctx: typer.Context) -> Session:
    """The Session of this run."""
    return ctx.ensure_object(Session)


def parse_overrides(pairs: list[str]) -> dict[str, str]:
    """["room.key=value"] -> {"room.key": "value"}; UsageError names a pair without "=" or key."""
    overrides = {}
    for pair in pairs:
        path, equals, value = pair.partition("=")
        if not equals or not path.strip():
            raise UsageError(f"--set {pair!r} is not room.key=value", fix="Write --set profiler.window_days=7.")
        overrides[path.strip()] = value
    return overrides


def default_config(env: Mapping[str, str]) -> Path | None:
    """COTENANT_CONFIG, else the user's configuration file when it exists.

    The working directory is not searched: a file in a foreign checkout must not choose where a token is sent.
    """
    if named := env.get("COTENANT_CONFIG"):
        return Path(named)
    home = env.get("XDG_CONFIG_HOME") or (f"{env['HOME']}/.config" if env.get("HOME") else "")
    path = Path(home) / "cotenant" / "settings.yaml"
    return path if home and path.is_file() else None
