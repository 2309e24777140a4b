"""`cotenant install`: CRDs, priority classes and rights; only shows what it would do unless --apply is given."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import Annotated

import typer

from cotenant.base import measures
from cotenant.base.commands.call import LIVE, ROWS, CommandCall, command
from cotenant.base.commands.output import message
from cotenant.base.commands.progress import bars
from cotenant.base.commands.session import EXIT_FINDINGS, new_app
from cotenant.base.errors import CotenantError, UsageError
from cotenant.base.settings.sections import KubeSettings
from cotenant.base.table import Table
from cotenant.base.text import counted
from cotenant.base.version import __version__
from cotenant.cli.cluster.installation.manifests import (
    COMPONENTS,
    DEFAULT,
    RIGHTS,
    manifests_beside,
    parse_components,
    texts,
)
from cotenant.cli.cluster.installation.plan import STEPS, InstallStep, StepState, install_step
from cotenant.profiler.settings import ProfilerSettings

app = new_app()

ComponentsOption = Annotated[
    str,
    typer.Option(
        "--components",
        metavar="NAMES",
        help=f"Some of {', '.join(COMPONENTS)}. Default: {', '.join(RIGHTS)}; without Prometheus also recorder, scan.",
    ),
]


@command(
    app,
    LIVE | ROWS,
    "cotenant install  # what an installation would change in the current context; writes nothing",
    "cotenant install --apply",
    "cotenant install --enforcer --apply  # with the agent on every node, as a dry run",
    "cotenant install --components crds,priority-classes --context test --apply",
    "cotenant install --print > cotenant.yaml  # for kubectl, GitOps or a review; reads no cluster",
    "cotenant install -o json",
)
def install(
    call: CommandCall,
    apply: Annotated[bool, typer.Option("--apply", help="Install, after a dry run of every object.")] = False,
    show: Annotated[bool, typer.Option("--print", help="Print the manifests (YAML) and change nothing.")] = False,
    components: ComponentsOption = "",
    enforcer: Annotated[
        bool, typer.Option("--enforcer", help="Also install the node agent, in dry run: rights, guards and DaemonSet.")
    ] = False,
) -> None:
    """Install CRDs, priority classes and rights; without --apply only show what would happen.

    If the settings name no Prometheus, the recorder, which measures usage at the kubelets, and the dashboard are added.

    Objects that somebody else installed (Koordinator's own CRDs) are left alone. Exit code 1 if the API server refuses
    an object (then nothing is written), 3 if an object that is left alone lacks what cotenant needs.
    """
    if apply and show:
        raise UsageError("--print and --apply exclude each other", fix="Leave out one of them.")
    settings = call.settings
    names = parse_components(components, RIGHTS if settings.section(ProfilerSettings).prometheus.url else DEFAULT)
    if enforcer and "enforcer" not in names:
        names = (*names, "enforcer")
    if show:
        sys.stdout.write("---\n".join(text.rstrip("\n") + "\n" for _, text in texts(names)))
        return
    steps = carried_out(settings.section(KubeSettings), names, apply=apply, is_default=not components.strip())
    call.print(Table.from_rows(STEPS, [step.row() for step in steps]))
    if refused := _refused_steps(steps):
        fix = "The notes of these objects say why. An installation needs the rights of a cluster administrator."
        raise CotenantError(f"{len(refused)} of {counted(len(steps), 'object')} refused; nothing was written", fix=fix)
    writes = measures.matching_count(step.writes for step in steps)
    if apply:
        message(f"{writes} of {len(steps)} objects written" if writes else "nothing to do: all objects are up to date")
        # Say what the new pods need, and where their first page is.
        started = {step.manifest.address.name for step in steps if step.writes and step.manifest.kind == "Deployment"}
        if started:
            message(f"the pods need the image cotenant/cotenant:{__version__} on their nodes: docs/container-images.md")
        if "cotenant-dashboard" in started:
            message("to open the dashboard: kubectl -n cotenant port-forward deployment/cotenant-dashboard 8050")
    elif writes:
        message(f"{writes} of {len(steps)} objects would be written; nothing was. To write them, add --apply.")
    else:
        message("nothing would be written: all objects are up to date")
    if any(step.state is StepState.LACKING for step in steps):
        message("an object that is left alone lacks fields that cotenant needs: see the notes", style="yellow")
        raise typer.Exit(EXIT_FINDINGS)


def carried_out(settings: KubeSettings, names: tuple[str, ...], *, apply: bool, is_default: bool) -> list[InstallStep]:
    """Return the plan of the installation; with `apply` also carry it out, unless the server refuses a part.

    `is_default` is True if nobody chose these components, so that an earlier choice is kept.
    """
    from cotenant.base.kube import connect
    from cotenant.cli.cluster.installation import cluster

    with closing(connect(settings)) as client, bars() as progress:
        shipped = manifests_beside(names, cluster.installed_parts(client), is_default=is_default)
        steps = [install_step(observed) for observed in cluster.observe(client, shipped, progress)]
        if apply and not _refused_steps(steps):
            cluster.install(client, steps, progress)
    return steps


def _refused_steps(steps: list[InstallStep]) -> list[InstallStep]:
    return [step for step in steps if step.state is StepState.REFUSED]
