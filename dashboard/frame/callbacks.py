"""Guards of acting callbacks: each names the right it needs, which is checked before it runs; errors are shown."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from dash import ClientsideFunction, Dash, Input, Output, State, ctx, dcc, no_update, set_props
from dash.development.base_component import Component

from cotenant.base import measures
from cotenant.base.errors import CotenantError
from cotenant.base.people import RIGHTS, Right, Role
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame import panels
from cotenant.dashboard.frame.view import View

SAID: Final = "said"
"""Id of the frame's live region, which announces the result of every action."""
AWAY: Final = "cluster-away"
"""Id of the store that holds why the cluster cannot be acted on; "" while it answers."""


def acts(view: View, right: Right) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate an acting callback, below `app.callback`: refuse a person who has the right in no namespace.

    The service checks the right again for the namespaces concerned. A CotenantError is shown in the live region, and
    nothing else on the page changes.
    """

    def guard(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def check_and_act(*args: Any) -> Any:
            if ctx.triggered and all(trigger["value"] is None for trigger in ctx.triggered):
                return _no_updates()  # a button came into the page: nobody has pressed it yet
            try:
                view.given.current_user().require(right)
                return function(*args)
            except CotenantError as error:
                announce(panels.failure_state(error.message, error.fix))
                return _no_updates()

        check_and_act.takes = right  # type: ignore[attr-defined]
        return check_and_act

    return guard


def in_browser(app: Dash, function: str, *parts: Any, **options: Any) -> None:
    """Register a client-side callback: a JavaScript function in `assets`."""
    app.clientside_callback(ClientsideFunction("cotenant", function), *parts, **options)


def why_not(view: View, right: Right, namespace: str = "") -> str:
    """Return why a button is disabled: read-only, a missing role or an unreachable cluster; "" if it is enabled."""
    return why_not_note(view, right, namespace) or outage_reason(view)


def why_not_note(view: View, right: Right, namespace: str = "") -> str:
    """Return why an action that only writes to the ledger, not to the cluster, is not possible; "" if it is."""
    if view.given.changes is None:
        return "Read-only: start the dashboard with `cotenant dashboard --act`."
    return missing_role_sentence(view, right, namespace)


def outage_reason(view: View) -> str:
    """Return why the cluster cannot be changed now, as of the last request; "" if it answered, or if read-only."""
    return view.given.changes.trouble() if view.given.changes else ""


def outage_store(view: View) -> Component:
    """Return the store `AWAY`, which redraws acting pages when the cluster becomes unreachable or reachable."""
    return dcc.Store(id=AWAY, data=outage_reason(view))


def register(app: Dash, view: View) -> None:
    """Register the callback that writes to the store `AWAY` whether the cluster is reachable."""

    @app.callback(Output(AWAY, "data"), Input("tick", "n_intervals"), State(AWAY, "data"))
    def _update_outage(_ticks: int | None, shown_trouble: str | None) -> Any:
        now = outage_reason(view)
        return no_update if now == (shown_trouble or "") else now


def missing_role_sentence(view: View, right: Right, namespace: str = "") -> str:
    """Return which role the requesting person lacks for a right, as a sentence; "" if they have the right."""
    who = view.given.current_user()
    if not who.may(right, namespace):
        needed = " or ".join(role.value for role in Role if right in RIGHTS[role])
        place = f" in namespace {namespace}" if namespace else ""
        return f"{who.name or 'A viewer'} may not {right}{place}: this needs role {needed}."
    return ""


def too_old(view: View) -> str:
    """Return why the data are too old to act on; "" if they are not. Demo data do not age."""
    overview = view.source.snapshot().overview
    if overview is None or overview.demo:
        return ""
    age = measures.age_seconds(view.now_seconds(), overview.time_seconds)
    if age < view.settings.red_after_seconds:
        return ""
    return f"The newest sample is {display.duration(age)} old: scan again before acting on it (`cotenant scan`)."


def announce(message: Component | str) -> None:
    """Show a message in the live region, from within a callback."""
    set_props(SAID, {"children": message})


def draw_act(draw: Callable[[], Component]) -> Component:
    """Return what `draw` returns for an action, or, if it fails, the error, which is also announced."""
    try:
        return draw()
    except CotenantError as error:
        announce(f"{error.message} {error.fix}".strip())
        return panels.trouble(error)


def _no_updates() -> Any:
    outputs = ctx.outputs_list
    return [no_update] * len(outputs) if isinstance(outputs, list) else no_update
