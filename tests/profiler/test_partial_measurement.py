"""What is measured of a part speaks for that part alone: nothing is lowered on it, and the part is named.

One real Prometheus holds every variant of two pods of one workload on two nodes; each is scanned and assessed as
`cotenant scan` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest

from cotenant.base.cluster import Container, Node, Pod, PodPhase
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube.live import LiveCluster
from cotenant.base.reasons import Reason
from cotenant.base.resource import GIB, Resource
from cotenant.recommender.model.recommendation import Action, Field
from tests.support.kube_series import NODE, START, Found, Line, PodSpec, link, node, scanned, served

pytestmark = [pytest.mark.slow, pytest.mark.prometheus]

CPU, MEMORY = "container_cpu_usage_seconds_total", "container_memory_working_set_bytes"
HOUR, OTHER = 3600, "node-2"
OWNER = ("ReplicaSet", "web-5c9f7d8b6f")
RUN = "web-29917440"
FIRST, SECOND = f"{OWNER[1]}-bcdfg", f"{OWNER[1]}-hjklm"
PART, NODE_MORE, LOW = Reason.PART_UNMEASURED, Reason.NODE_USES_MORE, Reason.LOW_COVERAGE
NEVER = Reason.UNMEASURED


def pods(
    node_uses: tuple[float, float] = (0.5, 4096), kind: str = "Deployment", containers: Sequence[str] = ("main",)
) -> list[Line]:
    """Two pods of 1000m and 1 GiB, on a node each, that use 100m and 200 MiB; node_uses: of the second one."""
    owner = {"Deployment": OWNER, "CronJob": ("Job", RUN)}.get(kind, (kind, "web"))
    first = PodSpec(FIRST, owner, uses=(100, 200), containers=containers)
    specs = (first, replace(first, name=SECOND, node=OTHER))
    links = (link(*OWNER, ("Deployment", "web")), link("Job", RUN, ("CronJob", "web")))
    return [*(line for spec in specs for line in spec.lines()), *links, *node(), *node(OTHER, uses=node_uses)]


def told_by_the_api(variant: str) -> LiveCluster:
    """The two pods of a variant and their nodes, as the API server lists them."""
    kind = variant.partition("'s pod ")[0] if "'s pod " in variant else "Deployment"
    workload = WorkloadRef("shop", kind, "web")
    requested = {Resource.CPU: 1000, Resource.MEMORY: GIB}
    names = ("main", "side") if "one container" in variant else ("main",)
    size = {Resource.CPU: 16_000, Resource.MEMORY: 64 * GIB}
    pod_requests = {resource: amount * len(names) for resource, amount in requested.items()}
    places = ((FIRST, NODE), (SECOND, OTHER))
    return LiveCluster(
        nodes=tuple(Node(name, size, size) for _, name in places),
        pods=tuple(
            Pod("shop", pod, workload, place, START, requests=pod_requests, phase=PodPhase.RUNNING)
            for pod, place in places
        ),
        containers={
            ("shop", pod): tuple(Container(name, requested, {Resource.MEMORY: GIB}) for name in names)
            for pod, _ in places
        },
        autoscalers={},
        limit_ranges=(),
        quotas=(),
    )


def of_second(line: Line) -> bool:
    return line.metric in (CPU, MEMORY) and line.labels.get("pod") == SECOND


def of_other_node(line: Line) -> bool:
    return of_second(line) or (line.metric in (CPU, MEMORY) and line.labels.get("node") == OTHER)


def of_main(line: Line) -> bool:
    return of_second(line) and line.labels["container"] == "main"


def of_all(line: Line) -> bool:
    return line.metric in (CPU, MEMORY)


def doubled(lines: Sequence[Line], which: Callable[[Line], bool]) -> list[Line]:
    """The lines, those chosen as a second replica of the server tells them, too."""
    return [*lines, *(replace(x, labels={**x.labels, "replica": "b"}) for x in lines if which(x))]


def cut(lines: Sequence[Line], which: Callable[[Line], bool], *spans: tuple[float, float]) -> list[Line]:
    """The lines, those chosen in these spans of hours alone; counters go on between them."""
    return [
        replace(x, since=START + round(begin * HOUR), until=START + round(end * HOUR), shape=_on(x)) if which(x) else x
        for x in lines
        for begin, end in (spans if which(x) else ((0.0, 0.0),))
    ]


def _on(line: Line) -> Callable[[int], float]:
    return lambda at: line.value * at if line.counter else line.value


def stuck(lines: Sequence[Line], which: Callable[[Line], bool], begin: int, end: int) -> list[Line]:
    """The lines, the counters of those chosen as they were at an hour until a later one."""

    def frozen(x: Line) -> Callable[[int], float]:
        return lambda at: x.value * (7 + (begin * HOUR if begin * HOUR <= at < end * HOUR else at))

    return [replace(x, shape=frozen(x)) if x.metric == CPU and which(x) else x for x in lines]


BUSY = (3.5, 4096)
VARIANTS: dict[str, tuple[list[Line], Reason | None, Reason | None, float, str]] = {
    # lines, why CPU and memory are not lowered, the share measured of both pods' 8 hours, and the part that is named
    "whole": (pods(), None, None, 1.0, ""),
    "pod ended": (cut(pods(), of_second, (0, 3)), PART, PART, 11 / 16, SECOND),
    "pod began": (cut(pods(), of_second, (5, 8)), PART, PART, 11 / 16, SECOND),
    "pod paused": (cut(pods(), of_second, (0, 2), (6, 8)), PART, PART, 12 / 16, SECOND),
    "node ended": (cut(pods(), of_other_node, (0, 3)), PART, PART, 11 / 16, OTHER),
    "node began": (cut(pods(), of_other_node, (5, 8)), PART, PART, 11 / 16, OTHER),
    "node paused": (cut(pods(), of_other_node, (0, 2), (6, 8)), PART, PART, 12 / 16, OTHER),
    "cluster paused": (
        cut(pods(), of_all, (0, 3), (5, 8)), LOW, LOW, 6 / 8, "pods were measured in",
    ),
    "cluster began": (cut(pods(), of_all, (3, 8)), None, None, 1.0, ""),  # a shorter history, and whole
    "pod never": (cut(pods(), of_second), NEVER, NEVER, 1 / 2, SECOND),
    "node never": (cut(pods(), of_other_node), NEVER, NEVER, 1 / 2, OTHER),
    **{
        f"{kind}'s pod {name}": (cut(pods(kind=kind), of_second, *spans), why, why, share, SECOND)
        for kind in ("StatefulSet", "DaemonSet", "Job", "CronJob")
        for name, spans, why, share in (
            ("never", [], NEVER, 1 / 2), ("ended", [(0, 3)], PART, 11 / 16), ("began", [(5, 8)], PART, 11 / 16),
            ("paused", [(0, 2), (6, 8)], PART, 12 / 16),
        )
    },
    **{
        f"{kind}'s pod stuck": (
            stuck(pods(BUSY, kind), of_second, 3, 9), NODE_MORE, NODE_MORE, 1.0, OTHER,
        )
        for kind in ("StatefulSet", "DaemonSet", "Job", "CronJob")
    },
    **{
        f"one container of the pod {name}": (
            cut(pods(containers=("main", "side")), of_main, *spans), PART, PART, share, SECOND,
        )
        for name, spans, share in (
            ("never", [], 1 / 2), ("ended", [(0, 3)], 11 / 16), ("began", [(5, 8)], 11 / 16),
            ("paused", [(0, 2), (6, 8)], 12 / 16),
        )
    },
    "one container of the pod stuck": (
        stuck(pods(BUSY, containers=("main", "side")), of_main, 3, 9), NODE_MORE, NODE_MORE, 1.0, OTHER,
    ),
    "one container of the pod doubled": (doubled(pods(containers=("main", "side")), of_main), None, None, 1.0, ""),
    "pod doubled": (doubled(pods(), of_second), None, None, 1.0, ""),
    "node doubled": (doubled(pods(), of_other_node), None, None, 1.0, ""),
    "cluster doubled": (doubled(pods(), of_all), None, None, 1.0, ""),
    "half an hour is lost": (cut(pods(), of_second, (0, 4), (4.5, 8)), None, None, 15.5 / 16, ""),
    "counter stuck from the third hour on": (
        stuck(pods(node_uses=BUSY), of_second, 3, 9), NODE_MORE, NODE_MORE, 1.0, OTHER,
    ),
    # 1.6 cores less 0.25 and 2 % of 16 cores of a system: 1030m, of 1000m that the pod asks for
    "counter stuck for four hours": (
        stuck(pods(node_uses=(1.6, 4096)), of_second, 2, 6), NODE_MORE, NODE_MORE, 1.0, OTHER,
    ),
    "counter stuck, an idle node": (stuck(pods(), of_second, 0, 9), None, None, 1.0, ""),
    "counter stuck, a busy node": (stuck(pods(node_uses=BUSY), of_second, 0, 9), NODE_MORE, NODE_MORE, 1.0, OTHER),
    "the node uses four cores that nobody shows": (pods(node_uses=(4.1, 4096)), NODE_MORE, NODE_MORE, 1.0, OTHER),
    "the node holds 30 GiB that nobody shows": (pods(node_uses=(0.5, 31000)), None, NODE_MORE, 1.0, OTHER),
}  # fmt: skip


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, bool], Found]]:
    lines = {name: lines for name, (lines, *_) in VARIANTS.items()}
    with served(tmp_path_factory.mktemp("parts"), lines) as url:
        yield lambda variant, api: scanned(
            url, variant, tmp_path_factory.mktemp("store"), live=told_by_the_api(variant) if api else None
        )


@pytest.mark.parametrize("api", [False, True], ids=["", "with the API"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_part_of_the_measurement_lowers_nothing_of_the_whole_and_is_named(
    variant: str, api: bool, scans: Callable[[str, bool], Found]
) -> None:
    _, cpu, memory, share, phrase = VARIANTS[variant]
    recommendation = next(
        advice for name, advice in scans(variant, api).recommendations.items() if name.endswith("/web/main")
    )
    for resource, reason in ((Resource.CPU, cpu), (Resource.MEMORY, memory)):
        value = recommendation.value(resource, Field.REQUEST)
        assert value is not None
        if reason is None:  # a tenth of 1000m and a fifth of 1 GiB are used
            assert value.action is Action.SET and (value.change or 0) < 0, resource
        else:
            assert (value.action, value.reason) == (Action.WITHHELD, reason), resource
        # an hour of the listing at the edge of a life is not counted: it may be a pod's last one
        assert float(value.inputs["coverage"]) == pytest.approx(share, abs=0.06)
    text = "\n".join(recommendation.notes)
    assert phrase in text
    assert bool(text) is bool(phrase)
