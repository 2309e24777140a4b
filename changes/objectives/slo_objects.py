"""Service level objectives written as objects of Sloth, Pyrra or OpenSLO, read as one error ratio each. Pure.

Each becomes the share of bad events over $window with the objective's share, or the reason why it cannot be used. No
content raises an error: an object may hold any JSON that its CRD lets through.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from string import Template
from typing import Any, Final

from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.moments import duration_seconds
from cotenant.changes.objectives.query_labels import Selector, is_selector, parse, selectors_of, selectors_of_now, tidy

Json = Mapping[str, Any]
SLOTH: Final = "Sloth"
PYRRA: Final = "Pyrra"
OPENSLO: Final = "OpenSLO"
WINDOW: Final = "$window"
_SAMPLE_SECONDS: Final = "3600s"
_TEMPLATE: Final = re.compile(r"\{\{\s*\.window\s*\}\}")
_PROMETHEUS: Final = frozenset({"prometheus", "prometheusquery", "promql", "thanos", "mimir", "cortex"})
"""Types of an OpenSLO metric source whose query is PromQL, in lower case."""
_COUNTERS: Final = ("_total", "_count", "_bucket", "_sum")
"""Suffixes of counters' names."""


@dataclass(frozen=True, slots=True)
class SloObject:
    """One objective of an SLO object; `reason` says why it cannot be used, and the other fields may then be empty.

    `query` is the share of bad events over $window, 0 to 1. `exists` is a query with an answer only if the labels that
    identify bad events exist, "" if they are not identified by labels. `promised` is the least share of good events and
    `window` the objective's period, "" if the object does not say.
    """

    tool: str
    namespace: str
    object_name: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    query: str = ""
    exists: str = ""
    promised: float | None = None
    window: str = ""
    reason: str = ""

    @property
    def title(self) -> str:
        """The tool, the object and the objective: "Sloth shop/web: availability"."""
        name = f": {self.name}" if self.name and self.name != self.object_name else ""
        return f"{self.tool} {self.namespace}/{self.object_name}{name}"

    @property
    def most_bad_share(self) -> float | None:
        """The highest share of bad events that meets the objective; None if the object promises no share."""
        return None if self.promised is None else round(1 - self.promised, 12)


@dataclass(frozen=True, slots=True)
class _Ratio:
    """The query of the share of bad events, and a query whether bad events can be identified at all."""

    query: str
    exists: str = ""


def sloth_objectives(body: Any) -> list[SloObject]:
    """Return the objectives of a PrometheusServiceLevel (sloth.slok.dev/v1); their period is in Sloth's settings."""
    spec = _map(_map(body).get("spec"))
    objectives = []
    for number, slo in enumerate(map(_map, _list(spec.get("slos"))), 1):
        sli = _map(slo.get("sli"))
        objective = replace(_head(SLOTH, body), name=_text(slo.get("name")) or f"objective {number}")
        objectives.append(_with_ratio(objective, partial(_sloth_ratio, sli), _percent(slo.get("objective"))))
    return objectives or [replace(_head(SLOTH, body), reason="the object has no objectives")]


def _sloth_ratio(sli: Json) -> _Ratio:
    events, raw = _map(sli.get("events")), _map(sli.get("raw"))
    if _text(raw.get("errorRatioQuery")):
        return _Ratio(_over_window(raw["errorRatioQuery"], is_counter=False))
    if events:
        return _quotient(_require_text(events, "errorQuery"), _require_text(events, "totalQuery"), is_counter=True)
    if sli.get("plugin"):
        raise UsageError("the query is made by a plug-in of Sloth and is not in the object")
    raise UsageError("the objective has no indicator")


def pyrra_objectives(body: Any) -> list[SloObject]:
    """Return the one objective of a ServiceLevelObjective (pyrra.dev/v1alpha1); its field `grouping` is ignored."""
    spec = _map(_map(body).get("spec"))
    objective = replace(_head(PYRRA, body), window=_text(spec.get("window")))
    return [_with_ratio(objective, partial(_pyrra_ratio, _map(spec.get("indicator"))), _percent(spec.get("target")))]


