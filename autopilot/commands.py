"""EDGE: `cotenant autopilot`: status, preview, approval of policies, and the pause switch."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.autopilot.settings import AutopilotSettings
from cotenant.base.commands.cluster_options import Context, Kubeconfig, LedgerReason, settings_of
from cotenant.base.commands.command import EXIT_PARTIAL, examples, new_app
from cotenant.base.commands.files import save_all
from cotenant.base.commands.output import Format, NoHeadersOption, OutputOption, message, print_table, print_totals
from cotenant.base.commands.results import ClusterOption, NamespaceOption, StoreOption, filter_rows, named_workload
from cotenant.base.settings.sections.kube import KubeSettings
from cotenant.changes.access.settings import AccessSettings
from cotenant.changes.commands.recs_options import BundleFolder, BundleFormat
from cotenant.changes.model.service import BundleForm
from cotenant.changes.model.settings import ActionSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from cotenant.autopilot.rounds.reading import RoundReading
    from cotenant.autopilot.service import ClusterAutopilotService
    from cotenant.base.people import Person
    from cotenant.base.settings.root import SettingSections
    from cotenant.recommender.model.recommendation import Recommendation

PolicyName = Annotated[str, typer.Argument(metavar="NAMESPACE/NAME", help="An AutopilotPolicy.")]

app = new_app()


@app.callback(epilog=examples("cotenant autopilot status", "cotenant autopilot preview -n shop"))
def _autopilot() -> None:
    """Right-sizing that goes on by itself under AutopilotPolicies; the manager carries it out (docs/autopilot.md)."""


@app.command(epilog=examples("cotenant autopilot status", "cotenant autopilot status -o json"))
def status(
    ctx: typer.Context,
    namespace: NamespaceOption = None,
    cluster: ClusterOption = None,
    store: StoreOption = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """List the policies: what each asks for, what it does now, and why that is less."""
    from cotenant.autopilot.model import policy_totals
    from cotenant.autopilot.rounds.reading import RoundScope
    from cotenant.autopilot.service import status_table

    settings = settings_of(ctx, store, kubeconfig, context)
    reading = _service(settings, cluster).read(_person(settings), RoundScope(namespace or ()))
    table = filter_rows(status_table(reading), namespace, None)
    print_table(table, output, headers=not no_headers)
    if len(table):
        print_totals(policy_totals(table), output)
    _finish(reading, settings)


@app.command(
    epilog=examples(
        "cotenant autopilot preview",
        "cotenant autopilot preview -n shop --in-window",
        "cotenant autopilot preview -o csv",
    )
)
def preview(
    ctx: typer.Context,
    namespace: NamespaceOption = None,
    in_window: Annotated[bool, typer.Option("--in-window", help="Take every change window as open.")] = False,
    cluster: ClusterOption = None,
    store: StoreOption = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """Decide a round now and print its queue: what would be changed, and why the others wait. It writes nothing."""
    from cotenant.autopilot.rounds.reading import RoundScope
    from cotenant.autopilot.service import queue_table

    settings = settings_of(ctx, store, kubeconfig, context)
    scope = RoundScope(namespace or (), in_window)
    reading = _service(settings, cluster).read(_person(settings), scope)
    print_table(filter_rows(queue_table(reading), namespace, None), output, headers=not no_headers)
    _finish(reading, settings)


@app.command(epilog=examples("cotenant autopilot act shop/nightly --reason 'observed for two weeks'"))
def act(
    ctx: typer.Context,
    policy: PolicyName,
    reason: LedgerReason = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Let a policy act in its present version; after an edit it only observes again."""
    from cotenant.changes.model.settings import ledger_location

    settings = settings_of(ctx, None, kubeconfig, context)
    service, who = _service(settings, None), _person(settings)
    read = service.policy(who, policy)
    message(f"{policy} has digest {read.digest}: {read.text}" if read.digest else f"{policy}: {read.refused}")
    approved = service.act(who, policy, reason, read.digest)
    message(f"approved with digest {approved.digest}: {approved.text}")
    place = ledger_location(settings.section(ActionSettings), os.environ)
    message(f"{policy} may change workloads from the next round on, of a manager with this ledger: {place}")
    _warn_when_disabled(settings)


