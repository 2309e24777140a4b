"""What a dialog lists of a plan, a move or the autopilot is what a server then holds: each object, field by field."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from dash.development.base_component import Component
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.errors import CotenantError
from cotenant.base.identity import WorkloadRef
from cotenant.base.people import Role
from cotenant.base.store import Store
from cotenant.changes.sent_writes import object_lines
from cotenant.dashboard.autopilot import acting, policy_editor, policy_form
from cotenant.dashboard.frame.view import DashboardContext, View
from cotenant.dashboard.rebalance import approval
from cotenant.dashboard.reservations import callbacks
from cotenant.dashboard.sources.source import StoreSource
from cotenant.scheduler_ext.rebalance.model.move_service import TO_BE_EMPTIED
from cotenant.scheduler_ext.reservations.acts import (
    EditPlan,
    MakePlan,
    RejectPlan,
    RestoreOccurrence,
    SetPlanPolicy,
    SkipOccurrence,
)
from cotenant.scheduler_ext.reservations.model.plan import ApprovalPolicy, DecisionScope, Recurrence, Span
from cotenant.scheduler_ext.reservations.model.plan_service import AT_THAT_MOMENT, PlanRef, PlanService, PlanTerms
from cotenant.scheduler_ext.reservations.service.service import ClusterPlanService
from tests.cluster.api import Api, Json
from tests.support import autopilot as autopilots
from tests.support import dashboard as support
from tests.support import moves, plans
from tests.support.autopilot import EmbeddedAutopilot
from tests.support.moves import APPROVER, GROUP, HOT, MoveScene
from tests.support.plans import HOUR, NAMESPACE, PLANS, SIX, Scene, person

server = pytest.mark.server
PEAK, DAILY = PlanRef(NAMESPACE, "web-peak"), PlanRef(NAMESPACE, "daily")
RULE: Final = {"schedule": "0 18 * * *", "timeZone": "Etc/UTC", "duration": "2h", "skip": []}
ADMIN: Final = person(Role.ADMIN)
Line = tuple[str, str, str, str]
"""Object, field, before, after."""


# ---- what a server has, read by other means than the product's


def stored(api: Api) -> dict[str, Json]:
    """Every object that plans, moves and the autopilot may touch, by how people write it."""
    objects = {}
    for kind, path in (("reservationplans", PLANS), ("podmigrationjobs", GROUP), ("autopilotpolicies", PLANS),
                       ("nodes", "/api/v1"), ("pods", "/api/v1"), ("configmaps", "/api/v1")):  # fmt: skip
        if path != "/api/v1" and not api.exists(f"{path}/{kind}"):
            continue
        for body in api.items(f"{path}/{kind}"):
            where = body["metadata"].get("namespace")
            objects["/".join(part for part in (kind, where, body["metadata"]["name"]) if part)] = body
    return objects


def flat(body: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(body, dict):
        for key, inner in body.items():
            yield from flat(inner, f"{at}/{key}")
    elif isinstance(body, list):
        for index, inner in enumerate(body):
            yield from flat(inner, f"{at}/{index}")
    else:
        yield at.removeprefix("/"), body


KEPT: Final = re.compile(
    r"metadata/(uid|resourceVersion|generation|creationTimestamp|name|namespace|managedFields.*)|apiVersion|kind"
)


def as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def changed(before: Mapping[str, Json], after: Mapping[str, Json]) -> set[Line]:
    """What differs between two states of a server; the server's own fields left out."""
    lines = set()
    for name in {*before, *after}:
        old, new = dict(flat(before.get(name, {}))), dict(flat(after.get(name, {})))
        for field in {*old, *new}:
            if old.get(field) != new.get(field) and not KEPT.fullmatch(field):
                texts = [as_text(state[field]) if field in state else "not set" for state in (old, new)]
                lines.add((name, field, texts[0], AT_THAT_MOMENT if field == "spec/approval/at" else texts[1]))
    return lines


def text_of(part: Any) -> str:
    """The words of a drawn part, without spaces between its pieces."""
    if isinstance(part, str):
        return part
    if isinstance(part, list | tuple):
        return "".join(text_of(child) for child in part)
    return text_of(getattr(part, "children", None) or "")


