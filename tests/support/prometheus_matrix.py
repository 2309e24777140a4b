"""Other people's Prometheus servers: one small cluster, scraped and relabelled as elsewhere, on one real server.

Every variant's series carry the label `variant`, which a scan selects, so that one process serves them all. The same
series can be held by a VictoriaMetrics or asked of a Thanos instead (`served_by_victoria_metrics`, `served_by_thanos`).

    with served(folder, VARIANTS) as scene:
        outcome = scene.outcome(VARIANTS[0], store)

`python -m bench.profiler.prometheus_matrix` writes `docs/prometheus-servers.md` from the outcomes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from msgspec import structs

from cotenant.base.cluster import Inventory
from cotenant.base.errors import SourceError
from cotenant.base.identity import WorkloadRef
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.store.store import Store
from cotenant.base.usage.usage import FIVE_MINUTES_SECONDS, HOUR_SECONDS, Signal, TimeGrid, Usage
from cotenant.profiler.history import pull
from cotenant.profiler.prometheus import PrometheusSource
from cotenant.profiler.prometheus.parts import Rates
from cotenant.profiler.prometheus.retry import Timer
from cotenant.profiler.settings import ProfilerSettings, PrometheusSettings
from cotenant_lab.synthetic import SyntheticCluster, SyntheticSpec, generate
from tests.support.openmetrics import Dress, create_blocks, write
from tests.support.openmetrics.dress import CPU, MEMORY, THROTTLED, Labels, Relabel
from tests.support.prometheus import Server
from tests.support.thanos import REPLICA, thanos
from tests.support.victoria_metrics import victoria_metrics

SPEC: Final = SyntheticSpec(nodes=2, workloads=4, days=1, seed=5)
END: Final = SPEC.end_seconds
HOURS: Final = 6
"""History of a variant that says nothing else."""
LABEL: Final = "variant"
FAMILIES: Final = frozenset(
    {
        CPU,
        MEMORY,
        THROTTLED,
        "kube_pod_owner",
        "kube_replicaset_owner",
        "kube_job_owner",
        "kube_pod_info",
        "kube_pod_created",
        "kube_pod_status_phase",
        "kube_pod_container_resource_requests",
        "kube_pod_container_resource_limits",
        "kube_pod_init_container_info",
        "kube_pod_init_container_resource_requests",
        "kube_pod_init_container_resource_limits",
        "kube_pod_container_status_restarts_total",
        "kube_pod_container_status_last_terminated_reason",
        "kube_node_status_capacity",
        "kube_node_status_allocatable",
        "kube_namespace_created",
    }
)
KUBELET_ONLY: Final = frozenset({CPU, MEMORY, THROTTLED})


@dataclass(frozen=True)
class Variant:
    """A server: `dresses`, one for each cluster; asked `late_seconds` after the data's end.

    `same`: what of the reference's numbers must be found: "all", "usage" alone, or "" where the scan is refused.
    `says`: part of a note or of the refusal; empty where nothing may be said about it.
    """

    name: str
    dresses: tuple[Dress, ...]
    hours: int = HOURS
    late_seconds: int = 0
    same: str = "all"
    says: str = ""
    tolerance: float = 0.02
    bench_only: bool = False

    def is_met(self, outcome: Outcome) -> bool:
        """Whether the truth was found, or the refusal names what it must."""
        if not self.same:
            return self.says in outcome.refusal and bool(outcome.fix)
        right = not outcome.refusal and not outcome.differences
        return right and max(outcome.errors.values()) <= self.tolerance


@dataclass(frozen=True)
class Outcome:
    """What a pull gave, beside the truth."""

    refusal: str = ""
    fix: str = ""
    notes: tuple[str, ...] = ()
    interval_seconds: float = 0.0
    errors: dict[str, float] = field(default_factory=dict)
    """Largest relative error by quantity."""
    differences: tuple[str, ...] = ()
    """Facts of the inventory that are not the truth's."""

    def row(self, variant: Variant) -> str:
        """The table's row: the server, and what a scan gives."""
        return f"| {variant.name} | {self._verdict(variant)} |"

    def _verdict(self, variant: Variant) -> str:
        if self.refusal:
            return f"refused: {_without_address(self.refusal)}. Fix: {self.fix.splitlines()[0].rstrip(':')}"
        shown = "the same numbers" if variant.same == "all" else "the same usage"
        note = next((note for note in self.notes if variant.says and variant.says in note), "")
        return f"{shown if variant.is_met(self) else 'DIFFERENT'}{f'; note: {_undated(note)}' if note else ''}"


