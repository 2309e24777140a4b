"""Page parts that no callback addresses, joined into one Dash component each. Pure.

Dash's renderer keeps an entry for every component and checks all of them after every callback, so a page costs about
components times callbacks. `join` puts each maximal tree of HTML and links into one `Markup`, which `assets/markup.js`
draws as the same elements: the page looks, reads and acts as before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import copy
from itertools import groupby
from typing import Any, ClassVar, Final

from dash import dcc
from dash.development.base_component import Component

HTML: Final = "dash_html_components"


class Markup(Component):
    """A tree of HTML elements as one Dash component; React draws them from `content`, a tree of children."""

    _namespace = "cotenant"
    _type = "Markup"
    _prop_names: ClassVar[list[str]] = ["content"]
    _valid_wildcard_attributes: ClassVar[list[str]] = []
    available_wildcard_properties: ClassVar[list[str]] = []

    def __init__(self, content: Any) -> None:
        """Store the content: text, HTML components and links, nested in any way."""
        super().__init__()
        self.content = content


def addressed_ids(callback_map: Mapping[str, Mapping[str, Any]]) -> frozenset[str]:
    """Return the component ids that callbacks read or write; keys of `callback_map` are `a.b` or `..a.b...c.d..`."""
    outputs = (output.rpartition(".")[0] for key in callback_map for output in key.strip(".").split("..."))
    read = (
        dependency["id"] for call in callback_map.values() for part in ("inputs", "state") for dependency in call[part]
    )
    return frozenset((*outputs, *read))


def join(part: Any, addressed: Collection[str]) -> Any:
    """Return a copy of the component in which each maximal tree without an addressed id is one `Markup` component."""
    joined, plain = _inside(part, addressed)
    return _markup(part) if plain else joined


def _inside(part: Any, addressed: Collection[str]) -> tuple[Any, bool]:
    """Return the part with plain trees below it joined, and whether it is plain itself: then it is unchanged."""
    if isinstance(part, list | tuple):
        insides = [_inside(component, addressed) for component in part]
        if all(plain for _, plain in insides):
            return part, True
        children: list[Any] = []  # siblings, neighbours that are plain joined
        for plain, run in groupby(insides, key=lambda inside: inside[1]):
            parts = [component for component, _ in run]
            joined = _markup(parts) if plain else parts
            children += joined if isinstance(joined, list) else [joined]
        return children, False
    if not isinstance(part, Component):
        return part, part is None or isinstance(part, str | int | float)
    below = getattr(part, "children", None)
    joined, plain = _inside(below, addressed)
    # An element, its children excepted, is drawn from its properties alone.
    if plain and (part._namespace == HTML or isinstance(part, dcc.Link)):
        id_ = getattr(part, "id", None)
        if id_ is None or (isinstance(id_, str) and id_ not in addressed):
            return part, True
    changed = copy(part)
    if below is not None:
        changed.children = _markup(below) if plain else joined
    return changed, False


def _markup(content: Any) -> Any:
    """Return the content as one component; content of at most one component is returned unchanged."""
    return Markup(content) if _count(content) > 1 else content


def _count(part: Any) -> int:
    if isinstance(part, list | tuple):
        return sum(_count(component) for component in part)
    return 1 + _count(getattr(part, "children", None)) if isinstance(part, Component) else 0