def listed(dialog: Component) -> set[Line]:
    """The lines that a drawn dialog lists, read from what it draws."""
    lines: set[Line] = set()
    parts = [dialog, *dialog._traverse()]
    for part in parts:
        if "written-lines" in str(getattr(part, "className", "")):
            for target, fields in (item.children for item in part.children):
                for field_line in fields.children:
                    field, _, values = text_of(field_line).partition(": ")
                    now, _, new = values.partition(" → ")
                    lines.add((target, field, now, new))
    return lines


def view_of(folder: Path, seconds: Callable[[], float], **services: Any) -> View:
    source = StoreSource(Store((folder / "none").as_uri(), "x"), support.QUICK)
    return View(source, support.QUICK, seconds, DashboardContext(**services))


# ---- plans


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Scene]:
    with plans.embedded(tmp_path) as embedded_cluster:
        embedded_cluster.plan()
        embedded_cluster.plan("daily", source="Recurring", recurring={**RULE, "skip": [plans.moment(SIX + 48 * HOUR)]})
        embedded_cluster.plan("deployment-web", source="Forecast")
        yield embedded_cluster


def pages(cluster: Scene, what: str, ref: PlanRef) -> set[Line]:
    view = view_of(cluster.folder, cluster.clock.now_seconds, current_user=lambda: ADMIN, plans=cluster.service())
    return listed(callbacks.open_form(view, what, ref))


Request = Callable[[PlanService], Any]
FORECAST: Final = PlanRef(NAMESPACE, "deployment-web")
TERMS: Final = PlanTerms(3, window=Span(SIX, SIX + HOUR), standby=1, lead_seconds=600)
WEB: Final = WorkloadRef(NAMESPACE, "Deployment", "web")
MONDAYS: Final = PlanTerms(2, recurring=Recurrence("0 6 * * 1", "Europe/Berlin", 1800.0))
ACTS: Final[Mapping[str, Request]] = {
    "approve once": lambda d: plans.approval(d, ADMIN, PEAK, DecisionScope.ONCE),
    "approve a series with a reason": lambda d: plans.approval(d, ADMIN, DAILY, reason="sale: 50 %"),
    "approve with standby": lambda d: plans.approval(d, ADMIN, PEAK, standby=2),
    "reject": lambda _: RejectPlan(plan=PEAK, reason="not now"),
    "skip": lambda _: SkipOccurrence(plan=DAILY, start_seconds=SIX),
    "skip a forecast's": lambda _: SkipOccurrence(plan=FORECAST, start_seconds=SIX),
    "restore": lambda _: RestoreOccurrence(plan=DAILY, start_seconds=SIX + 48 * HOUR),
    "edit": lambda d: EditPlan(plan=PEAK, terms=TERMS, generation=d.plan(ADMIN, PEAK).generation),
    "edit a forecast's": lambda d: EditPlan(plan=FORECAST, terms=TERMS, generation=d.plan(ADMIN, FORECAST).generation),
    "policy": lambda _: SetPlanPolicy(plan=PEAK, policy=ApprovalPolicy(True, 0.8, None, 12.5)),
    "make by hand": lambda _: MakePlan(workload=WEB, terms=TERMS),
    "make a schedule": lambda _: MakePlan(workload=WEB, terms=MONDAYS, name="mondays"),
}


def service_lines(service: ClusterPlanService, request: Any) -> set[Line]:
    lines = service.lines_of(ADMIN, request)
    assert len(lines) == len(set(lines))
    return {(line.target, line.pointer, line.now, line.new) for line in lines}


@pytest.mark.slow
@server
@pytest.mark.parametrize("name", ACTS)
def test_the_lines_of_every_act_on_a_plan_are_what_it_then_writes(cluster: Scene, name: str) -> None:
    service, before = cluster.service(), stored(cluster.api)
    lines = service_lines(service, ACTS[name](service))
    # nothing was written for the list: neither to the cluster nor to the ledger
    assert stored(cluster.api) == before and cluster.rows() == []
    cluster.clock.seconds += 90  # a person reads the list before the click
    service.do(ADMIN, ACTS[name](service))
    assert lines == changed(before, stored(cluster.api)) and lines


@server
@pytest.mark.parametrize(("first", "then"), [
    ("approve a series with a reason", "reject"), ("approve with standby", "approve once"), ("reject", "approve once"),
    ("reject", "approve with standby"),
])  # fmt: skip
def test_a_second_decision_lists_what_it_takes_back_of_the_first(cluster: Scene, first: str, then: str) -> None:
    service = cluster.service()
    service.do(ADMIN, ACTS[first](service))
    cluster.clock.seconds += 90
    before = stored(cluster.api)
    lines = service_lines(service, ACTS[then](service))
    service.do(ADMIN, ACTS[then](service))
    assert lines == changed(before, stored(cluster.api)) and lines


