"""`cotenant scan -o html`: results as one self-contained HTML file, for a mail or a wiki. Pure.

No scripts, links or fonts from elsewhere (its content security policy forbids them); every text from a cluster is
escaped. Cells carry exact amounts as `data-value`, so that programs can read the page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from cotenant.base import measures
from cotenant.base.commands.cells import human
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.reasons import SENTENCES, Reason
from cotenant.base.resource import GIB, MILLICORES_PER_CORE, Resource
from cotenant.base.severity import Severity
from cotenant.base.table import Kind
from cotenant.base.text import counted, percent, share
from cotenant.base.usage.quality import DEFECT_SENTENCES, QualityRecord
from cotenant.cli.report.document import STYLE, frame
from cotenant.cli.report.scan_drawings import band, bar, heat, parts, sparkline, text
from cotenant.recommender.model.finding import FINDING_SENTENCES, FindingKind
from cotenant.recommender.model.recommendation import Recommendation, Restart, absent_words
from cotenant.recommender.model.savings import When, summed_savings
from cotenant.recommender.model.savings_text import FREES, NOTHING, RAISES, net_text, phrase_text, saving_phrases

if TYPE_CHECKING:
    from cotenant.base.table import Table
    from cotenant.recommender.model.views import Overview

MOST_ROWS: Final = 500
MOST_FINDINGS: Final = 200
ORDER: Final = (Severity.CRITICAL, Severity.WARNING, Severity.OK, Severity.GOOD, Severity.UNKNOWN)
RESTARTS: Final = {
    Restart.NONE: "no restart",
    Restart.IN_PLACE: "can be resized in place",
    Restart.ROLLOUT: "starts new pods",
}
HEADLINES: Final = (
    ("CPU utilisation", "cpu_utilisation"),
    ("CPU requests commitment", "cpu_requests_commitment"),
    ("CPU limits commitment", "cpu_limits_commitment"),
    ("Memory utilisation", "memory_utilisation"),
    ("Memory requests commitment", "memory_requests_commitment"),
    ("Memory limits commitment", "memory_limits_commitment"),
)

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReportContents:
    """The contents of the report: the chosen rows of the RECOMMENDATIONS table, and the data that belong to them."""

    overview: Overview | None
    rows: Table
    recommendations: Mapping[ContainerRef, Recommendation]
    workloads: Table | None
    findings: Table | None
    quality: QualityRecord | None
    currency: str = "USD"


def page(contents: ReportContents) -> str:
    """Return the report as one HTML file with inline styles; its Content-Security-Policy forbids everything else."""
    name = contents.overview.cluster if contents.overview else "no overview"
    # Heading and what the report is about, as HTML; a heading alone without an overview of the cluster.
    overview = contents.overview
    if overview is None:
        head = "<h1>Recommendations</h1>"
    else:
        demo = ' <span class="pill">synthetic demo</span>' if overview.demo else ""
        head = (
            f"<header><h1>Cluster {text(overview.cluster)}{demo}</h1>"
            f'<p class="lead"><b>{overview.workloads}</b> workloads, <b>{overview.containers}</b> containers, '
            f"<b>{overview.pods}</b> pods on <b>{overview.nodes}</b> nodes. {overview.window_days:.1f} days of history "
            f"until {_time(overview.time_seconds)} UTC, from {text(overview.source)}.</p></header>"
        )
    sections = (head, _summary(contents), _findings(contents.findings), _table(contents), _quality(contents))
    footer = (
        "Made by <code>cotenant scan -o html</code>. Times are UTC. Each value has an explanation: "
        "<code>cotenant explain NAMESPACE/KIND/NAME</code>."
    )
    return frame(name, "\n".join(sections), footer, STYLE)


def _summary(contents: ReportContents) -> str:
    overview = contents.overview
    rows = list(contents.rows.rows())
    counts = Counter(row["severity"] for row in rows)
    phrase = ", ".join(f"{counts[s]} {s}" for s in ORDER if counts.get(s))
    drawn = parts([(s.value, counts.get(s, 0)) for s in ORDER], f"{len(rows)} containers: {phrase or 'none'}")
    severities = f"{drawn}{text(phrase or 'no containers')}"
    saving_tiles = [
        _tile("Containers to check", str(counts["critical"] + counts["warning"]), severities),
        *(_saving_tile(contents, when) for when in When),
    ]
    if contents.findings is not None:
        severe = measures.matching_count(s in ("critical", "warning") for s in contents.findings.columns["severity"])
        saving_tiles.append(_tile("Findings", str(len(contents.findings)), f"{severe} warning or critical"))
    tiles = "".join(saving_tiles)
    if overview is None:
        return f'<section aria-label="Summary"><div class="tiles">{tiles}</div></section>'
    ratios = ""
    for title, name in HEADLINES:
        ratio = getattr(overview.headline, name)
        shown, kind = percent(ratio) if isfinite(ratio) else "unknown", "critical" if ratio > 1 else "accent"
        ratios += (
            f'<div class="tile"><div class="name">{title}</div><div class="figure">{shown}</div>'
            f"{bar(ratio, kind, f'{title}: {shown} of allocatable')}</div>"
        )
    cpu = band(overview.cpu, MILLICORES_PER_CORE, "CPU usage, requests and forecast of the cluster in cores")
    memory = band(overview.memory, GIB, "Memory usage, requests and forecast of the cluster in GiB")
    return (
        f'<section aria-label="Summary"><div class="tiles">{tiles}</div><div class="tiles">{ratios}</div>'
        f'<div class="panel wide"><h3>CPU, cores: last 7 days and the next 24 hours</h3>{cpu}{_keys()}</div>'
        f'<div class="panel wide"><h3>Memory, GiB</h3>{memory}{_keys()}</div>'
        f'<div class="panels"><div class="panel"><h3>CPU usage by weekday and hour (UTC)</h3>'
        f"{heat(overview.heat, 'Mean CPU usage in % of allocatable, by weekday and hour')}</div>"
        f'<div class="panel"><h3>Requested but not used, by namespace</h3>{_waste(overview)}</div></div></section>'
    )


def _saving_tile(contents: ReportContents, when: When) -> str:
    """Return the HTML tile of what the shown proposals free and raise, one line per phrase, and the net amount."""
    savings = summed_savings(contents.rows.columns, when)
    lines = "<br>".join(text(phrase_text(phrase, contents.currency)) for phrase in saving_phrases(savings)) or text(
        NOTHING
    )
    return (
        f'<div class="tile wide-tile" data-when="{when.name.lower()}"><div class="name">{text(when.capitalize())}</div>'
        f'<div class="saving">{lines}</div><div class="note">{text(net_text(savings, contents.currency))}; '
        "over all pods</div></div>"
    )


def _tile(name: str, figure: str, note: str) -> str:
    return (
        f'<div class="tile"><div class="name">{name}</div><div class="figure">{text(figure)}</div>'
        f'<div class="note">{note}</div></div>'
    )


def _keys() -> str:
    keys = (("usage", "usage"), ("request", "requests"), ("room", "allocatable"), ("area", "forecast, 10 to 90 %"))
    return '<div class="keys">' + "".join(f'<span><i class="k-{k}"></i>{w}</span>' for k, w in keys) + "</div>"


def _waste(overview: Overview) -> str:
    shown = overview.waste[:10]
    if not shown:
        return '<p class="dim">No request is larger than the usage.</p>'
    top = max(w.cpu_millicores for w in shown) or 1
    lines = (
        f"<span>{text(w.namespace)}</span>"
        f"{bar(w.cpu_millicores / top, 'accent', f'{w.namespace}: {w.cpu_millicores} millicores')}"
        f'<span class="num">{w.cpu_millicores / MILLICORES_PER_CORE:.1f} cores, '
        f"{text(human(Kind.BYTES, w.memory_bytes))}</span>"
        for w in shown
    )
    return f'<div class="bars">{"".join(lines)}</div>'


def _findings(table: Table | None) -> str:
    if table is None:
        return ""
    rows = list(table.rows())
    if not rows:
        return "<section><h2>Findings</h2><p>There are no findings.</p></section>"
    body = ""
    for row in rows[:MOST_FINDINGS]:
        kind = row["finding"]
        sentence = FINDING_SENTENCES[FindingKind(kind)] if kind in set(FindingKind) else ""
        container = f'<br><span class="dim">container</span> {text(row["container"])}' if row["container"] else ""
        body += (
            f'<tr data-finding="{text(kind)}"><td>{_pill(row["severity"])}</td>'
            f'<td class="who">{_name(row)}{container}</td>'
            f'<td><b>{text(kind.replace("-", " ").capitalize())}</b><br><span class="dim">{text(sentence)}</span></td>'
            f"<td>{text(row['evidence'])}</td></tr>"
        )
    return (
        "<section><h2>Findings</h2>"
        + _frame("Findings", _caption(len(rows), MOST_FINDINGS, "cotenant get findings -o csv"))
        + '<thead><tr><th scope="col">Severity</th><th scope="col">Where</th><th scope="col">What</th>'
        f'<th scope="col">Evidence</th></tr></thead><tbody>{body}</tbody></table></div></section>'
    )


def _table(contents: ReportContents) -> str:
    rows = sorted(contents.rows.rows(), key=_weight)
    if not rows:
        return "<section><h2>Recommendations</h2><p>No container was selected.</p></section>"
    workloads = contents.workloads
    if workloads is None:
        lines = {}
    else:
        lines = {WorkloadRef(r["namespace"], r["kind"], r["workload"]): r["sparkline"] for r in workloads.rows()}
    body = "".join(_row(row, contents, lines) for row in rows[:MOST_ROWS])
    titles = "".join(
        f'<th scope="col"{" class=num" if numeric else ""}>{title}</th>'
        for title, numeric in (
            ("Severity", False), ("Workload", False), ("CPU of a pod", True), ("Memory of a pod", True),
            ("Over all pods", True), ("Back-test of the proposal", False),
        )
    )  # fmt: skip
    return (
        "<section><h2>Recommendations</h2>"
        + _frame("Recommendations", _caption(len(rows), MOST_ROWS, "cotenant scan --offline -o csv"))
        + f"<thead><tr>{titles}</tr></thead>{body}</table></div></section>"
    )


def _weight(row: Row) -> tuple[int, float]:
    """Return the sort key: the most severe first, then the largest change; a core weighs as much as 8 GiB."""
    moved = abs(row["cpu_delta_total"] or 0) / MILLICORES_PER_CORE + abs(row["memory_delta_total"] or 0) / (8 * GIB)
    return -Severity(row["severity"]).rank, -moved


def _row(row: Row, contents: ReportContents, lines: Mapping[WorkloadRef, Sequence[float | None]]) -> str:
    workload = WorkloadRef(row["namespace"], row["kind"], row["workload"])
    recommendation = contents.recommendations.get(ContainerRef(workload, row["container"]))
    usage = sparkline(lines[workload], f"CPU usage of {workload}, last 7 days") if workload in lines else ""
    container = text(ContainerRef(workload, row["container"]))
    return (
        f'<tbody data-container="{container}"><tr><td>{_pill(row["severity"])}</td>'
        f'<td class="who">{_name(row)}<br><span class="dim">{text(row["container"])}, '
        f"{counted(row['replicas'], 'pod')}</span>{usage}</td>"
        f"{_change(row, 'cpu', Kind.MILLICORES)}{_change(row, 'memory', Kind.BYTES)}{_effect(row, contents.currency)}"
        f"<td>{_backtest(recommendation)}</td></tr>"
        f'<tr class="more"><td></td><td colspan="5">{_why(row, recommendation)}</td></tr></tbody>'
    )


def _change(row: Row, resource: str, kind: Kind) -> str:
    """Return a cell with present and proposed request and limit, and the highest usage seen."""
    fields = ""
    for field, action in (("request", row[f"{resource}_action"]), ("limit", row[f"{resource}_limit_action"])):
        name = f"{resource}_{field}"
        now, amount = row[f"{name}_now"], row[name]
        before = absent_words(row[f"{resource}_reason"]) if now is None else human(kind, now)
        after = human(kind, amount) if amount is not None else "unset" if action == "unset" else "no statement"
        value = "" if amount is None else amount
        exact = f'data-field="{name}" data-now="{"" if now is None else now}" data-value="{value}"'
        if not action:
            shown = f'<span class="dim">{field} {text(before)}</span>'
        elif amount == now:
            shown = f'<span {exact}><span class="dim">{field}</span> {text(before)}</span>'
        else:
            shown = f'<span {exact}><span class="dim">{field} {text(before)} →</span> <b>{text(after)}</b></span>'
        fields += f'<div class="change">{shown}</div>'
    highest = row[f"{resource}_observed_max"]
    highest_seen = f'<div class="dim">highest seen {text(human(kind, highest))}</div>' if highest is not None else ""
    return f'<td class="num">{fields}{highest_seen}</td>'


def _effect(row: Row, currency: str) -> str:
    amounts = ((Kind.MILLICORES, row["cpu_delta_total"]), (Kind.BYTES, row["memory_delta_total"]))
    lines = [
        f'<div class="{"up" if amount > 0 else "down"}">{RAISES if amount > 0 else FREES} '
        f"{text(human(kind, abs(amount)))}</div>"
        for kind, amount in amounts
        if amount
    ]
    for word, name in ((FREES, "freed_month"), (RAISES, "raised_month")):
        if amount := row[name]:
            money = f"{amount:,.0f} {currency}" if abs(amount) >= 100 else f"{amount:,.2f} {currency}"
            lines.append(f'<div class="dim">{word} {text(money)} a month</div>')
    return f'<td class="num">{"".join(lines)}</td>'


def _backtest(recommendation: Recommendation | None) -> str:
    """Return as HTML what the proposal would have done in the back-test; "not tried" if it was not tested."""
    tried = recommendation.backtest if recommendation else None
    if recommendation is None or tried is None:
        return '<span class="dim">not tried</span>'
    lines = [
        f"{tried.oom_kills} OOM kills ({tried.now_oom_kills} with the present values)",
        f"{tried.throttled_minutes:.0f} min throttled ({tried.now_throttled_minutes:.0f} with the present values)",
    ]
    if tried.evictions:
        lines.append(f"{counted(tried.evictions, 'pod-day')} with memory above the new request but not the old one")
    if recommendation.trust is not None:
        lines.append(f"confidence {recommendation.trust.words}")
    lines.append(RESTARTS[recommendation.restart])
    return "<br>".join(text(w) for w in lines)


def _why(row: Row, recommendation: Recommendation | None) -> str:
    subjects = {row["cpu_reason"]: "CPU", row["memory_reason"]: "Memory"}
    if row["cpu_reason"] == row["memory_reason"]:
        subjects = {row["cpu_reason"]: "CPU and memory"}
    sentences = [
        f"<b>{subject}:</b> {text(SENTENCES[Reason(reason)] if reason in set(Reason) else reason)}"
        for reason, subject in subjects.items()
        if reason
    ]
    why = f'<div class="dim">{" ".join(sentences)}</div>'
    if recommendation is None:
        return why
    # Formula, rules that moved the amount and notes, folded.
    pairs = [
        (f"{value.resource} {value.field}", line)
        for value in recommendation.values
        for kind in (Kind.MILLICORES if value.resource is Resource.CPU else Kind.BYTES,)
        for line in (
            value.formula,
            *(f"{c.rule}: {human(kind, c.before)} → {human(kind, c.after)}" for c in value.clamps),
            *(f"by annotation: {o}" for o in value.overrides),
        )
        if line
    ]
    pairs += [("note", note) for note in recommendation.notes]
    if recommendation.trust and recommendation.trust.because:
        pairs.append(("confidence", " ".join(recommendation.trust.because)))
    body = "".join(f"<dt>{text(name)}</dt><dd>{text(line)}</dd>" for name, line in pairs)
    return f"{why}<details><summary>How it was computed</summary><dl>{body}</dl></details>" if pairs else why


def _quality(contents: ReportContents) -> str:
    quality, overview = contents.quality, contents.overview
    lines: list[tuple[str, str]] = []
    if quality is not None:
        counts = f"{quality.queries} queries, {quality.samples} samples"
        lines.append(("source", quality.source))
        lines.append(("pulled", f"{_time(quality.time_seconds)} UTC, {counts}"))
        lines.append(("scrape interval", f"{quality.scrape_interval_seconds:g} s"))
        for span in quality.scrapes if quality.mixed else ():
            between = f"{_time(span.start_seconds)} to {_time(span.end_seconds)} UTC"
            lines.append((f"sample every {span.interval_seconds} s", f"{span.series} series, {between}"))
        lines += [(f"{count} x {name}", DEFECT_SENTENCES[name]) for name, count in quality.defects.items() if count]
    if overview is not None:
        if isfinite(overview.coverage):
            lines.append(("samples present", f"{share(overview.coverage)} of the samples expected while pods ran"))
        lines.append(("strategy", overview.strategy))
        lines.append(("settings", overview.settings_digest))
        lines.append(("computed", f"{_time(overview.computed_seconds)} UTC"))
    if not lines:
        return ""
    pairs = "".join(f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in lines)
    notes = overview.notes if overview else []
    listed = f"<ul>{''.join(f'<li>{text(note)}</li>' for note in notes)}</ul>" if notes else ""
    return f'<section><h2>Data quality</h2><div class="panel"><dl>{pairs}</dl>{listed}</div></section>'


def _frame(label: str, caption: str) -> str:
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table><caption>{caption}</caption>'


def _caption(total: int, most: int, command: str) -> str:
    if total <= most:
        return f"{total} rows, the most severe first."
    return f"The {most} most severe of {total} rows; <code>{command}</code> lists all rows."


def _name(row: Row) -> str:
    place = f"{row['namespace']} / {row['kind']}" if row["namespace"] else row["kind"]
    return f'<span class="dim">{text(place)}</span><br><b>{text(row["workload"])}</b>'


def _pill(severity: str) -> str:
    kind = severity if severity in set(Severity) else "unknown"
    return f'<span class="pill {kind}">{text(severity)}</span>'


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
