"""Reading by namespace: no page, callback, endpoint or download tells whom it does not concern of other namespaces."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cotenant.autopilot.service import autopilot_service_of
from cotenant.base.identity import WorkloadRef
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.people import Grant, Person, Role
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.settings.sections import KubeSettings
from cotenant.base.store import Store
from cotenant.base.store.relation import Relation
from cotenant.base.table import Table
from cotenant.changes.access.configured_service import change_service_of
from cotenant.changes.access.kubeconfig_access import kubeconfig_door
from cotenant.changes.change_ledger import ChangeLedger
from cotenant.changes.decide.patches import kubectl_command
from cotenant.changes.model.change import Change
from cotenant.changes.model.settings import ActionSettings
from cotenant.dashboard import pages
from cotenant.dashboard.app import create_app
from cotenant.dashboard.commands.dashboard import manifest
from cotenant.dashboard.frame.view import DashboardContext
from cotenant.dashboard.sources.namespace_filter import HIDDEN, NOTE, OF_THESE, filter_snapshot
from cotenant.dashboard.sources.source import SCHEMAS, Snapshot, StoreSource
from cotenant.enforcer.model.enforcement_tables import ENFORCEMENT
from cotenant.pipeline import daily_analysis
from cotenant.recommender.model.views import FINDINGS, FORECASTS, RECOMMENDATIONS, WORKLOADS
from cotenant.scheduler_ext.reservations.service.service import plan_service_of
from cotenant.settings import Settings
from cotenant_lab.simulation import cluster_population, demo
from cotenant_lab.simulation.api_server import EmbeddedServer
from cotenant_lab.synthetic import SyntheticSpec
from tests.contract.target import embedded_api
from tests.support import access, canaries, sweep
from tests.support.access import Browser
from tests.support.dashboard import QUICK, served
from tests.support.extent import full
from tests.support.sweep import Values
from tools import write_reading
from tools.write_reading import Limit

pytestmark = [pytest.mark.slow, pytest.mark.server]
SPEC = SyntheticSpec(nodes=4, workloads=60, days=9, seed=7)
SEEN = f"{cluster_population.PREFIX}shop"
ROLES = (Role.VIEWER, Role.OWNER, Role.APPROVER, Role.ADMIN)


@dataclass(frozen=True)
class House:
    """A dashboard whose people read by namespace, with changes and put-off recommendations in all of them."""

    app: Any
    url: str
    snapshot: Snapshot

    @property
    def names(self) -> list[str]:
        """All namespaces; each begins with a prefix that no other word has."""
        return list(self.snapshot.tables[WORKLOADS.name].texts("namespace"))

    def workloads(self, namespace: str) -> list[str]:
        """Names of workloads there."""
        return [
            r["workload"] for r in self.snapshot.tables[WORKLOADS.name].read().rows() if r["namespace"] == namespace
        ]

    def as_(self, group: str) -> Browser:
        browser = Browser(self.url, **{"X-Forwarded-User": f"{group}@x", "X-Forwarded-Groups": group})
        browser.get("/", page=True)
        return browser


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("narrow")
    cluster = cluster_population.present_cluster(
        cluster_population.resident(SPEC, cluster_population.fake_nodes(SPEC)), "embedded", SPEC.end_seconds
    )
    store, end = Store((folder / "store").as_uri(), "embedded"), cluster.inventory.time_seconds
    demo.write(store, cluster, Silent())
    daily_analysis.publish(daily_analysis.analyse(store, Settings(), FixedClock(end), Silent()), store, Settings())
    rules = [
        *({"role": role.value, "group": f"{role.value}-there", "namespaces": [SEEN]} for role in ROLES),
        {"role": "viewer", "group": "everywhere"},
    ]
    source = StoreSource(store, QUICK)
    with EmbeddedServer() as server:
        base = Settings()
        settings = msgspec.structs.replace(
            base,
            kube=KubeSettings(kubeconfig=str(server.write_kubeconfig(folder / "kubeconfig"))),
            actions=ActionSettings(ledger=str(folder / "ledger.db"), anchor=False),
        )
        service = change_service_of(settings, store, kubeconfig_door(settings.kube), FixedClock(end))
        _fill_ledger(folder / "ledger.db", source.snapshot(), end)
        refs = [WorkloadRef(r["namespace"], r["kind"], r["workload"]) for r in _workloads(source.snapshot())]
        service.snooze(Person("house", grants=(Grant(Role.ADMIN),)), refs[::2], 7, "not now")
        names = source.snapshot().tables[WORKLOADS.name].texts("namespace")
        others = sorted(set(names) - {SEEN})
        canaries.write_plans_and_policies(embedded_api(server), SEEN, others)
        door = kubeconfig_door(settings.kube)
        current_user = access.by_proxy("127.0.0.1/32", roles=rules, own_namespaces=True)
        context = DashboardContext(
            kubectl_command,
            manifest,
            access=current_user,
            changes=service,
            plans=plan_service_of(settings, door, FixedClock(end)),
            autopilot=autopilot_service_of(settings, lambda _namespace: [], door, FixedClock(end)),
            queues=canaries.queues(SEEN, others),
            moves=canaries.moves(SEEN, others),
            topologies=canaries.FixedMachine(SEEN, others),
        )
        app = create_app(source, QUICK, FixedClock(end), context)
        with served(app) as url:
            yield House(app, url, source.snapshot())


def _workloads(snapshot: Snapshot) -> list[dict[str, Any]]:
    return list(snapshot.tables[WORKLOADS.name].read().rows())


def _fill_ledger(path: Path, snapshot: Snapshot, seconds: float) -> None:
    """A change of each workload."""
    ledger = Ledger(path)
    changes = [
        Change(f"{n:012x}", f"b{n}", r["namespace"], r["kind"], r["workload"], "ann", (), "template", "d@0", ())
        for n, r in enumerate(_workloads(snapshot))
    ]
    ChangeLedger(ledger, FixedClock(seconds), "ann").accept(changes)
    ledger.close()


def leaks(house: House, response: Any) -> set[str]:
    """Names of namespaces that are in an answer and not theirs, and amounts that only these have."""
    content = response.content
    names = {name for name in house.names if name != SEEN and name.encode() in content}
    return names | {mark.decode() for mark in canaries.MARKS if mark in content}


def endpoints(house: House) -> Iterator[str]:
    """Every endpoint for reading; tables also as CSV."""
    for path in sweep.reads(house.app):
        if "/auth/" in path or "_dash-component-suites" in path:
            continue
        filled = {
            "change": f"{0:012x}",
            "node": "x",
            "quota": f"q-{SEEN}",
            "namespace": SEEN,
            "pod": "mine-0",
            "name": "mine",
        }
        address = sweep.filled(path, filled)
        yield address
        yield sweep.filled(path, {**filled, "pod": "mine-1", "quota": "x", "name": "x"})
        if path.startswith("/api/v1") and "{" not in path:
            yield f"{address}?format=csv"


def addressed(page: str) -> Values:
    return Values(plain={"url.pathname": f"/{page}", "url.search": ""})


def drawn(house: House, browser: Browser, targets: list[sweep.Target]) -> Iterator[tuple[str, sweep.Target, Any]]:
    """Each of the callbacks: on each page if it is sent the page's address, else once, for it is sent the same."""
    for page in pages.ALL:
        for target in targets:
            if page is pages.ALL[0] or asks_for_the_page(target):
                yield page.path, target, sweep.press(browser, target, addressed(page.path))


