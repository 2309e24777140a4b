"""EDGE: merges actions and CPU lanes of node agents into the store: each action once, for a number of days.

    EnforcementHistory (from Events, logs, recordings or a scenario)
      -> keep -> the tables ENFORCEMENT and ENFORCEMENT_LANES, and the document "enforcement"

The document is written last; its revision tells readers that the tables changed. Each table is read and replaced under
the store's lock, so that an import by a person and the watching manager do not overwrite each other's rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from cotenant.base.store import Store
from cotenant.base.table import Table
from cotenant.enforcer.model.enforcement import EnforcementHistory, Gathering
from cotenant.enforcer.model.enforcement_tables import (
    ENFORCEMENT,
    ENFORCEMENT_LANES,
    Retention,
    joined_lanes,
    merge_actions,
)

DOCUMENT: Final = "enforcement"
SOURCES_KEPT: Final = 5


def keep(store: Store, gathered: EnforcementHistory, bounds: Retention) -> Gathering:
    """Merge `gathered` into the stored actions of node agents within `bounds`; return a summary of what is stored now.

    Tables without new rows are not rewritten, so that readers need not read them again.
    """

    def with_news(stored: Table | None) -> Table | None:
        updated = merge_actions(stored, gathered.acts, bounds)
        if stored is None or len(stored) != len(updated):
            return updated
        # an act's id identifies the content of its row
        return None if list(stored.columns["id"]) == list(updated.columns["id"]) else updated

    news = store.update_table(ENFORCEMENT, with_news)
    if gathered.lanes:
        store.update_table(ENFORCEMENT_LANES, lambda stored: joined_lanes(stored, gathered.lanes, bounds))
    if news is None and not gathered.lanes:
        revision = ""
    else:
        # Text that differs whenever the tables do, also where two writers gathered in the same instant. news:
        # ENFORCEMENT as it is now, None = it did not change.
        rows = "" if news is None else f"-{len(news)}-{news.columns['id'][0] if len(news) else ''}"
        revision = f"{gathered.gathering.gathered_seconds:.3f}{rows}"
    # The document of `gathered.gathering` after that of `before`: sources of both, the newest first; an empty
    # revision is kept. A count of agents that `gathered.gathering` does not have (a source without a cluster) stays
    # the one of `before`.
    before = store.read_document(DOCUMENT, Gathering)
    now = gathered.gathering
    old_sources: Sequence[str] = before.sources if before else ()
    sources = tuple(dict.fromkeys((*now.sources, *old_sources)))[:SOURCES_KEPT]
    revision = revision or (before.revision if before else f"{now.gathered_seconds:.3f}")
    if now.agents is None and before is not None:
        now = replace(now, agents=before.agents, dry_agents=now.dry_agents or before.dry_agents)
    gathering = replace(now, revision=revision, sources=sources)
    store.write_document(DOCUMENT, gathering)
    return gathering
