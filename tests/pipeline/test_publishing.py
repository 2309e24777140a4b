"""Two runs at once: the later one publishes too, unless the other one knows more; then it says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from cotenant.base.errors import StoreConflict
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.store import Store
from cotenant.pipeline import daily_analysis
from cotenant.pipeline.analysis import Analysis, TableParts
from cotenant.recommender.model.views import RECOMMENDATIONS, Overview
from cotenant.settings import Settings
from cotenant_lab.synthetic import SyntheticCluster, SyntheticSpec

SPEC = SyntheticSpec(nodes=8, workloads=60, days=8, seed=3)


class Meanwhile(Mapping[str, TableParts]):
    """Tables that are the given ones; each time that they are read to be written, something happens first."""

    def __init__(self, rows: Mapping[str, TableParts], act: Callable[[], None]) -> None:
        self._rows, self._act = rows, act
        self.times = 0

    def __getitem__(self, name: str) -> TableParts:
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        self.times += 1
        self._act()
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


@pytest.fixture(scope="module")
def analysis(store: Store, cluster: SyntheticCluster) -> Analysis:
    return daily_analysis.analyse(store, Settings(), FixedClock(cluster.inventory.time_seconds), Silent())


@pytest.fixture
def place(tmp_path: Path, analysis: Analysis) -> Store:
    """A store of its own with these results, and nothing else."""
    place = Store(tmp_path.as_uri(), "prod")
    daily_analysis.publish(analysis, place, Settings())
    return place


def stored(place: Store) -> Overview:
    overview = place.read_document("overview", Overview)
    assert overview is not None
    return overview


@pytest.mark.slow
def test_a_run_that_another_one_overtook_publishes_after_it(place: Store, analysis: Analysis) -> None:
    acts = [lambda: daily_analysis.publish(analysis, place, Settings())]
    rows = Meanwhile(analysis.rows, lambda: acts.pop()() if acts else None)
    later = replace(analysis, rows=rows, computed_seconds=analysis.computed_seconds + 60)
    daily_analysis.publish(later, place, Settings())
    assert rows.times > 1, "it was written again"
    assert stored(place).computed_seconds == analysis.computed_seconds + 60
    assert len(place.read_table(RECOMMENDATIONS)) == len(analysis.recommendations)


@pytest.mark.slow
def test_results_of_a_longer_history_stay_and_the_error_names_them(place: Store, analysis: Analysis) -> None:
    overview = replace(stored(place), time_seconds=stored(place).time_seconds + 300)

    def publish_newer() -> None:
        with place.publishing() as run:
            run.write_document("overview", overview)

    with pytest.raises(StoreConflict, match="another run published results of prod meanwhile: computed ") as refused:
        daily_analysis.publish(replace(analysis, rows=Meanwhile(analysis.rows, publish_newer)), place, Settings())
    assert "recs list" in refused.value.fix
    assert stored(place) == overview


@pytest.mark.slow
def test_a_run_that_is_overtaken_again_and_again_gives_up(place: Store, analysis: Analysis) -> None:
    rows = Meanwhile(analysis.rows, lambda: daily_analysis.publish(analysis, place, Settings()))
    with pytest.raises(StoreConflict, match="They are kept, and the results of this run are not stored"):
        daily_analysis.publish(replace(analysis, rows=rows), place, Settings())
    assert len(place.read_table(RECOMMENDATIONS)) == len(analysis.recommendations)
