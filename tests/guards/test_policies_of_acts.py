"""Acts that no table of fields describes: placeholders, evictions, classes, approvals, hand-overs, and our own work."""

from __future__ import annotations

import copy
import json
import tomllib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import yaml

from cotenant.base.kubernetes.intent import COMPONENT_LABEL, OURS, Address, eviction_of
from cotenant.base.kubernetes.protocol import PLACEHOLDER_NAMESPACE
from cotenant.base.runtimes.heap import HeapProposal
from cotenant.changes.decide.heap_flags import flag_texts
from cotenant.scheduler_ext.reservations.model.reservation import Mode
from cotenant.scheduler_ext.reservations.placeholder import PlaceholderSpec, class_intent, placeholder_creation
from cotenant.settings import Settings
from tests.cluster.accounts import planner
from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import install_crd
from tests.cluster.waiting import wait_for
from tests.guards.scene import APPS, CORE, IMAGE, SHOP, Act, Answer, furnished, outcome, thief
from tests.scheduler_ext.reservations.builders import reservation
from tools.write_guards import DEPLOY

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]
Json = dict[str, Any]
PODS = f"/api/v1/namespaces/{PLACEHOLDER_NAMESPACE}/pods"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> ControlPlane:
    furnished(control_plane)
    for definition in ("reservationplans.cotenant.dev", "swapguards.cotenant.dev"):
        install_crd(control_plane.api(), definition)
    manager = thief(control_plane, "cotenant-manager")
    naked = {"metadata": {"name": "probe"}, "spec": {"containers": [{"name": "c", "image": IMAGE}]}}
    wait_for("the policies", lambda: outcome(manager, Act("", "POST", PODS, naked)).by_policy)
    return control_plane


def refused(response: Answer) -> bool:
    """Whether a policy, or the server's own validation before it, refused; any other failure is the test's."""
    assert response.by_policy or response.status in (200, 201, 422), response
    return response.status >= 300


def placeholder() -> Json:
    """As the manager makes it."""
    intent = placeholder_creation(
        reservation(), PlaceholderSpec("held-0", {"cpu": 500}), Mode.PINNED, {}, Settings().reservations
    )
    return copy.deepcopy(dict(intent.body))


def edited(path: str, value: Any) -> Json:
    """A placeholder with one field set, by a path of keys and places."""
    body: Any = placeholder()
    target, keys = body, path.split("/")
    for key in keys[:-1]:
        target = target[int(key)] if isinstance(target, list) else target.setdefault(key, {})
    if isinstance(target, list):
        target.append(value)
    else:
        target[keys[-1]] = value
    return body


FORBIDDEN = {
    "spec/nodeName": "node-0",
    "spec/hostPID": True,
    "spec/hostIPC": True,
    "spec/shareProcessNamespace": True,
    "spec/volumes": [{"name": "root", "hostPath": {"path": "/"}}],
    "spec/serviceAccountName": "default",
    "spec/automountServiceAccountToken": True,
    "spec/initContainers": [{"name": "i", "image": IMAGE}],
    "spec/containers/+": {"name": "second", "image": IMAGE},
    "spec/containers/0/image": "example.invalid/pause:3.10",
    "spec/containers/0/command": ["sh"],
    "spec/containers/0/args": ["-c", "true"],
    "spec/containers/0/env": [{"name": "A", "value": "b"}],
    "spec/containers/0/ports": [{"containerPort": 10250, "hostPort": 10250}],
    "spec/containers/0/lifecycle": {"postStart": {"exec": {"command": ["sh"]}}},
    "spec/containers/0/livenessProbe": {"exec": {"command": ["sh"]}},
    "spec/containers/0/securityContext/privileged": True,
    "spec/containers/0/securityContext/allowPrivilegeEscalation": True,
    "spec/containers/0/securityContext/runAsUser": 0,
    "spec/containers/0/securityContext/capabilities": {"add": ["SYS_ADMIN"], "drop": ["ALL"]},
    "spec/containers/0/securityContext/readOnlyRootFilesystem": False,
    "spec/containers/0/securityContext/seccompProfile": {"type": "Unconfined"},
    "spec/securityContext/runAsUser": 0,
    "spec/securityContext/runAsNonRoot": False,
    "spec/securityContext/fsGroup": 0,
    "spec/securityContext/sysctls": [{"name": "kernel.shm_rmid_forced", "value": "1"}],
    "spec/resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}],
    "spec/dnsConfig": {"nameservers": ["192.0.2.1"]},
    "spec/hostAliases": [{"ip": "192.0.2.1", "hostnames": ["kubernetes"]}],
    "metadata/ownerReferences": [],
}


