"""Nodes that have CPUs for a pod: the filter's counts against the allocator itself, and what nodes without say."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.allocation.allocator import HardwareClaim, Holding, NodeHardware
from cotenant.base.allocation.cpu_accumulator import CpuBindPolicy, CpuExclusivePolicy
from cotenant.base.allocation.cpu_allocator import NO_TOPOLOGY, TOO_FEW, CpuAllocator, amplified_free_cpus
from cotenant.base.allocation.cpu_annotations import assignment_of
from cotenant.base.allocation.cpu_topology import CpuTopology, format_cpus, regular_topology
from cotenant.base.allocation.topology_document import COLLECTION, NodeCpus, annotations_of
from cotenant.base.kubernetes.amplification import amplification_of, raw_allocatable
from cotenant.base.kubernetes.pod_identity import PodIdentity
from cotenant.scheduler_ext.extender import cpus
from cotenant.scheduler_ext.extender.decide import Instant
from cotenant.scheduler_ext.extender.judgement import Code
from cotenant.scheduler_ext.extender.metric import ExtenderNode
from cotenant.scheduler_ext.extender.pod import NewPod
from cotenant.scheduler_ext.extender.settings import (
    CpuAllocationSettings,
    ExtenderSettings,
    LoadAwareSettings,
)
from cotenant.scheduler_ext.extender.snapshot import NEEDED, NodeSnapshot, next_snapshot
from cotenant.scheduler_ext.extender.watch.frame import CollectionState, FreeCpus
from cotenant.scheduler_ext.extender.watch.table import NodeTable
from cotenant.scheduler_ext.extender.why import explain_placement
from tests.base.allocation.cpu_machines import machines

ON = CpuAllocationSettings(on=True)
ALLOCATOR = CpuAllocator()
SPEC = "scheduling.koordinator.sh/resource-spec"
NUMA = "scheduling.koordinator.sh/numa-topology-spec"
STATUS = "scheduling.koordinator.sh/resource-status"
SMALL = regular_topology(sockets=2, cores_per_socket=2, threads_per_core=2)
"""Threads n and n + 4 are core n; cores 0-1 are NUMA node 0."""


def hardware(
    machine: NodeCpus | CpuTopology, labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None
) -> NodeHardware:
    node_cpus = machine if isinstance(machine, NodeCpus) else NodeCpus(machine)
    document = {"metadata": {"name": "n1", "annotations": annotations_of(node_cpus)}}
    return NodeHardware("n1", labels or {}, annotations or {}, {COLLECTION: document})


def pod(millicores: int, spec: dict[str, str] | None = None, qos: str = "LSR", numa: str = "", **more: Any) -> NewPod:
    annotations = {SPEC: json.dumps(spec)} if spec else {}
    annotations |= {NUMA: json.dumps({"numaTopologyPolicy": numa})} if numa else {}
    annotations |= more.pop("annotations", {})
    identity = PodIdentity("shop", more.pop("name", "web-0"), "u1", {"koordinator.sh/qosClass": qos}, annotations)
    return NewPod(identity, requests={"cpu": millicores, "cotenant.dev/bind": 1}, **more)


def claim(facts: NewPod) -> HardwareClaim:
    return HardwareClaim(facts.identity, facts.requests)


def verdict(facts: NewPod, room: Any) -> Code:
    """The filter's word on one node."""
    snapshot = NodeSnapshot(names=("n1",), rows={"n1": 0}, rooms={"n1": room} if room is not None else {})
    codes = np.zeros(1, np.int8)
    cpus.apply(codes, snapshot, np.zeros(1, np.intp), facts, ON)
    return Code(codes[0])


WISHES = st.fixed_dictionaries(
    {},
    optional={
        "requiredCPUBindPolicy": st.sampled_from(["FullPCPUs", "SpreadByPCPUs"]),
        "preferredCPUBindPolicy": st.sampled_from(["FullPCPUs", "SpreadByPCPUs"]),
        "preferredCPUExclusivePolicy": st.sampled_from([policy.value for policy in CpuExclusivePolicy]),
    },
)
NUMA_POLICIES = st.sampled_from(["", "BestEffort", "Restricted", "SingleNUMANode"])