def dressed(interval_seconds: int = 60, relabel: Relabel | None = None, **options: object) -> Dress:
    """A dress with the families of the matrix; kube-state-metrics is scraped as often as the kubelets, at most."""
    plain: dict[str, object] = {"families": FAMILIES, "noise": True, **options}
    return Dress(interval_seconds, relabel=relabel, **plain)  # type: ignore[arg-type]


def _of_state(name: str) -> bool:
    return name.startswith("kube_")


def renamed(labels: Labels, target: Labels) -> Labels:
    """What Prometheus stores without honor_labels: the target's labels, the exporter's own renamed where they clash."""
    return {f"exported_{k}" if k in target else k: v for k, v in labels.items()} | target


def state_by_pod(name: str, labels: Labels) -> Labels | None:
    """kube-state-metrics found by its pod, in kube-system where many install it, without honor_labels."""
    if not _of_state(name):
        return labels
    scrape = {"job": labels["job"], "instance": labels["instance"]}
    target = {"namespace": "kube-system", "pod": "ksm-0", "container": "kube-state-metrics", "node": "elsewhere"}
    return scrape | renamed({k: v for k, v in labels.items() if k not in scrape}, target)


def kubelet_by_service(name: str, labels: Labels) -> Labels | None:
    """cAdvisor found by the kubelet's Service without honor_labels: only the namespace clashes."""
    return labels if _of_state(name) else renamed(labels, {"namespace": "kube-system", "service": "kubelet"})


def kubelet_by_pod(name: str, labels: Labels) -> Labels | None:
    """A cAdvisor of its own found by its pod without honor_labels: everything clashes."""
    target = {"namespace": "kube-system", "pod": "cadvisor-x", "container": "cadvisor"}
    return labels if _of_state(name) else renamed(labels, target)


def stack(name: str, labels: Labels) -> Labels | None:
    """As kube-prometheus-stack relabels: no throttled time, no group without a pod, the endpoint's labels."""
    if name == THROTTLED or (not _of_state(name) and labels.get("id") and not labels.get("pod")):
        return None
    return labels | {"endpoint": "https-metrics", "service": "kubelet", "metrics_path": "/metrics/cadvisor"}


def vanilla(name: str, labels: Labels) -> Labels | None:
    """As Prometheus' own example: the node's labels are mapped, the instance is the node's name, no label node."""
    if _of_state(name):
        return labels | {"job": "kubernetes-service-endpoints", "service": "kube-state-metrics"}
    node = labels["node"]
    others = {k: v for k, v in labels.items() if k != "node"}
    return others | {"job": "kubernetes-cadvisor", "instance": node, "kubernetes_io_hostname": node}


def managed(name: str, labels: Labels) -> Labels | None:
    """As managed offers do: labels of the project, one cluster, kube-state-metrics without honor_labels."""
    scraped = state_by_pod(name, labels)
    return scraped and scraped | {"project_id": "shop-1", "location": "europe-west1", "cluster": "prod"}


def old_kubelet(name: str, labels: Labels) -> Labels | None:
    """cAdvisor in kubelets before 1.16."""
    names = {"pod": "pod_name", "container": "container_name"}
    return labels if _of_state(name) else {names.get(k, k): v for k, v in labels.items()}


