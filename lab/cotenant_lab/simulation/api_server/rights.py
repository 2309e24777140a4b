"""Accounts and their rights: a table of tokens, each with an account and its rules; answers to the three reviews."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from cotenant_lab.simulation.api_server.refusal import Refusal
from cotenant_lab.simulation.api_server.schema import Json


@dataclass(frozen=True, slots=True)
class AccessRule:
    """Verbs on resources of API groups; "*" is all. A subresource is named as `pods/resize`."""

    verbs: tuple[str, ...]
    groups: tuple[str, ...]
    resources: tuple[str, ...]
    namespaces: tuple[str, ...] = ()
    """Only there, as a RoleBinding grants it; everywhere without."""

    def allows(self, verb: str, group: str, resource: str, namespace: str = "") -> bool:
        """Return whether the rule covers the request.

        Namespace "" requests all namespaces, or an object outside of any.
        """
        pairs = ((self.verbs, verb), (self.groups, group), (self.resources, resource))
        inside = not self.namespaces or namespace in self.namespaces
        return inside and all("*" in allowed or value in allowed for allowed, value in pairs)


@dataclass(frozen=True, slots=True)
class Account:
    """A user with its groups and its rules."""

    name: str
    rules: tuple[AccessRule, ...] = ()
    groups: tuple[str, ...] = ()

    def allows(self, verb: str, group: str, resource: str, namespace: str = "") -> bool:
        """Return whether a rule of the account covers the request."""
        return any(rule.allows(verb, group, resource, namespace) for rule in self.rules)


AUTHENTICATED: Final = "system:authenticated"
"""Group of everybody who has a token."""
ADMINISTRATOR = Account("administrator", (AccessRule(("*",), ("*",), ("*",)),))


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """The verb and the object of a request, to be compared with an account's rules."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def refusal(self, account: Account) -> Refusal:
        """Return the 403 for this account, in the real server's words."""
        where = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        plural = self.resource.partition("/")[0]
        what = f"{plural}.{self.group}" if self.group else plural
        prefix = f'{what} "{self.name}" is forbidden' if self.name else f"{what} is forbidden"
        return Refusal(
            403,
            f'{prefix}: User "{account.name}" cannot {self.verb} resource "{self.resource}" in API group'
            f' "{self.group}" {where}',
        )


def self_review(body: Json, account: Account) -> dict[str, Any]:
    """Return the SelfSubjectReview with its status: the user and groups of the account."""
    user = {"username": account.name, "groups": [*account.groups, AUTHENTICATED]}
    return {**body, "status": {"userInfo": user}}


def access_review(body: Json, account: Account) -> dict[str, Any]:
    """Return the SelfSubjectAccessReview with its status: whether the account may make the request."""
    return {**body, "status": {"allowed": _is_allowed(body, [account])}}


def subject_review(body: Json, accounts: Iterable[Account]) -> dict[str, Any]:
    """Return the SubjectAccessReview with its status: whether that user may make the request; unknown ones may not."""
    spec = body.get("spec") or {}
    user, groups = spec.get("user", ""), set(spec.get("groups") or ())
    if not user and not groups:
        raise Refusal(
            422, 'SubjectAccessReview is invalid: spec.user: Invalid value: "": at least one of user or group'
        )
    meant = [account for account in accounts if account.name == user or account.name in groups]
    return {**body, "status": {"allowed": _is_allowed(body, meant)}}


def _is_allowed(body: Json, accounts: Iterable[Account]) -> bool:
    attributes = (body.get("spec") or {}).get("resourceAttributes")
    if not attributes:
        kind = body.get("kind", "")
        raise Refusal(422, f"{kind} is invalid: spec.resourceAttributes: Required value")
    resource = "/".join(part for part in (attributes.get("resource", ""), attributes.get("subresource", "")) if part)
    access = attributes.get("verb", ""), attributes.get("group", ""), resource, attributes.get("namespace", "")
    return any(account.allows(*access) for account in accounts)
