"""Where batch pods go."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cotenant.base.resource import GIB
from cotenant.scheduler_ext.extender import decide
from cotenant.scheduler_ext.extender.columns import WIDTH
from cotenant.scheduler_ext.extender.load import balance
from cotenant.scheduler_ext.extender.settings import BalanceSettings, ExtenderSettings
from tests.scheduler_ext.extender.worlds import NOW, World, facts, moment, pod_json

BE = {"koordinator.sh/qosClass": "BE"}
ROOM = {"kubernetes.io/batch-cpu": "10000", "kubernetes.io/batch-memory": "100Gi"}
SUPPRESSED = "node.cotenant.dev/suppressed-fraction"


def batch(name: str = "b", cpu: str = "100", **more: Any) -> dict[str, Any]:
    return pod_json(name, {"kubernetes.io/batch-cpu": cpu, "kubernetes.io/batch-memory": "0"}, labels=BE, **more)


def ranked(cluster: World, **weights: int) -> list[int]:
    none = {"load": 0, "peak": 0, "suppression": 0, "spread": 0}
    settings = ExtenderSettings(balance=BalanceSettings(**(none | weights)), score_span=100)
    snapshot = cluster.show().snapshot
    rows = snapshot.rows_of(snapshot.names)
    return decide.points(snapshot, facts(batch()), rows, moment(), settings).tolist()


def test_a_node_whose_peak_is_ahead_gets_less_than_a_calm_one() -> None:
    cluster = World()
    for name, peak in (("a", 2000), ("b", 9000)):
        cluster.node(name).metric(name, cpu="1").forecast(name, [1000, 1000, peak] + [1000] * 45, [0] * 48)
    # room at the peak: 8,000 of 10,000 -> 80, the best; 1,000 -> 10, 70 points or 7 steps worse
    assert ranked(cluster, peak=1) == [10, 3]


def test_a_node_that_held_batch_back_gets_less() -> None:
    cluster = World().node("a", annotations={SUPPRESSED: "0.75"}).node("b").node("c", annotations={SUPPRESSED: "no"})
    # 25 of 100; nobody says: 50. 25 points are 2.5 steps: 7.5 -> 8 (to even)
    assert ranked(cluster, suppression=1) == [8, 10, 10]


def test_batch_is_spread() -> None:
    cluster = World().node("a", extended=ROOM).node("b", extended=ROOM).node("c")
    cluster.pod(batch("x", "4000", node="a", scheduled=NOW))
    # 6,000 of 10,000 free: 4 steps worse than all free; no batch resources at all: unknown, 5 worse
    assert ranked(cluster, spread=1) == [6, 10, 5]


def test_the_views_are_weighed() -> None:
    cluster = World().node("a", extended=ROOM, annotations={SUPPRESSED: "1"})
    cluster.node("b", extended=ROOM, annotations={SUPPRESSED: "0"})
    # a: (3 x 100 of spread + 1 x 0 of suppression) / 4 = 75; b: 100, 2.5 steps better
    assert ranked(cluster, spread=3, suppression=1) == [8, 10]


def test_prod_pods_are_ranked_by_load_alone() -> None:
    cluster = World().node("a", annotations={SUPPRESSED: "1"}).metric("a", cpu="1m", memory="1")
    snapshot = cluster.show().snapshot
    prod = facts(pod_json("p", {"cpu": "0.001", "memory": "1"}, labels={"koordinator.sh/qosClass": "LS"}))
    settings = ExtenderSettings(balance=BalanceSettings(0, 0, 100, 0))
    assert decide.points(snapshot, prod, snapshot.rows_of(["a"]), moment(), settings).tolist() == [10]


@pytest.mark.parametrize("peak", [np.nan, 5.0 * GIB])
def test_points_stay_between_nothing_and_a_hundred(peak: float) -> None:
    columns = np.zeros((WIDTH, 3))
    values = balance.points(columns, np.array([0.0, 50.0, 100.0]), np.full((2, 3), peak), BalanceSettings())
    assert ((values >= 0) & (values <= 100)).all()
    none = BalanceSettings(0, 0, 0, 0)
    assert balance.points(columns, np.array([1.0, 2.0, 3.0]), np.zeros((2, 3)), none).tolist() == [1, 2, 3]
