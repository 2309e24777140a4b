"""`cotenant get quotas|waiting|gangs` and `cotenant explain pod|queue` on a cluster with quotas and a gang."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from typer.testing import CliRunner, Result

from cotenant.base.commands.session import EXIT_PARTIAL
from cotenant.base.errors import ClusterForbidden, NoData
from cotenant.base.kubernetes.moments import micro_moment
from cotenant.base.kubernetes.protocol import GANG_GATE, QUOTA_GATE, RESERVATION_GATE
from cotenant.base.kubernetes.quota_tree import IS_PARENT_LABEL, NAME_LABEL, PARENT_LABEL
from cotenant.base.people import Grant, Person, Role
from cotenant.base.settings.sections import KubeSettings
from cotenant.cli.main import root
from cotenant.scheduler_ext.queues.service.cluster_queue_service import queue_service_of
from cotenant.settings import Settings
from cotenant_lab.simulation.api_server import EmbeddedServer
from cotenant_lab.simulation.api_server.rights import AccessRule, Account
from tests.cluster.api import Json
from tests.cluster.crds import install_crd
from tests.contract.target import embedded_api

pytestmark = pytest.mark.server

QUOTAS = "/apis/scheduling.sigs.k8s.io/v1alpha1"
DEFINITIONS = (
    "elasticquotas.scheduling.sigs.k8s.io",
    "elasticquotaprofiles.quota.koordinator.sh",
    "podgroups.scheduling.sigs.k8s.io",
    "reservations.scheduling.koordinator.sh",
)
POD_GROUP_LABEL = "pod-group.scheduling.sigs.k8s.io"


class Cluster:
    """One node of 40 cores; quotas company > research, shop; research uses 24 cores, of which it borrows 4."""

    def __init__(self, server: EmbeddedServer, folder: Path) -> None:
        self.server, self.api = server, embedded_api(server)
        self.kubeconfig = server.write_kubeconfig(folder / "kubeconfig")

    def fill(self) -> None:
        for name in ("research", "shop"):
            self.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
        amounts = {"cpu": "40", "memory": "160Gi", "pods": "110"}
        self.api.create(
            "/api/v1/nodes", {"metadata": {"name": "n1"}, "status": {"capacity": amounts, "allocatable": amounts}}
        )
        for definition in DEFINITIONS:
            install_crd(self.api, definition)
        self.quota("company", "", {"cpu": "40", "memory": "160Gi"}, parent=True)
        self.quota("research", "company", {"cpu": "20", "memory": "80Gi"})
        self.quota("shop", "company", {"cpu": "20", "memory": "80Gi"})
        for k in range(12):
            self.pod("research", f"run-{k}", "2", node="n1")
        self.pod("shop", "web", "14", node="n1")
        self.pod("research", "late-0", "4", gates=(QUOTA_GATE,))
        self.pod("research", "free", "1", quota="")
        self.api.create(
            f"{QUOTAS}/namespaces/research/podgroups", {"metadata": {"name": "train"}, "spec": {"minMember": 3}}
        )
        for k in range(2):
            labels = {POD_GROUP_LABEL: "train"}
            self.pod("research", f"train-{k}", "1", gates=(QUOTA_GATE, GANG_GATE), labels=labels)

    def quota(self, name: str, above: str, minimum: Json, *, parent: bool = False) -> None:
        labels = {IS_PARENT_LABEL: str(parent).lower(), **({PARENT_LABEL: above} if above else {})}
        body = {
            "metadata": {"name": name, "labels": labels},
            "spec": {"min": minimum, "max": {"cpu": "40", "memory": "160Gi"}},
        }
        self.api.create(f"{QUOTAS}/namespaces/kube-system/elasticquotas", body)

    def pod(self, namespace: str, name: str, cpu: str, *, node: str = "", gates: tuple[str, ...] = (),
            labels: Json | None = None, quota: str | None = None) -> None:  # fmt: skip
        of = namespace if quota is None else quota
        every = {**(labels or {}), **({NAME_LABEL: of} if of else {})}
        requests = {"requests": {"cpu": cpu, "memory": "1Gi"}}
        spec: dict[str, Any] = {"containers": [{"name": "app", "image": "app", "resources": requests}]}
        spec |= {"nodeName": node} if node else {}
        spec |= {"schedulingGates": [{"name": gate} for gate in gates]} if gates else {}
        self.api.create(
            f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": name, "labels": every}, "spec": spec}
        )

    def run(self, *argv: str) -> Result:
        return CliRunner().invoke(root, [*argv, "--kubeconfig", str(self.kubeconfig)])

    def rows(self, *argv: str) -> list[dict[str, Any]]:
        done = self.run(*argv, "-o", "json")
        assert done.exit_code == 0, done.stderr
        rows: list[dict[str, Any]] = json.loads(done.stdout)
        return rows

    @property
    def settings(self) -> Settings:
        return msgspec.structs.replace(Settings(), kube=KubeSettings(kubeconfig=str(self.kubeconfig)))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with EmbeddedServer() as server:
        cluster = Cluster(server, tmp_path_factory.mktemp("queues"))
        cluster.fill()
        yield cluster


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster without any of our definitions."""
    with EmbeddedServer() as server:
        yield Cluster(server, tmp_path_factory.mktemp("bare"))