@server
@pytest.mark.parametrize(("what", "ref", "requests"), [
    ("approve", PEAK, [ACTS["approve once"]]),
    ("approve", DAILY, [lambda d: plans.approval(d, ADMIN, DAILY, DecisionScope.ONCE)]),
    ("skip", DAILY, [ACTS["skip"], ACTS["restore"]]),
    ("skip", FORECAST, [ACTS["skip a forecast's"]]),
])  # fmt: skip
def test_a_form_opens_with_the_lines_of_what_its_button_writes(
    cluster: Scene, what: str, ref: PlanRef, requests: Sequence[Request]
) -> None:
    before, lines = stored(cluster.api), pages(cluster, what, ref)
    service = cluster.service()
    for request in requests:
        service.do(ADMIN, request(service))
    written = changed(before, stored(cluster.api))
    if ref == DAILY and what == "skip":  # two forms, each with its own lines: one start out, the other back
        first, second = plans.moment(SIX), plans.moment(SIX + 48 * HOUR)
        target, skip = f"reservationplans/{DAILY}", "spec/recurring/skip"
        assert lines == {
            (target, f"{skip}/0", second, first), (target, f"{skip}/1", "not set", second),
            (target, f"{skip}/0", second, "not set"),
        }  # fmt: skip
    else:
        assert lines == written and lines


@server
def test_what_is_refused_is_not_listed_as_written(cluster: Scene) -> None:
    view = view_of(cluster.folder, cluster.clock.now_seconds, current_user=lambda: ADMIN, plans=cluster.service())
    cluster.say("web-peak", {"phase": "Missed"})
    request = plans.approval(cluster.service(), ADMIN, PEAK, DecisionScope.ONCE)
    (shown,) = callbacks.lines_of(view, request)
    assert "missed its last occurrence" in text_of(shown) and not listed(shown)
    with pytest.raises(CotenantError):
        cluster.service().lines_of(person(Role.VIEWER), request)


# ---- moves


def approve_lines(cluster: MoveScene, folder: Path, chosen: str, texts: approval.Approval) -> set[Line]:
    view = view_of(folder, cluster.clock.now_seconds, current_user=lambda: APPROVER, moves=cluster.service())
    return listed(approval.dry_run_form(view, chosen, texts))


@pytest.mark.slow
@server
@pytest.mark.parametrize("every", [False, True], ids=["one move", "every move"])
def test_the_lines_of_approved_moves_are_the_jobs_that_are_then_made(tmp_path: Path, every: bool) -> None:
    with moves.embedded(tmp_path) as move_cluster:
        rows = move_cluster.service().report(APPROVER).moves.rows()
        planned = [row["pod"] for row in rows if row["decision"] == "move"][: None if every else 1]
        before = stored(move_cluster.api)
        lines = approve_lines(move_cluster, tmp_path, approval.EVERY if every else planned[0], approval.MOVES)
        assert stored(move_cluster.api) == before and move_cluster.rows() == []
        outcomes = move_cluster.service().approve(APPROVER, planned)
        assert lines == changed(before, stored(move_cluster.api))
        assert len({line[0] for line in lines}) == len(planned) == (2 if every else 1)
        # who approves it is in the list, as it is on the job
        assert ("metadata/annotations/cotenant.dev/approved-by", "ann") in {(line[1], line[3]) for line in lines}
        # and what came of it is told with the same lines
        assert {(m.target, m.pointer, m.now, m.new) for outcome in outcomes for m in outcome.lines} == lines


@server
@pytest.mark.parametrize("taints", [(), ({"key": "team", "value": "a", "effect": "NoSchedule"},)], ids=["none", "one"])
def test_the_lines_of_a_node_to_be_emptied_are_the_mark_that_it_then_bears(
    tmp_path: Path, taints: Sequence[Mapping[str, str]]
) -> None:
    with moves.embedded(tmp_path) as move_cluster:
        # the cold node is below both
        low = {"lowThresholds": {"cpu": 35, "memory": 50}, "highThresholds": {"cpu": 100, "memory": 100}}
        move_cluster.configure({"name": "HighNodeLoad", "args": low})
        rows = move_cluster.service().emptying(APPROVER).emptying.rows()
        node = next(row["node"] for row in rows if row["decision"] == TO_BE_EMPTIED)
        if taints:
            spec = {"op": "add", "path": "/spec", "value": {"taints": list(taints)}}
            move_cluster.api.patch(f"/api/v1/nodes/{node}", [spec], "json")
        before = stored(move_cluster.api)
        lines = approve_lines(move_cluster, tmp_path, node, approval.NODES)
        assert stored(move_cluster.api) == before and move_cluster.rows() == []
        move_cluster.service().approve_nodes(APPROVER, [node], "night")
        assert lines == changed(before, stored(move_cluster.api))
        assert {line[1] for line in lines} == {f"spec/taints/{len(taints)}/{key}" for key in ("key", "value", "effect")}
        assert node != HOT


