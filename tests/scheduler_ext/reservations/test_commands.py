"""`cotenant reservations` as people use it: against a real API server, and against stored results without one."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cotenant.base.identity import WorkloadRef
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.progress import Silent
from cotenant.base.resource import Resource
from cotenant.base.store import Store
from cotenant.cli.main import root
from cotenant.scheduler_ext.reservations.model.plan import Expected, Proposal, Span
from cotenant.scheduler_ext.reservations.plans.rehearsed_proposals import table
from cotenant_lab.simulation.demo import fill
from cotenant_lab.synthetic import SyntheticSpec
from tests.cluster.accounts import account, planner
from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import install_crd

PLANS = "/apis/cotenant.dev/v1alpha1"


def run(*argv: str) -> Result:
    return CliRunner().invoke(root, ["reservations", *argv])


PROPOSED = Proposal(
    WorkloadRef("shop", "Deployment", "web"), "ok", 4, 0.95, Span(1_803_578_400, 1_803_585_600), {"cpu": "500m"}, 2.0,
    coverage=0.97, skill=0.4, words="would have reserved", expected=Expected(0.84, 0.1, 7, 0.6),
)  # fmt: skip
REFUSED = Proposal(WorkloadRef("pay", "Deployment", "api"), "no-skill", 1, per_pod={"cpu": "1"}, skill=-0.2)


def test_proposals_are_listed_without_a_cluster_and_each_says_whether_it_is_proposed(tmp_path: Path) -> None:
    Store(tmp_path.as_uri(), "demo").write_table(table([PROPOSED, REFUSED]))
    done = run("list", "--proposed", "--store", tmp_path.as_uri(), "-o", "json")
    first, second = json.loads(done.stdout)
    assert (first["workload"], first["pods"], first["cpu"], first["hit_ratio"]) == ("web", 4, 500, 0.84)
    assert (first["start"], first["reason"]) == (1_803_578_400, "ok")
    assert (second["workload"], second["reason"], second["start"]) == ("api", "no-skill", None)
    assert json.loads(run("list", "--proposed", "-n", "pay", "--store", tmp_path.as_uri(), "-o", "json").stdout) == [
        second
    ]


@pytest.mark.slow
def test_a_back_test_shows_the_quantiles_beside_the_baselines(tmp_path: Path) -> None:
    cluster = fill(Store(tmp_path.as_uri(), "demo"), SyntheticSpec(nodes=3, workloads=12, days=18), Silent())
    workload = next(
        w for w in cluster.inventory.workloads
        if w.ref.kind == "Deployment" and any(Resource.CPU in c.requests for c in w.staying)
    )  # fmt: skip
    done = run("backtest", str(workload.ref), "--store", tmp_path.as_uri(), "-o", "csv")
    rows = {row["policy"]: row for row in csv.DictReader(io.StringIO(done.stdout))}
    assert {"same time last week", "static headroom", "nothing"} < rows.keys()
    chosen = [row for row in rows.values() if row["chosen"] == "*"]
    quantiles = [float(row["cost"]) for policy, row in rows.items() if policy.startswith("forecast")]
    assert [float(row["cost"]) for row in chosen] == [min(quantiles)]
    assert float(rows["nothing"]["held_core_hours"]) == 0


@pytest.mark.parametrize("word", ["shop", "shop/", "/web", "a/b/c"])
def test_a_name_that_is_none_is_refused_with_an_example(word: str) -> None:
    done = run("show", word)
    assert done.exit_code == 2
    assert "shop/deployment-web" in done.stderr


def pods_on(api: Api, node: str) -> list[str]:
    """What another test may have left: it would be placed on this node, the cluster's only one."""
    pods = api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={node}")["items"]
    return [f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in pods]