@pytest.mark.parametrize("who", ["cotenant-manager", ""], ids=["the manager", "an administrator"])
@pytest.mark.parametrize("path", FORBIDDEN)
def test_a_placeholder_is_a_pod_that_sleeps_and_nothing_else_whoever_makes_it(
    plane: ControlPlane, path: str, who: str
) -> None:
    api = thief(plane, who) if who else plane.api()
    assert refused(outcome(api, Act(path, "POST", PODS, edited(path, FORBIDDEN[path]))))


def test_a_placeholder_as_the_manager_makes_it_is_let_in(plane: ControlPlane) -> None:
    assert outcome(thief(plane, "cotenant-manager"), Act("own", "POST", PODS, placeholder())).status == 200


CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@pytest.mark.parametrize(
    ("change", "let"),
    [
        ({}, True),
        ({"globalDefault": True}, False),
        ({"preemptionPolicy": "PreemptLowerPriority"}, False),
        ({"value": 1_000_000_000}, False),
        ({"metadata": {"name": "important"}}, False),
    ],
    ids=["own", "default", "preempts", "high", "name"],
)
def test_the_manager_makes_no_priority_class_but_those_of_placeholders(
    plane: ControlPlane, change: Json, let: bool
) -> None:
    body = {**class_intent("cotenant-below-99", 99).body, **change}
    response = outcome(thief(plane, "cotenant-manager"), Act("class", "POST", CLASSES, body))
    assert refused(response) is not let, response


def runs(admin: Api, node: str, name: str, namespace: str = SHOP, **spec: Any) -> str:
    """A pod that has a node; the path of its evictions."""
    labels = spec.pop("labels", {})
    body = {
        "metadata": {"name": name, "labels": labels},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": IMAGE}], **spec},
    }
    path = f"/api/v1/namespaces/{namespace}/pods"
    if not admin.exists(f"{path}/{name}"):
        admin.create(path, body)
    return f"{path}/{name}/eviction"


def eviction(path: str) -> Act:
    name, namespace = path.split("/")[-2], path.split("/")[4]
    pod = Address("v1", "pods", name, namespace)
    return Act("evict", "POST", path, {**eviction_of(pod, "", "").body, "deleteOptions": {}})


def unmarked(act: Act, labels: Json) -> Act:
    """The same eviction with these labels in the place of ours."""
    return replace(act, body={**act.body, "metadata": {**act.body["metadata"], "labels": labels}})


def test_the_manager_evicts_no_pod_that_the_cluster_needs(
    plane: ControlPlane, fake_nodes: Callable[[int], list[str]]
) -> None:
    (node,) = fake_nodes(1)
    admin, manager = plane.api(), thief(plane, "cotenant-manager")
    ordinary = eviction(runs(admin, node, "ordinary"))
    critical = eviction(runs(admin, node, "critical", "kube-system", priorityClassName="system-node-critical"))
    system = eviction(runs(admin, node, "system", "kube-system"))
    elsewhere = eviction(runs(admin, node, "needed", SHOP, priorityClassName="system-cluster-critical"))
    wait_for("the policy to hear of the pod", lambda: outcome(manager, ordinary).status < 300)
    wait_for("the policy to hear of the critical pod", lambda: outcome(manager, elsewhere).by_policy)
    for act in (critical, system, elsewhere):
        assert outcome(manager, act).by_policy
    # Without our label the policy that looks at the pods would not look: the account is refused, whatever the pod.
    for act in (ordinary, critical, elsewhere):
        marked = dict(OURS)
        for labels in ({}, marked, {**marked, COMPONENT_LABEL: "enforcer"}, {COMPONENT_LABEL: "manager"}):
            assert outcome(manager, unmarked(act, labels)).by_policy, (act.path, labels)
    # Other people's evictions are theirs: with or without a label, of any pod.
    for act in (ordinary, unmarked(ordinary, {}), unmarked(elsewhere, {})):
        assert outcome(admin, act).status < 300, act
    admin.delete(f"/api/v1/namespaces/{SHOP}/pods/needed", gracePeriodSeconds="0")
    for path in ("ordinary", "critical", "system"):
        where = SHOP if path == "ordinary" else "kube-system"
        admin.delete(f"/api/v1/namespaces/{where}/pods/{path}", gracePeriodSeconds="0")


