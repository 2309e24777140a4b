"""What each role of people does is let through by kubectl, REST and pages alike: what the shipped role says, no more.

The dashboard stands behind a proxy: its account may do everything below, and writes for whom the proxy names. All have
the dashboard's role admin, so that nothing but the cluster's rights stands in the way.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from cotenant.autopilot.service import autopilot_service_of
from cotenant.base.kubernetes.moments import moment
from cotenant.base.process.clock import SystemClock
from cotenant.base.settings.sections import KubeSettings
from cotenant.base.store import Store
from cotenant.changes.model.settings import ActionSettings
from cotenant.dashboard.app import create_app
from cotenant.dashboard.frame.view import DashboardContext
from cotenant.dashboard.sources.source import StoreSource
from cotenant.scheduler_ext.reservations.service.service import plan_service_of
from cotenant.settings import Settings
from tests.cluster.api import Api, ApiError
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import install_crd
from tests.cluster.waiting import wait_for
from tests.guards.scene import SHOP, Act, furnished, outcome
from tests.support import access, sweep
from tests.support import dashboard as support
from tests.support.access import Browser
from tests.support.sweep import Target, Values
from tools.write_guards import DEPLOY

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]
Json = dict[str, Any]
Need = tuple[str, str, str]
"""Verb, group, resource."""
OWN = "cotenant.dev"
PLANS = f"/apis/{OWN}/v1alpha1/namespaces/{SHOP}/reservationplans"
GROUP = "rbac.authorization.k8s.io"
BEGIN = float(int(SystemClock().now_seconds()) // 86400 * 86400 + 2 * 86400)
"""A midnight, at which the schedule of every plan below has an occurrence."""
SKIPPED = BEGIN + 86400
ROLES = (
    "cotenant-reader",
    "cotenant-planner",
    "cotenant-plan-approver",
    "cotenant-applier",
    "cotenant-mover",
    "cotenant-emptier",
    "cotenant-autopilot-approver",
)


@cache
def granted(role: str) -> frozenset[Need]:
    """By the file that is shipped."""
    texts = [(DEPLOY / name).read_text("utf-8") for name in ("planner.yaml", "applier.yaml", "rbac/reader.yaml")]
    bodies = [body for text in texts for body in yaml.safe_load_all(text)]
    (cluster_role,) = (b for b in bodies if b["kind"] == "ClusterRole" and b["metadata"]["name"] == role)
    return frozenset(
        (verb, group, resource)
        for rule in cluster_role["rules"]
        for group in rule.get("apiGroups", ())
        for resource in rule["resources"]
        for verb in rule["verbs"]
    )


@dataclass(frozen=True)
class Door:
    """One person at the three doors."""

    name: str
    kubeconfig: Path
    browser: Browser
    targets: Mapping[str, Target]
    plane: ControlPlane

    def kubectl(self, *arguments: str, text: str = "") -> None:
        try:
            self.plane.kubectl("-n", SHOP, *arguments, text=text, kubeconfig=self.kubeconfig)
        except subprocess.CalledProcessError as error:
            assert "orbidden" in error.stderr, error.stderr

    def merge(self, kind: str, name: str, patch: Json) -> None:
        self.kubectl("patch", kind, name, "--type=merge", "-p", json.dumps(patch))

    def rest(self, method: str, path: str, body: Json) -> None:
        headers = {"X-CSRFToken": self.browser.cookie("_csrf_token"), "Origin": self.browser.address}
        response = self.browser.session.request(
            method, f"{self.browser.address}/api/v1/{path}", json=body, headers=headers, timeout=60
        )
        assert response.status_code in (200, 201, 403), response.text


PODS_LATER = 5
DECISION = {"scope": "Series", "at": moment(BEGIN - 86400)}


def terms(pods: int) -> Json:
    return {"pods": pods, "schedule": "0 0 * * *", "zone": "Etc/UTC", "duration_seconds": 3600.0}


def spec_of(pods: int = 2) -> Json:
    """Of a plan with a window at each midnight, one of which is skipped."""
    return {
        "source": "Recurring",
        "owner": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "amount": {"perPod": {"cpu": "100m", "memory": "64Mi"}, "count": pods},
        "recurring": {
            "schedule": "0 0 * * *",
            "timeZone": "Etc/UTC",
            "duration": "1h",
            "skip": [moment(SKIPPED)],
        },
    }


def body_of(name: str) -> Json:
    return {
        "apiVersion": f"{OWN}/v1alpha1",
        "kind": "ReservationPlan",
        "metadata": {"name": name, "namespace": SHOP},
        "spec": spec_of(),
    }


def by_kubectl(patch: Callable[[str], Json]) -> Callable[[Door, str], None]:
    return lambda door, name: door.merge("reservationplans.cotenant.dev", name, patch(door.name))


def decision(word: str) -> Callable[[str], Json]:
    return lambda by: {"spec": {"approval": {"decision": word, "by": by, **DECISION}}}


def by_rest(method: str, act: str, body: Json) -> Callable[[Door, str], None]:
    return lambda door, name: door.rest(method, f"reservations/{SHOP}/{name}{act}", body)


def by_page(button: str, **values: Any) -> Callable[[Door, str], None]:
    inputs = {key.replace("_", "-") + ".value": value for key, value in values.items()}
    return lambda door, name: _press(door, button, {**inputs, "plan-ref.data": f"{SHOP}/{name}"})


def _press(door: Door, button: str, plain: Json) -> None:
    response = sweep.press(door.browser, door.targets[button], Values(plain, {}))
    assert response.status_code in (200, 204), response.text


PATCH, APPROVE, CREATE = ((verb, OWN, "reservationplans") for verb in ("patch", "approve", "create"))
RULE = {"schedule": "0 0 * * *", "timeZone": "Etc/UTC", "duration": "1h"}
ACTS: dict[str, tuple[set[Need], tuple[Callable[[Door, str], None], ...]]] = {
    "approve": (
        {PATCH, APPROVE},
        (
            by_kubectl(decision("Approved")),
            by_rest("POST", "/approve", {"scope": "Series", "generation": 1}),
            lambda door, name: _press(
                door,
                "plan-approve-now",
                {"plan-approve-scope.value": "Series", "plan-ref.data": f"{SHOP}/{name}", "plan-approve-of.data": 1},
            ),
        ),
    ),
    "reject": (
        {PATCH, APPROVE},
        (
            by_kubectl(decision("Rejected")),
            by_rest("POST", "/reject", {"reason": "no"}),
            by_page("plan-reject-now", plan_reject_reason="no"),
        ),
    ),
    "policy": (
        {PATCH, APPROVE},
        (
            by_kubectl(lambda _by: {"spec": {"policy": {"autoApprove": True}}}),
            by_rest("PUT", "/policy", {"auto": True}),
            lambda door, name: _press(
                door, "plan-policy-now", {"plan-policy-auto.checked": True, "plan-ref.data": f"{SHOP}/{name}"}
            ),
        ),
    ),
    "skip": (
        {PATCH},
        (
            by_kubectl(lambda _by: {"spec": {"recurring": {**RULE, "skip": [moment(BEGIN), moment(SKIPPED)]}}}),
            by_rest("POST", "/skip", {"start": moment(BEGIN)}),
            by_page("plan-skip-now", plan_skip_start=str(BEGIN)),
        ),
    ),
    "bring back": (
        {PATCH},
        (
            by_kubectl(lambda _by: {"spec": {"recurring": {**RULE, "skip": []}}}),
            by_rest("POST", "/unskip", {"start": moment(SKIPPED)}),
            by_page("plan-unskip-now", plan_unskip_start=str(SKIPPED)),
        ),
    ),
    "edit": (
        {PATCH},
        (
            by_kubectl(lambda _by: {"spec": {"amount": {"count": PODS_LATER}}}),
            by_rest("PUT", "", {**terms(PODS_LATER), "generation": 1}),
        ),
    ),
    "make": (
        {CREATE},
        (
            lambda door, name: door.kubectl("create", "-f", "-", text=json.dumps(body_of(name))),
            lambda door, name: door.rest(
                "POST", "reservations", {**terms(2), "workload": f"{SHOP}/Deployment/web", "name": name}
            ),
        ),
    ),
}
"""Act -> what it takes, and how it is done at each door: kubectl, REST, the page (where one click does it)."""


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> ControlPlane:
    furnished(control_plane)
    api = control_plane.api()
    for kind in ("reservationplans.cotenant.dev", "autopilotpolicies.cotenant.dev"):
        install_crd(api, kind)
    for role in ROLES:
        bind(api, role, f"one-{role}")
    for role in (*ROLES, "system:auth-delegator", "cotenant-ledger-anchor"):
        bind(api, role, "door-account")
    every = {"apiGroups": [OWN], "resources": ["reservationplans"], "verbs": ["approve-for-others"]}
    if not api.exists(f"/apis/{GROUP}/v1/clusterroles/for-others"):
        api.create(f"/apis/{GROUP}/v1/clusterroles", {"metadata": {"name": "for-others"}, "rules": [every]})
    bind(api, "for-others", "door-account")
    return control_plane


def bind(api: Api, role: str, user: str) -> None:
    path, name = f"/apis/{GROUP}/v1/clusterrolebindings", f"{role}-{user}".replace(":", "-")
    if not api.exists(f"{path}/{name}"):
        reference = {"apiGroup": GROUP, "kind": "ClusterRole", "name": role}
        subject = {"apiGroup": GROUP, "kind": "User", "name": user}
        api.create(path, {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]})


@pytest.fixture(scope="module")
def served(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Any]]:
    """The dashboard behind a proxy, and its application."""
    folder = tmp_path_factory.mktemp("doors")
    by_proxy = access.by_proxy("127.0.0.1/32", roles=[{"role": "admin", "group": "people"}])
    settings = msgspec.structs.replace(
        Settings(),
        kube=KubeSettings(kubeconfig=str(plane.user("door-account"))),
        actions=ActionSettings(ledger=str(folder / "ledger.db"), anchor=False),
        access=by_proxy,
    )
    source = StoreSource(Store((folder / "store").as_uri(), "none"), support.QUICK)
    context = DashboardContext(
        access=by_proxy,
        plans=plan_service_of(settings),
        autopilot=autopilot_service_of(settings, lambda _namespace: []),
    )
    app = create_app(source, support.QUICK, SystemClock(), context)
    with support.served(app) as url:
        yield url, app


def entered(plane: ControlPlane, served: tuple[str, Any], role: str) -> Door:
    """Who has this role alone."""
    url, app = served
    name = f"one-{role}"
    browser = Browser(url, **{"X-Forwarded-User": name, "X-Forwarded-Groups": "people"})
    browser.get("/", page=True)
    targets = {str(dependency["id"]): target for target in sweep.targets(app) for dependency in target.inputs[:1]}
    return Door(name, plane.user(name), browser, targets, plane)


def spec_at(admin: Api, name: str) -> Json:
    try:
        return dict(admin.get(f"{PLANS}/{name}")["spec"])
    except ApiError as error:
        assert error.status == 404, error
        return {}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("role", ROLES)
def test_a_role_does_with_a_plan_at_each_door_what_its_file_grants(
    plane: ControlPlane, served: tuple[str, Any], role: str, act: str
) -> None:
    needs, doors = ACTS[act]
    door, admin = entered(plane, served, role), plane.api()
    done = []
    for index, through in enumerate(doors):
        name = f"{role.removeprefix('cotenant-')}-{act.replace(' ', '-')}-{index}"
        if act != "make":
            admin.create(PLANS, body_of(name))
        before = spec_at(admin, name)
        through(door, name)
        done.append(spec_at(admin, name) != before)
    assert done == [needs <= granted(role)] * len(doors)


NODE_ACTS: dict[str, tuple[Json, bool]] = {
    "mark": (
        {"spec": {"taints": [{"key": "cotenant.dev/emptying", "value": "approved", "effect": "PreferNoSchedule"}]}},
        True,
    ),
    "give back": ({"spec": {"taints": None}}, True),
    "drive everybody out": ({"spec": {"taints": [{"key": "cotenant.dev/emptying", "effect": "NoExecute"}]}}, False),
    "another taint": ({"spec": {"taints": [{"key": "example.invalid/x", "effect": "NoSchedule"}]}}, False),
    "our other taint": ({"spec": {"taints": [{"key": "cotenant.dev/load", "effect": "NoSchedule"}]}}, False),
    "cordon": ({"spec": {"unschedulable": True}}, False),
    "label": ({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}, False),
    "annotation": ({"metadata": {"annotations": {"node.cotenant.dev/batch-cpu-policy": "static"}}}, False),
    "finalizer": ({"metadata": {"finalizers": ["example.invalid/x"]}}, False),
}


@pytest.mark.parametrize("title", NODE_ACTS)
def test_of_a_node_who_empties_changes_the_mark_alone_by_kubectl_too(
    plane: ControlPlane, fake_nodes: Callable[[int], list[str]], title: str
) -> None:
    patch, let = NODE_ACTS[title]
    (node,), admin = fake_nodes(1), plane.api()
    if title == "give back":
        admin.patch(f"/api/v1/nodes/{node}", NODE_ACTS["mark"][0])
    response = outcome(
        plane.api(plane.user("one-cotenant-emptier")), Act(title, "PATCH", f"/api/v1/nodes/{node}", patch)
    )
    assert (response.status == 200, response.by_policy) == (let, not let), response


def test_who_may_change_nodes_as_a_whole_is_not_held_to_the_mark(
    plane: ControlPlane, fake_nodes: Callable[[int], list[str]]
) -> None:
    (node,) = fake_nodes(1)
    for title, (patch, _) in NODE_ACTS.items():
        assert outcome(plane.api(), Act(title, "PATCH", f"/api/v1/nodes/{node}", patch)).status == 200, title


JOBS = "/apis/scheduling.koordinator.sh/v1alpha1/podmigrationjobs"


def job(name: str, by: str = "") -> Json:
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "PodMigrationJob",
        "metadata": {"name": name, **({"annotations": {"cotenant.dev/approved-by": by}} if by else {})},
        "spec": {"podRef": {"namespace": SHOP, "name": "web"}, "mode": "ReservationFirst"},
    }


@pytest.mark.parametrize(
    ("who", "by", "let"),
    [
        ("one-cotenant-mover", "one-cotenant-mover", True),
        ("one-cotenant-mover", "boss@example.com", False),
        ("one-cotenant-mover", "", True),
        ("door-account", "ann", True),
        ("", "boss@example.com", True),
    ],
    ids=["in one's own name", "forged", "unsigned", "the dashboard for others", "an administrator"],
)
def test_a_move_is_signed_with_the_name_of_who_approves_it(plane: ControlPlane, who: str, by: str, let: bool) -> None:
    install_crd(plane.api(), "podmigrationjobs.scheduling.koordinator.sh")
    api = plane.api(plane.user(who) if who else None)
    response = outcome(api, Act("move", "POST", JOBS, job("signed", by)))
    assert (response.status in (200, 201), response.by_policy) == (let, not let), response


@pytest.mark.parametrize(
    ("phase", "let"), [("", True), ("Pending", True), ("Running", False), ("Succeeded", False), ("Failed", False)]
)
def test_a_move_is_withdrawn_by_kubectl_as_on_the_page_while_it_is_pending(
    plane: ControlPlane, phase: str, let: bool
) -> None:
    admin, name = plane.api(), f"withdrawn-{phase.lower() or 'new'}"
    install_crd(admin, "podmigrationjobs.scheduling.koordinator.sh")
    admin.create(JOBS, job(name))
    if phase:
        admin.patch(f"{JOBS}/{name}/status", {"status": {"phase": phase}})
    mover = plane.api(plane.user("one-cotenant-mover"))
    wait_for("the rights", lambda: outcome(mover, Act("", "POST", JOBS, job("probe"))).status < 300)
    response = outcome(mover, Act("withdraw", "DELETE", f"{JOBS}/{name}"))
    assert (response.status == 200, response.by_policy) == (let, not let), response
    assert outcome(thief_manager(plane), Act("end", "DELETE", f"{JOBS}/{name}")).status == 200
    assert outcome(admin, Act("end", "DELETE", f"{JOBS}/{name}")).status == 200


def thief_manager(plane: ControlPlane) -> Api:
    """The manager deletes its jobs a day after they ended."""
    return plane.api(plane.user("system:serviceaccount:cotenant:cotenant-manager", ["system:serviceaccounts"]))