@pytest.fixture
def api(control_plane: ControlPlane, namespace: str) -> Iterator[Api]:
    """A namespace with a Deployment whose pods ask for half a core."""
    plane_api = control_plane.api()
    install_crd(plane_api, "reservationplans.cotenant.dev")
    container = {"name": "app", "image": "app", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}
    labels = {"matchLabels": {"app": "web"}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    plane_api.create(
        f"/apis/apps/v1/namespaces/{namespace}/deployments",
        {"metadata": {"name": "web"}, "spec": {"replicas": 0, "selector": labels, "template": template}},
    )
    yield plane_api
    # A definition this young is not known yet to the controller that empties namespaces.
    plane_api.delete(f"/apis/cotenant.dev/v1alpha1/namespaces/{namespace}/reservationplans")


def test_a_plan_is_made_previewed_approved_and_listed(
    api: Api,
    control_plane: ControlPlane,
    namespace: str,
    fake_nodes: Callable[..., list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = tmp_path / "ledger.db"
    monkeypatch.setenv("COTENANT_ACTIONS__LEDGER", str(ledger))
    (node,) = fake_nodes(1, cpu="64", memory="256Gi")
    where = ("--kubeconfig", str(planner(control_plane)))
    path = f"{PLANS}/namespaces/{namespace}/reservationplans/deployment-web-schedule"
    argv = ("plan", f"{namespace}/Deployment/web", "--pods", "3", "--schedule", "0 18 * * *", "--for", "2h", *where)
    assert run(*argv).exit_code == 0
    assert not api.exists(path)
    assert run(*argv, "--yes").exit_code == 0
    assert api.get(path)["spec"]["amount"] == {"perPod": {"cpu": "500m", "memory": "1Gi"}, "count": 3}
    name = f"{namespace}/deployment-web-schedule"
    answers = {row["what"]: row["answer"] for row in json.loads(run("preview", name, *where, "-o", "json").stdout)}
    # Three pods of half a core for two hours.
    assert answers["reserved"].startswith("3.0 core-hours")
    assert answers["fits now"].startswith("3 of 3"), (answers["fits now"], pods_on(api, node))
    assert answers["kill switch"].startswith("passed")
    assert {"cluster budget", "namespace quota"} < answers.keys()
    # What the dry run shows is generation 1; somebody then wants more.
    assert "plan generation 1:" in run("approve", name, *where).stderr
    api.patch(path, {"spec": {"amount": {"count": 4}}})
    unseen = run("approve", name, "--generation", "1", *where, "--yes")
    assert unseen.exit_code != 0 and "it is generation 2 now, and you saw 1" in " ".join(unseen.stderr.split())
    assert "approval" not in api.get(path)["spec"]
    api.patch(path, {"spec": {"amount": {"count": 3}}})
    approved = run("approve", name, "--once", "--reason", "sale", "--generation", "3", *where, "--yes")
    assert approved.exit_code == 0
    approval = api.get(path)["spec"]["approval"]
    assert {k: approval[k] for k in ("decision", "scope", "by", "reason")} == {
        "decision": "Approved", "scope": "Once", "by": "paul", "reason": "sale"
    }  # fmt: skip
    rows = [(row.event, row.subject) for row in Ledger(ledger, reading=True).entries()]
    events = ("plan-asked", "plan-made", "plan-refused", "plan-asked", "plan-approved")
    assert rows == [(event, name) for event in events]
    # one pod of half a core, all day
    standby = "standby: capacity for 1 more pod of 0.5 cores is reserved at all times, at most 12.0 idle core-hours"
    assert standby in run("approve", name, "--standby", "1", *where).stderr
    # Who approves without naming a generation is shown what is approved, and no other.
    printed = " ".join(run("approve", name, "--standby", "1", *where, "--yes").stderr.split())
    terms = "capacity for 3 pods of Deployment/web (cpu 500m, memory 1Gi each), at 0 18 * * * (Etc/UTC) for 2 h, "
    assert f"{name}: {terms}realised as Reservation plan generation " in printed and standby in printed
    assert run("approve", name, "--standby", "0", *where, "--yes").exit_code == 0
    assert api.get(path)["spec"]["amount"]["standby"] == 0
    (row,) = json.loads(run("list", "-n", namespace, *where, "-o", "json").stdout)
    assert (row["plan"], row["source"], row["pods"]) == ("deployment-web-schedule", "Recurring", 3)
    assert "no occurrence has ended yet" in run("report", name, *where).stderr
    score = {"start": "2027-03-05T18:00:00Z", "end": "2027-03-05T20:00:00Z", "held": 3, "used": 2, "othersWaiting": 1}
    head = {"apiVersion": "cotenant.dev/v1alpha1", "kind": "ReservationPlan"}
    body = {**head, "metadata": {"name": "deployment-web-schedule"}, "status": {"score": {**score, "planned": 3}}}
    api.patch(f"{path}/status", body, "apply", fieldManager="cotenant-manager", force="true")
    report = {row["what"]: row["answer"] for row in json.loads(run("report", name, *where, "-o", "json").stdout)}
    assert report["Window"] == "2027-03-05 18:00 to 20:00 UTC"
    assert report["Expected peak"] == "3 pods beyond the baseline"
    assert report["Without the plan"].startswith(
        "An upper bound, not measured: up to 1 of the 2 pods might have waited"
    )


def test_a_plan_that_does_not_exist_is_said_in_words(api: Api, control_plane: ControlPlane, namespace: str) -> None:
    done = run("approve", f"{namespace}/none", "--kubeconfig", str(planner(control_plane)))
    assert done.exit_code == 1
    assert f"reservation plan {namespace}/none does not exist" in done.stderr


def test_the_manager_is_not_fast_forwarded_on_a_real_cluster(
    api: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    name = f"real-{tmp_path.name[-8:].replace('_', '-')}"
    api.create("/api/v1/nodes", {"metadata": {"name": name}})
    try:
        argv = [
            "serve",
            "manager",
            "--once",
            "--at",
            "2027-03-05T18:00:00Z",
            "--kubeconfig",
            str(account(control_plane, "cotenant-manager")),
        ]
        done = CliRunner().invoke(root, argv)
    finally:
        api.delete(f"/api/v1/nodes/{name}")
    assert done.exit_code == 2
    assert "is not a test cluster" in done.stderr