@app.command(epilog=examples("cotenant autopilot observe shop/nightly"))
def observe(
    ctx: typer.Context,
    policy: PolicyName,
    reason: LedgerReason = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Take that back: the policy records what it would do, and changes nothing."""
    settings = settings_of(ctx, None, kubeconfig, context)
    _service(settings, None).observe(_person(settings), policy, reason)
    message(f"{policy} observes")


@app.command(epilog=examples("cotenant autopilot pause --reason 'incident 4711'"))
def pause(
    ctx: typer.Context, reason: LedgerReason = "", kubeconfig: Kubeconfig = None, context: Context = None
) -> None:
    """Stop everything: no act begins after this. What did harm is still rolled back."""
    settings = settings_of(ctx, None, kubeconfig, context)
    value = _service(settings, None).pause(_person(settings), reason)
    message(f"{value}; cotenant autopilot resume ends that")


@app.command(
    epilog=examples("cotenant autopilot resume", "cotenant autopilot resume shop/Deployment/checkout --reason fixed")
)
def resume(
    ctx: typer.Context,
    workload: Annotated[
        str, typer.Argument(metavar="NAMESPACE/KIND/NAME", help="Only this workload, which was left alone or rests.")
    ] = "",
    reason: LedgerReason = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Resume after a pause or a stop; with a workload, take it up again."""
    settings = settings_of(ctx, None, kubeconfig, context)
    ref = named_workload(settings, None, workload) if workload else None
    _service(settings, None).resume(_person(settings), ref, reason)
    message(f"{ref or 'everything'} goes on")


@app.command(epilog=examples("cotenant autopilot report --days 7", "cotenant autopilot report -o csv"))
def report(
    ctx: typer.Context,
    days: Annotated[float, typer.Option("--days", min=0.1, max=366, help="How far back it looks.")] = 7.0,
    namespace: NamespaceOption = None,
    cluster: ClusterOption = None,
    store: StoreOption = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """Count by namespace what was proposed, changed and found harmful, and what proposals came to in a week."""
    settings = settings_of(ctx, store, kubeconfig, context)
    table = _service(settings, cluster).report(_person(settings), days)
    print_table(filter_rows(table, namespace, None), output, headers=not no_headers)


@app.command(
    epilog=examples(
        "cotenant autopilot bundle -o ./bundle", "cotenant autopilot bundle -n shop -o ./bundle --form helm"
    )
)
def bundle(
    ctx: typer.Context,
    folder: BundleFolder,
    form: BundleFormat = BundleForm.KUSTOMIZE,
    namespace: NamespaceOption = None,
    cluster: ClusterOption = None,
    store: StoreOption = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Write the steps of workloads that a GitOps tool keeps as files for its repository, with PULL_REQUEST.md."""
    settings = settings_of(ctx, store, kubeconfig, context)
    save_all(folder, _service(settings, cluster).bundle(_person(settings), form, namespace or ()))


def _service(settings: SettingSections, cluster: str | None) -> ClusterAutopilotService:
    """On the cluster and the ledger of the settings; the store is opened when a round is read."""
    from cotenant.autopilot.configured_service import autopilot_service_of
    from cotenant.base.commands.results import open_store
    from cotenant.base.kube import clock_of
    from cotenant.changes.access.kubeconfig_access import kubeconfig_door
    from cotenant.recommender.stored_recommendations import recommendations_of

    @cache
    def open_explanations() -> Callable[[str], list[Recommendation]]:
        return recommendations_of(open_store(settings, cluster))

    def read_recommendations(namespace: str) -> list[Recommendation]:
        return open_explanations()(namespace)

    door = kubeconfig_door(settings.section(KubeSettings))
    clock = clock_of(settings.section(KubeSettings))
    return autopilot_service_of(
        settings, read_recommendations, door, clock=clock, stored=lambda: open_store(settings, cluster)
    )


def _person(settings: SettingSections) -> Person:
    """Return the user that the cluster reports, with the roles of the settings.

    In access mode none, which assigns no roles, it is the owner of the kubeconfig, as administrator.
    """
    from cotenant.base.people import Person
    from cotenant.changes.access.kubeconfig_access import at_this_machine, kubeconfig_door
    from cotenant.changes.access.settings import AccessMode
    from cotenant.changes.commands.recs_approval import someone_of
    from cotenant.changes.live_context import who

    if settings.section(AccessSettings).mode is AccessMode.NONE:
        return at_this_machine(settings.section(KubeSettings))()
    with kubeconfig_door(settings.section(KubeSettings))(Person("")) as client:
        return someone_of(who(client), settings.section(AccessSettings))


def _finish(reading: RoundReading, settings: SettingSections) -> None:
    """Write to stderr what the table does not show; exit with code 4 where a namespace could not be read."""
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
        message("these settings have autopilot.enabled false: a manager with them follows no policy", style="yellow")
