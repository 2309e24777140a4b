"""`cotenant status` over stored results, a ledger and a real API server: the same numbers as Home, and honest gaps."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cotenant.base.identity import WorkloadRef
from cotenant.base.ledger.bucket_ledger import open_ledger
from cotenant.base.process.clock import SystemClock
from cotenant.base.store import Store
from cotenant.changes.change_ledger import ChangeLedger
from cotenant.changes.snooze import snooze
from cotenant.dashboard.frame.view import View
from cotenant.dashboard.home.page_data import OverviewPage, overview_page
from cotenant.dashboard.sources.source import StoreSource
from cotenant.profiler.recorder.status import STATUS_DOCUMENT, NodeSource, RecorderStatus
from cotenant.recommender.model.views import RECLAIMABLE, RECOMMENDATIONS
from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane
from tests.support import plans
from tests.support.command_line import cotenant
from tests.support.dashboard import QUICK, WEEK, Results, results

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def week_results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return results(tmp_path_factory.mktemp("store"), spec=WEEK)


@pytest.fixture(scope="module")
def home(week_results: Results) -> OverviewPage:
    page = overview_page(
        View(StoreSource(week_results.store, QUICK), QUICK, lambda: float(week_results.end_seconds)), ""
    )
    assert page is not None
    return page


def run(store: Store, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it without a kubeconfig of the machine, with a ledger of its own."""
    ledger = {"COTENANT_ACTIONS__LEDGER": str(folder / "ledger.sqlite")}
    return cotenant("status", "--store", store.url, *arguments, variables={"HOME": str(folder), **ledger})


