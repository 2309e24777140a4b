"""Findings are made where the evidence carries them, with their figures, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.cluster import Container, ContainerRole, Inventory, Node, Pod, Workload, pod_amount
from cotenant.base.identity import ContainerRef, NodeRef, WorkloadRef
from cotenant.base.kube.seen_pods import Workloads, pod_of, seen_pod
from cotenant.base.kubernetes.models.pod import PodObject
from cotenant.base.kubernetes.qos import QosClass
from cotenant.base.reasons import Reason
from cotenant.base.resource import GIB, MIB, Resource
from cotenant.base.severity import Severity
from cotenant.base.table import Table
from cotenant.base.usage.usage import DAY_SECONDS, Signal, TimeGrid, Usage
from cotenant.recommender.findings import (
    find,
    idle_nodes,
    idle_workloads,
    leak_findings,
    missing_value_findings,
    rows,
    uneven_usage_findings,
    unschedulable,
)
from cotenant.recommender.model.finding import FINDING_SENTENCES, ClusterFinding, FindingKind
from cotenant.recommender.model.views import FINDINGS
from cotenant.recommender.settings import CotenantSettings, FindingSettings
from tests.support.evidence import END, STEP, Case, evidence_of

CPU, MEMORY = Resource.CPU, Resource.MEMORY
SETTINGS = FindingSettings()
WEEK = 7 * DAY_SECONDS // STEP
ASKED = {CPU: 500, MEMORY: GIB}
GRID = TimeGrid(END - 7 * DAY_SECONDS, STEP, WEEK)


def quiet(millicores: float = 1.0, slots: int = WEEK, pods: int = 1) -> Any:
    return np.full((pods, slots), float(millicores))


# --- idle workloads ---


def test_a_workload_that_never_used_more_than_the_threshold_is_idle_with_its_figures() -> None:
    evidence = evidence_of(Case("old", cpu=quiet(3), memory=quiet(64 * MIB), requests=ASKED, limits=ASKED, replicas=2))
    (finding,) = idle_workloads(evidence, SETTINGS)
    assert (finding.kind, finding.severity) == (FindingKind.IDLE_WORKLOAD, Severity.WARNING)
    # two pods ask for 500m and 1 GiB each; the highest 5 minutes of one were 3m of 5m allowed
    assert finding.evidence["cpu_requested_millicores"] == 1000
    assert finding.evidence["memory_requested_bytes"] == 2 * GIB
    assert finding.freed == {CPU: 1000, MEMORY: 2 * GIB}
    assert finding.evidence["cpu_max_of_a_pod_millicores"] == 3
    assert finding.evidence["threshold_millicores"] == 5


def test_an_idle_workload_whose_amounts_are_not_known_frees_nothing_that_is_told() -> None:
    evidence = evidence_of(Case("old", cpu=quiet(3), requests={CPU: 100_000}))
    doubted = replace(evidence.workloads[0], gaps=(Reason.AMOUNTS_UNKNOWN,))
    (finding,) = idle_workloads(replace(evidence, workloads=(doubted,)), SETTINGS)
    # 100 cores that a node of 16 has not given: without them nothing says how much is lost
    assert (finding.freed, finding.severity) == ({}, Severity.OK)
    assert not [name for name in finding.evidence if "requested" in name]


def test_one_busy_five_minutes_in_a_week_is_not_idle() -> None:
    cpu = quiet(1)
    cpu[0, 1000] = 200
    assert list(idle_workloads(evidence_of(Case(cpu=cpu, requests=ASKED)), SETTINGS)) == []


def test_throttled_time_counts_as_use() -> None:
    throttled = quiet(0)
    throttled[0, 500] = 100
    assert list(idle_workloads(evidence_of(Case(cpu=quiet(1), throttled=throttled, requests=ASKED)), SETTINGS)) == []


def test_too_little_or_too_thin_history_says_nothing_about_idleness() -> None:
    short = Case("short", cpu=quiet(1, slots=3 * DAY_SECONDS // STEP), requests=ASKED)
    thin = Case("thin", cpu=np.where(np.arange(WEEK) % 4 == 0, 1.0, np.nan)[None], requests=ASKED)
    none = Case("none", requests=ASKED)
    assert list(idle_workloads(evidence_of(short, thin, none, slots=WEEK), SETTINGS)) == []


def test_what_is_scaled_to_zero_and_what_belongs_to_the_system_is_not_called_idle() -> None:
    evidence = evidence_of(Case(cpu=quiet(1), requests=ASKED, replicas=0))
    assert list(idle_workloads(evidence, SETTINGS)) == []
    running = evidence_of(Case(cpu=quiet(1), requests=ASKED))
    own = FindingSettings(system_namespaces=["shop"])
    assert list(idle_workloads(running, own)) == []


def test_a_second_container_at_work_keeps_a_workload_busy() -> None:
    # only the first container has usage; of the second nothing is known, so nothing is said
    assert list(idle_workloads(evidence_of(Case(cpu=quiet(1), requests=ASKED, containers=2)), SETTINGS)) == []


def test_an_injected_proxy_at_work_does_not_hide_an_idle_workload() -> None:
    evidence = evidence_of(Case(cpu=quiet(1), requests=ASKED, containers=2))
    parts = (Container("c0", ASKED), Container("c1", ASKED, role=ContainerRole.INJECTED))
    injected = replace(evidence.workloads[0], containers=parts)
    (finding,) = idle_workloads(replace(evidence, workloads=(injected, injected)), SETTINGS)
    assert finding.evidence["cpu_max_of_a_pod_millicores"] == 1
    assert finding.evidence["cpu_requested_millicores"] == 1000  # what it asks for counts all the same


# --- idle nodes ---


def node(name: str = "n1", labels: dict[str, str] | None = None) -> Node:
    amounts = {CPU: 4000, MEMORY: 16 * GIB}
    return Node(name, amounts, amounts, labels or {})


def pod(name: str, kind: str, start: int = 0, end: int | None = None) -> Pod:
    return Pod("shop", name, WorkloadRef("shop", kind, name), "n1", start, end)


def idle(nodes: list[Node], pods: list[Pod], millicores: float = 100, slots: int = WEEK) -> list[ClusterFinding]:
    values = np.full((len(nodes), WEEK), np.nan, dtype=np.float32)
    values[:, WEEK - slots :] = millicores
    refs = tuple(NodeRef(n.name) for n in nodes)
    spec = Signal.NODE_CPU_USAGE_MEAN.spec
    usage = {Signal.NODE_CPU_USAGE_MEAN: Usage(refs, GRID, values, spec.resource, spec.statistic)}
    inventory = Inventory("test", END, tuple(nodes), (), tuple(pods))
    return list(idle_nodes(inventory, usage, GRID, SETTINGS))


def test_a_node_with_nothing_but_daemons_is_idle() -> None:
    (finding,) = idle([node()], [pod("agent", "DaemonSet"), mirror_pod()])
    assert finding.subject == NodeRef("n1")
    assert finding.evidence["cpu_p95_millicores"] == 100
    assert finding.evidence["daemon_pods"] == 2
    assert finding.evidence["days"] == 7
    assert "gpus_allocatable" not in finding.evidence
    (finding,) = idle([replace(node(), gpus=4.0)], [pod("agent", "DaemonSet")])
    assert finding.evidence["gpus_allocatable"] == 4


def mirror_pod() -> Pod:
    """A static pod as the API server shows it: its kubelet made its object, owns it by the node and named it so."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u", "controller": True}
    meta = {"name": "kube-proxy-n1", "namespace": "kube-system", "uid": "m", "ownerReferences": [owner]}
    status = {"phase": "Running"}
    pod_object = msgspec.convert({"metadata": meta, "spec": {"nodeName": "n1"}, "status": status}, PodObject)
    return pod_of(seen_pod(pod_object), Workloads({}))


