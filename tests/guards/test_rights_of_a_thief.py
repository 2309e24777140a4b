"""Every request that no right covers, by every account, to every kind that the API server serves: all are refused."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from tests.cluster.accounts import install_rights
from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for
from tests.guards.scene import Act, outcome
from tools.write_rights import EVERYWHERE, accounts, rights

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]
VERBS = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE", "deletecollection": "DELETE"}
READING = {"get": "GET", "list": "GET"}
CONNECTED = ("exec", "attach", "portforward", "proxy")
ASKED_BY_ALL = frozenset(
    {
        "selfsubjectaccessreviews",
        "selfsubjectrulesreviews",
        "selfsubjectreviews",
    }
)
"""What Kubernetes lets every account ask: its own rights."""
NAME = "stolen"


@cache
def resources(api: Api) -> tuple[tuple[str, str, bool, tuple[str, ...], str], ...]:
    """(group/version, resource with subresource, in a namespace?, verbs, kind) of all that is served."""
    groups = [f"apis/{g['preferredVersion']['groupVersion']}" for g in api.get("/apis")["groups"]]
    return tuple(
        (path.partition("/")[2], resource["name"], resource["namespaced"], tuple(resource["verbs"]), resource["kind"])
        for path in ("api/v1", *groups)
        for resource in api.get(f"/{path}")["resources"]
    )


def _covered(account: str, group: str, resource: str, verb: str, namespace: str) -> bool:
    """Whether a rule of docs/rights.md lets the account do it to an object of any name."""
    return any(
        (right.account, right.group, right.resource) == (account, group, resource)
        and verb in right.verbs
        and not right.names
        and right.where in (EVERYWHERE, namespace)
        for right in rights()
    )


def acts(api: Api, account: str, namespace: str) -> Iterator[Act]:
    """Every request of an account that no right covers."""
    for version, resource, namespaced, verbs, kind in resources(api):
        group = version.rpartition("/")[0]
        plural, _, part = resource.partition("/")
        if plural in ASKED_BY_ALL or (plural == "namespaces" and part):
            continue
        root = f"/apis/{version}" if group else f"/api/{version}"
        where = f"{root}/namespaces/{namespace}/{plural}" if namespaced else f"{root}/{plural}"
        for verb, method in {**VERBS, **READING}.items():
            if verb not in verbs or _covered(account, group, resource, verb, namespace):
                continue
            is_named = part or verb not in ("create", "list", "deletecollection")
            path = f"{where}/{NAME}" if is_named else where
            body: Any = {"apiVersion": version, "kind": kind, "metadata": {"name": NAME}}
            yield Act(
                f"{account}: {verb} {resource} in {namespace if namespaced else 'the cluster'}",
                method,
                f"{path}/{part}" if part else path,
                body if method in ("POST", "PUT", "PATCH") else None,
            )


@pytest.mark.parametrize("account", accounts())
def test_a_stolen_token_does_nothing_that_no_right_covers(control_plane: ControlPlane, account: str) -> None:
    install_rights(control_plane)
    admin = control_plane.api()
    user = f"system:serviceaccount:{accounts()[account]}:{account}"
    api = control_plane.api(control_plane.user(user, ["system:serviceaccounts"]))
    tried = [act for place in ("default", "kube-system") for act in acts(admin, account, place)]
    wait_for("the API server to know the account's rights", lambda: outcome(api, tried[0]).status == 403)
    answers = [(act.title, outcome(api, act).status) for act in tried]
    # 403 by RBAC, before anything of the request is looked at: not 404, which would say that it was let through.
    assert [reply for reply in answers if reply[1] != 403] == []
    assert len(answers) >= 400