# ---- the autopilot


SWITCHES: Final = {
    "pause": ({"act": "pause", "name": "*"}, "incident"),
    "resume": ({"act": "resume", "name": "*"}, "over"),
    "resume a workload": ({"act": "resume", "name": "shop/Deployment/web"}, ""),
    "act": ({"act": "act", "name": autopilots.POLICY}, "as agreed"),
    "observe": ({"act": "observe", "name": autopilots.POLICY}, ""),
}


@pytest.fixture
def autopilot(tmp_path: Path) -> Iterator[EmbeddedAutopilot]:
    with autopilots.embedded(tmp_path) as embedded_autopilot:
        yield embedded_autopilot


def view_of_autopilot(autopilot: EmbeddedAutopilot, folder: Path) -> View:
    return view_of(folder, autopilot.clock.now_seconds, current_user=lambda: ADMIN, autopilot=autopilot.service())


@server
@pytest.mark.parametrize("name", SWITCHES)
def test_the_lines_of_a_switch_of_the_autopilot_are_what_it_then_writes(
    autopilot: EmbeddedAutopilot, tmp_path: Path, name: str
) -> None:
    request, reason = SWITCHES[name]
    if name == "observe":
        autopilot.service().act(ADMIN, autopilots.POLICY)
    view, before, rows = view_of_autopilot(autopilot, tmp_path), stored(autopilot.api), autopilot.events()
    form, chosen = acting.open_confirm_step(view, request["act"], request["name"])
    if reason:  # typed after the form was opened
        (frame,) = (part for part in form._traverse() if getattr(part, "id", "") == acting.LINES)
        frame.children = acting.act_lines(view, partial(acting.carry_out, ADMIN, chosen, reason))
    lines = listed(form)
    assert stored(autopilot.api) == before and autopilot.events() == rows
    acting.done(view, chosen, reason)
    assert lines == changed(before, stored(autopilot.api))
    # what a workload's rest depends on is the ledger's alone, and the form says so
    assert bool(lines) is (name != "resume a workload") is (acting.LEDGER_ALONE not in text_of(form))
    assert len(autopilot.events()) == len(rows) + 1


@server
@pytest.mark.parametrize("name", ["nightly", "another"])
def test_the_lines_below_a_previewed_policy_are_what_saving_it_writes(
    autopilot: EmbeddedAutopilot, tmp_path: Path, name: str
) -> None:
    view, before = view_of_autopilot(autopilot, tmp_path), stored(autopilot.api)
    body = {"metadata": {"name": name, "namespace": autopilots.NAMESPACE}, "spec": {"windows": [], "atOnce": 3}}
    spec = autopilots.SPEC if name == "nightly" else None
    shown = policy_editor.tonight(view, policy_form.as_yaml(body), spec, autopilot.service().try_policy(ADMIN, body))
    lines = listed(shown)
    assert stored(autopilot.api) == before
    autopilot.service().save_policy(ADMIN, body, spec)
    assert lines == changed(before, stored(autopilot.api)) and lines


# ---- the lines of any object


SCALARS = st.one_of(st.booleans(), st.integers(), st.text(max_size=5))
BODIES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)  # fmt: skip


@pytest.mark.slow
@given(
    st.dictionaries(st.text(max_size=4), BODIES, max_size=4), st.dictionaries(st.text(max_size=4), BODIES, max_size=4)
)
def test_lines_are_each_value_that_differs_once_and_none_of_what_is_equal(before: Json, after: Json) -> None:
    lines = object_lines("kind/name", before, after)
    assert object_lines("kind/name", after, after) == ()
    assert all(line.now != line.new for line in lines)
    assert {(line.pointer, line.new, line.now) for line in lines} == {
        (line.pointer, line.now, line.new) for line in object_lines("kind/name", after, before)
    }
