"""`cotenant get findings`: idle workloads and nodes, missing requests, requests that fit on no node.

With `--fail-on severity=critical` the command exits with code 3 if it finds something that severe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.base.commands.call import CHOICE, SCANS, CommandCall, command
from cotenant.base.commands.output import Format, NoHeadersOption, message, print_table, print_totals
from cotenant.base.commands.session import EXIT_FINDINGS, new_app
from cotenant.base.errors import UsageError
from cotenant.base.measures import left_out_count
from cotenant.base.severity import Severity
from cotenant.base.text import agree, counted
from cotenant.recommender.model.finding import FINDING_SENTENCES, FindingKind

if TYPE_CHECKING:
    from cotenant.base.commands.results import StoredScans
    from cotenant.base.table import Table

app = new_app()

_LEVELS = [s for s in Severity if s is not Severity.UNKNOWN]

FailOnOption = Annotated[
    str | None,
    typer.Option(
        "--fail-on",
        metavar="severity=LEVEL",
        help="Exit with code 3 if a row has this severity or a worse one: warning, critical...",
    ),
]


@dataclass(frozen=True, slots=True)
class FailOn:
    """The option --fail-on: the lowest severity of a result with which a command exits with code 3."""

    threshold: Severity

    @classmethod
    def parse(cls, text: str) -> FailOn:
        """Parse a text such as "severity=critical"; raise UsageError, with the allowed severities, if it is invalid."""
        subject, equals, level = (part.strip() for part in text.partition("="))
        levels = {s.value: s for s in _LEVELS}
        if subject != "severity" or not equals or level not in levels:
            fix = f"Write --fail-on severity=LEVEL with LEVEL one of {', '.join(levels)}."
            raise UsageError(f"--fail-on {text!r} is not severity=LEVEL", fix=fix)
        return cls(levels[level])

    def findings(self, severities: Iterable[str]) -> int:
        """Return how many of the severities reach the threshold; the severity unknown never counts."""
        return sum(Severity(s).rank >= self.threshold.rank for s in severities)


class FindingsFormat(StrEnum):
    """The output format of findings; `patch` and `kustomize` write them as changes of pod templates.

    These two formats can only write findings that propose a smaller share of a GPU.
    """

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"
    PATCH = "patch"
    KUSTOMIZE = "kustomize"

    @property
    def is_change(self) -> bool:
        """True if the format writes changes of pod templates rather than a table."""
        return self in (FindingsFormat.PATCH, FindingsFormat.KUSTOMIZE)


@command(
    app,
    SCANS | CHOICE,
    "cotenant get findings",
    "cotenant get findings --what idle-node --what idle-workload",
    "cotenant get findings -n shop -o csv",
    "cotenant get findings --what oversized-gpu -o patch  # kubectl patch lines with the proposed shares",
    "cotenant get findings --fail-on severity=critical  # a pod that fits on no node ends with exit code 3",
)
def findings(
    call: CommandCall,
    what: Annotated[
        list[str] | None, typer.Option("--what", "-w", metavar="KIND", help="Only this kind of finding; repeatable.")
    ] = None,
    output: Annotated[
        FindingsFormat,
        typer.Option("--output", "-o", help="Output format; patch and kustomize write the proposed GPU shares."),
    ] = FindingsFormat.TABLE,
    output_dir: Annotated[
        Path | None, typer.Option("--output-dir", metavar="DIR", help="Folder for the files of -o kustomize.")
    ] = None,
    no_headers: NoHeadersOption = False,
    fail_on: FailOnOption = None,
) -> None:
    """Show the findings of the last scan that are not recommendations, each with its evidence."""
    import numpy as np

    from cotenant.recommender.model.views import FINDINGS

    if output_dir is not None and output is not FindingsFormat.KUSTOMIZE:
        raise UsageError(f"--output-dir needs -o kustomize, not -o {output}", fix="Use -o kustomize, or `> FILE`.")
    if output.is_change and call.given["all_clusters"]:
        raise UsageError(f"-o {output} writes changes of a single cluster", fix="Name the cluster: --cluster NAME.")
    threshold = FailOn.parse(fail_on) if fail_on else None
    kinds = [k.value for k in FindingKind]
    for unknown in (word for word in what or () if word not in kinds):
        raise UsageError(f"--what {unknown!r} is not a kind of finding", fix=f"Write one of {', '.join(kinds)}.")
    table = call.scans.read_table(FINDINGS)
    rows = call.filter_rows(table)
    rows = rows.take(np.isin(rows.columns["finding"].astype(str), what or kinds))
    if output.is_change:
        _write_changes(call.scans, rows, output, output_dir)
    else:
        print_table(rows, Format(output.value), headers=not no_headers)
    shown = set(rows.columns["finding"])
    for kind in (k for k in FindingKind if k.value in shown):
        message(f"{kind}: {FINDING_SENTENCES[kind]}")
    if len(rows):
        numbers = Counter(rows.columns["severity"].astype(str))
        parts = ", ".join(f"{numbers[s.value]:,} {s.value}" for s in reversed(Severity) if numbers[s.value])
        print_totals(f"{counted(len(rows), 'finding')}: {parts}", Format.TABLE if output.is_change else Format(output))
    else:
        message(
            f"none of {len(table)} findings matches {query}"
            if (query := call.given["query"]) and len(table)
            else "nothing found"
        )
    if threshold and threshold.findings(rows.columns["severity"]):
        raise typer.Exit(EXIT_FINDINGS)


def _write_changes(scans: StoredScans, rows: Table, output: FindingsFormat, folder: Path | None) -> None:
    """Write the GPU shares that the rows propose as changes of templates.

    Rows without such a proposal are counted on stderr.
    """
    from cotenant.cli.analysis.export import write_components, write_patches
    from cotenant.recommender.stored_recommendations import gpu_shares

    shares = gpu_shares(scans.stores[0], rows)
    if output is FindingsFormat.PATCH:
        write_patches(shares)
    else:
        write_components(shares, folder)
    if others := left_out_count(len(rows), len(shares)):
        verb = agree(others, "finding is", "findings are")
        message(f"note: {verb} left out: only a proposed GPU share changes a template")
