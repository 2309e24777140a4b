"""A recommendation becomes a patch that changes only what it says, in exact quantities, safe in a shell."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.kubernetes.quantity import parse_bytes, parse_millicores
from cotenant.base.reasons import Reason
from cotenant.base.resource import MIB, Resource
from cotenant.changes.decide.patches import kubectl_command, patch, refusal
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value

CPU, MEMORY = Resource.CPU, Resource.MEMORY


def value(resource: Resource, which: Field, now: int | None, amount: int | None, action: Action = Action.SET) -> Value:
    return Value(resource, which, now, amount, action, Reason.OK)


def recommendation(
    *values: Value, kind: str = "Deployment", name: str = "web", container: str = "app"
) -> Recommendation:
    return Recommendation(ContainerRef(WorkloadRef("shop", kind, name), container), "vpa", 1, values, 0, "d", 0)


SAMPLE = recommendation(
    value(CPU, Field.REQUEST, 100, 250),
    value(CPU, Field.LIMIT, 500, None, Action.UNSET),
    value(MEMORY, Field.REQUEST, None, 1150 * MIB),
    value(MEMORY, Field.LIMIT, 512 * MIB, 512 * MIB),
)


def test_the_patch_names_only_what_changes_and_removes_with_null() -> None:
    container = {"name": "app", "resources": {"requests": {"cpu": "250m", "memory": "1150Mi"}, "limits": {"cpu": None}}}
    assert patch(SAMPLE) == {"spec": {"template": {"spec": {"containers": [container]}}}}


def test_the_command_is_one_line_that_a_shell_splits_into_the_same_patch() -> None:
    arguments = shlex.split(kubectl_command(SAMPLE))
    assert arguments[:6] == ["kubectl", "patch", "-n", "shop", "deployment/web", "--type=strategic"]
    assert json.loads(arguments[7]) == patch(SAMPLE)
    assert "\n" not in kubectl_command(SAMPLE)


def test_a_cronjob_is_patched_inside_its_job_template_and_a_bare_pod_is_not() -> None:
    change = value(CPU, Field.REQUEST, 1, 2)
    spec = patch(recommendation(change, kind="CronJob"))["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert spec["containers"][0]["resources"] == {"requests": {"cpu": "2m"}}
    for kind in ("Pod", "Job", "Node"):
        assert patch(recommendation(change, kind=kind)) == {}
        assert kubectl_command(recommendation(change, kind=kind)) == ""


@pytest.mark.parametrize(
    "same",
    [
        value(CPU, Field.REQUEST, 100, 100),
        value(CPU, Field.LIMIT, None, None, Action.UNSET),
        value(CPU, Field.REQUEST, 100, None, Action.WITHHELD),
    ],
)
def test_nothing_to_change_gives_no_patch_and_no_command(same: Value) -> None:
    assert patch(recommendation(same)) == {}
    assert kubectl_command(recommendation(same)) == ""


@pytest.mark.parametrize("name", ["web;reboot", "$(id)", "-o", "../x", "Web", "", "a" * 300, "web\n", "wéb", "a b"])
def test_a_name_that_kubernetes_would_not_allow_never_reaches_a_command(name: str) -> None:
    change = value(CPU, Field.REQUEST, 1, 2)
    for bad in (recommendation(change, name=name), recommendation(change, container=name)):
        assert kubectl_command(bad) == ""
        assert repr(name) in refusal(bad)


@given(st.integers(0, 2**62), st.integers(0, 2**62))
def test_amounts_survive_json_and_yaml_to_the_last_byte(cpu: int, memory: int) -> None:
    document = patch(recommendation(value(CPU, Field.REQUEST, None, cpu), value(MEMORY, Field.LIMIT, None, memory)))
    for again in (json.loads(json.dumps(document)), yaml.safe_load(yaml.safe_dump(document))):
        resources: Any = again["spec"]["template"]["spec"]["containers"][0]["resources"]
        assert parse_millicores(resources["requests"]["cpu"]) == cpu
        assert parse_bytes(resources["limits"]["memory"]) == memory
        assert "." not in resources["limits"]["memory"]
