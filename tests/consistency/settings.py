"""The settings under which every surface has to say the same, and the results of one synthetic cluster under each."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from cotenant.base.kubernetes import protocol
from cotenant.base.people import Grant, Person, Role
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.store import FACTS, Store, StoreFacts
from cotenant.dashboard.frame.view import DashboardContext, View
from cotenant.dashboard.sources.namespace_filter import Narrowing
from cotenant.dashboard.sources.source import StoreSource
from cotenant.pipeline import daily_analysis
from cotenant.settings import Settings
from cotenant_lab.simulation.demo import CLUSTER, fill
from cotenant_lab.synthetic import SyntheticSpec
from tests.support import dashboard as support
from tests.support.templates import copy_template

SPEC = SyntheticSpec(nodes=5, workloads=40, days=9, seed=19)
LEAN: Mapping[str, Any] = {"forecasting": {"booster_rows": 0, "origins": 1}}
"""No boosted member, each member tried once: what is compared is where numbers are shown, not how good they are."""


@dataclass(frozen=True)
class Setting:
    """One way to run the product: what a settings file says, what nodes carry, and who asks for what."""

    name: str
    document: Mapping[str, Any] = field(default_factory=dict)
    search: str = ""
    """Of a page's address: chosen namespaces, a time range."""
    reads: frozenset[str] | None = None
    """Namespaces of a person who may read no others; None: all."""
    marks_nodes: bool = False
    """Labels and annotations of Koordinator on the nodes."""
    cluster: str = CLUSTER
    zone: str = "UTC"


def _policy(cpu: str, memory: str = "usage", **more: Any) -> Mapping[str, Any]:
    return {"recommender": {"reclaimable": {"cpu_policy": cpu, "memory_policy": memory, **more}}}


PRICES: Mapping[str, Any] = {
    "recommender": {"prices": {"currency": "EUR", "per_core_hour": 0.05, "per_gib_hour": 0.002}}
}
PEER: Mapping[str, Any] = {"recommender": {"strategy": "vpa"}}
CAPS = _policy("usage", batch_cpu_percent=5, batch_memory_percent=4, mid_cpu_percent=3)
SETTINGS = (
    Setting("defaults"),
    Setting(
        "policy-request-prices-zone",
        {"recommender": {**_policy("usage", "request")["recommender"], **PRICES["recommender"]}},
        zone="Asia/Tokyo",
    ),
    Setting("policy-max-usage-request-marked-nodes", _policy("maxUsageRequest"), marks_nodes=True),
    Setting("policy-forecast-chosen-namespaces", _policy("forecast"), search="ns=media&ns=audit"),
    Setting(
        "caps-strategy-of-a-peer-reader",
        {"recommender": {**CAPS["recommender"], **PEER["recommender"]}},
        reads=frozenset({"media", "pay", "search"}),
    ),
    Setting("second-cluster-time-range", search="range=24h", cluster="second"),
)
"""Every way to differ once: several in one setting where they meet on different numbers, or where one narrows what
another computes. A surface that ignores any of them differs from the others there."""
ONE_BY_ONE = (
    Setting("policy-request", _policy("usage", "request")),
    Setting("policy-max-usage-request", _policy("maxUsageRequest")),
    Setting("policy-forecast", _policy("forecast")),
    Setting("caps", CAPS),
    Setting("marked-nodes", marks_nodes=True),
    Setting("prices", PRICES),
    Setting("strategy-of-a-peer", PEER),
    Setting("namespaces-chosen", search="ns=media&ns=audit"),
    Setting("time-range", search="range=24h"),
    Setting("reader-of-few-namespaces", reads=frozenset({"media", "pay", "search"})),
    Setting("another-zone", zone="Asia/Tokyo"),
    Setting("second-cluster", cluster="second"),
)
"""The full form: each of them alone, so that none can hide another's fault."""


