"""EDGE: `cotenant autopilot`: status, preview, report, approval of policies, and the pause switch."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.autopilot.settings import AutopilotSettings
from cotenant.base.commands.call import LIVE, ROWS, STORED, CommandCall, command
from cotenant.base.commands.files import save_all
from cotenant.base.commands.output import message, print_totals
from cotenant.base.commands.results import LedgerReason, NamespaceOption, filter_rows, named_workload
from cotenant.base.commands.session import EXIT_PARTIAL, examples, new_app
from cotenant.base.settings.sections import KubeSettings
from cotenant.changes.access.settings import AccessSettings
from cotenant.changes.commands.recs_options import BundleFolder, BundleFormat
from cotenant.changes.model.service import BundleForm
from cotenant.changes.model.settings import ActionSettings

if TYPE_CHECKING:
    from cotenant.autopilot.rounds.reading import RoundReading
    from cotenant.autopilot.service import ClusterAutopilotService
    from cotenant.base.people import Person
    from cotenant.base.settings.base import SettingSections
    from cotenant.recommender.model.recommendation import Recommendation

PolicyName = Annotated[str, typer.Argument(metavar="NAMESPACE/NAME", help="An AutopilotPolicy.")]

app = new_app()


@app.callback(epilog=examples("cotenant autopilot status", "cotenant autopilot preview -n shop"))
def _autopilot() -> None:
    """Right-sizing that the manager carries out by itself under AutopilotPolicies (docs/autopilot.md)."""


@command(app, STORED | LIVE | ROWS, "cotenant autopilot status", "cotenant autopilot status -o json")
def status(call: CommandCall, namespace: NamespaceOption = None) -> None:
    """List the policies: what each requests, what it does now, and why it does less than it requests."""
    from cotenant.autopilot.model import policy_totals
    from cotenant.autopilot.rounds.reading import RoundScope
    from cotenant.autopilot.service import status_table

    service, who = _service(call)
    reading = service.read(who, RoundScope(namespace or ()))
    table = filter_rows(status_table(reading), namespace, None)
    call.print(table)
    if len(table):
        print_totals(policy_totals(table), call.output)
    _finish(reading, call.settings)


@command(
    app,
    STORED | LIVE | ROWS,
    "cotenant autopilot preview",
    "cotenant autopilot preview -n shop --in-window",
    "cotenant autopilot preview -o csv",
)
def preview(
    call: CommandCall,
    namespace: NamespaceOption = None,
    in_window: Annotated[bool, typer.Option("--in-window", help="Decide as if every change window were open.")] = False,
) -> None:
    """Print the queue of a round computed now: which workloads would change, and why the others wait. No writes."""
    from cotenant.autopilot.rounds.reading import RoundScope
    from cotenant.autopilot.service import queue_table

    service, who = _service(call)
    reading = service.read(who, RoundScope(namespace or (), in_window))
    call.print(filter_rows(queue_table(reading), namespace, None))
    _finish(reading, call.settings)


@command(app, LIVE, "cotenant autopilot act shop/nightly --reason 'observed for two weeks'")
def act(call: CommandCall, policy: PolicyName, reason: LedgerReason = "") -> None:
    """Approve the present version of a policy, which may then change workloads. An edit ends the approval."""
    from cotenant.changes.model.settings import ledger_location

    service, who = _service(call)
    read = service.policy(who, policy)
    message(f"{policy} has digest {read.digest}: {read.text}" if read.digest else f"{policy}: {read.refused}")
    approved = service.act(who, policy, reason, read.digest)
    message(f"approved with digest {approved.digest}: {approved.text}")
    place = ledger_location(call.settings.section(ActionSettings), os.environ)
    message(f"{policy} may change workloads from the next round of a manager that uses this ledger: {place}")
    _warn_when_disabled(call.settings)


@command(app, LIVE, "cotenant autopilot observe shop/nightly")
def observe(call: CommandCall, policy: PolicyName, reason: LedgerReason = "") -> None:
    """Withdraw the approval of a policy: it records what it would change, and changes nothing."""
    service, who = _service(call)
    service.observe(who, policy, reason)
    message(f"{policy} observes")


@command(app, LIVE, "cotenant autopilot pause --reason 'incident 4711'")
def pause(call: CommandCall, reason: LedgerReason = "") -> None:
    """Pause the autopilot: no new change begins. Changes that did harm are still rolled back."""
    service, who = _service(call)
    message(f"{service.pause(who, reason)}; to end the pause: cotenant autopilot resume")


@command(app, LIVE, "cotenant autopilot resume", "cotenant autopilot resume shop/Deployment/checkout --reason fixed")
def resume(
    call: CommandCall,
    workload: Annotated[str, typer.Argument(metavar="NAMESPACE/KIND/NAME", help="Resume only this workload.")] = "",
    reason: LedgerReason = "",
) -> None:
    """Resume the autopilot after a pause or a stop, or only one workload that the autopilot leaves alone."""
    ref = named_workload(call.settings, None, workload) if workload else None
    service, who = _service(call)
    service.resume(who, ref, reason)
    message(f"the autopilot continues with {ref or 'all workloads'}")


@command(app, STORED | LIVE | ROWS, "cotenant autopilot report --days 7", "cotenant autopilot report -o csv")
def report(
    call: CommandCall,
    days: Annotated[float, typer.Option("--days", min=0.1, max=366, help="Days that the report covers.")] = 7.0,
    namespace: NamespaceOption = None,
) -> None:
    """Count by namespace what was proposed, changed and harmful, and the effect of the proposals in a week."""
    service, who = _service(call)
    call.print(filter_rows(service.report(who, days), namespace, None))


@command(
    app,
    STORED | LIVE,
    "cotenant autopilot bundle -o ./bundle",
    "cotenant autopilot bundle -n shop -o ./bundle --form helm",
)
def bundle(
    call: CommandCall,
    folder: BundleFolder,
    form: BundleFormat = BundleForm.KUSTOMIZE,
    namespace: NamespaceOption = None,
) -> None:
    """Write the changes of workloads that a GitOps tool manages as files for its repository, with PULL_REQUEST.md."""
    service, who = _service(call)
    save_all(folder, service.bundle(who, form, namespace or ()))


def _service(call: CommandCall) -> tuple[ClusterAutopilotService, Person]:
    """Return the service on the cluster and ledger of the settings, and the person who runs the command.

    The person is the user that the cluster reports, with the roles of the settings. In access mode none, which assigns
    no roles, the owner of the kubeconfig is an administrator.
    """
    from cotenant.autopilot.service import autopilot_service_of
    from cotenant.base.commands.results import open_store
    from cotenant.base.kube import clock_of
    from cotenant.base.people import Person
    from cotenant.changes.access.kubeconfig_access import at_this_machine, kubeconfig_door
    from cotenant.changes.access.settings import AccessMode
    from cotenant.changes.commands.recs_approval import someone_of
    from cotenant.changes.live_context import who
    from cotenant.recommender.stored_recommendations import recommendations_of

    settings, kube = call.settings, call.settings.section(KubeSettings)
    stored, door = cache(lambda: open_store(settings, call.cluster)), kubeconfig_door(kube)
    explanations = cache(lambda: recommendations_of(stored()))

    def read_recommendations(namespace: str) -> list[Recommendation]:
        return explanations()(namespace)

    service = autopilot_service_of(settings, read_recommendations, door, clock=clock_of(kube), stored=stored)
    if settings.section(AccessSettings).mode is AccessMode.NONE:
        return service, at_this_machine(kube)()
    with door(Person("")) as client:
        return service, someone_of(who(client), settings.section(AccessSettings))


def _finish(reading: RoundReading, settings: SettingSections) -> None:
    """Write to stderr what the table does not show. Exit with code 4 if a namespace could not be read."""
    if reading.halt is not None:
        message(f"nothing is changed now: {reading.halt.words}", style="yellow")
    gaps = [policy for policy in reading.policies if policy.gap]
    for policy in gaps:
        message(f"{policy.policy}: its namespace could not be read: {policy.gap}", style="yellow")
    _warn_when_disabled(settings)
    if gaps:
        raise typer.Exit(EXIT_PARTIAL)


def _warn_when_disabled(settings: SettingSections) -> None:
    if not settings.section(AutopilotSettings).enabled:
        message("autopilot.enabled is false: a manager with these settings follows no policy", style="yellow")
