"""Every callback and every endpoint of the acting dashboard, for every role, over real HTTP: 0 unauthorised changes.

The service behind it has all rights in the cluster, so that nothing but our own roles stands in the way. The same
values that somebody without the right sends in vain do change something for an administrator.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import requests
import yaml

from cotenant.autopilot.service import autopilot_service_of
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import Writer
from cotenant.base.kube.connection import ApiRequest
from cotenant.base.kubernetes.intent import Address, Create
from cotenant.base.kubernetes.moments import moment
from cotenant.base.ledger.chain import LedgerRow
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.people import RIGHTS, Grant, Person, Right, Role
from cotenant.base.process.clock import FixedClock
from cotenant.changes.access.configured_service import change_service_of
from cotenant.changes.access.kubeconfig_access import kubeconfig_door
from cotenant.changes.model.service import ChangeRequest
from cotenant.dashboard.autopilot.policy_editor import TEMPLATE
from cotenant.dashboard.autopilot.policy_form import as_yaml
from cotenant.dashboard.changes import review as reviewing
from cotenant.dashboard.sources.source import StoreSource
from cotenant.scheduler_ext.rebalance.moves.service import move_service_of
from cotenant.scheduler_ext.reservations.acts import MakePlan
from cotenant.scheduler_ext.reservations.model.plan import Span
from cotenant.scheduler_ext.reservations.model.plan_service import PlanTerms
from cotenant.scheduler_ext.reservations.service.service import plan_service_of
from tests.cluster.crds import FOLDER
from tests.support import access, acting, sweep
from tests.support.access import Browser
from tests.support.acting import Prepared, Scene
from tests.support.dashboard import served
from tests.support.sweep import Target, Values

pytestmark = [pytest.mark.slow, pytest.mark.server]
HOUSE = Person("house", grants=(Grant(Role.ADMIN),))
HOUR_SECONDS = 3600
HERE, ELSEWHERE = "here", "elsewhere"
ROLES = (Role.VIEWER, Role.OWNER, Role.APPROVER, Role.ADMIN)
RULES = [
    *({"role": role.value, "group": f"{role.value}-{HERE}"} for role in ROLES),
    *({"role": role.value, "group": f"{role.value}-{ELSEWHERE}", "namespaces": [ELSEWHERE]} for role in ROLES),
]
OPEN = {"/livez", "/readyz", "/metrics"}


@dataclass(frozen=True)
class House:
    """An acting dashboard and what it could change."""

    cluster: Scene
    app: Any
    url: str
    values: Values

    @property
    def targets(self) -> list[Target]:
        return sweep.targets(self.app)

    def as_(self, role: Role, where: str) -> Browser:
        browser = Browser(
            self.url, **{"X-Forwarded-User": f"{role.value}@x", "X-Forwarded-Groups": f"{role.value}-{where}"}
        )
        browser.get("/", page=True)
        return browser

    def rows(self) -> list[LedgerRow]:
        """Of the ledger."""
        ledger = Ledger(Path(self.cluster.settings.actions.ledger), reading=True)
        ledger_rows = list(ledger.entries())
        ledger.close()
        return ledger_rows

    def state(self) -> tuple[int, str]:
        """Rows of the ledger, and the cluster's revision, which every write moves."""
        rows = len(self.rows())
        client = self.cluster.client
        response = client.request("list", ApiRequest(f"/api/v1/namespaces/{self.cluster.namespace}/pods?limit=1"))
        client.close()
        return rows, json.loads(response.body)["metadata"]["resourceVersion"]


