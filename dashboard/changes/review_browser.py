"""Client-side callbacks of a review, which run in the browser without the server: `assets/review.js`."""

from __future__ import annotations

from dash import ALL, ClientsideFunction, Dash, Input, Output, State


def register(app: Dash) -> None:
    """Register the client-side callbacks of a review.

    Switches and choices update the address, and the address sets the active step.
    """
    app.clientside_callback(
        ClientsideFunction("cotenant", "reviewLadder"), Input("review-ladder", "checked"), prevent_initial_call=True
    )
    for id_ in ("review-method", "review-form", "review-canary"):
        app.clientside_callback(
            ClientsideFunction("cotenant", "reviewTerm"), Input(id_, "value"), State(id_, "id"),
            prevent_initial_call=True,
        )  # fmt: skip
    app.clientside_callback(
        ClientsideFunction("cotenant", "reviewOverrides"),
        Input({"type": "review-override", "rule": ALL}, "checked"),
        State({"type": "review-override", "rule": ALL}, "id"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("cotenant", "reviewStep"), Input("review-steps", "active"), prevent_initial_call=False
    )
    app.clientside_callback(
        ClientsideFunction("cotenant", "reviewActive"),
        Output("review-steps", "active"),
        Input("url", "search"),
        prevent_initial_call=False,
    )
    app.clientside_callback(
        ClientsideFunction("cotenant", "reviewShown"), Input("review-body", "children"), prevent_initial_call=True
    )
    app.clientside_callback(
        ClientsideFunction("cotenant", "reviewDone"), Input("review-done", "data"), prevent_initial_call=True
    )
