"""`cotenant install` and `uninstall` against a real API server, and the kinds that are there afterwards.

They have an API server of their own: what they take away, other tests need.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from cotenant.cli import main
from cotenant.cli.cluster.installation.manifests import DEFAULT, manifests
from cotenant.scheduler_ext.sketch import convert_reservation
from tests.cli.documented_rights import MAY, MAY_NOT
from tests.cluster.api import Api, ApiError
from tests.cluster.control_plane import ControlPlane
from tests.cluster.specimens import dropped, specimen
from tests.cluster.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def stored_objects(folder: str) -> Iterator[dict[str, Any]]:
    """The objects of a folder below `deploy`; read in C, because every worker does this when it collects."""
    for path in sorted((ROOT / "deploy" / folder).glob("*.yaml")):
        yield yaml.load(path.read_text(), Loader=yaml.CSafeLoader)


DEFINITIONS = {body["spec"]["names"]["kind"]: body for body in stored_objects("crds")}
EXAMPLES = {body["kind"]: body for body in stored_objects("examples") if body["kind"] in DEFINITIONS}
OURS = "app.kubernetes.io/managed-by=cotenant"
LABELLED = (
    CRDS,
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/rbac.authorization.k8s.io/v1/roles",
    "/apis/rbac.authorization.k8s.io/v1/rolebindings",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "/api/v1/serviceaccounts",
    "/api/v1/secrets",
    "/api/v1/configmaps",
    "/api/v1/namespaces",
    "/api/v1/persistentvolumeclaims",
    "/api/v1/services",
    "/apis/apps/v1/deployments",
    "/apis/batch/v1/cronjobs",
    "/apis/policy/v1/poddisruptionbudgets",
)


@pytest.fixture
def plane(bare_plane: ControlPlane) -> ControlPlane:
    return bare_plane


@pytest.fixture
def api(plane: ControlPlane) -> Api:
    return plane.api()


@pytest.fixture
def installed(plane: ControlPlane, api: Api) -> Api:
    """The API of a cluster that has been installed into."""
    have = {c["metadata"]["name"] for c in api.items(CRDS, labelSelector=OURS)}
    if have != {d["metadata"]["name"] for d in DEFINITIONS.values()} or not api.exists(
        f"{LABELLED[2]}/cotenant-manager"
    ):
        assert run(plane, "install", "--apply")[0] == 0
    return api


def run(
    plane: ControlPlane, *arguments: str, kubeconfig: Path | None = None
) -> tuple[int, dict[str, dict[str, str]], str]:
    """(exit code, rows by object, what was said) of a command."""
    done = CliRunner().invoke(
        main.root, [*arguments, "--kubeconfig", str(kubeconfig or plane.admin_kubeconfig), "-o", "json"]
    )
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    rows = json.loads(done.stdout) if done.stdout.startswith("[") else []
    return done.exit_code, {row["object"]: row for row in rows}, done.stderr


def versions(api: Api) -> dict[str, str]:
    """Version of everything that is labelled as ours; its generation, where controllers write a status into it."""
    by_path = {p: api.items(p, labelSelector=OURS) for p in LABELLED}
    return {
        f"{p}/{o['metadata']['name']}": str(o["metadata"].get("generation") or o["metadata"]["resourceVersion"])
        for p, items in by_path.items()
        for o in items
    }


def remove_all(plane: ControlPlane, api: Api) -> None:
    """Uninstall, with the volume's claim, which an uninstallation keeps, and the namespace that it keeps for it."""
    claim = "/api/v1/namespaces/cotenant/persistentvolumeclaims/cotenant-store"
    assert run(plane, "uninstall", "--crds", "--audit-log", "--yes")[0] == 0
    if api.exists(claim):
        api.delete(claim)
        wait_for("the end of the claim", lambda: not api.exists(claim), 120)
        assert run(plane, "uninstall", "--crds", "--audit-log", "--yes")[0] == 0


def collection(kind: str, namespace: str = "default") -> str:
    spec = DEFINITIONS[kind]["spec"]
    inside = f"/namespaces/{namespace}" if spec["scope"] == "Namespaced" else ""
    return f"/apis/{spec['group']}/{spec['versions'][0]['name']}{inside}/{spec['names']['plural']}"


