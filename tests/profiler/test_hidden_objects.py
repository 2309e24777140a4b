"""LimitRanges, autoscalers and annotations of which kube-state-metrics shows nothing: what is known of them.

One real Prometheus holds every variant of a small cluster; each is scanned and assessed as `cotenant scan` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cotenant.base.process.clock import FixedClock
from cotenant.base.reasons import Reason
from cotenant.base.resource import MIB, Resource
from cotenant.cli.cluster.probes import metrics
from cotenant.cli.cluster.probes.outcome import ProbeFinding, ProbeState
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
    declared,
    link,
    node,
    scanned,
    served,
    stale,
)

pytestmark = pytest.mark.prometheus

WEB, API = ("ReplicaSet", "web-6b8d4f5c7d"), ("ReplicaSet", "api-7d9c5b4f8x")
PLAIN: tuple[Line, ...] = (
    *(line for i in range(2) for line in PodSpec(f"{WEB[1]}-bcdf{i}", WEB).lines()),
    *PodSpec(f"{API[1]}-bcdfg", API, namespace="pay").lines(),
    *PodSpec("db-0", ("StatefulSet", "db")).lines(),
    *PodSpec("logs-bcdfg", ("DaemonSet", "logs")).lines(),
    link(*WEB, ("Deployment", "web")),
    link(*API, ("Deployment", "api"), namespace="pay"),
    *node(),
    Line("kube_namespace_created", {"namespace": "kube-system"}, START - 30 * 86400.0),
)
RANGES = tuple(
    Line(
        "kube_limitrange",
        {"namespace": "shop", "limitrange": "l", "type": kind, "constraint": side, "resource": resource},
        amount,
    )
    for kind, side, resource, amount in (
        ("Container", "min", "memory", 500.0 * MIB),
        ("PersistentVolumeClaim", "max", "storage", 2.0**40),
    )
)
RANGE_CREATED = Line("kube_limitrange_created", {"namespace": "shop", "limitrange": "l"}, START - 86400.0)
SCALER_CREATED = Line(
    "kube_horizontalpodautoscaler_created", {"namespace": "shop", "horizontalpodautoscaler": "web"}, START - 86400.0
)


def counted(metric: str, resource: str, count: float, server: str = "a", **more: str) -> Line:
    """How many objects of a kind an API server says that it stores."""
    return Line(metric, {"namespace": "default", "instance": server, "resource": resource, **more}, count)


def counts(ranges: float, scalers: float) -> tuple[Line, ...]:
    """Both, as an API server of 1.34 or later has them."""
    metric = "apiserver_resource_objects"
    return (
        counted(metric, "limitranges", ranges),
        counted(metric, "horizontalpodautoscalers", scalers, group="autoscaling"),
        counted(metric, "pods", 5),
    )


NOTED = START - 2 * 86400
ANNOTATED = tuple(
    replace(line, since=NOTED, until=NOTED + 3600) if line.metric.endswith("_annotations") else line
    for line in (*declared("deployment", "web", min_memory="700Mi"), *declared("deployment", "old"))
)
"""Annotations that were told for an hour, two days ago."""
VARIANTS: dict[str, tuple[Line, ...]] = {
    "nothing told": PLAIN,
    "bounds told": (*PLAIN, *RANGES, RANGE_CREATED, *autoscaler("web", ("Deployment", "web"))),
    "bounds told, and counted": (*PLAIN, *RANGES, RANGE_CREATED, SCALER_CREATED,
                                 *autoscaler("web", ("Deployment", "web")), *counts(1, 1)),
    "bounds dropped": (*PLAIN, RANGE_CREATED, *counts(1, 0)),
    "bounds of one dropped": (*PLAIN, *RANGES, RANGE_CREATED,
                              replace(RANGE_CREATED, labels={"namespace": "pay", "limitrange": "other"})),
    "LimitRanges left out": (*PLAIN, *counts(2, 0)),
    "LimitRanges left out, 1.30": (*PLAIN, counted("apiserver_storage_objects", "limitranges", 2),
                                   counted("apiserver_storage_objects", "horizontalpodautoscalers.autoscaling", 0)),
    "LimitRanges left out, 1.19": (*PLAIN, counted("etcd_object_counts", "limitranges", 2)),
    "autoscalers left out": (*PLAIN, *counts(0, 3)),
    "autoscalers left out, 1.30": (
        *PLAIN, counted("apiserver_storage_objects", "horizontalpodautoscalers.autoscaling", 3),
        counted("apiserver_storage_objects", "limitranges", 0),
    ),
    "there are none": (*PLAIN, *counts(0, 0)),
    "counting failed": (*PLAIN, *counts(-1, -1)),
    "one server has just started": (*PLAIN, *counts(0, 0), *(
        replace(line, labels={**line.labels, "instance": "b"}) for line in counts(2, 2)
    )),
    "some not shown": (*PLAIN, *RANGES, RANGE_CREATED, SCALER_CREATED, *autoscaler("web", ("Deployment", "web")),
                       *counts(4, 1)),
    "annotations of two days ago": (*PLAIN, *ANNOTATED),
    "annotations now": (*PLAIN, *declared("deployment", "web", min_memory="700Mi")),
    "annotations of hours ago": tuple(stale(
        (*PLAIN, *declared("deployment", "web", min_memory="700Mi")), "kube_deployment_annotations"
    )),
}  # fmt: skip


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """All variants on one server."""
    with served(tmp_path_factory.mktemp("hidden"), VARIANTS) as address:
        yield address


def request_of(scan: Found, workload: str, resource: Resource = Resource.MEMORY) -> int | str:
    """The proposed request, or why there is none."""
    value = scan.recommendations[f"{workload}/main"].value(resource, Field.REQUEST)
    assert value is not None
    return value.amount if value.amount is not None else value.reason.value


LOW = int(300 * MIB * 1.15)
"""300 MiB were used at most, and 15 % are put on top."""


@pytest.mark.parametrize(
    ("variant", "web", "api", "says"),
    [
        # Nothing tells whether there are any: it is said, and nothing is withheld of everybody.
        ("nothing told", LOW, LOW, "it is not known whether LimitRanges or autoscalers exist"),
        ("counting failed", LOW, LOW, "it is not known whether LimitRanges or autoscalers exist"),
        # 500 MiB at least in the namespace shop.
        ("bounds told", 500 * MIB, LOW, ""),
        ("bounds told, and counted", 500 * MIB, LOW, ""),
        # The object is known and its bounds are not: in its namespace alone.
        ("bounds dropped", Reason.LIMIT_RANGE_UNKNOWN, LOW, ""),
        ("bounds of one dropped", 500 * MIB, Reason.LIMIT_RANGE_UNKNOWN, "it is not known whether autoscalers exist"),
        # There are some, and nothing tells where.
        ("LimitRanges left out", Reason.LIMIT_RANGE_UNKNOWN, Reason.LIMIT_RANGE_UNKNOWN, "stores 2 LimitRanges"),
        ("LimitRanges left out, 1.30", Reason.LIMIT_RANGE_UNKNOWN, Reason.LIMIT_RANGE_UNKNOWN, "shows 0 of them"),
        ("LimitRanges left out, 1.19", Reason.LIMIT_RANGE_UNKNOWN, Reason.LIMIT_RANGE_UNKNOWN, "autoscalers exist"),
        ("one server has just started", Reason.LIMIT_RANGE_UNKNOWN, Reason.LIMIT_RANGE_UNKNOWN, "2 autoscalers"),
        ("autoscalers left out", Reason.AUTOSCALER_UNKNOWN, Reason.AUTOSCALER_UNKNOWN, "stores 3 autoscalers"),
        ("autoscalers left out, 1.30", Reason.AUTOSCALER_UNKNOWN, Reason.AUTOSCALER_UNKNOWN, "stores 3 autoscalers"),
        ("there are none", LOW, LOW, ""),
        ("some not shown", 500 * MIB, LOW, "stores 4 LimitRanges"),
    ],
)
def test_objects_that_are_not_shown_are_none_only_where_that_is_known(
    variant: str, web: int | str, api: int | str, says: str, url: str, tmp_path: Path
) -> None:
    scan = scanned(url, variant, tmp_path)
    for workload, meant in (("shop/Deployment/web", web), ("pay/Deployment/api", api)):
        amount = request_of(scan, workload)
        assert amount == (pytest.approx(meant, rel=0.05) if isinstance(meant, int) else meant), workload
    noted = [note for note in scan.history.inventory.notes if "LimitRanges" in note or "autoscalers" in note]
    assert bool(noted) == bool(says)
    assert says in "\n".join(noted)


def test_what_no_autoscaler_can_scale_is_proposed_where_autoscalers_are_left_out(url: str, tmp_path: Path) -> None:
    scan = scanned(url, "autoscalers left out", tmp_path)
    assert request_of(scan, "shop/DaemonSet/logs") == pytest.approx(LOW, rel=0.05)
    assert request_of(scan, "shop/StatefulSet/db") == Reason.AUTOSCALER_UNKNOWN


@pytest.mark.parametrize(
    ("variant", "days", "amount"),
    [
        ("annotations now", 1, 700 * MIB),
        ("annotations of hours ago", 1, 700 * MIB),
        # Deployments always have a series: those of two days ago were not taken away, they are exported no more.
        ("annotations of two days ago", 3, 700 * MIB),
        # Beyond the window nothing is read.
        ("annotations of two days ago", 1, LOW),
    ],
)
def test_annotations_hold_as_they_were_last_told_in_the_window(
    variant: str, days: int, amount: int, url: str, tmp_path: Path
) -> None:
    scan = scanned(url, variant, tmp_path, days)
    assert request_of(scan, "shop/Deployment/web") == pytest.approx(amount, rel=0.05)
    if days > 1:
        assert "kube_deployment_annotations: no series now" in scan.notes
        assert "2026-11-17" in scan.notes  # two days before START, of 19 November
        # created since then, or never told of: unknown
        assert request_of(scan, "pay/Deployment/api") == Reason.ANNOTATIONS_UNKNOWN


@pytest.mark.parametrize(
    ("variant", "state", "says"),
    [
        ("nothing told", ProbeState.WARNING, "whether LimitRanges or autoscalers exist"),
        ("LimitRanges left out", ProbeState.WARNING, "stores 2 LimitRanges"),
        ("annotations now", ProbeState.WARNING, "annotations of DaemonSets, StatefulSets are unknown"),
    ],
)
def test_the_doctor_says_what_prometheus_alone_does_not_tell(
    variant: str, state: ProbeState, says: str, url: str
) -> None:
    def found(alone: bool) -> list[ProbeFinding]:
        own = ProfilerSettings(window_days=1, prometheus=PrometheusSettings(url=url, labels={LABEL: variant}))
        findings = metrics.probes(own, FixedClock(END), alone=alone)
        return [probe_finding for probe_finding in findings if probe_finding.probe == "prometheus bounds"]

    (finding,) = found(alone=True)
    assert (finding.state, "deploy/rbac/reader.yaml" in finding.fix) == (state, True)
    assert says in finding.found
    assert found(alone=False) == []  # a scan reads the Kubernetes API