def asks_for_the_page(target: sweep.Target) -> bool:
    return any(
        (dependency["id"], dependency["property"]) == ("url", "pathname")
        for dependency in (*target.inputs, *target.state)
    )


def showing(house: House) -> list[sweep.Target]:
    return [target for target in sweep.targets(house.app) if target.takes is None]


# --- nobody else's names ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("role", [Role.VIEWER, Role.ADMIN, *full(Role.OWNER, Role.APPROVER)])
def test_no_endpoint_names_a_namespace_in_which_one_has_no_role(house: House, role: Role) -> None:
    browser = house.as_(f"{role.value}-there")
    answers = {path: browser.get(path) for path in endpoints(house)}
    assert {path: leaks(house, response) for path, response in answers.items() if leaks(house, response)} == {}
    rows = answers["/api/v1/workloads"].json()
    assert {row["namespace"] for row in rows["rows"]} == {SEEN} and rows["of"] == len(house.workloads(SEEN))
    assert {row["namespace"] for row in answers["/api/v1/changes"].json()["rows"]} == {SEEN}


def test_plans_and_policies_of_ones_own_are_read_and_those_of_others_are_as_if_they_were_not_there(
    house: House,
) -> None:
    browser, other = house.as_("admin-there"), next(name for name in house.names if name != SEEN)
    own = [f"/api/v1/{kind}/{SEEN}/mine" for kind in ("reservations", "autopilot/policies")]
    assert [browser.get(path).status_code for path in own] == [200, 200]
    assert [row["plan"]["name"] for row in browser.get("/api/v1/reservations").json()] == ["mine"]
    assert [row["policy"] for row in browser.get("/api/v1/autopilot/status").json()["rows"]] == ["mine"]
    assert browser.get("/api/v1/reservations/calendar.ics?days=60").status_code == 200
    for kind in ("reservations", "autopilot/policies"):
        theirs, never = (browser.get(f"/api/v1/{kind}/{other}/{name}") for name in (f"of-{other}", "nothing"))
        outcomes = [
            (response.status_code, response.text.replace(f"of-{other}", "nothing")) for response in (theirs, never)
        ]
        assert outcomes[0] == outcomes[1] and outcomes[0][0] in (403, 404), kind


