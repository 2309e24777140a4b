"""EDGE: merges actions and CPU lanes of node agents into the store: each action once, for a number of days.

    EnforcementHistory (from Events, logs, recordings or a scenario)
      -> keep -> the tables ENFORCEMENT and ENFORCEMENT_LANES, and the document "enforcement"

The document is written last; its revision tells readers that the tables changed. Each table is read and replaced under
the store's lock, so that an import by a person and the watching manager do not overwrite each other's rows.
"""

from __future__ import annotations

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
    now = gathered.gathering
    before = store.read_document(DOCUMENT, Gathering) or Gathering(0.0, f"{now.gathered_seconds:.3f}")
    if news is None and not gathered.lanes:
        revision = before.revision
    else:
        # Text that differs whenever the tables do, also where two writers gathered in the same instant. news:
        # ENFORCEMENT as it is now, None = it did not change.
        rows = "" if news is None else f"-{len(news)}-{news.columns['id'][0] if len(news) else ''}"
        revision = f"{now.gathered_seconds:.3f}{rows}"
    # Sources of both documents, the newest first. A source without a cluster does not count agents: the count stays.
    sources = tuple(dict.fromkeys((*now.sources, *before.sources)))[:SOURCES_KEPT]
    if now.agents is None:
        now = replace(now, agents=before.agents, dry_agents=now.dry_agents or before.dry_agents)
    gathering = replace(now, revision=revision, sources=sources)
    store.write_document(DOCUMENT, gathering)
    return gathering