@given(data=st.data(), topology=machines(), count=st.integers(1, 10), cpu_spec=WISHES, numa=NUMA_POLICIES)
def test_the_filter_refuses_no_node_on_which_the_pod_would_get_its_cpus(
    data: st.DataObject, topology: CpuTopology, count: int, cpu_spec: dict[str, str], numa: str
) -> None:
    taken = data.draw(st.frozensets(st.sampled_from(sorted(topology.cpus))))
    texts = {STATUS: json.dumps({"cpuset": format_cpus(taken)})}
    other = pod(1000 * len(taken), name="other", annotations=texts)
    node, facts = hardware(topology), pod(1000 * count, cpu_spec, numa=numa)
    allotment = ALLOCATOR.allocate(node, claim(facts), [Holding("shop/other", "u2", texts, entered=True)])
    if not allotment.refusal:
        assert verdict(facts, cpus.free_cpu_capacity(node, [other])) == Code.PASS
        assert not assignment_of(allotment.annotations, "p").cpus & taken


@given(
    data=st.data(),
    sockets=st.integers(1, 2),
    cores=st.integers(1, 4),
    count=st.integers(1, 8),
    cpu_spec=WISHES,
    numa=NUMA_POLICIES,
)
def test_on_a_regular_machine_the_filter_lets_only_nodes_pass_where_it_would(
    data: st.DataObject, sockets: int, cores: int, count: int, cpu_spec: dict[str, str], numa: str
) -> None:
    topology = regular_topology(sockets, cores, 2)
    taken = data.draw(st.frozensets(st.sampled_from(sorted(topology.cpus))))
    texts = {STATUS: json.dumps({"cpuset": format_cpus(taken)})}
    node, facts = hardware(topology), pod(1000 * count, cpu_spec, numa=numa)
    room = cpus.free_cpu_capacity(node, [pod(1000 * len(taken), name="other", annotations=texts)])
    refused = bool(ALLOCATOR.allocate(node, claim(facts), [Holding("shop/other", "u2", texts, entered=True)]).refusal)
    assert (verdict(facts, room) != Code.PASS) == refused


@pytest.mark.parametrize(
    ("machine", "labels", "code"),
    [
        (NodeCpus(SMALL, "static"), {}, Code.KUBELET_CPUS),
        (NodeCpus(SMALL, "unknown"), {}, Code.KUBELET_CPUS),
        (NodeCpus(SMALL, "none"), {}, Code.PASS),
        (NodeCpus(SMALL, kubelet_reserved=frozenset(range(7))), {}, Code.NO_CPUS),
        (NodeCpus(SMALL), {"node.koordinator.sh/cpu-bind-policy": "SpreadByPCPUs"}, Code.CPU_POLICY),
        (NodeCpus(SMALL), {"node.koordinator.sh/numa-topology-policy": "SingleNUMANode"}, Code.CPU_POLICY),
        (NodeCpus(SMALL), {"node.koordinator.sh/numa-topology-policy": "Restricted"}, Code.PASS),
    ],
)
def test_nodes_refuse_by_what_they_publish_and_demand(machine: NodeCpus, labels: dict[str, str], code: Code) -> None:
    facts = pod(2000, {"requiredCPUBindPolicy": "FullPCPUs"}, numa="Restricted")
    node = hardware(machine, labels)
    assert verdict(facts, cpus.free_cpu_capacity(node, ())) == code
    assert bool(ALLOCATOR.allocate(node, claim(facts), ()).refusal) == (code != Code.PASS)


