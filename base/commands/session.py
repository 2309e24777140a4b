"""EDGE: what the global options said, handed to every command: where the settings come from and where log lines go.

`main` makes one Session per run and puts it on typer's context; commands ask `session_of(ctx)`. A command's module is
an empty typer app (`new_app`), and `examples` that its help shows and a test tries.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar, cast

import typer

from cotenant.base.errors import CotenantError, UsageError

ServiceT = TypeVar("ServiceT")
_CLUSTER: Final = "cotenant.cluster"  # key of a typer context's `meta`
_LEVEL: Final = "telemetry.log_level"
_SERVERS: Final = frozenset(("serve", "dashboard", "demo", "enforcer", "cri-proxy"))
"""Words of commands that run until they are stopped."""
_OF_ONE: Final = ("kube.kubeconfig", "kube.context", "profiler.prometheus.labels")
"""Settings that select the cluster to read: an option that gives one applies only to that cluster."""

if TYPE_CHECKING:
    from cotenant.base.cluster import Inventory
    from cotenant.base.settings.base import SettingSections
    from cotenant.base.settings.load import Loaded


@dataclass(frozen=True, slots=True)
class CliSession:
    """The global options of one run; `overrides` maps a setting's path to the text given by --set."""

    config: Path | None = None
    overrides: Mapping[str, str] = field(default_factory=dict)
    log_format: str | None = None
    debug: bool = False
    cluster: str | None = None
    """Which of several clusters the command is of, by --cluster."""
    of_one: bool = False
    """Whether the command is of one cluster, which has to be named where the settings declare several."""
    takes_all: bool = False
    """Whether it has --all-clusters."""
    serves: bool = False
    """Whether the command runs until it is stopped: its log lines are what it has to say. Of any other command the
    lines of the level info come only where somebody sets a level or a format of lines: an error is read without them.
    """
    providers: Mapping[str, str] = field(default_factory=dict)
    """Type that a room declares -> function of a layer above it that makes one, both as "module:name"."""

    def service(self, kind: type[ServiceT]) -> ServiceT:
        """Return a service that a room declares and only a layer above it can provide; imported at this moment.

        KeyError where `cotenant.cli.registry.PROVIDERS` names no provider.
        """
        module, _, name = self.providers[f"{kind.__module__}:{kind.__qualname__}"].partition(":")
        return cast("ServiceT", getattr(importlib.import_module(module), name)())

    def load(self, flags: Mapping[str, Any] | None = None) -> Loaded[SettingSections]:
        """The settings: defaults < file < environment < --set < the command's own `flags` (None = not given).

        What the file says of the named cluster alone stands between the last three. UsageError where one of several
        has to be named, or where a command that asks a cluster (its flags have kube.context) would ask another one.
        """
        from cotenant.base.settings.clusters import select_cluster

        loaded = self.read(flags)
        if self.of_one and len(loaded.clusters) > 1 and self.cluster is None:
            select_cluster(None, loaded.clusters, or_all=self.takes_all)
        if "kube.context" in (flags or {}):
            if not loaded.reaches_cluster:
                name = select_cluster(self.cluster, loaded.clusters)
                raise UsageError(
                    f"the settings name no kubeconfig context of cluster {name}, and the current one may be of another",
                    fix=f"Set clusters.{name}.kube.context, or give --context.",
                )
            if self.cluster is not None and loaded.cluster is None and not loaded.context_by_flag:
                _require_context_of(self.cluster, loaded)
        return loaded

    def require_no_context(self, flags: Mapping[str, Any], command: str) -> None:
        """UsageError where --set or an option of `flags` names a kubeconfig, a context or the labels of one cluster.

        For a command of several clusters, which would ask that one under the name of each. `command`: in the message.
        """
        options = {**self.overrides, **{path: value for path, value in flags.items() if value}}
        if path := next((path for path in options if path.startswith(_OF_ONE)), None):
            raise UsageError(
                f"{path} belongs to one cluster, and was given to {command}",
                fix="Write it below clusters.NAME in the settings file, or name one: --cluster NAME.",
            )

    def read(self, flags: Mapping[str, Any] | None = None) -> Loaded[SettingSections]:
        """The same for a command that asks no cluster, or several, one after the other.

        Log lines go to stderr from here on, in the form and from the level that the settings say.
        """
        from msgspec import structs

        from cotenant.base.logs.telemetry import configure_logging
        from cotenant.base.settings.base import SettingSections
        from cotenant.base.settings.load import SettingSource, default_config, load
        from cotenant.base.settings.sections import TelemetrySettings

        options = {"telemetry.log_format": self.log_format, "telemetry.log_level": "debug" if self.debug else None}
        overrides = {path: value for path, value in {**options, **(flags or {})}.items() if value is not None}
        file, every_flag = self.config or default_config(os.environ), {**self.overrides, **overrides}
        loaded = load(self.service(SettingSections), file, os.environ, every_flag, self.cluster)
        telemetry = loaded.settings.section(TelemetrySettings)
        if not (self.serves or self.log_format or loaded.origins[_LEVEL].source is not SettingSource.DEFAULT):
            telemetry = structs.replace(telemetry, log_level="warning")
        configure_logging(telemetry, cast("TextIO", _PresentStderr()), whole_stderr=True)
        return loaded

    def of_cluster(self, name: str) -> CliSession:
        """The same session for one of several clusters."""
        return replace(self, cluster=name)

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
        """Return whether color is allowed: stderr is a terminal and NO_COLOR is not set."""
        return sys.stderr.isatty() and not os.environ.get("NO_COLOR")