def document(store: Store, folder: Path, *arguments: str) -> Any:
    done = run(store, folder, "-o", "json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_number_is_that_of_home(week_results: Results, home: OverviewPage, tmp_path: Path) -> None:
    status = document(week_results.store, tmp_path)
    overview = home.overview
    assert [status[key] for key in ("nodes", "workloads", "pods")] == [
        overview.nodes,
        overview.workloads,
        overview.pods,
    ]
    assert status["at_risk"]["containers"] == home.todo.raises > 0
    assert status["at_risk"]["above_memory_request"] == home.above_request > 0
    assert status["waste_containers"] == home.todo.cuts > 0
    assert status["waste"]["all_steps"]["frees"]["millicores"] == home.cuts.all_steps.frees.millicores > 0
    assert status["waste"]["all_steps"]["frees"]["monthly"] == pytest.approx(home.cuts.all_steps.frees.monthly)
    assert status["waiting"]["ready_to_apply"] == home.ready.ready
    assert status["waiting"]["second_person"] == home.ready.second_person
    assert status["lent"]["free_for_batch_now"]["cpu_millicores"] == pytest.approx(overview.cpu.batch_now)
    assert status["lent"]["free_for_a_day"]["memory_bytes"] == pytest.approx(overview.memory.mid_now)
    assert overview.peak is not None
    assert status["peak"]["height_millicores"] == overview.peak.height_millicores
    assert (status["saved"]["changes"], status["saved"]["verified"]["frees"]["millicores"]) == (0, 0)


def test_the_numbers_are_those_of_the_stored_rows(week_results: Results, tmp_path: Path) -> None:
    """Independent of Home: the two lists and their sums from the rows themselves."""
    status = document(week_results.store, tmp_path)
    rows = list(week_results.store.read_table(RECOMMENDATIONS).rows())
    assert status["at_risk"]["containers"] == sum(row["todo"] == "raise" for row in rows)
    cuts = [row for row in rows if row["todo"] == "cut"]
    assert status["waste_containers"] == len(cuts)
    assert status["waste"]["all_steps"]["frees"]["millicores"] == -sum(min(r["cpu_delta_total"] or 0, 0) for r in cuts)
    lent = [
        r for r in week_results.store.read_table(RECLAIMABLE).rows() if (r["band"], r["resource"]) == ("batch", "cpu")
    ]
    assert status["lent"]["free_for_batch_now"]["cpu_millicores"] == sum(r["amount"] or 0 for r in lent)


def test_what_somebody_put_off_is_no_longer_counted(week_results: Results, tmp_path: Path) -> None:
    before = document(week_results.store, tmp_path)
    rows = [r for r in week_results.store.read_table(RECOMMENDATIONS).rows() if r["todo"] == "raise"]
    first = f"{rows[0]['namespace']}/{rows[0]['kind']}/{rows[0]['workload']}"
    mine = sum((r["namespace"], r["kind"], r["workload"]) == tuple(first.split("/")) for r in rows)
    ledger = open_ledger(tmp_path / "ledger.sqlite")
    snooze(ChangeLedger(ledger, SystemClock(), "ana"), [WorkloadRef.required(first)], None, "load test")
    ledger.close()
    after = document(week_results.store, tmp_path)
    assert after["at_risk"]["containers"] == before["at_risk"]["containers"] - mine


def test_without_a_kubeconfig_it_says_so_and_shows_the_rest(week_results: Results, tmp_path: Path) -> None:
    done = run(week_results.store, tmp_path)
    assert done.returncode == 0
    lines = {line[:14].strip(): line[15:] for line in done.stdout.splitlines() if line[:1] != " "}
    assert list(lines) == [
        *("Cluster", "Newest sample", "Runs", "Lent", "At risk", "Waste", "Waiting", "Next peak", "Saved so far")
    ]
    assert lines["Runs"].startswith("not known: no access to a cluster: there is no kubeconfig")
    assert "nothing verified yet" in lines["Saved so far"]
    assert lines["Waiting"] == "no recommendation and no change"
    assert "               plans are not known" in done.stdout.splitlines(), "what nobody has read is not zero"
    texts = [line for line in done.stdout.splitlines() if not line.startswith("Runs")]  # whose length is a path's
    assert all(len(line) <= 120 for line in texts), "one screen, no endless lines"
    assert len(done.stdout.splitlines()) <= 20


@pytest.mark.slow
def test_a_cluster_that_does_not_answer_leaves_a_part_and_says_so(week_results: Results, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    body = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": week_results.store.cluster,
        "contexts": [{"name": week_results.store.cluster, "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {}}],
    }
    kubeconfig.write_text(yaml.safe_dump(body))
    done = run(week_results.store, tmp_path, "--kubeconfig", str(kubeconfig))
    assert done.returncode == 4
    assert done.stderr.startswith("partial: the cluster did not answer: ")
    assert "Next peak" in done.stdout and "Runs           not known: " in done.stdout


def test_before_the_first_analysis_it_says_what_a_recorder_has(tmp_path: Path) -> None:
    recorded_since = SystemClock().now_seconds() - 7200
    recording = RecorderStatus(
        recorded_since, recorded_since + 7100, int(recorded_since + 6900), nodes={NodeSource.KUBELET: 3}
    )
    store = Store((tmp_path / "young").as_uri(), "young")
    store.write_document(STATUS_DOCUMENT, recording)
    done = run(store, tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "error: the store has no results of cluster young yet: recording since " in done.stderr
    assert "3 nodes from kubelet" in done.stderr and "fix: Analyse the recorded history: cotenant scan." in done.stderr


def test_a_context_that_is_not_there_is_an_error_that_names_it(week_results: Results, tmp_path: Path) -> None:
    done = run(week_results.store, tmp_path, "--kubeconfig", str(tmp_path / "typo"))
    assert (done.returncode, done.stdout) == (1, "")
    assert f"there is no kubeconfig {tmp_path / 'typo'}" in done.stderr


def test_another_clusters_components_do_not_stand_beside_these_results(week_results: Results, tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    body = {
        "current-context": "elsewhere",
        "contexts": [{"name": "elsewhere", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {}}],
    }
    (tmp_path / ".kube" / "config").write_text(yaml.safe_dump(body))
    status = document(week_results.store, tmp_path)
    assert status["cluster_unknown"].startswith("the kubeconfig context belongs to cluster elsewhere, the results ")


def test_several_clusters_are_rows_unless_one_is_named(week_results: Results, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    source = Path(week_results.store.url.removeprefix("file://"))
    shutil.copytree(source, folder)
    shutil.copytree(folder / week_results.store.cluster, folder / "second")
    both = Store(folder.as_uri(), week_results.store.cluster)
    rows = document(both, tmp_path)
    assert [row["cluster"] for row in rows] == [week_results.store.cluster, "second"]
    assert document(both, tmp_path, "--cluster", "second")["nodes"] == WEEK.nodes
    refused = run(both, tmp_path, "--all-clusters", "--cluster", "second")
    assert refused.returncode == 2 and "exclude each other" in refused.stderr
    for arguments in ((), ("--all-clusters",)):
        refused = run(both, tmp_path, *arguments, "--context", "prod")
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "kube.context is a setting of a single cluster" in refused.stderr and "--cluster NAME" in refused.stderr


def plans_in(api: Api) -> list[Any]:
    """The plans of a cluster, none where it does not know the kind."""
    group = "/apis/cotenant.dev/v1alpha1"
    return api.items(f"{group}/reservationplans") if api.exists(group) else []


def test_a_real_api_server_says_what_runs_and_how_much_of_it(
    bare_plane: ControlPlane, week_results: Results, tmp_path: Path
) -> None:
    api: Api = bare_plane.api()
    if not api.exists("/api/v1/namespaces/cotenant"):
        api.create("/api/v1/namespaces", {"metadata": {"name": "cotenant"}})
    body = next(b for b in yaml.safe_load_all((ROOT / "deploy/manager.yaml").read_text()) if b["kind"] == "Deployment")
    path = "/apis/apps/v1/namespaces/cotenant/deployments"
    if not api.exists(f"{path}/{body['metadata']['name']}"):
        api.create(path, body)
    options = ("--kubeconfig", str(bare_plane.admin_kubeconfig))
    status = document(week_results.store, tmp_path, *options)
    # No kubelet runs here: one pod is wanted, none is ready.
    assert {"name": "cotenant-manager", "kind": "Deployment", "ready": 0, "wanted": 1} in status["running"]
    # Other tests may have left plans in this cluster: those that wait have no phase yet, or Proposed.
    phases = [plan.get("status", {}).get("phase", "Proposed") for plan in plans_in(api)]
    assert (status["waiting"]["plans_for_approval"], status["plans_unknown"]) == (phases.count("Proposed"), "")
    shown = run(week_results.store, tmp_path, *options).stdout
    assert "cotenant-manager (Deployment): 0 of 1 ready  <- not all are ready" in shown
    api.delete(f"{path}/{body['metadata']['name']}")


def test_a_plan_that_cannot_be_read_leaves_the_others_counted(week_results: Results, tmp_path: Path) -> None:
    with plans.embedded(tmp_path) as plans_scene:
        plans_scene.plan("good")
        plans_scene.plan("bad", window={"start": "2026-11-20T13:00:00Z", "end": "2026-11-20T12:00:00Z"})
        done = run(
            week_results.store, tmp_path, "-o", "json", "--kubeconfig", str(plans_scene.settings.kube.kubeconfig)
        )
    status = json.loads(done.stdout)
    assert (done.returncode, status["waiting"]["plans_for_approval"], status["plans_unknown"]) == (4, 1, "")
    assert status["plans_left_out"].startswith("1 plan cannot be read and is not counted: reservationplan shop/bad: ")
    assert f"partial: {status['plans_left_out']}" in done.stderr


def test_who_may_not_list_plans_sees_the_rest_and_why_they_are_not_known(
    bare_plane: ControlPlane, week_results: Results, tmp_path: Path
) -> None:
    """The role for readers that is shipped lists workloads and no plans."""
    api, group = bare_plane.api(), "rbac.authorization.k8s.io"
    role = next(
        b for b in yaml.safe_load_all((ROOT / "deploy/rbac/reader.yaml").read_text()) if b["kind"] == "ClusterRole"
    )
    who = {"kind": "User", "name": "rita", "apiGroup": group}
    ref = {"kind": "ClusterRole", "name": "rita", "apiGroup": group}
    made_here = {"clusterroles": {**role, "metadata": {"name": "rita"}},
                 "clusterrolebindings": {"metadata": {"name": "rita"}, "subjects": [who], "roleRef": ref}}  # fmt: skip
    for plural, body in made_here.items():
        api.create(f"/apis/{group}/v1/{plural}", body)
    options = ("--kubeconfig", str(bare_plane.user("rita")))
    status = document(week_results.store, tmp_path, *options)
    assert (status["cluster_unknown"], status["waiting"]["plans_for_approval"]) == ("", None)
    assert "cannot list reservationplans.cotenant.dev" in status["plans_unknown"]
    assert f"plans are not known: {status['plans_unknown']}" in run(week_results.store, tmp_path, *options).stdout
    for plural in made_here:
        api.delete(f"/apis/{group}/v1/{plural}/rita")
