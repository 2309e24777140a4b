"""The same forbidden acts by other doors: subresources, server-side apply, directives of patches, former versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cotenant.base.kubernetes.intent import Address, eviction_of
from cotenant.base.kubernetes.protocol import PLACEHOLDER_NAMESPACE
from tests.cluster.accounts import planner
from tests.cluster.api import PATCHES, ApiError
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import install_crd
from tests.cluster.waiting import wait_for
from tests.guards.scene import APPS, CORE, IMAGE, SHOP, Act, Answer, content, furnished, outcome, running, thief
from tests.guards.test_policies_of_acts import PLANS, PODS, approval, placeholder, plan

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]
Json = dict[str, Any]
MANAGER, EXTENDER, WEBHOOK, AGENT = "cotenant-manager", "cotenant-extender", "cotenant-webhook", "cotenant-enforcer"
JSON_PATCH, MERGE, STRATEGIC, APPLY = (PATCHES[kind] for kind in ("json", "merge", "strategic", "apply"))
NODE = "/api/v1/nodes/other-doors"
QUOTAS = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{SHOP}/elasticquotas"
SWAPS = "/apis/cotenant.dev/v1alpha1/swapguards"
QUOTA = "quota.scheduling.koordinator.sh"
AMOUNTS = {"cpu": "8", "memory": "32Gi", "pods": "110"}
AUTOSCALERS = f"namespaces/{SHOP}/horizontalpodautoscalers/web"
OTHER_MANAGER = "?fieldManager=kubectl&force=true"


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> ControlPlane:
    furnished(control_plane)
    admin = control_plane.api()
    for definition in (
        "reservationplans.cotenant.dev",
        "swapguards.cotenant.dev",
        "elasticquotas.scheduling.sigs.k8s.io",
    ):
        install_crd(admin, definition)
    status = {"capacity": AMOUNTS, "allocatable": AMOUNTS}
    admin.create("/api/v1/nodes", {"metadata": {"name": NODE.rpartition("/")[2]}, "status": status})
    if not admin.exists(f"{CORE}/pods/runs-other-doors"):
        running(admin, "other-doors")
    if not admin.exists(f"{SWAPS}/swaps"):
        swaps = {"apiVersion": "cotenant.dev/v1alpha1", "kind": "SwapGuard", "metadata": {"name": "swaps"}}
        admin.create(SWAPS, {**swaps, "spec": {"servedUntil": "2026-11-20T12:00:00.000000Z"}})
    if not admin.exists(f"{QUOTAS}/made"):
        admin.create(QUOTAS, {**quota(), "metadata": {**quota()["metadata"], "name": "made"}})
    manager = thief(control_plane, MANAGER)
    naked = {"metadata": {"name": "probe"}, "spec": {"containers": [{"name": "c", "image": IMAGE}]}}
    wait_for("the policies", lambda: outcome(manager, Act("", "POST", PODS, naked)).by_policy)
    return control_plane


def pod(**spec: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "stolen"},
        "spec": {**placeholder()["spec"], **spec},
    }


def generated() -> Json:
    body = placeholder()
    body["metadata"] = {**body["metadata"], "generateName": "stolen-"}
    del body["metadata"]["name"]
    return {**body, "spec": {**body["spec"], "hostPID": True}}


def applied(api_version: str, kind: str, name: str, **body: Any) -> Json:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **body}


def containers(**change: Any) -> Json:
    return {"spec": {"template": {"spec": {"containers": [{"name": "app", **change}]}}}}


def quota(labels: Json | None = None, **metadata: Any) -> Json:
    profile_labels = {
        f"{QUOTA}/profile": "p",
        f"{QUOTA}/is-root": "true",
        f"{QUOTA}/is-parent": "true",
        f"{QUOTA}/tree-id": "t",
    }
    spec = {"min": {"cpu": "0"}, "max": {"cpu": "0"}}
    return applied("scheduling.sigs.k8s.io/v1alpha1", "ElasticQuota", "stolen", spec=spec) | {
        "metadata": {"name": "stolen", "labels": {**profile_labels, **(labels or {})}, **metadata}
    }


def binding(**metadata: Any) -> Json:
    target = {"apiVersion": "v1", "kind": "Node", "name": "other-doors"}
    return applied("v1", "Binding", "web", target=target) | {"metadata": {"name": "web", **metadata}}


SWAP = {
    "id": "a", "reservation": "r", "reservationUid": "u", "node": "n", "placeholders": [],
    "started": "2026-11-20T12:00:00.000000Z", "expires": "2026-11-20T12:00:15.000000Z",
}  # fmt: skip
RUNS = f"{CORE}/pods/runs-other-doors"
WORKLOAD = f"{APPS}/deployments/web"
FORBIDDEN: dict[str, tuple[str, Act]] = {
    # 1. Pods beside placeholders.
    "a placeholder with a generated name": (MANAGER, Act("", "POST", PODS, generated())),
    "a pod by server-side apply": (
        MANAGER,
        Act("", "PATCH", f"{PODS}/stolen{OTHER_MANAGER}", pod(hostPID=True), APPLY),
    ),
    "a user namespace of its own": (MANAGER, Act("", "POST", PODS, pod(hostUsers=False))),
    "a runtime class": (MANAGER, Act("", "POST", PODS, pod(runtimeClassName="x", overhead={"cpu": "9"}))),
    "resources of the whole pod": (MANAGER, Act("", "POST", PODS, pod(resources={"requests": {"cpu": "9"}}))),
    "readiness gates": (MANAGER, Act("", "POST", PODS, pod(readinessGates=[{"conditionType": "x"}]))),
    "a pod in the shop": (MANAGER, Act("", "POST", f"{CORE}/pods", pod())),
    "all placeholders at once": (MANAGER, Act("", "DELETE", PODS)),
    "a debug container": (
        MANAGER,
        Act("", "PATCH", f"{RUNS}/ephemeralcontainers", {"spec": {"ephemeralContainers": []}}, MERGE),
    ),
    "a token of a pod": (MANAGER, Act("", "POST", f"{CORE}/serviceaccounts/default/token", {})),
    # 2. Nodes.
    "capacity replaced by a directive": (
        MANAGER,
        Act(
            "",
            "PATCH",
            f"{NODE}/status",
            {"status": {"capacity": {"$patch": "replace", "kubernetes.io/batch-cpu": "1"}}},
            STRATEGIC,
        ),
    ),
    "cpu moved to another name": (
        MANAGER,
        Act(
            "",
            "PATCH",
            f"{NODE}/status",
            [{"op": "move", "from": "/status/capacity/cpu", "path": "/status/capacity/kubernetes.io~1batch-cpu"}],
            JSON_PATCH,
        ),
    ),
    "a condition by server-side apply": (
        MANAGER,
        Act(
            "",
            "PATCH",
            f"{NODE}/status{OTHER_MANAGER}",
            applied("v1", "Node", "other-doors", status={"conditions": [{"type": "Ready", "status": "False"}]}),
            APPLY,
        ),
    ),
    "a negative amount": (
        MANAGER,
        Act("", "PATCH", f"{NODE}/status", {"status": {"capacity": {"kubernetes.io/mid-memory": "-1"}}}, MERGE),
    ),
    "a node's configuration source": (
        MANAGER,
        Act("", "PATCH", NODE, {"spec": {"configSource": {"configMap": {}}, "providerID": "x", "podCIDR": "x"}}, MERGE),
    ),
    "all taints away": (
        MANAGER,
        Act("", "PATCH", NODE, {"spec": {"unschedulable": True, "taints": [{"$patch": "replace"}]}}, STRATEGIC),
    ),
    "another node by an agent without one": (
        AGENT,
        Act("", "PATCH", NODE, {"metadata": {"annotations": {"node.cotenant.dev/suppressed-fraction": "1"}}}, MERGE),
    ),
    # 5. Workloads, pods, autoscalers, classes, quotas, hand-overs.
    "replicas by the scale of a workload": (MANAGER, Act("", "PATCH", f"{WORKLOAD}/scale", {"spec": {"replicas": 9}})),
    "an image by server-side apply": (
        MANAGER,
        Act(
            "",
            "PATCH",
            f"{WORKLOAD}{OTHER_MANAGER}",
            applied("apps/v1", "Deployment", "web", **containers(image="example.invalid/evil:1")),
            APPLY,
        ),
    ),
    "a second container by a directive": (
        MANAGER,
        Act("", "PATCH", WORKLOAD, containers(**{"$patch": "replace", "image": "example.invalid/evil:1"}), STRATEGIC),
    ),
    "a sidecar": (
        MANAGER,
        Act(
            "",
            "PATCH",
            WORKLOAD,
            [
                {
                    "op": "add",
                    "path": "/spec/template/spec/initContainers/-",
                    "value": {"name": "evil", "image": IMAGE, "restartPolicy": "Always"},
                }
            ],
            JSON_PATCH,
        ),
    ),
    "a variable from a Secret": (
        MANAGER,
        Act("", "PATCH", WORKLOAD, containers(envFrom=[{"secretRef": {"name": "token"}}]), STRATEGIC),
    ),
    "how a container is resized": (
        MANAGER,
        Act(
            "",
            "PATCH",
            f"{RUNS}/resize",
            {
                "spec": {
                    "containers": [
                        {
                            "name": "app",
                            "resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}],
                        }
                    ]
                }
            },
            STRATEGIC,
        ),
    ),
    "a former version's target": (
        MANAGER,
        Act("", "PATCH", f"/apis/autoscaling/v1/{AUTOSCALERS}", {"spec": {"targetCPUUtilizationPercentage": 99}}),
    ),
    "a former version's metrics": (
        MANAGER,
        Act(
            "",
            "PATCH",
            f"/apis/autoscaling/v1/{AUTOSCALERS}",
            {"metadata": {"annotations": {"autoscaling.alpha.kubernetes.io/metrics": "[]"}}},
        ),
    ),
    "an autoscaler's status": (MANAGER, Act("", "PATCH", f"/apis/autoscaling/v2/{AUTOSCALERS}/status", {"status": {}})),
    "a class by server-side apply": (
        MANAGER,
        Act(
            "",
            "PATCH",
            f"/apis/scheduling.k8s.io/v1/priorityclasses/cotenant-below-9{OTHER_MANAGER}",
            applied("scheduling.k8s.io/v1", "PriorityClass", "cotenant-below-9", value=999_999_999, globalDefault=True),
            APPLY,
        ),
    ),
    "a running pod's phase": (MANAGER, Act("", "PATCH", f"{RUNS}/status", {"status": {"phase": "Failed"}})),
    "a running pod's owner": (
        MANAGER,
        Act(
            "",
            "PATCH",
            f"{RUNS}/status",
            {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x"}]}},
        ),
    ),
    "a quota that takes a namespace": (
        MANAGER,
        Act("", "POST", QUOTAS, quota(annotations={f"{QUOTA}/namespaces": f'["{SHOP}"]'})),
    ),
    "a quota below a tree": (MANAGER, Act("", "POST", QUOTAS, quota({f"{QUOTA}/is-root": "false"}))),
    "a quota that stays for ever": (MANAGER, Act("", "POST", QUOTAS, quota(finalizers=["example.invalid/x"]))),
    "a quota by server-side apply": (
        MANAGER,
        Act("", "PATCH", f"{QUOTAS}/stolen{OTHER_MANAGER}", quota({f"{QUOTA}/profile": ""}), APPLY),
    ),
    "a quota moved below another one": (
        MANAGER,
        Act("", "PATCH", f"{QUOTAS}/made", {"metadata": {"labels": {f"{QUOTA}/parent": "others"}}}, MERGE),
    ),
    "a namespace for a quota of its own": (
        MANAGER,
        Act("", "PATCH", f"{QUOTAS}/made", {"metadata": {"annotations": {f"{QUOTA}/namespaces": "[]"}}}, MERGE),
    ),
    "nodes that no hand-over names": (
        MANAGER,
        Act("", "PATCH", f"{SWAPS}/swaps", {"spec": {"nodes": {"n": []}}}, MERGE),
    ),
    "nodes beside that of a hand-over": (
        MANAGER,
        Act("", "PATCH", f"{SWAPS}/swaps", {"spec": {"swaps": [SWAP], "nodes": {"n": [], "m": []}}}, MERGE),
    ),
    # 7. Bindings, evictions.
    "a binding that labels its pod": (
        EXTENDER,
        Act("", "POST", f"{CORE}/pods/web/binding", binding(labels={"a": "b"})),
    ),
    "a binding that annotates its pod": (
        EXTENDER,
        Act("", "POST", f"{CORE}/pods/web/binding", binding(annotations={"cotenant.dev/latency-query": "up"})),
    ),
    "a binding by the collection": (EXTENDER, Act("", "POST", f"{CORE}/bindings", binding())),
    "a gate by the webhook's status": (
        WEBHOOK,
        Act("", "PATCH", f"{CORE}/pods/web/status", {"status": {"nominatedNodeName": "x"}}),
    ),
    "a toleration by the webhook": (
        WEBHOOK,
        Act(
            "",
            "PATCH",
            f"{CORE}/pods/web",
            [{"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}}],
            JSON_PATCH,
        ),
    ),
}


def dry_run(plane: ControlPlane, who: str, act: Act) -> Answer:
    """The answer to a dry run; `?` of its path are further parameters, and `{}` of a creation by apply are left out."""
    path, _, rest = act.path.partition("?")
    query = {"dryRun": "All", **dict(pair.split("=") for pair in rest.split("&") if pair)}
    kind = act.kind if act.method == "PATCH" else "application/json"
    try:
        return Answer(200, "", thief(plane, who).ask(act.method, path, act.body, kind, query))
    except ApiError as error:
        return Answer(error.status, str(error.body.get("message", "")))


@pytest.mark.parametrize("title", FORBIDDEN)
def test_what_one_door_refuses_no_other_door_does(plane: ControlPlane, title: str) -> None:
    who, act = FORBIDDEN[title]
    response = dry_run(plane, who, act)
    # 403: by RBAC or by a policy. 422 and 400: Kubernetes itself, of a field that nobody may change, or nobody has.
    refused = response.status in (400, 403, 422)
    if not refused and act.method == "PATCH":  # a field that the server drops is no change either
        path = act.path.partition("?")[0]
        live = plane.api().get(path.removesuffix("/status").removesuffix("/resize"))
        refused = content(response.body) == content(live)
    assert refused, response


def test_a_resize_as_the_product_makes_it_is_let_through(plane: ControlPlane) -> None:
    resources = {"requests": {"cpu": "150m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}}
    body = {"spec": {"containers": [{"name": "app", "resources": resources}]}}
    assert dry_run(plane, MANAGER, Act("", "PATCH", f"{RUNS}/resize", body, STRATEGIC)).status == 200


def test_a_root_quota_and_a_hand_over_as_the_product_makes_them_are_let_through(plane: ControlPlane) -> None:
    assert dry_run(plane, MANAGER, Act("", "POST", QUOTAS, quota())).status in (200, 201)
    # As the webhooks of quotas complete them, ours and Koordinator's: a weight as large as max, the root as parent.
    weight, parent = {f"{QUOTA}/shared-weight": '{"cpu":"0"}'}, {f"{QUOTA}/parent": "koordinator-root-quota"}
    full = quota(parent, annotations=weight)
    assert dry_run(plane, MANAGER, Act("", "POST", QUOTAS, full)).status in (200, 201)
    more = {"metadata": {"labels": parent, "annotations": weight}, "spec": {"max": {"cpu": "9"}, "min": {"cpu": "9"}}}
    assert dry_run(plane, MANAGER, Act("", "PATCH", f"{QUOTAS}/made", more, MERGE)).status == 200
    own = {"spec": {"swaps": [SWAP], "nodes": {"n": [f"{SHOP}/web"]}}}
    assert dry_run(plane, MANAGER, Act("", "PATCH", f"{SWAPS}/swaps", own, MERGE)).status == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "kind"),
    [
        ("PATCH", f"{PLANS}/doors/status", {"status": {"phase": "Approved"}, **approval("boss@example.com")}, MERGE),
        ("PATCH", f"{PLANS}/doors{OTHER_MANAGER}", plan("doors", **approval("petra")["spec"]), APPLY),
        ("PATCH", f"{PLANS}/fresh{OTHER_MANAGER}", plan("fresh", policy={"autoApprove": True}), APPLY),
        ("PUT", f"{PLANS}/doors", plan("doors", **approval("petra")["spec"]), ""),
        (
            "PATCH",
            f"{PLANS}/doors",
            [{"op": "add", "path": "/spec/approval", "value": approval("petra")["spec"]["approval"]}],
            JSON_PATCH,
        ),
        (
            "POST",
            PLANS,
            {**plan("", **approval("petra")["spec"]), "metadata": {"generateName": "doors-"}},
            "",
        ),
    ],
    ids=["status", "apply", "apply of a new plan", "replace", "JSON patch", "generated name"],
)
def test_a_planner_approves_by_no_other_door(plane: ControlPlane, method: str, path: str, body: Any, kind: str) -> None:
    if not plane.api().exists(f"{PLANS}/doors"):
        plane.api().create(PLANS, plan("doors"))
    api = plane.api(planner(plane, "petra", approves=False))
    bare, _, rest = path.partition("?")
    query = {"dryRun": "All", **dict(pair.split("=") for pair in rest.split("&") if pair)}
    with pytest.raises(ApiError) as refusal:
        api.ask(method, bare, body, kind or "application/json", query)
    assert refusal.value.status == 403, refusal.value


def test_an_eviction_in_a_former_version_is_looked_at_as_well(
    plane: ControlPlane, fake_nodes: Callable[[int], list[str]]
) -> None:
    (node,) = fake_nodes(1)
    admin = plane.api()
    body = {
        "metadata": {"name": "needed"},
        "spec": {
            "nodeName": node,
            "priorityClassName": "system-node-critical",
            "containers": [{"name": "c", "image": IMAGE}],
        },
    }
    admin.create(f"{CORE}/pods", body)
    pod = Address("v1", "pods", "needed", SHOP)
    for version in ("policy/v1", "policy/v1beta1"):
        act = Act("", "POST", f"{CORE}/pods/needed/eviction", {**eviction_of(pod, "", "").body, "apiVersion": version})
        act.body["deleteOptions"] = {}
        response = wait_for(f"a refusal of {version}", lambda act=act: _refusal(dry_run(plane, MANAGER, act)))
        # The server takes bodies of the former version too, and gives both to the policy.
        assert response.by_policy, response
    admin.delete(f"{CORE}/pods/needed", gracePeriodSeconds="0")


def _refusal(response: Answer) -> Answer | None:
    return response if response.status in (400, 403) else None


def test_no_placeholder_is_left_behind(plane: ControlPlane) -> None:
    assert plane.api().items(f"/api/v1/namespaces/{PLACEHOLDER_NAMESPACE}/pods") == []
