"""Components that every page is built from: panels, figures with summaries, chips, and the states of a panel. Pure.

A panel is never blank: it shows its content, a skeleton, a reason for emptiness, or a short error. Text from the
cluster is inserted as text nodes only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs, unquote, urlencode

import dash_mantine_components as dmc
import structlog
from dash import dcc, html
from dash.development.base_component import Component

from cotenant.base.errors import ClusterForbidden, CotenantError, SourceForbidden, StoreForbidden
from cotenant.base.kubernetes.moments import moment as to_wire
from cotenant.base.resource import Resource
from cotenant.base.severity import Severity
from cotenant.base.text import visible
from cotenant.dashboard.access import faults
from cotenant.dashboard.figures import base, display
from cotenant.dashboard.figures.base import Chart

Children: TypeAlias = Any
"""What Dash takes as children: text, a component, or a list of them."""

FORBIDDEN: Final = (SourceForbidden, ClusterForbidden, StoreForbidden)
"""A right is missing: neither empty nor broken."""
CLOSE: Final = {"aria-label": "Close"}
"""Properties of the button that closes a dialog or a drawer."""
RIGHTS_COMMAND: Final = "cotenant doctor"

_log = structlog.get_logger(__name__)


def panel(title: str, *children: Any, aside: Any = None, note: str = "", id_: str = "") -> Component:
    """Return a framed section with a heading, `aside` to the right of the heading, and a note below it."""
    head = html.Div([html.H2(title), aside] if aside is not None else [html.H2(title)], className="panel-head")
    lead = [html.P(note, className="panel-note")] if note else []
    return html.Section([head, *lead, *children], className="panel", **({"id": id_} if id_ else {}))


def drawer(id_: str, title: str, content: Component, *, width: int) -> Component:
    """Return a closed drawer on the right; `width` is in pixels."""
    place: dict[str, Any] = {"position": "right", "transitionProps": {"duration": 120}, "closeButtonProps": CLOSE}
    return dmc.Drawer(content, id=id_, opened=False, size=width, title=title, **place)


def dialog(id_: str, title: str, parts: Sequence[Component], size: str) -> Component:
    """Return a closed dialog above every drawer; its parts are in the page from the start, so callbacks reach them."""
    inside, above = html.Div(parts, className="dialog"), {"keepMounted": True, "zIndex": 400}
    return dmc.Modal(inside, id=id_, title=title, opened=False, size=size, closeButtonProps=CLOSE, **above)


def figure(chart: Chart, id_: str, height: int) -> Component:
    """Return a chart with its summary as accessible name and text below; on a phone also with its legend."""
    config = {"displayModeBar": False, "responsive": True, "doubleClick": False}
    style = {"height": f"{height}px"}
    graph = dcc.Graph(id=id_, figure=chart.figure, config=config, style=style, responsive=True)
    picture = html.Div(graph, role="img", **{"aria-label": chart.summary})
    save = html.Button("PNG", className="quiet-link png", title="Save the chart as a picture", **{"data-figure": id_})
    # The chart's numbers as a table, which `assets/tables.js` fills when it is opened.
    region = {"role": "region", "aria-label": "The chart as a table"}
    where = html.Div(className="scroll chart-table", tabIndex=0, **region)
    as_table = html.Details([html.Summary("As a table"), where], className="more as-table", **{"data-figure": id_})
    # The names of its traces: `cotenant.css` shows them on a telephone, where plotly's legend does not fit.
    items = []
    for sign in base.signs(chart.figure):
        form = "mark" if sign.marks else "ground" if sign.ground else "stroke"
        style = {"color": sign.colour, "borderTopStyle": sign.stroke, "backgroundColor": sign.ground}
        form += " hatched" * sign.hatched
        swatch = html.Span(className=f"swatch {form}", style=style, **{"aria-hidden": "true"})
        items.append(html.Li([swatch, sign.name]))
    names = [html.Ul(items, className="chart-names", **{"aria-label": "Names in the chart"})] if items else []
    below = [html.Figcaption(chart.summary), html.Div([as_table, save], className="outs")]
    return html.Figure([picture, *names, *below])


def tall_figure(chart: Chart, id_: str, height: int, most: int) -> Component:
    """Return a chart in a frame that scrolls if the chart is higher than `most` pixels."""
    drawn = figure(chart, id_, height)
    frame = {"className": "scroll tall", "tabIndex": 0, "role": "region", "aria-label": chart.summary}
    return html.Div(drawn, **frame) if height > most else drawn


def facts(
    heads: Sequence[str], rows: Sequence[Sequence[Children]], label: str, total: str = "", *, tall: bool = False,
    kind: str = "", id_: str = "",
) -> Component:  # fmt: skip
    """Return a table of texts and numbers in a frame that scrolls; each row has a cell per heading, the first names it.

    The headings, and `total`, a sentence below all rows, stay visible while the rows scroll. `kind` is a further CSS
    class.
    """
    if any(len(cells) != len(heads) for cells in rows):
        raise ValueError(f"table {label!r}: a row does not have as many cells as the {len(heads)} headings")
    head = html.Thead(html.Tr([html.Th(h, scope="col") for h in heads]))
    body = [html.Tr([html.Th(cells[0], scope="row"), *(html.Td(c) for c in cells[1:])]) for cells in rows]
    last = html.Tr(html.Td(html.Div(visible(total), className="facts-total"), colSpan=len(heads)))
    foot = [html.Tfoot(last)] if total else []
    attributes = {"aria-label": label} | ({"id": id_} if id_ else {})
    table = html.Table([head, html.Tbody(body), *foot], className=f"facts {kind}".strip(), **attributes)
    frame = "scroll tall" if tall else "scroll"
    return html.Div(table, className=frame, tabIndex=0, role="region", **{"aria-label": label})


def table(titles: Sequence[str], rows: Sequence[Component], kind: str = "rows", *, tall: bool = False) -> Component:
    """Return drawn rows below their titles in a frame that scrolls; `kind` is the table's CSS class."""
    head = html.Thead(html.Tr([html.Th(title, scope="col") for title in titles]))
    frame = "scroll tall" if tall else "scroll"
    return html.Div(html.Table([head, html.Tbody(rows)], className=kind), className=frame, tabIndex=0)


