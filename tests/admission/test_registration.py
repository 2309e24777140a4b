"""What we register with the API server harms nobody when we are away, and goes where it is told."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from cotenant.admission.review import ROUTES
from cotenant.admission.settings import AdmissionSettings
from cotenant.admission.webhook_server.registration import registration_objects
from cotenant.base.errors import UsageError
from cotenant.cli.cluster.installation.manifests import manifests

TEMPLATE = [found.body for found in manifests(("registration",))]


def hooks(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {hook["name"].split(".")[0]: hook for body in objects for hook in body.get("webhooks", ())}


def excluded(hook: dict[str, Any]) -> set[str]:
    expressions = hook["namespaceSelector"]["matchExpressions"]
    return {v for e in expressions if e["operator"] == "NotIn" and "metadata.name" in e["key"] for v in e["values"]}


def test_only_quotas_in_namespaces_that_ask_for_it_wait_for_us() -> None:
    hooks_by_name = hooks(registration_objects(TEMPLATE, AdmissionSettings(), "koordinator-system"))
    assert {name for name, hook in hooks_by_name.items() if hook["failurePolicy"] == "Fail"} == {"enforce-quota"}
    expressions = hooks_by_name["enforce-quota"]["namespaceSelector"]["matchExpressions"]
    assert {"key": "cotenant.dev/quota-validation", "operator": "In", "values": ["enforce"]} in expressions
    for name, hook in hooks_by_name.items():
        assert (hook["sideEffects"], hook["timeoutSeconds"], hook["admissionReviewVersions"]) == ("None", 2, ["v1"])
        assert name == "validate-config" or excluded(hook) == {"kube-system", "cotenant", "cotenant-reservations"}
    assert {hook["clientConfig"]["service"]["path"] for hook in hooks_by_name.values()} == set(ROUTES)


def test_a_url_takes_the_place_of_the_service() -> None:
    objects = registration_objects(TEMPLATE, AdmissionSettings(), "koordinator-system", "https://10.0.0.5:9443/")
    assert {body["kind"] for body in objects} == {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}
    assert hooks(objects)["mutate-pod"]["clientConfig"] == {"url": "https://10.0.0.5:9443/mutate-pod"}


def test_names_follow_the_settings() -> None:
    settings = AdmissionSettings(namespace="ours", service="svc", configuration="conf")
    objects = registration_objects(TEMPLATE, settings, "slo-system")
    assert {body["metadata"]["name"] for body in objects} == {"svc", "conf"}
    hooks_by_name = hooks(objects)
    assert hooks_by_name["mutate-pod"]["clientConfig"]["service"]["namespace"] == "ours"
    assert excluded(hooks_by_name["mutate-pod"]) == {"kube-system", "ours", "cotenant-reservations"}
    assert "slo-system" in yaml.safe_dump(hooks_by_name["validate-config"]["namespaceSelector"])


@pytest.mark.parametrize("url", ["http://10.0.0.5", "10.0.0.5:9443", "https://", "https://u@h/", "https://h/?q=1"])
def test_a_url_that_the_api_server_cannot_call_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="--url"):
        registration_objects(TEMPLATE, AdmissionSettings(), "koordinator-system", url)
