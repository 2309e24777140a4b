"""Gone bare pods and finished one-off Jobs are counted, not proposed for; what may run again is neither left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from cotenant.base.cluster import Container, Inventory, Pod, PodPhase, PodRow, Workload
from cotenant.base.identity import ContainerRef, PodContainerRef, WorkloadRef
from cotenant.base.inventory.partial_inventory import RETRY_SECONDS, ended_workloads, left_out_notes, without_over
from cotenant.base.resource import Resource
from cotenant.base.usage.lives import MEASURED
from cotenant.base.usage.sparse_usage import SparseUsage, of_stretches
from cotenant.base.usage.usage import Signal, TimeGrid
from cotenant.pipeline.shards.judgements import Containers
from cotenant.pipeline.shards.work import workload_totals
from cotenant.recommender.model.finding import ClusterFinding
from tests.support.kube_series import END, START, Found, Line, PodSpec, link, node, scanned, served

NOW = 1_795_089_600
BARE = ("", "")
LATE = END - 3600
PODS = (
    PodSpec("web-5c9f7d8b6f-bcdfg", ("ReplicaSet", "web-5c9f7d8b6f")),
    PodSpec("shell", BARE),
    PodSpec("etl-29917440-bcdfg", ("Job", "etl-29917440"), until=LATE, phase="Succeeded"),
    PodSpec("migrate-hjklm", ("Job", "migrate"), until=LATE, phase="Succeeded"),
    PodSpec("train-hjklm", ("Job", "train"), since=START + 3600),
    # fits on no node: a finding, if anybody still wanted it
    PodSpec("huge", BARE, asks=(900_000, 1024), until=LATE),
    PodSpec("build-9x2kd-step-1", ("Workflow", "build-9x2kd"), until=LATE, phase="Succeeded"),
    *(PodSpec(f"run-{i}", BARE, until=START + 3600 * (2 + i)) for i in range(4)),
)
WORLD: tuple[Line, ...] = (
    *(line for pod in PODS for line in pod.lines()),
    link("ReplicaSet", "web-5c9f7d8b6f", ("Deployment", "web")),
    link("Job", "etl-29917440", ("CronJob", "etl")),
    *(link("Job", name, ("", "")) for name in ("migrate", "train")),
    *node(),
)
LEFT_OUT = {
    "shop/Job/migrate",
    "shop/Workflow/build-9x2kd",
    *(f"shop/Pod/{name}" for name in ("huge", "run-0", "run-1", "run-2", "run-3")),
}
STAY = {"shop/CronJob/etl", "shop/Deployment/web", "shop/Job/train", "shop/Pod/shell"}


@pytest.fixture(scope="module")
def scan(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Found]:
    with served(tmp_path_factory.mktemp("world"), {"world": WORLD}) as url:
        yield scanned(url, "world", tmp_path_factory.mktemp("store"))


def subject_of(finding: ClusterFinding) -> str:
    return str(finding.subject.workload if isinstance(finding.subject, ContainerRef) else finding.subject)


@pytest.mark.prometheus
def test_nothing_is_said_of_what_is_over_but_how_much_there_is(scan: Found) -> None:
    assert {str(recommendation.container.workload) for recommendation in scan.results.recommendations} == STAY
    assert LEFT_OUT.isdisjoint(map(subject_of, scan.results.findings))
    (note,) = [note for note in scan.record.notes if "left out of recommendations" in note]
    # five bare pods, a Job and a Workflow, of which five are named
    assert "pods without a controller: 5, Jobs without a CronJob: 1, Workflows: 1" in note
    assert "shop/migrate, shop/huge, shop/run-0, shop/run-1, shop/run-2 and 2 more" in note


@pytest.mark.prometheus
def test_their_usage_is_browsed_as_before(scan: Found) -> None:
    owners, _ = workload_totals(scan.history)
    assert {str(ref) for ref in owners.workloads} == STAY | LEFT_OUT


def inventory(kind: str, *pods: Pod, replicas: int = 0) -> Inventory:
    ref = WorkloadRef("shop", kind, "x")
    own = tuple(replace(pod, workload=ref) for pod in pods)
    return Inventory("c", NOW, (), (Workload(ref, replicas, ()),), own)


def pod(ended_ago: int | None = None, phase: PodPhase = PodPhase.RUNNING) -> Pod:
    end = None if ended_ago is None else NOW - ended_ago
    return Pod("shop", "x-0", WorkloadRef("shop", "Pod", "x-0"), "n", NOW - 9000, end, phase=phase)


@pytest.mark.parametrize(
    ("kind", "pods", "replicas", "is_over"),
    [
        ("Pod", (pod(10),), 0, True),  # a pod's name does not come back by itself
        ("Pod", (pod(),), 1, False),
        ("Pod", (pod(phase=PodPhase.PENDING),), 0, False),
        ("Pod", (pod(phase=PodPhase.UNKNOWN),), 0, False),
        ("Pod", (pod(phase=PodPhase.SUCCEEDED),), 0, True),
        ("Pod", (pod(phase=PodPhase.FAILED),), 0, True),
        ("Pod", (pod(5000), pod()), 1, False),  # the name came back
        ("Job", (pod(RETRY_SECONDS),), 0, True),
        ("Job", (pod(RETRY_SECONDS - 1),), 0, False),  # its next try may come
        ("Job", (pod(5000), pod(phase=PodPhase.PENDING)), 0, False),
        ("Job", (pod(),), 1, False),
        ("Job", (), 0, True),
        *((kind, (pod(5000),), 0, False) for kind in ("CronJob", "Deployment", "StatefulSet", "DaemonSet")),
        # what runs again under its own name, and runs, runners and servers of games that do not
        *((kind, (pod(5000),), 0, False) for kind in ("RayCluster", "SparkApplication", "CronWorkflow", "Rollout")),
        *((kind, (pod(5000),), 0, False) for kind in ("VirtualMachineInstance", "Cluster", "CloneSet")),
        *((kind, (pod(5000),), 0, True) for kind in ("Workflow", "TaskRun", "PipelineRun", "Build")),
        *((kind, (pod(5000),), 0, True) for kind in ("PyTorchJob", "MPIJob", "Trial", "TestRun")),
        *((kind, (pod(5000),), 0, True) for kind in ("EphemeralRunner", "GameServer")),
        ("Workflow", (pod(RETRY_SECONDS - 1),), 0, False),  # its next step may come
    ],
)
def test_only_what_cannot_run_again_is_over(kind: str, pods: tuple[Pod, ...], replicas: int, is_over: bool) -> None:
    pods_inventory = inventory(kind, *pods, replicas=replicas)
    assert bool(ended_workloads(pods_inventory)) is is_over
    assert (without_over(pods_inventory).workloads == ()) is is_over
    assert without_over(pods_inventory).pods == pods_inventory.pods
    assert bool(left_out_notes(pods_inventory)) is is_over


@pytest.mark.parametrize("says", [{"beyond": {Resource.CPU: 500}}, {"idle": ("main",)}])
def test_a_judgement_is_made_anew_when_a_pods_row_says_something_else(says: dict[str, object]) -> None:
    first = inventory("Deployment", pod(), replicas=1)
    first = replace(first, workloads=(Workload(first.workloads[0].ref, 1, (Container("main"),)),))
    second = replace(first, pod_rows=(PodRow("shop", "x-0", NOW, **says),))  # type: ignore[arg-type]
    later = replace(second, pod_rows=(replace(second.pod_rows[0], seen_seconds=NOW + 3600),))
    grid = TimeGrid.from_span(NOW - 3600, NOW, 300)
    unseen: dict[Signal, SparseUsage[PodContainerRef]] = {
        signal: of_stretches((), grid, (), signal.spec.resource, signal.spec.statistic) for signal in MEASURED
    }
    facts = [Containers.of(inventory_then, unseen, ()).facts.tolist() for inventory_then in (first, second, later)]
    assert facts[0] != facts[1] == facts[2]