SWAPS = "/apis/cotenant.dev/v1alpha1/swapguards"
SWAP = {
    "id": "a", "reservation": "r", "reservationUid": "u", "node": "n",
    "started": "2026-11-20T12:00:00.000000Z", "expires": "2026-11-20T12:00:15.000000Z",
}  # fmt: skip


@pytest.mark.parametrize(
    ("who", "swap", "let"),
    [
        ("cotenant-manager", SWAP, True),
        ("cotenant-manager", {**SWAP, "expires": "2026-11-20T13:00:00.000000Z"}, False),
        ("cotenant-webhook", SWAP, False),
    ],
    ids=["own", "an hour long", "the webhook"],
)
def test_only_the_manager_says_that_capacity_is_handed_over_and_for_minutes_at_most(
    plane: ControlPlane, who: str, swap: Json, let: bool
) -> None:
    admin, name = plane.api(), "swaps"
    body = {"apiVersion": "cotenant.dev/v1alpha1", "kind": "SwapGuard", "metadata": {"name": name}}
    if not admin.exists(f"{SWAPS}/{name}"):
        admin.create(SWAPS, {**body, "spec": {"servedUntil": SWAP["expires"]}})
    patch = {"spec": {"swaps": [swap], "nodes": {"n": ["shop/web"]}}}
    response = outcome(thief(plane, who), Act("swap", "PATCH", f"{SWAPS}/{name}", patch, MERGE))
    assert refused(response) is not let, response


OWN_CHANGES: dict[str, dict[str, Any]] = {
    "request": {"resources": {"requests": {"cpu": "200m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}}},
    "heap": {
        "command": ["java", "-Xms128m", "-Xmx300m", "-jar", "app.jar"],
        "env": [{"name": "JAVA_OPTS", "value": "-Xmx300m -Dx=1"}, {"name": "MODE", "value": "prod"}],
    },
}
THEFTS: dict[str, dict[str, Any]] = {
    "command": {"command": ["java", "-Xms256m", "-Xmx512m", "-jar", "evil.jar"]},
    "agent": {"command": ["java", "-Xms256m", "-Xmx512m", "-javaagent:x.jar", "-jar", "app.jar"]},
    "args": {"args": ["x"]},
    "variable": {"env": [{"name": "JAVA_OPTS", "value": "-Xmx512m -Dx=1"}, {"name": "MODE", "value": "debug"}]},
    "new variable": {"env": [{"name": "LD_PRELOAD", "value": "x"}]},
    "behind the heap": {"env": [{"name": "JAVA_OPTS", "value": "-Xmx512m -Dx=1 -javaagent:x"}]},
    "image": {"image": "example.invalid/evil:1"},
    "claims": {"resources": {"claims": [{"name": "gpu"}]}},
}


@pytest.mark.parametrize("title", [*OWN_CHANGES, *THEFTS])
def test_of_a_workload_the_manager_changes_requests_limits_and_the_heap_alone(plane: ControlPlane, title: str) -> None:
    change = {**OWN_CHANGES, **THEFTS}[title]
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "app", **change}]}}}}
    response = outcome(
        thief(plane, "cotenant-manager"), Act(title, "PATCH", f"{APPS}/deployments/web", patch, STRATEGIC)
    )
    own = title in OWN_CHANGES
    assert refused(response) is not own, response


AUTOSCALER = f"/apis/autoscaling/v2/namespaces/{SHOP}/horizontalpodautoscalers/web"


def floor(original: int | None, minimum: int) -> Json:
    """What a plan writes: the mark and the minimum. The autoscaler of the scene has 2."""
    mark = json.dumps({"plan": "p", "original": original, "floor": minimum}, separators=(",", ":"))
    return {"metadata": {"annotations": {"cotenant.dev/plan-floor": mark}}, "spec": {"minReplicas": minimum}}


