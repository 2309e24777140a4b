"""Check that a query that people wrote for a workload reads only its own namespace, and not too much. Pure.

Whoever may write a workload, or a policy or SLO object of its namespace, may write its query, which runs with the
platform's credentials. So every selector must match the namespace by equality: `foo{namespace="$namespace"}`, or by one
of the labels that proxies and meshes use for it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from cotenant.base.errors import UsageError
from cotenant.changes.objectives.query_labels import parse

NAMESPACE_LABELS: Final = (
    "namespace",
    "exported_namespace",
    "kubernetes_namespace",
    "k8s_namespace_name",
    "destination_workload_namespace",
    "destination_service_namespace",
)
"""Labels with a series' namespace: of the target, of the metric behind it, of OpenTelemetry, of Istio."""
MOST_CHARACTERS: Final = 2_000
LONGEST_RANGE: Final = timedelta(days=1)
SHORTEST_STEP: Final = timedelta(minutes=1)
FARTHEST: Final = timedelta(days=8)
"""Longest offset or range: the same hour of last week, with a day to spare."""
MOST_EVALUATIONS: Final = 1_440
"""Most evaluations in subqueries for one answer: a day in steps of a minute. Nested ones multiply."""
FIX: Final = 'Write namespace="$namespace" into every selector.'


def check_own(query: str, namespace: str, what: str) -> None:
    """Raise UsageError if the query is invalid, reads series outside `namespace`, or exceeds a limit (length, range).

    `what` names the query in the message, such as "annotation cotenant.dev/latency-query".
    """
    import promql_parser

    if len(query) > MOST_CHARACTERS:
        raise UsageError(
            f"{what} has {len(query)} characters, at most {MOST_CHARACTERS} are read",
            fix="Record the query by a recording rule of Prometheus, and query its result.",
        )
    try:
        expression = parse(query)
    except UsageError as error:
        message = f"{what}{error.message.removeprefix('the query')}"
        raise UsageError(message, fix="Try the query in Prometheus first.") from error
    problems: list[tuple[str, str]] = []
    promql_parser.walk(expression, lambda node: problems.extend(_problems(node, namespace)))
    if problems:
        message, fix = problems[0]
        raise UsageError(f"{what} {message}", fix=fix)


def _problems(node: Any, namespace: str) -> list[tuple[str, str]]:
    """Return what one node of the expression does that is not allowed, with its fix."""
    import promql_parser

    if isinstance(node, promql_parser.MatrixSelector):
        return _too_long(node.range)
    if isinstance(node, promql_parser.SubqueryExpr):
        return _of_subquery(node)
    if isinstance(node, promql_parser.Call) and node.func.name == "info":
        return [(f"reads more than namespace {namespace}: labels of target_info by info()", FIX)]
    if isinstance(node, promql_parser.VectorSelector):
        equal = [(m.name, m.value) for m in node.matchers.matchers if m.op == promql_parser.MatchOp.Equal]
        own = any(name in NAMESPACE_LABELS and value == namespace for name, value in equal)
        # Alternatives after `or` in a selector have matchers of their own, which need not name the namespace.
        if not own or node.matchers.or_matchers:
            return [(f"reads more than namespace {namespace}: {node}", FIX)]
        is_named = node.name or any(name == "__name__" and value for name, value in equal)
        return _too_far(node) if is_named else [(f"reads more than one metric: {node}", "Name the metric.")]
    return []


def _of_subquery(node: Any) -> list[tuple[str, str]]:
    step = node.step
    if step is not None and step < SHORTEST_STEP:
        return [(f"evaluates every {step.total_seconds():g} s", "Use a step of a minute or more.")]
    times, inner = _evaluations(node), "Record the inner query by a recording rule of Prometheus."
    often = [(f"evaluates {times:,.0f} times in nested subqueries", inner)] if times > MOST_EVALUATIONS else []
    return _too_long(node.range) + _too_far(node) + often


def _too_far(node: Any) -> list[tuple[str, str]]:
    """Return the problems with `offset` and `@` of a selector or a subquery."""
    if str(node.at or "").strip().removeprefix("@").strip() not in ("", "start()", "end()"):
        return [("reads samples of a fixed time by @", "Leave @ out: the query is run before and after the change.")]
    if node.offset is not None and abs(node.offset) > FARTHEST:
        return [(f"has an offset of {abs(node.offset).total_seconds() / 86_400:.3g} days", "Use a week at most.")]
    return []


def _evaluations(subquery: Any) -> float:
    """Return how often the innermost expression is evaluated; without a step, the shortest step is assumed."""
    import promql_parser

    inner: list[float] = [1.0]

    def count(node: Any) -> None:
        if isinstance(node, promql_parser.SubqueryExpr):
            inner.append(_evaluations(node))

    promql_parser.walk(subquery.expr, count)
    return float(max(inner) * (subquery.range / (subquery.step or SHORTEST_STEP)))


def _too_long(span: timedelta | None) -> list[tuple[str, str]]:
    if span is None or span <= LONGEST_RANGE:
        return []
    return [(f"looks {span.total_seconds() / 86_400:.3g} days back", "Use $window, which is at most a day.")]