def _pyrra_ratio(indicator: Json) -> _Ratio:
    ratio, latency = _map(indicator.get("ratio")), _map(indicator.get("latency"))
    native, gauge = _map(indicator.get("latencyNative")), _map(indicator.get("bool_gauge"))
    if ratio:
        return _quotient(_metric(ratio, "errors"), _metric(ratio, "total"), is_counter=True)
    if latency:
        success, total = (_sum(_rate(_metric(latency, key))) for key in ("success", "total"))
        return _Ratio(f"1 - {success} / {total}")
    if native:
        text = native.get("latency")
        seconds = duration_seconds(text)
        if not seconds:
            raise UsageError("the indicator's latency is not a duration")
        return _Ratio(f"1 - histogram_fraction(0, {seconds:g}, {_sum(_rate(_metric(native, 'total')))})")
    if gauge:
        metric = _require_selector(_require_text(gauge, "metric"))
        ones, all_samples = (f"sum({over}_over_time({metric}[{WINDOW}]))" for over in ("sum", "count"))
        return _Ratio(f"1 - {ones} / {all_samples}")
    raise UsageError("the objective has no indicator")


def openslo_objectives(body: Any, indicators: Mapping[str, Any], sources: Mapping[str, Any]) -> list[SloObject]:
    """Return the objectives of an SLO (openslo.com/v1).

    `indicators` and `sources` are the SLI and DataSource objects of its namespace, by name.
    """
    spec = _map(_map(body).get("spec"))
    period = _map(next(iter(_list(spec.get("timeWindow"))), None))
    head = replace(_head(OPENSLO, body), window=_text(period.get("duration")))
    objectives = []
    for number, promise in enumerate(map(_map, _list(spec.get("objectives"))), 1):
        owner = promise if promise.get("indicator") or promise.get("indicatorRef") else spec
        objective = replace(head, name=_text(promise.get("displayName")) or f"objective {number}")
        method = _text(spec.get("budgetingMethod"))
        if "timeslices" in method.lower():
            openslo_share = _share(promise.get("timeSliceTarget"))
        elif promise.get("target") not in (None, ""):
            openslo_share = _share(promise.get("target"))
        else:
            openslo_share = _percent(promise.get("targetPercent"))
        objectives.append(_with_ratio(objective, partial(_referred_ratio, owner, indicators, sources), openslo_share))
    return objectives or [replace(head, reason="the object has no objectives")]


def _referred_ratio(owner: Json, indicators: Mapping[str, Any], sources: Mapping[str, Any]) -> _Ratio:
    if _map(owner.get("indicator")):
        indicator = _map(_map(owner["indicator"]).get("spec"))
    else:
        name = _text(owner.get("indicatorRef"))
        if not name:
            raise UsageError("the objective has no indicator")
        if name not in indicators:
            raise UsageError(f"the SLI {name} is not in the namespace, or the right to read it is missing")
        indicator = _map(_map(indicators[name]).get("spec"))
    ratio = _map(indicator.get("ratioMetric"))
    if not ratio:
        has_threshold = bool(indicator.get("thresholdMetric"))
        raise UsageError("thresholdMetric's unit is not known" if has_threshold else "the objective has no indicator")
    if ratio.get("raw"):
        raw = _over_window(_source_query(ratio, "raw", sources), is_counter=False)
        kind = _text(ratio.get("rawType")).lower()
        if kind not in ("success", "failure"):
            raise UsageError("the object's field rawType does not say whether its ratio counts successes or failures")
        return _Ratio(raw if kind == "failure" else f"1 - ({raw})")
    is_counter = ratio.get("counter") is True
    total = _source_query(ratio, "total", sources)
    if ratio.get("bad"):
        return _quotient(_source_query(ratio, "bad", sources), total, is_counter)
    good = _sum(_over_window(_source_query(ratio, "good", sources), is_counter))
    return _Ratio(f"1 - {good} / {_sum(_over_window(total, is_counter))}")


def _source_query(ratio: Json, key: str, sources: Mapping[str, Any]) -> str:
    source = _map(_map(ratio.get(key)).get("metricSource"))
    referred = _map(_map(sources.get(_text(source.get("metricSourceRef")))).get("spec"))
    kind = _text(source.get("type")) or _text(referred.get("type"))
    if not kind:
        raise UsageError("the type of the metric source is not given")
    if kind.lower() not in _PROMETHEUS:
        raise UsageError(f"the metric source is {kind[:40]}, not Prometheus")
    spec = source.get("spec")
    query = _text(spec) or _text(_map(spec).get("query"))
    if not query:
        raise UsageError(f"the query of {key} events is missing")
    return query


