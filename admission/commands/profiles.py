"""EDGE: `cotenant config profiles compile`: colocation profiles as admission policies of the API server."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.base.commands.files import documents
from cotenant.base.commands.output import DocumentFormat, Format, message, print_document, print_table
from cotenant.base.commands.results import Context, Kubeconfig
from cotenant.base.commands.session import EXIT_FINDINGS, EXIT_PARTIAL, examples, new_app, session_of
from cotenant.base.errors import ClusterAbsent, CotenantError, UsageError
from cotenant.base.json_documents.json_decoders import mapping_or_empty
from cotenant.base.kubernetes.protocol import CONFIG_GROUP
from cotenant.base.settings.sections import KubeSettings
from cotenant.base.table import Column, Kind, Schema, Table

if TYPE_CHECKING:
    from cotenant.admission.policies.compiler import CompiledProfiles

app = new_app()

KIND = "ClusterColocationProfile"
_PROFILES = f"/apis/{CONFIG_GROUP}/clustercolocationprofiles"
_PROFILES_FIX = "Install the CRD: cotenant install --components crds --apply. Or give the profiles as files."
_POLICIES_FIX = "Before Kubernetes 1.36 use --api-version v1beta1 and the feature gate MutatingAdmissionPolicy."
Key = tuple[str, str]
"""Kind and name of a policy or binding."""
COMPILED = Schema(
    "compiled-profiles",
    (
        Column("profile", "Profile", Kind.TEXT, "Name of the ClusterColocationProfile."),
        Column("state", "State", Kind.TEXT, "compiled, partial (policy lacks the field) or left-out (no policy)."),
        Column("field", "Field", Kind.TEXT, "Field or feature that the policy cannot express."),
        Column("reason", "Reason", Kind.TEXT, "Why, or on which pods, the policy does not express the field."),
    ),
    ("profile", "field"),
)


@app.callback(epilog=examples("cotenant config profiles compile -o yaml | kubectl apply -f -"))
def _family() -> None:
    """Colocation profiles without a webhook: the API server applies them itself."""


@app.command(
    "compile",
    epilog=examples(
        "cotenant config profiles compile  # profiles of the cluster: what policies can express, and what is lost",
        "cotenant config profiles compile -o yaml | kubectl apply -f -",
        "cotenant config profiles compile deploy/profiles/*.yaml -o yaml  # asks no cluster",
        "cotenant config profiles compile --check  # do the cluster's policies match its profiles?",
        "cotenant config profiles compile --api-version v1beta1 -o yaml  # for Kubernetes 1.34 and 1.35",
    ),
)
def compile_command(
    ctx: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="Profiles as YAML or JSON, - for stdin; default: those of the cluster."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Compare with the policies in the cluster; exit code 3 if they differ.")
    ] = False,
    api_version: Annotated[
        str, typer.Option("--api-version", metavar="VERSION", help="v1 (Kubernetes 1.36) or v1beta1 (1.34, 1.35).")
    ] = "v1",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Annotated[
        DocumentFormat, typer.Option("--output", "-o", help="table: what policies lack; yaml, json: the policies.")
    ] = DocumentFormat.TABLE,
) -> None:
    """Write ClusterColocationProfiles as MutatingAdmissionPolicies with bindings. Changes nothing in the cluster.

    Exit code 4 if a policy cannot express a profile or one of its fields; the table names them.
    """
    from cotenant.admission.policies.compiler import PART_LABEL, CompiledProfiles, PolicyLoss, compile_profiles
    from cotenant.admission.profile import Profile

    if api_version not in ("v1", "v1beta1"):
        raise UsageError(f"--api-version: {api_version} is neither v1 nor v1beta1", fix="Write v1 or v1beta1.")
    flags = {"kube.kubeconfig": kubeconfig, "kube.context": context}
    bodies: list[Any] = [] if files else _list_objects(ctx, flags, _PROFILES, _PROFILES_FIX)
    for file in files or ():
        for body in map(mapping_or_empty, documents(file)):
            for item in map(mapping_or_empty, body.get("items") or ()) if body.get("kind") == "List" else (body,):
                if item.get("kind") != KIND:
                    what = item.get("kind") or "an object"
                    raise UsageError(f"{file}: {what} is not a {KIND}", fix=f"Give {KIND}s only.")
                bodies.append(item)
    profiles, unread = [], []
    for body in bodies:
        try:
            profiles.append(Profile.parse(body))
        except UsageError as error:  # one that cannot be read, the webhook does not apply either
            name = str(mapping_or_empty(mapping_or_empty(body).get("metadata")).get("name", ""))
            unread.append(PolicyLoss(name, "spec", error.message, whole=True))
    result = compile_profiles(profiles, f"admissionregistration.k8s.io/{api_version}")
    result = CompiledProfiles(result.objects, result.compiled, (*unread, *result.losses))
    if check:
        root = f"/apis/admissionregistration.k8s.io/{api_version}/mutatingadmissionpolic"
        kinds = {"MutatingAdmissionPolicy": f"{root}ies", "MutatingAdmissionPolicyBinding": f"{root}ybindings"}
        live = {
            (kind, body["metadata"]["name"]): body["spec"]
            for kind, path in kinds.items()
            for body in _list_objects(ctx, flags, path, _POLICIES_FIX, "=".join(PART_LABEL))
        }
        _check(result, live)
    else:
        _print(result, output)
    if result.losses:
        raise typer.Exit(EXIT_PARTIAL)


def _list_objects(
    ctx: typer.Context, flags: Mapping[str, str | None], path: str, fix: str, labels: str = ""
) -> list[Any]:
    """List objects of the cluster by a label selector ("": all); `fix` is the remedy if the kind is not served."""
    from cotenant.base.kube import connect

    client = connect(session_of(ctx).load(flags).settings.section(KubeSettings))
    try:
        return list(client.list(path, labelSelector=labels) if labels else client.list(path))
    except ClusterAbsent as error:
        raise CotenantError(f"the cluster does not serve {path}", fix=fix) from error
    finally:
        client.close()


def _print(result: CompiledProfiles, output: DocumentFormat) -> None:
    """Print the policies with their losses on stderr, or the table of what the policies express."""
    from cotenant.admission.policies.compiler import GENERAL_LOSSES

    if output is DocumentFormat.TABLE:
        lossy = {loss.profile for loss in result.losses}
        lossless = [name for name in result.compiled if name not in lossy]
        rows = [{"profile": name, "state": "compiled", "field": "", "reason": ""} for name in lossless]
        for loss in result.losses:
            state = "left-out" if loss.whole else "partial"
            rows.append({"profile": loss.profile, "state": state, "field": loss.field, "reason": loss.reason})
        print_table(Table.from_rows(COMPILED, rows), Format.TABLE)
        message("what the webhook does for all pods, but no policy can:\n  " + "\n  ".join(GENERAL_LOSSES))
        return
    _report_losses(result)
    if output is DocumentFormat.JSON:
        print_document({"apiVersion": "v1", "kind": "List", "items": list(result.objects)}, output)
        return
    for index, body in enumerate(result.objects):
        sys.stdout.write("---\n" if index else "")
        print_document(body, output)


def _report_losses(result: CompiledProfiles) -> None:
    for loss in result.losses:
        message(f"{loss.profile}: {loss.field}: {loss.reason}", style="yellow")


def _check(result: CompiledProfiles, theirs: Mapping[Key, Any]) -> None:
    """Report which policies of the cluster differ from the profiles; exit with code 3 if any does."""
    from cotenant.base.json_documents.difference import abbreviate_list, differences

    ours = {(body["kind"], body["metadata"]["name"]): body["spec"] for body in result.objects}
    lines = [f"delete {kind} {name}: it belongs to no profile" for kind, name in sorted(theirs.keys() - ours.keys())]
    lines += [f"{kind} {name} is missing" for kind, name in sorted(ours.keys() - theirs.keys())]
    for kind, name in sorted(ours.keys() & theirs.keys()):
        if changed := list(differences(theirs[kind, name], ours[kind, name])):
            lines.append(f"{kind} {name} differs: {abbreviate_list(changed)}")
    _report_losses(result)
    for line in lines:
        message(line)
    if lines:
        message("update the policies: cotenant config profiles compile -o yaml | kubectl apply -f -")
        raise typer.Exit(EXIT_FINDINGS)
    message(f"{len(ours)} policies and bindings match {len(result.compiled)} profiles")
