"""Grants of a person by name and groups: the rules of the settings, applied at every request. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final

from cotenant.base.errors import SettingsError
from cotenant.base.people import Grant, IdentitySource, NotAllowed, Person, Role
from cotenant.changes.access.settings import AccessMode, AccessSettings, Unlisted

RESERVED: Final = "system:"
"""User and group names that Kubernetes reserves: headers and claims cannot grant them."""
VIEWS: Final = (Grant(Role.VIEWER),)
STRANGER: Final = Person("", (), IdentitySource.PROXY, VIEWS)
"""The person for requests without a login, if the settings allow reading without one."""


def person_with_grants(
    name: str, groups: Sequence[str], way: IdentitySource, settings: AccessSettings, token: str = ""
) -> Person:
    """Return the person with their present roles; raise NotAllowed for a name that Kubernetes reserves."""
    if name.startswith(RESERVED):
        raise NotAllowed(f"the name {name!r} is reserved for Kubernetes itself", fix="Log in under another user name.")
    real = tuple(group for group in groups if group and not group.startswith(RESERVED))
    return Person(name, real, way, matching_grants(name, real, settings), token)


def matching_grants(name: str, groups: Sequence[str], settings: AccessSettings) -> tuple[Grant, ...]:
    """Return the person's grants: those of matching rules, and reading everywhere, each as far as settings permit."""
    grants = tuple(
        Grant(rule.role, tuple(rule.namespaces))
        for rule in settings.roles
        if (rule.group in groups if rule.group else rule.user == name)
    )
    if not grants and (settings.own_namespaces or settings.unlisted is Unlisted.REFUSED):
        return ()
    if settings.own_namespaces:
        return tuple(Grant(Role.VIEWER, grant.namespaces) for grant in grants) if settings.read_only else grants
    # A rule for one namespace leaves reading as it is: results are of the whole cluster.
    return VIEWS if settings.read_only else (*VIEWS, *grants)


def anonymous_person(settings: AccessSettings) -> Person | None:
    """Return the person that stands for a request without a login; None if every request needs a login."""
    return STRANGER if settings.anonymous is Unlisted.VIEWER else None


def require_authentication(settings: AccessSettings, host: str) -> None:
    """Raise SettingsError if the dashboard listens beyond the loopback interface without authentication."""
    if settings.mode is AccessMode.NONE and not is_loopback(host):
        raise SettingsError(
            f"dashboard.host is {host}, which others can reach, and access.mode none checks nobody's identity",
            fix="Leave the host on 127.0.0.1, or set access.mode to proxy or oidc (docs/access.md).",
        )


def is_loopback(host: str) -> bool:
    """Return whether a listening address can be reached from this machine only."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