@pytest.mark.parametrize(
    ("patch", "let"),
    [
        (floor(2, 4), True),
        (floor(1, 4), False),
        (floor(None, 4), False),
        ({"spec": {"minReplicas": 1}}, False),
        # without the mark, or with one of another floor or none that is read, nothing gives it back
        ({"spec": {"minReplicas": 3}}, False),
        ({**floor(2, 3), "spec": {"minReplicas": 9}}, False),
        (
            {"metadata": {"annotations": {"cotenant.dev/lent-floor": '"original":2,"floor":3'}}}
            | {"spec": {"minReplicas": 3}},
            False,
        ),
        ({"spec": {"maxReplicas": 50}}, False),
        ({"spec": {"scaleTargetRef": {"name": "other"}}}, False),
        ({"spec": {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}}, False),
    ],
)
def test_of_an_autoscaler_the_manager_raises_the_floor_and_says_what_it_was(
    plane: ControlPlane, patch: Json, let: bool
) -> None:
    response = outcome(thief(plane, "cotenant-manager"), Act("floor", "PATCH", AUTOSCALER, patch, MERGE))
    assert refused(response) is not let, response


def utilization(percent: int, name: str = "cpu") -> Json:
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"spec": {"metrics": [{"type": "Resource", "resource": {"name": name, "target": target}}]}}


@pytest.mark.parametrize(
    ("patch", "let"),
    [(utilization(90), True), (utilization(400), False), (utilization(60, "memory"), False)],
    ids=["own", "never scales", "another resource"],
)
def test_of_an_autoscalers_metrics_the_manager_moves_a_target_alone(
    plane: ControlPlane, patch: Json, let: bool
) -> None:
    response = outcome(thief(plane, "cotenant-manager"), Act("target", "PATCH", AUTOSCALER, patch, MERGE))
    assert refused(response) is not let, response


DEFAULT_TOLERATIONS = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in ("not-ready", "unreachable")
]
"""Kubernetes adds them to every pod."""
HERE = {"key": "metadata.name", "operator": "In", "values": ["n"]}
PREFERENCE = {"weight": 100, "preference": {"matchFields": [HERE]}}


@pytest.mark.parametrize(
    ("patch", "let"),
    [
        ({"spec": {"schedulingGates": [{"name": "example.invalid/other"}]}}, True),
        ({"spec": {"schedulingGates": [{"name": "cotenant.dev/quota"}]}}, False),
        ({"spec": {"tolerations": [{"operator": "Exists"}, *DEFAULT_TOLERATIONS]}}, False),
        ({"spec": {"nodeSelector": {"a": "b"}}}, False),
        (
            {"spec": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [PREFERENCE]}}}},
            True,
        ),
        ({"metadata": {"labels": {"app": "stolen"}}}, False),
        ({"metadata": {"finalizers": ["example.invalid/x"]}}, False),
        ({"metadata": {"labels": {"cotenant.dev/reservation": "r"}}}, True),
    ],
    ids=["own gate", "others' gate", "toleration", "selector", "node affinity", "label", "finalizer", "our label"],
)
def test_of_a_pod_that_waits_the_manager_lifts_its_own_gates_alone(plane: ControlPlane, patch: Json, let: bool) -> None:
    response = outcome(thief(plane, "cotenant-manager"), Act("gate", "PATCH", f"{CORE}/pods/web", patch, MERGE))
    assert refused(response) is not let, response


PLANS = f"/apis/cotenant.dev/v1alpha1/namespaces/{SHOP}/reservationplans"


def plan(name: str, **more: Any) -> Json:
    """The example that is shipped, without its decisions."""
    body: Json = yaml.safe_load((DEPLOY / "examples" / "reservationplan.yaml").read_text())
    spec = {key: value for key, value in body["spec"].items() if key not in ("approval", "policy")}
    return {**body, "metadata": {"name": name}, "spec": {**spec, **more}}


def approval(by: str) -> Json:
    return {"spec": {"approval": {"decision": "Approved", "scope": "Series", "by": by, "at": "2026-11-20T12:00:00Z"}}}


@pytest.mark.parametrize(
    ("who", "patch", "let"),
    [
        ("paul", approval("paul"), True),
        ("paul", approval("boss@example.com"), False),
        ("paul", {"spec": {"policy": {"autoApprove": True}}}, True),
        ("petra", approval("petra"), False),
        ("petra", {"spec": {"policy": {"autoApprove": True}}}, False),
        ("petra", {"spec": {"suspend": True}}, True),
        ("cotenant-manager", approval("boss@example.com"), False),
        ("cotenant-manager", {"spec": {"policy": {"autoApprove": True}}}, False),
        ("cotenant-manager", {"spec": {"suspend": True}}, True),
    ],
)
def test_a_plan_is_approved_by_who_may_approve_in_their_own_name(
    plane: ControlPlane, who: str, patch: Json, let: bool
) -> None:
    """paul plans and approves, petra plans."""
    admin = plane.api()
    if not admin.exists(f"{PLANS}/evening"):
        admin.create(PLANS, plan("evening"))
    ours = who == "cotenant-manager"
    api = thief(plane, who) if ours else plane.api(planner(plane, who, approves=who == "paul"))
    wait_for(
        "the rights", lambda: outcome(api, Act("", "PATCH", f"{PLANS}/evening", {"spec": {"suspend": False}})).body
    )
    response = outcome(api, Act("approve", "PATCH", f"{PLANS}/evening", patch))
    assert refused(response) is not let, response


