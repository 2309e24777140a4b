"""EDGE: the global options of a run, which give every command its settings and the form of its log lines.

`main` makes one CliSession per run and puts it on typer's context; commands get it by `session_of(ctx)`. A command's
module has an empty typer app (`new_app`) and `examples`, which its help shows and a test runs.
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
    """Name of the cluster by --cluster; None if it was not given."""
    of_one: bool = False
    """True if the command is for one cluster, which has to be named if the settings declare several."""
    takes_all: bool = False
    """True if the command has the option --all-clusters."""
    serves: bool = False
    """True if the command runs until it is stopped: it writes log lines from level info on. Any other command writes
    lines of level info only if somebody sets a level or a format of log lines, so that errors are easy to see."""
    providers: Mapping[str, str] = field(default_factory=dict)
    """Interface of a lower layer -> function of a higher layer that makes its implementation, both as "module:name"."""

    def service(self, kind: type[ServiceT]) -> ServiceT:
        """Return the implementation of a service interface of a lower layer; its module is imported at this call.

        Raise KeyError if `cotenant.cli.registry.PROVIDERS` names no provider.
        """
        module, _, name = self.providers[f"{kind.__module__}:{kind.__qualname__}"].partition(":")
        return cast("ServiceT", getattr(importlib.import_module(module), name)())

    def load(self, flags: Mapping[str, Any] | None = None) -> Loaded[SettingSections]:
        """Return the settings: defaults < file < environment < the file's section of the cluster < --set < `flags`.

        A flag whose value is None was not given. Raise UsageError if one of several clusters has to be named, or if a
        command that connects to a cluster (its flags have kube.context) would connect to another cluster than the named
        one.
        """
        from cotenant.base.settings.clusters import select_cluster

        loaded = self.read(flags)
        if self.of_one and len(loaded.clusters) > 1 and self.cluster is None:
            select_cluster(None, loaded.clusters, or_all=self.takes_all)
        if "kube.context" in (flags or {}):
            if not loaded.reaches_cluster:
                name = select_cluster(self.cluster, loaded.clusters)
                raise UsageError(
                    f"the settings name no context for cluster {name}: the current context may reach another cluster",
                    fix=f"Set clusters.{name}.kube.context, or give --context.",
                )
            if self.cluster is not None and loaded.cluster is None and not loaded.context_by_flag:
                _require_context_of(self.cluster, loaded)
        return loaded

    def require_no_context(self, flags: Mapping[str, Any], command: str) -> None:
        """Raise UsageError if --set or `flags` give a setting of one cluster: kubeconfig, context, Prometheus labels.

        A command for several clusters would query that one cluster under every name; the error names the `command`.
        """
        options = {**self.overrides, **{path: value for path, value in flags.items() if value}}
        if path := next((path for path in options if path.startswith(_OF_ONE)), None):
            raise UsageError(
                f"{path} is a setting of a single cluster and cannot be used with {command}",
                fix="Set it below clusters.NAME in the settings file, or choose one cluster by --cluster NAME.",
            )

    def read(self, flags: Mapping[str, Any] | None = None) -> Loaded[SettingSections]:
        """Return the settings as `load` does, without its checks: for commands that connect to no or several clusters.

        From then on log lines go to stderr in the format and from the level of the settings.
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
        """Return a copy of the session for the cluster of this name."""
        return replace(self, cluster=name)

    def with_config(self, file: Path) -> CliSession:
        """Return a copy of the session with another settings file."""
        return replace(self, config=file)


class _PresentStderr(io.TextIOBase):
    """A stream to the sys.stderr of the moment, which progress bars replace by a stream that prints above them."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()

    def isatty(self) -> bool:
        """Return whether color is allowed: stderr is a terminal and NO_COLOR is not set."""
        return sys.stderr.isatty() and not os.environ.get("NO_COLOR")


def _require_context_of(cluster: str, loaded: Loaded[SettingSections]) -> None:
    """Raise UsageError if the kubeconfig's context may belong to another cluster than the named, undeclared one.

    A scan names a cluster after its context. In a pod, and if the store has only one cluster, no other is possible.
    """
    from cotenant.base.kube.auth import IN_CLUSTER, present_cluster
    from cotenant.base.settings.sections import KubeSettings, StoreSettings, store_url
    from cotenant.base.store import Store

    several = loaded.clusters or len(Store.clusters(store_url(loaded.settings.section(StoreSettings), os.environ))) > 1
    if several and (present := present_cluster(loaded.settings.section(KubeSettings))) not in (cluster, IN_CLUSTER):
        raise UsageError(
            f"the settings declare no cluster {cluster!r}, and the kubeconfig's current context is cluster {present}",
            fix=f"Give --context, or set clusters.{cluster}.kube.context (docs/clusters.md).",
        )


def session_of(ctx: typer.Context) -> CliSession:
    """Return the CliSession of this run, for the cluster that the command's --cluster names."""
    session = ctx.ensure_object(CliSession)
    if not _SERVERS.isdisjoint((ctx.command_path or "").split()):
        session = replace(session, serves=True)
    if _CLUSTER not in ctx.meta:
        return session
    return replace(session, cluster=ctx.meta[_CLUSTER], of_one=True, takes_all="all_clusters" in ctx.params)


def remember_cluster(ctx: typer.Context, name: str | None) -> str | None:
    """Remember the value of --cluster for `session_of`; the callback of every --cluster option."""
    ctx.meta[_CLUSTER] = name
    return name


def parse_overrides(pairs: list[str]) -> dict[str, str]:
    """Return ["section.key=value"] as {"section.key": "value"}; raise UsageError for a pair without "=" or key."""
    overrides = {}
    for pair in pairs:
        path, equals, value = pair.partition("=")
        if not equals or not path.strip():
            raise UsageError(f"--set {pair!r} is not section.key=value", fix="Write --set profiler.window_days=7.")
        overrides[path.strip()] = value
    return overrides


def workload_addresses(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete a workload's NAMESPACE/KIND/NAME in the shell, from the last scan."""
    inventory = _last_scan(ctx)
    refs = sorted(str(workload.ref) for workload in inventory.workloads) if inventory else []
    return [ref for ref in refs if ref.startswith(incomplete)]


def node_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete a node's name in the shell, from the last scan."""
    inventory = _last_scan(ctx)
    return [node.name for node in inventory.nodes if node.name.startswith(incomplete)] if inventory else []


def _last_scan(ctx: typer.Context) -> Inventory | None:
    """Return the inventory of the store that the command line so far names; shell completion runs no callbacks."""
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
"""Exit code of a command whose input could be read only in part; values that depend on the rest are withheld."""


def new_app() -> typer.Typer:
    """Return an empty typer app for one command module."""
    return typer.Typer(
        add_completion=False,
        no_args_is_help=True,
        rich_markup_mode="rich",
        context_settings=CONTEXT,
        pretty_exceptions_enable=False,
    )


def examples(*lines: str) -> str:
    """Return the help's epilog "Examples:"; a line is a command, and optionally two spaces, "#" and a comment."""
    return "\n\n".join(["Examples:", *(f"  $ {line}".replace("[", "\\[") for line in lines)])
