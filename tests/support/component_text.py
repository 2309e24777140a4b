"""The text of a Dash component, as a person reads it."""

from __future__ import annotations

from typing import Any


def text_of(component: Any) -> str:
    """All text below a component, one piece after another."""
    if component is None or isinstance(component, bool):
        return ""
    if isinstance(component, str | int | float):
        return str(component)
    if isinstance(component, list | tuple):
        return "".join(text_of(part) for part in component)
    return text_of(getattr(component, "children", None))


def component_of(component: Any, id_: str) -> Any:
    """The component of that id below another; None without one."""
    if isinstance(component, list | tuple):
        return next((hit for part in component if (hit := component_of(part, id_)) is not None), None)
    if getattr(component, "id", None) == id_:
        return component
    children = getattr(component, "children", None)
    return None if children is None or isinstance(children, str) else component_of(children, id_)