def test_a_node_that_publishes_nothing_is_refused() -> None:
    assert verdict(pod(1000), None) == Code.NO_CPU_TOPOLOGY
    assert verdict(pod(1000), cpus.free_cpu_capacity(NodeHardware("n1"), ())) == Code.NO_CPU_TOPOLOGY


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        (pod(1500), Code.CPU_REQUEST),
        (pod(1000, {"requiredCPUBindPolicy": "Sideways"}), Code.CPU_REQUEST),
        (pod(1000, {"requiredCPUBindPolicy": "ConstrainedBurst"}), Code.PASS),
        (pod(1500, {"requiredCPUBindPolicy": "FullPCPUs", "note": "no ConstrainedBurst"}), Code.CPU_REQUEST),
        (pod(1000, annotations={SPEC: "{ConstrainedBurst"}), Code.CPU_REQUEST),
        (pod(1000, qos="LS"), Code.PASS),
        (NewPod(pod(1000).identity, requests={"cpu": 1000}), Code.PASS),
    ],
    ids=[
        "half a CPU",
        "a policy that nobody knows",
        "shares",
        "speaks of shares",
        "not JSON",
        "another class",
        "does not request a binding by us",
    ],
)
def test_the_pod_decides_whether_the_rule_looks_at_it(facts: NewPod, code: Code) -> None:
    assert verdict(facts, None if code == Code.PASS else cpus.free_cpu_capacity(hardware(SMALL), ())) == code


@pytest.mark.parametrize(
    ("required", "preferred", "bind", "is_required"),
    [
        ("Default", "SpreadByPCPUs", CpuBindPolicy.SPREAD_BY_PCPUS, False),
        ("SpreadByPCPUs", "FullPCPUs", CpuBindPolicy.SPREAD_BY_PCPUS, True),
        ("Default", "None", CpuBindPolicy.FULL_PCPUS, False),
    ],
)
def test_the_first_bind_policy_that_is_one_counts_and_else_the_allocators(
    required: str, preferred: str, bind: CpuBindPolicy, is_required: bool
) -> None:
    facts = pod(1000, {"requiredCPUBindPolicy": required, "preferredCPUBindPolicy": preferred})
    request = ALLOCATOR.request(claim(facts))
    assert (request.bind, request.required) == (bind, is_required)


def test_reserved_cpus_and_those_of_class_system_are_not_given() -> None:
    node_annotations = {
        "node.koordinator.sh/reservation": '{"reservedCPUs": "0,4"}',
        "node.koordinator.sh/system-qos-resource": '{"cpuset": "1"}',
    }
    # cores 2 and 3 are whole; of node 0 only thread 5 is left
    room = cpus.free_cpu_capacity(hardware(SMALL, annotations=node_annotations), ())
    assert (room.free, room.whole, room.cores) == ([1, 4], [0, 4], [1, 2])


def amplified(ratio: float, raw: str = "8") -> dict[str, str]:
    return {
        "node.koordinator.sh/resource-amplification-ratio": json.dumps({"cpu": ratio}),
        "node.koordinator.sh/raw-allocatable": json.dumps({"cpu": raw}),
    }


@pytest.mark.parametrize(("others", "most"), [(0, 8), (3000, 6), (12_000, 0), (100_000, 0)])
def test_on_an_amplified_node_cpus_of_its_own_leave_what_others_request_of_it(others: int, most: int) -> None:
    # 8 CPUs that look like 12: requests of 3 are 2 CPUs of the machine, of 12 all 8
    node, beside = hardware(SMALL, annotations=amplified(1.5)), [pod(others, qos="LS", name="web-1")]
    room = cpus.free_cpu_capacity(node, beside)
    assert room.amplified == most
    holdings = [Holding(new_pod.key, "u2", {}, new_pod.requests) for new_pod in beside]
    for count in range(1, 9):
        verdicts = {
            verdict(pod(1000 * count), room) == Code.PASS,
            not ALLOCATOR.allocate(node, claim(pod(1000 * count)), holdings).refusal,
        }
        assert verdicts == {count <= most}


