"""Whether applying a proposal restarts anything follows Kubernetes' rules for resizing pods."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.cluster import Container, ContainerRole, Workload
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.kubernetes.pod_qos import PodQos
from cotenant.base.reasons import Reason
from cotenant.base.resource import MIB, Resource
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Restart, Value
from cotenant.recommender.restart import parsed_version, pod_qos, restart

CPU, MEMORY = Resource.CPU, Resource.MEMORY
REQUEST, LIMIT = Field.REQUEST, Field.LIMIT
BURSTABLE = Container("app", {CPU: 500, MEMORY: 512 * MIB}, {CPU: 1000, MEMORY: 1024 * MIB})
FIXED = Container("app", {CPU: 500, MEMORY: 512 * MIB}, {CPU: 500, MEMORY: 512 * MIB})
Change = Mapping[tuple[Resource, Field], int | None]


def proposal(container: Container, change: Change, ref: WorkloadRef) -> Recommendation:
    """A recommendation with these amounts (None = unset); present ones from the container."""
    values = []
    for (resource, which), amount in change.items():
        now = (container.requests if which is REQUEST else container.limits).get(resource)
        action = Action.UNSET if amount is None else Action.SET
        values.append(Value(resource, which, now, amount, action, Reason.OK))
    return Recommendation(ContainerRef(ref, container.name), "x", 1, tuple(values), 0, "", 0)


def cost(
    change: Change, container: Container = BURSTABLE, version: str = "1.35.4", kind: str = "Deployment"
) -> Restart:
    workload = Workload(WorkloadRef("a", kind, "shop"), 1, (container,))
    recommendation = proposal(container, change, workload.ref)
    return restart(recommendation, workload, [recommendation], version)


LESS_CPU: Change = {(CPU, REQUEST): 300}


def test_nothing_to_change_costs_nothing() -> None:
    assert cost({}) is Restart.NONE
    assert cost({(CPU, REQUEST): 500}) is Restart.NONE
    assert cost({(CPU, LIMIT): None}, Container("app", {CPU: 500})) is Restart.NONE


def test_servers_resize_in_place_from_1_33_on() -> None:
    costs = {v: cost(LESS_CPU, version=v) for v in ("", "1.32.9", "1.33.0", "v1.35.1-gke.100", "2.0")}
    assert list(costs.values()) == [Restart.ROLLOUT, Restart.ROLLOUT, *[Restart.IN_PLACE] * 3]


def test_a_resize_policy_that_restarts_the_container_is_no_resize_in_place() -> None:
    careful = Container("app", BURSTABLE.requests, BURSTABLE.limits, restarts_on=(MEMORY,))
    assert cost(LESS_CPU, careful) is Restart.IN_PLACE
    assert cost({(MEMORY, REQUEST): 600 * MIB}, careful) is Restart.ROLLOUT


def test_a_memory_limit_comes_down_in_place_from_1_34_on() -> None:
    lower, higher = ({(MEMORY, LIMIT): mib * MIB} for mib in (800, 2000))
    assert [cost(lower, version=v) for v in ("1.33.2", "1.34.0")] == [Restart.ROLLOUT, Restart.IN_PLACE]
    assert cost(higher, version="1.33.2") is Restart.IN_PLACE


def test_removing_an_amount_needs_new_pods() -> None:
    assert cost({(CPU, LIMIT): None}) is Restart.ROLLOUT


def test_a_change_of_the_qos_class_needs_new_pods() -> None:
    assert cost({(CPU, REQUEST): 300}, FIXED) is Restart.ROLLOUT
    assert cost({(CPU, REQUEST): 300, (CPU, LIMIT): 300}, FIXED) is Restart.IN_PLACE
    assert cost({(CPU, REQUEST): 300}, Container("app")) is Restart.ROLLOUT


def test_the_qos_class_is_that_of_the_pod_with_all_its_proposals() -> None:
    ref = WorkloadRef("a", "Deployment", "shop")
    second = Container("proxy", FIXED.requests, FIXED.limits)
    workload = Workload(ref, 1, (FIXED, second))
    both: Change = {(CPU, REQUEST): 300, (CPU, LIMIT): 300}
    first, half = proposal(FIXED, both, ref), proposal(second, {(CPU, REQUEST): 300}, ref)
    assert restart(first, workload, [first], "1.35") is Restart.IN_PLACE
    assert restart(first, workload, [first, half], "1.35") is Restart.ROLLOUT


def test_init_containers_are_not_resized_but_sidecars_are() -> None:
    for role, expected in ((ContainerRole.INIT, Restart.ROLLOUT), (ContainerRole.SIDECAR, Restart.IN_PLACE)):
        assert cost(LESS_CPU, Container("app", BURSTABLE.requests, BURSTABLE.limits, role)) is expected


@pytest.mark.parametrize("kind", ["Job", "CronJob"])
def test_jobs_take_new_values_with_their_next_run(kind: str) -> None:
    assert cost(LESS_CPU, version="", kind=kind) is Restart.NONE


def test_a_container_that_the_template_does_not_have_needs_new_pods() -> None:
    workload = Workload(WorkloadRef("a", "Deployment", "shop"), 1, (BURSTABLE,))
    recommendation = proposal(Container("other", {CPU: 500}), LESS_CPU, workload.ref)
    assert restart(recommendation, workload, [recommendation], "1.35") is Restart.ROLLOUT


def test_qos_classes_follow_the_rule_of_kubernetes() -> None:
    assert pod_qos([Container("a"), Container("b")]) is PodQos.BEST_EFFORT
    assert pod_qos([FIXED, Container("b")]) is PodQos.BURSTABLE
    assert pod_qos([Container("a", {}, FIXED.limits)]) is PodQos.GUARANTEED  # requests default to limits
    assert pod_qos([Container("a", FIXED.requests, {MEMORY: 512 * MIB})]) is PodQos.BURSTABLE
    assert pod_qos([FIXED, FIXED]) is PodQos.GUARANTEED


@given(st.integers(0, 9999), st.integers(0, 9999), st.text().filter(lambda t: not t[:1].isdigit()))
def test_a_version_is_read_whatever_follows_it(major: int, minor: int, rest: str) -> None:
    assert parsed_version(f"{major}.{minor}{rest}") == parsed_version(f"v{major}.{minor}{rest}") == (major, minor)


@given(st.text().filter(lambda t: not any(c.isdigit() for c in t)))
def test_text_without_a_number_is_no_version(text: str) -> None:
    assert parsed_version(text) == (0, 0)
