"""Phases of pods, pods that nothing names, and owners with several templates, through a real Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cotenant.base.process.clock import FixedClock
from cotenant.base.resource import MIB, Resource
from cotenant.cli.cluster.probes import metrics
from cotenant.cli.cluster.probes.outcome import ProbeState
from cotenant.profiler.settings import ProfilerSettings, PrometheusSettings
from cotenant.recommender.model.recommendation import Action, Field
from tests.support.kube_series import (
    END,
    LABEL,
    START,
    Found,
    Line,
    PodSpec,
    link,
    node,
    scanned,
    served,
)

pytestmark = [pytest.mark.slow, pytest.mark.prometheus]

WEB, WEB_1 = ("ReplicaSet", "web-5c9f7d8b6f"), ("Deployment", "web")
RUNNING = tuple(PodSpec(f"{WEB[1]}-{end}", WEB, since=START) for end in ("bcdfg", "hjklm"))
PHASES = {
    "evicted": ("Failed", "Evicted", "node-1"),
    "failed": ("Failed", "", "node-1"),
    "shut down": ("Failed", "Shutdown", "node-1"),
    "refused by the node": ("Failed", "UnexpectedAdmissionError", "node-1"),
    "not fit": ("Failed", "NodeAffinity", "node-1"),
    "completed": ("Succeeded", "", "node-1"),
    "pending": ("Pending", "", ""),
    "pulling": ("Pending", "", "node-1"),
    "node lost": ("Unknown", "NodeLost", "node-1"),
}
ENDED = {name for name, (phase, *_) in PHASES.items() if phase in ("Failed", "Succeeded")}


def others(name: str) -> tuple[PodSpec, ...]:
    """Six pods of the Deployment in that phase, younger and of another size."""
    phase, reason, place = PHASES[name]
    ends = ("nppqr", "stvwx", "z2456", "78999", "bbbbb", "ccccc")
    return tuple(
        PodSpec(
            f"{WEB[1]}-{end}", WEB, asks=(3000, 4096), since=START + 3600, phase=phase, reason=reason, node=place,
            measured=False,
        )
        for end in ends
    )  # fmt: skip


def of_web(*pods: PodSpec) -> list[Line]:
    return [*(line for pod in pods for line in pod.lines()), link(*WEB, WEB_1), *node()]


def without_phases(lines: list[Line]) -> list[Line]:
    return [line for line in lines if line.metric not in ("kube_pod_status_phase",)]


def shard_away(lines: list[Line], pods: tuple[PodSpec, ...]) -> list[Line]:
    """Without the half of kube-state-metrics that tells of these pods."""
    names = {pod.name for pod in pods}
    return [x for x in lines if not (x.metric.startswith("kube_") and x.labels.get("pod") in names)]


FOUR = tuple(
    PodSpec(f"{WEB[1]}-{end}", WEB, uses=(100, use))
    for end, use in (("bcdfg", 200), ("hjklm", 200), ("nppqr", 450), ("stvwx", 450))
)
LATER = {pod.name for pod in FOUR[2:]}
ALONE = PodSpec("nightly-import", ("", ""), uses=(50, 100))
CACHE = tuple(PodSpec(f"cache-{i}", ("StatefulSet", "cache")) for i in range(2))
STRANGER = PodSpec("0f3b-worker", ("Worker", "0f3b"))


def operator(kind: str, name: str, *pods: PodSpec) -> list[Line]:
    return [*(line for pod in pods for line in pod.lines()), *node()]


RAY = ("RayCluster", "ray")
SPARK, DRIVER = ("SparkApplication", "pi"), ("Pod", "pi-driver")
FLINK = ("ReplicaSet", "flink-5c9f7d8b6f")
KAFKA, TORCH, MPI, PG = ("StrimziPodSet", "bus-kafka"), ("PyTorchJob", "fit"), ("MPIJob", "sim"), ("Cluster", "pg")
HEAD = {"uses": (300.0, 2000.0), "asks": (2000.0, 4096.0)}
WORKER = {"uses": (1500.0, 1000.0), "asks": (4000.0, 2048.0)}
OPERATORS: dict[str, list[Line]] = {
    "KubeRay": operator(
        *RAY,
        PodSpec("ray-head-bcdfg", RAY, ("ray-head",), labels={"ray_io_node_type": "head"}, **HEAD),  # type: ignore[arg-type]
        *(PodSpec(f"ray-small-worker-{e}", RAY, ("ray-worker",), **WORKER) for e in ("hjklm", "nppqr", "stvwx")),  # type: ignore[arg-type]
    ),
    "Spark": operator(
        *SPARK,
        PodSpec("pi-driver", SPARK, ("spark-kubernetes-driver",), **HEAD),  # type: ignore[arg-type]
        *(PodSpec(f"pi-9f-exec-{i}", DRIVER, ("spark-kubernetes-executor",), **WORKER) for i in (1, 2, 3)),  # type: ignore[arg-type]
    ),
    "Flink": [
        *operator(
            "",
            "",
            PodSpec(f"{FLINK[1]}-bcdfg", FLINK, ("flink-main-container",), **HEAD),  # type: ignore[arg-type]
            *(
                PodSpec(f"flink-taskmanager-1-{i}", ("Deployment", "flink"), ("flink-main-container",), **WORKER)  # type: ignore[arg-type]
                for i in (1, 2)
            ),
        ),
        link(*FLINK, ("Deployment", "flink")),
    ],
    "Strimzi": operator(*KAFKA, *(PodSpec(f"bus-kafka-{i}", KAFKA, ("kafka",), **HEAD) for i in range(3))),  # type: ignore[arg-type]
    "CNPG": operator(*PG, *(PodSpec(f"pg-{i}", PG, ("postgres",), **HEAD) for i in (1, 2))),  # type: ignore[arg-type]
    "PyTorchJob": operator(
        *TORCH,
        PodSpec("fit-master-0", TORCH, ("pytorch",), **HEAD),  # type: ignore[arg-type]
        *(PodSpec(f"fit-worker-{i}", TORCH, ("pytorch",), **WORKER) for i in range(3)),  # type: ignore[arg-type]
    ),
    "PyTorchJob whose master is as large": operator(
        *TORCH,
        PodSpec("fit-master-0", TORCH, ("pytorch",), uses=(1900, 1900), asks=(4000, 2048)),
        *(PodSpec(f"fit-worker-{i}", TORCH, ("pytorch",), **WORKER) for i in range(30)),  # type: ignore[arg-type]
    ),
    "MPIJob": [
        *operator(
            *MPI,
            PodSpec("sim-launcher-bcdfg", ("Job", "sim-launcher"), ("mpi-launcher",), **HEAD),  # type: ignore[arg-type]
            *(PodSpec(f"sim-worker-{i}", MPI, ("mpi-worker",), **WORKER) for i in range(2)),  # type: ignore[arg-type]
        ),
        link("Job", "sim-launcher", MPI),
    ],
    "the driver is gone": operator(
        *SPARK,
        *(PodSpec(f"pi-9f-exec-{i}", DRIVER, ("spark-kubernetes-executor",), **WORKER) for i in (1, 2)),  # type: ignore[arg-type]
    ),
}
VARIANTS: dict[str, list[Line]] = {
    **{name: of_web(*RUNNING, *others(name)) for name in PHASES},
    **{f"{name}, no phases": without_phases(of_web(*RUNNING, *others(name))) for name in PHASES},
    "all named": [*of_web(*FOUR), *ALONE.lines(), *(line for pod in CACHE for line in pod.lines())],
    "half named": shard_away([*of_web(*FOUR), *(x for pod in CACHE for x in pod.lines())], FOUR[2:]),
    "a stranger": shard_away([*of_web(*FOUR), *STRANGER.lines()], (STRANGER,)),
    "a namespace left out": shard_away([*of_web(*FOUR), *replace(CACHE[0], namespace="pay").lines()], (CACHE[0],)),
    "just started": shard_away(
        of_web(*FOUR, replace(FOUR[0], name=f"{WEB[1]}-zzzzz", since=END - 900)),
        (replace(FOUR[0], name=f"{WEB[1]}-zzzzz"),),
    ),
    "a shard silent for three hours": [
        replace(x, until=END - 3 * 3600) if x.metric.startswith("kube_") and x.labels.get("pod") in LATER else x
        for x in of_web(*FOUR)
    ],
    **OPERATORS,
    **{
        f"{metric} is not there": [line for line in of_web(*RUNNING) if line.metric != metric]
        for metric in ("container_cpu_usage_seconds_total", "container_memory_working_set_bytes")
    },
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """All variants on one server."""
    with served(tmp_path_factory.mktemp("pods"), VARIANTS) as address:
        yield address


def request(scan: Found, name: str, resource: Resource) -> int | str | None:
    """The proposed request of a container, or why there is none."""
    value = scan.recommendations[name].value(resource, Field.REQUEST)
    assert value is not None
    return value.reason.value if value.action is Action.WITHHELD else value.amount


@pytest.mark.parametrize(
    ("metric", "cpu", "memory"),
    [
        # two pods use 300 MiB each, and 15 % on top; 200 millicores and 10 % on top
        ("container_cpu_usage_seconds_total", "no-data", pytest.approx(300 * 1.15 * MIB, rel=0.02)),
        ("container_memory_working_set_bytes", pytest.approx(220, rel=0.02), "no-data"),
    ],
)
def test_what_is_measured_of_one_resource_alone_is_proposed_of_that_one(
    metric: str, cpu: object, memory: object, url: str, tmp_path: Path
) -> None:
    scan = scanned(url, f"{metric} is not there", tmp_path)
    assert request(scan, "shop/Deployment/web/main", Resource.CPU) == cpu
    assert request(scan, "shop/Deployment/web/main", Resource.MEMORY) == memory
    assert f"without {metric}" in scan.notes


@pytest.mark.parametrize("phases", ["", ", no phases"])
@pytest.mark.parametrize("name", PHASES)
def test_two_pods_run_whatever_became_of_six_others(name: str, phases: str, url: str, tmp_path: Path) -> None:
    scan = scanned(url, f"{name}{phases}", tmp_path)
    web = scan.recommendations["shop/Deployment/web/main"]
    assert web.replicas == 2
    on_node = sum(p.requests[Resource.CPU] for p in scan.history.inventory.pods if p.running and p.node == "node-1")
    six = 0 if name in ENDED or name == "pending" else 18_000
    if phases and name in ("failed", "completed"):
        six = 18_000  # nothing says that they ended: what may be there holds its place
        assert "phases of pods are unknown" in scan.notes
    assert on_node == 2_000 + six
    if name in ENDED and not (phases and six):
        # the template is that of the pods that run: 1 core, and not the 3 of those that failed
        assert web.value(Resource.CPU, Field.REQUEST).now == 1000  # type: ignore[union-attr]


def test_a_proposal_rests_on_all_four_pods_or_there_is_none(url: str, tmp_path: Path) -> None:
    all_named = scanned(url, "all named", tmp_path / "whole")
    # the largest of four used 450 MiB, and 15 % on top
    assert request(all_named, "shop/Deployment/web/main", Resource.MEMORY) == pytest.approx(450 * 1.15 * MIB, rel=0.02)
    assert "does not report them" not in all_named.notes and not all_named.history.inventory.unnamed
    half = scanned(url, "half named", tmp_path / "half")
    for resource in Resource:
        assert request(half, "shop/Deployment/web/main", resource) == "pods-unnamed"
        assert isinstance(request(half, "shop/StatefulSet/cache/main", resource), int)
    assert "2 pods had usage but kube-state-metrics does not report them (by namespace: shop 2)" in half.notes


def test_pods_of_a_shard_that_is_silent_run_on_while_they_use_something(url: str, tmp_path: Path) -> None:
    scan = scanned(url, "a shard silent for three hours", tmp_path)
    web = scan.recommendations["shop/Deployment/web/main"]
    # all four are known by the series index, and all four still use something
    assert web.replicas == 4
    assert request(scan, "shop/Deployment/web/main", Resource.MEMORY) == pytest.approx(450 * 1.15 * MIB, rel=0.02)
    assert "2 pods have usage but kube-state-metrics no longer reports them" in scan.notes


def test_a_pod_whose_name_tells_nothing_may_be_a_part_of_any_workload_of_its_namespace(
    url: str, tmp_path: Path
) -> None:
    scan = scanned(url, "a stranger", tmp_path)
    assert request(scan, "shop/Deployment/web/main", Resource.MEMORY) == "pods-unnamed"


def test_pods_of_a_namespace_that_is_left_out_are_noted_and_touch_no_other(url: str, tmp_path: Path) -> None:
    scan = scanned(url, "a namespace left out", tmp_path)
    assert "(by namespace: pay 1)" in scan.notes
    assert isinstance(request(scan, "shop/Deployment/web/main", Resource.MEMORY), int)


def test_a_pod_that_has_just_started_may_not_be_listed_yet(url: str, tmp_path: Path) -> None:
    scan = scanned(url, "just started", tmp_path)
    assert isinstance(request(scan, "shop/Deployment/web/main", Resource.MEMORY), int)
    assert "does not report them" not in scan.notes


@pytest.mark.parametrize(
    ("variant", "state", "says"),
    [
        ("all named", ProbeState.OK, "all 7 pods with usage are reported, with their owners"),
        ("half named", ProbeState.WARNING, "2 of 6 pods with usage are not reported (by namespace: shop 2)"),
        ("the driver is gone", ProbeState.WARNING, "the owners of 2 pods cannot be traced to a workload"),
        ("PyTorchJob", ProbeState.WARNING, "Pods of one owner differ"),
    ],
)
def test_the_doctor_counts_the_pods_that_are_named(variant: str, state: ProbeState, says: str, url: str) -> None:
    own = PrometheusSettings(url=url, labels={LABEL: variant})
    findings = metrics.probes(ProfilerSettings(window_days=1, prometheus=own), FixedClock(END))
    (finding,) = (probe_finding for probe_finding in findings if probe_finding.probe == "prometheus inventory")
    assert (finding.state, bool(finding.fix)) == (state, state is ProbeState.WARNING)
    assert says in finding.found


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("KubeRay", {"RayCluster/ray/ray-head": (1, 2000), "RayCluster/ray/ray-worker": (3, 1000)}),
        (
            "Spark",
            {
                "SparkApplication/pi/spark-kubernetes-driver": (1, 2000),
                "SparkApplication/pi/spark-kubernetes-executor": (3, 1000),
            },
        ),
        ("Strimzi", {"StrimziPodSet/bus-kafka/kafka": (3, 2000)}),
        ("CNPG", {"Cluster/pg/postgres": (2, 2000)}),
        ("MPIJob", {"MPIJob/sim/mpi-launcher": (1, 2000), "MPIJob/sim/mpi-worker": (2, 1000)}),
        ("Flink", {"Deployment/flink/flink-main-container": (3, "several-templates")}),
        ("PyTorchJob", {"PyTorchJob/fit/pytorch": (4, "several-templates")}),
        ("PyTorchJob whose master is as large", {"PyTorchJob/fit/pytorch": (31, "several-templates")}),
        ("the driver is gone", {"Pod/pi-driver/spark-kubernetes-executor": (2, "owner-unknown")}),
    ],
)
def test_every_kind_of_an_operators_pods_has_its_row(
    name: str, rows: dict[str, tuple[int, int | str]], url: str, tmp_path: Path
) -> None:
    """rows: container -> how many pods have it, and the highest memory of any in MiB (15 % on top is asked for)."""
    scan = scanned(url, name, tmp_path)
    assert {f"shop/{row}" for row in rows} == set(scan.recommendations)
    for row, (pods, memory) in rows.items():
        assert scan.recommendations[f"shop/{row}"].replicas == pods
        proposed = request(scan, f"shop/{row}", Resource.MEMORY)
        assert proposed == (memory if isinstance(memory, str) else pytest.approx(memory * 1.15 * MIB, rel=0.02))
