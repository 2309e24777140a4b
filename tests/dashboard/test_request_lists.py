"""Every list of a request: equal members once, at most so many, and a refusal in our words with the limit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest
import requests

from cotenant.autopilot.service import autopilot_service_of
from cotenant.base.errors import StoreBusy
from cotenant.base.people import Grant, Person, Role
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.settings.sections import KubeSettings
from cotenant.base.store import Store
from cotenant.base.store.relation import Relation
from cotenant.base.table import Column, Kind, Schema, Table
from cotenant.base.tables.filters import MOST_PARTS, MOST_SORTS, MOST_VALUES
from cotenant.changes.access.configured_service import change_service_of
from cotenant.changes.access.kubeconfig_access import kubeconfig_door
from cotenant.changes.model.settings import ActionSettings
from cotenant.dashboard.app import create_app
from cotenant.dashboard.frame.view import DashboardContext
from cotenant.dashboard.rest.wire import MOST_LISTED
from cotenant.dashboard.server.request_limits import MOST_MEMBERS
from cotenant.dashboard.sources.source import StoreSource
from cotenant.pipeline import daily_analysis
from cotenant.scheduler_ext.reservations.service.service import plan_service_of
from cotenant.settings import Settings
from cotenant_lab.simulation import cluster_population, demo
from cotenant_lab.simulation.api_server import EmbeddedServer
from cotenant_lab.synthetic import SyntheticSpec
from tests.cluster.crds import install_crd
from tests.contract.target import embedded_api
from tests.support import sweep
from tests.support.access import Browser
from tests.support.dashboard import QUICK, served
from tests.support.extent import full
from tests.support.machines import FixedTopologies
from tests.support.moves import FixedMoves
from tests.support.queues import FixedQueues

pytestmark = pytest.mark.server
PERSON = Person("ada", grants=(Grant(Role.ADMIN),))


class House:
    """A dashboard with every service, and its own description."""

    def __init__(self, app: Any, url: str) -> None:
        self.app, self.browser = app, Browser(url)
        self.browser.get("/", page=True)
        self.spec = app.openapi()

    def tables(self) -> Iterator[str]:
        """Paths of every list of rows."""
        for path, operations in self.spec["paths"].items():
            names = {parameter["name"] for parameter in operations.get("get", {}).get("parameters", ())}
            if {"sort", "columns"} <= names:
                yield path

    def bodies(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """(method, path, properties of the body) of every endpoint that takes one."""
        for path, operations in self.spec["paths"].items():
            for method in {"post", "put"} & operations.keys():
                content = operations[method].get("requestBody", {}).get("content", {})
                properties = content.get("application/json", {}).get("schema", {}).get("properties")
                if properties:
                    yield method, path, properties

    def send(self, method: str, path: str, body: Any, headers: dict[str, str]) -> requests.Response:
        text = json.dumps(body).encode()
        return self.send_text(method, path, text, {"Content-Type": "application/json"} | headers)

    def send_text(self, method: str, path: str, text: bytes, headers: dict[str, str]) -> requests.Response:
        token = {"X-CSRFToken": self.browser.cookie("_csrf_token"), "Origin": self.browser.address}
        url = self.browser.address + path
        return self.browser.session.request(method, url, data=text, headers=token | headers, timeout=30)

    def ask(self, path: str, *pairs: tuple[str, str]) -> Any:
        return self.browser.get(f"{path}?{urlencode(pairs)}")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("lists")
    spec = SyntheticSpec(nodes=2, workloads=8, days=3, seed=7)
    store, clock = Store((folder / "store").as_uri(), "embedded"), FixedClock(spec.end_seconds)
    cluster = cluster_population.present_cluster(
        cluster_population.resident(spec, cluster_population.fake_nodes(spec)), "embedded", spec.end_seconds
    )
    demo.write(store, cluster, Silent())
    daily_analysis.publish(daily_analysis.analyse(store, Settings(), clock, Silent()), store, Settings())
    with EmbeddedServer() as server:
        for kind in ("reservationplans", "autopilotpolicies"):
            install_crd(embedded_api(server), f"{kind}.cotenant.dev")
        settings = msgspec.structs.replace(
            Settings(),
            kube=KubeSettings(kubeconfig=str(server.write_kubeconfig(folder / "kubeconfig"))),
            actions=ActionSettings(ledger=str(Path(folder) / "ledger.db"), anchor=False),
        )
        context = DashboardContext(
            current_user=lambda: PERSON,
            changes=change_service_of(settings, store, kubeconfig_door(settings.kube), clock),
            plans=plan_service_of(settings, clock=clock),
            autopilot=autopilot_service_of(settings, lambda _namespace: [], clock=clock),
            queues=FixedQueues(),
            moves=FixedMoves(),
            topologies=FixedTopologies(),
        )
        app = create_app(StoreSource(store, QUICK), QUICK, clock, context)
        with served(app) as url:
            yield House(app, url)


def columns_of(house: House, path: str) -> list[str]:
    """Columns that a table says it has, those of lists apart: nothing sorts by these."""
    described = house.spec["paths"][path]["get"]["description"]
    return [name for name, unit in re.findall(r"^- `(\w+)` \(([^)]+)\)", described, re.M) if unit != "list of numbers"]


def filter_key_of(house: House, path: str) -> str:
    table_parameters = {
        "row",
        "format",
        "offset",
        "limit",
        "columns",
        "q",
        "sort",
        "since",
        "until",
        "range",
        "severity",
        "waste",
    }
    parameters = house.spec["paths"][path]["get"]["parameters"]
    return str(next(parameter["name"] for parameter in parameters if parameter["name"] not in table_parameters))


@pytest.mark.slow
def test_there_are_tables_bodies_and_callbacks_to_ask(house: House) -> None:
    lists = [(path, name) for _, path, properties in house.bodies() for name, schema in properties.items()
             if "array" in str(schema)]  # fmt: skip
    assert len(list(house.tables())) >= 18 and len(lists) >= 8 and len(sweep.targets(house.app)) > 40


def described(house: House, method: str, path: str, response: requests.Response) -> None:
    """Assert that a response has a schema in the description, and keeps it."""
    documented = house.spec["paths"][path][method]["responses"]
    content = documented.get(str(response.status_code), documented["default"])["content"]
    assert content["application/json"]["schema"], (path, response.status_code)
    jsonschema.validate(response.json(), content["application/json"]["schema"])


@pytest.mark.slow
def test_tables_and_refusals_are_answered_as_the_description_says(house: House) -> None:
    for path in house.tables():
        rows = house.ask(path, ("limit", "5"))
        assert rows.status_code == 200, path
        described(house, "get", path, rows)
        for refused in (("nope", "1"), ("limit", "many")):
            described(house, "get", path, house.ask(path, refused))
    for method, path, _ in house.bodies():
        url, headers = sweep.filled(path, {}), {"Idempotency-Key": "k", "Content-Type": "application/json"}
        for text in (b"", b"{", b"\xff", b"[]", b'{"nope": 1}'):
            response = house.send_text(method, url, text, headers)
            assert 400 <= response.status_code < 500, (path, text, response.text)
            described(house, method, path, response)
    assert set(house.send_text("delete", "/api/v1/nodes", b"", {}).json()) == {"error", "message", "fix"}
    assert "HTTPValidationError" not in str(house.spec)


@pytest.mark.slow
def test_a_column_named_a_thousand_times_decides_once(house: House) -> None:
    for path in house.tables():
        column = columns_of(house, path)[0]
        once, often = house.ask(path, ("sort", f"-{column}")), house.ask(path, *[("sort", f"-{column}")] * 1000)
        turned = house.ask(path, ("sort", f"-{column}"), *[("sort", column)] * 500)
        assert (once.status_code, often.status_code, turned.status_code) == (200, 200, 200), path
        assert once.json()["rows"] == often.json()["rows"] == turned.json()["rows"], path
        response = house.ask(path, *[("columns", column)] * 1000)
        assert response.status_code == 200 and {len(row) for row in response.json()["rows"]} <= {1}, path


@pytest.mark.slow
def test_every_list_of_a_table_is_bounded_in_our_words(house: House) -> None:
    for path in house.tables():
        columns, key = columns_of(house, path), filter_key_of(house, path)
        values = ("key", [str(n) for n in range(MOST_VALUES + 1)])
        too_long = {
            f"at most {MOST_VALUES:,}": [(key, ",".join(values[1]))],
            "at most 32": [("q", "a " * 33)],
            "at most 256": [(key, "*" * 257)],
            f"at most {MOST_PARTS:,}": [("q", "")] * (MOST_PARTS + 2),
        }
        if len(columns) > MOST_SORTS:
            too_long[f"at most {MOST_SORTS}"] = [("sort", column) for column in columns[: MOST_SORTS + 1]]
            within = house.ask(path, *[("sort", column) for column in columns[:MOST_SORTS]])
            assert within.status_code == 200, path
        for limit, pairs in too_long.items():
            response = house.ask(path, *pairs)
            assert response.status_code == 400 and limit in response.json()["message"], (
                path,
                limit,
                response.text[:300],
            )
            assert response.json()["fix"], (path, limit)


def test_every_list_of_a_body_is_bounded_in_our_words(house: House) -> None:
    request_count = 0
    for method, path, properties in house.bodies():
        for name, schema in properties.items():
            if "array" in str(schema) or schema.get("type") == "object":
                body: dict[str, Any] = {name: [f"a/b/{n}" for n in range(MOST_LISTED + 1)]}
                if schema.get("type") == "object":
                    body = {name: {"spec": body}}
                address = sweep.filled(path, {})
                headers = {"Idempotency-Key": f"k{request_count}"}
                response = house.send(method, address, body, headers)
                assert response.status_code in (400, 422), (path, name, response.status_code)
                assert f"{MOST_LISTED + 1:,} members, at most {MOST_LISTED:,}" in response.json()["message"], (
                    path,
                    name,
                )
                request_count += 1
    assert request_count >= 8


def test_what_a_body_names_twice_is_done_once(house: House) -> None:
    response = house.browser.post("/api/v1/rebalance/approvals", json={"pods": ["shop/a-1"] * 5000, "dry_run": True})
    assert [outcome["pod"] for outcome in response.json()] == ["shop/a-1"]
    few = house.ask("/api/v1/permissions", *[("namespace", "a")] * 1000)
    many = house.ask("/api/v1/permissions", *[("namespace", f"n{n}") for n in range(101)])
    assert few.status_code == 200
    assert many.status_code == 422 and "101 members, at most 100" in many.json()["message"]


@pytest.mark.slow
def test_every_list_of_a_callback_is_bounded_in_our_words(house: House) -> None:
    many = list(range(MOST_MEMBERS + 1))
    for target in sweep.targets(house.app):
        for place in ("inputs", "state"):
            for number in range(len(getattr(target, place))):
                body = sweep.body(target, sweep.Values())
                argument = body[place][number]
                (argument[0] if isinstance(argument, list) else argument)["value"] = {"rows": many}
                response = house.browser.post(f"/{sweep.UPDATE}", json=body)
                assert response.status_code == 400, (target.output, place, number)
                assert f"{MOST_MEMBERS + 1:,} members, at most {MOST_MEMBERS:,}" in response.text, target.output


def raw(house: House, target: str) -> tuple[int, str]:
    """Status and text of a GET whose address is sent as it is; 0 where the connection ends without an answer."""
    place = urlsplit(house.browser.address)
    connection = HTTPConnection(place.hostname or "", place.port or 0, timeout=30)
    try:
        connection.putrequest("GET", target, skip_accept_encoding=True)
        connection.putheader("Cookie", "; ".join(f"{c.name}={c.value}" for c in house.browser.session.cookies))
        connection.endheaders()
        response = connection.getresponse()
        return response.status, response.read().decode("utf-8", "replace")
    finally:
        connection.close()


ODD = ["", "..", "\x00", "'", "-1", "9" * 400, "a" * 30_000]
MORE_ODD = [
    " ", "\n", "\x1b[31m", "../..", "/etc/passwd", "\ud7ff\uffff", "\u202e", "%", "%00", '"', "`", "1e400", "nan",
    "inf", "null", "[]", "{}", "*", "a," * 15_000, "*" * 10_000, "\u00e9" * 5_000,
]  # fmt: skip


def odd_addresses(house: House, odd: str) -> Iterator[str]:
    """Every parameter of every path for reading, one at a time, with this value; and pages below which it stands."""
    text = quote(odd, safe="")
    for path, operations in house.spec["paths"].items():
        if "get" not in operations:
            continue
        plain = re.sub(r"\{\w+\}", "x", path)
        for parameter in operations["get"].get("parameters", ()):
            if parameter["in"] == "path":
                yield re.sub(r"\{\w+\}", "x", path.replace(f"{{{parameter['name']}}}", text))
            elif parameter["in"] == "query":
                yield f"{plain}?{parameter['name']}={text}"
        yield f"{plain}?{text}={text}"
    for page in ("", "assets/", "_dash-component-suites/", "_dash-component-suites/dash/", "workloads/", "api/v1/"):
        yield f"/{page}{text}"
        yield f"/{page}?q={text}"


@pytest.mark.slow
@pytest.mark.parametrize("odd", [*ODD, *full(*MORE_ODD)], ids=lambda odd: f"{len(odd)} of {odd[:8]!r}")
def test_no_value_of_any_parameter_of_any_address_is_a_fault_of_ours(house: House, odd: str) -> None:
    answers = {address: raw(house, address) for address in odd_addresses(house, odd)}
    faults = {address[:120]: reply for address, reply in answers.items() if not 200 <= reply[0] < 500}
    assert faults == {}
    refused = [text for status, text in answers.values() if 400 <= status < 500]
    assert all(text for text in refused)  # a sentence, not a bare status
    assert not [address[:120] for address, (_, text) in answers.items() if "Traceback (most recent" in text]


@pytest.mark.slow
@pytest.mark.parametrize(
    "odd",
    [
        None,
        -1,
        "..",
        {"a": ["b"]},
        "\ud800",  # half of a surrogate pair, which JSON can write and UTF-8 cannot
        "a" * 100_000,  # more than an object of the cluster may hold
        *full(True, 1e308, 9**40, "", "\x00", "a/b/c", [], [[]], [None], {}, {"": {}}),
    ],
    ids=lambda odd: f"{str(odd)[:12]!a}",
)
def test_no_value_of_any_field_of_any_body_is_a_fault_of_ours(house: House, odd: Any) -> None:
    answers: dict[tuple[str, str, str], tuple[int, str]] = {}
    for method, path, properties in house.bodies():
        for name in properties:
            place = sweep.filled(path, {})
            response = house.send(method, place, {name: odd}, {"Idempotency-Key": f"{name}-{len(answers)}"})
            answers[method, path, name] = response.status_code, response.text
    assert len(answers) > 40
    assert {
        field: reply for field, reply in answers.items() if reply[0] >= 500 or "Traceback (most recent" in reply[1]
    } == {}


@pytest.mark.parametrize(
    "target", ["/%0a", "/%00", "/%0d%0aX:y", "/%ff", "/%", "/%zz", "//", "//x", "/./..", "/..%2f..", "/;"]
)
def test_no_address_is_a_fault_of_ours(house: House, target: str) -> None:
    assert 200 <= raw(house, target)[0] < 500


def test_a_question_that_needs_more_memory_than_there_is_says_so_in_our_words() -> None:
    # Two windows over the product of a table with itself: 2,500 million rows are more than 160 MB and 1 GB of disk.
    schema = Schema("crowd", (Column("name", "Name", Kind.TEXT, "A name."),), ("name",))
    crowd = Relation.of(Table.from_rows(schema, [{"name": f"n{n}"} for n in range(50_000)]))
    with pytest.raises(StoreBusy) as caught:
        crowd.sums([f"(SELECT length(string_agg(a.i || repeat('x', 1000), ',')) FROM range({2 * 10**6}) a(i))"])
    assert "160MB" in caught.value.message and "memory_limit" not in caught.value.message + caught.value.fix
    assert crowd.count() == 50_000 and crowd.sums(["count(*)"]) == (50_000,)  # others are answered
