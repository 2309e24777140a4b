"""The user menu in the top bar: the person's name, their roles in words, and the logout. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from dash import html
from dash.development.base_component import Component

from cotenant.base.people import Grant, IdentitySource, Person, Role
from cotenant.base.text import visible
from cotenant.changes.access.settings import AccessMode, AccessSettings

SHOWN_NAMESPACES: Final = 5


def menu(person: Person, settings: AccessSettings, base: str, *, launched: bool = False) -> Component:
    """Return the person's menu: name, roles, and login or logout; `launched` says that a launch token was the login."""
    name = visible(person.name) or ("This machine" if person.way is IdentitySource.LOOPBACK else "Not logged in")
    groups = [html.P(f"Groups: {visible(', '.join(person.groups))}", className="panel-note")] if person.groups else []
    inside = [html.Strong(name), html.Ul([html.Li(role) for role in roles(person.grants)]), *groups]
    label = html.Span(f"Who you are: {name}", className="visually-hidden")
    summary = html.Summary([html.Span(initials(person.name), **{"aria-hidden": "true"}), label], title=name)
    # A button where there is something to leave, a link to the login where there is one to make.
    by_proxy = settings.mode is AccessMode.PROXY and settings.proxy.logout_url != ""
    if launched or (person.name and (settings.mode is AccessMode.OIDC or by_proxy)):
        way_out = [html.Button("Log out", id="log-out", className="button")]
    elif not person.name and settings.mode is AccessMode.OIDC:
        way_out = [html.A("Log in", href=f"{base}auth/login", className="button")]
    else:
        way_out = []
    return html.Details([summary, html.Div([*inside, *way_out])], className="chooser views me", id="me")


def initials(name: str) -> str:
    """Return one or two letters for a name (for an email address, of the part before the @); "me" without a name."""
    name_parts = re.findall(r"[^\W\d_]+", name.partition("@")[0])
    return "".join(word[0] for word in name_parts[:2]).upper() or "me"


def roles(grants: Sequence[Grant]) -> list[str]:
    """Return the roles as texts, the strongest first; viewer is omitted beside another role."""
    order = list(Role)
    ranked = sorted(grants, key=lambda grant: -order.index(grant.role))
    shown = [grant for grant in ranked if grant.role is not Role.VIEWER] or ranked[:1]
    texts = []
    for grant in shown:
        names, more = grant.namespaces[:SHOWN_NAMESPACES], len(grant.namespaces) - SHOWN_NAMESPACES
        where = f"{visible(', '.join(names))}{f' and {more} more' if more > 0 else ''}"
        texts.append(f"{grant.role.value} in {where if names else 'all namespaces'}")
    return texts
