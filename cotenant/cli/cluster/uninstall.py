"""`cotenant uninstall`: removes what `cotenant install` created; only shows it unless --yes is given."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.base import measures
from cotenant.base.commands.call import LIVE, ROWS, CommandCall, command
from cotenant.base.commands.output import message
from cotenant.base.commands.progress import bars
from cotenant.base.commands.session import EXIT_PARTIAL, new_app
from cotenant.base.errors import ClusterError, UsageError
from cotenant.base.settings.sections import KubeSettings
from cotenant.base.table import Table
from cotenant.base.text import agree
from cotenant.cli.cluster.installation.manifests import COMPONENTS, manifests, parse_components
from cotenant.cli.cluster.installation.plan import STEPS

if TYPE_CHECKING:
    from cotenant.cli.cluster.installation.removal import Removal

app = new_app()


@command(
    app,
    LIVE | ROWS,
    "cotenant uninstall  # what would be removed; removes nothing",
    "cotenant uninstall --yes",
    "cotenant uninstall --crds --yes  # also CRDs with stored objects, and these objects",
    "cotenant uninstall --crds --audit-log --yes  # also the audit log's last hash, which keeps the namespace",
    "cotenant uninstall --components rbac --context test --yes",
    "cotenant uninstall --after-helm --yes  # what the processes wrote, once `helm uninstall` has ended them",
)
def uninstall(
    call: CommandCall,
    yes: Annotated[bool, typer.Option("--yes", help="Remove it.")] = False,
    crds: Annotated[bool, typer.Option("--crds", help="Also remove CRDs with stored objects.")] = False,
    audit_log: Annotated[
        bool,
        typer.Option("--audit-log", help="Also remove the ConfigMap cotenant-ledger, the audit log's last hash."),
    ] = False,
    components: Annotated[
        str, typer.Option("--components", metavar="NAMES", help=f"Some of {', '.join(COMPONENTS)}. Default: all.")
    ] = "",
    after_helm: Annotated[
        bool,
        typer.Option(
            "--after-helm",
            help="Remove only what cotenant's processes wrote or left in effect, once they have ended. While "
            "the Helm release is installed, remove it only for features that the release's settings disable.",
        ),
    ] = False,
) -> None:
    """Remove the objects with cotenant's label and restore what it wrote into nodes; without --yes only show it.

    Stop the manager and the webhook first. A namespace with ConfigMaps, Secrets or pods of others is kept. Exit code 4
    if an object could not be read or removed: its row says why, and everything else is done.
    """
    if after_helm and (crds or audit_log or components):
        fix = "Leave out --crds, --audit-log and --components, or --after-helm."
        raise UsageError("--after-helm removes no manifest, CRD or audit log", fix=fix)
    from cotenant.cli.cluster.installation.restoration import WORKLOADS

    names = parse_components(components) if components else tuple(COMPONENTS)
    kube = call.settings.section(KubeSettings)
    if after_helm:
        removals = remove_process_leftovers(kube, act=yes)
    else:
        removals = carried_out(kube, names, stored=crds, audit_log=audit_log, act=yes)
    call.print(Table.from_rows(STEPS, [removal.row() for removal in removals]))
    marked = measures.matching_count(removal.address.resource in WORKLOADS for removal in removals)
    if marked and not yes:
        message(
            f"{agree(marked, 'workload has', 'workloads have')} the annotation of an accepted change. First verify or "
            f"roll back changes that soak (cotenant recs verify, recs rollback): the roles for that are removed too."
        )
    going = measures.matching_count(removal.fate.value in ("delete", "give back") for removal in removals)
    refused = any(removal.fate.value == "refused" for removal in removals)
    if not going:
        message("nothing was removed" if refused else "cotenant has nothing to remove here")
    elif yes:
        message(f"{going} objects removed or restored")
    else:
        message(f"{going} objects would be removed or restored; none was. To remove or restore them, add --yes.")
    if refused:
        message("some objects could not be read or changed: see their rows' notes")
        raise typer.Exit(EXIT_PARTIAL)


def remove_process_leftovers(settings: KubeSettings, *, act: bool) -> list[Removal]:
    """Return the rows of what the processes left behind; with `act`, wait until they have ended and remove it."""
    from cotenant.base.kube import connect
    from cotenant.cli.cluster.installation import after_helm, removal

    with closing(connect(settings)) as client, bars() as progress:
        try:
            ended = after_helm.ended_features(client)
        except ClusterError as error:  # whether the release stands is not known
            return [removal.unread_removal(client, "settings", after_helm.SETTINGS, error)]
        if act and (late := after_helm.await_ended(client, ended)):
            after_helm.require_ended(late if ended.digest else [])
            message(f"these pods did not end within {after_helm.LONGEST_END_SECONDS:.0f} s: {', '.join(late)}")
        removals = after_helm.plan_leftover_removals(client, ended, progress)
        return removal.carry_out(client, removals, progress) if act else removals


def carried_out(
    settings: KubeSettings, names: tuple[str, ...], *, stored: bool, audit_log: bool, act: bool
) -> list[Removal]:
    """Return the planned removals; with `act` carry them out and return them with refusals."""
    from cotenant.base.kube import connect
    from cotenant.cli.cluster.installation import removal

    with closing(connect(settings)) as client, bars() as progress:
        everything = set(names) == set(COMPONENTS)
        removals = removal.plan_removals(
            client, manifests(names), progress, stored=stored, audit_log=audit_log, everything=everything
        )
        return removal.remove(client, removals, progress) if act else removals