def carrying(relabel: Relabel | None = None, **more: str) -> Relabel:
    """The labels after `relabel`, and further ones."""

    def change(name: str, labels: Labels) -> Labels | None:
        changed = relabel(name, labels) if relabel else labels
        return None if changed is None else changed | more

    return change


def of_other_nodes(cluster: str) -> Relabel:
    """A cluster whose exporters alone tell it apart: by their addresses."""
    return lambda _, labels: labels | {"instance": f"{cluster}-{labels['instance']}"}


def silent_since(minutes: int) -> Dress:
    """kube-state-metrics has been away for so long."""
    return dressed(state_interval_seconds=60, state_span=(0, END - 60 * minutes))


REPLICAS: Final = ({"prometheus_replica": "a"}, {"prometheus_replica": "b"})
BIRTHS: Final = {"test": 1_700_000_000, "live": 1_600_000_000}
"""When kube-system was made in each of two clusters."""
LATE: Final = "the newest usage is of"
STATE_EXPORTED: Final = "kube-state-metrics is scraped without honor_labels"
COARSE: Final = 0.06
"""Rates over four scrapes smear what is scraped so rarely."""
VARIANTS: Final = (
    Variant("scraped every 60 s, kube-state-metrics with honor_labels (the reference)", (dressed(),)),
    Variant("scraped every 15 s", (dressed(15),)),
    Variant("scraped every 30 s", (dressed(30),), bench_only=True),
    Variant("scraped every 5 minutes", (dressed(300),)),
    Variant(
        "scraped every 10 minutes",
        (dressed(300, every=2, state_interval_seconds=600),),
        bench_only=True,
        tolerance=COARSE,
    ),
    Variant("scraped every 15 minutes", (dressed(300, every=3, state_interval_seconds=900),), tolerance=COARSE),
    Variant("one day long", (dressed(300),), hours=24),
    Variant("one hour long", (dressed(),), hours=1),
    Variant("10 minutes behind (Thanos, remote write)", (dressed(),), late_seconds=600, says=LATE),
    Variant("ended 3 hours ago, or the client's clock is ahead", (dressed(),), late_seconds=10_800, says=LATE),
    Variant("kube-state-metrics absent", (dressed(families=KUBELET_ONLY),), same="usage", says="counts as a bare pod"),
    Variant("kube-state-metrics restarting, away for 7 minutes", (silent_since(7),)),
    Variant("kube-state-metrics away for 40 minutes", (silent_since(40),), says="has been silent since"),
    Variant("kube-state-metrics without honor_labels", (dressed(relabel=state_by_pod),), says=STATE_EXPORTED),
    Variant("the kubelet's cAdvisor by its Service, without honor_labels", (dressed(relabel=kubelet_by_service),)),
    Variant(
        "a cAdvisor of its own, by its pod, without honor_labels",
        (dressed(relabel=kubelet_by_pod),),
        same="",
        says="cAdvisor is scraped without honor_labels",
    ),
    Variant("relabelled as kube-prometheus-stack does", (dressed(relabel=stack),), says="throttled time is unknown"),
    Variant("relabelled as Prometheus' own Kubernetes example does", (dressed(relabel=vanilla),)),
    Variant("relabelled as managed offers do", (dressed(relabel=managed),), says=STATE_EXPORTED),
    Variant(
        "labels pod_name and container_name (kubelets before 1.16)",
        (dressed(relabel=old_kubelet),),
        same="",
        says="pod_name and container_name",
    ),
    Variant("a pair for high availability, not deduplicated", (dressed(scrapers=REPLICAS, state_scrapers=REPLICAS),)),
    Variant(
        "two clusters, told apart by the label cluster",
        tuple(dressed(300, relabel=carrying(cluster=name)) for name in ("lab", "prod")),
        same="",
        says="2 clusters, by the label cluster: lab, prod",
    ),
    Variant(
        "two clusters, told apart by a label of another name",
        tuple(dressed(300, relabel=carrying(env=name), born_seconds=born) for name, born in BIRTHS.items()),
        same="",
        says="2 clusters, by the label env: live, test",
    ),
    Variant(
        "two clusters that no label tells apart",
        tuple(dressed(300, relabel=of_other_nodes(name), born_seconds=born) for name, born in BIRTHS.items()),
        same="",
        says="no label distinguishes them",
    ),
)


