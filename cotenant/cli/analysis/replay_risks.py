"""EDGE: `cotenant replay-risks`: lending on the stored history at every risk of the page Try a risk, kept for it."""

from __future__ import annotations

from typing import Final

import typer

from cotenant.base.commands.progress import bars
from cotenant.base.commands.results import ClusterOption, StoreOption, stored_clusters_of
from cotenant.base.commands.session import examples, new_app

app = new_app()

DAYS: Final = 7
"""Judged days, or as many as are there after the history."""


@app.command(epilog=examples("cotenant replay-risks --store /data/cotenant"))
def replay_risks(ctx: typer.Context, cluster: ClusterOption = None, store: StoreOption = None) -> None:
    """Replay lending on the stored history at every risk of the dashboard's page Try a risk, and keep it for the page.

    The dashboard runs it beside itself, once for new results. It reads the store and writes one document there.
    """
    from cotenant.base.usage.backtest import WHAT_IF
    from cotenant.experiment.comparison import INSTALLED, run_all_settings
    from cotenant.experiment.interference import Interference
    from cotenant.experiment.outcome import Sharing, SharingScenario
    from cotenant.experiment.stored_world import stored_world
    from cotenant.experiment.what_if import RISKS_PERCENT, STORED, what_if
    from cotenant.settings import Settings

    (place,) = stored_clusters_of(ctx, store, cluster, False)
    knobs = {Sharing.KOORDINATOR: (INSTALLED[Sharing.KOORDINATOR],), Sharing.COTENANT: RISKS_PERCENT}
    with bars() as progress:
        world = stored_world(place.store, Settings.of(place.settings), SharingScenario(STORED, 1, 1, DAYS, 1), progress)
        outcomes = run_all_settings(world, knobs, Interference(), progress)
    document = what_if(outcomes, place.now_seconds())
    assert document is not None, "cotenant's way is among them"
    place.store.write_document(WHAT_IF, document)
