"""Pods of profiles that want them bound by the extender: who asks for it, and who does not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.admission.pod_mutation import compute_mutation, with_bind_request, writable
from cotenant.admission.policies.compiler import compile_profiles
from cotenant.admission.profile import Profile
from cotenant.base.kubernetes.pod_wire import limits_of, requests_of
from tests.admission.test_profiles import call, pod, view

BIND = "cotenant.dev/bind"
SPEC = "scheduling.koordinator.sh/resource-spec"


def bound_profile(text: str = "true", name: str = "p", **spec: Any) -> Profile:
    metadata = {"name": name, "annotations": {"cotenant.dev/request-bind": text}}
    return Profile.parse({"metadata": metadata, "spec": {"qosClass": "LSR", "priorityClassName": "koord-prod", **spec}})


def both(**amounts: str) -> dict[str, dict[str, str]]:
    return {"requests": amounts, "limits": amounts}


def bind_requests(body: dict[str, Any], *profiles: Profile) -> tuple[int, int]:
    """How many the pod asks for in the end, as request and as limit."""
    spec = compute_mutation(body, view(*profiles), call()).pod["spec"]
    return requests_of(spec).get(BIND, 0), limits_of(spec).get(BIND, 0)


def test_an_lsr_pod_of_a_profile_that_says_so_asks_to_be_bound() -> None:
    assert bind_requests(pod({}, **both(cpu="4", memory="1Gi")), bound_profile()) == (1, 1)


def test_a_profile_that_was_not_drawn_and_one_without_the_annotation_ask_for_nothing() -> None:
    body = pod({}, **both(cpu="4"))
    plain = bound_profile("false", "plain")
    assert bind_requests(body, plain) == bind_requests(body, plain, bound_profile(probability=0)) == (0, 0)


@pytest.mark.parametrize(
    ("amounts", "spec", "asks"),
    [
        ({"cpu": "4"}, {"qosClass": "LSE"}, 1),
        ({"cpu": "4"}, {"qosClass": "LS"}, 0),
        ({"cpu": "4"}, {"annotations": {SPEC: '{"requiredCPUBindPolicy": "ConstrainedBurst"}'}}, 0),
        ({"memory": "1Gi"}, {}, 0),
        ({"nvidia.com/gpu": "1"}, {"qosClass": "LS"}, 1),
        ({"koordinator.sh/gpu": "50"}, {"qosClass": "LS"}, 0),
        ({"cpu": "4", BIND: "1"}, {}, 1),
    ],
    ids=[
        "LSE",
        "shares CPUs",
        "wants to share",
        "no CPU",
        "a whole GPU",
        "shares of a GPU ask by name",
        "asks already",
    ],
)
def test_a_pod_asks_when_there_is_something_to_bind(amounts: dict[str, str], spec: dict[str, Any], asks: int) -> None:
    assert bind_requests(pod({}, **both(**amounts)), bound_profile(**spec)) == (asks, asks)


def test_amounts_that_cannot_be_read_are_left_with_a_warning() -> None:
    result = compute_mutation(pod({}, **both(cpu="many")), view(bound_profile()), call())
    assert result.pod["spec"]["containers"][0]["resources"] == both(cpu="many")
    assert any("cotenant.dev/bind was not requested" in warning for warning in result.warnings)


@given(st.lists(st.dictionaries(st.sampled_from(["cpu", "memory", BIND]), st.just("1"), max_size=3), max_size=3))
def test_a_second_run_changes_nothing_and_only_the_request_is_added(containers: list[dict[str, str]]) -> None:
    body: dict[str, Any] = {
        "metadata": {"name": "p", "labels": {"koordinator.sh/qosClass": "LSR"}},
        "spec": {
            "containers": [{"name": str(i), "resources": both(**resources)} for i, resources in enumerate(containers)]
        },
    }
    once = writable(body)
    assert with_bind_request(once, "shop") == []
    twice = writable(once)
    with_bind_request(twice, "shop")
    assert twice == once
    asks_for_cpu = any("cpu" in container for container in containers)
    requests = requests_of(body["spec"])
    assert requests_of(once["spec"]) == requests | ({BIND: requests.get(BIND, 1)} if asks_for_cpu else {})


def test_policies_say_that_they_do_not_add_it() -> None:
    losses = compile_profiles([bound_profile()]).losses
    assert [loss.field for loss in losses] == ["metadata.annotations.cotenant.dev/request-bind"]
