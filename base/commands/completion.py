"""What a shell proposes for a word: names of the last scan. Where nothing can be read, nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cotenant.base.commands.session import CliSession, parse_overrides
from cotenant.base.errors import CotenantError

if TYPE_CHECKING:
    from cotenant.base.cluster import Inventory


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
