"""The options that a command shares with others, and the settings and output that it gets from them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, Final

import typer

from cotenant.base.commands import output, results
from cotenant.base.commands.results import Context, DeclaredClusterOption, Kubeconfig
from cotenant.base.commands.session import examples

if TYPE_CHECKING:
    from cotenant.base.settings.base import SettingSections
    from cotenant.base.settings.load import Loaded
    from cotenant.base.table import Table

STORED: Final = {"cluster": (results.ClusterOption, None), "store": (results.StoreOption, None)}
SCANS: Final = STORED | {"all_clusters": (results.AllClustersOption, False)}
CHOICE: Final = {"namespace": (results.NamespaceOption, None), "query": (results.FilterOption, None)}
DECLARED: Final = {"cluster": (DeclaredClusterOption, None)}
LIVE: Final = {"kubeconfig": (Kubeconfig, None), "context": (Context, None)}
ROWS: Final = {"output": (output.OutputOption, output.Format.TABLE), "no_headers": (output.NoHeadersOption, False)}
DOCUMENT: Final = {"output": (output.DocumentOption, output.DocumentFormat.TABLE)}
SETTINGS: Final = {"store": "store.url", "kubeconfig": "kube.kubeconfig", "context": "kube.context"}
"""Shared option -> the setting that it overrides."""


@dataclass(frozen=True)
class CommandCall:
    """One call of a command: the values of its shared options by name, and the settings and tables that they select."""

    ctx: typer.Context
    given: Mapping[str, Any]

    @property
    def cluster(self) -> str | None:
        """The name that --cluster gave, or None."""
        return self.given.get("cluster")

    @property
    def output(self) -> Any:
        """The chosen output format: a `Format` for rows, a `DocumentFormat` for a single object."""
        return self.given["output"]

    @cached_property
    def loaded(self) -> Loaded[SettingSections]:
        """The effective settings, with the call's options applied, and the origin of each value."""
        flags = {SETTINGS[k]: value for k, value in self.given.items() if k in SETTINGS}
        return results.loaded_for_reading(self.ctx, flags, self.given.get("all_clusters", False))

    @property
    def settings(self) -> SettingSections:
        """The effective settings, with the call's options applied."""
        return self.loaded.settings

    @cached_property
    def scans(self) -> results.StoredScans:
        """The last scan of the named or only cluster, or of all clusters; raises NoData or UsageError without one."""
        return results.open_scans(self.settings, self.cluster, self.given["all_clusters"])

    def filter_rows(self, table: Table, *more: str) -> Table:
        """Return the rows of a scan's table that match --namespace, --filter and the queries in `more`."""
        return results.chosen_of_scan(self.scans, table, self.given.get("namespace"), self.given.get("query"), *more)

    def print(self, table: Table) -> None:
        """Write the table to stdout in the chosen output format."""
        output.print_table(table, self.output, headers=not self.given.get("no_headers"))


def command(
    app: typer.Typer, shared: Mapping[str, tuple[Any, Any]], *lines: str, name: str | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds a command to `app`; the decorated function's first parameter is a `CommandCall`.

    `shared` maps a shared option's name to its annotation and default; `lines` are the examples in the command's help.
    """

    def add(function: Callable[..., None]) -> Callable[..., None]:
        kind, signature = inspect.Parameter.KEYWORD_ONLY, inspect.signature(function, eval_str=True)
        own = [parameter.replace(kind=kind) for parameter in signature.parameters.values()]
        own[0] = inspect.Parameter("ctx", kind, annotation=typer.Context)
        own += [inspect.Parameter(k, kind, default=value, annotation=hint) for k, (hint, value) in shared.items()]

        @wraps(function)
        def run(ctx: typer.Context, **options: Any) -> None:
            function(CommandCall(ctx, {k: options.pop(k) for k in shared}), **options)

        run.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in own}
        app.command(name, epilog=examples(*lines))(run)
        return function

    return add