def notes(lines: Iterable[str]) -> Component:
    """Return sentences as a list, each with a capital letter."""
    return html.Ul([html.Li(visible(f"{line[:1].upper()}{line[1:]}")) for line in lines], className="notes")


def pairs(rows: Iterable[tuple[Children, Children]], kind: str = "inputs", **attributes: str) -> Component:
    """Return a table of two columns: names and their values."""
    lines = [html.Tr([html.Th(name, scope="row"), html.Td(value)]) for name, value in rows]
    return html.Table(html.Tbody(lines), className=kind, **attributes)


def chip(word: str, tone: str = "gray", title: str = "") -> Component:
    """Return a word on a coloured background; the word alone carries the meaning."""
    return html.Span(word, className=f"chip tone-{tone}", **({"title": title} if title else {}))


def severity(level: Severity) -> Component:
    """Return a severity as a chip with its meaning."""
    return chip(level.value, level.value, level.meaning)


def severity_legend() -> Component:
    """Return an expandable list that explains each severity, the worst first."""
    levels = sorted(Severity, key=lambda level: -level.rank)
    lines = [html.Li([severity(level), f" {level.meaning}"]) for level in levels]
    summary = html.Summary("What the severities mean")
    return html.Details([summary, html.Ul(lines, className="notes")], className="more legend")