def test_the_tree_is_drawn_by_indentation_with_amounts_in_their_units(cluster: Cluster) -> None:
    done = cluster.run("get", "quotas")
    assert done.exit_code == 0, done.stderr
    head, *lines = done.stdout.splitlines()
    assert head.split()[:7] == ["QUOTA", "RESOURCE", "MIN", "MAX", "RUNTIME", "USED", "REQUEST"]
    names = [line.split("  ")[0] if line[0] != " " else line[:10].rstrip() for line in lines]
    assert names == ["company", "company", "  research", "  research", "  shop", "  shop"]
    (research,) = [line.split() for line in lines if line.split()[:2] == ["research", "cpu"]]
    assert research[2:8] == ["20", "40", "26", "24", "28", "4"]
    assert "160.0Gi" in lines[1]


def test_one_look_without_a_manager_does_not_say_since_when_a_quota_is_over(cluster: Cluster) -> None:
    """Pods that were bound without a gate count: it is over its runtime, and may have been so for long."""
    for k in range(2):
        cluster.pod("shop", f"foreign-{k}", "14", node="n1")
    try:
        (shop,) = [row for row in cluster.rows("get", "quotas", "--resource", "cpu") if row["quota"] == "shop"]
        assert shop["used"] > shop["runtime"] and shop["over_since"] is None and shop["borrows_since"] is None
    finally:
        for k in range(2):
            cluster.api.delete(f"/api/v1/namespaces/shop/pods/foreign-{k}", gracePeriodSeconds="0")


def test_every_format_has_the_same_rows_and_options_choose_among_them(cluster: Cluster) -> None:
    rows = cluster.rows("get", "quotas")
    assert yaml.safe_load(cluster.run("get", "quotas", "-o", "yaml").stdout) == rows
    as_csv = list(csv.DictReader(io.StringIO(cluster.run("get", "quotas", "-o", "csv").stdout)))
    assert [(row["quota"], int(row["used"])) for row in as_csv] == [(row["quota"], row["used"]) for row in rows]
    cpu = cluster.rows("get", "quotas", "--resource", "cpu")
    assert cpu == [row for row in rows if row["resource"] == "cpu"]
    assert {row["quota"] for row in cluster.rows("get", "quotas", "-n", "shop")} == {"company", "shop"}
    assert cluster.rows("get", "quotas", "--tree", "gpu") == []


def test_waiting_pods_stand_in_the_order_of_their_queue(cluster: Cluster) -> None:
    rows = cluster.rows("get", "waiting")
    assert {row["pod"] for row in rows} == {"late-0", "train-0", "train-1"}
    assert cluster.rows("get", "waiting", "-n", "shop") == []


def test_explain_says_which_group_blocks_and_what_is_missing(cluster: Cluster) -> None:
    done = cluster.run("explain", "queue", "late-0", "-n", "research")
    assert done.exit_code == 0, done.stderr
    answers = dict(line.split("  ", 1) for line in done.stdout.splitlines())
    answers = {what: output.strip() for what, output in answers.items()}
    assert answers["blocked by"] == "research"
    assert (answers["requested"], answers["missing"]) == ("4 cpu", "2 cpu")
    explanation = json.loads(cluster.run("explain", "queue", "research/late-0", "-o", "json").stdout)
    assert explanation["pod"]["missing"] == 2000 and explanation["pod"]["reason"] == answers["why"]
    assert [row["quota"] for row in explanation["quotas"] if row["resource"] == "cpu"] == ["company", "research"]


