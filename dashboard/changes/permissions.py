"""Rights of the requesting person: their roles here, and the cluster's answer for each feature and namespace.

Evaluated when the Health page is shown: a role permits the request here, the cluster permits the write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dash import Dash, Input, Output, html
from dash.development.base_component import Component

from cotenant.base.people import RIGHTS, Person, Right, Role
from cotenant.base.tables.filters import EMPTY
from cotenant.base.text import visible
from cotenant.changes.model.service import Permission
from cotenant.dashboard.changes import change_tables
from cotenant.dashboard.frame import panels
from cotenant.dashboard.frame.view import View
from cotenant.recommender.model.views import WORKLOADS

MATRIX: Final = "permissions-matrix"
NAMESPACES_SHOWN: Final = 12
SENTENCES: Final[Mapping[Right, str]] = {
    Right.READ: "See every page",
    Right.REVIEW: "Review a change and check it on the server",
    Right.ACCEPT: "Apply, verify and roll back changes; snooze recommendations",
    Right.PLAN: "Create and edit reservation plans",
    Right.APPROVE: "Approve plans; confirm changes as the second person",
    Right.OVERRIDE: "Override a guardrail",
    Right.ADMINISTER: "Resolve changes with unknown outcome",
}


def panel_containers() -> Component:
    """Return the container of both panels, with grey blocks until the rights are evaluated."""
    return html.Div(panels.skeleton(240), id=MATRIX)


def register(app: Dash, view: View) -> None:
    """Register the callback that evaluates the rights when the page is shown and after new results."""

    @app.callback(Output(MATRIX, "children"), Input("version", "data"), prevent_initial_call=False)
    def _ask(_version: str | None) -> Component:
        return panels.render_guarded(lambda: contents(view), "What you may do")


def contents(view: View) -> Component:
    """Return both panels: the person's roles in the dashboard, and the rights that the cluster grants."""
    who, acting_here = view.given.current_user(), view.given.changes is not None
    roles = [f"{g.role} in {', '.join(g.namespaces)}" if g.namespaces else g.role.value for g in who.grants]
    shown = visible(", ".join(dict.fromkeys(roles))) or "no role"
    note = "" if acting_here else f" {change_tables.NO_CHANGE_SERVICE} {change_tables.FIX}"
    rows = []
    for right in Right:
        may = _may(who, right) if acting_here or right is Right.READ else _no("read-only")
        rows.append((SENTENCES[right], may, " or ".join(role.value for role in Role if right in RIGHTS[role])))
    table = panels.facts(("What", "You", "It takes"), rows, "Your rights")
    lead = f"As {visible(change_tables.display_name(who))}: {shown}."
    mine = panels.panel("What you may do", table, note=lead + note)
    cluster = panels.render_guarded(lambda: _cluster(view), "What the cluster allows")
    return html.Div([mine, cluster], className="row permitting")


def _may(who: Person, right: Right) -> Component:
    if not who.may(right):
        return _no("no")
    grants = [grant for grant in who.grants if right in RIGHTS[grant.role]]
    if any(not grant.namespaces for grant in grants):
        return panels.chip("yes", "teal")
    spaces = sorted({namespace for grant in grants for namespace in grant.namespaces})
    return panels.chip(f"in {visible(', '.join(spaces))}", "yellow")


def _no(word: str) -> Component:
    return panels.chip(word, "gray")


def _cluster(view: View) -> Component:
    title = "What the cluster allows"
    service, who = view.given.changes, view.given.current_user()
    if service is None:
        why = "A read-only dashboard needs no rights. A dashboard that can act checks its rights; start one with:"
        none = panels.empty("The cluster is not asked for your rights.", why=why, command="cotenant dashboard --act")
        return panels.panel(title, none)
    permissions = service.permissions(who, ())
    spaces: Sequence[str] = ()
    if any(p.allowed is False for p in permissions):
        names = view.source.snapshot().tables[WORKLOADS.name].texts("namespace")
        spaces = [name or EMPTY for name in names][:NAMESPACES_SHOWN]
        permissions = service.permissions(who, spaces) if spaces else permissions
    heads = ("Feature", "Needs", "Everywhere", *(visible(namespace) for namespace in spaces))
    note = "The API server's answers about the account that sends your requests: yours, or cotenant's."
    return panels.panel(title, panels.facts(heads, rows(permissions, spaces), title), note=note)


def rows(permissions: Sequence[Permission], namespaces: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return a row per permission: feature, verb and resource, whether allowed everywhere, then in each namespace."""
    allowed = {(p.feature, p.verb, p.resource, p.namespace): p.allowed for p in permissions}
    lines: list[tuple[Any, ...]] = []
    for p in permissions:
        if p.namespace in namespaces and p.namespace:
            continue
        where = f" in {visible(p.namespace)}" if p.namespace else ""
        cells = [_chip(allowed.get((p.feature, p.verb, p.resource, namespace))) for namespace in namespaces]
        lines.append((p.feature, html.Code(f"{p.verb} {visible(p.resource)}{where}"), _chip(p.allowed), *cells))
    return lines


def _chip(allowed: bool | None) -> Component:
    if allowed is None:
        return panels.chip("not asked", "gray")
    return panels.chip("yes", "teal") if allowed else panels.chip("no", "orange")
