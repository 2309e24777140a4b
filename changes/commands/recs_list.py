"""`cotenant recs list|explain|dismiss|snooze|recall`: list, explain, hide and show recommendations."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.base.commands.call import DOCUMENT, LIVE, ROWS, STORED, CommandCall, command
from cotenant.base.commands.cells import human
from cotenant.base.commands.output import DocumentFormat, Format, console, message, print_document, print_totals
from cotenant.base.commands.results import (
    AllClustersOption,
    FilterOption,
    LedgerReason,
    NamespaceOption,
    chosen_of_scan,
    load_for_reading,
    open_scans,
)
from cotenant.base.commands.session import new_app, session_of, workload_addresses
from cotenant.base.table import Kind
from cotenant.base.text import counted
from cotenant.changes.commands.ledger_access import (
    clock_of_ledger,
    ledger_for_reading,
    marks_of,
    open_actions,
    workload_recommendations,
)
from cotenant.changes.commands.recs_options import Workloads
from cotenant.recommender.settings import RecommenderSettings

if TYPE_CHECKING:
    from cotenant.base.identity import WorkloadRef
    from cotenant.base.settings.base import SettingSections
    from cotenant.changes.model.ledger_marks import LedgerMarks
    from cotenant.changes.model.service import PostponedRecommendation

app = new_app()


def _sort_words(incomplete: str) -> list[str]:
    """Return completions of --sort: matching column names, with the sign that was typed."""
    from cotenant.recommender.model.views import RECOMMENDATIONS

    sign = "+" if incomplete.startswith("+") else ""  # typer takes a word that begins with "-" for an option
    return [f"{sign}{c.name}" for c in RECOMMENDATIONS.columns if c.name.startswith(incomplete.removeprefix(sign))]


@command(
    app,
    STORED | ROWS,
    "cotenant recs list",
    "cotenant recs list --top 20  # the worst",
    "cotenant recs list --sort saving --top 20",
    "cotenant recs list -n pay --filter 'severity=critical' -o wide",
    "cotenant recs list --all -o json  # hidden ones too",
    "cotenant recs list --all-clusters --filter 'cluster=prod-1&severity=critical'",
    name="list",
)
def list_(
    call: CommandCall,
    namespace: NamespaceOption = None,
    query: FilterOption = None,
    sort: Annotated[
        str | None,
        typer.Option(
            "--sort",
            metavar="COLUMN",
            help="Sort by this column, numbers and severity descending; -COLUMN: descending, +COLUMN: ascending.",
            autocompletion=_sort_words,
        ),
    ] = None,
    top: Annotated[int | None, typer.Option("--top", min=1, metavar="N", help="Show only this many rows.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Show dismissed and snoozed recommendations too.")] = False,
    all_clusters: AllClustersOption = False,
) -> None:
    """List the recommendations of the last scan, the worst first, without dismissed and snoozed ones."""
    import numpy as np

    from cotenant.base.identity import WorkloadRef
    from cotenant.base.tables.filters import parse
    from cotenant.changes.commands.recs_table import ROOMY_COLUMNS, WORST_FIRST, compact, in_words, sort_of
    from cotenant.changes.model.ledger_marks import without_waiting_steps
    from cotenant.recommender.model.savings import summed_savings
    from cotenant.recommender.model.savings_text import saving_text
    from cotenant.recommender.model.views import RECOMMENDATIONS, Overview

    store = call.given["store"]
    scans = open_scans(load_for_reading(call.ctx, store, all_clusters), call.cluster, all_clusters)
    session = session_of(call.ctx)
    settings = session.read({"store.url": store}).settings
    ledgers = {c.cluster: session.of_cluster(c.cluster).read({"store.url": store}) for c in scans.stores}
    overviews = {c.cluster: c.read_document("overview", Overview) for c in scans.stores}
    scanned = {c: overview.time_seconds if overview else math.inf for c, overview in overviews.items()}
    marks = {c: _marks(s.settings, scanned[c], reaches_cluster=s.reaches_cluster) for c, s in ledgers.items()}
    advice = scans.read_table(RECOMMENDATIONS, lambda owner, rows: without_waiting_steps(rows, marks[owner]))
    # The filter with its order: the one that is asked for, in --sort before --filter; else worst first.
    query_text = "&".join(filter(None, [sort_of(sort, advice.schema) if sort else "", query]))
    ordered = query_text if parse(query_text, advice.schema).sort else f"{query_text}&{WORST_FIRST}".lstrip("&")
    table = chosen_of_scan(scans, advice, namespace, ordered)
    owners = table.columns["cluster"] if all_clusters else np.full(len(table), scans.stores[0].cluster, dtype=object)
    refs = [
        (owner, WorkloadRef(row["namespace"], row["kind"], row["workload"]))
        for owner, row in zip(owners, table.rows(), strict=True)
    ]
    hidden = {(c, ref): put for c, own in marks.items() if not every for ref, put in own.postponed.items()}
    shown = table.take(np.array([index for index, ref in enumerate(refs) if ref not in hidden], dtype=np.int64))
    printed = shown if top is None else shown.take(np.arange(len(shown))[:top])
    if call.output in (Format.TABLE, Format.WIDE):  # for the eye in words, in two lines each on a narrow terminal
        printed = in_words(printed)
        is_narrow = sys.stdout.isatty() and console(sys.stdout).width < ROOMY_COLUMNS
        printed = compact(printed) if is_narrow and call.output is Format.TABLE else printed
    call.print(printed)
    if not len(table):
        message("no recommendation matches")
    for key in dict.fromkeys(ref for ref in refs if ref in hidden):
        message(f"hidden: {_of(key[0], all_clusters)}{_postponement_text(hidden[key])}")
    for owner, ref, until in ((c, ref, until) for c, own in marks.items() for ref, until in own.cool_downs.items()):
        if (owner, ref) in refs and (owner, ref) not in hidden:
            what = f"{_of(owner, all_clusters)}{ref} was changed lately"
            message(f"waiting: {what}; its requests are not lowered before {human(Kind.TIME, until)}")
    if len(shown):
        total = saving_text(summed_savings(shown.columns), settings.section(RecommenderSettings).prices.currency)
        first = "" if top is None or top >= len(shown) else f"the first {top:,} of "
        print_totals(f"{first}{counted(len(shown), 'container')}; saving after all steps: {total}", call.output)


def _of(cluster: str, several: bool) -> str:
    return f"{cluster}: " if several else ""


@command(
    app,
    STORED | DOCUMENT,
    "cotenant recs explain pay/Deployment/checkout",
    "cotenant recs explain pay/checkout -o json",
)
def explain(
    call: CommandCall,
    workload: Annotated[
        str,
        typer.Argument(
            metavar="NAMESPACE/KIND/NAME", help="The kind may be left out.", autocompletion=workload_addresses
        ),
    ],
) -> None:
    """Explain a workload's recommendation and say whether it is hidden; the same as `cotenant explain`."""
    from cotenant.changes.commands.recommendation_lines import describe

    loaded = call.loaded
    settings = loaded.settings
    recommendations = workload_recommendations(settings, call.cluster, [workload])
    if call.output is not DocumentFormat.TABLE:
        print_document(recommendations, call.output)
        return
    currency = settings.section(RecommenderSettings).prices.currency
    for recommendation in recommendations:
        sys.stdout.writelines(f"{line}\n" for line in describe(recommendation, currency))
    marks = _marks(settings, reaches_cluster=loaded.reaches_cluster)
    if hidden := marks.postponed.get(recommendations[0].container.workload):
        message(f"hidden: {_postponement_text(hidden)}")


