"""`cotenant audit`: check that the ledger is unaltered, and export its rows."""

from __future__ import annotations

import sys
from typing import Annotated, Final

import typer

from cotenant.base.commands.call import DECLARED, LIVE, ROWS, CommandCall, command
from cotenant.base.commands.output import message
from cotenant.base.commands.session import EXIT_FINDINGS, EXIT_PARTIAL, examples, new_app
from cotenant.base.errors import ClusterError
from cotenant.base.settings.sections import KubeSettings, ManagerSettings
from cotenant.base.text import agree
from cotenant.changes.commands.ledger_access import open_ledger
from cotenant.changes.ledger_cache import entry_of
from cotenant.changes.model.tables import entries_table

app = new_app()
_ROWS: Final = {"output": ROWS["output"]}


@app.callback(epilog=examples("cotenant audit verify", "cotenant audit export -o csv > audit.csv"))
def audit() -> None:
    """Check and export the ledger of cotenant's changes: append-only, each row with the hash of all rows before it."""


@command(app, LIVE, "cotenant audit verify", "cotenant audit verify --offline")
def verify(
    call: CommandCall,
    offline: Annotated[bool, typer.Option("--offline", help="Do not read the ledger's head from the cluster.")] = False,
) -> None:
    """Verify the ledger's chain of hashes and compare its last row with the ledger's head that the cluster stores.

    Without that head, rows that were removed from the end cannot be detected. Exit code 3: a row is wrong, and the
    output names it; 4: the head could not be read from the cluster.
    """
    ledger = open_ledger(call.settings)
    head, compared = None, True
    if not offline:
        from cotenant.base.kube import connect
        from cotenant.changes.change_ledger import read_anchored_heads, unkept

        namespace = call.settings.section(ManagerSettings).namespace
        try:
            anchor_lookup = read_anchored_heads(connect(call.settings.section(KubeSettings)), ledger, namespace)
            head = anchor_lookup.head
            if head is None:
                message(f"{unkept(ledger, anchor_lookup)} Only the ledger's hash chain was verified.", style="yellow")
        except ClusterError as error:
            compared = False
            message(f"the ledger's head in the cluster could not be read: {error}", style="yellow")
            message(f"fix: {f'{error.fix} With --offline only the hash chain is verified.'.lstrip()}")
    verification = ledger.verify(head)
    if verification.wrong_seq is not None:
        sys.stdout.write(f"WRONG at row {verification.wrong_seq} of ledger {ledger.id}: {verification.why}\n")
        raise typer.Exit(EXIT_FINDINGS)
    # Say what a chain without a wrong row proves: all rows with the cluster's head, else not its end.
    rows = verification.rows
    place = f"of ledger {ledger.id}"
    unknown = "cannot be checked without the head that the cluster stores"
    if head:
        text = agree(rows, f"row {place} is unchanged", f"rows {place} are unchanged")
        text = f"{text}, and row {head.seq} matches the head that the cluster stores"
    elif rows:
        text = agree(rows, f"row {place} has its right hash", f"rows {place} have their right hashes")
        text = f"{text}; whether later rows were removed {unknown}"
    else:
        text = f"ledger {ledger.id} has no rows; whether rows were removed {unknown}"
    sys.stdout.write(f"{text}\n")
    if not compared:
        raise typer.Exit(EXIT_PARTIAL)


@command(app, DECLARED | _ROWS, "cotenant audit export -o csv > audit.csv", "cotenant audit export -o json")
def export(call: CommandCall) -> None:
    """Print every row of the ledger."""
    ledger = open_ledger(call.settings)
    call.print(entries_table([entry_of(row) for row in ledger.entries()]))
