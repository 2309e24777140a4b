"""What an analysis knows of a long measured container is a prior of the next: in any shard, and after it is gone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from cotenant.base.cluster import Container, Workload
from cotenant.base.identity import NodeRef, WorkloadRef
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.reasons import Reason
from cotenant.base.resource import GIB, MIB, Resource
from cotenant.base.store import Store
from cotenant.base.usage.usage import Signal, TimeGrid, Usage
from cotenant.changes.commands.recommendation_lines import describe
from cotenant.pipeline import daily_analysis, known_siblings
from cotenant.pipeline.daily_analysis import Sharding
from cotenant.pipeline.shards.executors import Here
from cotenant.pipeline.shards.plan import ShardSize
from cotenant.recommender.model.recommendation import Recommendation
from cotenant.recommender.model.views import RECOMMENDATIONS
from cotenant.recommender.settings import CotenantSettings, RecommenderSettings
from cotenant.recommender.stored_recommendations import Explanations
from cotenant.settings import Settings
from tests.support.scenario import DAY, MONDAY, STEP, Scenario, Track, steady, value

CPU: Final = Resource.CPU
OLD, YOUNG = WorkloadRef("shop", "Deployment", "web"), WorkloadRef("shop", "Deployment", "web-v2")
DAYS: Final = 10.0
HALF: Final = round(0.5 * DAY)
EACH_ALONE: Final = Sharding(Here(), ShardSize(workloads=1))
JUDGED_ANEW: Final = RecommenderSettings(renew_hours=0.0)
SETTINGS: Final = Settings(recommender=JUDGED_ANEW)


def scenario() -> Scenario:
    """`web` at 500 m for ten days, and `web-v2` at 400 m since twelve hours, which both request 300 m."""
    workloads = [Workload(ref, 1, (Container("app", {CPU: 300}),)) for ref in (OLD, YOUNG)]
    tracks = [
        Track(OLD, "web-0", cpu=steady(500, DAYS), memory=steady(300, DAYS) * MIB),
        Track(YOUNG, "web-v2-0", cpu=steady(400, 0.5), memory=steady(300, 0.5) * MIB, begins=round(DAYS * DAY) - HALF),
    ]
    return Scenario(workloads, tracks, DAYS, DAYS)


def fill(store: Store, scenario: Scenario) -> None:
    grid = TimeGrid(MONDAY, STEP, round(DAYS * DAY))
    nodes = {Signal.NODE_CPU_USAGE_MEAN: 1200.0, Signal.NODE_MEMORY_WORKING_SET_MAX: 2.0 * GIB}
    of_nodes: dict[Signal, Usage[Any]] = {
        signal: Usage(
            (NodeRef("node-1"),),
            grid,
            np.full((1, grid.size), amount, dtype=np.float32),
            signal.spec.resource,
            signal.spec.statistic,
        )
        for signal, amount in nodes.items()
    }
    for signal, usage in {**scenario.usage(), **of_nodes}.items():
        store.append(signal, usage)
    store.write_inventory(scenario.inventory())


def analysed(store: Store, settings: Settings = SETTINGS) -> dict[WorkloadRef, Recommendation]:
    """The recommendations of one more analysis, published."""
    inventory = store.read_inventory()
    assert inventory is not None
    analysis = daily_analysis.analyse(
        store, settings, FixedClock(inventory.time_seconds), Silent(), sharding=EACH_ALONE
    )
    assert len(analysis.division.firsts) == len(inventory.workloads) - 1  # each is a shard of its own
    daily_analysis.publish(analysis, store, settings)
    return {r.container.workload: r for r in analysis.recommendations}


@pytest.mark.slow
def test_the_second_analysis_raises_a_young_request_to_what_its_sibling_asked_for_in_the_first(tmp_path: Path) -> None:
    store = Store(tmp_path.as_uri(), "c")
    fill(store, scenario())
    assert value(analysed(store)[YOUNG], CPU).reason is Reason.NOT_ENOUGH_HISTORY
    cpu_value = value(analysed(store)[YOUNG], CPU)
    assert (cpu_value.amount, cpu_value.reason) == (532, Reason.SIBLING)  # 500 + sqrt(500 x 2 m) = 531.6
    # every surface has it from these two: the table, which says that it is not ready, and the explanation
    (row,) = (row for row in store.read_table(RECOMMENDATIONS).rows() if row["workload"] == "web-v2")
    assert (row["cpu_request"], row["cpu_reason"], row["ready"]) == (532, "sibling", "blocked")
    (stored,) = Explanations(store).of_workload("shop/web-v2")
    text = "\n".join(describe(stored, ""))
    for line in (
        "rule: sibling shop/Deployment/web/app, measured for 10 days: 429m -> 532m",
        "cpu: sibling shop/Deployment/web/app, measured for 10 days, needs 532m: used; "
        "this container's own history needs only 429m",
        "Uses the history of a sibling, shop/Deployment/web/app.",
    ):
        assert line in text


@pytest.mark.slow
def test_a_workload_that_was_renamed_rests_on_what_its_former_name_is_known_for(tmp_path: Path) -> None:
    store, both = Store(tmp_path.as_uri(), "c"), scenario()
    fill(store, both)
    analysed(store)
    alone = replace(both, workloads=both.workloads[1:], tracks=both.tracks[1:])
    store.write_inventory(alone.inventory())
    assert value(analysed(store)[YOUNG], CPU).amount == 532
    assert value(analysed(store)[YOUNG], CPU).amount == 532  # and is still known to the analysis after that
    later = replace(alone.inventory(), time_seconds=alone.inventory().time_seconds + 15 * 86_400)
    known_siblings.write(store, SETTINGS, [], later)
    assert known_siblings.read(store, SETTINGS, scenario().inventory()) == {}


@pytest.mark.slow
def test_nothing_is_known_under_other_settings_or_by_another_strategy(tmp_path: Path) -> None:
    store = Store(tmp_path.as_uri(), "c")
    fill(store, scenario())
    analysed(store)
    (name,) = known_siblings.read(store, SETTINGS, scenario().inventory())
    assert name == ("shop", "Deployment", "web", "app")
    wide = Settings(recommender=RecommenderSettings(renew_hours=0.0, cotenant=CotenantSettings(profile="conservative")))
    peer = Settings(recommender=RecommenderSettings(renew_hours=0.0, strategy="vpa"))
    assert (
        known_siblings.read(store, wide, scenario().inventory())
        == known_siblings.read(store, peer, scenario().inventory())
        == {}
    )
    known_siblings.write(store, peer, [], scenario().inventory())
    assert known_siblings.read(store, SETTINGS, scenario().inventory()).keys() == {name}


@pytest.mark.slow
def test_of_what_another_version_stored_with_other_columns_nothing_is_known(tmp_path: Path) -> None:
    store = Store(tmp_path.as_uri(), "c")
    fill(store, scenario())
    analysed(store)
    stored = store.read_block("siblings", "containers")
    assert stored is not None
    store.write_block("siblings", "containers", {n: c for n, c in stored[0].items() if n != "days"}, stored[1])
    assert known_siblings.read(store, SETTINGS, scenario().inventory()) == {}
    analysed(store)  # makes it anew
    assert len(known_siblings.read(store, SETTINGS, scenario().inventory())) == 1
