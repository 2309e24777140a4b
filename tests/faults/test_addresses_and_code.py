"""Answers that send a question elsewhere, and data that could hold code."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from cotenant.base.errors import SourceError, UsageError
from cotenant.profiler.prometheus.client import Client
from cotenant.profiler.settings import PrometheusSettings
from tests.support.api_server import ApiServer, Handler

ROOT = Path(__file__).resolve().parents[2]
NAMES = "/api/v1/label/__name__/values"
STATUSES = (301, 302, 303, 307, 308)
OTHERS = (
    "{other}" + NAMES,
    "{other}",
    "//{authority}" + NAMES,
    "http://user:word@{authority}" + NAMES,
    "file:///etc/passwd",
    "ftp://{authority}/a",
    "gopher://{authority}/_a",
    "javascript:fetch('{other}')",
    "http://169.254.169.254/latest/meta-data/",
    "{own}" + NAMES,
    "../../v1/status/config",
    "",
)
"""Where an answer sends somebody: to another server, another scheme, a cloud's metadata, and back to itself."""


@contextmanager
def listening() -> Iterator[ApiServer]:
    server = ApiServer(None, None)
    try:
        yield server
    finally:
        server.stop()


@pytest.mark.server
def test_no_answer_of_a_source_sends_a_question_elsewhere() -> None:
    with listening() as source, listening() as other:
        other.objects[NAMES] = source.objects["/api/v1/status/config"] = {"status": "success", "data": ["stolen"]}
        settings = PrometheusSettings(url=source.url, retries=0, headers={"Authorization": "Bearer secret"})
        for status in STATUSES:
            for place in OTHERS:
                location = place.format(other=other.url, own=source.url, authority=other.url.removeprefix("http://"))

                def away(handler: Handler, status: int = status, location: str = location) -> None:
                    handler.raw(status, b"", Location=location)

                client, source.once = Client(settings), [away]
                request_count = len(source.requests)
                with pytest.raises(SourceError):
                    client.names(0, 1)
                client.close()
                assert len(source.requests) == request_count + 1, (status, location)
        assert other.requests == []


@pytest.mark.parametrize(
    "address",
    ["file:///etc/passwd", "ftp://h/", "gopher://h:70/_x", "unix:///run/x.sock", "data:,x", "//h:9090", "h:9090", ""],
)
def test_a_source_is_asked_by_http_and_nothing_else(address: str) -> None:
    with pytest.raises((SourceError, UsageError)):
        Client(PrometheusSettings(url=address, retries=0)).names(0, 1)


RUNS_CODE = frozenset({"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "jsonpickle"})
"""Modules whose reading runs what they read."""
SAFE_LOADER: Final = re.compile(r"(yaml\.)?C?SafeLoader|getattr\(yaml, 'CSafeLoader', yaml\.SafeLoader\)")


HINT: Final = re.compile("|".join([*RUNS_CODE, "yaml", r"\beval\(", r"\bexec\(", "allow_pickle"]))
"""Without one of these words a module has nothing to look for, and need not be parsed."""


def modules() -> Iterator[tuple[str, str]]:
    """Every module of the product with its text; `cotenant` links to rooms, which are walked once."""
    for folder in (p.parent for p in ROOT.glob("*/__init__.py") if p.parent.name not in ("tests", "bench")):
        for place, links, files in os.walk(folder):  # follows no link
            links.sort()
            for file in sorted(Path(place, name) for name in files if name.endswith(".py")):
                yield str(file.relative_to(ROOT)), file.read_text(encoding="utf-8")


def dangers(tree: ast.Module) -> Iterator[str]:
    """What in a module could run code that is in data."""
    assigns = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and SAFE_LOADER.fullmatch(ast.unparse(node.value))
    ]
    safe = frozenset(_dotted(target) for node in assigns for target in node.targets)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.partition(".")[0] in RUNS_CODE)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in RUNS_CODE:
            yield node.module or ""
        elif isinstance(node, ast.Call):
            yield from _of_call(node, safe)


def _of_call(node: ast.Call, safe: frozenset[str]) -> Iterator[str]:
    name = _dotted(node.func)
    if name in ("eval", "exec", "builtins.eval", "builtins.exec"):
        yield name
    if name in ("yaml.unsafe_load", "yaml.full_load", "yaml.unsafe_load_all", "yaml.full_load_all"):
        yield name
    if name in ("yaml.load", "yaml.load_all"):
        loaders = [*node.args[1:], *(word.value for word in node.keywords if word.arg == "Loader")]
        if not any(SAFE_LOADER.fullmatch(ast.unparse(loader)) or _dotted(loader) in safe for loader in loaders):
            yield name
    allowed = [word.value for word in node.keywords if word.arg == "allow_pickle"]
    yield from ("allow_pickle" for value in allowed if not (isinstance(value, ast.Constant) and value.value is False))


def _dotted(node: ast.expr) -> str:
    """ "yaml.load" of a name and its attributes; empty for anything else."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def test_nothing_that_is_read_can_hold_code() -> None:
    product = dict(modules())
    assert len(product) > 500, "hardly any module was read: the test proves little"
    suspects = {file: text for file, text in product.items() if HINT.search(text)}
    assert suspects
    dangers_by_file = {file: bad for file, text in suspects.items() if (bad := list(dangers(ast.parse(text))))}
    assert dangers_by_file == {}


@pytest.mark.parametrize(
    "text",
    ["import pickle", "from joblib import load", "yaml.load(f)", "yaml.unsafe_load(f)", "eval(x)",
     "np.load(f, allow_pickle=True)", "yaml.load(f, Loader=yaml.Loader)"],
)  # fmt: skip
def test_each_way_to_run_what_is_read_would_be_seen(text: str) -> None:
    assert HINT.search(text) and list(dangers(ast.parse(text)))