@dataclass(frozen=True)
class Scene:
    """The address of the server, and the truth."""

    cluster: SyntheticCluster
    url: str

    def outcome(self, variant: Variant, store: Store, timer: Timer | None = None) -> Outcome:
        """One pull of the variant into an empty store, held against the truth.

        timer: what the pauses of the default settings go by; without one they are short.
        """
        settings = PrometheusSettings(url=self.url, labels={LABEL: variant.name})
        short = settings if timer else structs.replace(settings, backoff_seconds=0.01)
        source = PrometheusSource(short, "c", timer=timer)
        clock = FixedClock(END + variant.late_seconds)
        try:
            record = pull(source, store, ProfilerSettings(window_days=2), clock, Silent())
        except SourceError as error:
            return Outcome(error.message, error.fix)
        finally:
            source.close()
        inventory = store.read_inventory()
        assert inventory is not None
        sides = _SIDES if variant.same == "all" else {"running pods, bare": _bare_pods}
        truth = self.cluster.inventory
        differences = tuple(name for name, side in sides.items() if side(truth) != side(inventory))
        differences += ("history that could not be read",) if record.unread_seconds else ()
        errors = self._errors(variant, store)
        return Outcome("", "", record.notes, record.scrape_interval_seconds, errors, differences)

    def _errors(self, variant: Variant, store: Store) -> dict[str, float]:
        """Relative errors of each container's mean CPU (worst, weighed by size) and of the sums of both resources."""
        start = END - variant.hours * HOUR_SECONDS
        errors: dict[str, float] = {}
        for signal in (Signal.CPU_USAGE_MEAN, Signal.MEMORY_WORKING_SET_MAX):
            grid = TimeGrid.from_span(start + HOUR_SECONDS // 2, END, signal.spec.step_seconds)
            ours, truth = store.read(signal, grid), self.cluster.usage[signal]
            row = {ref: i for i, ref in enumerate(truth.refs)}
            first = truth.grid.index_of(grid.start_seconds)
            meant = truth.values[:, first : first + grid.size]
            rows = [row[ref] for ref in ours.refs]
            both = ~np.isnan(ours.values) & ~np.isnan(meant[rows])
            sums = [np.where(both, v, 0).sum(axis=1, dtype=np.float64) for v in (ours.values, meant[rows])]
            scale = sums[1].sum()
            errors[signal.value] = float(abs(sums[0].sum() - scale) / scale)
            errors[f"{signal.value} of a container"] = float(np.abs(sums[0] - sums[1]).max() / scale)
            errors[f"{signal.value} missing"] = float(1 - both.sum() / (~np.isnan(meant)).sum())
        day = TimeGrid.from_span(start, END, FIVE_MINUTES_SECONDS)
        means, highest = (set(store.read(s, day).refs) for s in (Signal.CPU_USAGE_MEAN, Signal.CPU_USAGE_MAX))
        interval = int(store.read_quality()[-1].scrape_interval_seconds)
        # of scrapes too rare for maxima of their own none are stored
        errors["containers without a maximum"] = len((means if Rates(interval).pieces > 1 else set()) ^ highest) / len(
            means
        )
        return errors


def _nodes(inventory: Inventory) -> object:
    return [(n.name, n.capacity, n.allocatable) for n in inventory.nodes]


def _running_pods(inventory: Inventory) -> object:
    return {(p.namespace, p.name): (p.workload, p.node) for p in inventory.pods if p.running}


def _bare_pods(inventory: Inventory) -> object:
    """The running pods, each as its own workload."""
    return {WorkloadRef(p.namespace, "Pod", p.name) for p in inventory.pods if p.running}


def _amounts(inventory: Inventory) -> object:
    running = [w for w in inventory.workloads if w.replicas]
    return {(w.ref, c.name): (w.replicas, c.requests, c.limits) for w in running for c in w.staying}


_SIDES: Final[Mapping[str, Callable[[Inventory], object]]] = {
    "nodes": _nodes,
    "running pods": _running_pods,
    "requests and limits": _amounts,
}
"""Facts of an inventory that must be the truth's."""


def _last(cluster: SyntheticCluster, hours: int) -> tuple[Inventory, Mapping[Signal, Usage[Any]]]:
    """The cluster's last hours: only they are written."""
    since, inventory = END - hours * HOUR_SECONDS, cluster.inventory
    pods = tuple(p for p in inventory.pods if p.end_seconds is None or p.end_seconds > since)
    alive = {(p.namespace, p.name) for p in pods}
    usage: dict[Signal, Usage[Any]] = {}
    for signal, full_usage in cluster.usage.items():
        late = full_usage.tail(hours * HOUR_SECONDS // signal.spec.step_seconds)
        rows = [i for i, ref in enumerate(late.refs) if signal.spec.per_node or (ref.namespace, ref.pod) in alive]
        usage[signal] = replace(late, refs=tuple(late.refs[i] for i in rows), values=late.values[rows])
    events = tuple(e for e in inventory.events if e.time_seconds >= since)
    return replace(inventory, pods=pods, events=events), usage


def _dressed_histories(
    cluster: SyntheticCluster, variants: Sequence[Variant]
) -> Iterator[tuple[Inventory, Mapping[Signal, Usage[Any]], Dress]]:
    """What each cluster of each variant holds, with the variant's name as a label."""
    for variant in variants:
        inventory, usage = _last(cluster, variant.hours)
        for dress in variant.dresses:
            yield inventory, usage, replace(dress, relabel=carrying(dress.relabel, **{LABEL: variant.name}))


def blocks(cluster: SyntheticCluster, folder: Path, variants: Sequence[Variant]) -> Path:
    """A Prometheus data folder with the blocks of all variants."""
    data = folder / "data"
    data.mkdir()
    for inventory, usage, dress in _dressed_histories(cluster, variants):
        create_blocks(inventory, usage, data, dress)
    return data


@contextmanager
def served(folder: Path, variants: Sequence[Variant]) -> Iterator[Scene]:
    """A Prometheus over the blocks of all variants."""
    cluster = generate(SPEC)
    with Server(blocks(cluster, folder, variants)) as server:
        yield Scene(cluster, server.url)


@contextmanager
def served_by_victoria_metrics(folder: Path, variants: Sequence[Variant]) -> Iterator[Scene]:
    """A VictoriaMetrics that holds the series of all variants."""
    cluster = generate(SPEC)
    with victoria_metrics(folder) as server:
        for inventory, usage, dress in _dressed_histories(cluster, variants):
            with tempfile.TemporaryFile(dir=folder) as text:
                write(inventory, usage, text, dress)
                text.seek(0)
                server.load(text)
        yield Scene(cluster, server.url)


@contextmanager
def served_by_thanos(folder: Path, variants: Sequence[Variant]) -> Iterator[Scene]:
    """A Thanos querier over a sidecar whose Prometheus holds the blocks of all variants."""
    cluster = generate(SPEC)
    with (
        Server(blocks(cluster, folder, variants), labels={REPLICA: "a"}) as server,
        thanos(folder, {"a": server.url}) as querier,
    ):
        yield Scene(cluster, querier.url)


def _without_address(refusal: str) -> str:
    """A refusal without the address and the labels that it begins with."""
    text = refusal.partition('"}')[2]
    return text.removeprefix(": ") if text.startswith(":") else f"the server{text}"


def _undated(note: str) -> str:
    """A note up to its time stamp."""
    before, stamp, _ = note.partition(" 20")
    return f"{before} ..." if stamp else note