def amount(value: float | None, resource: Resource) -> Children:
    """Return an amount with its unit, which the unit switch can change to millicores or MiB."""
    text = display.amount(value, resource)
    if value is None or text == display.MISSING:
        return text
    return html.Span(text, className="amount", **{"data-unit": resource.unit, "data-value": f"{value:.10g}"})


def amount_range(low: float, high: float, resource: Resource) -> Component:
    """Return a range of amounts with one unit, which the unit switch can change to millicores or MiB."""
    data = {"data-unit": resource.unit, "data-low": f"{low:.10g}", "data-value": f"{high:.10g}"}
    return html.Span(display.between(low, high, resource), className="amount", **data)


def moment(seconds: float) -> Component:
    """Return a time in UTC, which the time-zone switch can change to the browser's own zone."""
    return html.Time(display.moment(seconds), dateTime=to_wire(seconds), className="moment")


def clock(seconds: float) -> Component:
    """Return a time of day in UTC ("18:00 UTC") that follows the time-zone switch."""
    text = f"{display.clock(seconds)} UTC"
    return html.Time(text, dateTime=to_wire(seconds), className="moment", **{"data-form": "clock"})


def window(start_seconds: float, end_seconds: float) -> Component:
    """Return a window of the day in UTC ("18:00–20:00 UTC") that follows the time-zone switch."""
    text = f"{display.clock(start_seconds)}–{display.clock(end_seconds)} UTC"
    more = {"data-form": "window", "data-until": to_wire(end_seconds)}
    return html.Time(text, dateTime=to_wire(start_seconds), className="moment", **more)


def day(seconds: float) -> Component:
    """Return the UTC day of a Unix time."""
    return html.Time(to_wire(seconds)[:10], dateTime=to_wire(seconds)[:10])


def asks(store: str, **request: str) -> dict[str, str]:
    """Return attributes of a button, whose click writes its request to a store (`assets/plans.js` adds the time).

    A button's own clicks are lost if a callback redraws it before they are sent; what is in a store is kept.
    """
    return {"data-asks": store, "data-asked": json.dumps(request)}


def resource_switch(id_: str, chosen: Resource = Resource.CPU, more: Sequence[dict[str, str]] = ()) -> Component:
    """Return the switch between CPU, memory and further options."""
    options = [{"value": "cpu", "label": "CPU"}, {"value": "memory", "label": "Memory"}, *more]
    return dmc.SegmentedControl(id=id_, value=chosen.value, data=options, size="xs")


def choices(name: str, options: Sequence[tuple[str, dict[str, str], bool]], search: str) -> Component:
    """Return links that set keys of the page's URL: (label, keys, whether it is the present choice)."""
    return choice_row(name, [choice(visible(label), address(search, **keys), on) for label, keys, on in options])


def choice(text: Children, href: str, on: bool, **more: str) -> Component:
    """Return one of several links, highlighted if `on`; `more` has properties of the link."""
    link = dcc.Link(text, href=href, className="choice current" if on else "choice", **more)
    return html.Li(link, **({"aria-current": "true"} if on else {}))


def choice_row(name: str, links: Sequence[Component], *more: Component) -> Component:
    """Return a row of links made by `choice`, after the row's name."""
    parts = [html.Span(name, className="dim"), html.Ul([*links], className="choice-list"), *more]
    return html.Nav(parts, className="choices", **{"aria-label": name})


def address(search: str, **keys: str) -> str:
    """Return the query string with these values of `keys`, otherwise unchanged."""
    pairs = parse_qs(search.lstrip("?"), keep_blank_values=True)  # "replicas=" is a filter: those without the value
    return f"?{urlencode(pairs | {key: [value] for key, value in keys.items()}, doseq=True)}"


def address_value(search: str, key: str = "open") -> str:
    """Return the first value of a key in the query string; "" if there is none."""
    return parse_qs(search.lstrip("?")).get(key, [""])[0]


def address_parts(search: str, key: str = "open") -> list[str]:
    """Return the parts, separated by slashes, of the value that a key has in a query string; each is unescaped."""
    return [unquote(part) for part in address_value(search, key).split("/")]


