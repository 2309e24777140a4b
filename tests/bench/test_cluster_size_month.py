"""The month after nodes left: the play finds what a cluster that is too small is short of."""

from __future__ import annotations

from functools import cache

import pytest

from bench.rebalance.cluster_size_month import WEEKS, Month, Play, month_of, play, size_of
from cotenant.scheduler_ext.cluster_size.model import RequestLevel


@cache
def month() -> Month:
    return month_of(7, nodes=6, workloads=40)


def played(leaving: list[str], places: dict[str, str]) -> Play:
    staying = [at for at, node in enumerate(month().inventory.nodes) if node.name not in leaving]
    return play(month(), RequestLevel.NOW, leaving, places, [staying[0]] * WEEKS)


@pytest.mark.slow
def test_with_what_the_answer_lets_go_no_pod_waits_longer_than_with_all_nodes() -> None:
    size = size_of(month(), RequestLevel.NOW)
    places = {place.pod: place.target for node in size.leaving for place in node.places}
    small, full = played([node.name for node in size.leaving], places), played([], {})
    assert small.waited <= full.waited
    assert 0 < small.measured <= full.measured


@pytest.mark.slow
def test_on_one_node_pods_wait_and_it_is_used_beyond_what_it_has() -> None:
    nodes = [node.name for node in month().inventory.nodes]
    places = {f"{pod.namespace}/{pod.name}": nodes[-1] for pod in month().inventory.pods}
    crowded = played(nodes[:-1], places)
    assert crowded.waited
    assert crowded.busy.sum() > 0
