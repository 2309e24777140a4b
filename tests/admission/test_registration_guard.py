"""The webhook's account may renew the caBundle of its registration, and widen nothing: asked of a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cotenant.admission.settings import AdmissionSettings
from cotenant.admission.webhook_server.authority import CertificatePolicy, renew_material
from cotenant.admission.webhook_server.certificates import CONFIGURATIONS, REGISTRATION, Injector
from cotenant.base.process.clock import SystemClock
from tests.cluster.accounts import account, certified
from tests.cluster.api import PATCHES, Api, ApiError
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for
from tests.cluster.webhook import WEBHOOK, prepare, register, unregister

pytestmark = pytest.mark.server
PATH = "/apis/admissionregistration.k8s.io/v1/{}/cotenant-webhook"
FIRST_HOOK = "/webhooks/0/"
SECRETS = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"], "operations": ["*"], "scope": "*"}
WIDENED: list[dict[str, Any]] = [
    {"op": "replace", "path": f"{FIRST_HOOK}rules/0/resources", "value": ["secrets"]},
    {"op": "add", "path": f"{FIRST_HOOK}rules/-", "value": SECRETS},
    {"op": "replace", "path": f"{FIRST_HOOK}rules/0/operations", "value": ["*"]},
    {"op": "replace", "path": f"{FIRST_HOOK}namespaceSelector", "value": {}},
    {"op": "replace", "path": f"{FIRST_HOOK}objectSelector", "value": {"matchLabels": {"a": "b"}}},
    {"op": "replace", "path": f"{FIRST_HOOK}failurePolicy", "value": "Fail"},
    {"op": "replace", "path": f"{FIRST_HOOK}timeoutSeconds", "value": 30},
    {"op": "replace", "path": f"{FIRST_HOOK}clientConfig/url", "value": "https://127.0.0.1:1/elsewhere"},
    {"op": "add", "path": f"{FIRST_HOOK}matchConditions", "value": [{"name": "always", "expression": "true"}]},
    {"op": "replace", "path": f"{FIRST_HOOK}name", "value": "another.webhook.cotenant.dev"},
    {"op": "remove", "path": "/webhooks/1"},
    {"op": "add", "path": "/metadata/labels/mine", "value": "yes"},
    {"op": "add", "path": "/metadata/finalizers", "value": ["example.com/stays"]},
]
"""Patches of a configuration that only an administrator may send."""


@pytest.fixture(scope="module")
def webhook_api(control_plane: ControlPlane) -> Iterator[Api]:
    """The API server as the account `cotenant-webhook`, beside its registration, with the policy in force."""
    settings = AdmissionSettings()
    prepare(control_plane, settings)
    api = control_plane.api(certified(control_plane, WEBHOOK))
    try:
        register(control_plane.admin_client(), settings, "https://127.0.0.1:9")
        plural = next(iter(CONFIGURATIONS))
        wait_for("the policy", lambda: "caBundle alone" in refusal(api, plural, WIDENED[0]))
        yield api
    finally:
        unregister(control_plane)


def refusal(api: Api, plural: str, operation: dict[str, Any]) -> str:
    """The API server's reason to forbid a patch, "" when it accepts it; nothing is stored."""
    try:
        api.patch(PATH.format(plural), [operation], "json", dryRun="All")
    except ApiError as error:
        assert error.status == 403, str(error)
        return str(error)
    return ""


@pytest.mark.parametrize("plural", CONFIGURATIONS)
def test_the_webhooks_account_widens_nothing_of_its_registration(
    control_plane: ControlPlane, webhook_api: Api, plural: str
) -> None:
    """Every patch is one that the API server accepts from an administrator."""
    administrator = control_plane.api()
    assert [op["path"] for op in WIDENED if refusal(administrator, plural, op)] == []
    assert [op["path"] for op in WIDENED if "of its" not in refusal(webhook_api, plural, op)] == []


@pytest.mark.parametrize("plural", CONFIGURATIONS)
def test_it_makes_and_deletes_no_registration(webhook_api: Api, plural: str) -> None:
    collection = PATH.format(plural).rpartition("/")[0]
    body = {"apiVersion": REGISTRATION, "kind": CONFIGURATIONS[plural], "metadata": {"name": "another"}}
    for method, path in (("POST", collection), ("DELETE", PATH.format(plural)), ("PATCH", f"{collection}/another")):
        with pytest.raises(ApiError) as refused:
            webhook_api.ask(method, path, body, PATCHES["merge" if method == "PATCH" else "apply"], {"dryRun": "All"})
        assert refused.value.status == 403


def test_it_renews_the_bundle_of_both_registrations(control_plane: ControlPlane, webhook_api: Api) -> None:
    assert webhook_api.server == control_plane.server
    injector = Injector(control_plane.client(account(control_plane, WEBHOOK)), AdmissionSettings())
    for _ in range(2):  # a bundle where there was none, then one in the place of another
        bundle = renew_material(None, CertificatePolicy(("127.0.0.1",)), SystemClock().now_seconds()).bundle
        assert injector.inject(bundle) == len(CONFIGURATIONS)
        assert injector.trusted() == bundle
