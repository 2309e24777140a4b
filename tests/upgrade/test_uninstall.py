"""After `cotenant uninstall` nothing of ours is found in the cluster but the audit log's head, kept on purpose.

Everything is made by the product's own code on a real API server; then every object of every kind is searched.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonpatch
import pytest
from typer.testing import CliRunner

from cotenant.base.commands.session import EXIT_PARTIAL
from cotenant.base.errors import ClusterDenied
from cotenant.base.kube import KubeClient, Writer
from cotenant.base.kubernetes.intent import Address, Intent, Patch
from cotenant.base.kubernetes.protocol import (
    EMPTYING_TAINT,
    LOAD_TAINT,
    NODE_AGENT,
    PLACEHOLDER_NAMESPACE,
    QUEUED_ANNOTATION,
    RESERVATION_GATE,
    RESERVATION_LABEL,
    SCHEDULING_GROUP,
    SUPPRESSED_FRACTION_ANNOTATION,
    SYSTEM_NAMESPACE,
)
from cotenant.base.ledger.ledger import Ledger
from cotenant.changes.change_ledger import anchor
from cotenant.cli import main
from cotenant.cli.cluster.installation.manifests import COMPONENTS
from cotenant.cli.cluster.installation.restoration import restoring_patch
from cotenant.enforcer.report.suppressed import SuppressionHistory, note
from cotenant.manager.features import NAMES
from cotenant.scheduler_ext.reservations.model.plan import Plan, PlanOwner, PlanStatus, Span, WindowSource
from cotenant.scheduler_ext.reservations.model.reservation import Mode, Reservation
from cotenant.scheduler_ext.reservations.model.settings import ReservationSettings
from cotenant.scheduler_ext.reservations.owner import claim_patch
from cotenant.scheduler_ext.reservations.placeholder import (
    PlaceholderSpec,
    class_intent,
    lower_class,
    placeholder_creation,
)
from cotenant.scheduler_ext.reservations.plans.realise import floor
from cotenant.scheduler_ext.reservations.pod_gate import OUR_GATES
from cotenant.scheduler_ext.reservations.view import PodView
from tests.cli.charts import object_of, rendered, values_of
from tests.cli.test_install_on_cluster import can
from tests.cluster import needing
from tests.cluster.accounts import await_right, token_of
from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import create_namespace, unique_name
from tests.cluster.remains import CLAIM, KEPT, ours
from tests.cluster.waiting import wait_for

Json = dict[str, Any]
NODES = "/api/v1/nodes"
RESERVATIONS = f"/apis/{SCHEDULING_GROUP}/reservations"


def run(plane: ControlPlane, *arguments: str, kubeconfig: Path | None = None) -> dict[str, Json]:
    """Rows by object of a command that succeeds."""
    access = str(kubeconfig or plane.admin_kubeconfig)
    done = CliRunner().invoke(main.root, [*arguments, "--kubeconfig", access, "-o", "json"])
    rows: list[Json] = json.loads(done.stdout) if done.stdout.startswith("[") else []
    assert done.exit_code == 0, [row for row in rows if row["state"] == "refused"] or done.stderr
    return {row.get("object", str(number)): row for number, row in enumerate(rows)}


@dataclass
class Traces:
    """Writes what components write, by their code."""

    plane: ControlPlane
    api: Api
    client: KubeClient
    namespace: str
    node: str

    def write_everything(self) -> tuple[str, str, str]:
        """What all parts write; paths of a gated pod, of one that got reserved capacity, and of an autoscaler."""
        self.lend()
        self.suppress()
        self.empty()
        gated, owner = self.reserve()
        return gated, owner, self.plan()

    def send(self, manager: str, *intents: Intent | None) -> None:
        """Each of them, in the name of a component."""
        for intent in intents:
            assert intent is not None
            Writer(self.client, manager).send(intent)

    def lend(self) -> None:
        """What the manager publishes: NodeSLO, batch amounts, its Lease and its status; by its own account."""
        data = {"colocation-config": json.dumps({"enable": True})}
        body = {"metadata": {"name": "slo-controller-config"}, "data": data}
        self.api.create(f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps", body)
        usage = {"resources": {"cpu": "1", "memory": "1Gi"}}
        metric = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": self.node}}
        path = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
        self.api.create(path, {**metric, "spec": {}})
        now = datetime.now(UTC).isoformat(timespec="seconds")  # a report from the future lends nothing
        status = {"updateTime": now, "nodeMetric": {"nodeUsage": usage, "systemUsage": usage}}
        self.api.patch(f"{path}/{self.node}/status", {"status": status})
        file = self.plane.folder / "lending.kubeconfig"
        token_of(self.plane, "cotenant-manager", file)
        await_right(self.plane, file, ("list", "pods"))
        off = ",".join(name for name in NAMES if name not in ("colocation", "node-slo"))
        arguments = ("--set", f"manager.features_off=[{off}]", "serve", "manager", "--once", "--write")
        run(self.plane, *arguments, kubeconfig=file)
        assert "kubernetes.io/batch-cpu" in self.api.get(f"{NODES}/{self.node}")["status"]["allocatable"]
        assert self.api.exists(f"/apis/slo.koordinator.sh/v1alpha1/nodeslos/{self.node}")

    def suppress(self) -> None:
        """What a node agent notes at its Node."""
        history = SuppressionHistory(((0, 900.0, 1800.0),))
        self.send(NODE_AGENT, note(self.node, history, {}))

    def empty(self) -> None:
        """Our taints, beside somebody else's."""
        keys = ("example.com/theirs", EMPTYING_TAINT, LOAD_TAINT)
        taints = [{"key": key, "effect": "PreferNoSchedule"} for key in keys]
        self.api.patch(f"{NODES}/{self.node}", {"spec": {"taints": taints}})

    def reserve(self) -> tuple[str, str]:
        """A gated pod, a pod that got its capacity, a placeholder with a class of its own; the names of the two."""
        containers = [{"name": "main", "image": "app", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]
        pods = f"/api/v1/namespaces/{self.namespace}/pods"
        gate = {"schedulingGates": [{"name": name} for name in (*OUR_GATES, "example.com/theirs")]}
        marked = {"name": "gated", "annotations": {QUEUED_ANNOTATION: "team"}}
        self.api.create(pods, {"metadata": marked, "spec": {"containers": containers, **gate}})
        self.api.create(
            pods, {"metadata": {"name": "owner"}, "spec": {"nodeName": self.node, "containers": containers}}
        )
        body = {
            "apiVersion": SCHEDULING_GROUP,
            "kind": "Reservation",
            "metadata": {"name": unique_name("held")},
            "spec": {"template": {"spec": {"containers": containers}}, "owners": [{}]},
        }
        reservation = Reservation.parse(self.api.create(RESERVATIONS, body))
        status = {"status": {"phase": "Available", "nodeName": self.node, "allocatable": {"cpu": "1"}}}
        self.api.patch(f"{RESERVATIONS}/{reservation.name}/status", status, fieldManager="cotenant-manager")
        placeholder = PlaceholderSpec("held-0", reservation.size)
        self.send(
            "cotenant-manager",
            class_intent(*lower_class(reservation, {})),
            placeholder_creation(reservation, placeholder, Mode.PINNED, {}, ReservationSettings()),
            claim_patch(PodView.parse(self.api.get(f"{pods}/owner")), reservation),
        )
        return f"{pods}/gated", f"{pods}/owner"

    def plan(self) -> str:
        """An autoscaler that a plan gave a floor; its path."""
        path = f"/apis/autoscaling/v2/namespaces/{self.namespace}/horizontalpodautoscalers"
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
        spec = {"scaleTargetRef": target, "minReplicas": 3, "maxReplicas": 10}
        autoscaler = self.api.create(path, {"metadata": {"name": "web"}, "spec": spec})
        plan = Plan(
            self.namespace, "web", WindowSource.MANUAL, PlanOwner("Deployment", "web"), {"cpu": 500}, 3,
            status=PlanStatus(window=Span(1.0, 2.0)), per_pod_text={"cpu": "500m"},
        )  # fmt: skip
        self.send("cotenant-manager", *floor(plan, 2, autoscaler))
        assert self.api.get(f"{path}/web")["spec"]["minReplicas"] == 5
        return f"{path}/web"


@pytest.fixture
def traces(bare_plane: ControlPlane) -> Iterator[Traces]:
    api, client = bare_plane.api(), bare_plane.client(bare_plane.admin_kubeconfig)
    node = unique_name("lender")
    amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    api.create(NODES, {"metadata": {"name": node}, "status": {"capacity": amounts, "allocatable": amounts}})
    namespace = create_namespace(api, unique_name("shop"))
    if not api.exists("/api/v1/namespaces/monitoring"):  # where the reader's role goes
        create_namespace(api, "monitoring")
    yield Traces(bare_plane, api, client, namespace, node)
    client.close()
    api.delete(f"/api/v1/namespaces/{namespace}")
    api.delete(f"{NODES}/{node}")
    take_away_all(bare_plane, api)


def take_away_all(plane: ControlPlane, api: Api) -> None:
    """Uninstall what this test or one before it installed, and the stored data, which an uninstallation leaves."""
    claims = "/api/v1/namespaces/cotenant/persistentvolumeclaims"
    if api.exists(f"{claims}/cotenant-store"):
        api.delete(f"{claims}/cotenant-store")
        wait_for("the claim is gone", lambda: not api.exists(f"{claims}/cotenant-store"))
    run(plane, "uninstall", "--crds", "--audit-log", "--yes")


def test_nothing_of_ours_is_found_after_an_uninstallation(traces: Traces, tmp_path: Path) -> None:
    api, plane = traces.api, traces.plane
    take_away_all(plane, api)
    before = ours(api)
    assert before == set()
    run(plane, "install", "--components", ",".join(COMPONENTS), "--apply")
    traces.lend()
    traces.suppress()
    traces.empty()
    gated, owner = traces.reserve()
    autoscaler = traces.plan()
    with_ledger = Ledger(tmp_path / "ledger.db")
    with_ledger.append(1.0, "ann", [("accepted", "c1", {})])
    anchor(traces.client, with_ledger, SYSTEM_NAMESPACE)
    with_ledger.close()
    api.delete(f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps/slo-controller-config")  # somebody's, not ours

    rows = run(plane, "uninstall", "--crds", "--yes")

    assert ours(api) == KEPT
    assert "head of the audit log; --audit-log removes it" in rows["namespaces/koordinator-system"]["note"]
    assert rows[CLAIM]["state"] == "keep" and "the ledger" in rows[CLAIM]["note"]
    assert api.get(gated)["spec"]["schedulingGates"] == [{"name": "example.com/theirs"}]
    assert api.exists(owner)
    spec = api.get(autoscaler)["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (3, 10)
    node = api.get(f"{NODES}/{traces.node}")
    amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    assert (node["status"]["capacity"], node["status"]["allocatable"]) == (amounts, amounts)
    assert [taint["key"] for taint in node["spec"]["taints"]] == ["example.com/theirs"]
    wait_for("the placeholders' namespace", lambda: not api.exists(f"/api/v1/namespaces/{PLACEHOLDER_NAMESPACE}"))


HOOK = "cotenant-uninstall"
OTHER_IMAGE = {"path": "/spec/containers/0/image", "value": "another"}
HOOK_NEEDS = (
    ("patch", "", "nodes/status", "", ""),
    ("patch", "autoscaling", "horizontalpodautoscalers", "", ""),
    ("patch", "", "nodes", "", ""),
    ("delete", "", "pods", PLACEHOLDER_NAMESPACE, ""),
    ("delete", "coordination.k8s.io", "leases", SYSTEM_NAMESPACE, "cotenant-manager"),
    ("get", "", "configmaps", "cotenant", "cotenant-settings"),
)
"""A right of each of its bindings: (verb, group, resource, namespace, name)."""


def hook(plane: ControlPlane, file: Path) -> tuple[list[str], Path]:
    """Command of the Job that the chart runs after `helm uninstall`, and a kubeconfig of the Job's own account."""
    needing.helm()
    objects = rendered(values_of(frozenset({"colocation", "scheduling", "descheduler"})))
    hooks = [o for o in objects if o["metadata"]["name"].startswith(HOOK)]
    rights = [o for o in hooks if o["kind"] not in ("Job", "NetworkPolicy")]
    plane.kubectl("apply", "-f", "-", text="\n---\n".join(map(json.dumps, rights)))
    wait_for("the hook's rights", lambda: all(can(plane.api(), (HOOK, *right)) for right in HOOK_NEEDS))
    token_of(plane, HOOK, file)
    pod = object_of(hooks, "Job", HOOK)["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == HOOK
    return pod["containers"][0]["command"][1:], file


def _refused(client: KubeClient, patch: Patch) -> bool:
    try:
        Writer(client, HOOK).send(patch, dry_run=True)
    except ClusterDenied as error:
        return f"cotenant-uninstall-{patch.address.resource}" in error.message
    return False


def test_what_acts_when_helm_has_taken_the_release_ends_under_the_hooks_own_account(
    traces: Traces, tmp_path: Path
) -> None:
    api, plane = traces.api, traces.plane
    run(plane, "install", "--components", "crds,priority-classes,rbac,reservations", "--apply")
    gated, owner, autoscaler = traces.write_everything()
    command, account = hook(plane, tmp_path / "hook.kubeconfig")
    client = plane.client(account)
    image = Patch(Address("v1", "pods", "owner", traces.namespace), ({"op": "replace", **OTHER_IMAGE},))
    wait_for("the hook's guard", lambda: _refused(client, image))
    cordon = Patch(Address("v1", "nodes", traces.node), ({"op": "add", "path": "/spec/unschedulable", "value": True},))
    wait_for("the hook's guard of nodes", lambda: _refused(client, cordon))
    client.close()

    rows = run(plane, *command, kubeconfig=account)

    assert {row["state"] for row in rows.values()} == {"delete", "give back"}
    node = api.get(f"{NODES}/{traces.node}")
    amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    assert (node["status"]["capacity"], node["status"]["allocatable"]) == (amounts, amounts)
    assert [taint["key"] for taint in node["spec"]["taints"]] == ["example.com/theirs"]
    assert not [name for name in node["metadata"].get("annotations", {}) if "cotenant" in name or "koord" in name]
    assert api.get(gated)["spec"]["schedulingGates"] == [{"name": "example.com/theirs"}]
    assert "annotations" not in api.get(gated)["metadata"]
    assert not {*api.get(owner)["metadata"].get("labels", {}), *api.get(owner)["metadata"].get("annotations", {})}
    assert api.get(autoscaler)["spec"]["minReplicas"] == 3
    assert api.items(f"/api/v1/namespaces/{PLACEHOLDER_NAMESPACE}/pods") == []
    assert {item["status"]["phase"] for item in api.items(RESERVATIONS)} == {"Pending"}
    assert not api.exists(f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps/cotenant-status")
    # What people stored, and what Helm deletes itself, is not touched.
    assert api.exists(f"/apis/slo.koordinator.sh/v1alpha1/nodeslos/{traces.node}")
    assert api.exists(f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps/slo-controller-config")
    assert api.exists("/apis/rbac.authorization.k8s.io/v1/clusterroles/cotenant-manager")
    assert run(plane, *command, kubeconfig=account) == {}
    api.delete(f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps/slo-controller-config")


def test_a_switched_off_feature_leaves_nothing_and_the_others_keep_what_they_wrote(
    traces: Traces, tmp_path: Path
) -> None:
    api, plane = traces.api, traces.plane
    run(plane, "install", "--components", "crds,priority-classes,rbac,reservations", "--apply")
    gated, owner, autoscaler = traces.write_everything()
    command, account = hook(plane, tmp_path / "hook.kubeconfig")
    settings = "/api/v1/namespaces/cotenant/configmaps"
    text = "manager: {features_off: [queues, load-taints, plans]}"
    labels = {"app.kubernetes.io/managed-by": "cotenant", "app.kubernetes.io/part-of": "cotenant"}
    api.create(settings, {"metadata": {"name": "cotenant-settings", "labels": labels}, "data": {"settings.yaml": text}})
    old = "/api/v1/namespaces/cotenant/pods"
    meta = {
        "name": "old",
        "labels": {**labels, "app.kubernetes.io/name": "cotenant-manager"},
        "annotations": {"cotenant.dev/settings-digest": "of-before"},
    }
    container = {"name": "main", "image": "app"}
    api.create(old, {"metadata": meta, "spec": {"containers": [container], "terminationGracePeriodSeconds": 0}})

    with ThreadPoolExecutor(1) as pool:
        ends = pool.submit(run, plane, *command, kubeconfig=account)
        # The manager of before runs on, and would write again: nothing is taken away yet.
        with pytest.raises(TimeoutError):
            ends.result(4.0)
        assert api.get(autoscaler)["spec"]["minReplicas"] == 5
        api.delete(f"{old}/old")
        rows = ends.result(60.0)

    assert {row["state"] for row in rows.values()} == {"give back"}
    assert [gate["name"] for gate in api.get(gated)["spec"]["schedulingGates"]] == [
        RESERVATION_GATE,
        "example.com/theirs",
    ]
    assert QUEUED_ANNOTATION not in api.get(gated)["metadata"].get("annotations", {})
    node = api.get(f"{NODES}/{traces.node}")
    assert [taint["key"] for taint in node["spec"]["taints"]] == ["example.com/theirs", EMPTYING_TAINT]
    assert "kubernetes.io/batch-cpu" in node["status"]["allocatable"]
    # No node agent runs, so that nobody renews or removes what one wrote.
    assert SUPPRESSED_FRACTION_ANNOTATION not in node["metadata"].get("annotations", {})
    assert api.get(autoscaler)["spec"]["minReplicas"] == 3
    assert RESERVATION_LABEL in api.get(owner)["metadata"]["labels"]
    assert len(api.items(f"/api/v1/namespaces/{PLACEHOLDER_NAMESPACE}/pods")) == 1
    assert api.exists(f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps/cotenant-status")
    assert run(plane, *command, kubeconfig=account) == {}

    every = {"data": {"settings.yaml": f"manager: {{features_off: [{', '.join(NAMES)}]}}"}}
    api.patch(f"{settings}/cotenant-settings", every)
    run(plane, *command, kubeconfig=account)
    assert api.get(gated)["spec"]["schedulingGates"] == [{"name": "example.com/theirs"}]
    assert [taint["key"] for taint in api.get(f"{NODES}/{traces.node}")["spec"]["taints"]] == ["example.com/theirs"]
    assert "kubernetes.io/batch-cpu" not in api.get(f"{NODES}/{traces.node}")["status"]["allocatable"]
    assert api.items(f"/api/v1/namespaces/{PLACEHOLDER_NAMESPACE}/pods") == []
    assert not api.exists(f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps/cotenant-status")
    api.delete(f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps/slo-controller-config")


def test_without_a_right_the_rest_is_done_and_the_exit_code_says_that_it_is_partial(bare_plane: ControlPlane) -> None:
    jane = bare_plane.user("jane")
    done = CliRunner().invoke(main.root, ["uninstall", "--after-helm", "--kubeconfig", str(jane), "-o", "json"])
    rows = json.loads(done.stdout)
    assert done.exit_code == EXIT_PARTIAL
    assert {row["state"] for row in rows} == {"refused"}
    # Whoever cannot see whether the release stands does not know either what has ended.
    assert [row["object"] for row in rows] == ["configmaps/cotenant/cotenant-settings"]
    assert all("cannot" in row["note"] for row in rows)


def test_marks_of_an_accepted_change_go_and_what_was_accepted_stays() -> None:
    live = {
        "metadata": {
            "uid": "u",
            "labels": {"app": "web", "cotenant.dev/resources": "set"},
            "annotations": {"cotenant.dev/change": "c1", "cotenant.dev/resources": "{}", "cotenant.dev/profile": "p"},
        }
    }
    patch = restoring_patch(Address("apps/v1", "deployments", "web", "shop"), live)
    assert patch is not None
    assert [operation["path"] for operation in patch.operations] == [
        "/metadata/uid",
        "/metadata/labels/cotenant.dev~1resources",
        "/metadata/annotations/cotenant.dev~1change",
        "/metadata/annotations/cotenant.dev~1resources",
    ]
    assert restoring_patch(patch.address, {"metadata": {"annotations": {"cotenant.dev/profile": "theirs"}}}) is None


def test_a_reservation_of_which_we_said_available_waits_again_and_anothers_stays() -> None:
    fields = [{"manager": "cotenant-manager", "subresource": "status"}]
    live: dict[str, Any] = {
        "metadata": {"uid": "u", "managedFields": fields},
        "status": {"phase": "Available", "nodeName": "n1", "conditions": [], "allocatable": {"cpu": "1"}},
    }
    patch = restoring_patch(Address(SCHEDULING_GROUP, "reservations", "held"), live)
    assert patch is not None and patch.subresource == "status"
    restored = jsonpatch.apply_patch(live, patch.operations)
    assert restored["status"] == {"phase": "Pending"}
    assert restoring_patch(patch.address, restored) is None
    theirs = {**live, "metadata": {"uid": "u", "managedFields": [{"manager": "koord-scheduler"}]}}
    assert restoring_patch(patch.address, theirs) is None


@pytest.mark.slow
def test_batch_amounts_of_zones_go_and_others_stay() -> None:
    resources = [{"name": "cpu", "capacity": "8"}, {"name": "kubernetes.io/batch-cpu", "allocatable": "1000"}]
    topology: dict[str, Any] = {
        "metadata": {"name": "n1"},
        "zones": [{"name": "node-0", "type": "Node", "resources": resources}],
    }
    address = Address("topology.node.k8s.io/v1alpha1", "noderesourcetopologies", "n1")
    patch = restoring_patch(address, topology)
    assert patch is not None and patch.operations[-1] == {"op": "remove", "path": "/zones/0/resources/1"}
    assert (
        restoring_patch(address, {**topology, "zones": [{**topology["zones"][0], "resources": resources[:1]}]}) is None
    )
