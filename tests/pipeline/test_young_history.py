"""A cluster known for less than an hour, of which kube-state-metrics tells nothing: nothing breaks or is proposed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cotenant.base.cluster import Inventory
from cotenant.base.identity import NodeRef, PodContainerRef
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.reasons import Reason
from cotenant.base.store import Store
from cotenant.base.usage.usage import Signal, TimeGrid, Usage
from cotenant.base.usage.week import WEEKS
from cotenant.pipeline import daily_analysis
from cotenant.profiler.sightings import Sightings, by_usage, with_history
from cotenant.recommender.colocation.model.lendable import NODE_HISTORY
from cotenant.recommender.model.views import FINDINGS, NODES, RECOMMENDATIONS, WORKLOADS
from cotenant.settings import Settings

START = 1_767_571_200 + 600
SLOTS = 10
CONTAINER = PodContainerRef("shop", "web-0", "app")


def usage_of(signal: Signal, ref: PodContainerRef | NodeRef, value: float) -> Usage[Any]:
    values = np.full((1, SLOTS), value, dtype=np.float32)
    return Usage((ref,), TimeGrid(START, 300, SLOTS), values, signal.spec.resource, signal.spec.statistic)


def test_fifty_minutes_without_kube_state_metrics_are_analysed_and_withheld(tmp_path: Path) -> None:
    store, end = Store(tmp_path.as_uri(), "c"), START + 300 * SLOTS
    answers = {
        Signal.CPU_USAGE_MEAN: usage_of(Signal.CPU_USAGE_MEAN, CONTAINER, 250.0),
        Signal.MEMORY_WORKING_SET_MAX: usage_of(Signal.MEMORY_WORKING_SET_MAX, CONTAINER, 2.0**28),
        Signal.NODE_CPU_USAGE_MEAN: usage_of(Signal.NODE_CPU_USAGE_MEAN, NodeRef("n1"), 400.0),
        Signal.NODE_MEMORY_WORKING_SET_MAX: usage_of(Signal.NODE_MEMORY_WORKING_SET_MAX, NodeRef("n1"), 2.0**30),
    }
    sightings = Sightings()
    sightings.add(answers.items())
    for signal, usage in answers.items():
        store.append(signal, usage)
    store.write_inventory(with_history(by_usage(Inventory("c", end, (), (), ()), sightings), sightings))
    analysis = daily_analysis.analyse(store, Settings(), FixedClock(end), Silent())
    daily_analysis.publish(analysis, store, Settings())
    # The pod that nobody describes stands for itself.
    assert [w.name for w in analysis.workloads.refs] == ["web-0"]
    assert [row["kind"] for row in store.read_table(WORKLOADS).rows()] == ["Pod"]
    assert len(store.read_table(NODES)) == len(store.read_table(NODE_HISTORY)) == len(store.read_table(WEEKS)) == 0
    reasons = {value.reason for recommendation in analysis.recommendations for value in recommendation.values}
    assert reasons <= {Reason.NOT_ENOUGH_HISTORY}
    assert [(r.container.workload.kind, r.container.container) for r in analysis.recommendations] == [("Pod", "app")]
    assert len(store.read_table(RECOMMENDATIONS)) == 1
    # Nobody told what the container requests: that is not "no request is set".
    assert len(store.read_table(FINDINGS)) == 0
