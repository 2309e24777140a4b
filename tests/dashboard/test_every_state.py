"""Every panel x every way in which its question can stay without answer: the right words in the right frame, no more.

The source in between is real results; what fails is one question of it, in the way a disk, a bucket, a server or a bug
would make it fail.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from cotenant.base.errors import (
    ClusterForbidden,
    CotenantError,
    SourceForbidden,
    SourceUnreachable,
    StoreError,
    StoreForbidden,
)
from cotenant.base.identity import ContainerName
from cotenant.base.store import Store
from cotenant.base.store.files import Folder
from cotenant.dashboard.frame import panels
from cotenant.dashboard.pages import recommendations
from cotenant.dashboard.sources.source import StoreSource
from cotenant.recommender.model.views import RECOMMENDATIONS
from tests.dashboard.test_states import METHODS, Faulty, drawings, text_of, view_on, well
from tests.support import dashboard as support
from tests.support.dashboard import Results

RIGHT: Final = "GET /api/v1/query_range needs the role metrics-reader"
FORBIDDEN: Final = (
    SourceForbidden(RIGHT),
    ClusterForbidden(RIGHT, fix="kubectl auth can-i list pods"),
    StoreForbidden(RIGHT),
)
BROKEN: Final = (StoreError(RIGHT), SourceUnreachable(RIGHT))
HIT: Final[dict[str, tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]]] = {
    "node_history": (("nodes/…", ("CPU hour by hour", "Memory hour by hour"), ("Pods on this node now",)),),
    "upkeep": (("health", ("Sources",), ("Jobs", "Permissions", "Settings and versions")),),
    "foreseen": (("forecast", ("Selected forecast",), ("Forecast quality",)),),
    "story": (("workload/…", (), ()),),
    "lendable_capacity": (("batch", ("Fit my job", "The next 24 hours"), ()),),
    "cluster_size": (("cluster-size", (), ()),),
    "snapshot": tuple(
        (name, (), ())
        for name in (
            "overview",
            "workloads",
            "recommendations",
            "pods",
            "findings",
            "health",
            "nodes/…",
            "reservations",
            "batch",
        )
    ),
}
"""Failing question -> (page, panels that cannot be drawn, panels that still are)."""


@pytest.fixture(scope="module")
def source(demo_results: Results) -> StoreSource:
    return StoreSource(demo_results.store, support.QUICK)


def page_of(demo_results: Results, source: StoreSource, name: str, failing: str, error: Exception) -> str:
    view = view_on(Faulty(source, {failing: error}), demo_results.end_seconds)
    return text_of(panels.render_guarded(partial(drawings(demo_results)[name], view)))


def framed(text: str, title: str) -> str:
    """What stands in the panel of a title, up to the next panel."""
    start = text.index(f'"children": "{title}"')
    after = text.find('"className": "panel-head"', start + 1)
    following = text.find('"className": "panel-head"', after + 1) if after >= 0 else -1
    return text[start : following if following > 0 else len(text)]


@dataclass(frozen=True)
class Case:
    """A failing question, a page that asks it, and its panels."""

    failing: str
    name: str
    out: tuple[str, ...]
    still: tuple[str, ...]


CASES: Final = [Case(failing, *hit) for failing, hits in HIT.items() for hit in hits]


@pytest.mark.slow
@pytest.mark.parametrize("error", FORBIDDEN, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.failing}-{c.name}")
def test_a_missing_right_is_forbidden_and_neither_empty_nor_broken(
    demo_results: Results,
    source: StoreSource,
    error: CotenantError,
    case: Case,
) -> None:
    text = page_of(demo_results, source, case.name, case.failing, error)
    well({case.name: text})
    # Which right is missing, what helps, and the command that tries all rights.
    assert "empty forbidden" in text and RIGHT in text and panels.RIGHTS_COMMAND in text
    assert (error.fix or "an administrator can grant it") in text
    assert "empty failed" not in text and "No results yet" not in text
    for title in case.out:
        assert "empty forbidden" in framed(text, title), title
    for title in case.still:
        assert "empty forbidden" not in framed(text, title), title


@pytest.mark.slow
@pytest.mark.parametrize("error", BROKEN, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.failing}-{c.name}")
def test_what_cannot_be_read_is_an_error_and_not_forbidden(
    demo_results: Results,
    source: StoreSource,
    error: CotenantError,
    case: Case,
) -> None:
    text = page_of(demo_results, source, case.name, case.failing, error)
    well({case.name: text})
    assert "empty failed" in text and RIGHT in text and "empty forbidden" not in text
    for title in case.out:
        assert "empty failed" in framed(text, title), title
    for title in case.still:
        assert "empty failed" not in framed(text, title), title


def test_health_says_nothing_about_pulls_that_it_may_not_see(demo_results: Results, source: StoreSource) -> None:
    text = page_of(demo_results, source, "health", "upkeep", FORBIDDEN[0])
    assert "Pull of usage" not in text and "Newest sample" in text and "No data were pulled yet" not in text


@pytest.mark.parametrize("error", [*FORBIDDEN, *BROKEN], ids=lambda e: type(e).__name__)
def test_the_drawer_tells_the_two_apart_as_well(
    demo_results: Results, source: StoreSource, error: CotenantError
) -> None:
    name = ContainerName("pay", "Deployment", "checkout", "app")
    view = view_on(Faulty(source, {"explain": error}), demo_results.end_seconds)
    text = text_of(recommendations.explain_container(view, name, ""))
    assert ("empty forbidden" in text) == (error in FORBIDDEN) and RIGHT in text


@pytest.mark.server
@pytest.mark.parametrize(("error", "status"), [*((e, 403) for e in FORBIDDEN), *((e, 503) for e in BROKEN)])
def test_the_api_answers_with_the_status_of_the_state(source: StoreSource, error: CotenantError, status: int) -> None:
    faulty: Any = Faulty(source, dict.fromkeys(METHODS, error))
    with support.served(support.app_on(faulty)) as address:
        for path in (
            "overview",
            RECOMMENDATIONS.name,
            "pods?node=x",
            "nodes/n/history",
            "health",
            "workloads/a/b/c",
            "fit",
        ):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(f"{address}/api/v1/{path}", timeout=120)
            assert refused.value.code == status, path
            assert json.loads(refused.value.read())["message"] == RIGHT


def test_a_store_whose_files_may_not_be_read_is_forbidden_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path.as_uri(), "c")
    folder = Folder(tmp_path.as_uri())

    def refused(_path: str, **_more: Any) -> bytes:
        raise PermissionError(13, "Permission denied")  # root reads any file: what the system says to others

    monkeypatch.setattr(type(folder._fs), "cat_file", lambda _self, path, **more: refused(path, **more))
    with pytest.raises(StoreForbidden, match=re.escape(str(tmp_path))):
        StoreSource(store, support.QUICK).snapshot()
