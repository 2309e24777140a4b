"""Settings of the store: where history and results are kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from cotenant.base.settings.base import Section, setting


class StoreSettings(Section, frozen=True):
    """The location of history and results; one folder per cluster below it."""

    url: Annotated[
        str,
        setting(
            "fsspec URL of the store; empty means the user's data folder ($XDG_DATA_HOME or ~/.local/share)/cotenant.",
            when="the results lie on a volume or in a bucket",
        ),
    ] = ""


def store_url(settings: StoreSettings, environ: Mapping[str, str]) -> str:
    """URL in use: the setting, else `file://` of the data folder that the XDG base directory specification names."""
    if settings.url:
        return settings.url
    base = Path(environ.get("XDG_DATA_HOME") or "")
    home = Path(environ.get("HOME") or Path.home())
    folder = base if base.is_absolute() else home / ".local" / "share"
    return (folder / "cotenant").as_uri()
