"""`cotenant config`: shows effective settings and their origin, checks a file, writes schema and documentation."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from cotenant.base import measures
from cotenant.base.commands.call import ROWS, CommandCall, command
from cotenant.base.commands.output import message
from cotenant.base.commands.session import examples, new_app, remember_cluster, session_of
from cotenant.base.errors import SettingsError, UsageError
from cotenant.base.settings import docs as pages
from cotenant.base.settings.catalogue import catalogue, mask_secrets
from cotenant.base.settings.clusters import select_cluster
from cotenant.base.settings.load import Loaded, SettingSource, value_at
from cotenant.base.table import Column, Kind, Schema, Table
from cotenant.settings import Settings

app = new_app()

SETTINGS = Schema(
    "settings",
    (
        Column("setting", "Setting", Kind.TEXT, "Path of the setting, section.key."),
        Column("value", "Value", Kind.TEXT, "Value in force; secrets are hidden."),
        Column("unit", "Unit", Kind.TEXT, "Unit of the value."),
        Column("origin", "Origin", Kind.TEXT, "Who set the value: default, file, env or flag."),
        Column("place", "Place", Kind.TEXT, "Line of the file, or name of the variable or flag."),
        Column("default", "Default", Kind.TEXT, "Default value.", wide=True),
        Column("domain", "Domain", Kind.TEXT, "Allowed values.", wide=True),
        Column("meaning", "Meaning", Kind.TEXT, "What the setting does.", wide=True),
        Column("when", "Change it when", Kind.TEXT, "When to change the setting.", wide=True),
    ),
    ("setting",),
)


@app.callback(epilog=examples("cotenant config show", "cotenant config validate settings.yaml"))
def _family() -> None:
    """Show, check and document the settings."""


@command(app, ROWS, "cotenant config show", "cotenant config show dashboard -o wide --changed")
def show(
    call: CommandCall,
    prefix: Annotated[str, typer.Argument(help="Only settings whose path begins with this text.")] = "",
    changed: Annotated[bool, typer.Option("--changed", help="Only settings that are not at their default.")] = False,
    cluster: Annotated[  # noqa: ARG001 - the session knows it
        str | None,
        typer.Option("--cluster", metavar="NAME", help="Show the settings of this cluster.", callback=remember_cluster),
    ] = None,
) -> None:
    """Show every setting: its value, and whether the default, the file, a variable or a flag set it."""
    session = session_of(call.ctx)
    loaded = session.read()
    if session.cluster is not None:
        select_cluster(session.cluster, loaded.clusters)
    setting_rows = [r for r in rows_of(loaded.of(Settings)) if r["setting"].startswith(prefix)]
    if not setting_rows:
        raise UsageError(f"no setting begins with {prefix!r}", fix="`cotenant config show` lists every setting.")
    rows = [r for r in setting_rows if r["origin"] != "default" or not changed]
    call.print(Table.from_rows(SETTINGS, rows))


@app.command(
    epilog=examples("cotenant config validate settings.yaml", "cotenant config validate --set dashboard.port=8051")
)
def validate(
    ctx: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="Settings file; default: the file that commands use.")] = None,
) -> None:
    """Check the settings file, the environment and --set; print the first mistake and exit with code 2."""
    session = session_of(ctx)
    session = session if file is None else session.with_config(file)
    loaded = session.read()
    require_known_names(loaded.of(Settings))
    for name in loaded.clusters:
        require_known_names(session.of_cluster(name).read().of(Settings))
    count = measures.matching_count(origin.source is not SettingSource.DEFAULT for origin in loaded.origins.values())
    of_clusters = f"; checked for clusters too: {', '.join(loaded.clusters)}" if loaded.clusters else ""
    verb = "is" if count == 1 else "are"
    message(
        f"valid: {count} of {len(loaded.origins)} settings {verb} set, the others are at their default{of_clusters}"
    )


def require_known_names(loaded: Loaded[Settings]) -> None:
    """Raise SettingsError, with its place, if a set value names what does not exist, or a window that is none.

    What is not set is not checked: the packages that know the names may be missing here.
    """
    for path, origin in loaded.origins.items():
        if origin.source is not SettingSource.DEFAULT:
            try:
                _load_named(path, loaded.settings)
            except (SettingsError, UsageError) as error:
                raise SettingsError(f"{origin.where}: {error.message}", fix=error.fix) from error


def _load_named(path: str, settings: Settings) -> None:
    """Load what a setting names, in the room that it belongs to; raise that room's error if nothing has the name."""
    match path:
        case "recommender.strategy":
            from cotenant.recommender.base import load_strategy

            load_strategy(settings.recommender.strategy)
        case "forecasting.plugins":
            from cotenant.forecasting.plugins import members

            members(tuple(settings.forecasting.plugins))
        case "forecasting.holidays":
            from cotenant.base.usage.usage import DAY_SECONDS, TimeGrid
            from cotenant.forecasting.local_time.calendars import Calendar

            Calendar.of(TimeGrid(0, DAY_SECONDS, 1), 0, settings.forecasting)
        case "actions.windows" | "autopilot.ceiling.windows":
            from cotenant.changes.decide.change_windows import parse_window

            own = settings.actions if path == "actions.windows" else settings.autopilot.ceiling
            for text in own.windows:
                parse_window(text)
        case "manager.features_off":
            from cotenant.manager.features import enabled_features

            enabled_features(settings)
        case "enforcer.strategies_off":
            from cotenant.enforcer.decide.registry import strategies

            strategies(settings.enforcer)


@app.command(epilog=examples("cotenant config schema > settings.schema.json"))
def schema() -> None:
    """Write the JSON schema of a settings file, for editors and for charts."""
    sys.stdout.write(json.dumps(pages.schema(Settings), indent=2) + "\n")


@app.command(epilog=examples("cotenant config docs > docs/settings.md"))
def docs() -> None:
    """Write the documentation page of all settings (Markdown)."""
    sys.stdout.write(pages.settings_markdown(Settings))


def rows_of(loaded: Loaded[Settings]) -> list[dict[str, str]]:
    """Return one row per setting, in the order of declaration."""
    return [
        {
            "setting": path,
            "value": pages.format_setting_value(mask_secrets(path, value_at(loaded.settings, path))),
            "unit": setting.unit,
            "origin": loaded.origins[path].source.value,
            "place": loaded.origins[path].where,
            "default": pages.format_setting_value(mask_secrets(path, setting.default)),
            "domain": setting.domain,
            "meaning": setting.doc,
            "when": setting.when,
        }
        for path, setting in catalogue(Settings).items()
    ]
