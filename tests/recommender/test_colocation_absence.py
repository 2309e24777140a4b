"""What a NodeMetric does not say is no zero: the matrix of missing, empty, zero, impossible and misdated reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from cotenant.base.cluster import Node, Pod
from cotenant.base.colocation.colocation_strategy import ColocationStrategy
from cotenant.base.colocation.nodemetric import NodeMetric
from cotenant.base.colocation.reclaim_policies import Band
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.intent import Apply, Intent, Patch
from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.base.reasons import Reason
from cotenant.base.resource import GIB, Resource
from cotenant.recommender.colocation.publish import publish
from cotenant.recommender.colocation.state import ColocationState
from cotenant.recommender.colocation.strategy import ColocationConfig

CPU, MEMORY = Resource.CPU, Resource.MEMORY
NOW, DEGRADE = 1_700_000_000.0, 900.0
BATCH_CPU, BATCH_MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
SIZE = {CPU: 32_000, MEMORY: 64 * GIB}


def strategy(policy: str = "usage", **fields: Any) -> ColocationStrategy:
    memory = fields.pop("memory_policy", policy)
    return ColocationStrategy(enable=True, cpu_policy=policy, memory_policy=memory, **fields)


def usage(cpu: str | None = None, memory: str | None = None) -> dict[str, Any]:
    return {"resources": {k: v for k, v in (("cpu", cpu), ("memory", memory)) if v is not None}}


def metric(node_metric: Any, at: float | None = NOW, pods: Any = ()) -> NodeMetric:
    status = {"nodeMetric": node_metric, "podsMetric": list(pods) if isinstance(pods, tuple) else pods}
    more = node_metric if isinstance(node_metric, dict) else {}
    status["hostApplicationMetric"] = more.get("hosts")
    status["prodReclaimableMetric"] = {"resource": more.get("prod")}
    if at is not None:
        status["updateTime"] = datetime.fromtimestamp(at, UTC).isoformat()
    return NodeMetric.parse({"metadata": {"name": "n"}, "status": status})


def colocation_state(
    report: NodeMetric | None,
    of: ColocationStrategy | None = None,
    published: Mapping[str, int] | None = None,
    pods: tuple[Pod, ...] = (),
) -> ColocationState:
    state = ColocationState(ColocationConfig(base=of or strategy()))
    now = dict(published or {})
    state.upsert_nodes([Node("n", SIZE, SIZE, extended_capacity=now, extended_allocatable=now)])
    state.upsert_pods(pods)
    if report is not None:
        state.report([report])
    return state


def reason_and_amount(
    state: ColocationState, resource: Resource, band: Band = Band.BATCH, now: float = NOW
) -> tuple[Reason, int]:
    message = state.compute(now)[band, resource].message(0)
    return message.reason, message.amount


def writes(state: ColocationState, now: float) -> list[Intent]:
    return publish(state.facts, state.strategies, state.compute(now), {}, now)


FULL = {"nodeUsage": usage("4", "8Gi"), "systemUsage": usage("1", "2Gi")}
INCOMPLETE = {
    "no nodeMetric": None,
    "empty nodeMetric": {},
    "null usages": {"nodeUsage": None, "systemUsage": None},
    "usages without resources": {"nodeUsage": {}, "systemUsage": {"resources": None}},
    "empty resources": {"nodeUsage": usage(), "systemUsage": usage()},
    "quantities that are none": {"nodeUsage": usage("much", "more"), "systemUsage": usage("?", "-1Gi")},
    "zeros, as of a machine that no kubelet runs on": {"nodeUsage": usage("0", "0"), "systemUsage": usage("0", "0")},
    "less than nothing, rounded": {"nodeUsage": usage("0n", "0Ki"), "systemUsage": usage("0", "0")},
    "negative": {"nodeUsage": usage("-4", "-8Gi"), "systemUsage": usage("-1", "-1")},
}


@pytest.mark.parametrize("node_metric", INCOMPLETE.values(), ids=INCOMPLETE)
@pytest.mark.parametrize("policy", ["usage", "maxUsageRequest", "forecast"])
@pytest.mark.parametrize("resource", Resource)
def test_a_report_without_usage_is_a_reason_and_lends_nothing(
    node_metric: Any, policy: str, resource: Resource
) -> None:
    assert reason_and_amount(colocation_state(metric(node_metric), strategy(policy)), resource) == (
        Reason.METRIC_INCOMPLETE,
        0,
    )


def test_what_is_reported_of_one_resource_alone_is_lent_of_that_one() -> None:
    state = colocation_state(metric({"systemUsage": usage("1")}))
    # 32000 m x 60 % = 19200, less 1000 of the system; of memory nobody knows what is used
    assert reason_and_amount(state, CPU) == (Reason.OK, 18_200)
    assert reason_and_amount(state, MEMORY) == (Reason.METRIC_INCOMPLETE, 0)


def test_no_cpu_time_at_all_was_not_measured() -> None:
    """Pods and a kubelet run there: a node that used no CPU in five minutes is one of which nobody measured it."""
    pods = ({"namespace": "ns", "name": "p", "podUsage": usage("3", "1Gi"), "priority": "koord-prod"},)
    silent = metric({"nodeUsage": usage("0", "8Gi"), "systemUsage": usage("0", "2Gi")}, pods=pods)
    assert reason_and_amount(colocation_state(silent), CPU) == (Reason.METRIC_INCOMPLETE, 0)
    # but the system may use nothing that its rounding shows, where the whole is told: 32000 m x 60 %
    assert reason_and_amount(
        colocation_state(metric({"nodeUsage": usage("4", "8Gi"), "systemUsage": usage("0", "2Gi")})), CPU
    ) == (
        Reason.OK,
        19_200,
    )


def test_no_bytes_at_all_were_not_measured() -> None:
    assert reason_and_amount(
        colocation_state(metric({"nodeUsage": usage("4", "0"), "systemUsage": usage("1", "0")})), MEMORY
    ) == (
        Reason.METRIC_INCOMPLETE,
        0,
    )


def test_the_systems_use_is_the_rest_of_the_whole_where_it_is_not_reported() -> None:
    pods = ({"namespace": "ns", "name": "p", "podUsage": usage("1", "1Gi"), "priority": "koord-prod"},)
    # 19200 - (4000 - 1000) - 1000: the node's four cores count, whoever uses them
    assert reason_and_amount(colocation_state(metric({"nodeUsage": usage("4", "8Gi")}, pods=pods)), CPU) == (
        Reason.OK,
        15_200,
    )


def test_memory_by_requests_alone_needs_no_usage() -> None:
    state = colocation_state(metric({}), strategy("usage", memory_policy="request"))
    assert reason_and_amount(state, MEMORY) == (Reason.OK, int(64 * GIB - int(64 * GIB * 0.35)))


BEYOND = {
    "1,484 cores": ({"nodeUsage": usage("1484", "8Gi"), "systemUsage": usage("1", "2Gi")}, (), CPU),
    "the system alone": ({"nodeUsage": usage("4", "8Gi"), "systemUsage": usage("39", "2Gi")}, (), CPU),
    "memory": ({"nodeUsage": usage("4", "900Gi"), "systemUsage": usage("1", "2Gi")}, (), MEMORY),
    "a pod above its node": (FULL, ({"namespace": "ns", "name": "p", "podUsage": usage("40", "1Gi")},), CPU),
    "pods that are each possible and all together not": (  # 10 x 10 cores on 32
        FULL,
        tuple({"namespace": "ns", "name": f"p{i}", "podUsage": usage("10", "1Gi")} for i in range(10)),
        CPU,
    ),
    "the memory of all pods together": (  # 3 x 40 GiB on 64
        FULL,
        tuple({"namespace": "ns", "name": f"p{i}", "podUsage": usage("1", "40Gi")} for i in range(3)),
        MEMORY,
    ),
    "a host application": (FULL | {"hosts": [{"name": "h", "usage": usage("39", "1Gi")}]}, (), CPU),
    # 1,484 cores of 32 that prod would have requested: mid pods would get all that is idle
    "what prod will not use": (FULL | {"prod": usage("1484", "1Gi")}, (), CPU),
    "the memory that prod will not use": (FULL | {"prod": usage("1", "900Gi")}, (), MEMORY),
    "a pod's memory above its node": (
        FULL,
        ({"namespace": "ns", "name": "p", "podUsage": usage("1", "80Gi")},),
        MEMORY,
    ),
}


@pytest.mark.parametrize(("node_metric", "pods", "resource"), BEYOND.values(), ids=BEYOND)
@pytest.mark.parametrize("band", Band)
def test_usage_beyond_the_node_is_a_fault_of_its_source(
    node_metric: Any, pods: Any, resource: Resource, band: Band
) -> None:
    state = colocation_state(metric(node_metric, pods=pods))
    assert reason_and_amount(state, resource, band) == (Reason.METRIC_IMPLAUSIBLE, 0)
    other = MEMORY if resource is CPU else CPU
    assert reason_and_amount(state, other, band)[0] is Reason.OK


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        (None, Reason.METRIC_MISSING),
        (NOW - DEGRADE - 1, Reason.METRIC_EXPIRED),
        (NOW - DEGRADE, Reason.OK),
        (NOW + 120, Reason.OK),  # what clocks differ by
        (NOW + 121, Reason.METRIC_AHEAD),
        (NOW + 10 * 365 * 86_400, Reason.METRIC_AHEAD),
    ],
)
def test_the_time_of_a_report(at: float | None, reason: Reason) -> None:
    assert reason_and_amount(colocation_state(metric(FULL, at)), CPU)[0] is reason


PUBLISHED = {BATCH_CPU: 5000, BATCH_MEMORY: 8 * GIB, "kubernetes.io/mid-cpu": 0, "kubernetes.io/mid-memory": 0}
USELESS = {
    "ahead": metric(FULL, NOW + 3600),
    "implausible": metric({"nodeUsage": usage("1484", "900Gi"), "systemUsage": usage("1", "2Gi")}),
}


@pytest.mark.parametrize("report", USELESS.values(), ids=USELESS)
def test_a_useless_report_changes_nothing_at_first_and_is_as_none_when_it_lasts(report: NodeMetric) -> None:
    state = colocation_state(report, published=PUBLISHED)
    assert writes(state, NOW) == []
    state.report([later(report, DEGRADE)])
    assert writes(state, NOW + DEGRADE) == []
    state.report([later(report, DEGRADE + 1)])
    (withdrawal,) = writes(state, NOW + DEGRADE + 1)
    assert isinstance(withdrawal, Patch)
    # all four resources, of capacity and of allocatable
    assert len(withdrawal.operations) == 8


def later(report: NodeMetric, seconds: float) -> NodeMetric:
    assert report.update_seconds is not None
    return replace(report, update_seconds=report.update_seconds + seconds)


def test_a_good_report_in_between_ends_the_doubt() -> None:
    state = colocation_state(USELESS["implausible"], published=PUBLISHED)
    assert writes(state, NOW) == []
    state.report([metric(FULL, NOW + 600)])
    (write,) = writes(state, NOW + 600)
    assert isinstance(write, Apply)
    state.report([later(USELESS["implausible"], 901)])
    assert writes(state, NOW + 901) == []  # doubted since now, not since NOW


def test_of_one_resource_in_doubt_the_other_is_written_and_then_that_one_alone_is_taken_away() -> None:
    report = metric({"systemUsage": usage("1")})
    state = colocation_state(report, published=PUBLISHED)
    (write,) = writes(state, NOW)
    assert isinstance(write, Apply)
    lent = write.body["status"]["allocatable"]
    assert (lent[BATCH_CPU], lent[BATCH_MEMORY]) == ("18200", str(8 * GIB))
    state.report([later(report, DEGRADE + 1)])
    (withdrawal,) = writes(state, NOW + DEGRADE + 1)
    assert isinstance(withdrawal, Patch)
    assert [str(operation["path"]) for operation in withdrawal.operations] == [
        f"/status/{part}/kubernetes.io~1batch-memory" for part in ("capacity", "allocatable")
    ]


def test_a_node_that_lends_nothing_yet_gets_nothing_by_a_useless_report() -> None:
    for report in USELESS.values():
        assert writes(colocation_state(report), NOW) == []


# ---- what a mid pod asks for ----------------------------------------------------------------------------------------


def pod(priority: PriorityClass, qos: QosClass = QosClass.LS, **amounts: int) -> Pod:
    own = {CPU: amounts.get("cpu", 0), MEMORY: amounts.get("memory", 0)}
    mid = {CPU: amounts.get("mid_cpu", 0), MEMORY: amounts.get("mid_memory", 0)}
    ref = WorkloadRef("ns", "Deployment", "w")
    return Pod("ns", "p", ref, "n", 0, qos=qos, priority=priority, requests=own, mid_requests=mid)


ASKED = {
    "mid by its own resources": (pod(PriorityClass.MID, mid_cpu=3000, mid_memory=GIB), 3000),
    "mid by cpu, without the webhook": (pod(PriorityClass.MID, cpu=3000, memory=GIB), 3000),
    "mid by both: two containers": (pod(PriorityClass.MID, cpu=1000, mid_cpu=3000), 4000),
    "no class, by mid resources": (pod(PriorityClass.NONE, QosClass.NONE, mid_cpu=3000), 3000),
    "prod": (pod(PriorityClass.PROD, cpu=3000), 3000),
    "batch": (pod(PriorityClass.BATCH, QosClass.BE, cpu=3000, mid_cpu=3000), 0),
    "free": (pod(PriorityClass.FREE, cpu=3000, mid_cpu=3000), 0),
}


@pytest.mark.parametrize(("unmeasured_pod", "millicores"), ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("policy", ["usage", "maxUsageRequest"])
def test_a_pod_that_is_not_measured_counts_with_all_that_it_asks_for(
    unmeasured_pod: Pod, millicores: int, policy: str
) -> None:
    # 19200 - 1000 of the system - what the pod asks for
    assert reason_and_amount(colocation_state(metric(FULL), strategy(policy), pods=(unmeasured_pod,)), CPU) == (
        Reason.OK,
        18_200 - millicores,
    )


def test_a_pod_of_which_all_is_zero_was_not_measured_and_counts_with_its_request() -> None:
    """A sandbox whose runtime reports nothing: 19200 - 1000 of the system - the 3000 that it asks for."""
    own = pod(PriorityClass.PROD, cpu=3000, memory=GIB)

    def lent(cpu: str, memory: str) -> tuple[Reason, int]:
        row = {"namespace": "ns", "name": "p", "podUsage": usage(cpu, memory), "priority": "koord-prod"}
        return reason_and_amount(colocation_state(metric(FULL, pods=(row,)), pods=(own,)), CPU)

    assert lent("0", "0") == (Reason.OK, 15_200)
    # one that is measured, and slept, used none
    assert lent("0", "1Gi") == (Reason.OK, 18_200)


def test_by_requests_a_mid_pod_counts_with_its_memory_and_by_the_larger_of_both_with_its_cpu() -> None:
    mid_pod = pod(PriorityClass.MID, mid_cpu=3000, mid_memory=4 * GIB)
    pods = ({"namespace": "ns", "name": "p", "podUsage": usage("500m", "1Gi"), "priority": "koord-mid"},)
    state = colocation_state(
        metric(FULL, pods=pods), strategy("maxUsageRequest", memory_policy="request"), pods=(mid_pod,)
    )
    assert reason_and_amount(state, CPU) == (Reason.OK, 18_200 - 3000)
    assert reason_and_amount(state, MEMORY) == (Reason.OK, 64 * GIB - int(64 * GIB * 0.35) - 4 * GIB)


def test_what_mid_may_have_is_not_lessened_by_what_mid_has() -> None:
    """The scheduler takes mid pods' requests off the mid resources; only prod's own lessen what may be published."""
    of = strategy(mid_unallocated_percent=100)
    asks = pod(PriorityClass.NONE, QosClass.NONE, mid_cpu=3000)
    # 32000 - 1000 of the system: a pod without a class that asks for mid-cpu asks for nothing that prod has
    assert reason_and_amount(colocation_state(metric(FULL), of, pods=(asks,)), CPU, Band.MID) == (Reason.OK, 31_000)
