"""Which cluster's store somebody at a terminal or in a notebook means."""

from __future__ import annotations

from cotenant.core.adapters.store.buckets import INTERACTIVE
from cotenant.core.adapters.store.store import Store
from cotenant.core.model.errors import NoData, UsageError


def opened(url: str, cluster: str | None) -> Store:
    """The store of the named cluster, or of the only one there is; NoData and UsageError say what to do otherwise."""
    if cluster:
        return Store(url, cluster, INTERACTIVE)
    names = Store.clusters(url)
    if not names:
        raise NoData(f"no history is stored at {url}", fix="Run cotenant scan --prometheus URL, or try cotenant demo.")
    if len(names) > 1:
        raise UsageError(
            f"{url} holds several clusters: {', '.join(names)}", fix="Name one: --cluster NAME, in Python cluster=."
        )
    return Store(url, names[0], INTERACTIVE)
