"""Acts that harm by what follows: an owner that is absent, an approved plan that grows, a class that evicts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cotenant.base.kube import KubeClient, Writer
from cotenant.base.kubernetes.intent import Address, Create
from cotenant.base.settings.sections import KubeSettings
from tests.cluster.accounts import planner
from tests.cluster.api import PATCHES
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import install_crd
from tests.cluster.waiting import wait_for
from tests.enforcer.tokens import agent_access
from tests.guards.forbidden_acts import ABSENT_OWNER, Schemas, by_each_door, changes
from tests.guards.scene import APPS, CORE, SHOP, Act, Answer, furnished, outcome, pod_spec, thief
from tests.guards.test_policies_of_acts import PLANS, PODS, SWAPS, edited, placeholder, plan
from tests.guards.test_three_doors import JOBS, bind, job
from tests.guards.test_tricks import sent
from tools.write_rights import rights

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]
Json = dict[str, Any]
MANAGER, WEBHOOK, HOOK = "cotenant-manager", "cotenant-webhook", "cotenant-uninstall"
MERGE = PATCHES["merge"]


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> ControlPlane:
    furnished(control_plane)
    for kind in (
        "reservationplans.cotenant.dev",
        "swapguards.cotenant.dev",
        "podmigrationjobs.scheduling.koordinator.sh",
    ):
        install_crd(control_plane.api(), kind)
    naked = {"metadata": {"name": "probe"}, "spec": pod_spec()}
    wait_for("the policies", lambda: outcome(thief(control_plane, MANAGER), Act("", "POST", PODS, naked)).by_policy)
    return control_plane


# --- placeholders: nobody is pushed aside ---
CLASSES = [
    "system-node-critical", "system-cluster-critical", "koord-prod", "cotenant-below", "cotenant-below_9",
    "Cotenant-placeholder", "cotenant-placeholder-2", "x-cotenant-below-9", "cotenant\u2010placeholder", "",
]  # fmt: skip


@pytest.mark.parametrize("who", [MANAGER, ""], ids=["the manager", "an administrator"])
@pytest.mark.parametrize("name", CLASSES)
def test_a_placeholder_has_no_class_that_pushes_others_aside(plane: ControlPlane, name: str, who: str) -> None:
    api = thief(plane, who) if who else plane.api()
    response = outcome(api, Act(name, "POST", PODS, edited("spec/priorityClassName", name)))
    # A class that does not exist is refused by Kubernetes itself, as 403 too.
    assert response.status in (403, 422), response


@pytest.mark.parametrize("field", ["priority", "preemptionPolicy"])
def test_a_placeholder_is_worth_what_its_class_says(plane: ControlPlane, field: str) -> None:
    value = {"priority": 2_000_000_000, "preemptionPolicy": "PreemptLowerPriority"}[field]
    response = outcome(thief(plane, MANAGER), Act(field, "POST", PODS, edited(f"spec/{field}", value)))
    assert response.status in (403, 422), response


HOLDING: dict[str, Any] = {
    "spec": {
        key: {}
        for key in (
            "affinity", "dnsPolicy", "enableServiceLinks", "hostNetwork", "imagePullSecrets", "nodeSelector",
            "preemptionPolicy", "priority", "restartPolicy", "schedulerName", "terminationGracePeriodSeconds",
            "tolerations",
        )
    }
    | {"containers": {"*": {key: {} for key in (
        "imagePullPolicy", "name", "resources", "terminationMessagePath", "terminationMessagePolicy")}}},
    "metadata": {},
    "status": {},
}  # fmt: skip
"""Where and how much a placeholder holds, which the manager decides, and what the server writes."""


def test_no_field_of_a_pod_that_a_placeholder_needs_not_is_set_at_its_creation(plane: ControlPlane) -> None:
    admin, manager, own = plane.api(), thief(plane, MANAGER), placeholder()
    schema = Schemas(admin).of("v1", "Pod")
    plain = bare(outcome(manager, Act("own", "POST", PODS, own)).body)
    allowed = {**HOLDING, "metadata": {key: {} for key in schema["properties"]["metadata"]["properties"]}}
    tried = 0
    for title, patch in changes(own, schema, allowed):
        response = outcome(manager, Act(title, "POST", PODS, merged(own, patch)))
        assert response.status in (200, 201, 400, 403, 422), (title, response)
        assert response.status >= 400 or bare(response.body) == plain, title
        tried += response.status >= 400
    assert tried >= 60


def bare(body: Json) -> Json:
    """What a pod asks for."""
    return {"spec": body["spec"], "labels": body["metadata"].get("labels")}


def merged(live: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    merged_body = dict(live) if isinstance(live, dict) else {}
    merged_body |= {key: merged(merged_body.get(key), value) for key, value in patch.items()}
    return {key: value for key, value in merged_body.items() if key not in patch or patch[key] is not None}


# --- the webhook's Secret: no token of another account, no deletion ---
SECRETS = "/api/v1/namespaces/cotenant/secrets"
SECRET = f"{SECRETS}/cotenant-webhook-certificate"


def secret(**more: Any) -> Json:
    metadata = {"name": "cotenant-webhook-certificate", **more.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, **more}


OF_MANAGER = {"annotations": {"kubernetes.io/service-account.name": MANAGER}}
NEW_SECRETS = {
    "a token of the manager": secret(type="kubernetes.io/service-account-token", metadata=OF_MANAGER),
    "a bootstrap token": secret(type="bootstrap.kubernetes.io/token"),
    "a token without its type": secret(metadata=OF_MANAGER),
    "a type that looks alike": secret(type="Op\u0430que"),
    "an owner that is absent": secret(metadata={"ownerReferences": [ABSENT_OWNER]}),
    "for ever": secret(metadata={"finalizers": ["example.invalid/x"]}),
    "a label": secret(metadata={"labels": {"app.kubernetes.io/managed-by": "Helm"}}),
}


@pytest.fixture
def without_secret(plane: ControlPlane) -> ControlPlane:
    if plane.api().exists(SECRET):
        plane.api().delete(SECRET)
    return plane


@pytest.mark.parametrize("title", NEW_SECRETS)
def test_the_webhook_makes_no_secret_but_its_certificate(without_secret: ControlPlane, title: str) -> None:
    act = Act(title, "PATCH", SECRET, NEW_SECRETS[title], PATCHES["apply"])
    response = sent(thief(without_secret, WEBHOOK), act, fieldManager=WEBHOOK, force="true")
    assert response.by_policy or response.status == 422, response


def test_the_webhook_makes_its_certificate_and_writes_it_anew_and_nothing_else_of_it(
    without_secret: ControlPlane,
) -> None:
    admin, api = without_secret.api(), thief(without_secret, WEBHOOK)
    own = Act("own", "PATCH", SECRET, secret(data={"tls.crt": "eA=="}), PATCHES["apply"])
    assert sent(api, own, fieldManager=WEBHOOK, force="true").status == 200
    admin.create(SECRETS, secret(data={"tls.crt": "eA=="}, metadata={"labels": {"team": "platform"}}))
    assert sent(api, own, fieldManager=WEBHOOK, force="true").status == 200
    live = admin.get(SECRET)
    for steps, value in (
        (("metadata", "ownerReferences"), [ABSENT_OWNER]),
        (("metadata", "finalizers"), ["example.invalid/x"]),
        (("metadata", "annotations", "kubernetes.io/service-account.name"), MANAGER),
        (("metadata", "labels", "team"), "thieves"),
        (("type",), "kubernetes.io/service-account-token"),
    ):
        for door, kind, body in by_each_door(live, steps, value):
            response = sent(api, Act(door, "PATCH", SECRET, body, PATCHES[kind]),
                          **({"fieldManager": "x", "force": "true"} if kind == "apply" else {}))  # fmt: skip
            assert response.by_policy or response.status == 422, (steps, door, response)
    admin.delete(SECRET)


# --- what was approved stays what it was ---
APPROVED = {"decision": "Approved", "scope": "Series", "by": "paul", "at": "2026-11-20T12:00:00Z"}
TERMS: dict[str, Any] = {
    "count": {"amount": {"count": 400}},
    "pod size": {"amount": {"perPod": {"cpu": "64"}}},
    "standby": {"amount": {"standby": 50}},
    "owner": {"owner": {"name": "miner"}},
    "template": {"template": {"spec": {"tolerations": [{"operator": "Exists"}], "containers": []}}},
    "schedule": {"recurring": {"schedule": "* * * * *"}},
    "zone": {"recurring": {"timeZone": "Pacific/Auckland"}},
    "duration": {"recurring": {"duration": "24h"}},
    "deadline": {"recurring": {"startingDeadline": "24h"}},
    "windows": {"windows": [{"start": "2026-11-20T12:00:00Z", "end": "2026-11-21T12:00:00Z", "count": 400}]},
    "window": {"window": {"start": "2026-11-20T12:00:00Z", "end": "2026-11-21T12:00:00Z"}},
    "quantile": {"quantile": 0.999},
    "lead": {"lead": "6h"},
    "longer": {"extendBy": "100h"},
    "no end": {"ttl": "100h"},
    "for all": {"allocateOnce": False},
    "policy of allocation": {"allocatePolicy": "Restricted"},
    "realisation": {"realisation": "CapacityBuffer"},
    "source": {"source": "Forecast"},
}
GIVEN_UP = {"suspended": {"suspend": True}, "skipped": {"recurring": {"skip": ["2026-11-25T17:00:00Z"]}}}
SETTLED = {"owner", "source", "window"}
"""Of a plan by schedule nobody changes these."""
FORECAST = {"count", "pod size", "windows"}
"""What the manager says anew of a plan that is approved for its series."""


@pytest.fixture(scope="module")
def approved(plane: ControlPlane) -> str:
    """The path of a plan that paul has approved."""
    if not plane.api().exists(f"{PLANS}/approved"):
        plane.api().create(PLANS, plan("approved", approval=APPROVED))
    return f"{PLANS}/approved"


@pytest.mark.parametrize("title", [*TERMS, *GIVEN_UP])
def test_an_approved_plan_is_changed_by_who_may_approve_and_by_the_forecast(
    plane: ControlPlane, approved: str, title: str
) -> None:
    change = {**TERMS, **GIVEN_UP}[title]
    petra, paul = (plane.api(planner(plane, name, approves=name == "paul")) for name in ("petra", "paul"))
    for steps, value in leaves(change):
        for door, kind, body in by_each_door(plane.api().get(approved), ("spec", *steps), value):
            act = Act(f"{title} by {door}", "PATCH", approved, body, PATCHES[kind])
            query = {"fieldManager": "kubectl", "force": "true"} if kind == "apply" else {}
            by_planner, by_manager = sent(petra, act, **query), sent(thief(plane, MANAGER), act, **query)
            by_approver = sent(paul, act, **query)
            if title in SETTLED:  # by the definition itself, whoever asks
                assert {response.status for response in (by_planner, by_manager, by_approver)} == {422}, act
                continue
            assert by_planner.by_policy is (title in TERMS), (act, by_planner)
            assert by_manager.by_policy is (title not in FORECAST), (act, by_manager)
            assert by_approver.status == 200, (act, by_approver)


def leaves(change: Json, steps: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """(steps, value) of a change of one field."""
    ((key, value),) = change.items()
    deeper = isinstance(value, dict) and key in ("amount", "recurring", "owner", "perPod")
    return leaves(value, (*steps, key)) if deeper else [((*steps, key), value)]


@pytest.mark.parametrize("decision", ["", "Rejected"])
def test_a_plan_that_is_not_approved_is_changed_by_who_plans(plane: ControlPlane, decision: str) -> None:
    name, admin = f"open-{decision.lower() or 'new'}", plane.api()
    if not admin.exists(f"{PLANS}/{name}"):
        admin.create(PLANS, plan(name, **({"approval": {**APPROVED, "decision": decision}} if decision else {})))
    petra = plane.api(planner(plane, "petra", approves=False))
    act = Act("edit", "PATCH", f"{PLANS}/{name}", {"spec": {"amount": {"count": 7}}}, MERGE)
    assert sent(petra, act).status == 200


# --- a move is a move ---
MORE_THAN_A_MOVE = {
    "capacity of its own": {"reservationOptions": {"template": {"spec": {"template": {"spec": {"containers": []}}}}}},
    "another's capacity": {"reservationOptions": {"reservationRef": {"name": "r"}}},
    "at once": {"deleteOptions": {"gracePeriodSeconds": 0}},
    "all at once": {"deleteOptions": {"propagationPolicy": "Background"}},
}


@pytest.mark.parametrize("title", MORE_THAN_A_MOVE)
def test_who_may_move_pods_asks_neither_for_capacity_nor_how_they_end(plane: ControlPlane, title: str) -> None:
    bind(plane.api(), "cotenant-mover", "one-cotenant-mover")
    mover = plane.api(plane.user("one-cotenant-mover"))
    wait_for("the right", lambda: outcome(mover, Act("", "POST", JOBS, job("probe"))).status < 300)
    body = job("more")
    body["spec"] |= MORE_THAN_A_MOVE[title]
    assert outcome(mover, Act(title, "POST", JOBS, body)).by_policy
    assert outcome(plane.api(), Act(title, "POST", JOBS, body)).status < 300


# --- the uninstall hook gives back, and sets nothing ---
AUTOSCALER = f"/apis/autoscaling/v2/namespaces/{SHOP}/horizontalpodautoscalers/web"
FORGED = json.dumps({"plan": "p", "original": 1, "floor": 2}, separators=(",", ":"))
SETTING = {
    "a higher floor": {"spec": {"minReplicas": 4}},
    "a plan's mark": {"metadata": {"annotations": {"cotenant.dev/plan-floor": FORGED}}},
    "the autopilot's mark": {"metadata": {"annotations": {"cotenant.dev/lent-floor": FORGED}}},
    "a mark and a lower floor": {
        "metadata": {"annotations": {"cotenant.dev/plan-floor": FORGED}},
        "spec": {"minReplicas": 1},
    },
}


@pytest.mark.parametrize("title", SETTING)
def test_the_hook_sets_nothing_of_an_autoscaler(plane: ControlPlane, title: str) -> None:
    response = outcome(thief(plane, HOOK), Act(title, "PATCH", AUTOSCALER, SETTING[title], MERGE))
    assert response.by_policy, response


def test_the_hook_gives_a_floor_back(plane: ControlPlane) -> None:
    admin, path = plane.api(), f"{AUTOSCALER.rpartition('/')[0]}/raised"
    if not admin.exists(path):
        live = admin.get(AUTOSCALER)
        mark = json.dumps({"plan": "p", "original": 1, "floor": 2}, separators=(",", ":"))
        metadata = {"name": "raised", "annotations": {"cotenant.dev/plan-floor": mark}}
        admin.create(path.rpartition("/")[0], {"metadata": metadata, "spec": {**live["spec"], "minReplicas": 2}})
    back = {"metadata": {"annotations": {"cotenant.dev/plan-floor": None}}, "spec": {"minReplicas": 1}}
    hook = thief(plane, HOOK)
    assert wait_for("the policy", lambda: outcome(hook, Act("back", "PATCH", path, back, MERGE)).status == 200)
    other = {**back, "spec": {"minReplicas": 2}}
    assert outcome(hook, Act("mark alone", "PATCH", path, other, MERGE)).status == 200


def test_the_hook_says_of_a_reservation_only_that_it_is_pending(plane: ControlPlane) -> None:
    admin, hook = plane.api(), thief(plane, HOOK)
    install_crd(admin, "reservations.scheduling.koordinator.sh")
    kind = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
    spec = {"template": {"spec": {"containers": [{"name": "main", "image": "app"}]}}, "owners": [{}]}
    body = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Reservation", "spec": spec}
    name = admin.create(kind, {**body, "metadata": {"generateName": "held-"}})["metadata"]["name"]
    path = f"{kind}/{name}/status"
    admin.patch(path, {"status": {"phase": "Available", "nodeName": "n1"}})
    for status in ({"phase": "Failed"}, {"phase": "Pending", "nodeName": "n2"}, {"nodeName": None}):
        act = Act("say", "PATCH", path, {"status": status}, MERGE)
        assert wait_for("the policy", lambda act=act: outcome(hook, act).by_policy)
    back = Act("back", "PATCH", path, {"status": {"phase": "Pending", "nodeName": None}}, MERGE)
    assert outcome(hook, back).status == 200
    admin.delete(f"{kind}/{name}")


@pytest.mark.parametrize(
    "name",
    ["node.cotenant.dev/batch-cpu-policy", "node.koordinator.sh/originExtendedAllocatable",
     "node.cotenant.dev/suppressed-fraction"],
)  # fmt: skip
def test_the_hook_sets_no_annotation_of_a_node_and_takes_ours_away(
    plane: ControlPlane, fake_nodes: Callable[[int], list[str]], name: str
) -> None:
    (node,), admin, hook = fake_nodes(1), plane.api(), thief(plane, HOOK)
    path = f"/api/v1/nodes/{node}"
    setting = Act("set", "PATCH", f"{path}/status", {"metadata": {"annotations": {name: "static"}}}, MERGE)
    assert outcome(hook, setting).by_policy
    admin.patch(path, {"metadata": {"annotations": {name: "old"}}})
    assert outcome(hook, setting).by_policy
    taking = Act("take", "PATCH", f"{path}/status", {"metadata": {"annotations": {name: None}}}, MERGE)
    assert outcome(hook, taking).status == 200


# --- texts with the marks of the policy itself ---
@pytest.mark.parametrize("mark", ["\u0001", "\u0002", "\u0002\u0002"])
@pytest.mark.parametrize("place", ["command", "env"])
def test_no_flag_of_a_heap_is_exchanged_for_a_mark_of_the_policy(plane: ControlPlane, place: str, mark: str) -> None:
    texts = ["java", "-Xms256m", mark, "-jar", "app.jar"]
    env = [{"name": "JAVA_OPTS", "value": f"{mark} -Dx=1"}, {"name": "MODE", "value": "prod"}]
    container = {"name": "app", **({"command": texts} if place == "command" else {"env": env})}
    patch = {"spec": {"template": {"spec": {"containers": [container]}}}}
    act = Act(place, "PATCH", f"{APPS}/deployments/web", patch, PATCHES["strategic"])
    assert outcome(thief(plane, MANAGER), act).by_policy


# --- pods behind the gates of others ---
NOWHERE = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["nowhere"]}]}]
    }
}


@pytest.mark.parametrize(("gate", "let"), [("example.invalid/other", False), ("cotenant.dev/gang", True)])
def test_the_manager_sends_no_pod_elsewhere_that_waits_behind_the_gates_of_others(
    plane: ControlPlane, gate: str, let: bool
) -> None:
    name, admin = f"behind-{gate.partition('/')[2]}", plane.api()
    if not admin.exists(f"{CORE}/pods/{name}"):
        admin.create(f"{CORE}/pods", {"metadata": {"name": name}, "spec": pod_spec(schedulingGates=[{"name": gate}])})
    patch = {"spec": {"affinity": {"nodeAffinity": NOWHERE}}}
    response = outcome(thief(plane, MANAGER), Act(gate, "PATCH", f"{CORE}/pods/{name}", patch, MERGE))
    assert (response.status == 200, response.by_policy) == (let, not let), response


# --- hand-overs: the webhook takes away ---
@pytest.mark.parametrize("field", ["servedUntil", "queuesServedUntil"])
def test_the_webhook_promises_nothing_for_the_manager(plane: ControlPlane, field: str) -> None:
    admin, api = plane.api(), thief(plane, WEBHOOK)
    if not admin.exists(f"{SWAPS}/swaps"):
        body = {"apiVersion": "cotenant.dev/v1alpha1", "kind": "SwapGuard", "metadata": {"name": "swaps"}}
        admin.create(SWAPS, {**body, "spec": {"servedUntil": "2026-11-20T12:00:00.000000Z"}})
    later = {"spec": {field: "2099-11-20T12:00:00.000000Z"}}
    assert outcome(api, Act(field, "PATCH", f"{SWAPS}/swaps", later, MERGE)).by_policy
    cleared = {"spec": {"swaps": None, "nodes": None}}
    assert outcome(api, Act("cleared", "PATCH", f"{SWAPS}/swaps", cleared, MERGE)).status == 200


# --- devices: the pool of one's own node ---
def device_slice(name: str, **spec: Any) -> Create:
    address = Address("resource.k8s.io/v1", "resourceslices", name)
    pool = {"name": spec["nodeName"], "generation": 1, "resourceSliceCount": 1, **spec.pop("pool", {})}
    body = {"driver": "node.cotenant.dev", "pool": pool, "devices": [{"name": "core-0"}], **spec}
    return Create(address, address.manifest("ResourceSlice", {}, spec=body))


def test_an_agent_voids_the_devices_of_no_other_node(
    plane: ControlPlane, fake_nodes: Callable[[int], list[str]], tmp_path: Path
) -> None:
    here, other_node = fake_nodes(2)
    client = KubeClient(agent_access(plane, here, tmp_path), KubeSettings(retries=0))

    def response_to(creation: Create) -> Answer:
        try:
            return Answer(200, "", Writer(client, "t").send(creation, dry_run=True))
        except Exception as error:  # noqa: BLE001 - each refusal is compared below
            return Answer(403, str(error))

    assert wait_for("the rights", lambda: response_to(device_slice("own", nodeName=here)).status == 200)
    for title, creation in {
        "another's node": device_slice("a", nodeName=other_node),
        "another's pool": device_slice("b", nodeName=here, pool={"name": other_node, "generation": 2**40}),
        "a pool for all": device_slice("c", nodeName=here, pool={"name": "all"}),
        "another's driver": device_slice("d", nodeName=here, driver="gpu.nvidia.com"),
        "a driver that looks alike": device_slice("e", nodeName=here, driver="node.cotenant.dev.example.com"),
    }.items():
        assert response_to(creation).by_policy, (title, response_to(creation))
    client.close()


# --- nothing of ours stays for ever ---
OWN_KINDS: list[tuple[str, str, str, str, dict[str, Any] | None]] = [
    (MANAGER, "slo.koordinator.sh/v1alpha1", "NodeSLO", "nodeslos", {"extensions": {}}),
    (MANAGER, "scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", None),
    ("cotenant-extender", "cotenant.dev/v1alpha1", "NodeAllocation", "nodeallocations", {"pods": []}),
]


@pytest.mark.parametrize(
    ("who", "version", "kind", "plural", "spec"), OWN_KINDS, ids=[own_kind[3] for own_kind in OWN_KINDS]
)
def test_no_account_makes_an_object_that_stays_for_ever(
    plane: ControlPlane, who: str, version: str, kind: str, plural: str, spec: Json | None
) -> None:
    group = version.partition("/")[0]
    if group != "scheduling.k8s.io":
        install_crd(plane.api(), f"{plural}.{group}")
    class_ = {"value": 7, "preemptionPolicy": "Never"} if kind == "PriorityClass" else {}
    name = "cotenant-below-7" if class_ else "for-ever"
    body = {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name},
        **class_,
        **({"spec": spec} if spec else {}),
    }
    path, api = f"/apis/{version}/{plural}", thief(plane, who)
    bound = {**body, "metadata": {"name": name, "finalizers": ["example.invalid/for-ever"]}}
    assert outcome(api, Act("bound", "POST", path, bound)).by_policy
    applying = Act("applied", "PATCH", f"{path}/{name}", bound, PATCHES["apply"])
    if "patch" in {
        verb for right in rights() if (right.account, right.resource) == (who, plural) for verb in right.verbs
    }:
        assert sent(api, applying, fieldManager="x", force="true").by_policy
