"""`cotenant config check slo-config FILE`: finds mistakes in a configuration before it reaches a cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from cotenant.base.commands.call import ROWS, CommandCall, command
from cotenant.base.commands.output import Format, message
from cotenant.base.commands.session import EXIT_FINDINGS, examples, new_app
from cotenant.base.table import Column, Kind, Schema, Table
from cotenant.base.text import counted, format_value
from cotenant.recommender.colocation.model.slo_config import SloConfig

app = new_app()

CHECKED = Schema(
    "slo-config",
    (
        Column("key", "Key", Kind.TEXT, "Key of the ConfigMap."),
        Column("severity", "Severity", Kind.TEXT, "critical: key cannot be used; warning: value has no effect."),
        Column("path", "Path", Kind.TEXT, "Path of the value in the key's JSON."),
        Column("value", "Value", Kind.TEXT, "What stands there."),
        Column("problem", "Problem", Kind.TEXT, "What is wrong, and the allowed range."),
        Column("fix", "Fix", Kind.TEXT, "What helps.", wide=True),
    ),
    ("key", "path"),
)


@app.callback(epilog=examples("cotenant config check slo-config slo-controller-config.yaml"))
def _family() -> None:
    """Check configuration files without a cluster."""


@command(
    app,
    ROWS,
    "cotenant config check slo-config slo-controller-config.yaml",
    "kubectl get cm -n koordinator-system slo-controller-config -o yaml | cotenant config check slo-config -",
)
def slo_config(
    call: CommandCall,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The ConfigMap as YAML or JSON; - reads stdin.")],
) -> None:
    """List every value of slo-controller-config that is not allowed or has no effect.

    Exit code 3 if a key cannot be used: the manager would keep the last valid value of that key.
    """
    from cotenant.cli.analysis.explain.explain_node_slo import data_of

    config = SloConfig().updated(data_of(file))
    if config.findings or call.output not in (Format.TABLE, Format.WIDE):
        rows = [
            {
                "key": finding.key,
                "severity": "critical" if finding.fatal else "warning",
                "path": finding.deviation.path,
                "value": format_value(finding.deviation.value),
                "problem": finding.deviation.expected,
                "fix": finding.fix,
            }
            for finding in config.findings
        ]
        call.print(Table.from_rows(CHECKED, rows))
    message(f"{counted(len(config.layers), 'key')} can be used, {len(config.unread)} cannot")
    if config.unread:
        raise typer.Exit(EXIT_FINDINGS)
