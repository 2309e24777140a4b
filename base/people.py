"""People and their permissions: roles, rights and grants. Pure.

A right says what a role may request from cotenant; the cluster then decides itself what it permits. If no person is
configured (read-only, the default), everybody is a viewer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from cotenant.base.errors import CotenantError


class NotAllowed(CotenantError):
    """The person's roles do not permit the action; nothing was done."""


class Right(StrEnum):
    """An action that a role may permit a person."""

    READ = "read"
    REVIEW = "review"
    """Look at live objects, and send changes to the server as a dry run."""
    ACCEPT = "accept"
    """Apply, verify and roll back changes; snooze and dismiss recommendations."""
    PLAN = "plan"
    """Make and edit reservation plans."""
    APPROVE = "approve"
    """Approve and reject reservation plans; approve and withdraw moves of pods; empty nodes, in all namespaces; confirm
    another person's change."""
    OVERRIDE = "override"
    """Override a guardrail."""
    ADMINISTER = "administer"
    """Settle changes without an outcome; let plans approve themselves."""


class Role(StrEnum):
    """The role of a person; each role includes the previous one."""

    VIEWER = "viewer"
    OWNER = "owner"
    APPROVER = "approver"
    ADMIN = "admin"


_OWNED: Final = frozenset({Right.READ, Right.REVIEW, Right.ACCEPT, Right.PLAN})
RIGHTS: Final[Mapping[Role, frozenset[Right]]] = {
    Role.VIEWER: frozenset({Right.READ}),
    Role.OWNER: _OWNED,
    Role.APPROVER: _OWNED | {Right.APPROVE},
    Role.ADMIN: frozenset(Right),
}


class IdentitySource(StrEnum):
    """The source of a person's identity."""

    LOOPBACK = "loopback"
    """No login: the local user of this machine, with the rights of the kubeconfig."""
    PROXY = "proxy"
    """A header of a trusted proxy."""
    OIDC = "oidc"
    """A login here."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A role that a person has in the namespaces listed, or in all namespaces if the list is empty."""

    role: Role
    namespaces: tuple[str, ...] = ()

    def covers(self, namespace: str) -> bool:
        """Return whether the grant applies in the namespace, or in any namespace if that is ""."""
        return not namespace or not self.namespaces or namespace in self.namespaces


@dataclass(frozen=True, slots=True)
class Person:
    """A person as the server knows them; `token` is the person's own for the Kubernetes API, "" if the login gave none.

    `source` is the origin of the request for the ledger: an IP address and the request's id.
    """

    name: str
    groups: tuple[str, ...] = ()
    way: IdentitySource = IdentitySource.LOOPBACK
    grants: tuple[Grant, ...] = (Grant(Role.VIEWER),)
    token: str = field(default="", repr=False)
    source: str = ""

    def may(self, right: Right, namespace: str = "") -> bool:
        """Return whether a grant gives the right in the namespace, or in any namespace if that is ""."""
        return any(right in RIGHTS[grant.role] and grant.covers(namespace) for grant in self.grants)

    def require_everywhere(self, right: Right) -> None:
        """Raise NotAllowed unless a grant gives the right in all namespaces."""
        if any(right in RIGHTS[grant.role] and not grant.namespaces for grant in self.grants):
            return
        self.require(right)
        raise NotAllowed(
            f"{self.name or 'a viewer'} may {right} in some namespaces only",
            fix="The action concerns all namespaces, so the role must cover all of them.",
        )

    @property
    def reads(self) -> frozenset[str] | None:
        """The namespaces that the person may read, or None for all."""
        grants = [grant for grant in self.grants if Right.READ in RIGHTS[grant.role]]
        if not all(grant.namespaces for grant in grants):
            return None
        return frozenset(name for grant in grants for name in grant.namespaces)

    def require(self, right: Right, namespace: str = "") -> None:
        """Raise NotAllowed unless a grant gives the right in the namespace, or in any namespace if that is ""."""
        if self.may(right, namespace):
            return
        place = f" in namespace {namespace}" if namespace else ""
        needed = ", ".join(role.value for role in Role if right in RIGHTS[role])
        raise NotAllowed(
            f"{self.name or 'a viewer'} may not {right}{place}", fix=f"Ask an admin for one of these roles: {needed}."
        )
