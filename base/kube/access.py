"""EDGE: access reviews of the authorization API: sent with POST, but they change nothing."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from cotenant.base.kube.client import KubeClient, decode_answer, refusal
from cotenant.base.kube.connection import ApiRequest

KindT = TypeVar("KindT")

SELF_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class _ReviewStatus(msgspec.Struct):
    allowed: bool = False


class _SelfReview(msgspec.Struct):
    status: _ReviewStatus = msgspec.field(default_factory=_ReviewStatus)


def review(client: KubeClient, path: str, body: object, kind: type[KindT]) -> KindT:
    """Ask a review and decode the answer; nothing is stored, so that a broken connection is simply asked again."""
    request = ApiRequest(path, "POST", msgspec.json.encode(body))
    answer = client.request("create", request, repeatable=True)
    if answer.status not in (200, 201):
        raise refusal(f"review {path}", answer)
    decoded_review: KindT = decode_answer(answer, kind, f"review {path}")
    return decoded_review


def access_review(
    client: KubeClient, verb: str, resource: str, group: str = "", namespace: str = "", subresource: str = ""
) -> bool:
    """Return whether we may `verb` the resource in `namespace`, or in all namespaces if that is "".

    resource: its plural; group: its API group without version.
    """
    fields = {"verb": verb, "resource": resource, "group": group, "namespace": namespace, "subresource": subresource}
    attributes = {name: value for name, value in fields.items() if value}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    return review(client, SELF_REVIEWS, body, _SelfReview).status.allowed
