"""The explanation of a recommendation as lines of text: its values, each with its formula, rules and inputs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cotenant.base.cluster import ContainerRole
from cotenant.base.commands.cells import human
from cotenant.base.commands.output import align_columns
from cotenant.base.reasons import SENTENCES
from cotenant.base.resource import Resource
from cotenant.base.table import Kind, kind_of_input
from cotenant.base.text import counted, visible
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.recommender.model.recommendation import Action, Recommendation, Restart, Value, absent_words
from cotenant.recommender.model.savings import When, savings_of
from cotenant.recommender.model.savings_text import saving_phrases, saving_text
from cotenant.recommender.model.shortage_text import sentences

RESTARTS = {
    Restart.NONE: "no running pod is restarted",
    Restart.IN_PLACE: "running pods can be resized in place; changing only the pod template starts new pods",
    Restart.ROLLOUT: "starts new pods",
}
KINDS = {Resource.CPU: Kind.MILLICORES, Resource.MEMORY: Kind.BYTES}


def describe(recommendation: Recommendation, currency: str) -> Iterator[str]:
    """Yield the explanation of one container's recommendation line by line, without empty sections."""
    yield visible(str(recommendation.container))
    # The basis of a recommendation, its severity, and what it would cost and save.
    profile = f" ({recommendation.profile})" if recommendation.profile else ""
    role = "" if recommendation.role is ContainerRole.MAIN else f", {recommendation.role} container"
    days, digest = recommendation.window_seconds / DAY_SECONDS, recommendation.settings_digest
    yield (
        f"strategy {visible(recommendation.strategy)}{profile}, {days:.1f} days of history, "
        f"{counted(recommendation.replicas, 'replica')}{role}, severity {recommendation.severity}, "
        f"recommender settings {digest}"
    )
    savings = savings_of([recommendation])
    if saving_phrases(savings):
        yield f"{When.ALL_STEPS}, over all pods: {saving_text(savings, visible(currency))}"
    for value in recommendation.values:
        yield ""
        yield from _value(value)
    # The table of the last days as they were and as they would have been as proposed; empty if not tested.
    tried = recommendation.backtest
    if tried is None:
        backtest = []
    else:
        rows = [
            (f"last {tried.days:g} days", "as it was", "as proposed"),
            ("OOM kills", str(tried.now_oom_kills), str(tried.oom_kills)),
            ("minutes throttled", f"{tried.now_throttled_minutes:.0f}", f"{tried.throttled_minutes:.0f}"),
            ("pod-days with memory above the new request, but not the present one", "", str(tried.evictions)),
            ("CPU requests freed, mean over the days", "", human(Kind.MILLICORES, tried.freed_millicores)),
            ("memory requests freed, mean over the days", "", human(Kind.BYTES, tried.freed_bytes)),
        ]
        table = [line.rstrip("\n") for line in align_columns(rows, (False, True, True))]
        backtest = [*table, *(f"{heading}: {sentence}" for heading, sentence in sentences(tried))]
    yield from _part("back-test", backtest)
    trust = recommendation.trust
    yield from _part("confidence", [] if trust is None else [trust.level.value, *trust.because])
    yield from _part("notes", recommendation.notes)
    yield from _part("queries", recommendation.queries)
    yield ""
    # What applying does to the pods and the command that does it, or the reason why there is none.
    from cotenant.changes.decide.patches import file_refusal, kubectl_command, resources

    if not resources(recommendation):
        yield "nothing to apply"
    elif why := file_refusal(recommendation):
        yield visible(f"no patch: {why}")
    else:
        yield f"to apply ({RESTARTS[recommendation.restart]}):"
        yield kubectl_command(recommendation)
    yield ""


def _value(value: Value) -> Iterator[str]:
    kind = KINDS[value.resource]
    now = absent_words(value.reason) if value.now is None else human(kind, value.now)
    proposed = {Action.SET: human(kind, value.amount), Action.UNSET: "unset", Action.WITHHELD: "withheld"}[value.action]
    yield f"{value.resource} {value.field}: {now} -> {proposed}  [{value.reason}] {SENTENCES[value.reason]}"
    if value.formula:
        yield f"  formula: {visible(value.formula)}"
    for clamp in value.clamps:
        yield f"  rule: {visible(clamp.rule)}: {human(kind, clamp.before)} -> {human(kind, clamp.after)}"
    yield from (f"  by annotation: {visible(override)}" for override in value.overrides)
    inputs = []
    for name, input_value in value.inputs.items():
        if isinstance(input_value, str):
            inputs.append((name, visible(input_value)))
        else:
            shown_as = kind_of_input(name, value.resource)
            inputs.append((name, human(shown_as, round(input_value) if shown_as is Kind.MILLICORES else input_value)))
    yield from (f"  {line.rstrip()}" for line in align_columns(inputs))


def _part(title: str, lines: Sequence[str]) -> Iterator[str]:
    """Yield a title and its lines, or nothing if there are no lines."""
    if lines:
        yield ""
        yield f"{title}:"
        yield from (f"  {visible(line)}" for line in lines)
