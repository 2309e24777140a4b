"""Several clusters behind one address: their table, a dashboard and an API for each, one login for all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import copytree
from urllib.parse import quote

import msgspec
import pytest

from cotenant.base.store import Store
from cotenant.dashboard.commands.dashboard import ServedCluster, application
from cotenant.recommender.model.views import RECOMMENDATIONS, WORKLOADS, Overview
from cotenant.settings import Settings
from tests.support.access import Browser, by_proxy
from tests.support.clusters import copies
from tests.support.command_line import cotenant
from tests.support.dashboard import QUICK, served

pytestmark = pytest.mark.server
TOKEN = "launch-token-of-a-test"


@dataclass(frozen=True)
class Scene:
    url: str
    stores: list[Store]

    def browser(self, token: str = TOKEN) -> Browser:
        return Browser(self.url, **({"Authorization": f"Bearer {token}"} if token else {}))


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    stores = copies(tmp_path_factory.mktemp("clusters"), "east", "west")
    settings = Settings(dashboard=msgspec.structs.replace(QUICK, base_path="/co/"))
    parts = [ServedCluster(store, settings, {}) for store in stores]
    with served(application(parts, TOKEN)) as url:
        yield Scene(url, stores)


def test_the_front_page_and_the_endpoint_show_every_cluster(dashboard: Scene) -> None:
    rows = dashboard.browser().get("/co/api/v1/clusters").json()["rows"]
    assert [row["cluster"] for row in rows] == ["east", "west"]
    # `copies` gives the second copy one node more than the first, so that rows are told apart by more than a name.
    assert rows[1]["nodes"] == rows[0]["nodes"] + 1
    page = dashboard.browser().get("/co/", page=True).text
    assert all(f'href="/co/clusters/{name}/"' in page for name in ("east", "west"))


def test_the_command_line_shows_the_same_rows(dashboard: Scene) -> None:
    done = cotenant("status", "--all-clusters", "-o", "json", "--store", dashboard.stores[0].url)
    assert msgspec.json.decode(done.stdout) == dashboard.browser().get("/co/api/v1/clusters").json()["rows"]


def test_a_table_is_asked_of_the_cluster_that_the_parameter_names(dashboard: Scene) -> None:
    browser = dashboard.browser()
    east = browser.get("/co/api/v1/recommendations?cluster=east&severity=critical,warning").json()
    below = browser.get("/co/clusters/east/api/v1/recommendations?severity=critical,warning").json()
    assert east == below
    assert (east["cluster"], browser.get("/co/api/v1/nodes?cluster=west").json()["cluster"]) == ("east", "west")


def test_a_table_without_a_cluster_or_of_an_unknown_one_is_refused_with_the_names(dashboard: Scene) -> None:
    nameless = dashboard.browser().get("/co/api/v1/nodes")
    assert (nameless.status_code, nameless.json()["fix"]) == (400, "Add ?cluster=NAME with one of east, west.")
    unknown = dashboard.browser().get("/co/api/v1/nodes?cluster=north")
    assert (unknown.status_code, unknown.json()["fix"]) == (404, "There are east, west.")


def test_every_operation_of_the_description_takes_the_cluster(dashboard: Scene) -> None:
    paths = dashboard.browser().get("/co/openapi.json").json()["paths"]
    assert {"/co/api/v1/clusters", "/co/api/v1/nodes", "/co/api/v1/me"} <= set(paths)
    names = [parameter["name"] for parameter in paths["/co/api/v1/nodes"]["get"]["parameters"]]
    assert names[0] == "cluster"
    assert "/co/api/v1/nodes" in dashboard.browser().get("/co/docs", page=True).text


def test_one_login_lets_in_to_all_clusters_and_nobody_without_it(dashboard: Scene) -> None:
    for path in ("/co/", "/co/clusters/east/", "/co/clusters/west/_dash-layout", "/co/api/v1/nodes?cluster=west"):
        assert dashboard.browser("").get(path).status_code == 401
    visitor = dashboard.browser("")
    assert visitor.get(f"/co/?token={TOKEN}", page=True).status_code == 303
    for path in ("/co/", "/co/clusters/east/nodes", "/co/clusters/west/", "/co/clusters/west/api/v1/me"):
        assert visitor.get(path, page=True).status_code == 200
    assert [visitor.get(path).status_code for path in ("/livez", "/readyz", "/metrics")] == [200, 200, 200]


def test_an_address_of_no_cluster_leads_to_the_table_of_all(dashboard: Scene) -> None:
    response = dashboard.browser().get("/co/clusters/north/nodes", page=True)
    assert (response.status_code, response.headers["Location"]) == (303, "/co/")


def test_probes_answer_at_the_root_below_the_base_path_and_for_each_cluster(dashboard: Scene) -> None:
    stranger = dashboard.browser("")
    for place in ("/", "/co/", "/co/clusters/east/", "/co/clusters/west/"):
        assert [stranger.get(f"{place}{probe}").status_code for probe in ("livez", "readyz", "metrics")] == [200] * 3


def test_pages_of_a_cluster_run_its_own_inline_scripts_alone(dashboard: Scene) -> None:
    browser = dashboard.browser()
    east, west = (
        set(browser.get(f"/co/clusters/{name}/", page=True).headers["Content-Security-Policy"].split())
        for name in ("east", "west")
    )
    own = {part for part in east ^ west if part.startswith("'sha256-")}
    assert own
    front = browser.get("/co/", page=True).headers["Content-Security-Policy"]
    assert not any(part in front for part in own)


def test_one_context_for_all_clusters_is_refused_before_anything_is_served(dashboard: Scene) -> None:
    done = cotenant("dashboard", "--act", "--context", "west", "--store", dashboard.stores[0].url)
    assert (done.returncode, "kube.context is a setting of a single cluster" in done.stderr) == (2, True)


ODD = "eu:west@1+a"
"""All kinds of characters that a cluster's name may have."""