def test_explain_has_words_for_pods_that_do_not_wait(cluster: Cluster) -> None:
    assert "is on node n1" in cluster.run("explain", "queue", "run-0", "-n", "research").stderr
    assert "counts against no quota" in cluster.run("explain", "queue", "research/free").stderr
    missing_pod = cluster.run("explain", "queue", "nobody", "-n", "research")
    assert missing_pod.exit_code == 1 and "there is no pod nobody in namespace research" in missing_pod.stderr
    assert "kubectl get pods -n research" in missing_pod.stderr


def test_gangs_have_a_state_and_the_gap(cluster: Cluster) -> None:
    (gang,) = cluster.rows("get", "gangs")
    assert (gang["gang"], gang["state"], gang["members"], gang["min_available"]) == ("train", "Incomplete", 2, 3)
    assert cluster.rows("get", "gangs", "--state", "Running") == []


def test_why_names_quota_and_gang_as_rules_with_the_sentences_of_explain(cluster: Cluster) -> None:
    explained = json.loads(cluster.run("explain", "queue", "research/late-0", "-o", "json").stdout)
    rules = {row["rule"]: row for row in cluster.rows("explain", "pod", "research/late-0")}
    assert rules["quota"]["reason"] == explained["pod"]["reason"] and rules["quota"]["nodes"] == 1
    gang = {row["rule"] for row in cluster.rows("explain", "pod", "research/train-0")}
    assert {"quota", "gang"} <= gang
    assert not {"quota", "gang"} & {row["rule"] for row in cluster.rows("explain", "pod", "research/free")}


def test_without_quotas_the_way_to_begin_is_named(bare: Cluster) -> None:
    for argv in (("get", "quotas"), ("get", "waiting"), ("get", "gangs")):
        done = bare.run(*argv, "-o", "json")
        assert (done.exit_code, json.loads(done.stdout)) == (0, []), done.stderr
    assert "kubectl apply -f deploy/examples/elasticquota.yaml" in bare.run("get", "quotas").stderr
    assert Path("deploy/examples/elasticquota.yaml").exists()


def test_a_missing_right_is_named(cluster: Cluster, tmp_path: Path) -> None:
    everything_else = ("nodes", "elasticquotas", "elasticquotaprofiles", "podgroups", "reservations")
    lead = Account("lead", (AccessRule(("get", "list", "watch"), ("*",), everything_else),))
    kubeconfig = cluster.server.write_kubeconfig(tmp_path / "lead", cluster.server.account("lead", lead))
    done = CliRunner().invoke(root, ["get", "quotas", "--kubeconfig", str(kubeconfig)])
    assert done.exit_code == 1
    assert "pods" in done.stderr and "list" in done.stderr and "lead" in done.stderr
    settings = msgspec.structs.replace(Settings(), kube=KubeSettings(kubeconfig=str(kubeconfig)))
    with pytest.raises(ClusterForbidden, match="pods"):
        queue_service_of(settings).report(Person("ada"))


def test_the_page_reads_the_same_rows_once_for_everybody(cluster: Cluster) -> None:
    service = queue_service_of(cluster.settings)
    report = service.report(Person("ada"))
    assert [row.quota for row in report.quotas] == [row["quota"] for row in cluster.rows("get", "quotas")]
    assert service.report(Person("ada")) is report
    assert service.report(Person("ann", grants=(Grant(Role.VIEWER, ("shop",)),))).waiting == ()
    with pytest.raises(NoData, match="no Prometheus is configured"):
        service.history(Person("ada"), "research", "cpu")


