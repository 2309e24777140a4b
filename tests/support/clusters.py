"""The results of one small cluster, stored as those of several: for what reads them side by side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shutil import copytree

from cotenant.base.store import Store
from cotenant.recommender.model.views import Overview
from tests.support.dashboard import WEEK, results


def copies(folder: Path, *names: str) -> list[Store]:
    """A store below the folder with the same results under each name."""
    one_week = results(folder / "made", spec=WEEK, demo=False).store
    stores = []
    for index, name in enumerate(names):
        copytree(folder / "made" / one_week.cluster, folder / "store" / name)
        store = Store((folder / "store").as_uri(), name)
        overview = store.read_document("overview", Overview)
        assert overview is not None
        store.write_document("overview", replace(overview, cluster=name, nodes=overview.nodes + index))
        stores.append(store)
    return stores
