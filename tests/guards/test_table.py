"""The table of fields, the policies that are made of it, and the sentences about what a thief could still do."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.kubernetes.intent import COMPONENT_LABEL, OURS
from tests.guards.forbidden_acts import changes
from tools.guarded_fields import GUARDS
from tools.stolen_rights import LEFT
from tools.write_guards import DEPLOY, tree, written
from tools.write_rights import EVERYWHERE, READING, rights


def test_the_shipped_policies_are_those_of_the_table() -> None:
    assert [path.name for path, text in written().items() if path.read_text(encoding="utf-8") != text] == []


def test_every_right_to_write_has_a_sentence_about_its_thief_and_no_sentence_is_left_over() -> None:
    assert {(right.account, right.resource) for right in rights() if set(right.verbs) - READING} == set(LEFT)


def test_every_policy_refuses_when_it_fails_and_has_a_binding_that_denies() -> None:
    bodies = [b for path in DEPLOY.glob("*.yaml") for b in yaml.safe_load_all(path.read_text("utf-8")) if b]
    bound = {
        b["spec"]["policyName"]: b["spec"]["validationActions"]
        for b in bodies
        if b["kind"] == "ValidatingAdmissionPolicyBinding"
    }
    for guard in GUARDS:
        (policy,) = (
            b for b in bodies if b["metadata"]["name"] == guard.policy and b["kind"] == "ValidatingAdmissionPolicy"
        )
        assert policy["spec"]["failurePolicy"] == "Fail"
        assert bound[guard.policy] == ["Deny"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (["spec.minReplicas"], {"spec": {"minReplicas": {}}}),
        (["metadata.labels.{a/b, c}"], {"metadata": {"labels": {"a/b": {}, "c": {}}}}),
        (["zones[*].resources"], {"zones": {"*": {"resources": {}}}}),
        (
            ["spec.containers[*].resources.{requests, limits}", "spec.containers[*].env"],
            {"spec": {"containers": {"*": {"resources": {"requests": {}, "limits": {}}, "env": {}}}}},
        ),
        (["metadata.annotations.{node.cotenant.dev/x}"], {"metadata": {"annotations": {"node.cotenant.dev/x": {}}}}),
    ],
)
def test_paths_are_a_tree(fields: list[str], expected: Any) -> None:
    assert tree(fields) == expected


KEYS = st.sampled_from(["a", "b", "c"])
OBJECTS = st.recursive(
    st.integers() | st.text(max_size=3) | st.booleans(),
    lambda inner: st.dictionaries(KEYS, inner, min_size=1),
    max_leaves=8,
)


@given(st.dictionaries(KEYS, OBJECTS, min_size=1), KEYS)
def test_no_forbidden_act_touches_what_is_allowed(live: dict[str, Any], allowed: str) -> None:
    """Whatever the object, an act changes something, and nothing below the allowed key."""
    for _, patch in changes(live, {}, {allowed: {}}):
        assert allowed not in patch
        assert _merged(live, patch) != live


def _merged(live: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    merged_body = dict(live) if isinstance(live, dict) else {}
    for key, value in patch.items():
        merged_body[key] = _merged(merged_body.get(key), value)
    return merged_body


def policies() -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """(name, spec, spec of the binding) of every policy that is shipped."""
    bodies = [body for file in sorted(DEPLOY.glob("*.yaml")) for body in yaml.safe_load_all(file.read_text()) if body]
    specs = {
        manifest["metadata"]["name"]: manifest["spec"]
        for manifest in bodies
        if manifest["kind"] == "ValidatingAdmissionPolicy"
    }
    bindings = [manifest["spec"] for manifest in bodies if manifest["kind"] == "ValidatingAdmissionPolicyBinding"]
    return [(binding["policyName"], specs[binding["policyName"]], binding) for binding in bindings]


OPERATIONS = {"create": "CREATE", "patch": "UPDATE", "delete": "DELETE"}
OTHERS = frozenset(
    {"", "admissionregistration.k8s.io", "apps", "autoscaling", "batch", "resource.k8s.io", "scheduling.k8s.io",
     "scheduling.sigs.k8s.io"}
)  # fmt: skip
"""Groups whose objects are mostly not ours."""
WITHOUT_POLICY = {("scheduling.k8s.io", "podgroups", "create")}
"""What harms nobody: a PodGroup counts only where a pod names it."""


def writes_on_others() -> set[tuple[str, str, str, str]]:
    """(account, group, resource, verb) of every right to write any object of a kind in any namespace."""
    role = yaml.safe_load((DEPLOY / "applier.yaml").read_text().split("---")[0])
    bound = {  # docs/autopilot.md binds it to the manager
        ("cotenant-manager", group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    granted = {
        (right.account, right.group, right.resource, verb)
        for right in rights()
        if right.where == EVERYWHERE and not right.names
        for verb in right.verbs
    }
    return {
        bound_right
        for bound_right in bound | granted
        if bound_right[1] in OTHERS and bound_right[3] in OPERATIONS and bound_right[1:] not in WITHOUT_POLICY
    }


@pytest.mark.slow
def test_every_right_to_write_what_is_not_ours_has_a_policy_about_that_account() -> None:
    writes = writes_on_others()
    assert ("cotenant-manager", "", "pods/resize", "patch") in writes
    assert len(writes) >= 25
    assert sorted(right for right in writes if not any(_covers(spec, *right) for _, spec, _ in policies())) == []


def _covers(spec: dict[str, Any], account: str, group: str, resource: str, verb: str) -> bool:
    conditions = "".join(condition["expression"] for condition in spec.get("matchConditions", ()))
    return f":{account}'" in conditions and any(
        group in rule["apiGroups"] and resource in rule["resources"] and OPERATIONS[verb] in rule["operations"]
        for rule in spec["matchConstraints"]["resourceRules"]
    )


def test_no_policy_looks_through_objects_because_of_a_write_of_somebody_else() -> None:
    # The API server asks a policy once for each of its parameters, also whether the writer is one that it is about. A
    # selection of parameters (all pods of a namespace) is therefore made for requests alone that bear our label.
    components = {"cotenant-manager-evicted-pods": "manager", "cotenant-enforcer-evicted-pods": "enforcer"}
    selecting = {name: spec for name, spec, binding in policies() if "selector" in binding.get("paramRef", {})}
    assert selecting.keys() == components.keys()
    for name, spec in selecting.items():
        labels = {**OURS, COMPONENT_LABEL: components[name]}  # nor one of the other of our accounts
        assert spec["matchConstraints"]["objectSelector"] == {"matchLabels": labels}, name
    rest = [name for name, spec, binding in policies() if "paramKind" in spec and "name" not in binding["paramRef"]]
    assert set(rest) == selecting.keys()  # all others have one parameter
