"""A small cluster written line by line, as cAdvisor and kube-state-metrics export it, and what a scan of it proposes.

    with served(folder, {"whole": lines, "no phases": missing(lines, "kube_pod_status_phase")}) as url:
        found = scanned(url, "whole", folder / "store")

Every variant's series carry the label `variant`, which the scan selects: one process serves them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from cotenant.base.kube.live import LiveCluster
from cotenant.base.kube.overlay import overlay
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.resource import MIB
from cotenant.base.store.store import Store
from cotenant.base.usage.quality import QualityRecord
from cotenant.pipeline.analysis import History
from cotenant.pipeline.containers import ContainerResults, assess
from cotenant.pipeline.stored_history import load
from cotenant.profiler.history import pull
from cotenant.profiler.prometheus import PrometheusSource
from cotenant.profiler.settings import ProfilerSettings, PrometheusSettings
from cotenant.recommender.model.recommendation import Recommendation
from cotenant.settings import Settings
from tests.support.prometheus import Server, blocks_from

START: Final = 1_795_046_400
HOURS: Final = 8
END: Final = START + 3600 * HOURS
STEP: Final = 300
LABEL: Final = "variant"
NODE: Final = "node-1"


@dataclass(frozen=True)
class Line:
    """One series: the value at each scrape, by seconds since START; a counter rises by `value` a second.

    every: seconds from one scrape to the next. shape: of a series that is not even, the sample at seconds since START.
    """

    metric: str
    labels: Mapping[str, str]
    value: float = 1.0
    since: int = START
    until: int = END
    counter: bool = False
    every: int = STEP
    shape: Callable[[int], float] | None = None

    def sample(self, at: int) -> float:
        """Its value at a Unix time."""
        if self.shape is not None:
            return self.shape(at - START)
        return self.value * (at - self.since) if self.counter else self.value

    @property
    def subject(self) -> str:
        """The object that it speaks of."""
        names = (
            *("pod", "replicaset", "replicationcontroller", "job_name", "horizontalpodautoscaler", "node"),
            *("deployment", "statefulset", "daemonset", "cronjob", "limitrange", "resourcequota"),
        )
        return next((self.labels[name] for name in names if name in self.labels), "")


@dataclass(frozen=True)
class PodSpec:
    """A pod. owner: kind and name of its controller; uses, asks: millicores and MiB; asks None = nothing set."""

    name: str
    owner: tuple[str, str]
    containers: Sequence[str] = ("main",)
    uses: tuple[float, float] = (200, 300)
    asks: tuple[float, float] | None = (1000, 1024)
    since: int = START
    until: int = END
    phase: str = "Running"
    reason: str = ""
    namespace: str = "shop"
    node: str = NODE
    labels: Mapping[str, str] = field(default_factory=dict)
    measured: bool = True

    def lines(self) -> Iterator[Line]:
        """Everything that both exporters say of it."""
        own = {"namespace": self.namespace, "pod": self.name, "uid": f"uid-{self.name}"}
        span: dict[str, Any] = {"since": self.since, "until": self.until}
        kind, name = self.owner
        yield Line("kube_pod_owner", own | _owner(kind, name), **span)
        created_by = {"created_by_kind": kind, "created_by_name": name} if kind else {}
        yield Line("kube_pod_info", own | {"node": self.node} | created_by, **span)
        yield Line("kube_pod_created", own, float(self.since), **span)
        yield Line("kube_pod_labels", own | {f"label_{k}": v for k, v in self.labels.items()}, **span)
        for phase in ("Pending", "Running", "Succeeded", "Failed", "Unknown"):
            yield Line("kube_pod_status_phase", own | {"phase": phase}, float(phase == self.phase), **span)
        for reason in ("Evicted", "NodeAffinity", "NodeLost", "Shutdown", "UnexpectedAdmissionError"):
            yield Line("kube_pod_status_reason", own | {"reason": reason}, float(reason == self.reason), **span)
        for container in self.containers:
            yield from self._of_container(own | {"container": container}, span)

    def _of_container(self, own: Mapping[str, str], span: Mapping[str, Any]) -> Iterator[Line]:
        yield Line("kube_pod_container_status_restarts_total", own, 0.0, **span)
        cpu, memory = self.asks or (0, 0)
        for metric in ("requests", "limits") if self.asks else ():
            amounts = (("cpu", cpu / 1000), ("memory", memory * MIB))
            for resource, amount in amounts if metric == "requests" else amounts[1:]:
                labels = {**own, "node": self.node, "resource": resource}
                yield Line(f"kube_pod_container_resource_{metric}", labels, amount, **span)
        if self.measured:
            plain = {key: value for key, value in own.items() if key != "uid"}
            cpu, memory = self.uses
            yield Line("container_cpu_usage_seconds_total", plain, cpu / 1000, counter=True, **span)
            yield Line("container_memory_working_set_bytes", plain, memory * MIB, **span)


def _owner(kind: str, name: str) -> dict[str, str]:
    return {"owner_kind": kind, "owner_name": name, "owner_is_controller": "true" if kind else ""}


def link(kind: str, name: str, owner: tuple[str, str], namespace: str = "shop") -> Line:
    """What tells the owner of a ReplicaSet, a ReplicationController or a Job."""
    label = "job_name" if kind == "Job" else kind.lower()
    return Line(f"kube_{kind.lower()}_owner", {"namespace": namespace, label: name} | _owner(*owner))


def node(
    name: str = NODE, cores: float = 16, gib: float = 64, uses: tuple[float, float] = (0.5, 4096)
) -> Iterator[Line]:
    """A node; uses: cores and MiB, of its system and of all pods on it."""
    for side in ("capacity", "allocatable"):
        for resource, amount in (("cpu", cores), ("memory", gib * 1024 * MIB)):
            yield Line(f"kube_node_status_{side}", {"node": name, "resource": resource}, amount)
    for metric, value, counter in (
        ("container_cpu_usage_seconds_total", uses[0], True),
        ("container_memory_working_set_bytes", uses[1] * MIB, False),
    ):
        yield Line(metric, {"id": "/", "node": name, "instance": name}, value, counter=counter)


def autoscaler(name: str, target: tuple[str, str], percent: float = 60) -> Iterator[Line]:
    """An autoscaler on CPU."""
    own = {"namespace": "shop", "horizontalpodautoscaler": name}
    prefix = "kube_horizontalpodautoscaler_"
    yield Line(f"{prefix}info", own | {"scaletargetref_kind": target[0], "scaletargetref_name": target[1]})
    yield Line(f"{prefix}spec_min_replicas", own, 1)
    yield Line(f"{prefix}spec_max_replicas", own, 9)
    metric = {"metric_name": "cpu", "metric_target_type": "utilization"}
    yield Line(f"{prefix}spec_target_metric", own | metric, percent)


def sidecar(
    pod: str, name: str, uses: tuple[float, float], asks: tuple[float, float], killed_at: int = 0
) -> Iterator[Line]:
    """A native sidecar of a pod of the namespace shop, which was killed once for lack of memory if a time is given."""
    plain = {"namespace": "shop", "pod": pod, "container": name}
    own, of = plain | {"uid": f"uid-{pod}"}, "kube_pod_init_container"
    yield Line(f"{of}_info", own | {"restart_policy": "Always"})
    yield from restarts(f"{of}_status", own, killed_at)
    amounts = (("cpu", asks[0] / 1000), ("memory", asks[1] * MIB))
    for side, some in (("requests", amounts), ("limits", amounts[1:])):
        for resource, amount in some:
            yield Line(f"{of}_resource_{side}", own | {"node": NODE, "resource": resource}, amount)
    yield Line("container_cpu_usage_seconds_total", plain, uses[0] / 1000, counter=True)
    yield Line("container_memory_working_set_bytes", plain, uses[1] * MIB)


def restarts(of: str, own: Mapping[str, str], killed_at: int = 0) -> Iterator[Line]:
    """A container's restarts, and why it ended, if it was killed at a time."""
    until = killed_at - STEP if killed_at else END
    yield Line(f"{of}_restarts_total", own, 0.0, until=until)
    if killed_at:
        yield Line(f"{of}_restarts_total", own, 1.0, since=killed_at)
        yield Line(f"{of}_last_terminated_reason", {**own, "reason": "OOMKilled"}, since=killed_at)