def has_status(kind: str) -> bool:
    return "subresources" in DEFINITIONS[kind]["spec"]["versions"][0]


def store(api: Api, body: dict[str, Any]) -> dict[str, Any]:
    """Apply an object, strictly, and its status where that is written apart; the object as it is then."""
    path = f"{collection(body['kind'])}/{body['metadata']['name']}"
    query = {"fieldManager": "test", "force": "true", "fieldValidation": "Strict"}
    stored = api.patch(path, body, "apply", **query)
    if has_status(body["kind"]) and "status" in body:
        part = {key: body[key] for key in ("apiVersion", "kind", "status")} | {
            "metadata": {"name": body["metadata"]["name"]}
        }
        stored = api.patch(f"{path}/status", part, "apply", **query)
    return stored


def changed(kind: str, path: str, value: Any) -> dict[str, Any]:
    """An example with one value replaced (None: taken away)."""
    body = copy.deepcopy(EXAMPLES[kind])
    place: Any = body
    *way, last = path.split(".")
    for word in way:
        place = place[int(word)] if word.isdigit() else place.setdefault(word, {})
    if value is None:
        del place[last]
    else:
        place[last] = value
    return body


# --- install ---------------------------------------------------------------------------------------------------------
def test_an_installation_is_shown_first_then_done_and_done_again_changes_nothing(plane: ControlPlane, api: Api) -> None:
    remove_all(plane, api)
    code, plan, text = run(plane, "install")
    assert code == 0, (text, [row for row in plan.values() if row["state"] != "create"])
    assert {row["state"] for row in plan.values()} == {"create"}
    assert "nothing was" in text
    assert versions(api) == {}
    code, done, text = run(plane, "install", "--apply")
    assert (code, done) == (0, plan)
    assert "port-forward deployment/cotenant-dashboard" in text and "the image cotenant/cotenant:" in text
    assert len(versions(api)) == len(manifests(DEFAULT))
    for kind in DEFINITIONS:  # served from the first moment on
        assert api.items(collection(kind)) == []
    before = versions(api)
    code, again, text = run(plane, "install", "--apply")
    assert code == 0
    assert {row["state"] for row in again.values()} == {"unchanged"}
    assert "nothing to do" in text
    assert versions(api) == before


def test_the_node_agent_is_installed_when_asked_for_and_again_changes_nothing(plane: ControlPlane, api: Api) -> None:
    arguments = ("--components", "priority-classes", "--enforcer", "--apply")
    assert run(plane, "install", *arguments)[0] == 0
    daemon = "/apis/apps/v1/namespaces/cotenant/daemonsets/cotenant-enforcer"
    assert api.exists(daemon)
    assert {row["state"] for row in run(plane, "install", *arguments)[1].values()} == {"unchanged"}
    assert run(plane, "uninstall", "--components", "enforcer", "--yes")[0] == 0
    assert not api.exists(daemon)


def test_a_changed_object_is_put_right_and_foreign_fields_stay(plane: ControlPlane, installed: Api) -> None:
    path = f"{LABELLED[1]}/koord-free"
    note = {"metadata": {"annotations": {"team.example/why": "theirs"}}, "description": "another"}
    installed.patch(path, note)
    code, rows, _ = run(plane, "install", "--apply")
    assert code == 0
    assert [(n, r["note"]) for n, r in rows.items() if r["state"] == "change"] == [
        ("priorityclasses/koord-free", "description")
    ]
    now = installed.get(path)
    assert now["metadata"]["annotations"]["team.example/why"] == "theirs"
    assert now["description"] != "another"


