"""Clusters that lack a part, or have unusual labels, through a real Prometheus: right, or withheld and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cotenant.base.errors import SourceUnfit
from cotenant.base.process.clock import FixedClock
from cotenant.base.reasons import Reason
from cotenant.base.resource import MIB, Resource
from cotenant.base.usage.usage import TimeWindow
from cotenant.cli.cluster.probes import metrics
from cotenant.profiler.prometheus import PrometheusSource
from cotenant.profiler.settings import ProfilerSettings, PrometheusSettings
from cotenant.recommender.model.recommendation import Field
from tests.support.kube_series import (
    END,
    LABEL,
    START,
    Found,
    Line,
    PodSpec,
    autoscaler,
    link,
    node,
    scanned,
    served,
)
from tests.support.strict_server import Rules, StrictServer

pytestmark = [pytest.mark.slow, pytest.mark.prometheus]

CPU, MEMORY = "container_cpu_usage_seconds_total", "container_memory_working_set_bytes"
WEB = ("ReplicaSet", "web-5c9f7d8b6f")
LINK = link(*WEB, ("Deployment", "web"))
NODES = (*node(), *node("node-2"))
MIDDLE = START + 4 * 3600
LARGE = (4000.0, 4096.0)


def lines(*pods: PodSpec, more: Iterable[Line] = ()) -> list[Line]:
    return [*(line for pod in pods for line in pod.lines()), *more, *NODES]


def web(count: int = 2, first: int = 0, **others: object) -> list[PodSpec]:
    return [PodSpec(f"{WEB[1]}-bcdf{i}", WEB, **others) for i in range(first, first + count)]  # type: ignore[arg-type]


def without(some: Iterable[Line], dropped: Callable[[Line], bool]) -> list[Line]:
    return [line for line in some if not dropped(line)]


def changed(some: Iterable[Line], metric: str, change: Callable[[Line], Sequence[Line]]) -> list[Line]:
    """Each series of a container of the metric replaced."""
    return [new for x in some for new in (change(x) if x.metric == metric and "container" in x.labels else (x,))]


def zero_after(moment: int) -> Callable[[Line], Sequence[Line]]:
    return lambda x: (replace(x, until=moment), replace(x, value=0.0, since=moment + 300))


def per_core_beside_total(x: Line) -> Sequence[Line]:
    """As a kubelet that counts in all, and a cAdvisor of its own that counts each core, scrape the same container."""
    each = [replace(x, value=x.value / 4, labels={**x.labels, "cpu": f"cpu0{i}", "instance": "c"}) for i in range(4)]
    return [replace(x, labels={**x.labels, "cpu": "total", "instance": "k"}), *each]


def renamed_label(some: Iterable[Line], old: str, new: str) -> list[Line]:
    return [
        replace(x, labels={(new if name == old else name): value for name, value in x.labels.items()})
        if x.metric.startswith("kube_pod")
        else x
        for x in some
    ]


PLAIN = lines(*web(), more=[LINK])
EVICTED = [
    PodSpec(f"{WEB[1]}-zzzz{i}", WEB, phase="Failed", reason="Evicted", measured=False, asks=LARGE) for i in range(4)
]
TF, RAY, WORKFLOW = ("TFJob", "mnist"), ("RayCluster", "ray"), ("Workflow", "etl-abcde")
ROLLOUT = ("ReplicaSet", "pay-6d8f9c5b7d")


@dataclass(frozen=True)
class Case:
    """A cluster; amounts: workload/container -> memory in MiB that is right, or why there is none; says: in a note."""

    lines: Sequence[Line]
    amounts: dict[str, int | Reason]
    replicas: dict[str, int]
    says: str = ""


def of_web(some: Sequence[Line], memory: int | Reason, replicas: int = 2, says: str = "") -> Case:
    name = "Deployment/web/main"
    return Case(some, {name: memory}, {name: replicas}, says)


# 300 MiB were used at most, and 15 % are put on top: 345.
CASES: dict[str, Case] = {
    # Kubernetes' own Job and Volcano's, of one name; kube-state-metrics tells the kind of an owner, and not its group
    "two objects called Job": Case(
        lines(
            PodSpec("train-bcdfg", ("Job", "train"), uses=(100, 100)),
            PodSpec("train-worker-0", ("Job", "train")),
            more=[link("Job", "train", ("", ""))],
        ),
        {"Job/train/main": Reason.OWNER_UNKNOWN},
        {},
    ),
    "an indexed Job": Case(
        lines(
            *(PodSpec(f"train-{i}-bcdfg", ("Job", "train")) for i in range(3)), more=[link("Job", "train", ("", ""))]
        ),
        {"Job/train/main": 345},
        {"Job/train/main": 3},
    ),
    # phases
    "only the phase that holds is scraped": of_web(
        without(
            lines(*web(), *EVICTED, more=[LINK]), lambda x: x.metric.startswith("kube_pod_status_") and x.value == 0
        ),
        345,
    ),
    "only the phase Running is scraped": of_web(
        without(
            lines(*web(), *EVICTED, more=[LINK]),
            lambda x: x.metric == "kube_pod_status_reason"
            or (x.metric == "kube_pod_status_phase" and x.labels["phase"] != "Running"),
        ),
        345,
        says="does not show the phases of 4 pods now",
    ),
    "no phase holds": of_web(
        [
            replace(x, value=0.0) if x.metric == "kube_pod_status_phase" and x.labels["pod"].endswith("zzzz0") else x
            for x in lines(*web(), replace(EVICTED[0], reason=""), more=[LINK])
        ],
        345,
        says="does not show the phases of 1 pod now",
    ),
    "a StatefulSet whose second pod has succeeded": Case(
        lines(
            PodSpec("db-0", ("StatefulSet", "db")),
            PodSpec("db-1", ("StatefulSet", "db"), phase="Succeeded", asks=LARGE, measured=False),
        ),
        {"StatefulSet/db/main": 345},
        {"StatefulSet/db/main": 1},
    ),
    # a part of the pods, or of their usage
    "kube-state-metrics calls the label pod_name": Case(
        renamed_label(PLAIN, "pod", "pod_name"),
        {"Deployment/web/main": Reason.NO_DATA},
        {},
        "2 pods had usage",
    ),
    "kube-state-metrics writes namespaces with a prefix": Case(
        [
            replace(x, labels={**x.labels, "namespace": f"prod-{x.labels['namespace']}"})
            if x.metric.startswith("kube_") and "namespace" in x.labels
            else x
            for x in PLAIN
        ],
        {},
        {},
        "2 pods had usage",
    ),
    "requests of three pods of four": of_web(
        without(
            lines(*web(4), more=[LINK]),
            lambda x: x.metric == "kube_pod_container_resource_requests" and x.labels["pod"].endswith("3"),
        ),
        Reason.AMOUNTS_UNKNOWN,
        4,
    ),
    "half of a StatefulSet is named": Case(
        without(
            lines(*(PodSpec(f"db-{i}", ("StatefulSet", "db"), uses=(100, 200 + 100 * i)) for i in range(4))),
            lambda x: x.metric.startswith("kube_") and x.labels.get("pod") in ("db-2", "db-3"),
        ),
        {"StatefulSet/db/main": Reason.PODS_UNNAMED},
        {"StatefulSet/db/main": 2},
        "2 pods had usage",
    ),
    # nobody saw what the two pods of node-2 used, and it may be more
    "the kubelet of one node is not scraped": of_web(
        lines(*web(), *web(2, 2, node="node-2", measured=False), more=[LINK]), Reason.UNMEASURED, 4
    ),
    "one pod of a StatefulSet was never measured": Case(
        lines(
            PodSpec("db-0", ("StatefulSet", "db")), PodSpec("db-1", ("StatefulSet", "db"), measured=False)
        ),
        {"StatefulSet/db/main": Reason.UNMEASURED},
        {"StatefulSet/db/main": 2},
    ),
    "a pod that began a quarter of an hour ago": of_web(
        lines(*web(), *web(1, 2, since=END - 900, measured=False), more=[LINK]), 345, 3
    ),
    # zeros
    "one of two pods shows zeros": of_web(
        lines(web()[0], replace(web()[1], uses=(0, 0)), more=[LINK]), Reason.UNMEASURED
    ),
    "a sidecar shows zeros": Case(
        [
            replace(x, value=0.0) if x.metric in (CPU, MEMORY) and x.labels.get("container") == "side" else x
            for x in lines(*web(containers=("main", "side")), more=[LINK])
        ],
        {"Deployment/web/main": 345, "Deployment/web/side": Reason.UNMEASURED},
        {"Deployment/web/main": 2},
    ),
    # the 800 MiB of before count
    "memory is zero from the middle on": of_web(
        changed(lines(*web(uses=(400, 800)), more=[LINK]), MEMORY, zero_after(MIDDLE)), 920
    ),
    # several templates
    "TensorFlow": Case(
        lines(
            PodSpec("mnist-chief-0", TF, ("tensorflow",), uses=(300, 3000), asks=LARGE),
            *(PodSpec(f"mnist-worker-{i}", TF, ("tensorflow",), uses=(900, 700), asks=LARGE) for i in range(3)),
            PodSpec("mnist-ps-0", TF, ("tensorflow",), uses=(100, 200), asks=LARGE),
        ),
        {"TFJob/mnist/tensorflow": Reason.SEVERAL_TEMPLATES},
        {"TFJob/mnist/tensorflow": 5},
    ),
    "Ray with two groups of workers": Case(
        lines(
            PodSpec("ray-head-bcdfg", RAY, ("ray-head",), uses=(100, 800)),
            *(
                PodSpec(f"ray-{group}-worker-{end}", RAY, ("ray-worker",), uses=(100, use))
                for group, use in (("small", 200), ("large", 900))
                for end in ("hjklm", "nppqr")
            ),
        ),
        {"RayCluster/ray/ray-head": 920, "RayCluster/ray/ray-worker": Reason.SEVERAL_TEMPLATES},
        {"RayCluster/ray/ray-head": 1, "RayCluster/ray/ray-worker": 4},
    ),
    "steps of an Argo Workflow": Case(
        lines(
            PodSpec("etl-abcde-prepare-123456789", WORKFLOW, ("main", "wait"), uses=(100, 200)),
            PodSpec("etl-abcde-train-987654321", WORKFLOW, ("main", "wait"), uses=(900, 900)),
        ),
        {"Workflow/etl-abcde/main": Reason.SEVERAL_TEMPLATES, "Workflow/etl-abcde/wait": Reason.SEVERAL_TEMPLATES},
        {"Workflow/etl-abcde/main": 2},
    ),
    # links of the chain of owners
    "nothing tells who owns a Rollout's ReplicaSets": Case(
        lines(
            PodSpec("pay-7f6d5c4b8x-bcdfg", ("ReplicaSet", "pay-7f6d5c4b8x"), uses=(100, 900), until=MIDDLE),
            PodSpec(f"{ROLLOUT[1]}-bcdfg", ROLLOUT, since=MIDDLE),
        ),
        {f"ReplicaSet/{ROLLOUT[1]}/main": Reason.OWNER_UNKNOWN},
        {},
        "kube_replicaset_owner has no series",
    ),
    "nothing tells who owns a JobSet's Jobs": Case(
        lines(PodSpec("train-workers-0-0-bcdfg", ("Job", "train-workers-0"))),
        {"Job/train-workers-0/main": Reason.OWNER_UNKNOWN},
        {},
        "kube_job_owner has no series",
    ),
    "pods' information alone names their owners": Case(
        without(lines(PodSpec(f"{ROLLOUT[1]}-bcdfg", ROLLOUT), more=[link(*ROLLOUT, ("Rollout", "pay"))]),
                lambda x: x.metric == "kube_pod_owner"),
        {"Rollout/pay/main": 345},
        {"Rollout/pay/main": 1},
    ),
    # 900 MiB before the rollout: of a ReplicaSet that is gone the Deployment is known by its pods' names
    "the old ReplicaSet's link is gone": of_web(
        lines(
            PodSpec("web-6b8d4f5c7d-a", ("ReplicaSet", "web-6b8d4f5c7d"), uses=(100, 900), asks=LARGE, until=MIDDLE),
            *web(since=MIDDLE, asks=LARGE),
            more=[LINK],
        ),
        1035,
    ),
    # kube-state-metrics before 2.0, whose names are not read: the request of 1 core may be a target's
    "autoscalers by their old names": Case(
        [
            replace(x, metric=x.metric.replace("horizontalpodautoscaler", "hpa"))
            for x in lines(*web(), more=[LINK, *autoscaler("web", ("Deployment", "web"))])
        ],
        {"Deployment/web/main": Reason.AUTOSCALER_UNKNOWN},
        {"Deployment/web/main": 2},
        "autoscalers are unknown: kube-state-metrics is older than 2.0",
    ),
    "requests and limits by their old names": of_web(
        [
            replace(x, metric=f"{x.metric}_{x.labels['resource']}") if "_resource_" in x.metric else x for x in PLAIN
        ],
        Reason.AMOUNTS_UNKNOWN,
    ),
    # labels of usage
    "usage names no node": of_web(
        [
            replace(x, labels={k: v for k, v in x.labels.items() if k != "node"})
            if x.metric in (CPU, MEMORY) and "pod" in x.labels
            else x
            for x in PLAIN
        ],
        345,
    ),
    "usage calls the nodes by their short names": of_web(
        [replace(x, labels={**x.labels, "node": f"{x.labels['node']}.lan"}) if x.metric.startswith("kube_")
         and "node" in x.labels else x for x in PLAIN],
        345,
        says="series name nodes such as node-1, but the nodes have names such as node-1.lan",
    ),
    "kube-state-metrics alone names the cluster": of_web(
        [replace(x, labels={**x.labels, "cluster": "a"}) if x.metric.startswith("kube_") else x for x in PLAIN], 345
    ),
    "each core beside the total, by two exporters": of_web(changed(PLAIN, CPU, per_core_beside_total), 345),
    "a second owner that controls nothing": of_web(
        [
            *PLAIN,
            *(
                Line("kube_pod_owner", {"namespace": "shop", "pod": f"{WEB[1]}-bcdf{i}", "uid": f"uid-{WEB[1]}-bcdf{i}",
                                        "owner_kind": "Backup", "owner_name": "b", "owner_is_controller": "false"})
                for i in range(2)
            ),
        ],
        345,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """All clusters on one server."""
    with served(tmp_path_factory.mktemp("others"), {name: case.lines for name, case in CASES.items()}) as address:
        yield address


def request_of(scan: Found, name: str, resource: Resource = Resource.MEMORY) -> int | str:
    value = scan.recommendations[f"shop/{name}"].value(resource, Field.REQUEST)
    assert value is not None
    return value.amount if value.amount is not None else value.reason.value


@pytest.mark.parametrize("name", CASES)
def test_a_cluster_is_seen_as_it_is_or_what_is_missing_is_the_reason(name: str, url: str, tmp_path: Path) -> None:
    case, scan = CASES[name], scanned(url, name, tmp_path)
    for container, meant in case.amounts.items():
        right = pytest.approx(meant * MIB, rel=0.03) if isinstance(meant, int) else meant.value
        assert request_of(scan, container) == right, container
    for container, replicas in case.replicas.items():
        assert scan.recommendations[f"shop/{container}"].replicas == replicas, container
    assert case.says in scan.notes


def test_the_cpu_of_both_exporters_is_counted_once(url: str, tmp_path: Path) -> None:
    scan = scanned(url, "each core beside the total, by two exporters", tmp_path)
    # 200 m in all of the time, by both
    assert request_of(scan, "Deployment/web/main", Resource.CPU) == pytest.approx(220, rel=0.05)


def test_a_cluster_without_a_label_is_seen_where_the_server_answers_for_few_samples(tmp_path: Path) -> None:
    # A survey of several moments is too large for this server; at one moment a label that is new would look the same.
    labelled = [replace(x, labels={**x.labels, "cluster": "prod"}) for x in PLAIN]
    rules = Rules(most_seconds=60, too_long_span="query processing would load too many samples into memory")
    with served(tmp_path, {"two": [*PLAIN, *labelled]}) as address, StrictServer(address, rules) as strict:
        source = PrometheusSource(PrometheusSettings(url=strict.url, labels={LABEL: "two"}), "c")
        with pytest.raises(SourceUnfit, match=r"2 clusters, by the label cluster: \(none\), prod"):
            source.survey(TimeWindow(START, END))
        source.close()


def test_the_doctor_counts_pods_that_run_on_nodes_that_are_not_scraped(url: str) -> None:
    own = PrometheusSettings(url=url, labels={LABEL: "the kubelet of one node is not scraped"})
    findings = metrics.probes(ProfilerSettings(window_days=1, prometheus=own), FixedClock(END))
    (probe_finding,) = (finding for finding in findings if finding.probe == "prometheus inventory")
    assert "2 running pods have no usage, as if the node were not scraped (by node: node-2 2)" in probe_finding.found
    assert "every node's cAdvisor" in probe_finding.fix
