"""Options of commands that read a cluster, and the resulting settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.base.commands.session import remember_cluster, session_of

if TYPE_CHECKING:
    from cotenant.base.settings.root import SettingSections

Kubeconfig = Annotated[str | None, typer.Option("--kubeconfig", metavar="FILE", help="Path of the kubeconfig.")]
Context = Annotated[str | None, typer.Option("--context", metavar="NAME", help="Context of the kubeconfig.")]
LedgerReason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; the ledger keeps it.")]

DeclaredClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="NAME",
        help="Cluster of the settings that is meant; needed when they declare several.",
        callback=remember_cluster,
    ),
]


def settings_of(ctx: typer.Context, store: str | None, kubeconfig: str | None, context: str | None) -> SettingSections:
    """Settings that result from these options."""
    flags = {"store.url": store, "kube.kubeconfig": kubeconfig, "kube.context": context}
    return session_of(ctx).load(flags).settings
