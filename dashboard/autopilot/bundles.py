"""Files for the Git repository: the autopilot's changes to workloads that a GitOps tool manages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from dash import Dash, Input, Output, dcc, html, no_update
from dash.development.base_component import Component

from cotenant.base.errors import CotenantError
from cotenant.base.people import Right
from cotenant.changes.model.service import BundleForm
from cotenant.dashboard.changes import review_end
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame import callbacks, panels
from cotenant.dashboard.frame.callbacks import acts, announce
from cotenant.dashboard.frame.view import View, in_cluster

ASKED: Final = "autopilot-bundle-asked"
FILES: Final = "autopilot-bundle-files"
DOWNLOAD: Final = "autopilot-bundle"
FORMS: Final = {BundleForm.KUSTOMIZE: "Kustomize", BundleForm.HELM: "Helm", BundleForm.SSA: "Server-side apply"}


def action_components() -> list[Component]:
    """Return the store of a button's request, the download component, and the container that shows the files."""
    return [dcc.Store(id=ASKED), dcc.Download(id=DOWNLOAD), html.Div(id=FILES, role="status")]


def offer(view: View, rows: Iterable[Mapping[str, Any]]) -> list[Component]:
    """Return one download button per file format if a GitOps tool manages workloads of `rows`; else an empty list.

    The files cover only the namespaces of these rows in which the person may review changes.
    """
    of_gitops = [row for row in rows if row["gitops"]]
    if not of_gitops:
        return []
    refusals = [callbacks.missing_role_sentence(view, Right.REVIEW, row["namespace"]) for row in of_gitops]
    reviewable = [row for row, refusal in zip(of_gitops, refusals, strict=True) if not refusal]
    namespaces = ",".join(sorted({row["namespace"] for row in reviewable}))
    why = "" if reviewable else refusals[0]
    buttons = []
    for form, label in FORMS.items():
        asks = panels.asks(ASKED, form=form.value, namespaces=namespaces)
        buttons.append(html.Button(label, className="button", disabled=bool(why), title=why, **asks))
    yours = f", of which you may review {len(reviewable)}" if len(reviewable) < len(of_gitops) else ""
    workloads = display.counted(len(of_gitops), "workload")
    lead = f"A GitOps tool manages {workloads}{yours}. The workloads' changes as files for the tool's repository:"
    return [html.Div([html.P(lead, className="panel-note"), *buttons], className="plan-buttons")]


def register(app: Dash, view: View) -> None:
    """Register the callback that writes the files, shows them, and lets the browser save them."""

    @app.callback(Output(DOWNLOAD, "data"), Output(FILES, "children"), Input(ASKED, "data"), prevent_initial_call=True)
    @acts(view, Right.REVIEW)
    def _bundle(request: Mapping[str, Any]) -> Any:
        try:
            form, namespaces = BundleForm(request["form"]), request["namespaces"].split(",")
            files = in_cluster(view.given.autopilot).bundle(view.given.current_user(), form, namespaces)
        except CotenantError as error:
            return [no_update, panels.trouble(error)]
        announce("The bundle is in your downloads.")
        shown = html.Div(review_end.files(files, commands=False))
        return [review_end.download(files), panels.panel("Files for the repository", shown)]