# --- the generated list of what limits each answer ------------------------------------------------------------------
def test_the_page_of_what_limits_each_answer_is_the_programs_own_and_knows_every_path() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "reading.md").read_text(encoding="utf-8")
    assert text == f"{write_reading.page()}\n", "run: python -m tools.write_reading > docs/reading.md"
    tables = {f"/{name}" for name in SCHEMAS}
    assert {path for path, _ in write_reading.reads()} == tables | write_reading.PATHS.keys()
    assert {page.path for page in pages.ALL} == write_reading.PAGES.keys()
    shown = {path for paths in write_reading.PAGES.values() for path in paths}
    assert shown <= tables | write_reading.PATHS.keys()


def test_each_answer_is_limited_as_the_page_says(house: House) -> None:
    narrow, wide = house.as_("admin-there"), house.as_("everywhere")
    counter: Counter[Limit] = Counter()
    wrong: dict[str, tuple[str, str]] = {}
    for path, _ in write_reading.reads():
        limit, address = write_reading.limit_of(path), f"/api/v1{path}"
        if "{" not in address and limit is not Limit.CALLER:
            own, widest = narrow.get(address), wide.get(address)
            if leaks(house, own) or not _is_limited(limit, own, widest):
                wrong[path] = (own.text[:500], widest.text[:500])
            counter[limit] += own.status_code == widest.status_code
    assert wrong == {}
    assert counter[Limit.ROWS] >= 15 and counter[Limit.CLUSTER] >= 3 and counter[Limit.PARTS] >= 4, counter


def _is_limited(limit: Limit, own: Any, widest: Any) -> bool:
    """Whether the answer to somebody of one namespace is what the limit leaves of the answer to who reads all."""
    if limit is Limit.ALL:
        return bool(own.status_code == 404)
    if limit is Limit.CLUSTER:
        outcomes = [(response.status_code, _without_version(response.text)) for response in (own, widest)]
        return outcomes[0] == outcomes[1]
    if limit is Limit.ROWS and own.status_code == 200 and '"rows"' in own.text:
        return _places(own) <= {SEEN, ""} and len(own.json()["rows"]) <= len(widest.json()["rows"])
    return bool(own.status_code == widest.status_code)


def _without_version(text: str) -> str:
    """An answer without the version of the results, which differs for people who read other namespaces."""
    return re.sub(r'"version":"[^"]*"', "", text)


def _places(response: Any) -> set[str]:
    """Namespaces of the rows: of their column, or of what they name as NAMESPACE/NAME."""
    rows = response.json()["rows"]
    return {str(row.get("namespace", str(row.get("pod", "")).partition("/")[0]) or "") for row in rows}


def test_no_callback_on_any_page_names_a_namespace_in_which_one_has_no_role(house: House) -> None:
    browser, mentions = house.as_("viewer-there"), 0
    for page, target, response in drawn(house, browser, showing(house)):
        assert response.status_code in (200, 204), (page, target)
        assert leaks(house, response) == set(), (page, target)
        mentions += SEEN.encode() in response.content
    assert mentions > 5  # it is about their own namespace