def declared(kind: str, name: str, **annotations: str) -> Iterator[Line]:
    """A workload object and its annotations of cotenant.dev, with "_" for "-"."""
    own = {"namespace": "shop", kind: name}
    yield Line(f"kube_{kind}_created", own, float(START - 30 * 86400))
    yield Line(f"kube_{kind}_annotations", own | {f"annotation_cotenant_dev_{k}": v for k, v in annotations.items()})


def changed(lines: Sequence[Line], metric: str, change: Callable[[Line], Sequence[Line]]) -> list[Line]:
    """The lines with each one of the metric replaced by what `change` makes of it."""
    return [new for line in lines for new in (change(line) if line.metric == metric else (line,))]


def missing(lines: Sequence[Line], metric: str) -> list[Line]:
    """Without the metric."""
    return changed(lines, metric, lambda _: ())


def partial(lines: Sequence[Line], metric: str) -> list[Line]:
    """With the metric of every second object alone."""
    subjects = sorted({line.subject for line in lines if line.metric == metric})
    subjects_kept = set(subjects[::2])
    return changed(lines, metric, lambda line: (line,) if line.subject in subjects_kept else ())


def doubled(lines: Sequence[Line], metric: str) -> list[Line]:
    """With the metric of two replicas of the exporter."""
    return changed(lines, metric, lambda x: [replace(x, labels={**x.labels, "instance": i}) for i in ("a:80", "b:80")])


