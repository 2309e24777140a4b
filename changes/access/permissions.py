"""EDGE: which of cotenant's features the caller's rights allow, by one SelfSubjectAccessReview for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cotenant.base.errors import ClusterError, ClusterUnreachable
from cotenant.base.kube import KubeClient, access_review
from cotenant.changes.model.service import Permission

MOST_NAMESPACES: Final = 50
"""Largest number of namespaces whose rights are checked one by one."""


@dataclass(frozen=True, slots=True)
class Need:
    """A right that one of cotenant's features needs; `resource` is a plural, with a subresource after a slash."""

    feature: str
    verb: str
    resource: str
    group: str = ""

    @property
    def name(self) -> str:
        """The resource as kubectl writes it: followed by a dot and its API group, if it has a group."""
        return f"{self.resource}.{self.group}" if self.group else self.resource

    def asked(self, client: KubeClient, namespace: str) -> bool | None:
        """Return whether an access review allows this right in the namespace; None if the review fails.

        Raise ClusterUnreachable without a connection, because the other reviews would fail as well.
        """
        plural, _, subresource = self.resource.partition("/")
        try:
            return access_review(client, self.verb, plural, self.group, namespace, subresource)
        except ClusterUnreachable:
            raise
        except ClusterError:
            return None


REVIEW: Final = "Review a change"
APPLY: Final = "Apply and roll back"
IN_PLACE: Final = "Resize running pods"
VERIFY: Final = "Verify afterwards"
RESERVE: Final = "Plan reservations"
HEAD: Final = "Store the audit log's head in the cluster"
NEEDS: Final = (
    *(Need(REVIEW, "get", plural, "apps") for plural in ("deployments", "statefulsets", "daemonsets")),
    Need(REVIEW, "get", "cronjobs", "batch"),
    Need(REVIEW, "get", "horizontalpodautoscalers", "autoscaling"),
    Need(REVIEW, "list", "poddisruptionbudgets", "policy"),
    *(Need(APPLY, "patch", plural, "apps") for plural in ("deployments", "statefulsets", "daemonsets")),
    Need(APPLY, "patch", "cronjobs", "batch"),
    Need(APPLY, "patch", "horizontalpodautoscalers", "autoscaling"),
    Need(IN_PLACE, "patch", "pods/resize"),
    Need(VERIFY, "list", "pods"),
    *(Need(RESERVE, verb, "reservationplans", "cotenant.dev") for verb in ("create", "patch")),
)
"""The rights that features need in a namespace, in the order for people."""


def permissions(client: KubeClient, namespaces: Sequence[str]) -> list[Permission]:
    """Return for each right of cotenant's features if it is granted cluster-wide (namespace ""), and in each namespace.

    At most MOST_NAMESPACES namespaces are checked. Raise ClusterUnreachable if the API server does not answer.
    """
    permission_list = [_of(need, "", need.asked(client, "")) for need in NEEDS]
    everywhere = {need for need, p in zip(NEEDS, permission_list, strict=True) if p.allowed}
    return permission_list + [
        _of(need, namespace, need in everywhere or need.asked(client, namespace))
        for namespace in namespaces[:MOST_NAMESPACES]
        for need in NEEDS
    ]


def head_permission(client: KubeClient, namespace: str) -> Permission:
    """Return whether the client's account may store the ledger's head in the namespace."""
    need = Need(HEAD, "patch", "configmaps")
    return _of(need, namespace, need.asked(client, namespace))


def _of(need: Need, namespace: str, allowed: bool | None) -> Permission:
    return Permission(need.feature, need.verb, need.name, namespace, allowed)
