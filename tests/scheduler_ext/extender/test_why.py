"""Why a pod is pending: the scheduler's own rules as far as they are judged here, and its own words."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cotenant.base.kubernetes.models.node import SchedulableNode
from cotenant.scheduler_ext.extender.metric import ExtenderNode, node_of
from cotenant.scheduler_ext.extender.stock_rules import refusals, unchecked_constraints, waits_for
from cotenant.scheduler_ext.extender.why import parse_scheduler_message
from tests.scheduler_ext.extender.worlds import node_json


def node(name: str = "n", **more: Any) -> ExtenderNode:
    return node_of(msgspec.convert(node_json(name, **more), SchedulableNode))


GPU = node("gpu", labels={"zone": "a", "gpu": "4"}, taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])
PLAIN = node("plain", labels={"zone": "b"})
CORDONED = node("cordoned", labels={"zone": "a"}, unschedulable=True)
NODES = [GPU, PLAIN, CORDONED]


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    node_affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": node_affinity}}


def zone(operator: str, *values: str, key: str = "zone") -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {"taint gpu=yes:NoSchedule is not tolerated": "gpu", "node is cordoned": "cordoned"}),
        ({"tolerations": [{"operator": "Exists"}]}, {}),
        ({"tolerations": [{"key": "gpu", "value": "yes"}]}, {"node is cordoned": "cordoned"}),
        (
            {"tolerations": [{"operator": "Exists"}], "nodeSelector": {"zone": "b"}},
            {"node selector zone=b": "gpu cordoned"},
        ),
        (
            {"tolerations": [{"operator": "Exists"}], **required(zone("In", "b"), zone("Gt", "3", key="gpu"))},
            {"required node affinity": "cordoned"},
        ),
        (
            {"tolerations": [{"operator": "Exists"}], **required({})},
            {"required node affinity": "gpu plain cordoned"},
        ),
        (
            {
                "tolerations": [{"operator": "Exists"}],
                **required({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["plain"]}]}),
            },
            {"required node affinity": "gpu cordoned"},
        ),
    ],
)
def test_the_schedulers_commonest_refusals_are_judged_alike(spec: dict[str, Any], expected: dict[str, str]) -> None:
    refused_places = refusals(spec, NODES)
    names_by_reason = {
        reason: " ".join(n.name for n, refused in zip(NODES, places, strict=True) if refused)
        for (_, reason), places in refused_places.items()
    }
    assert names_by_reason == expected


def test_a_terms_expressions_are_read_up_to_the_first_that_fails() -> None:
    # What stands behind it decides nothing, so an entry there that is no expression does no harm.
    odd = {"matchExpressions": [{"key": "absent", "operator": "Exists"}, "odd"], "matchFields": ["odd"]}
    assert refusals(required(odd), [node()]) == {("affinity", "required node affinity"): [True]}


def test_what_is_not_judged_is_named() -> None:
    assert unchecked_constraints({}) == ""
    spec = {"topologySpreadConstraints": [{}], "affinity": {"podAntiAffinity": {"x": []}}}
    assert (
        unchecked_constraints(spec)
        == "not evaluated here, see the scheduler's message: affinity between pods, topology spread"
    )
    assert waits_for({"schedulingGates": [{"name": "cotenant.dev/reservation"}]}) == ["cotenant.dev/reservation"]


def test_the_schedulers_own_message_is_taken_apart() -> None:
    text = (
        "0/5 nodes are available: 1 Insufficient memory, 2 node(s) had untolerated taint {gpu: yes}, "
        "2 cpu usage above 65 %. preemption: 0/5 nodes are available: 5 Preemption is not helpful for scheduling."
    )
    refusal_counts = [(refusal.nodes, refusal.reason) for refusal in parse_scheduler_message(text)]
    assert refusal_counts == [
        (1, "Insufficient memory"),
        (2, "node(s) had untolerated taint {gpu: yes}"),
        (2, "cpu usage above 65 %"),
    ]


@pytest.mark.parametrize("text", ["", "something else entirely", "0/x nodes are available: 1", "a" * 5000])
def test_a_message_of_another_form_comes_as_it_stands(text: str) -> None:
    assert [refusal.reason for refusal in parse_scheduler_message(text)] == ([text] if text else [])
