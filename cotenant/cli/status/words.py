"""The status of a cluster as lines of text: a heading and a sentence each, worded as on the page Home. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cotenant.base.amount_text import amount, money
from cotenant.base.resource import Resource
from cotenant.base.severity import Severity
from cotenant.base.text import counted, duration, moment, percent, visible
from cotenant.base.usage.peak import PEAK_NAME
from cotenant.cli.status.model import ClusterAmounts, ClusterStatus, resource_amounts
from cotenant.recommender.model.savings_text import saving_text

Line = tuple[str, str]
RAISES: Final = "cotenant get recommendations --filter todo=raise"
UNASSESSED: Final = f"cotenant get recommendations --filter severity={Severity.UNKNOWN.value}"
CRITICAL: Final = "cotenant get findings --filter severity=critical"


def lines(status: ClusterStatus, currency: str) -> Iterator[Line]:
    """Yield (heading, sentence) of each line; the heading is "" if the line continues the one above."""
    things = ((status.nodes, "node"), (status.workloads, "workload"), (status.pods, "pod"))
    yield "Cluster", f"{visible(status.cluster)}: {', '.join(counted(number, noun) for number, noun in things)}"
    yield "Newest sample", f"{moment(status.newest_sample_seconds)}, {duration(status.age_seconds)} ago"
    if status.cluster_unknown:
        yield "Runs", f"not known: {visible(status.cluster_unknown)}"
    elif not status.running:
        yield "Runs", "cotenant is not installed in this cluster; `cotenant install` installs it"
    for index, part in enumerate(status.running):
        short = "" if part.ready >= part.wanted else "  <- not all are ready"
        yield "" if index else "Runs", f"{visible(part.name)} ({part.kind}): {part.ready} of {part.wanted} ready{short}"
    lent = status.lent
    if lent.free_for_batch_now.cpu_millicores is None:
        yield "Lent", f"the capacity that could be lent is not known: {lent.why_unknown or 'No node is known.'}"
    else:
        yield "Lent", f"free for batch now: {_both(lent.free_for_batch_now)}"
        overlap = "it overlaps with free for batch: do not add both"
        yield "", f"free for a day: {_both(lent.free_for_a_day)}; {overlap}"
    yield "", f"batch pods use {_both(lent.batch_use)} ({counted(lent.batch_pods, 'pod')})"
    yield from _at_risk(status)
    if status.waste_containers:
        after = saving_text(status.waste.all_steps, currency)
        yield "Waste", f"{counted(status.waste_containers, 'container')} with requests to cut; after all steps: {after}"
    else:
        yield "Waste", "no known request to cut" if status.at_risk.unassessed else "no request to cut"
    yield from _waiting_lines(status)
    peak = status.peak
    if peak is None:
        yield "Next peak", f"unknown: {visible(status.peak_reason)}"
    else:
        led = f"; {visible(peak.led_by)} adds most" if peak.led_by else ""
        rise = f"{percent(peak.above_mean, signed=True)} against the day's mean{led}"
        height = f"{amount(peak.height_millicores, Resource.CPU)} ({PEAK_NAME})"
        yield "Next peak", f"{moment(peak.start_seconds)}, {height}; {rise}"
    changes, frees = status.saved.changes, status.saved.verified.frees
    amounts = [amount(frees.amount(resource), resource) for resource in Resource if frees.amount(resource)]
    month = [f"{money(frees.monthly, currency)} a month"] if frees.monthly else []
    if amounts:
        yield "Saved so far", f"{', '.join([*amounts, *month])}, freed by {counted(changes, 'verified change')}"
    else:
        nothing = f"nothing freed by {counted(changes, 'verified change')}" if changes else "nothing verified yet"
        yield "Saved so far", nothing


def _both(amounts: ClusterAmounts) -> str:
    return ", ".join(amount(value, resource) for resource, value in resource_amounts(amounts).items())


def _at_risk(status: ClusterStatus) -> Iterator[Line]:
    risk = status.at_risk
    if risk.containers:
        yield "At risk", f"{counted(risk.containers, 'container')} with requests to raise: {RAISES}"
    else:
        yield "At risk", "no container that can be assessed" if risk.unassessed else "no container"
    if risk.above_memory_request:
        who = counted(risk.above_memory_request, "container")
        yield "", f"{who} used more memory than requested, and would be killed first if a node runs out of memory"
    if risk.unassessed:
        yield "", f"{counted(risk.unassessed, 'container')} cannot be assessed; why: {UNASSESSED}"
    if risk.memory_unknown:
        yield "", f"memory use or request of {counted(risk.memory_unknown, 'container')} is not known"
    if risk.critical_findings:
        yield "", f"{counted(risk.critical_findings, 'critical finding')}: {CRITICAL}"


def _waiting_lines(status: ClusterStatus) -> Iterator[Line]:
    waits = status.waiting
    counts = [
        (waits.ready_to_apply, "recommendation", "ready to apply"),
        (waits.second_person, "recommendation", "that a second person has to confirm"),
        (waits.changes_for_second_person, "change", "for a second person: cotenant recs changes"),
        (waits.changes_for_verdict, "change", "for a verdict"),
        (waits.outcome_unknown, "change", "whose outcome is unknown: cotenant recs settle"),
        (waits.plans_for_approval or 0, "plan", "for approval: cotenant get plans"),
    ]
    phrases = [f"{counted(number, noun)} {what}" for number, noun, what in counts if number]
    if waits.plans_for_approval is None:
        why = f": {visible(status.plans_unknown)}" if status.plans_unknown else ""
        phrases = [*(phrases or ["no recommendation and no change"]), f"plans are not known{why}"]
    phrases = [*(phrases or ["nothing"]), *([visible(status.plans_left_out)] if status.plans_left_out else [])]
    for index, text in enumerate(phrases):
        yield "" if index else "Waiting", text