def _require_context_of(cluster: str, loaded: Loaded[SettingSections]) -> None:
    """UsageError where the kubeconfig's context may be another cluster's than the named one, which is not declared.

    A scan names a cluster after its context. Where the store holds one cluster alone, and in a pod, there is no other.
    """
    from cotenant.base.kube.auth import IN_CLUSTER, present_cluster
    from cotenant.base.settings.sections import KubeSettings, StoreSettings, store_url
    from cotenant.base.store import Store

    several = loaded.clusters or len(Store.clusters(store_url(loaded.settings.section(StoreSettings), os.environ))) > 1
    if several and (present := present_cluster(loaded.settings.section(KubeSettings))) not in (cluster, IN_CLUSTER):
        raise UsageError(
            f"the settings declare no cluster {cluster!r}, and the kubeconfig's context is of {present}",
            fix=f"Give --context, or set clusters.{cluster}.kube.context (docs/clusters.md).",
        )


def session_of(ctx: typer.Context) -> CliSession:
    """The Session of this run, of the cluster that the command's --cluster names."""
    session = ctx.ensure_object(CliSession)
    if not _SERVERS.isdisjoint((ctx.command_path or "").split()):
        session = replace(session, serves=True)
    if _CLUSTER not in ctx.meta:
        return session
    return replace(session, cluster=ctx.meta[_CLUSTER], of_one=True, takes_all="all_clusters" in ctx.params)


def remember_cluster(ctx: typer.Context, name: str | None) -> str | None:
    """Callback of every --cluster: whose settings `session_of` loads."""
    ctx.meta[_CLUSTER] = name
    return name


def parse_overrides(pairs: list[str]) -> dict[str, str]:
    """["section.key=value"] -> {"section.key": "value"}; UsageError names a pair without "=" or key."""
    overrides = {}
    for pair in pairs:
        path, equals, value = pair.partition("=")
        if not equals or not path.strip():
            raise UsageError(f"--set {pair!r} is not section.key=value", fix="Write --set profiler.window_days=7.")
        overrides[path.strip()] = value
    return overrides


def workload_addresses(ctx: typer.Context, incomplete: str) -> list[str]:
    """NAMESPACE/KIND/NAME of the last scan's workloads that begin so."""
    inventory = _last_scan(ctx)
    refs = sorted(str(workload.ref) for workload in inventory.workloads) if inventory else []
    return [ref for ref in refs if ref.startswith(incomplete)]


def node_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of the last scan's nodes that begin so."""
    inventory = _last_scan(ctx)
    return [node.name for node in inventory.nodes if node.name.startswith(incomplete)] if inventory else []


def _last_scan(ctx: typer.Context) -> Inventory | None:
    """The inventory of the store that the words so far name; callbacks do not run while a shell completes."""
    from cotenant.base.commands.results import open_store

    root = ctx.find_root()
    config, overrides = root.params.get("config"), root.params.get("overrides") or []
    try:
        session = replace(
            root.ensure_object(CliSession),
            config=Path(config) if config else None,
            overrides=parse_overrides(overrides),
        )
        settings = session.load({"store.url": ctx.params.get("store")}).settings
        return open_store(settings, ctx.params.get("cluster")).read_inventory()
    except (CotenantError, ImportError, OSError):  # an error in the middle of a typed line would help nobody
        return None


CONTEXT: Final[dict[str, Any]] = {"help_option_names": ["-h", "--help"]}
"""Settings of every command's context."""
EXIT_FINDINGS = 3
"""Exit code of a command that worked and found something above its --fail-on threshold."""
EXIT_PARTIAL = 4
"""Exit code of a command that worked on a part of its input: the rest could not be read, and what rests on it is
withheld."""


def new_app() -> typer.Typer:
    """The app of one command module."""
    return typer.Typer(
        add_completion=False,
        no_args_is_help=True,
        rich_markup_mode="rich",
        context_settings=CONTEXT,
        pretty_exceptions_enable=False,
    )


def examples(*lines: str) -> str:
    """An epilog "Examples:"; each line is a command, with a comment after two spaces and "#" when it needs one."""
    return "\n\n".join(["Examples:", *(f"  $ {line}".replace("[", "\\[") for line in lines)])
