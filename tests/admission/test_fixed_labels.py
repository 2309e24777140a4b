"""Labels and annotations that a pod keeps for life are kept without any webhook, by a policy of the API server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from cotenant.admission.pod_mutation import FIXED_LABELS
from cotenant.admission.pod_rules import FIXED_ANNOTATIONS
from cotenant.scheduler_ext.queues.model.gang import GANG_PREFIX
from tests.admission.bodies import PODS, pod
from tests.cluster.api import Api, ApiError
from tests.cluster.waiting import wait_for
from tests.house.rooms import ROOT

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
NAME = "cotenant-fixed-labels"


def shipped() -> dict[str, Any]:
    documents = yaml.safe_load_all((ROOT / "deploy/queue-guard.yaml").read_text())
    return {body["kind"]: body for body in documents if body["metadata"]["name"] == NAME}


def test_the_policy_names_what_the_webhook_refuses_to_change() -> None:
    text = next(
        v["expression"] for v in shipped()["ValidatingAdmissionPolicy"]["spec"]["variables"] if v["name"] == "changed"
    )
    labels, annotations = (set(re.findall(r"'([^']+)'", part)) for part in text.split("variables.annotations.map", 1))
    assert labels == set(FIXED_LABELS)
    assert annotations == {*FIXED_ANNOTATIONS, GANG_PREFIX}


@pytest.fixture
def in_force(api: Api, namespace: str) -> Iterator[None]:
    """The shipped policy, for the pods of the test's namespace."""
    policy, binding = shipped()["ValidatingAdmissionPolicy"], shipped()["ValidatingAdmissionPolicyBinding"]
    name = f"{NAME}-{namespace}"
    for body in (policy, binding):
        body["metadata"]["name"] = name
    own = [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": [namespace]}]
    policy["spec"]["matchConstraints"]["namespaceSelector"] = {"matchExpressions": own}
    binding["spec"]["policyName"] = name
    api.create(POLICIES, policy)
    api.create(POLICIES.replace("policies", "policybindings"), binding)
    probe = api.create(PODS.format(namespace), pod("probe"))["metadata"]["name"]

    def judged() -> bool:
        try:
            api.patch(f"{PODS.format(namespace)}/{probe}", labelled(FIXED_LABELS[0], "x"), dryRun="All")
        except ApiError:
            return True
        return False

    wait_for("the policy", judged)
    yield
    api.delete(f"{POLICIES.replace('policies', 'policybindings')}/{name}")
    api.delete(f"{POLICIES}/{name}")


def labelled(key: str, value: str | None, side: str = "labels") -> dict[str, Any]:
    return {"metadata": {side: {key: value}}}


@pytest.mark.usefixtures("in_force")
def test_nobody_changes_who_pays_for_a_living_pod_where_no_webhook_stands(api: Api, namespace: str) -> None:
    body = pod("web", {key: "v" for key in FIXED_LABELS if "min-available" not in key})
    gang = f"{GANG_PREFIX}name"
    body["metadata"]["annotations"] = {gang: "v", "team": "a"}
    path = f"{PODS.format(namespace)}/{api.create(PODS.format(namespace), body)['metadata']['name']}"
    labels = [(key, value, "labels") for key in FIXED_LABELS for value in ("w", None) if value or "min-av" not in key]
    annotations = [(gang, None, "annotations"), (f"{GANG_PREFIX}groups", "[]", "annotations")]
    annotations += [(key, "w", "annotations") for key in FIXED_ANNOTATIONS]
    for key, value, side in (*labels, *annotations):
        for door in (path, f"{path}/status"):
            with pytest.raises(ApiError, match=f"{re.escape(key)} of a living pod may not be changed"):
                api.patch(door, labelled(key, value, side))
    api.patch(path, {"metadata": {"labels": {"team": "b"}, "annotations": {"team": "b"}}})
    assert api.get(path)["metadata"]["labels"] == {**body["metadata"]["labels"], "team": "b"}