def stale(lines: Sequence[Line], metric: str) -> list[Line]:
    """Without the last three hours of the metric."""
    last = END - 3 * 3600
    return changed(lines, metric, lambda x: [replace(x, until=min(x.until, last))] if x.since < last else [])


@contextmanager
def served(folder: Path, variants: Mapping[str, Sequence[Line]]) -> Iterator[str]:
    """The address of a Prometheus that holds all variants."""
    by_metric: dict[str, list[str]] = {}
    for name, lines in variants.items():
        for line in lines:
            by_metric.setdefault(line.metric, []).extend(_samples(line, name))
    with (folder / "m.om").open("w") as text:
        for metric, rows in sorted(by_metric.items()):
            family = metric.removesuffix("_total")
            text.write(f"# TYPE {family} {'counter' if metric != family else 'gauge'}\n")
            text.writelines(rows)
        text.write("# EOF\n")
    blocks_from(folder / "m.om", folder / "data")
    with Server(folder / "data") as server:
        yield server.url


def _samples(line: Line, variant: str) -> Iterator[str]:
    labels = ",".join(f'{k}="{v}"' for k, v in {**line.labels, LABEL: variant}.items() if v)
    for at in range(line.since, line.until + 1, line.every):
        yield f"{line.metric}{{{labels}}} {line.sample(at)!r} {at}\n"


@dataclass(frozen=True)
class Found:
    """What a scan of a variant gave."""

    history: History
    record: QualityRecord
    results: ContainerResults

    @property
    def notes(self) -> str:
        """All notes."""
        return "\n".join((*self.record.notes, *self.history.inventory.notes))

    @property
    def recommendations(self) -> dict[str, Recommendation]:
        """By namespace/Kind/name/container."""
        return {str(recommendation.container): recommendation for recommendation in self.results.recommendations}


def settings() -> Settings:
    """The usual ones, for hours of history in the place of days."""
    usual = Settings()
    own = usual.recommender.cotenant
    return msgspec.structs.replace(
        usual,
        recommender=msgspec.structs.replace(usual.recommender, cotenant=msgspec.structs.replace(own, minimum_days=0.1)),
    )


def scanned(url: str, variant: str, folder: Path, days: int = 1, live: LiveCluster | None = None) -> Found:
    """A scan of the variant's last days into an empty store, and what is proposed from it. live: told by the API."""
    own = PrometheusSettings(url=url, labels={LABEL: variant}, backoff_seconds=0.01, outage_seconds=0.0)
    store, source = Store(f"file://{folder}", "c"), PrometheusSource(own, "c")
    try:
        record = pull(source, store, ProfilerSettings(window_days=days), FixedClock(END), Silent())
    finally:
        source.close()
    if live is not None and (inventory := store.read_inventory()) is not None:
        store.write_inventory(overlay(inventory, live))
    history = load(store, settings())
    return Found(history, record, assess(history, settings()))