@command(app, STORED | LIVE, "cotenant recs dismiss pay/checkout --reason 'load test, not real traffic'")
def dismiss(call: CommandCall, workloads: Workloads, reason: LedgerReason) -> None:
    """Hide recommendations until somebody recalls them."""
    _snooze(call.settings, call.cluster, workloads, None, reason)


@command(app, STORED | LIVE, "cotenant recs snooze pay/checkout --days 14 --reason 'after the sale'")
def snooze(
    call: CommandCall,
    workloads: Workloads,
    reason: LedgerReason,
    days: Annotated[float, typer.Option("--days", metavar="N", help="Days to hide the recommendation.")] = 7.0,
) -> None:
    """Hide recommendations for a number of days."""
    _snooze(call.settings, call.cluster, workloads, days, reason)


@command(app, STORED | LIVE, "cotenant recs recall pay/checkout")
def recall(call: CommandCall, workloads: Workloads) -> None:
    """Show dismissed or snoozed recommendations again."""
    from cotenant.changes.snooze import recall as recalled

    settings = call.settings
    refs = _refs(settings, call.cluster, workloads)
    hidden = _marks(settings).postponed
    with open_actions(settings) as actions:
        recalled(actions.journal, refs)
    for ref in refs:
        message(f"{ref}: {'shown again' if ref in hidden else 'its recommendation was not hidden'}")


def _snooze(
    settings: SettingSections, cluster: str | None, workloads: list[str], days: float | None, reason: str
) -> None:
    from cotenant.changes.snooze import snooze

    refs = _refs(settings, cluster, workloads)
    with open_actions(settings) as actions:
        snooze(actions.journal, refs, days, reason)
    for ref, postponed in _marks(settings).postponed.items():
        if ref in refs:
            message(f"hidden: {_postponement_text(postponed)}")


def _refs(settings: SettingSections, cluster: str | None, names: list[str]) -> list[WorkloadRef]:
    return list(dict.fromkeys(r.container.workload for r in workload_recommendations(settings, cluster, names)))


def _marks(own: SettingSections, scanned_seconds: float = math.inf, *, reaches_cluster: bool = True) -> LedgerMarks:
    """Return the ledger's marks; steps applied after `scanned_seconds` (the time of the scan) are marked as taken."""
    with ledger_for_reading(own) as ledger:
        clock = clock_of_ledger(own, ledger, reaches_cluster=reaches_cluster)
        return marks_of(own, ledger, clock, scanned_seconds)


def _postponement_text(postponed: PostponedRecommendation) -> str:
    from datetime import UTC, datetime

    end = postponed.until_seconds
    until = "for good" if end is None else f"until {datetime.fromtimestamp(end, UTC):%Y-%m-%d %H:%M} UTC"
    return f"{postponed.workload} {until} by {postponed.actor}: {postponed.reason}"