def test_a_plan_that_comes_approved_is_refused(plane: ControlPlane) -> None:
    api = plane.api(planner(plane, "petra", approves=False))
    for extra in (approval("boss@example.com")["spec"], {"policy": {"autoApprove": True}}):
        assert outcome(api, Act("make", "POST", PLANS, plan("forged", **extra))).by_policy
    assert outcome(api, Act("make", "POST", PLANS, plan("forged"))).status < 300


HEAPS: dict[str, dict[str, Any]] = {
    "one flag of a variable": {"env": [{"name": "JAVA_OPTS", "value": "-Xmx512m -Dx=1"}]},
    "a share of the limit": {"env": [{"name": "JAVA_TOOL_OPTIONS", "value": "-XX:MaxRAMPercentage=75.0 -XX:+UseG1GC"}]},
    "command": {"command": ["java", "-Xms512m", "-Xmx512m", "-jar", "app.jar"]},
    "args": {"args": ["-Xmx1g", "--port=80"]},
    "one shell line": {"command": ["sh", "-c", "exec java -Xms512m -Xmx512m -jar app.jar --x='-y'"]},
    "every flag beside": {
        "args": ["-XX:MaxHeapSize=536870912 -XX:InitialHeapSize=512m -XX:MinHeapSize=512m -XX:SoftMaxHeapSize=400m"]
    },
    "quoted, in two texts": {"command": ["sh", "-c", 'java "-Xmx512m" -jar a.jar'], "args": ["-Xms512m;"]},
}
"""Parts of a container in which a runtime's largest heap is set."""
RUNTIME_STARTS: dict[str, dict[str, dict[str, Any]]] = {"jvm": HEAPS}
"""Of every runtime that is shipped: containers that set its heap."""


@pytest.mark.parametrize("heap_bytes", [300 * 2**20, 300 * 2**20 + 1, 2**31], ids=["smaller", "odd", "larger"])
@pytest.mark.parametrize(
    ("runtime", "title"), [(runtime, title) for runtime, starts in RUNTIME_STARTS.items() for title in starts]
)
def test_what_the_product_writes_for_the_heap_of_a_runtime_is_let_through(
    plane: ControlPlane, runtime: str, title: str, heap_bytes: int
) -> None:
    container = {"name": "app", "image": IMAGE, **RUNTIME_STARTS[runtime][title]}
    proposal = HeapProposal(runtime, 512 * 2**20, heap_bytes, 0)
    operations = [
        {"op": "replace", "path": f"/spec/template/spec/containers/0{pointer}", "value": text}
        for pointer, (_, text) in flag_texts(container, proposal).items()
    ]
    assert operations, "the product changes something"
    labels = {"heap": "yes"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    body = {
        "metadata": {"name": "heap"},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
    }
    admin, path = plane.api(), f"{APPS}/deployments/heap"
    if admin.exists(path):
        admin.delete(path)
        wait_for("it is gone", lambda: not admin.exists(path))
    admin.create(f"{APPS}/deployments", body)
    manager = thief(plane, "cotenant-manager")
    assert outcome(manager, Act(title, "PATCH", path, operations, "application/json-patch+json")).status == 200
    for stolen in (f"{operations[0]['value']} -javaagent:x", f"-Dx=2 {operations[0]['value']}"):
        theft = [{**operations[0], "value": stolen}, *operations[1:]]
        assert refused(outcome(manager, Act("theft", "PATCH", path, theft, "application/json-patch+json")))


def test_every_runtime_that_is_shipped_is_tried() -> None:
    """A further one needs its flags in `tools.guarded_heap.HEAP`, and containers above."""
    shipped = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    assert set(shipped["cotenant.runtimes"]) == set(RUNTIME_STARTS)