def stat(
    label: str, value: Children, detail: Children = "", *, bar: float | None = None, over: str = "red"
) -> Component:
    """Return a headline number with label and detail; `bar` is a share to draw, in colour `over` if it exceeds 1."""
    parts = [html.Div(label, className="stat-label"), html.Div(value, className="stat-value")]
    if bar is not None and not math.isnan(bar):
        tone = "blue" if bar <= 1 else over
        fill = html.Div(className=f"meter-fill tone-fill-{tone}", style={"width": f"{min(1.0, bar):.1%}"})
        parts.append(html.Div(fill, className="meter"))
    parts += [html.Div(detail, className="stat-detail")] if detail else []
    return html.Div(parts, className="stat")


def empty(headline: str, *, why: Children = "", command: str = "", link: tuple[str, str] | None = None) -> Component:
    """Return why there is nothing to show, and what helps: a command to run or a link (text, href)."""
    parts: list[Any] = [html.P(headline, className="empty-headline")]
    parts += [html.P(why)] if why else []
    parts += [html.Pre(html.Code(command), className="command")] if command else []
    parts += [dcc.Link(link[0], href=link[1], className="button")] if link else []
    return html.Div(parts, className="empty", role="status")


def no_match(noun: str, clear: str = "?") -> Component:
    """Return a note that the URL's filters exclude everything that exists, with a link that clears them."""
    return empty(f"No {noun} matches these filters.", link=("Clear filters", clear))


def no_results() -> Component:
    """Return the empty state of a store without any results."""
    why = "This store holds no analysis of a cluster. Scan one, or look at a synthetic one:"
    return empty("No results yet.", why=why, command="cotenant scan --prometheus URL\ncotenant demo")


def failure_state(message: str, fix: str = "") -> Component:
    """Return a short cause and a fix; the page polls, so it recovers automatically."""
    retry = "The page tries again automatically; the server's log has the details."
    parts = [html.P(message, className="empty-headline"), html.P(fix or retry)]
    return html.Div(parts, className="empty failed", role="alert")


def forbidden_state(message: str, fix: str = "") -> Component:
    """Return who refused access, which right is missing, and the command that shows all rights."""
    parts = [
        html.P([chip("forbidden", "orange"), f" {message}"], className="empty-headline"),
        html.P(fix or "The permission named above is missing; an administrator can grant it."),
        html.P("Every right that is needed, checked one by one:"),
        html.Pre(html.Code(RIGHTS_COMMAND), className="command"),
    ]
    return html.Div(parts, className="empty forbidden", role="alert")


def trouble(error: CotenantError) -> Component:
    """Return the state of a panel whose data could not be read: forbidden, or failed."""
    return (forbidden_state if isinstance(error, FORBIDDEN) else failure_state)(error.message, error.fix)


def skeleton(*heights: int) -> Component:
    """Return grey blocks of the final size for a panel that is loading; after 3 s a text says what is awaited."""
    blocks = [dmc.Skeleton(height=h, radius="md", animate=True, className="skeleton") for h in heights]
    late = html.P("Still waiting for the results in the store…", className="late")
    return html.Div([html.Span("Loading…", className="visually-hidden"), late, *blocks], **{"aria-busy": "true"})


def render_guarded(render: Callable[[], Component], title: str = "") -> Component:
    """Return what `render` returns, or on an error the error state of a panel with this `title`; never a traceback."""
    try:
        return render()
    except CotenantError as error:
        _log.warning("panel_failed", error=error.message)
        state = trouble(error)
    except Exception:  # noqa: BLE001 the last line of defence of a page: logged whole, shown short
        _log.exception("panel_failed")
        state = failure_state("This panel could not be drawn.", f"The page tries again automatically. {faults.fix()}")
    return panel(title, state) if title else state