def test_explain_queue_names_problems_of_the_pods_own_gang_and_quotas_alone(cluster: Cluster) -> None:
    path = f"{QUOTAS}/namespaces/shop/podgroups"
    cluster.api.create(path, {"metadata": {"name": "broken"}, "spec": {"minMember": 0}})
    cluster.pod("shop", "broken-0", "1", gates=(GANG_GATE,), labels={POD_GROUP_LABEL: "broken"}, quota="")
    try:
        assert "podgroups/shop/broken" in cluster.run("get", "gangs").stderr
        other = cluster.run("explain", "queue", "late-0", "-n", "research")
        assert (other.exit_code, "broken" in other.stderr) == (0, False)
        own = cluster.run("explain", "queue", "broken-0", "-n", "shop")
        assert own.exit_code == EXIT_PARTIAL and "podgroups/shop/broken" in own.stderr
    finally:
        cluster.api.delete(f"{path}/broken")
        cluster.api.delete("/api/v1/namespaces/shop/pods/broken-0", gracePeriodSeconds="0")


GATES = {"quota": QUOTA_GATE, "gang": GANG_GATE, "reservation": RESERVATION_GATE}


@pytest.mark.slow
@pytest.mark.parametrize("gate", GATES)
def test_a_gate_that_nobody_lifts_is_explained_as_such_and_one_that_is_lifted_as_that(
    cluster: Cluster, gate: str
) -> None:
    """No manager has ever run here, so nobody promised anything; then one promises for ten minutes."""
    cluster.pod("research", f"held-{gate}", "1", gates=(GATES[gate],), quota="nobodys" if gate == "quota" else "")
    name = f"research/held-{gate}"
    try:
        queue, pod = cluster.run("explain", "queue", name).stderr, cluster.rows("explain", "pod", name)
        assert f"{GATES[gate]}: no manager removes this gate now" in queue and "spec.schedulingGates" in queue
        (reason,) = [row["reason"] for row in pod if row["rule"] == gate]
        assert reason.startswith("no manager removes this gate now")
        with promising(cluster):
            queue, pod = cluster.run("explain", "queue", name).stderr, cluster.rows("explain", "pod", name)
            assert "the manager removes the gate" in queue
            assert "the manager removes the gate" in next(row["reason"] for row in pod if row["rule"] == gate)
    finally:
        cluster.api.delete(f"/api/v1/namespaces/research/pods/held-{gate}", gracePeriodSeconds="0")


def test_gates_of_a_pod_that_is_being_deleted_and_misspelt_ones_are_promised_to_nobody(cluster: Cluster) -> None:
    """A Job's finalizer keeps a deleted pod; no controller of ours touches its gates any more."""
    cluster.pod("research", "ending", "1", gates=tuple(GATES.values()), quota="nobodys")
    path = "/api/v1/namespaces/research/pods/ending"
    cluster.pod("research", "typo", "1", gates=("cotenant.dev/qota",), quota="")
    finalizers = [{"op": "add", "path": "/metadata/finalizers", "value": ["batch.kubernetes.io/job-tracking"]}]
    try:
        with promising(cluster):
            cluster.api.patch(path, finalizers, "json")
            cluster.api.delete(path, gracePeriodSeconds="0")
            queue = cluster.run("explain", "queue", "research/ending").stderr
            assert "it is kept by batch.kubernetes.io/job-tracking" in queue
            reasons = {row["rule"]: row["reason"] for row in cluster.rows("explain", "pod", "research/ending")}
            assert all(reasons[gate].startswith("the pod is being deleted") for gate in GATES)
            assert "the manager removes the gate" not in queue + "".join(reasons.values())
            typo = cluster.run("explain", "queue", "research/typo").stderr
            assert "cotenant.dev/qota: cotenant does not know this gate" in typo
            (reason,) = [
                row["reason"]
                for row in cluster.rows("explain", "pod", "research/typo")
                if row["rule"] == "cotenant.dev/qota"
            ]
            assert "never removes it" in reason
    finally:
        cluster.api.patch(path, [{"op": "remove", "path": "/metadata/finalizers"}], "json")
        cluster.api.delete("/api/v1/namespaces/research/pods/typo", gracePeriodSeconds="0")


@contextmanager
def promising(cluster: Cluster) -> Iterator[None]:
    path = "/apis/cotenant.dev/v1alpha1/swapguards"
    if not cluster.api.exists(path):
        install_crd(cluster.api, "swapguards.cotenant.dev")
    until = micro_moment(time.time() + 600)
    spec = {"servedUntil": until, "queuesServedUntil": until}
    cluster.api.create(path, {"metadata": {"name": "swaps"}, "spec": spec})
    try:
        yield
    finally:
        cluster.api.delete(f"{path}/swaps")
