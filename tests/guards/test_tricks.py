"""A thief's tricks: names that look like allowed ones, metadata that acts by itself, each by every kind of patch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.cluster.api import PATCHES, Api, ApiError
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for
from tests.guards.forbidden_acts import by_each_door, tricks
from tests.guards.scene import SHOP, Act, Answer, content, furnished, outcome, running, thief
from tests.guards.test_fields_on_a_real_cluster import ELSEWHERE, path_of
from tools.guarded_fields import GUARDS, Guard
from tools.write_guards import tree
from tools.write_rights import accounts

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]
Json = dict[str, Any]
PLACES = [(guard, *place) for guard in GUARDS for place in guard.resources if place not in ELSEWHERE]


def sent(api: Api, act: Act, **query: str) -> Answer:
    """The answer to a dry run of a patch."""
    try:
        return Answer(200, "", api.ask(act.method, act.path, act.body, act.kind, {"dryRun": "All", **query}))
    except ApiError as error:
        return Answer(error.status, str(error.body.get("message", "")))


@pytest.mark.parametrize(
    ("guard", "group", "resource"), PLACES, ids=lambda value: getattr(value, "name", value) or "core"
)
def test_no_trick_with_names_or_metadata_changes_more_than_the_table_allows(
    control_plane: ControlPlane, fake_nodes: Callable[[int], list[str]], guard: Guard, group: str, resource: str
) -> None:
    furnished(control_plane)
    admin, api = control_plane.api(), thief(control_plane, guard.account)
    (node,) = fake_nodes(1)
    path, part = path_of(group, resource, node), resource.partition("/")[2]
    if guard.when.startswith("!"):  # of pods that have a node
        path = path.replace("/web", f"/{running(admin, node)}")
    probe = Act("a label", "PATCH", path, {"metadata": {"labels": {"stolen": "x"}}})
    wait_for("the policy", lambda: outcome(api, probe).by_policy)
    live_path = path.removesuffix(f"/{part}") if part else path
    tried = 0
    for act in acts(admin.get(live_path), path, guard):
        query = {"fieldManager": "kubectl", "force": "true"} if act.kind == PATCHES["apply"] else {}
        response = sent(api, act, **query)
        assert response.status in (200, 400, 403, 422), (act, response)
        assert response.status != 200 or content(response.body) == unchanged(admin, live_path, response), act
        tried += response.by_policy
    assert tried >= 20  # the other refusals are the server's own, of names that no object may have


def unchanged(admin: Api, path: str, response: Answer) -> Json:
    """The object that a dry run was made from; the answer itself where a controller wrote in between."""
    live = admin.get(path)
    same = live["metadata"]["resourceVersion"] == response.body["metadata"]["resourceVersion"]
    return content(live if same else response.body)


def acts(live: Json, path: str, guard: Guard) -> Iterator[Act]:
    for steps, value in tricks(tree(guard.fields)):
        for door, kind, body in by_each_door(live, steps, value):
            yield Act(f"{'.'.join(map(str, steps))} by {door}", "PATCH", path, body, PATCHES[kind])


POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
SYSTEM, OWN = "/api/v1/namespaces/koordinator-system", "/api/v1/namespaces/cotenant"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/swapguards.cotenant.dev"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
DOORS: dict[str, tuple[str, str]] = {
    "end the policy on pods": ("DELETE", f"{POLICIES}ies/cotenant-reservation-writer"),
    "end the binding of a policy": ("DELETE", f"{POLICIES}ybindings/cotenant-manager-workloads"),
    "loosen a policy": ("PATCH", f"{POLICIES}ies/cotenant-placeholders"),
    "let a policy only warn": ("PATCH", f"{POLICIES}ybindings/cotenant-placeholders"),
    "say a policy's status": ("PATCH", f"{POLICIES}ies/cotenant-placeholders/status"),
    "a webhook of one's own": ("POST", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"),
    "another's webhook": ("PATCH", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/other"),
    "more rights": ("PATCH", f"{RBAC}/clusterroles/cotenant-manager"),
    "a binding to cluster-admin": ("POST", f"{RBAC}/clusterrolebindings"),
    "a binding in one namespace": ("POST", f"{RBAC}/namespaces/cotenant/rolebindings"),
    "the definition of an own kind": ("PATCH", DEFINITION),
    "a definition's status": ("PATCH", f"{DEFINITION}/status"),
    "labels of the placeholders' namespace": ("PATCH", "/api/v1/namespaces/cotenant-reservations"),
    "a namespace's end": ("PUT", "/api/v1/namespaces/cotenant/finalize"),
    "a token of the manager": ("POST", f"{OWN}/serviceaccounts/cotenant-manager/token"),
    "a token of a controller": ("POST", "/api/v1/namespaces/kube-system/serviceaccounts/default/token"),
    "an account": ("PATCH", f"{OWN}/serviceaccounts/cotenant-manager"),
    "all secrets of the namespace": ("GET", f"{OWN}/secrets"),
    "one secret by a list": ("GET", f"{OWN}/secrets?fieldSelector=metadata.name=cotenant-webhook-certificate"),
    "one secret by a watch": ("GET", f"{OWN}/secrets?watch=1&fieldSelector=metadata.name=cotenant-webhook-certificate"),
    "a secret by its collection": ("POST", f"{OWN}/secrets"),
    "all ConfigMaps at once": ("DELETE", f"{SYSTEM}/configmaps"),
    "the ledger's head at once": ("DELETE", f"{SYSTEM}/configmaps?fieldSelector=metadata.name=cotenant-ledger"),
    "the ledger's head": ("DELETE", f"{SYSTEM}/configmaps/cotenant-ledger"),
    "a ConfigMap by its collection": ("POST", f"{SYSTEM}/configmaps"),
    "the switch of the autopilot": ("PATCH", f"{SYSTEM}/configmaps/cotenant-autopilot"),
    "the configuration": ("PATCH", f"{SYSTEM}/configmaps/slo-controller-config"),
    "the configuration by the last letter": ("PATCH", f"{SYSTEM}/configmaps/cotenant-statu"),
    "the same ConfigMap elsewhere": ("PATCH", f"{OWN}/configmaps/cotenant-status"),
    "settings of a release": ("GET", f"{OWN}/configmaps/cotenant-settings"),
    "settings written": ("PATCH", f"{OWN}/configmaps/cotenant-settings"),
    "the scheduler's lease": ("PATCH", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"),
    "a node's lease": ("PATCH", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n"),
    "a lease by its collection": ("POST", "/apis/coordination.k8s.io/v1/namespaces/koordinator-system/leases"),
    "all leases at once": ("DELETE", "/apis/coordination.k8s.io/v1/namespaces/koordinator-system/leases"),
    "a shell": ("POST", f"/api/v1/namespaces/{SHOP}/pods/web/exec?command=sh"),
    "a shell by GET": ("GET", f"/api/v1/namespaces/{SHOP}/pods/web/exec?command=sh"),
    "a port": ("POST", f"/api/v1/namespaces/{SHOP}/pods/web/portforward"),
    "logs": ("GET", f"/api/v1/namespaces/{SHOP}/pods/web/log"),
    "a pod's web server": ("GET", f"/api/v1/namespaces/{SHOP}/pods/web/proxy/metrics"),
    "a service's web server": ("GET", "/api/v1/namespaces/kube-system/services/https:metrics:443/proxy/"),
    "a kubelet": ("GET", "/api/v1/nodes/n/proxy/pods"),
    "a debug container": ("PATCH", f"/api/v1/namespaces/{SHOP}/pods/web/ephemeralcontainers"),
    "all pods of the shop": ("DELETE", f"/api/v1/namespaces/{SHOP}/pods"),
    "a pod past its budget": ("DELETE", f"/api/v1/namespaces/{SHOP}/pods/web?gracePeriodSeconds=0"),
    "replaced as a whole": ("PUT", f"/api/v1/namespaces/{SHOP}/pods/web"),
    "replicas": ("PATCH", f"/apis/apps/v1/namespaces/{SHOP}/deployments/web/scale"),
    "replicas of a set": ("PATCH", f"/apis/apps/v1/namespaces/{SHOP}/statefulsets/web/scale"),
    "replicas of an old kind": ("PATCH", f"/api/v1/namespaces/{SHOP}/replicationcontrollers/web/scale"),
    "a workload's status": ("PATCH", f"/apis/apps/v1/namespaces/{SHOP}/deployments/web/status"),
    "a Job": ("POST", f"/apis/batch/v1/namespaces/{SHOP}/jobs"),
    "a Deployment": ("POST", f"/apis/apps/v1/namespaces/{SHOP}/deployments"),
    "a template": ("POST", f"/api/v1/namespaces/{SHOP}/podtemplates"),
    "an event of the former kind": ("POST", f"/api/v1/namespaces/{SHOP}/events"),
    "all events at once": ("DELETE", f"/apis/events.k8s.io/v1/namespaces/{SHOP}/events"),
    "a budget": ("PATCH", f"/apis/policy/v1/namespaces/{SHOP}/poddisruptionbudgets/web"),
    "a budget's status": ("PATCH", f"/apis/policy/v1/namespaces/{SHOP}/poddisruptionbudgets/web/status"),
    "a node's removal": ("DELETE", "/api/v1/nodes/n"),
    "a node of one's own": ("POST", "/api/v1/nodes"),
    "a volume": ("POST", "/api/v1/persistentvolumes"),
    "who somebody is": ("POST", "/apis/authentication.k8s.io/v1/tokenreviews"),
    "what others may": ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews"),
    "what others may here": ("POST", f"/apis/authorization.k8s.io/v1/namespaces/{SHOP}/localsubjectaccessreviews"),
    "a certificate": ("POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests"),
    "an approved certificate": ("PUT", "/apis/certificates.k8s.io/v1/certificatesigningrequests/x/approval"),
    "an API of one's own": ("POST", "/apis/apiregistration.k8s.io/v1/apiservices"),
    "flow control": ("PATCH", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/exempt"),
    "a claim's device": ("PATCH", f"/apis/resource.k8s.io/v1/namespaces/{SHOP}/resourceclaims/c/status"),
    "a device class": ("POST", "/apis/resource.k8s.io/v1/deviceclasses"),
    "a runtime class": ("POST", "/apis/node.k8s.io/v1/runtimeclasses"),
    "metrics of the server": ("GET", "/metrics"),
    "what the server logs": ("GET", "/logs/"),
    "profiles of the server": ("GET", "/debug/pprof/heap"),
}  # fmt: skip
"""What no account of ours may, by the names that a thief would use."""
OWN_DOORS: dict[str, set[str]] = {"cotenant-uninstall": {"settings of a release"}}
"""What one account may after all: the hook reads which features the settings switch off."""
BODIES: dict[str, Any] = {"PATCH": {"metadata": {"labels": {"stolen": "yes"}}}, "POST": {}, "PUT": {}}


@pytest.mark.parametrize("account", accounts())
def test_no_account_goes_through_a_door_that_is_not_its_own(control_plane: ControlPlane, account: str) -> None:
    furnished(control_plane)
    user = f"system:serviceaccount:{accounts()[account]}:{account}"
    api = control_plane.api(control_plane.user(user, ["system:serviceaccounts"]))
    assert len(DOORS) >= 70
    closed = DOORS.keys() - OWN_DOORS.get(account, set())
    answers = {title: door_of(api, *DOORS[title]) for title in sorted(closed)}
    # 403 by RBAC, before anything of the request is read.
    assert {title: response for title, response in answers.items() if response.status != 403} == {}


def door_of(api: Api, method: str, path: str) -> Answer:
    bare, _, rest = path.partition("?")
    query = dict(pair.split("=", 1) for pair in rest.split("&") if pair)
    if method != "GET":
        query["dryRun"] = "All"
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    try:
        return Answer(200, "", api.ask(method, bare, BODIES.get(method), kind, query))
    except ApiError as error:
        return Answer(error.status, str(error.body.get("message", ""))[:200])