@pytest.mark.parametrize("role", [Role.ADMIN, *full(Role.OWNER, Role.APPROVER)])
def test_no_page_names_a_namespace_in_which_who_acts_has_no_role(house: House, role: Role) -> None:
    browser = house.as_(f"{role.value}-there")
    page = [target for target in showing(house) if target.output == "page.children"]
    assert len(page) == 1
    for path, _, response in drawn(house, browser, page):
        assert response.status_code == 200 and leaks(house, response) == set(), path


def test_what_is_asked_for_by_name_elsewhere_is_as_if_it_were_not_there(house: House) -> None:
    other = next(name for name in house.names if name != SEEN)
    row = next(r for r in house.snapshot.tables[RECOMMENDATIONS.name].read().rows() if r["namespace"] == other)
    kind, name, container = row["kind"], row["workload"], row["container"]
    paths = (
        f"/api/v1/workloads/{other}/{kind}/{name}",
        f"/api/v1/explain?namespace={other}&kind={kind}&workload={name}&container={container}",
        f"/api/v1/forecast?scope=workload&namespace={other}&kind={kind}&name={name}&resource=cpu",
        "/api/v1/changes/" + f"{[r['namespace'] for r in _workloads(house.snapshot)].index(other):012x}",
        "/api/v1/backtest",
    )
    narrow, wide = house.as_("admin-there"), house.as_("everywhere")
    assert [narrow.get(path).status_code for path in paths] == [404] * 5
    assert [wide.get(path).status_code for path in paths[:4]] == [200] * 4
    body = narrow.get(f"/api/v1/workloads?ns={other}").json()
    assert (body["total"], body["rows"]) == (0, [])


@pytest.mark.parametrize("act", ["rollback", "verify", "confirm", "decline"])
def test_a_change_of_others_is_answered_like_one_that_there_never_was(house: House, act: str) -> None:
    browser = house.as_("admin-there")
    foreign = [r["namespace"] != SEEN for r in _workloads(house.snapshot)].index(True)
    answers = [browser.post(f"/api/v1/changes/{id_}/{act}", json={}) for id_ in (f"{foreign:012x}", "f" * 12)]
    assert leaks(house, answers[0]) == set()
    outcomes = [(a.status_code, a.json()["message"].replace(f"{foreign:012x}", "f" * 12)) for a in answers]
    assert outcomes[0] == outcomes[1] and outcomes[0][0] in (403, 404, 422)


@pytest.mark.parametrize("path", ["queues/quotas", "queues/pods", "rebalance/moves", "rebalance/jobs", "workloads"])
def test_filters_counts_and_order_do_not_tell_whether_a_name_of_others_exists(house: House, path: str) -> None:
    browser, other = house.as_("viewer-there"), next(name for name in house.names if name != SEEN)
    names = (other, f"q-{other}", "web-1", "nobody-at-all")
    for key, form in (("q", "json"), ("row", "json"), ("q", "csv")):
        answers = [browser.get(f"/api/v1/{path}?{key}={word}x*&format={form}") for word in names]
        assert {a.status_code for a in answers} == {200}
        assert len({a.text for a in answers}) == 1, (path, key)
    listings = [browser.get(f"/api/v1/{path}?q={word}") for word in (other, "nobody-at-all")]
    assert [a.json()["total"] for a in listings] == [0, 0]
    assert listings[0].json()["of"] == len(browser.get(f"/api/v1/{path}").json()["rows"])


def test_the_same_sweep_does_find_all_of_them_for_who_reads_everything(house: House) -> None:
    browser = house.as_("everywhere")
    texts = set().union(*(leaks(house, browser.get(path)) for path in endpoints(house)))
    assert texts >= (set(house.names) - {SEEN}) | {canaries.MARKS[0].decode()}


def test_whom_no_rule_names_reads_nothing(house: House) -> None:
    response = Browser(house.url, **{"X-Forwarded-User": "nina"}).get("/api/v1/workloads")
    assert response.status_code == 403 and "nina has no role in this dashboard" in response.json()["message"]


