"""Every callback and every endpoint of a dashboard, asked over real HTTP with values that would really do something."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cotenant.base.people import Right
from tests.support.access import Browser

UPDATE = "_dash-update-component"
SAFE = {"GET", "HEAD", "OPTIONS"}
PRESSED = ("n_clicks", "n_submit", "n_intervals")


@dataclass(frozen=True)
class Target:
    """One callback as the browser is told of it. takes: the right that it says it takes; None: it only shows."""

    output: str
    inputs: tuple[Mapping[str, str], ...]
    state: tuple[Mapping[str, str], ...]
    takes: Right | None


@dataclass(frozen=True)
class Values:
    """What is sent: by `id.property` (of an id with parts: by each part), everything else is pressed once or empty."""

    plain: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, Any] = field(default_factory=dict)

    def of(self, dependency: Mapping[str, str]) -> Any:
        prop = dependency["property"]
        wildcard = dependency["id"].startswith("{")
        if not wildcard:
            return {**dependency, "value": self._value(dependency["id"], prop)}
        id_ = {key: self.parts.get(key, "x") if isinstance(part, list) else part
               for key, part in json.loads(dependency["id"]).items()}  # fmt: skip
        filled = {"id": id_, "property": prop, "value": self._value(str(id_.get("type", next(iter(id_)))), prop)}
        return [filled] if '["ALL"]' in dependency["id"] else filled

    def _value(self, id_: str, prop: str) -> Any:
        return self.plain.get(f"{id_}.{prop}", 1 if prop in PRESSED else None)


def targets(app: Any) -> list[Target]:
    """All callbacks that run on the server."""
    callbacks = []
    for spec in app.state.dash._callback_list:
        if spec["clientside_function"] is None:
            takes = getattr(app.state.dash.callback_map[spec["output"]]["callback"], "takes", None)
            callbacks.append(Target(spec["output"], tuple(spec["inputs"]), tuple(spec["state"]), takes))
    return callbacks


def body(target: Target, values: Values) -> dict[str, Any]:
    """What the renderer would send if the first input had changed."""
    inputs = [values.of(dependency) for dependency in target.inputs]
    first = inputs[0][0] if isinstance(inputs[0], list) else inputs[0]
    id_ = (
        json.dumps(first["id"], sort_keys=True, separators=(",", ":")) if isinstance(first["id"], dict) else first["id"]
    )
    outputs = [_output(text) for text in _outputs(target.output)]
    return {
        "output": target.output,
        "outputs": outputs if target.output.startswith("..") else outputs[0],
        "inputs": inputs,
        "state": [values.of(dependency) for dependency in target.state],
        "changedPropIds": [f"{id_}.{first['property']}"],
    }


def spoken_text(response: Any) -> str:
    """What the live region was told, as text."""
    try:
        document = response.json()
    except ValueError:
        return ""
    return json.dumps(document.get("sideUpdate", {}).get("said", ""))


def writes(app: Any) -> Iterator[tuple[str, str]]:
    """(method, path) of every endpoint that is not for reading, callbacks apart."""
    for route in _routes(app.routes):
        for method in sorted((getattr(route, "methods", None) or set()) - SAFE):
            if not route.path.endswith(UPDATE):
                yield method, route.path


def reads(app: Any) -> Iterator[str]:
    """Paths of every endpoint for reading."""
    for route in _routes(app.routes):
        if "GET" in (getattr(route, "methods", None) or ()):
            yield route.path


def filled(path: str, values: Mapping[str, str]) -> str:
    """A path with something in the place of its parameters."""
    return re.sub(r"\{(\w+)(:\w+)?\}", lambda match: values.get(match[1], "x"), path)


def press(browser: Browser, target: Target, values: Values) -> Any:
    return browser.post(f"/{UPDATE}", json=body(target, values))


def _routes(routes: Any) -> Iterator[Any]:
    for route in routes:
        if hasattr(route, "path") and hasattr(route, "methods"):
            yield route
        yield from _routes(getattr(getattr(route, "original_router", None), "routes", ()) or ())


def _outputs(text: str) -> list[str]:
    return text[2:-2].split("...") if text.startswith("..") else [text]


def _output(text: str) -> Any:
    id_, _, prop = text.rpartition(".")
    if not id_.startswith("{"):
        return {"id": id_, "property": prop}
    parts = {key: "x" if isinstance(part, list) else part for key, part in json.loads(id_).items()}
    output = {"id": parts, "property": prop}
    return [output] if '["ALL"]' in id_ else output
