"""Summarises a scan and sends it to a chat (Slack's incoming webhooks) or any other receiver of JSON.

Content and format are pure; `send` posts it through `base.http.webhook`. If the summary cannot be delivered, a note is
printed and the scan still succeeds.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.base.chat import HEADER_CHARACTERS, escape_slack_text, header, section
from cotenant.base.commands.cells import human
from cotenant.base.commands.output import message
from cotenant.base.errors import NotDelivered
from cotenant.base.severity import Severity
from cotenant.base.table import Kind
from cotenant.base.text import counted
from cotenant.recommender.model.savings import Savings, When, summed_savings
from cotenant.recommender.model.savings_text import saving_text

if TYPE_CHECKING:
    from cotenant.base.settings.sections import NotifySettings
    from cotenant.base.table import Table
    from cotenant.recommender.model.views import Overview

NotifyOption = Annotated[
    str | None,
    typer.Option(
        "--notify-url",
        metavar="URL|FILE",
        help="Send a summary to this webhook: a URL, or a file with the URL, which keeps it out of process lists.",
    ),
]
DryRunOption = Annotated[
    bool, typer.Option("--notify-dry-run", help="Print the summary instead of the rows, and send nothing.")
]


@dataclass(frozen=True, slots=True)
class Worst:
    """One of the most severe recommendations in the summary; amounts are millicores and bytes per pod."""

    container: str
    severity: str
    cpu_request_now: int | None
    cpu_request: int | None
    memory_request_now: int | None
    memory_request: int | None
    saving_month: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of a scan's results that are sent to a chat.

    `severities` counts recommendations, `findings` findings by kind; `worst_severity` is the highest of both. `now` has
    the savings in requests, over all pods, by the recommendations' next step, `all_steps` those by all steps.
    """

    cluster: str
    time_seconds: int
    strategy: str
    containers: int
    severities: Mapping[str, int]
    findings: Mapping[str, int]
    now: Savings
    all_steps: Savings
    currency: str
    worst: tuple[Worst, ...]
    worst_severity: str


def summarise(overview: Overview, rows: Table, findings: Table | None, currency: str) -> Summary:
    """Return the summary of the chosen recommendations and findings; its `worst` has all rows, most severe first."""
    table = list(rows.rows())
    severities = Counter(row["severity"] for row in table)
    finding_rows = list(findings.rows()) if findings is not None else []
    levels = [Severity(s) for s in (*severities, *(f["severity"] for f in finding_rows))]
    ranked = sorted(table, key=lambda row: (-Severity(row["severity"]).rank, -(row["saving_month"] or 0)))
    names = tuple(Worst.__dataclass_fields__)[1:]
    path = ("namespace", "kind", "workload", "container")
    return Summary(
        cluster=overview.cluster,
        time_seconds=overview.time_seconds,
        strategy=overview.strategy,
        containers=len(table),
        severities={s.value: severities[s.value] for s in reversed(Severity) if severities[s.value]},
        findings=dict(Counter(f["finding"] for f in finding_rows)),
        now=summed_savings(rows.columns, When.NOW),
        all_steps=summed_savings(rows.columns, When.ALL_STEPS),
        currency=currency,
        worst=tuple(
            Worst("/".join(row[part] for part in path), **{name: row[name] for name in names}) for row in ranked
        ),
        worst_severity=max(levels, key=lambda s: s.rank, default=Severity.UNKNOWN).value,
    )


def payload(summary: Summary, settings: NotifySettings) -> dict[str, Any]:
    """Return the JSON document to post, in the format and with the number of rows that the settings say."""
    least = Severity(settings.minimum_severity).rank
    severe = [w for w in summary.worst if Severity(w.severity).rank >= least]
    short = replace(summary, worst=tuple(severe[: settings.rows]))
    if settings.format == "slack":
        # A message of blocks, and the plain text that notifications show.
        title = f"cotenant: {escape_slack_text(short.cluster, HEADER_CHARACTERS - len('cotenant: '))}"
        counts = ", ".join(f"{n} {severity}" for severity, n in short.severities.items()) or "none"
        lines = [f"{counted(short.containers, 'container')}: *{counts}*"]
        for when, savings in zip(When, (short.now, short.all_steps), strict=True):
            lines.append(f"{when.capitalize()}: *{saving_text(savings, escape_slack_text(short.currency))}*")
        if short.findings:
            findings = ", ".join(f"{n} {escape_slack_text(kind)}" for kind, n in short.findings.items())
            lines.append(f"Findings: {findings}")
        blocks = [header(title), section(lines)]
        if short.worst:
            blocks.append(section(_line(w) for w in short.worst))
        return {"text": f"{title}: {counts}", "blocks": blocks}
    return {"apiVersion": "cotenant.dev/v1alpha1", "kind": "ScanSummary", **asdict(short)}


def worth_sending(summary: Summary, settings: NotifySettings) -> bool:
    """Return whether the summary's worst severity reaches the minimum of the settings."""
    return Severity(summary.worst_severity).rank >= Severity(settings.minimum_severity).rank


def address(option: str | None, settings: NotifySettings) -> str:
    """Return the receiver's URL from the option (a URL or a file), else from the settings' file; "" without both.

    Raises UsageError, without the secret content, if the file cannot be read or the address is not an HTTP URL.
    """
    from cotenant.base.http.webhook import receiver_of

    return receiver_of(option or settings.url_file)


def send(url: str, summary: Summary, settings: NotifySettings) -> None:
    """Post the summary if it is severe enough; print a note to stderr if it is not sent or fails."""
    from cotenant.base.http.webhook import post

    if not worth_sending(summary, settings):
        message(f"note: no summary was sent: no result has severity {settings.minimum_severity} or worse")
        return
    try:
        post(url, json.dumps(payload(summary, settings)).encode(), settings)
    except NotDelivered as error:
        message(f"note: the summary was not delivered: {error.message}")


def _line(worst: Worst) -> str:
    cpu = _change(Kind.MILLICORES, worst.cpu_request_now, worst.cpu_request)
    memory = _change(Kind.BYTES, worst.memory_request_now, worst.memory_request)
    return f"• {worst.severity}: `{escape_slack_text(worst.container, 400)}` CPU {cpu}, memory {memory}"


def _change(kind: Kind, now: int | None, amount: int | None) -> str:
    before = "not set" if now is None else human(kind, now)
    return f"{before} → {'no value' if amount is None else human(kind, amount)}"