def test_somebody_elses_definition_is_left_alone_and_what_it_lacks_is_said(plane: ControlPlane, installed: Api) -> None:
    name = DEFINITIONS["Device"]["metadata"]["name"]
    assert run(plane, "uninstall", "--components", "crds", "--crds", "--yes")[0] == 0
    theirs = copy.deepcopy(DEFINITIONS["Device"])
    theirs["metadata"] = {"name": name}
    schema = theirs["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"] = {
        "type": "object",
        "properties": {"devices": {"type": "array", "items": {"type": "object"}}},
    }
    installed.create(CRDS, theirs)
    before = installed.get(f"{CRDS}/{name}")["spec"]
    code, rows, text = run(plane, "install", "--apply")
    row = rows[f"customresourcedefinitions/{name}"]
    assert (code, row["state"]) == (3, "lacking")
    assert "the CRD lacks spec.devices[].conditions" in row["note"]
    assert "lacks fields that cotenant needs" in text
    assert installed.get(f"{CRDS}/{name}")["spec"] == before
    assert installed.exists(f"{CRDS}/{DEFINITIONS['NodeMetric']['metadata']['name']}")
    _, removed, _ = run(plane, "uninstall", "--components", "crds", "--crds", "--yes")
    assert removed[f"customresourcedefinitions/{name}"]["state"] == "foreign"
    assert [c["metadata"]["name"] for c in installed.items(CRDS)] == [name]
    installed.delete(f"{CRDS}/{name}")


def test_without_rights_nothing_is_written_and_each_missing_right_is_named(plane: ControlPlane, installed: Api) -> None:
    before = versions(installed)
    code, rows, text = run(plane, "install", "--apply", kubeconfig=plane.user("jane"))
    assert code == 1
    assert {row["state"] for row in rows.values()} == {"refused"}
    assert all("cannot get" in row["note"] for row in rows.values())
    assert "nothing was written" in text
    assert versions(installed) == before