@pytest.fixture(scope="module")
def narrow(dashboard: Scene, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Scene, str]]:
    """A cluster whose results cannot be read beside one that can; otto has a role in the namespace alone."""
    folder = tmp_path_factory.mktemp("narrow")
    for name in (ODD, "worn"):
        copytree(Path(dashboard.stores[0].url.removeprefix("file://")) / "east", folder / name)
    for document in (folder / "worn").rglob("overview.json"):
        document.unlink()
        document.mkdir()
    stores = [Store(folder.as_uri(), name) for name in (ODD, "worn")]
    overview = stores[0].read_document("overview", Overview)
    assert overview is not None
    stores[0].write_document("overview", replace(overview, cluster=ODD))
    namespace = str(stores[0].read_table(RECOMMENDATIONS).columns["namespace"][0])
    roles = [{"role": "viewer", "user": "otto@example.com", "namespaces": [namespace]}]
    access = msgspec.convert(
        {**msgspec.to_builtins(by_proxy("127.0.0.1/32")), "roles": roles, "own_namespaces": True},
        type(Settings().access),
    )
    settings = Settings(dashboard=msgspec.structs.replace(QUICK, base_path="/"), access=access)
    with served(application([ServedCluster(store, settings, {"access": access}) for store in stores])) as url:
        yield Scene(url, stores), namespace


def test_the_table_of_all_counts_the_namespaces_alone_that_somebody_sees(narrow: tuple[Scene, str]) -> None:
    narrow_dashboard, namespace = narrow
    workloads = narrow_dashboard.stores[0].read_table(WORKLOADS).columns["namespace"]
    own = sum(name == namespace for name in workloads)
    assert 0 < own < len(workloads)
    otto = Browser(narrow_dashboard.url, **{"X-Forwarded-User": "otto@example.com"})
    assert [row["workloads"] for row in otto.get("/api/v1/clusters").json()["rows"]] == [own, None]


def test_a_cluster_that_cannot_be_read_costs_its_own_row_and_says_why(narrow: tuple[Scene, str]) -> None:
    otto = Browser(narrow[0].url, **{"X-Forwarded-User": "otto@example.com"})
    assert list(otto.get("/api/v1/clusters").json()["unread"]) == ["worn"]
    done = cotenant("status", "--all-clusters", "-o", "json", "--store", narrow[0].stores[0].url)
    assert (done.returncode, "note: the results of cluster worn cannot be read: " in done.stderr) == (4, True)
    assert [row["nodes"] is None for row in msgspec.json.decode(done.stdout)] == [False, True]
    page = otto.get("/", page=True)
    assert (page.status_code, "Cluster worn cannot be read: " in page.text) == (200, True)


@pytest.mark.parametrize("name", [ODD, quote(ODD, safe="")])
def test_a_clusters_name_may_be_quoted_in_an_address_or_not(narrow: tuple[Scene, str], name: str) -> None:
    otto = Browser(narrow[0].url, **{"X-Forwarded-User": "otto@example.com"})
    assert otto.get(f"/clusters/{name}/api/v1/nodes").json()["cluster"] == ODD
    assert otto.get(f"/api/v1/nodes?cluster={quote(ODD, safe='')}").json()["cluster"] == ODD
    me = otto.get(f"/clusters/{name}/api/v1/me").json()
    assert (me["name"], me["csrf"]) == ("otto@example.com", otto.get("/api/v1/me").json()["csrf"])