@given(
    ratio=st.integers(101, 500).map(lambda percent: percent / 100),
    own=st.lists(st.integers(0, 4), max_size=3),
    others=st.lists(st.integers(0, 9000), max_size=3),
)
def test_what_is_given_of_an_amplified_node_is_worth_its_ratio(ratio: float, own: list[int], others: list[int]) -> None:
    holdings = [Holding(f"shop/l-{n}", f"l{n}", {}, {"cpu": millicores}) for n, millicores in enumerate(others)]
    first = 0
    for number, count in enumerate(own):
        text = format_cpus(frozenset(range(first, first + count)))
        texts = {STATUS: json.dumps({"cpuset": text})} if count else {}
        holdings.append(Holding(f"shop/x-{number}", f"x{number}", texts, {"cpu": 1000 * count}, entered=True))
        first += count
    room = amplified_free_cpus(hardware(SMALL, annotations=amplified(ratio)), holdings)
    assert room is not None

    def fits(count: int) -> bool:
        """Koordinator's inequality in hundredths of a millicore, whole numbers."""
        percent = round(ratio * 100)
        return (sum(own) + count) * 1000 * percent + 100 * sum(others) <= 8000 * percent

    assert room == max((count for count in range(1, 9) if fits(count)), default=0)


@pytest.mark.parametrize("annotations", [{}, amplified(1.0), amplified(0.5), amplified(1000), amplified(1.5, "many")])
def test_a_node_that_is_not_amplified_or_does_not_say_so_is_counted_by_the_scheduler_alone(
    annotations: dict[str, str],
) -> None:
    assert amplified_free_cpus(hardware(SMALL, annotations=annotations), ()) is None


@given(ratio=st.text() | st.none() | st.floats(), text=st.text())
def test_any_annotation_of_amplification_is_read_or_counts_for_nothing(ratio: Any, text: str) -> None:
    for value in (text, json.dumps({"cpu": ratio}), json.dumps([ratio])):
        texts = dict.fromkeys(amplified(1), value)
        assert 1 <= amplification_of(texts, "cpu") <= 100
        assert all(isinstance(amount, int) for amount in raw_allocatable(texts).values())


def test_a_pod_that_claims_more_than_it_asks_for_takes_nothing() -> None:
    greedy = pod(1000, annotations={STATUS: '{"cpuset": "0-7"}'})
    assert sum(cpus.free_cpu_capacity(hardware(SMALL), [greedy]).free) == 8


def test_why_names_the_rule_and_the_number_of_nodes() -> None:
    table = NodeTable(LoadAwareSettings(on=False))
    for name in ("n1", "n2"):
        table.put_node(name, ExtenderNode(name, allocatable={"cpu": 64_000}))
    table.put_document(COLLECTION, "n1", hardware(SMALL).documents[COLLECTION])
    state = {name: CollectionState(0.0) for name in NEEDED}
    snapshot = next_snapshot(NodeSnapshot(), table.take(state, 0.0, 0.0))
    settings = ExtenderSettings(load_aware=LoadAwareSettings(on=False), cpus=ON)
    explanation = explain_placement(snapshot, pod(10_000), Instant(0.0, 0.0), settings)
    assert {(r.rule, r.reason, r.nodes) for r in explanation.refusals} >= {
        ("cpus", NO_TOPOLOGY, 1),
        ("cpus", TOO_FEW, 1),
    }
    assert explain_placement(snapshot, pod(8000), Instant(0.0, 0.0), settings).best == ["n1"]
    elsewhere = explain_placement(
        snapshot, pod(10_000), Instant(0.0, 0.0), ExtenderSettings(load_aware=settings.load_aware)
    )
    assert "rule cpus was not applied: extender.cpus.on is false in the settings of this command" in elsewhere.notes
    table.put_document(COLLECTION, "n1", None)
    assert next_snapshot(snapshot, table.take(state, 0.0, 0.0)).rooms == {}


def test_nodes_that_have_all_cpus_on_one_numa_node_come_first() -> None:
    rooms = {"a": FreeCpus(free=[2, 2]), "b": FreeCpus(free=[4, 0])}
    snapshot = NodeSnapshot(names=("a", "b"), rows={"a": 0, "b": 1}, rooms=rooms)
    rows = np.array([0, 1], np.intp)
    assert cpus.together(snapshot, pod(4000), rows, ON).tolist() == [1]
    assert cpus.together(snapshot, pod(5000), rows, ON).tolist() == [0, 1]
