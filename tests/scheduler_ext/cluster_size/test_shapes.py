"""The list of machine types: what is wrong with one, what a type offers to pods, and which types are left out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.errors import UsageError
from cotenant.base.reasons import Reason
from cotenant.base.resource import MIB
from cotenant.scheduler_ext.cluster_size.machines.kubelet import Machine, allocatable_of
from cotenant.scheduler_ext.cluster_size.machines.prototypes import Prototype, Prototypes, prototypes_of
from cotenant.scheduler_ext.cluster_size.machines.shapes import parse_shapes
from cotenant.scheduler_ext.cluster_size.model import SizedNode, Stay
from cotenant.scheduler_ext.cluster_size.prices import TYPE_LABELS
from tests.scheduler_ext.cluster_size.two_nodes import node, pod, state

HEAD = "machine_type,price_per_hour,currency,cpu,memory,pods,provider\n"
GIB = 1 << 30
WRONG = {
    "negative price": (HEAD + "m5,-1,USD,4,16Gi,58,eks\n", "line 2: price_per_hour '-1'"),
    "two currencies": (HEAD + "m5,1,USD,4,16Gi,58,eks\nc5,1,EUR,4,8Gi,58,eks\n", "2 currencies, USD (line 2) and EUR"),
    "missing column": ("machine_type,price_per_hour\nm5,1\n", "the header has no column currency"),
    "unknown provider": (HEAD + "m5,1,USD,4,16Gi,58,ovh\n", "line 2: provider 'ovh' is not one of eks, gke, aks"),
    "no amount": (HEAD + "m5,1,USD,many,16Gi,58,eks\n", "line 2: cpu 'many'"),
    "negative amount": (HEAD + "m5,1,USD,-4,16Gi,58,eks\n", "line 2: cpu '-4'"),
    "no CPU": (HEAD + "m5,1,USD,0,16Gi,58,eks\n", "line 2: cpu '0' is not above 0"),
    "pods in parts": (HEAD + "m5,1,USD,4,16Gi,5.5,eks\n", "line 2: pods '5.5'"),
    "two lines": (HEAD + "m5,1,USD,4,16Gi,58,eks\nm5,1,USD,8,16Gi,58,eks\n", "line 3: m5 has two different lines"),
    "label": ("machine_type,price_per_hour,currency,labels\nm5,1,USD,pool\n", "line 2: label 'pool' is not KEY=VALUE"),
    "taint": ("machine_type,price_per_hour,currency,taints\nm5,1,USD,a=b\n", "line 2: taint 'a=b'"),
    "resource": ("machine_type,price_per_hour,currency,nvidia.com/gpu\ng5,1,USD,one\n", "line 2: nvidia.com/gpu 'one'"),
    "more than all": (
        "machine_type,price_per_hour,currency,cpu,allocatable_cpu\nm5,1,USD,4,5\n",
        "allocatable_cpu is more than cpu",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_list_is_refused_with_its_line_and_value(case: str) -> None:
    text, phrase = WRONG[case]
    with pytest.raises(UsageError) as caught:
        parse_shapes(text, "shapes.csv")
    assert phrase in caught.value.message and caught.value.message.startswith("shapes.csv") and caught.value.fix


@given(st.text(max_size=60), st.lists(st.text(max_size=6), min_size=7, max_size=7))
def test_any_text_is_a_list_or_a_clear_refusal(text: str, cells: list[str]) -> None:
    for tried in (text, HEAD + text, HEAD + ",".join(cells)):
        try:
            assert parse_shapes(tried, "s.csv").types
        except UsageError as error:
            assert error.fix


# eks, 4 cores, 16 GiB, 58 pods: 60 + 10 + 2 x 5 = 80 m; 255 + 11 x 58 = 893 MiB and 100 of eviction.
# gke, the same machine: 80 m; 25 % of 4 GiB + 20 % of 4 + 10 % of 8 = 2.6 GiB.
# aks: 140 m; 20 MB x 58 + 50 MB = 1,210 MB, less than a quarter.
# eks, 8 cores: 80 + 4 x 2.5 = 90 m. gke with more than 110 pods keeps 400 m more.
ALLOCATABLE = [
    ("eks", Machine(4_000, 16 * GIB, 58), Machine(3_920, 16 * GIB - 993 * MIB, 58)),
    ("gke", Machine(4_000, 16 * GIB, 110), Machine(3_920, 16 * GIB - round(2.6 * GIB) - 100 * MIB, 110)),
    ("aks", Machine(4_000, 16 * GIB, 58), Machine(3_860, 16 * GIB - 1_210_000_000 - 100 * MIB, 58)),
    ("eks", Machine(8_000, 32 * GIB, 58), Machine(7_910, 32 * GIB - 993 * MIB, 58)),
    ("gke", Machine(4_000, 16 * GIB, 256), Machine(3_520, 16 * GIB - round(2.6 * GIB) - 100 * MIB, 256)),
    ("ovh", Machine(4_000, 16 * GIB, 58), None),
]


@pytest.mark.parametrize(("provider", "machine", "expected"), ALLOCATABLE)
def test_the_kubelet_of_each_provider_keeps_what_its_rule_says(
    provider: str, machine: Machine, expected: Machine | None
) -> None:
    assert allocatable_of(provider, machine) == expected


@given(
    provider=st.sampled_from(["eks", "gke", "aks"]),
    cores=st.integers(1, 192),
    gib=st.integers(1, 2_048),
    pods=st.integers(1, 250),
)
def test_a_node_never_offers_more_than_its_machine_has_nor_less_than_nothing(
    provider: str, cores: int, gib: int, pods: int
) -> None:
    allocatable = allocatable_of(provider, Machine(cores * 1_000, gib * GIB, pods))
    assert allocatable is not None and 0 < allocatable.cpu < cores * 1_000 and 0 <= allocatable.memory < gib * GIB


def prototypes_from(lines: str, nodes: list[SizedNode], head: str = HEAD) -> Prototypes:
    return prototypes_of(state(nodes, []), parse_shapes(head + lines, "s.csv").types)


def only_prototype(prototypes: Prototypes) -> Prototype:
    (prototype,) = prototypes.found
    return prototype


def typed(name: str, kind: str, amounts: dict[str, str] | None = None, **labels: str) -> SizedNode:
    facts = {"labels": {TYPE_LABELS[0]: kind, **labels}}
    return node(name, amounts, **facts) if amounts else node(name, **facts)


def test_a_type_that_runs_here_offers_the_least_that_its_nodes_offer() -> None:
    small = {"cpu": "3900m", "memory": "7Gi", "pods": "20"}
    nodes = [typed("a", "m5"), typed("b", "m5", small)]
    prototypes = prototypes_from("m5,1,USD,4,16Gi,58,eks\n", nodes)
    # 58 pods are what the line says; cores and memory are the smaller node's. One prototype for each zone, a and b.
    assert [prototype.zone for prototype in prototypes.found] == ["a", "b"]
    amounts = prototypes.found[0].node.allocatable
    assert (amounts["cpu"], amounts["memory"], amounts["pods"]) == (3_900, 7 * GIB, 58)


def test_a_type_whose_amounts_nobody_knows_is_left_out_and_named() -> None:
    prototypes = prototypes_from("m5,1,USD,4,16Gi,58,\nc5,1,USD,4,,58,eks\nr5,1,USD,4,32Gi,58,eks\n", [node("a")])
    assert [prototype.machine.name for prototype in prototypes.found] == ["r5"]
    (omission,) = prototypes.left_out
    assert omission.startswith("2 machine types are of unknown CPU and memory") and omission.endswith(": m5, c5")


def test_the_provider_is_known_from_labels_of_nodes() -> None:
    nodes = [node("a", labels={"cloud.google.com/gke-nodepool": "p"})]
    assert only_prototype(prototypes_from("n2,1,USD,4,16Gi,110,\n", nodes)).node.allocatable["cpu"] == 3_920


def test_a_type_that_is_not_offered_in_the_zones_is_left_out() -> None:
    head = "machine_type,price_per_hour,currency,cpu,memory,pods,provider,zones\n"
    prototypes = prototypes_from(
        "m5,1,USD,4,16Gi,58,eks,x y\nc5,1,USD,4,8Gi,58,eks,b x\n", [node("a"), node("b")], head
    )
    assert [(p.machine.name, p.zone) for p in prototypes.found] == [("c5", "b")]
    assert prototypes.left_out == ("1 machine type is in none of the cluster's zones: m5",)


def test_labels_of_a_provider_are_not_taken_over_to_another_machine_type() -> None:
    labels: dict[str, Any] = {
        "team": "x",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "karpenter.k8s.aws/family": "m5",
    }
    nodes = [typed("a", "m5", **labels), typed("b", "m5", **labels)]
    own, other = (
        prototypes_from(f"{kind},1,USD,4,16Gi,58,eks\n", nodes).found[0].node.facts.labels for kind in ("m5", "r6g")
    )
    assert own["kubernetes.io/arch"] == "amd64" and own["karpenter.k8s.aws/family"] == "m5"
    assert "kubernetes.io/arch" not in other and "karpenter.k8s.aws/family" not in other
    assert other["team"] == "x" and other["kubernetes.io/os"] == "linux"
    assert other["topology.kubernetes.io/zone"] == "a" and "kubernetes.io/hostname" not in other


def test_a_daemon_set_counts_once_on_every_new_node_that_it_would_run_on() -> None:
    owner: dict[str, Any] = {"owners": [{"kind": "DaemonSet", "name": "agent", "controller": True}]}
    field = [{"key": "metadata.name", "operator": "In", "values": ["a"]}]
    on_arm: list[dict[str, Any]] = [{"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}]

    def spec(*expressions: dict[str, Any]) -> dict[str, Any]:
        term = {"matchFields": field, **({"matchExpressions": list(expressions)} if expressions else {})}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        return {"affinity": {"nodeAffinity": required}}

    everywhere, arm = pod("d1", "a", spec(), **owner), pod("d2", "a", spec(*on_arm), **owner)
    head = "machine_type,price_per_hour,currency,cpu,memory,pods,provider,labels\n"
    lines = "m5,1,USD,4,16Gi,58,eks,kubernetes.io/arch=amd64\nm6g,1,USD,4,16Gi,58,eks,kubernetes.io/arch=arm64\n"
    types = parse_shapes(head + lines, "s.csv").types
    counts = {}
    for name, body in (("all", everywhere), ("arm", arm)):
        prototypes = prototypes_of(state([node("a")], [body]), types)
        counts[name] = [len(prototype.daemons) for prototype in prototypes.found]
    assert counts == {"all": [1, 1], "arm": [0, 1]}


def test_static_pods_of_the_fullest_node_count_on_every_new_one() -> None:
    owner: dict[str, Any] = {"owners": [{"kind": "Node", "name": "a", "controller": True}]}
    bodies = [pod("proxy-a", "a", **owner), pod("log-a", "a", **owner), pod("proxy-b", "b", **owner)]
    types = parse_shapes(HEAD + "m5,1,USD,4,16Gi,58,eks\n", "s.csv").types
    prototypes = prototypes_of(state([node("a"), node("b")], bodies), types)
    # Node a has two static pods of one core each.
    daemons = prototypes.found[0].daemons
    assert len(daemons) == 2 and sum(daemon.requests.get("cpu", 0) for daemon in daemons) == 2_000


def test_control_planes_are_no_model_of_a_worker() -> None:
    control = SizedNode(node("a").facts, node("a").allocatable, Stay(Reason.CONTROL_PLANE_NODE, ""))
    assert [p.zone for p in prototypes_from("m5,1,USD,4,16Gi,58,eks\n", [control, node("b")]).found] == ["b"]
