"""Which cluster's store somebody at a terminal or in a notebook means."""

from __future__ import annotations

from cotenant.base.errors import NoData, UsageError
from cotenant.base.store.buckets import INTERACTIVE
from cotenant.base.store.files import Folder
from cotenant.base.store.store import CONTENTS, Store


def open_cluster_store(url: str, cluster: str | None) -> Store:
    """The store of the named cluster, or of the only one there is; NoData and UsageError say what to do otherwise."""
    names = stored_clusters(url)
    if cluster is None and len(names) > 1:
        raise UsageError(
            f"{url} holds several clusters: {', '.join(names)}",
            fix="Name one: --cluster NAME, in Python cluster=. For all: --all-clusters where a command takes it, in "
            "Python open_clusters.",
        )
    if cluster is not None and cluster not in names:
        raise NoData(
            f"{url} holds no cluster {cluster!r}", fix=f"It holds {', '.join(names)}; cotenant scan adds others."
        )
    return Store(url, cluster or names[0], INTERACTIVE)


def opened_all(url: str) -> tuple[Store, ...]:
    """The stores of all clusters, by name; NoData when there is none."""
    return tuple(Store(url, name, INTERACTIVE) for name in stored_clusters(url))


def is_empty(url: str) -> bool:
    """Return whether nothing is stored at the address yet, neither clusters nor the content of one."""
    return not Store.clusters(url) and not CONTENTS & set(Folder(url).names())


def stored_clusters(url: str) -> tuple[str, ...]:
    """Names of the clusters of a store, sorted; NoData when there is none."""
    names = Store.clusters(url)
    if not names and CONTENTS & set(Folder(url).names()):
        above, _, name = url.rstrip("/").rpartition("/")
        raise NoData(
            f"{url} is the folder of one cluster, not a store",
            fix=f"Name the folder above it: {above or '/'} ({name}).",
        )
    if not names:
        raise NoData(f"no history is stored at {url}", fix="Run cotenant scan --prometheus URL, or try cotenant demo.")
    return names