# --- uninstall -------------------------------------------------------------------------------------------------------
def test_an_uninstallation_takes_what_is_ours_and_no_more(plane: ControlPlane, installed: Api) -> None:
    store(installed, EXAMPLES["NodeMetric"])
    installed.create(
        "/api/v1/namespaces/koordinator-system/configmaps", {"metadata": {"name": "slo-controller-config"}}
    )
    addresses = [{"type": "InternalIP", "address": "10.0.0.1"}]
    amounts = {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"}, "addresses": addresses}
    installed.create("/api/v1/nodes", {"metadata": {"name": "n1"}, "status": amounts})
    lent = {"kubernetes.io/batch-cpu": "1000"}
    status = {"apiVersion": "v1", "kind": "Node", "status": {"capacity": lent, "allocatable": lent}}
    installed.patch("/api/v1/nodes/n1/status", status, "apply", fieldManager="cotenant-manager")

    before = versions(installed)
    _, plan, text = run(plane, "uninstall")
    assert "none was" in text
    assert versions(installed) == before

    _, rows, _ = run(plane, "uninstall", "--yes")
    assert rows == plan
    metrics = rows["customresourcedefinitions/nodemetrics.slo.koordinator.sh"]
    assert (metrics["state"], metrics["note"]) == ("keep", "stored objects of this kind: 1; --crds removes them")
    assert rows["namespaces/koordinator-system"]["note"] == "holds configmaps/slo-controller-config"
    assert rows["nodes/n1"]["state"] == "give back"
    status = installed.get("/api/v1/nodes/n1")["status"]
    assert {key: status.get(key) for key in amounts} == amounts
    staying = {f"{CRDS}/nodemetrics.slo.koordinator.sh", "/api/v1/namespaces/koordinator-system"}
    staying |= {"/api/v1/persistentvolumeclaims/cotenant-store", "/api/v1/namespaces/cotenant"}  # the history stays
    assert set(versions(installed)) == staying

    maps = "/api/v1/namespaces/koordinator-system/configmaps"
    installed.delete(f"{maps}/slo-controller-config")
    installed.create(maps, {"metadata": {"name": "cotenant-ledger"}})
    _, rows, _ = run(plane, "uninstall")
    note = "holds configmaps/cotenant-ledger (head of the audit log; --audit-log removes it)"
    assert (rows["namespaces/koordinator-system"]["state"], rows["namespaces/koordinator-system"]["note"]) == (
        "keep",
        note,
    )
    _, rows, _ = run(plane, "uninstall", "--crds", "--audit-log", "--yes")
    assert rows["configmaps/koordinator-system/cotenant-ledger"]["state"] == "delete"
    assert (
        rows["customresourcedefinitions/nodemetrics.slo.koordinator.sh"]["note"] == "stored objects removed with it: 1"
    )
    remove_all(plane, installed)
    assert versions(installed) == {}
    installed.delete("/api/v1/nodes/n1")


# --- the kinds -------------------------------------------------------------------------------------------------------
def test_every_definition_is_established_and_structural(installed: Api) -> None:
    for body in DEFINITIONS.values():
        conditions = {
            c["type"]: c["status"] for c in installed.get(f"{CRDS}/{body['metadata']['name']}")["status"]["conditions"]
        }
        assert (conditions["Established"], conditions["NamesAccepted"]) == ("True", "True")
        assert "NonStructuralSchema" not in conditions


def test_no_definition_makes_the_server_warn(plane: ControlPlane, installed: Api) -> None:
    """kubectl turns a warning into a failure here."""
    arguments = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--warnings-as-errors")
    texts = plane.kubectl(*arguments, "-f", str(ROOT / "deploy" / "crds")).splitlines()
    assert len(texts) == len(DEFINITIONS)
    assert all(line.endswith("serverside-applied (server dry run)") for line in texts)


@pytest.mark.parametrize("kind", sorted(DEFINITIONS))
def test_an_example_is_accepted_strictly_and_kept_whole(installed: Api, kind: str) -> None:
    assert dropped(EXAMPLES[kind], store(installed, EXAMPLES[kind])) == []


CHOSEN: dict[str, dict[str, Any]] = {
    "AutopilotPolicy": {
        "spec.resources": ["cpu", "memory"],
        "spec.directions": ["Down", "UpAfterThrottling"],  # throttledShare belongs to the second
        "spec.windows[]": "daily 01:00-05:00 UTC",
    },
    "ReservationPlan": {
        "spec.source": "Recurring",
        "spec.window": None,
        "spec.recurring.schedule": "0 18 * * 1-5",
        "spec.recurring.timeZone": "Europe/Berlin",
        "spec.windows[].end": "2026-11-20T13:00:00Z",
        "status.window.end": "2026-11-20T13:00:00Z",
    },
    "UsageForecast": {"spec.stepSeconds": 1800, "spec.validUntil": "2026-11-21T12:00:00Z"},
    "ClusterColocationProfile": {"spec.qosClass": "LS"},
    "ElasticQuotaProfile": {"spec.resourceRatio": "0.9"},
}


def test_fields_of_newer_programs_survive_where_programs_write(installed: Api) -> None:
    newer = copy.deepcopy(EXAMPLES["NodeMetric"]) | {"metadata": {"name": "newer"}}
    newer["status"]["future"] = {"a": 1}
    newer["status"]["nodeMetric"]["nodeUsage"]["future"] = [1]
    newer["status"]["podsMetric"][0]["podUsage"]["future"] = "x"
    assert dropped(newer, store(installed, newer)) == []


@pytest.mark.parametrize("kind", sorted(DEFINITIONS))
def test_no_declared_field_is_dropped(installed: Api, kind: str) -> None:
    definition = DEFINITIONS[kind]["spec"]
    schema = definition["versions"][0]["schema"]["openAPIV3Schema"]
    parts = {name: part for name, part in schema["properties"].items() if name in ("spec", "status")}
    body = {
        "apiVersion": f"{definition['group']}/{definition['versions'][0]['name']}",
        "kind": kind,
        "metadata": {"name": "whole"},
        **{name: specimen(part, CHOSEN.get(kind, {}), name) for name, part in parts.items()},
    }
    assert dropped(body, store(installed, body)) == []


WINDOW = {"start": "2026-11-20T12:00:00Z", "end": "2026-11-20T13:00:00Z"}


@pytest.mark.parametrize(
    ("kind", "path", "value", "phrase"),
    [
        ("NodeSLO", "spec.resourceUsedThresholdWithBE.memoryEvictLowerPercent", 70, "must be below memoryEvict"),
        ("NodeSLO", "spec.resourceUsedThresholdWithBE.cpuSuppressThresholdPercent", 101, "less than or equal to 100"),
        ("NodeSLO", "spec.resourceUsedThresholdWithBE.cpuEvictBESatisfactionLowerPercent", 60, "below cpuEvict"),
        ("NodeSLO", "spec.resourceQOSStrategy.beClass.resctrlQOS.catRangeStartPercent", 30, "must be below catRange"),
        ("NodeSLO", "spec.resourceQOSStrategy.beClass.cpuQOS.groupIdentity", 3, "less than or equal to 2"),
        ("ClusterColocationProfile", "spec.qosClass", "LSR", "needs priorityClassName koord-prod"),
        ("ClusterColocationProfile", "spec.priorityClassName", "koord-prod", "BE cannot have"),
        ("ClusterColocationProfile", "spec.qosClass", "be", "Unsupported value"),
        ("ClusterColocationProfile", "spec.probability", "often", "is a percentage"),
        ("ClusterColocationProfile", "spec.probability", 101, "is a percentage"),
        ("ClusterColocationProfile", "spec.qosClas", "BE", "field not declared in schema"),
        ("ElasticQuota", "spec.min.cpu", 101, "min must not exceed max"),
        ("ElasticQuota", "spec.min.cpu", "many", "spec.min.cpu"),
        ("ElasticQuotaProfile", "spec.resourceRatio", "half", "spec.resourceRatio"),
        ("Reservation", "spec.owners", [], "at least 1 items"),
        ("Reservation", "spec.template", None, "spec.template: Required value"),
        ("Reservation", "spec.ttl", "-5m", "spec.ttl"),
        ("Reservation", "spec.allocatePolicy", "Any", "Unsupported value"),
        ("PodMigrationJob", "spec.podRef.name", None, "needs the namespace and the name"),
        ("PodMigrationJob", "spec.mode", "Now", "Unsupported value"),
        ("Recommendation", "spec.target.workload", None, "needs the field workload"),
        ("UsageForecast", "spec.validUntil", "2026-11-20T12:00:00Z", "must be after start"),
        ("UsageForecast", "spec.cpu.q50Millicores", [1] * 47, "at least 48 items"),
        ("UsageForecast", "spec.cpu.violationRate", 1.5, "less than or equal to 1"),
        ("ReservationPlan", "spec.recurring", None, "needs the field recurring"),
        ("ReservationPlan", "spec.window", WINDOW, "from its schedule"),
        ("ReservationPlan", "spec.windows", [WINDOW | {"end": WINDOW["start"], "count": 1}], "must be after its start"),
        ("ReservationPlan", "spec.recurring.schedule", "at six", "spec.recurring.schedule"),
        ("ReservationPlan", "spec.recurring.timeZone", "../etc", "spec.recurring.timeZone"),
        ("ReservationPlan", "spec.quantile", 0.4, "greater than or equal to 0.5"),
        ("ReservationPlan", "spec.amount.count", 0, "greater than or equal to 1"),
        ("ReservationPlan", "spec.amount.perPod", {}, "spec.amount.perPod"),
        ("ReservationPlan", "spec.approval.by", None, "needs the name of who approves"),
    ],
)  # fmt: skip
def test_nonsense_is_refused_in_words(installed: Api, kind: str, path: str, value: Any, phrase: str) -> None:
    with pytest.raises(ApiError) as caught:
        store(installed, changed(kind, path, value))
    assert phrase in str(caught.value)


def test_source_and_owner_of_a_plan_stay(installed: Api) -> None:
    store(installed, EXAMPLES["ReservationPlan"])
    with pytest.raises(ApiError, match="the owner of a plan cannot be changed"):
        store(installed, changed("ReservationPlan", "spec.owner.name", "api"))


def test_defaults_are_koordinators(installed: Api) -> None:
    spec: dict[str, Any] = {"template": {}, "owners": [{}]}
    body = {"apiVersion": EXAMPLES["Reservation"]["apiVersion"], "kind": "Reservation", "metadata": {"name": "bare"}}
    assert {"ttl": "24h", "allocateOnce": True}.items() <= store(installed, body | {"spec": spec})["spec"].items()


# --- the founding documents' own objects -----------------------------------------------------------------------------
FOUNDING = """
apiVersion: slo.koordinator.sh/v1alpha1
kind: NodeMetric
metadata: {name: node-2}
spec: {}
status:
  nodeMetric: {nodeUsage: {resources: {cpu: 138m, memory: "1815637738"}}}
  podsMetric:
  - {name: storage-service-6c7c59f868-k72r5, namespace: default, podUsage: {resources: {cpu: 300m, memory: 17828Ki}}}
---
apiVersion: config.koordinator.sh/v1alpha1
kind: ClusterColocationProfile
metadata: {name: colocation-profile-example}
spec:
  namespaceSelector: {matchLabels: {koordinator.sh/enable-colocation: "true"}}
  selector: {matchLabels: {sparkoperator.k8s.io/launched-by-spark-operator: "true"}}
  qosClass: BE
  priorityClassName: koord-batch
  koordinatorPriority: 1000
  schedulerName: koord-scheduler
  labels: {koordinator.sh/mutated: "true"}
  annotations: {koordinator.sh/intercepted: "true"}
  patch: {spec: {terminationGracePeriodSeconds: 30}}
---
kind: Reservation
metadata: {name: my-reservation, namespace: default}
spec:
  template: {}
  resourceOwners: {controller: {apiVersion: apps/v1, kind: Deployment, name: deployment-5b8df84dd}}
  timeToLiveInSeconds: 300
  nodeName: node-1
status: {phase: Available}
"""


def test_the_founding_documents_objects_are_accepted_and_kept(installed: Api) -> None:
    metric, profile, sketch = yaml.safe_load_all(FOUNDING)
    for body in (metric, profile, convert_reservation(sketch).body):
        assert dropped(body, store(installed, body)) == []


def test_gpu_labels_of_a_node_are_accepted(installed: Api) -> None:
    labels = {"kubernetes.io/gpu-driver": "460.91.03", "kubernetes.io/gpu-model": "Tesla-T4"}
    installed.create("/api/v1/nodes", {"metadata": {"name": "gpu", "labels": labels}})
    selected = installed.items("/api/v1/nodes", labelSelector="kubernetes.io/gpu-model=Tesla-T4")
    assert [n["metadata"]["name"] for n in selected] == ["gpu"]
    installed.delete("/api/v1/nodes/gpu")


# --- what people see -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kind", "resource", "columns"),
    [
        ("Recommendation", "recom", "NAME KIND NAME CPU MEMORY READY LASTUPDATETIME AGE"),
        ("NodeMetric", "nodemetrics", "NAME CPU MEMORY RECLAIMABLE-CPU RECLAIMABLE-MEMORY UPDATED"),
        ("UsageForecast", "usageforecasts", "NAME CPU-PEAK AT MEMORY-PEAK AT VALID-UNTIL AGE"),
        ("AutopilotPolicy", "apilot", "NAME MODE DOES WORKLOADS QUEUED UNDERWAY AGE"),
        ("ReservationPlan", "rplan", "NAME OWNER SOURCE PHASE START COUNT HIT AGE"),
        ("Reservation", "reservations", "NAME PHASE AGE NODE TTL EXPIRES"),
    ],
)
def test_kubectl_shows_columns(plane: ControlPlane, installed: Api, kind: str, resource: str, columns: str) -> None:
    store(installed, EXAMPLES[kind])
    head, row = plane.kubectl("get", resource, EXAMPLES[kind]["metadata"]["name"]).splitlines()
    assert head.split() == columns.split()
    assert "<invalid>" not in row


def test_kubectl_explains_a_field(plane: ControlPlane, installed: Api) -> None:
    assert "IANA time zone" in plane.kubectl("explain", "reservationplans.spec.recurring.timeZone")


# --- rights ----------------------------------------------------------------------------------------------------------


def can(api: Api, right: tuple[str, str, str, str, str, str]) -> bool:
    """What `kubectl auth can-i` asks, of a component's account."""
    who, verb, group, resource, namespace, name = right
    kind, _, subresource = resource.partition("/")
    attributes = {"verb": verb, "group": group, "resource": kind, "subresource": subresource}
    user = {"user": f"system:serviceaccount:cotenant:{who}", "groups": ["system:authenticated"]}
    spec = {**user, "resourceAttributes": attributes | {"namespace": namespace, "name": name}}
    response = api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec})
    return bool(response["status"]["allowed"])


def test_components_may_what_they_need_and_nothing_dangerous(installed: Api) -> None:
    assert [right for right in MAY if not can(installed, right)] == []
    assert [right for right in MAY_NOT if can(installed, right)] == []