@pytest.fixture(scope="module")
def prepared_store(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return acting.prepared(tmp_path_factory.mktemp("prepared"))


@pytest.fixture(scope="module")
def house(prepared_store: Prepared, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with acting.embedded(tmp_path_factory.mktemp("house"), prepared_store) as cluster:
        yield from _opened(cluster)


@pytest.fixture
def fresh(prepared_store: Prepared, tmp_path: Path) -> Iterator[House]:
    with acting.embedded(tmp_path, prepared_store) as cluster:
        yield from _opened(cluster)


def _opened(cluster: Scene) -> Iterator[House]:
    """With one change in force, so that there is something to roll back."""
    door = kubeconfig_door(cluster.settings.kube)
    service = change_service_of(cluster.settings, cluster.store, door)
    plans = plan_service_of(cluster.settings, door, FixedClock(cluster.end_seconds))
    moves = move_service_of(cluster.settings, door, FixedClock(cluster.end_seconds))
    by_proxy = access.by_proxy("127.0.0.1/32", roles=RULES)
    autopilot = autopilot_service_of(cluster.settings, lambda _namespace: [], door, FixedClock(cluster.end_seconds))
    app = acting.app_of(cluster, access=by_proxy, changes=service, plans=plans, moves=moves, autopilot=autopilot)
    first, second = cluster.acceptable()[:2]
    _install_kinds(cluster)
    (done,) = service.accept(HOUSE, ChangeRequest((first,), key="00000000"))
    ladder = _ladder(cluster, {first, second})
    begin = cluster.end_seconds + 6 * HOUR_SECONDS
    plan = plans.do(HOUSE, MakePlan(workload=second, terms=PlanTerms(1, window=Span(begin, begin + HOUR_SECONDS))))
    with served(app) as url:
        results = StoreSource(cluster.store, cluster.settings.dashboard).snapshot().version
        names = reviewing.name_of(second), done.change.id, f"{plan.namespace}/{plan.name}"
        yield House(cluster, app, url, _values(*names, ladder, url, results))


def _ladder(cluster: Scene, others: set[WorkloadRef]) -> str:
    """Id of a ladder whose first step is in force, of a workload besides the others: its cuts are taken in steps."""
    guardrails = msgspec.structs.replace(acting.LENIENT, most_cpu_cut=0.3, most_memory_cut=0.3)
    actions = msgspec.structs.replace(cluster.settings.actions, guardrails=guardrails)
    service = change_service_of(msgspec.structs.replace(cluster.settings, actions=actions), cluster.store)
    reviews = service.review(HOUSE, ChangeRequest(cluster.acceptable()))
    ref = next(
        workload_review.workload
        for workload_review in reviews
        if not workload_review.no_ladder and workload_review.workload not in others
    )
    (taken,) = service.accept(HOUSE, ChangeRequest((ref,), key="00000001", ladder=True))
    assert taken.change.ladder
    return str(taken.change.ladder)


def _install_kinds(cluster: Scene) -> None:
    """Of plans and of policies."""
    client, kind = cluster.client, Address("apiextensions.k8s.io/v1", "customresourcedefinitions", "")
    for name in ("reservationplans", "autopilotpolicies"):
        body = yaml.safe_load((FOLDER / f"{name}.cotenant.dev.yaml").read_text())
        Writer(client, "test", cap_bytes=1 << 20).send(Create(kind, body, why="test"))
    client.close()


def _values(name: str, change: str, plan: str, ladder: str, url: str, results: str) -> Values:
    """What does something: a workload to accept and to put off, a change to roll back, a plan and a ladder to end.

    results: version of the results that a review is of, whatever has been accepted since.
    """
    version = Browser(url, **{"X-Forwarded-User": "x"}).get("/api/v1/recommendations?limit=1").json()["version"]
    shown_review = {"ids": [name], "version": results, "method": "template"}
    policy = as_yaml(_policy(name.partition("/")[0]))
    return Values(
        plain={
            "url.search": f"?ids={name}&step=confirm&key=abcdef01&because=test",
            "url.pathname": f"/{reviewing.PATH}",
            "review-seen.data": shown_review,
            "version.data": version,
            "put-off-of.data": [name],
            "put-off-days.value": "7",
            "put-off-reason.value": "not now",
            "plan-ref.data": plan,
            "plan-approve-scope.value": "Once",
            "plan-approve-of.data": 1,
            "plan-policy-auto.checked": True,
            "plan-reject-reason.value": "no",
            "plan-skip-start.value": "0",
            "plan-unskip-start.value": "0",
            "plan-edit-of.data": 1,
            "plan-asked.data": {"act": "approve"},
            "plan-new-asked.data": {"workload": ""},
            "moves-asked.data": {"act": "withdraw", "of": "move", "name": "job"},
            "put-off-asked.data": {"kind": "snooze", "of": name},
            "recall-asked.data": {"ref": name},
            "review-asked.data": {"act": "roll-back", "ids": change},
            "ladder-asked.data": {"ladder": ladder},
            "change-back.data": {"what": "rollback"},
            "change-verify.data": {"clicked": 1},
            "change-settle.data": {"clicked": 1},
            "change-second.data": {"clicked": 1},
            "change-decline.data": {"clicked": 1},
            "autopilot-asked.data": {"act": "resume", "name": "*"},
            "autopilot-chosen.data": {"act": "resume", "name": "*"},
            "autopilot-reason.value": "the incident is over",
            "autopilot-bundle-asked.data": {"form": "kustomize", "namespaces": name.partition("/")[0]},
            "policy-text.value": policy,
            "policy-previewed.data": policy,
            "moves-chosen.data": [f"{name.partition('/')[0]}/pod"],
        },
        parts={
            "ref": name,
            "ids": change,
        },
    )


def _policy(namespace: str) -> dict[str, Any]:
    return {**TEMPLATE, "metadata": {"name": "nightly", "namespace": namespace}}


def may(role: Role, right: Right) -> bool:
    return right in RIGHTS[role]


# --- the sweep means something ---------------------------------------------------------------------------------------
def test_the_same_values_do_change_something_for_an_administrator(fresh: House) -> None:
    browser, before = fresh.as_(Role.ADMIN, HERE), fresh.state()
    answers = [sweep.press(browser, target, fresh.values) for target in fresh.targets if target.takes]
    assert {response.status_code for response in answers} <= {200, 204}
    service = fresh.cluster.service()
    events = [row.event for change in service.changes(HOUSE) for row in service.story(HOUSE, change.change.id)]
    # The change and the step that were accepted before, and one more.
    assert events.count("accepted") == 3 and "applied" in events and "rolled-back" in events
    assert {"plan-approved", "plan-rejected", "ladder-stopped"} <= {row.event for row in fresh.rows()}
    after = fresh.state()
    assert after[0] > before[0] and after[1] != before[1]


# --- nobody who may not ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("role", ROLES)
def test_a_callback_that_says_what_it_takes_refuses_whoever_lacks_it_in_words(house: House, role: Role) -> None:
    browser, before = house.as_(role, HERE), house.state()
    lacking = [target for target in house.targets if target.takes and not may(role, target.takes)]
    for target in lacking:
        response = sweep.press(browser, target, house.values)
        assert response.status_code == 200, target
        assert f"may not {target.takes}" in sweep.spoken_text(response), target
    assert house.state() == before
    assert bool(lacking) == (role is not Role.ADMIN)


@pytest.mark.parametrize("role", ROLES)
def test_a_role_in_another_namespace_changes_nothing_here(house: House, role: Role) -> None:
    browser, before = house.as_(role, ELSEWHERE), house.state()
    for target in house.targets:
        if target.takes:
            assert sweep.press(browser, target, house.values).status_code in (200, 204), target
    assert house.state() == before


def test_a_callback_that_takes_no_right_changes_nothing_for_anybody(house: House) -> None:
    browser, before = house.as_(Role.ADMIN, HERE), house.state()
    showing = [target for target in house.targets if target.takes is None]
    for target in showing:
        assert sweep.press(browser, target, house.values).status_code in (200, 204), target
    assert len(showing) > 20 and house.state() == before


def test_a_stranger_reaches_no_callback(house: House) -> None:
    browser, before = Browser(house.url), house.state()
    browser.get("/", page=True)
    for target in house.targets:
        assert sweep.press(browser, target, house.values).status_code in (401, 403), target
    assert house.state() == before


def test_a_callback_with_somebody_elses_token_is_not_run(house: House) -> None:
    browser, before = house.as_(Role.ADMIN, HERE), house.state()
    for target in house.targets:
        body = sweep.body(target, house.values)
        assert browser.post(f"/{sweep.UPDATE}", token="0" * 64, json=body).status_code == 403, target
    assert house.state() == before


# --- endpoints -------------------------------------------------------------------------------------------------------
def sent(house: House, path: str) -> dict[str, Any]:
    """A body that the endpoint takes; an endpoint that is not known here gets none, and the test below says so."""
    begin = house.cluster.end_seconds + 9 * HOUR_SECONDS
    workloads = {"workloads": [house.values.parts["ref"]]}
    window = {"pods": 1, "start": moment(begin), "end": moment(begin + HOUR_SECONDS)}
    bodies: dict[str, dict[str, Any]] = {
        "/reviews": workloads,
        "/bundles": {**workloads, "form": "ssa"},
        "/bundles/commit": {**workloads, "branch": "smaller", "write": True},
        "/changes": workloads,
        "/postponements": {**workloads, "days": 7, "reason": "not now"},
        "/postponements/recall": workloads,
        "/reservations": {**window, "workload": house.values.parts["ref"]},
        "/reservations/{namespace}/{name}": {**window, "generation": 1},
        "/reservations/{namespace}/{name}/approve": {"scope": "Once", "generation": 1},
        "/reservations/{namespace}/{name}/reject": {"reason": "no"},
        "/reservations/{namespace}/{name}/policy": {"auto": True},
        "/reservations/{namespace}/{name}/skip": {"start": moment(begin)},
        "/reservations/{namespace}/{name}/unskip": {"start": moment(begin)},
        "/autopilot/pause": {"reason": "test"},
        "/autopilot/policies/{namespace}/{name}/mode": {"mode": "Observe"},
        "/autopilot/preview": {"policy": _policy(house.cluster.namespace)},
        "/autopilot/policies": {"policy": _policy(house.cluster.namespace)},
        "/ladders/{ladder}/stop": {"why": "test"},
        "/ladders/{ladder}/back": {"step": 0},
        "/rebalance/approvals": {"pods": [f"{house.cluster.namespace}/pod"]},
        "/rebalance/emptying/approvals": {"nodes": ["node"]},
    }
    return bodies.get(path.removeprefix("/api/v1"), {})


def ask(house: House, browser: Browser, method: str, path: str) -> requests.Response:
    """One write, with a key of its own."""
    batch = "00000000" if "batches" in path else house.values.parts["ids"]
    namespace, _, name = house.values.plain["plan-ref.data"].partition("/")
    ladder = house.values.plain["ladder-asked.data"]["ladder"]
    address = sweep.filled(path, {"change": batch, "namespace": namespace, "name": name, "ladder": ladder})
    headers = {
        "X-CSRFToken": browser.cookie("_csrf_token"),
        "Origin": house.url,
        "Idempotency-Key": secrets.token_hex(8),
    }
    response: requests.Response = browser.session.request(
        method, house.url + address, json=sent(house, path), headers=headers, timeout=60
    )
    return response


def acting_endpoints(house: House) -> list[tuple[str, str]]:
    return [(method, path) for method, path in sweep.writes(house.app) if "/auth/" not in path]


def test_the_same_endpoints_do_act_for_an_administrator(fresh: House) -> None:
    browser = fresh.as_(Role.ADMIN, HERE)
    statuses = {
        (method, path): ask(fresh, browser, method, path).status_code for method, path in acting_endpoints(fresh)
    }
    refused = {f"{method} {path}": status for (method, path), status in statuses.items() if status >= 300}
    # What they leave behind stands in each other's way: a plan that is rejected has nothing to skip, for one.
    assert set(refused.values()) <= {404, 409, 422, 400}, refused
    assert len(statuses) >= 12 and len(refused) <= len(statuses) / 2, refused
    assert {"accepted", "applied", "rolled-back", "plan-approved"} <= {row.event for row in fresh.rows()}


@pytest.mark.parametrize("where", [HERE, ELSEWHERE])
def test_no_endpoint_acts_for_a_viewer_or_for_a_role_in_another_namespace(house: House, where: str) -> None:
    before = house.state()
    for role in (Role.VIEWER,) if where == HERE else ROLES:
        browser = house.as_(role, where)
        for method, path in acting_endpoints(house):
            if path.endswith("/autopilot/pause") and may(role, Right.APPROVE):
                continue  # whoever approves anywhere may stop everything
            response = ask(house, browser, method, path)
            settles = path.endswith("/settle") and role is Role.ADMIN  # of all namespaces; there is nothing to settle
            assert response.status_code in ((200, 403) if settles else (403, 404)), (role, method, path, response.text)
    assert house.state() == before


def test_a_stranger_gets_no_endpoint_but_probes(house: House) -> None:
    before = house.state()
    for path in sweep.reads(house.app):
        response = Browser(house.url).get(sweep.filled(path, {}))
        assert (response.status_code == 200) == (path in OPEN), path
        assert response.status_code in (200, 401), path
    for method, path in sweep.writes(house.app):
        response = Browser(house.url).session.request(method, house.url + sweep.filled(path, {}), json={}, timeout=60)
        assert response.status_code in (401, 403), (method, path)
    assert house.state() == before


def test_reading_endpoints_change_nothing_for_an_administrator(house: House) -> None:
    browser, before = house.as_(Role.ADMIN, HERE), house.state()
    for path in sweep.reads(house.app):
        assert browser.get(sweep.filled(path, {})).status_code < 500, path
    assert house.state() == before
