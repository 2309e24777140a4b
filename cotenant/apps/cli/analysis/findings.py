"""`cotenant get findings`: idle workloads and nodes, missing requests, requests that no node can hold."""

from __future__ import annotations

from typing import Annotated

import typer

from cotenant.apps.cli.analysis.results import (
    AllClustersOption,
    ClusterOption,
    FilterOption,
    NamespaceOption,
    StoreOption,
    chosen_of_scan,
    load_for_reading,
    open_scans,
)
from cotenant.apps.cli.analysis.severity import FailOn, FailOnOption
from cotenant.apps.cli.command import EXIT_FINDINGS, examples, new_app
from cotenant.apps.cli.output import Format, NoHeadersOption, OutputOption, message, print_table
from cotenant.core.model.errors import UsageError
from cotenant.core.model.finding import FINDING_SENTENCES, FindingKind

app = new_app()


@app.command(
    epilog=examples(
        "cotenant get findings",
        "cotenant get findings --what idle-node --what idle-workload",
        "cotenant get findings -n shop -o csv",
        "cotenant get findings --fail-on severity=critical  # a pod that fits on no node ends with exit code 3",
    )
)
def findings(
    ctx: typer.Context,
    what: Annotated[
        list[str] | None, typer.Option("--what", "-w", metavar="KIND", help="Only this kind; may be repeated.")
    ] = None,
    cluster: ClusterOption = None,
    all_clusters: AllClustersOption = False,
    store: StoreOption = None,
    namespace: NamespaceOption = None,
    query: FilterOption = None,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
    fail_on: FailOnOption = None,
) -> None:
    """Show what the last scan found beside recommendations, each with the figures it rests on."""
    import numpy as np

    from cotenant.core.model.views import FINDINGS

    threshold = FailOn.parse(fail_on) if fail_on else None
    kinds = _kinds(what)
    scans = open_scans(load_for_reading(ctx, store, all_clusters), cluster, all_clusters)
    table = scans.read_table(FINDINGS)
    rows = chosen_of_scan(scans, table, namespace, query)
    rows = rows.take(np.isin(rows.columns["finding"].astype(str), kinds))
    print_table(rows, output, headers=not no_headers)
    shown = set(rows.columns["finding"])
    for kind in (k for k in FindingKind if k.value in shown):
        message(f"{kind}: {FINDING_SENTENCES[kind]}")
    if not len(rows):
        message(f"none of {len(table)} findings matches {query}" if query and len(table) else "nothing found")
    if threshold and threshold.findings(rows.columns["severity"]):
        raise typer.Exit(EXIT_FINDINGS)


def _kinds(what: list[str] | None) -> list[str]:
    kinds = [k.value for k in FindingKind]
    unknown = [w for w in what or () if w not in kinds]
    if unknown:
        raise UsageError(f"--what {unknown[0]!r} is no kind of finding", fix=f"Write one of {', '.join(kinds)}.")
    return what or kinds
