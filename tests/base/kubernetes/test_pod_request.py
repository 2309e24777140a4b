"""Pod request and QoS class: the rules by other words, and every struct of ours that asks for them agrees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.cluster import pod_amount
from cotenant.base.kube.projection import containers_of
from cotenant.base.kube.seen_pods import shape_of
from cotenant.base.kubernetes.models.pod import NodePodWire, ObservedPodWire, PodObject, QueuePodWire
from cotenant.base.kubernetes.models.pod import PodWire as ExtenderWire
from cotenant.base.kubernetes.observed import pod_of
from cotenant.base.kubernetes.pod_qos import PodQos, pod_qos, qos_class_of
from cotenant.base.kubernetes.pod_request import parse_quantities
from cotenant.base.kubernetes.pod_resources import counted_requests
from cotenant.base.kubernetes.pod_wire import limits_of, requests_of
from cotenant.base.resource import MIB, Resource
from cotenant.enforcer.sources.wire import pod_of as agent_pod_of
from cotenant.recommender.restart import pod_qos as qos_of_containers
from cotenant.scheduler_ext.extender.pod import facts_of
from cotenant.scheduler_ext.extender.settings import LoadAwareSettings
from cotenant.scheduler_ext.queues.queue_objects import queue_pod
from cotenant.scheduler_ext.reservations.view import PodView

CPU, MEMORY = Resource.CPU, Resource.MEMORY
STEPS = {"cpu": ["0", "100m", "250m", "1"], "memory": ["0", "64Mi", "1Gi"], "kubernetes.io/batch-cpu": ["500"]}


@st.composite
def resources(draw: Any) -> dict[str, dict[str, str]]:
    """Of a container, completed as the API server does: a limit without a request is a request."""
    limits = {n: draw(st.sampled_from(s)) for n, s in STEPS.items() if draw(st.booleans())}
    requests = {n: draw(st.sampled_from(s)) for n, s in STEPS.items() if draw(st.booleans())}
    equal = draw(st.booleans())
    return {"requests": dict(limits) if equal else {**limits, **requests}, "limits": limits}


@st.composite
def specs(draw: Any) -> dict[str, Any]:
    """A pod spec: main containers, init containers, sidecars, overhead."""
    mains = [{"name": f"m{i}", "resources": draw(resources())} for i in range(draw(st.integers(1, 3)))]
    policies = draw(st.lists(st.sampled_from(["", "Always"]), max_size=3))
    inits = [{"name": f"i{i}", "resources": draw(resources()), "restartPolicy": p} for i, p in enumerate(policies)]
    overhead = draw(st.sampled_from([{}, {"cpu": "250m", "memory": "120Mi"}]))
    return {"containers": mains, "initContainers": inits, "overhead": overhead}


def wire(spec: dict[str, Any], **status: str) -> dict[str, Any]:
    return {"metadata": {"name": "p", "namespace": "shop"}, "spec": spec, "status": status}


@given(specs())
@settings(max_examples=100)
def test_every_struct_of_a_pod_counts_the_same_request(spec: dict[str, Any]) -> None:
    counted = requests_of(spec)
    plain = {r: counted[r.value] for r in Resource if r.value in counted}
    assert shape_of(msgspec.convert(wire(spec), PodObject)).requests == plain
    observed = pod_of(msgspec.convert(wire(spec), ObservedPodWire)).requests
    assert observed == counted
    facts = facts_of(msgspec.convert(wire(spec), ExtenderWire), LoadAwareSettings())
    assert (facts.requests, facts.unread) == (counted, "")
    bare = {**spec, "overhead": {}}
    containers = containers_of(msgspec.convert(wire(bare), PodObject))
    for side, of in (("requests", requests_of), ("limits", limits_of)):
        assert {r: pod_amount(containers, r, side) for r in Resource} == {r: of(bare).get(r.value, 0) for r in Resource}


@given(specs())
@settings(max_examples=100)
def test_the_qos_class_by_its_definition(spec: dict[str, Any]) -> None:
    of_containers = [c["resources"] for c in (*spec["containers"], *spec["initContainers"])]
    both = ("cpu", "memory")
    nothing = not any(
        r[side].get(n, "0") != "0" for r in of_containers for side in ("requests", "limits") for n in both
    )
    alike = all(
        r["limits"].get(n, "0") != "0" and r["requests"].get(n) == r["limits"][n] for r in of_containers for n in both
    )
    expected = PodQos.BEST_EFFORT if nothing else PodQos.GUARANTEED if alike else PodQos.BURSTABLE
    assert pod_qos(spec) is expected
    assert qos_of_containers(containers_of(msgspec.convert(wire(spec), PodObject))) is expected


def test_a_pod_of_batch_resources_alone_is_best_effort() -> None:
    amounts = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Gi"}
    assert pod_qos({"containers": [{"resources": {"requests": amounts, "limits": amounts}}]}) is PodQos.BEST_EFFORT


@pytest.mark.parametrize(
    ("own", "qos", "counted"),
    [
        ({"requests": {"cpu": "2"}}, PodQos.BURSTABLE, {"cpu": 2250, "memory": 184 * MIB}),
        # own limits: a request that the pod itself does not name is the containers' sum, not the limit
        ({"limits": {"cpu": "2", "memory": "1Gi"}}, PodQos.BURSTABLE, {"cpu": 1250, "memory": 184 * MIB}),
        ({"limits": {"cpu": "1", "memory": "64Mi"}}, PodQos.GUARANTEED, {"cpu": 1250, "memory": 184 * MIB}),
        ({}, PodQos.BEST_EFFORT, {"cpu": 1250, "memory": 184 * MIB}),
    ],
)
def test_the_pods_own_resources_decide_where_they_stand(own: Any, qos: PodQos, counted: dict[str, int]) -> None:
    of_container = {"requests": {"cpu": "1", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}}
    overhead = {"cpu": "250m", "memory": "120Mi"}
    spec = {"containers": [{"name": "m", "resources": of_container}], "resources": own, "overhead": overhead}
    assert (pod_qos(spec), requests_of(spec)) == (qos, counted)


def test_overhead_counts_into_limits_only_where_there_is_one() -> None:
    spec = {"containers": [{"resources": {"limits": {"cpu": "1"}}}], "overhead": {"cpu": "250m", "memory": "120Mi"}}
    assert limits_of(spec) == {"cpu": 1250}
    assert requests_of(spec) == {"cpu": 1250, "memory": 120 * MIB}


def test_amounts_of_zero_count_as_not_set() -> None:
    assert qos_class_of([({CPU: 0}, {MEMORY: 0})]) is PodQos.BEST_EFFORT
    assert qos_class_of([({CPU: 0, MEMORY: 1}, {MEMORY: 1})]) is PodQos.BURSTABLE


AMOUNTS = st.sampled_from([{}, {"cpu": "200m"}, {"cpu": "1"}, {"cpu": "3", "memory": "1Gi"}, {"memory": "64Mi"}])
CONDITIONS: tuple[list[dict[str, str]], ...] = (
    [],
    [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
    [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}],
    [{"type": "PodResizeInProgress", "status": "True"}],
)


@st.composite
def live_pods(draw: Any) -> dict[str, Any]:
    """A Pod with a resize in any state: main containers, native sidecars, init containers, pod-level amounts."""

    def container(name: str, **more: str) -> dict[str, Any]:
        return {"name": name, "resources": {"requests": draw(AMOUNTS)}, **more}

    def status(name: str) -> dict[str, Any]:
        reported = draw(st.booleans())
        return {"name": name} | (
            {"resources": {"requests": draw(AMOUNTS)}, "allocatedResources": draw(AMOUNTS)} if reported else {}
        )

    mains = [container(f"m{i}") for i in range(draw(st.integers(1, 2)))]
    sidecars = [container(f"s{i}", restartPolicy="Always") for i in range(draw(st.integers(0, 2)))]
    inits = [container(f"i{i}") for i in range(draw(st.integers(0, 1)))]
    own = draw(st.sampled_from([None, {"requests": {"cpu": "5"}}]))
    spec = {"containers": mains, "initContainers": [*sidecars, *inits], "overhead": draw(AMOUNTS)}
    return {
        "metadata": {"name": "p", "namespace": "shop", "uid": "11"},
        "spec": spec | ({"resources": own} if own else {}),
        "status": {
            "phase": "Running",
            "conditions": draw(st.sampled_from(CONDITIONS)),
            "containerStatuses": [status(c["name"]) for c in mains],
            "initContainerStatuses": [status(c["name"]) for c in (*sidecars, *inits)],
        },
    }


def by_the_rule(pod: dict[str, Any]) -> dict[str, int]:
    """kube-scheduler's sum, derived once more from the objects: the largest of spec, allocated and actual."""
    status = pod["status"]
    reports = {s["name"]: s for s in (*status["containerStatuses"], *status["initContainerStatuses"])}
    infeasible = any(c.get("reason") == "Infeasible" for c in status["conditions"])

    def amount(container: dict[str, Any], name: str) -> int:
        report = reports[container["name"]]
        requests = container["resources"]["requests"]
        if "resources" in report and (container["name"][0] != "i"):
            sides = [report["resources"]["requests"], report["allocatedResources"], *([] if infeasible else [requests])]
        else:
            sides = [requests]
        return max(parse_quantities(side).get(name, 0) for side in sides)

    counted = {}
    for name in ("cpu", "memory"):
        sidecars = 0
        highest = 0
        for init in pod["spec"]["initContainers"]:
            highest = max(highest, sidecars + amount(init, name))
            sidecars += amount(init, name) if init.get("restartPolicy") == "Always" else 0
        total = max(highest, sidecars + sum(amount(c, name) for c in pod["spec"]["containers"]))
        total = 5000 if name == "cpu" and "resources" in pod["spec"] else total
        counted[name] = total + parse_quantities(pod["spec"]["overhead"]).get(name, 0)
    return counted


@given(live_pods())
@settings(max_examples=200)
def test_manager_extender_reservations_scan_and_agent_count_the_same_of_a_pod_that_is_resized(
    pod: dict[str, Any],
) -> None:
    counted = by_the_rule(pod)

    def both(amounts: Mapping[str, int]) -> dict[str, int]:
        return {name: amounts.get(name, 0) for name in ("cpu", "memory")}

    assert both(pod_of(msgspec.convert(pod, ObservedPodWire)).requests) == counted
    assert both({r.value: a for r, a in shape_of(msgspec.convert(pod, PodObject)).requests.items()}) == counted
    assert both(facts_of(msgspec.convert(pod, ExtenderWire), LoadAwareSettings()).requests) == counted
    assert both(PodView.parse(pod).requests) == counted
    assert both(queue_pod(msgspec.convert(pod, QueuePodWire)).pod.requests) == counted
    assert both(counted_requests(agent_pod_of(msgspec.convert(pod, NodePodWire)).resources)) == counted