@dataclass(frozen=True)
class Scene:
    """A store with results under one setting, and a dashboard's view of it."""

    setting: Setting
    store: Store
    settings: Settings
    end_seconds: int
    folder: Path

    @property
    def view(self) -> View:
        """What pages are drawn from, for the person of the setting."""
        clock = FixedClock(self.end_seconds)
        source: Any = StoreSource(self.store, support.QUICK, clock)
        if self.setting.reads is not None:
            who = Person("rita", grants=(Grant(Role.VIEWER, tuple(self.setting.reads)),))
            source = Narrowing(source, lambda: who)
        context = DashboardContext(prices=self.settings.recommender.prices)
        return View(source, support.QUICK, clock.now_seconds, context)

    @property
    def currency(self) -> str:
        """Of the price sheet."""
        return self.settings.recommender.prices.currency

    def shows(self, row: Mapping[str, Any]) -> bool:
        """Whether a row of a workload is chosen and may be read, by a rule of its own."""
        chosen = {part[3:] for part in self.setting.search.split("&") if part.startswith("ns=")}
        return (not chosen or row["namespace"] in chosen) and (
            self.setting.reads is None or row["namespace"] in self.setting.reads
        )


def analysed_cluster(setting: Setting, folder: Path) -> Scene:
    """Generate the cluster, once a run; analyse it under the setting, once a run too."""
    settings = msgspec.convert(_merged(LEAN, setting.document), Settings)

    def analysed(target: Path) -> None:
        _raw(target, setting.cluster)
        store = Store(target.as_uri(), setting.cluster)
        inventory = store.read_inventory()
        assert inventory is not None
        if setting.marks_nodes:
            store.write_inventory(replace(inventory, nodes=_marked(inventory.nodes)))
        clock = FixedClock(inventory.time_seconds)
        store.write_document(FACTS, StoreFacts(demo=True))
        daily_analysis.publish(daily_analysis.analyse(store, settings, clock, Silent()), store, settings)

    copy_template(f"consistency-{_results_name(setting)}", folder, analysed)
    store = Store(folder.as_uri(), setting.cluster)
    inventory = store.read_inventory()
    assert inventory is not None
    return Scene(setting, store, settings, inventory.time_seconds, folder)


def _results_name(setting: Setting) -> str:
    """The name of the template; settings that differ in the question alone share the results of the defaults."""
    analysed = bool(setting.document) or setting.marks_nodes or setting.cluster != CLUSTER
    return setting.name if analysed else "defaults"


def _raw(target: Path, cluster: str) -> None:
    """History of the cluster; of a second one beside the first, which has other usage under the same names."""
    if cluster != CLUSTER:
        fill(Store(target.as_uri(), CLUSTER), SPEC, Silent())
        fill(Store(target.as_uri(), cluster), replace(SPEC, seed=SPEC.seed + 1), Silent())
        return

    def fill_store(folder: Path) -> None:
        fill(Store(folder.as_uri(), CLUSTER), SPEC, Silent())

    if (target / CLUSTER).exists():
        shutil.rmtree(target / CLUSTER)
    copy_template("consistency-raw", target, fill_store)


def _marked(nodes: tuple[Any, ...]) -> tuple[Any, ...]:
    """The first three nodes say what they lend by themselves: more, less, nothing."""
    strategies = ({"cpuReclaimThresholdPercent": 95}, None, {"enable": False})
    labels: tuple[dict[str, str], ...] = ({}, {protocol.CPU_RECLAIM_RATIO_LABEL: "0.3"}, {})
    marked = []
    for node, strategy, label in zip(nodes, strategies, labels, strict=False):
        notes = {} if strategy is None else {protocol.COLOCATION_STRATEGY_ANNOTATION: json.dumps(strategy)}
        marked.append(replace(node, annotations={**node.annotations, **notes}, labels={**node.labels, **label}))
    return (*marked, *nodes[len(marked) :])


def _merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    joined = dict(first)
    for key, value in second.items():
        joined[key] = _merged(joined[key], value) if isinstance(joined.get(key), Mapping) else value
    return joined