def _with_ratio(objective: SloObject, ratio: Callable[[], _Ratio], promised: float | None) -> SloObject:
    """Return the objective with its ratio, or with the reason why it has none."""
    if promised is None or not 0 < promised <= 1:
        return replace(objective, reason="the promised share must be above 0 and at most 1 (100 %)")
    try:
        ratio_query = ratio()
        for text in filter(None, (ratio_query.query, ratio_query.exists)):
            parse(_plain(text))
        if not selectors_of(_plain(ratio_query.query)):
            raise UsageError("the query reads no metric")
    except UsageError as error:
        return replace(objective, reason=error.message)
    return replace(objective, query=ratio_query.query, exists=ratio_query.exists, promised=promised)


def _quotient(bad: str, total: str, is_counter: bool) -> _Ratio:
    """Return bad events / total events; a missing bad series means 0 only if both select the same metric."""
    bad_text, total_text = (_over_window(query, is_counter) for query in (bad, total))
    bads, totals = (selectors_of(_plain(text)) for text in (bad_text, total_text))
    parts = [_labels_that_exist(selector, totals) for selector in bads]
    if None in parts or len({s.metric for s in bads}) != 1:
        return _Ratio(f"{_sum(bad_text)} / {_sum(total_text)}")
    exists = " * ".join(dict.fromkeys(part for part in parts if part))
    return _Ratio(f"({_sum(bad_text)} or vector(0)) / {_sum(total_text)}", exists)


def _labels_that_exist(bad: Selector, totals: Sequence[Selector]) -> str | None:
    """Return a query that only series with the bad events' labels answer; None if no total has the same metric."""
    same = [total for total in totals if total.metric == bad.metric and set(total.matchers) <= set(bad.matchers)]
    if not bad.metric or not same:
        return None
    total = max(same, key=lambda selector: len(selector.matchers))
    extra = [label for label, *_ in bad.matchers if label not in {name for name, *_ in total.matchers}]
    if not extra:
        return ""
    matchers = (*total.matchers, *((label, "!=", "") for label in dict.fromkeys(extra)))
    return f"group(last_over_time({Selector(total.metric, matchers).text.replace('$', '$$')}[1d]))"


def _over_window(query: Any, is_counter: bool) -> str:
    """Return a part of a ratio over $window: as written, or else its rate or its mean."""
    text = tidy(_TEMPLATE.sub("\0", _text(query)).replace("$", "$$"))
    if "{{" in text:
        raise UsageError("the query has a template other than {{.window}}")
    if "\0" in text:
        return text.replace("\0", WINDOW)
    newest = selectors_of_now(_plain(text))
    counts = is_counter or any(selector.metric.endswith(_COUNTERS) for selector in newest)
    if is_selector(_plain(text)):
        return f"rate({text}[{WINDOW}])" if counts else f"avg_over_time({text}[{WINDOW}])"
    if newest and counts:
        raise UsageError("the query reads a counter without rate()")
    return f"avg_over_time(({text})[{WINDOW}:1m])"


def _plain(text: str) -> str:
    """Return the text as PromQL that can be parsed, with a fixed duration for $window."""
    return Template(text).safe_substitute(window=_SAMPLE_SECONDS)


def _rate(metric: str) -> str:
    return f"rate({metric}[{WINDOW}])"


def _sum(expression: str) -> str:
    return f"sum({expression})"


def _metric(indicator: Json, key: str) -> str:
    return _require_selector(_require_text(_map(indicator.get(key)), "metric"))


def _require_selector(metric: str) -> str:
    """Return Pyrra's selector ready for a template; raise UsageError for any other expression."""
    text = tidy(metric.replace("$", "$$"))
    if not is_selector(_plain(text)):
        raise UsageError("the indicator's metric is not a selector")
    return text


def _require_text(parent: Json, key: str) -> str:
    text = _text(parent.get(key))
    if not text:
        raise UsageError(f"the indicator's {key} is missing")
    return text


def _percent(value: Any) -> float | None:
    share = _share(value)
    return None if share is None else round(share / 100, 12)


def _share(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _head(tool: str, body: Any) -> SloObject:
    meta = _map(_map(body).get("metadata"))
    labels = {str(key): value for key, value in _map(meta.get("labels")).items() if isinstance(value, str)}
    return SloObject(tool, _text(meta.get("namespace")), _text(meta.get("name")), "", labels)


def _map(value: Any) -> Json:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> Iterator[Any]:
    return iter(value if isinstance(value, list | tuple) else ())


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""