def test_totals_say_of_what_they_are(house: House) -> None:
    frame = next(t for t in showing(house) if "chips.children" in t.output)
    body = next(t for t in showing(house) if t.output == "page.children")
    for group, is_partial in (("viewer-there", True), ("everywhere", False)):
        browser = house.as_(group)
        assert (OF_THESE in sweep.press(browser, frame, addressed("")).text) == is_partial
        assert (OF_THESE in sweep.press(browser, body, addressed("")).text) == is_partial
        assert (NOTE in browser.get("/api/v1/overview").text) == is_partial


def test_probes_answer_without_a_person(house: House) -> None:
    # The age is a number as long as the results are seen, whoever may read them.
    text = Browser(house.url).get("/metrics").text
    assert re.search(r"cotenant_dashboard_data_age_seconds \d", text)


# --- what is narrowed -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("group", ["viewer-there", "everywhere"])
def test_how_much_the_ledger_holds_is_told_to_who_may_read_all_of_it(house: House, group: str) -> None:
    # There is one row for each workload of every namespace, and those of what was put off: more than one's own.
    browser, sees_all = house.as_(group), group == "everywhere"
    health = browser.get("/api/v1/ledger").json()
    assert (health["rows"] is not None) == sees_all and (health["bad_row"], health["words"]) == (0, "")
    assert sees_all or health["notes"] == []
    page = next(t for t in showing(house) if t.output == "page.children")
    text = sweep.press(browser, page, addressed("changes")).text
    assert ("Audit log consistent: " in text) == sees_all
    assert ("The entries of the audit log are consistent" in text) == (not sees_all)
    kept_count = browser.get("/api/v1/overview").json()["kept_recommendations"]
    assert (kept_count is not None) == sees_all


def test_counts_and_sums_over_all_namespaces_are_those_of_the_whole(house: House) -> None:
    full_overview = house.snapshot.overview
    overview = filter_snapshot(house.snapshot, frozenset(house.names)).overview
    assert full_overview is not None and overview is not None
    ledger_totals: dict[str, Any] = {
        "kept_recommendations": full_overview.kept_recommendations,
        "kept_seconds": full_overview.kept_seconds,
    }
    assert replace(overview, notes=full_overview.notes, **ledger_totals) == full_overview


def test_a_text_about_a_node_names_nobody_whom_one_does_not_see(house: House) -> None:
    other = next(name for name in house.names if name != SEEN)
    rows = [
        {
            "node": "n1",
            "namespace": SEEN,
            "pod": "web-1",
            "why": f"{other}/batch-7 takes the cache; {SEEN}/web-1 waits",
        },
        {"node": "n1", "why": f"2 cores, for {other}/batch-7."},
        {"node": "n1", "namespace": other, "pod": "batch-7", "why": "it was asked to leave"},
    ]
    tables = {**house.snapshot.tables, ENFORCEMENT.name: Relation.of(Table.from_rows(ENFORCEMENT, rows))}
    table = filter_snapshot(replace(house.snapshot, tables=tables), frozenset({SEEN})).tables[ENFORCEMENT.name].read()
    assert [row["why"] for row in table.rows()] == [HIDDEN, HIDDEN]  # "2 cores" is an amount of theirs


def test_rows_of_nodes_and_of_the_cluster_stay(house: House) -> None:
    snapshot = filter_snapshot(house.snapshot, frozenset())
    assert len(snapshot.tables["nodes"]) == SPEC.nodes and len(snapshot.tables[WORKLOADS.name]) == 0
    assert {row["scope"] for row in snapshot.tables[FORECASTS.name].read().rows()} == {"cluster", "node"}
    assert {row["kind"] for row in snapshot.tables[FINDINGS.name].read().rows()} <= {"Node"}


def test_people_with_other_namespaces_get_another_version(house: House) -> None:
    some = house.names[:4]
    versions = {filter_snapshot(house.snapshot, frozenset({name})).version for name in some}
    assert len(versions | {house.snapshot.version}) == len(some) + 1


def test_roles_say_what_one_reads() -> None:
    assert Person("a", grants=(Grant(Role.OWNER, ("a", "b")), Grant(Role.VIEWER, ("c",)))).reads == frozenset("abc")
    assert Person("a", grants=(Grant(Role.OWNER, ("a",)), Grant(Role.VIEWER))).reads is None
    assert Person("a", grants=()).reads == frozenset()
