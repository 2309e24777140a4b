"""What each account of ours may do is what docs/rights.md says: asked of a real API server, account by account."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import pytest

from tests.cluster.accounts import install_rights
from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import install_crd
from tests.cluster.namespaces import create_namespace
from tests.cluster.waiting import wait_for
from tests.house.rooms import ROOT
from tools.write_rights import DEPLOY, EVERYWHERE, accounts, page, rights

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
PLACES = ("default", "cotenant", "cotenant-reservations", "koordinator-system", "monitoring")
"""Namespaces in which somebody may do more than in others, and one of the others."""
BEYOND = (("users", "", "impersonate"), ("clusterroles", "rbac.authorization.k8s.io", "escalate"))
Grant = tuple[str, str, str, str]
"""Group, resource or path, name of the object or "", verb."""


@cache
def user_of(account: str) -> str:
    return f"system:serviceaccount:{accounts().get(account, 'cotenant')}:{account}"


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> ControlPlane:
    """With the rights of deploy/, and those in namespace monitoring, which other tests do without."""
    install_rights(control_plane)
    if not control_plane.api().exists("/api/v1/namespaces/monitoring"):
        create_namespace(control_plane.api(), "monitoring")
    control_plane.kubectl("apply", "-f", str(DEPLOY / "rbac" / "prometheus.yaml"))
    for account in accounts():  # the API server learns of a new role a moment after it was written
        wait_for(f"the roles of {account}", lambda account=account: _has_all(control_plane, account))
    return control_plane


def _has_all(plane: ControlPlane, account: str) -> bool:
    return all(
        expected(account, namespace) <= granted(plane, account, namespace) for namespace in ("default", "monitoring")
    )


@pytest.fixture(scope="module")
def everybody(plane: ControlPlane) -> dict[str, set[Grant]]:
    """What every account may do, by namespace."""
    return {namespace: granted(plane, "somebody-without-rights", namespace) for namespace in PLACES}


def granted(plane: ControlPlane, account: str, namespace: str) -> set[Grant]:
    """What the API server says that an account may do there."""
    api = plane.api(plane.user(user_of(account), ["system:serviceaccounts"]))
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    status = api.create("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", review)["status"]
    api.close()
    assert not status["incomplete"]
    grants: set[Grant] = set()
    for rule in status["resourceRules"]:
        grants.update(
            product(rule.get("apiGroups", [""]), rule["resources"], rule.get("resourceNames", [""]), rule["verbs"])
        )
    for rule in status["nonResourceRules"]:
        grants.update(("", url, "", verb) for url in rule["nonResourceURLs"] for verb in rule["verbs"])
    return grants


def expected(account: str, namespace: str) -> set[Grant]:
    """What the page says."""
    rows = [r for r in rights() if r.account == account and r.where in (EVERYWHERE, namespace)]
    return {(r.group, r.resource, name, verb) for r in rows for name in r.names or ("",) for verb in r.verbs}


def test_the_page_is_what_deploy_grants() -> None:
    assert (ROOT / "docs" / "rights.md").read_text() == page(), "run: python -m tools.write_rights > docs/rights.md"
    assert {right.account for right in rights()} < set(accounts())
    assert {right.where for right in rights()} <= {EVERYWHERE, *PLACES}
    assert [right for right in rights() if not right.why] == []


@pytest.mark.server
@pytest.mark.parametrize("account", accounts())
def test_an_account_may_do_what_the_page_says_and_nothing_else(
    plane: ControlPlane, everybody: dict[str, set[Grant]], account: str
) -> None:
    for namespace, common in everybody.items():
        assert granted(plane, account, namespace) - common == expected(account, namespace) - common, namespace


@pytest.mark.server
@pytest.mark.soak
@pytest.mark.parametrize("account", accounts())
def test_every_verb_on_every_resource_is_answered_as_the_page_says(plane: ControlPlane, account: str) -> None:
    """`kubectl auth can-i` for all that the server serves: slower than its list of rules, and another way to know."""
    for file in (DEPLOY / "crds").glob("*.yaml"):
        install_crd(plane.api(), file.stem)
    api = plane.api()
    for namespace in PLACES:
        wishes = expected(account, namespace)
        for group, resource, verb in every_verb(api):
            names = {n for g, r, n, v in wishes if (g, r, v) == (group, resource, verb)}
            for name in {"", *names}:
                allowed = may(api, account, namespace, (group, resource, name, verb))
                assert allowed == bool(names & {"", name}), (namespace, group, resource, name, verb)


def every_verb(api: Api) -> Iterator[tuple[str, str, str]]:
    """Group, resource with its subresource, verb: of everything that the server serves, and of what reaches beyond."""
    groups = [("", "/api/v1")]
    groups += [(g["name"], f"/apis/{g['preferredVersion']['groupVersion']}") for g in api.get("/apis")["groups"]]
    for group, path in groups:
        if group in {"authorization.k8s.io", "authentication.k8s.io"}:
            continue  # questions about oneself, which everybody may ask
        for resource in api.get(path)["resources"]:
            yield from ((group, resource["name"], verb) for verb in VERBS)
    yield from ((group, resource, verb) for resource, group, verb in BEYOND)


def may(api: Api, account: str, namespace: str, grant: Grant) -> bool:
    """A SubjectAccessReview."""
    group, resource, name, verb = grant
    plain, _, subresource = resource.partition("/")
    attributes: dict[str, Any] = {"namespace": namespace, "verb": verb, "group": group, "resource": plain}
    attributes |= {k: v for k, v in (("subresource", subresource), ("name", name)) if v}
    groups = ["system:serviceaccounts", "system:authenticated"]
    spec = {"user": user_of(account), "groups": groups, "resourceAttributes": attributes}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    return bool(api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", body)["status"]["allowed"])
