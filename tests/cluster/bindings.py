"""Role bindings of tests: the API server's authorizer follows what is stored, a moment later on a busy machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from tests.cluster.waiting import wait_for

Json = dict[str, Any]
Ask = Callable[[str, str, Json | None], Json]
"""Method, path and body; the answer."""
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1/"
REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def wait_until_it_counts(ask: Ask, path: str, binding: Json) -> None:
    """Wait until each subject of a binding that was created has the first right of its role."""
    role = binding["roleRef"]
    inside = binding["metadata"].get("namespace", "")
    at = f"namespaces/{inside}/roles" if role["kind"] == "Role" else "clusterroles"
    rights = ask("GET", f"{RBAC}{at}/{role['name']}", None).get("rules") or []
    for subject in binding.get("subjects") or []:
        for spec in _first_right(rights, inside):
            body = {"spec": {**spec, **_person(subject)}}
            wait_for(
                f"{path}/{binding['metadata']['name']} to count",
                lambda body=body: ask("POST", REVIEWS, body)["status"]["allowed"],
            )


def is_binding(path: str) -> bool:
    """Is it the collection of role bindings?"""
    return path.startswith(RBAC) and path.endswith("rolebindings")


def _person(subject: Json) -> Json:
    if subject["kind"] == "Group":
        return {"groups": [subject["name"]], "user": "somebody"}
    if subject["kind"] == "ServiceAccount":
        return {"user": f"system:serviceaccount:{subject.get('namespace', '')}:{subject['name']}"}
    return {"user": subject["name"]}


def _first_right(rights: list[Json], namespace: str) -> Iterator[Json]:
    """Attributes of a review of a role's first right; nothing of a role without one."""
    for right in rights:
        if right.get("nonResourceURLs"):
            if not namespace:
                yield {"nonResourceAttributes": {"verb": right["verbs"][0], "path": right["nonResourceURLs"][0]}}
                return
            continue
        resource, _, subresource = right["resources"][0].partition("/")
        attributes = {
            "verb": right["verbs"][0],
            "group": right["apiGroups"][0],
            "resource": resource,
            "subresource": subresource,
            "name": (right.get("resourceNames") or [""])[0],
            "namespace": namespace,
        }
        yield {"resourceAttributes": attributes}
        return
