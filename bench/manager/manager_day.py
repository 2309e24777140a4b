"""What the manager publishes: a day of hourly runs with an accelerated clock, and the CRs of a large cluster.

Used by bench manager_scale. The day is the synthetic cluster's: every hour its next hour of usage is stored, the real
pipeline runs, the real controllers decide, and what they write is held in place of an API server.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from cotenant.base.controllers.published import ExistingObject
from cotenant.base.kube import send_all
from cotenant.base.kubernetes.intent import Apply, Intent
from cotenant.base.kubernetes.models.own_kinds import UsageForecast
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.store import Store
from cotenant.base.usage.usage import HOUR_SECONDS, Usage
from cotenant.manager.decisions import forecasts, recommendations
from cotenant.manager.decisions.forecasts import ForecastView
from cotenant.manager.decisions.recommendations import RecommendationObject, RecommendationView
from cotenant.manager.decisions.results import NodeOutlook, RunResults, WorkloadAdvice, collect
from cotenant.pipeline import daily_analysis
from cotenant.settings import Settings
from cotenant_lab.simulation.demo import CLUSTER
from cotenant_lab.synthetic import SyntheticSpec, generate
from tests.cluster.control_plane import ControlPlane

NODES, WORKLOADS, DAYS, HOURS = 20, 200, 15, 24


@dataclass(frozen=True, slots=True)
class Day:
    """Writes per node and hour, per workload and day."""

    forecasts: float
    recommendations: float


class Held:
    """What the API server would hold: main fields and status of each object."""

    def __init__(self) -> None:
        self.bodies: dict[tuple[str, str], dict[str, Any]] = {}

    def take(self, intents: Iterable[Intent]) -> int:
        count = 0
        for intent in intents:
            assert isinstance(intent, Apply), intent
            key = (intent.address.namespace, intent.address.name)
            fields = {"status"} if intent.subresource else intent.body.keys() - {"status"}
            self.bodies[key] = {**self.bodies.get(key, {}), **{f: intent.body[f] for f in fields}}
            count += 1
        return count

    def objects(self, kind: Any) -> dict[tuple[str, str], Any]:
        return {key: msgspec.convert(body, kind) for key, body in self.bodies.items()}


def a_day(folder: Path) -> Day:
    """Hourly runs over the last day of a synthetic cluster; the first run, which creates everything, is not counted."""
    cluster = generate(SyntheticSpec(NODES, WORKLOADS, DAYS))
    store, settings = Store((folder / "day").as_uri(), CLUSTER), Settings()
    end = cluster.spec.grid.end_seconds
    begin = end - HOURS * HOUR_SECONDS
    _append(store, cluster.usage, 0, begin)
    store.write_inventory(cluster.inventory)
    forecast, recommendation, counts = Held(), Held(), [0, 0]
    for hour in range(HOURS + 1):
        now = begin + hour * HOUR_SECONDS
        _append(store, cluster.usage, now - HOUR_SECONDS, now)
        results = collect(daily_analysis.analyse(store, settings, FixedClock(now), Silent()))
        write_counts = _decided(results, now, settings, (forecast, recommendation))
        counts = [c + f if hour else 0 for c, f in zip(counts, write_counts, strict=True)]
    return Day(counts[0] / len(results.nodes) / HOURS, counts[1] / len(results.workloads))


def _append(store: Store, usage: Any, since: int, until: int) -> None:
    """The slots of [since, until) of every signal."""
    for signal, all_usage in usage.items():
        grid = all_usage.grid
        first, last = max(0, grid.index_of(since)), min(grid.size, grid.index_of(until))
        if last > first:
            part = replace(grid, start_seconds=grid.start_seconds + first * grid.step_seconds, size=last - first)
            store.append(
                signal,
                Usage(all_usage.refs, part, all_usage.values[:, first:last], all_usage.resource, all_usage.statistic),
            )


def _decided(results: RunResults, now: int, settings: Settings, held_pair: tuple[Held, Held]) -> tuple[int, int]:
    """Writes of both controllers, rounds until there are none."""
    nodes = {n.node: ExistingObject("v1", "Node", n.node, "u") for n in results.nodes}
    owners = {w.ref: ExistingObject("apps/v1", w.kind, w.name, "u") for w in results.workloads}
    by_node = {name: usage_forecast for (_, name), usage_forecast in held_pair[0].objects(UsageForecast).items()}
    forecast = held_pair[0].take(forecasts.decide(ForecastView(results, by_node, nodes), now, settings.manager).intents)
    recommended = 0
    for _ in range(2):
        view = RecommendationView(results, held_pair[1].objects(RecommendationObject), owners)
        recommended += held_pair[1].take(recommendations.decide(view, now).intents)
    return forecast, recommended


def published(plane: ControlPlane, nodes: int, workloads: int) -> int:
    """Write one run's CRs of a cluster of that size to the API server; bytes of both lists as it answers them."""
    results = _enlarged(nodes, workloads)
    api = plane.api()
    api.create("/api/v1/namespaces", {"metadata": {"name": "shop"}})
    uids = {n["metadata"]["name"]: n["metadata"]["uid"] for n in api.items("/api/v1/nodes")}
    owned = {name: ExistingObject("v1", "Node", name, uid) for name, uid in uids.items()}
    owners = {w.ref: ExistingObject("apps/v1", w.kind, w.name, "0" * 36) for w in results.workloads}
    settings, client = Settings().manager, plane.admin_client()
    now = results.computed_seconds
    send_all(client, forecasts.decide(ForecastView(results, {}, owned), now, settings).intents, "cotenant-manager")
    for _ in range(2):
        listed = client.list("/apis/analysis.koordinator.sh/v1alpha1/recommendations", RecommendationObject)
        by_name = {(r.metadata.namespace, r.metadata.name): r for r in listed}
        intents = recommendations.decide(RecommendationView(results, by_name, owners), now).intents
        failed = [o.error for o in send_all(client, intents, "cotenant-manager") if o.error]
        assert not failed, failed[0]
    return sum(
        len(msgspec.json.encode(client.list(path)))
        for path in (
            "/apis/analysis.koordinator.sh/v1alpha1/recommendations",
            "/apis/cotenant.dev/v1alpha1/usageforecasts",
        )
    )


def _enlarged(nodes: int, workloads: int) -> RunResults:
    """One run over a synthetic cluster, its nodes and workloads repeated under other names."""
    import tempfile

    cluster = generate(SyntheticSpec(NODES, WORKLOADS, 8))
    with tempfile.TemporaryDirectory(prefix="cotenant-bench-") as name:
        store = Store(Path(name).as_uri(), CLUSTER)
        _append(store, cluster.usage, 0, cluster.spec.grid.end_seconds)
        store.write_inventory(cluster.inventory)
        now = cluster.spec.grid.end_seconds
        small = collect(daily_analysis.analyse(store, Settings(), FixedClock(now), Silent()))
    chosen = [w for w in small.workloads if w.kind in ("Deployment", "StatefulSet", "DaemonSet")]
    return RunResults(
        now,
        tuple(_workload(chosen[i % len(chosen)], i) for i in range(workloads)),
        tuple(_node_outlook(small.nodes[i % len(small.nodes)], i) for i in range(nodes)),
    )


def _workload(like: WorkloadAdvice, number: int) -> WorkloadAdvice:
    return msgspec.structs.replace(like, namespace="shop", name=f"{like.name}-{number}")


def _node_outlook(like: NodeOutlook, number: int) -> NodeOutlook:
    return msgspec.structs.replace(like, node=f"node-{number}")