def test_a_pod_without_a_controller_is_not_taken_for_a_static_one() -> None:
    assert mirror_pod().workload == WorkloadRef("kube-system", "Pod", "kube-proxy-n1")
    assert idle([node()], [pod("shell", "Pod")]) == []
    assert idle([node()], [pod("shell-n2", "Pod")]) == []


def test_a_node_where_other_pods_run_or_ran_for_long_is_not_idle() -> None:
    day = DAY_SECONDS
    assert idle([node()], [pod("web", "Deployment")]) == []
    # 1 of 7 days is 14 % of the window, above 5 %
    assert idle([node()], [pod("job", "Job", END - 3 * day, END - 2 * day)]) == []
    # 4 hours of 7 days are 2.4 %
    (finding,) = idle([node()], [pod("job", "Job", END - 3 * day, END - 3 * day + 4 * 3600)])
    assert finding.evidence["share_of_time_with_other_pods"] == 0.024


def test_a_node_whose_daemons_work_or_which_is_young_or_unmeasured_or_the_control_plane_is_not_idle() -> None:
    assert idle([node()], [], millicores=500) == []  # 500m of 4 cores is above 10 %
    assert idle([node()], [], slots=2 * DAY_SECONDS // STEP) == []
    assert idle([node(labels={"node-role.kubernetes.io/control-plane": ""})], []) == []
    inventory = Inventory("test", END, (node(),), (), ())
    assert list(idle_nodes(inventory, {}, GRID, SETTINGS)) == []


# --- missing requests and limits ---


def kinds(findings: list[ClusterFinding]) -> list[tuple[str, Severity]]:
    return [(f"{f.kind}: {f.evidence['missing']}", f.severity) for f in findings]


def test_a_container_without_requests_is_found_and_weighs_by_what_it_uses() -> None:
    busy = Case("busy", cpu=quiet(900), memory=quiet(600 * MIB))
    small = Case("small", cpu=quiet(5), memory=quiet(20 * MIB))
    findings = list(missing_value_findings(evidence_of(busy, small), SETTINGS))
    assert kinds(findings) == [
        ("missing-request: cpu and memory", Severity.WARNING),
        ("missing-limit: memory limit", Severity.WARNING),
        ("missing-request: cpu and memory", Severity.OK),
        ("missing-limit: memory limit", Severity.OK),
    ]
    assert findings[0].evidence["cpu_max_of_a_pod_millicores"] == 900
    assert findings[0].evidence["memory_max_of_a_pod_bytes"] == 600 * MIB


def test_a_limit_stands_in_for_a_missing_request_as_in_the_api_server() -> None:
    assert list(missing_value_findings(evidence_of(Case(cpu=quiet(), limits=ASKED)), SETTINGS)) == []


def test_a_missing_cpu_limit_is_no_finding() -> None:
    assert (
        list(missing_value_findings(evidence_of(Case(cpu=quiet(), requests=ASKED, limits={MEMORY: GIB})), SETTINGS))
        == []
    )


def test_pods_on_reclaimed_capacity_and_init_containers_are_left_alone() -> None:
    evidence = evidence_of(Case(cpu=quiet()))
    best_effort = replace(evidence.workloads[0], qos=QosClass.BE)
    assert list(missing_value_findings(replace(evidence, workloads=(best_effort,)), SETTINGS)) == []
    init = replace(evidence.workloads[0], containers=(Container("c0", role=ContainerRole.INIT),))
    assert list(missing_value_findings(replace(evidence, workloads=(init,)), SETTINGS)) == []


# --- requests that no node can hold ---


def workload(name: str, cpu: int, memory: int, *more: Container) -> Workload:
    own = Container("app", {CPU: cpu, MEMORY: memory})
    return Workload(WorkloadRef("shop", "Deployment", name), 1, (own, *more))


def nodes_of(*shapes: tuple[int, int]) -> tuple[Node, ...]:
    return tuple(Node(f"n{i}", {}, {CPU: cpu, MEMORY: memory}) for i, (cpu, memory) in enumerate(shapes))


def test_a_pod_larger_than_every_node_is_critical_and_names_what_is_too_large() -> None:
    nodes = nodes_of((4000, 16 * GIB), (8000, 8 * GIB))
    workloads = (workload("fits", 8000, 8 * GIB), workload("cpu", 8001, GIB), workload("both", 6000, 12 * GIB))
    findings = list(unschedulable(Inventory("test", END, nodes, workloads, ())))
    assert [(str(f.subject), f.evidence["too_large"], f.severity) for f in findings] == [
        ("shop/Deployment/cpu", "cpu", Severity.CRITICAL),
        # 6 cores and 12 GiB are each to be had, but on no one node
        ("shop/Deployment/both", "cpu and memory together", Severity.CRITICAL),
    ]
    assert findings[0].evidence["largest_allocatable_cpu_millicores"] == 8000


def test_without_nodes_nothing_is_said() -> None:
    assert list(unschedulable(Inventory("test", END, (), (workload("web", 1, 1),), ()))) == []


@pytest.mark.parametrize("allocatable", [{}, {CPU: 4000}, {MEMORY: 16 * GIB}])
def test_no_pod_is_called_unschedulable_while_a_nodes_amounts_are_unknown(allocatable: dict[Resource, int]) -> None:
    nodes = (*nodes_of((4000, 16 * GIB)), Node("fresh", {}, allocatable))
    assert list(unschedulable(Inventory("test", END, nodes, (workload("web", 9000, GIB),), ()))) == []


def test_init_containers_count_beside_the_sidecars_before_them_only() -> None:
    def part(name: str, cpu: int, role: ContainerRole) -> Container:
        return Container(name, {CPU: cpu}, role=role)

    main, side, init = ContainerRole.MAIN, ContainerRole.SIDECAR, ContainerRole.INIT
    # 300 (first init) ; 50 + 400 = 450 (second init beside the sidecar) ; 50 + 100 + 100 = 250 (steady): 450
    spec = [part("a", 300, init), part("s", 50, side), part("b", 400, init), part("m", 100, main), part("n", 100, main)]
    assert pod_amount(spec, CPU) == 450
    assert pod_amount([Container("m", {}, {CPU: 70})], CPU) == 70  # a limit alone is the request


amounts = st.integers(0, 10)
shapes = st.lists(st.tuples(amounts, amounts), min_size=1, max_size=8)


@given(shapes, st.tuples(amounts, amounts))
def test_a_pod_is_unschedulable_exactly_when_each_node_lacks_something(
    sizes: list[tuple[int, int]], requests: tuple[int, int]
) -> None:
    inventory = Inventory("test", END, nodes_of(*sizes), (workload("web", *requests),), ())
    fits = any(requests[0] <= cpu and requests[1] <= memory for cpu, memory in sizes)
    assert bool(list(unschedulable(inventory))) == (not fits)


# --- uneven replicas ---


def test_one_replica_that_does_most_of_the_work_is_found_with_both_figures() -> None:
    cpu = np.concatenate([quiet(100, pods=3), quiet(700)])
    (finding,) = uneven_usage_findings(evidence_of(Case(cpu=cpu, requests={CPU: 500}, replicas=4)))
    assert finding.subject == ContainerRef(WorkloadRef("shop", "Deployment", "web"), "c0")
    assert finding.evidence["cpu_of_the_busiest_pod_millicores"] == 700
    assert finding.evidence["cpu_of_the_median_pod_millicores"] == 100
    assert finding.evidence["pods"] == 4
    assert finding.severity is Severity.WARNING  # 700m is above the request of 500m
    (calm,) = uneven_usage_findings(evidence_of(Case(cpu=cpu, requests={CPU: 1000}, replicas=4)))
    assert calm.severity is Severity.OK


def test_even_replicas_few_replicas_and_small_differences_are_no_finding() -> None:
    even = Case("even", cpu=quiet(300, pods=4))
    few = Case("few", cpu=np.concatenate([quiet(100), quiet(900)]))
    small = Case("small", cpu=np.concatenate([quiet(10, pods=3), quiet(60)]))
    assert list(uneven_usage_findings(evidence_of(even, few, small))) == []


def test_pods_that_were_gone_for_most_of_the_last_day_do_not_count() -> None:
    cpu = np.concatenate([quiet(100, pods=3), quiet(900)])
    cpu[3, -200:] = np.nan  # gone for 200 of the last 288 slots
    assert list(uneven_usage_findings(evidence_of(Case(cpu=cpu)))) == []


# --- leaks ---


def test_memory_that_grows_every_day_is_found_with_the_days_that_are_left() -> None:
    # 1 GiB at the beginning of the week, 100 MiB more each day: 1,724 MiB at the end; 2 GiB are 3.2 days away
    memory = GIB + 100 * MIB * np.arange(WEEK)[None] * STEP / DAY_SECONDS
    (finding,) = leak_findings(evidence_of(Case(memory=memory, limits={MEMORY: 2 * GIB})))
    assert finding.kind is FindingKind.LEAK
    assert finding.severity is Severity.CRITICAL
    assert abs(float(finding.evidence["memory_growth_a_day_bytes"]) / MIB - 100) < 1
    assert abs(float(finding.evidence["days_to_the_limit"]) - 3.2) < 0.1
    (far,) = leak_findings(evidence_of(Case(memory=memory, limits={MEMORY: 32 * GIB})))
    assert far.severity is Severity.WARNING
    (open_end,) = leak_findings(evidence_of(Case(memory=memory)))
    assert "days_to_the_limit" not in open_end.evidence


DAYS = np.arange(14 * DAY_SECONDS // STEP) * STEP / DAY_SECONDS
"""Days since the window's beginning, of each slot of two weeks."""


def climb(first: float, a_day: float, days: Any = DAYS) -> Any:
    return (first + a_day * days) * MIB


def leak_of(*pods: Any, kills: Sequence[tuple[int, int | None]] = (), ended_pods: Sequence[str] = ()) -> ClusterFinding:
    """The only leak, under a limit of 1 GiB; `gone`: pods that have ended."""
    evidence = evidence_of(Case(memory=np.stack(pods), limits={MEMORY: GIB}, kills=kills))
    ended = tuple(replace(p, end_seconds=END) if p.name in ended_pods else p for p in evidence.inventory.pods)
    (finding,) = leak_findings(replace(evidence, inventory=replace(evidence.inventory, pods=ended)))
    return finding


def test_the_days_to_the_limit_begin_at_what_the_process_holds_that_runs_now() -> None:
    # Killed at 1 GiB ten days ago; since then 300 MiB and 20 more each day, 500 MiB now: 524 / 20 = 26.2 days.
    memory = np.where(DAYS < 4, climb(700, 81), climb(300 - 4 * 20, 20))
    finding = leak_of(memory, kills=[(10 * DAY_SECONDS, GIB)])
    assert finding.severity is Severity.WARNING
    assert finding.evidence["days_to_the_limit"] == 26.2
    assert finding.evidence["memory_of_that_pod_bytes"] == pytest.approx(500 * MIB, rel=1e-3)


def test_a_pod_that_a_rollout_replaced_does_not_count_in_the_days_to_the_limit() -> None:
    old, new = np.where(DAYS < 13.5, climb(300, 50), np.nan), climb(300, 20)
    # the new pod is at 580 MiB: 444 / 20 = 22.2 days; the old one had reached 975 MiB
    finding = leak_of(old, new, ended_pods=["web-0"])
    assert (finding.evidence["days_to_the_limit"], finding.severity) == (22.2, Severity.WARNING)
    assert finding.evidence["memory_growth_a_day_bytes"] == pytest.approx(20 * MIB, rel=1e-3)
    only = leak_of(old, ended_pods=["web-0"])
    assert only.severity is Severity.WARNING
    assert set(only.evidence) == {"memory_growth_a_day_bytes"}


def test_the_pod_that_reaches_the_limit_first_is_the_one_that_is_reported() -> None:
    # 20 MiB a day from 700: 980 MiB, 2.2 days left; 30 from 300: 720 MiB, 10.1 days
    finding = leak_of(climb(300, 30), climb(700, 20))
    assert (finding.evidence["days_to_the_limit"], finding.severity) == (2.2, Severity.CRITICAL)
    assert finding.evidence["memory_growth_a_day_bytes"] == pytest.approx(20 * MIB, rel=1e-3)


def test_even_memory_is_no_leak() -> None:
    assert list(leak_findings(evidence_of(Case(memory=quiet(GIB))))) == []


# --- all together ---


def test_the_most_severe_comes_first_and_every_row_is_unique_and_readable() -> None:
    evidence = evidence_of(Case("old", cpu=quiet(1), memory=quiet(600 * MIB)), Case("big", cpu=quiet(300)))
    big = replace(evidence.workloads[1], containers=(Container("c0", {CPU: 9000}),))
    inventory = Inventory("test", END, (node(),), (evidence.workloads[0], big), ())
    findings = find(inventory, evidence, {}, SETTINGS, CotenantSettings())
    ranks = [f.severity.rank for f in findings]
    assert ranks == sorted(ranks, reverse=True)
    assert findings[0].kind is FindingKind.UNSCHEDULABLE
    table = Table.from_rows(FINDINGS, rows(findings))
    table_rows = list(table.rows())
    assert len({tuple(r[k] for k in FINDINGS.key) for r in table_rows}) == len(table_rows) == len(findings)
    assert "CPU of a pod 9; memory of a pod 0 B; largest allocatable CPU 4" in table_rows[0]["evidence"]
    assert all(r["evidence"] for r in table_rows)


def test_a_nodes_row_has_the_node_where_a_workloads_has_its_name() -> None:
    (row,) = rows([ClusterFinding(FindingKind.IDLE_NODE, NodeRef("n1"), Severity.WARNING, {"days": 7.25})])
    assert row == {
        "finding": "idle-node", "severity": "warning", "namespace": "", "kind": "Node", "workload": "n1",
        "container": "", "proposal": "", "saving_month": None, "cpu_freed": None, "memory_freed": None,
        "evidence": "days 7.25",
    }  # fmt: skip


def test_every_kind_of_finding_has_a_sentence() -> None:
    assert set(FINDING_SENTENCES) == set(FindingKind)
