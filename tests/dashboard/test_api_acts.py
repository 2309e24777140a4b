"""Acting by script, over real HTTP and on a real API server: the pages' own functions, refused in words."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import traceback
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from msgspec.structs import replace
from typer.testing import CliRunner

from cotenant.base.errors import (
    ClusterAbsent,
    ClusterConflict,
    ClusterError,
    ClusterForbidden,
    ClusterObjectGone,
    ClusterUnreachable,
)
from cotenant.base.kube import KubeClient
from cotenant.base.kube.connection import ApiRequest, ApiResponse
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.people import Grant, Person, Role
from cotenant.changes.model.settings import GuardrailSettings
from cotenant.cli.main import root as cli
from cotenant.dashboard.rest import results
from tests.support import acting
from tests.support.access import Browser
from tests.support.acting import Prepared, Scene

pytestmark = [pytest.mark.server, pytest.mark.slow]

ADMIN = Person("jane", grants=(Grant(Role.ADMIN),))
V1 = "/api/v1"
HALF = {"core_percent": 40, "memory_percent": 50}
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def prepared_store(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return acting.prepared(tmp_path_factory.mktemp("store"))


@pytest.fixture
def cluster(tmp_path: Path, prepared_store: Prepared) -> Iterator[Scene]:
    with acting.embedded(tmp_path, prepared_store) as embedded_cluster:
        yield embedded_cluster


@contextmanager
def script(cluster: Scene, who: Person = ADMIN, **options: Any) -> Iterator[Browser]:
    """A script with a session of its own, as `docs/dashboard-acting.md` has it with curl."""
    with acting.served(cluster, lambda: who, **options) as url:
        browser = Browser(url)
        browser.get(f"{V1}/postponements")
        yield browser


def posted(me: Browser, path: str, body: Any = None, **headers: str) -> requests.Response:
    return me.post(f"{V1}/{path}", json=body, headers=headers)


def accepted(me: Browser, cluster: Scene, count: int = 1, key: str = "k1") -> list[dict[str, Any]]:
    names = [str(ref) for ref in cluster.acceptable()[:count]]
    response = posted(me, "changes", {"workloads": names}, **{"Idempotency-Key": key})
    assert response.status_code == 201, response.text
    changes: list[dict[str, Any]] = response.json()["changes"]
    return changes


def test_a_script_reviews_accepts_reads_and_takes_back(cluster: Scene) -> None:
    ref = cluster.acceptable()[0]
    before = cluster.resources(ref)
    with script(cluster) as me:
        (looked,) = posted(me, "reviews", {"workloads": [str(ref)], "dry_run": True}).json()
        assert looked["tried"]["accepted"] is True and looked["moves"] and looked["error"] == ""
        assert cluster.resources(ref) == before
        (change,) = accepted(me, cluster)
        assert (change["state"], change["actor"], change["batch"]) == ("applied", "jane", "k1")
        assert change["cluster"] == "embedded" and " → " in change["moved"] and cluster.resources(ref) != before
        again = posted(me, "changes", {"workloads": [str(ref)]}, **{"Idempotency-Key": "k1"})
        assert again.status_code == 200 and [c["change"] for c in again.json()["changes"]] == [change["change"]]
        full_change = me.get(f"{V1}/changes/{change['change']}").json()
        assert [row["event"] for row in full_change["rows"]] == ["accepted", "applied"] and full_change["moves"]
        acting.settle_rollouts(cluster)
        (judged,) = posted(me, f"changes/{change['change']}/verify").json()["changes"]
        assert judged["state"] in ("verified", "regressed")
        (back,) = posted(me, f"changes/{change['change']}/rollback").json()["changes"]
        assert back["state"] == "rolled-back" and cluster.resources(ref) == before
        health = me.get(f"{V1}/ledger").json()
        assert health["bad_row"] == 0 and health["rows"] == 5


def test_a_script_accepts_a_share_of_a_gpu_in_place_of_cpu_and_memory_and_takes_it_back(cluster: Scene) -> None:
    with acting.oversized_gpu(cluster) as ranker, script(cluster) as me:
        ref, before = ranker.workload, cluster.resources(ranker.workload)
        body = {"workloads": [str(ref)], "gpu_shares": True}
        (looked,) = posted(me, "reviews", {**body, "dry_run": True}).json()
        # no Device object is on this server, which the guardrail says; the server itself takes the share
        assert [r["name"] for r in looked["rules"] if r["outcome"] == "fail"] == ["gpu-devices"]
        assert looked["tried"]["accepted"] is True and looked["recommendations"][0]["gpu"]["share"] == HALF
        stopped = posted(me, "changes", body, **{"Idempotency-Key": "g1"})
        assert stopped.status_code == 422 and "guardrail gpu-devices" in stopped.json()["message"]
        assert cluster.resources(ref) == before
        terms = {"overridden": ["gpu-devices"], "because": "the nodes come tomorrow"}
        other = cluster.workloads[2]
        both = posted(me, "reviews", {**body, "workloads": [str(ref), str(other)]}).json()
        refused = "no GPU share is proposed for this workload"
        assert [(r["workload"]["name"], r["error"]) for r in both] == [(ref.name, ""), (other.name, refused)]
        mixed = posted(
            me, "changes", {**body, **terms, "workloads": [str(other), str(ref)]}, **{"Idempotency-Key": "g0"}
        )
        assert mixed.status_code == 422 and f"{other}: {refused}" in mixed.json()["message"]
        assert cluster.resources(ref) == before
        done = posted(me, "changes", {**body, **terms}, **{"Idempotency-Key": "g1"})
        assert done.status_code == 201, done.text
        share = {"koordinator.sh/gpu-core": "40", "koordinator.sh/gpu-memory-ratio": "50"}
        assert cluster.resources(ref)[0] == {"requests": {"cpu": "1", **share}, "limits": {"memory": "8Gi", **share}}
        (change,) = done.json()["changes"]
        full_change = me.get(f"{V1}/changes/{change['change']}").json()
        assert "the nodes come tomorrow" in full_change["rows"][0]["body"]
        (back,) = posted(me, f"changes/{change['change']}/rollback").json()["changes"]
        assert back["state"] == "rolled-back" and cluster.resources(ref) == before
        none = posted(me, "reviews", {**body, "workloads": [str(other)]})
        assert none.status_code == 404 and "no GPU share is proposed" in none.json()["message"]
        files = posted(me, "bundles", {**body, "form": "kustomize", "workloads": [str(ref), str(other)]})
        packed = zipfile.ZipFile(io.BytesIO(files.content))
        texts = "".join(packed.read(name).decode() for name in packed.namelist())
        assert "koordinator.sh/gpu-core" in texts and f"Left out: {refused}." in texts
        unwritten = posted(me, "bundles", {**body, "form": "ssa"})
        assert unwritten.status_code == 422
        assert "form ssa cannot carry GPU shares" in unwritten.json()["message"]


def test_an_accept_is_a_short_way_from_its_route_to_the_patch(cluster: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    ways: list[list[str]] = []
    request = KubeClient.request

    def followed(client: KubeClient, verb: str, question: ApiRequest, **how: Any) -> ApiResponse:
        if question.method == "PATCH" and "/deployments/" in question.path:
            modules = (str(frame.f_globals["__name__"]) for frame, _ in traceback.walk_stack(None))
            ways.append([module for module in modules if module.startswith("cotenant.")])
        return request(client, verb, question, **how)

    monkeypatch.setattr(KubeClient, "request", followed)
    with script(cluster) as me:
        accepted(me, cluster)
    (way,) = ways
    # the route, the service, `changes.accept` and what sends a write: functions on the way, and their modules
    assert "cotenant.changes.accept" in way and len(way) <= 25 and len(set(way)) <= 8, way


def test_a_batch_is_taken_back_by_its_key(cluster: Scene) -> None:
    with script(cluster) as me:
        assert len(accepted(me, cluster, 2)) == 2
        back = posted(me, "batches/k1/rollback").json()["changes"]
        assert [c["state"] for c in back] == ["rolled-back"] * 2
        assert posted(me, "batches/k1/rollback").status_code == 404


def test_each_refusal_is_in_words_under_its_own_status(cluster: Scene) -> None:
    text, two = (str(ref) for ref in cluster.acceptable()[:2])
    with script(cluster) as me:
        accepted(me, cluster)
        key = {"Idempotency-Key": "k1"}
        cases = {
            "key": (posted(me, "changes", {"workloads": [two]}, **key), 422, "was used before"),
            "no key": (posted(me, "changes", {"workloads": [two]}), 422, "Idempotency-Key"),
            "name": (posted(me, "reviews", {"workloads": ["pay"]}), 422, "NAMESPACE/KIND/NAME"),
            "field": (posted(me, "reviews", {"workload": [text]}), 422, "body is not valid"),
            "nothing": (posted(me, "reviews", {"workloads": []}), 422, "the request names no workload"),
            "unknown": (posted(me, "changes/nope/rollback"), 404, "no change 'nope'"),
            "absent": (me.get(f"{V1}/changes/nope"), 404, "no change 'nope'"),
            "filter": (me.get(f"{V1}/changes?colour=red"), 400, "unknown filter"),
        }
        for name, (response, status, message) in cases.items():
            problem = response.json()
            assert (name, response.status_code) == (name, status) and message in problem["message"], (name, problem)
            assert set(problem) == {"error", "message", "fix"}
        forged = me.post(f"{V1}/changes", token="", json={"workloads": [two]}, headers=key)
        assert forged.status_code == 403 and len(me.get(f"{V1}/changes").json()["rows"]) == 1


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ClusterAbsent("no kind autopilotpolicies"), 404),  # Kubernetes' own answer: the kind is not installed
        (ClusterObjectGone("no object web"), 404),
        (ClusterForbidden("may not list"), 403),
        (ClusterConflict("changed meanwhile"), 409),
        (ClusterUnreachable("no answer"), 503),
        (ClusterError("something else"), 500),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_of_the_cluster_has_the_status_of_its_kind(error: ClusterError, status: int) -> None:
    response = results.problem(error)
    assert (response.status_code, json.loads(bytes(response.body))["message"]) == (status, error.message)


def test_who_may_not_is_refused_and_nothing_happens(cluster: Scene) -> None:
    ref = cluster.acceptable()[0]
    body = {"workloads": [str(ref)]}
    posts = (
        ("reviews", body), ("changes", body), ("bundles", {**body, "form": "ssa"}), ("changes/settle", None),
        ("postponements", {**body, "reason": "no"}), ("postponements/recall", body),
    )  # fmt: skip
    before = cluster.live(ref)["metadata"]["resourceVersion"]
    with script(cluster, Person("vic")) as me:
        for path, payload in posts:
            response = posted(me, path, payload, **{"Idempotency-Key": "k9"})
            assert response.status_code == 403 and "vic may not" in response.json()["message"], (path, response.text)
    with script(cluster, ADMIN, changes=None) as me:
        for path, payload in posts:
            response = posted(me, path, payload, **{"Idempotency-Key": "k9"})
            assert response.status_code == 403 and "read-only" in response.json()["message"], (path, response.text)
        assert me.get(f"{V1}/changes").json()["rows"] == []
    assert cluster.live(ref)["metadata"]["resourceVersion"] == before
    assert not list(Ledger(Path(cluster.settings.actions.ledger), reading=True).entries())


def test_a_guardrail_stops_with_its_name_and_a_silent_cluster_is_said(tmp_path: Path, prepared_store: Prepared) -> None:
    strict = replace(acting.ACTIONS, guardrails=GuardrailSettings(minimum_days=90.0))
    with acting.embedded(tmp_path, prepared_store, strict) as strict_cluster:
        names = [str(strict_cluster.workloads[0])]
        with script(strict_cluster) as me:
            stopped = posted(me, "changes", {"workloads": names}, **{"Idempotency-Key": "k1"})
            assert stopped.status_code == 422 and "guardrail history" in stopped.json()["message"]
    with script(strict_cluster) as me:
        silent = me.get(f"{V1}/permissions")
        assert silent.status_code == 503 and "no complete answer" in silent.json()["message"]


def test_bundles_come_as_a_zip_and_commands_as_text(cluster: Scene) -> None:
    body = {"workloads": [str(cluster.acceptable()[0])]}
    with script(cluster) as me:
        packed = posted(me, "bundles", {**body, "form": "kustomize"})
        names = zipfile.ZipFile(io.BytesIO(packed.content)).namelist()
        assert packed.headers["content-type"] == "application/zip" and "PULL_REQUEST.md" in names and len(names) > 1
        text = posted(me, "bundles", {**body, "form": "kubectl"})
        assert "kubectl patch" in text.text and text.headers["content-type"].startswith("text/plain")


def test_a_commit_is_shown_first_and_made_in_the_repository_of_the_settings(
    prepared_store: Prepared, tmp_path: Path
) -> None:
    with acting.embedded(tmp_path, prepared_store) as plain, script(plain) as me:
        body = {"workloads": [str(plain.acceptable()[0])], "branch": "smaller"}
        refused = posted(me, "bundles/commit", body)
        assert refused.status_code == 422 and "no Git repository is configured" in refused.json()["message"]
    folder = tmp_path / "deploy"
    actions = replace(acting.ACTIONS, git_repository=str(folder))
    (tmp_path / "second").mkdir()
    with acting.embedded(tmp_path / "second", prepared_store, actions) as git_cluster, script(git_cluster) as me:
        ref, other = git_cluster.acceptable()[:2]
        acting.git_repository(git_cluster, folder, ref)
        body = {"workloads": [str(ref), str(other)], "branch": "smaller"}
        shown = posted(me, "bundles/commit", body)
        assert shown.status_code == 200, shown.text
        assert (shown.json()["commit"], shown.json()["files"]) == ("", [f"{ref.name}.yaml"])
        assert [refusal["workload"]["name"] for refusal in shown.json()["refused"]] == [other.name]
        made_now = posted(me, "bundles/commit", {**body, "write": True}).json()
        assert made_now["diff"] == shown.json()["diff"] != ""
        assert made_now["commit"] == acting.git(folder, "rev-parse", "smaller").strip()
        again = posted(me, "bundles/commit", {**body, "write": True})
        assert again.status_code == 422 and "exists already" in again.json()["message"]


def test_recommendations_are_put_off_and_shown_again(cluster: Scene) -> None:
    names = [str(ref) for ref in cluster.workloads[:2]]
    with script(cluster) as me:
        assert posted(me, "postponements", {"workloads": names, "days": 7, "reason": "freeze"}).status_code == 204
        postponements = me.get(f"{V1}/postponements").json()
        assert {postponement["workload"] for postponement in postponements} == set(names) and {
            postponement["reason"] for postponement in postponements
        } == {"freeze"}
        assert posted(me, "postponements", {"workloads": names, "days": 7, "reason": ""}).status_code == 422
        assert posted(me, "postponements/recall", {"workloads": names[:1]}).status_code == 204
        assert [postponement["workload"] for postponement in me.get(f"{V1}/postponements").json()] == names[1:]


def test_an_act_on_what_does_not_exist_is_404_and_leaves_no_row_in_the_ledger(cluster: Scene) -> None:
    ref = str(cluster.workloads[0])
    missing_ref = f"{cluster.namespace}/Deployment/no-such"
    body = {"workloads": [missing_ref]}
    with script(cluster) as me:
        for path, payload in (
            ("postponements", {"workloads": [ref, missing_ref], "reason": "freeze"}), ("postponements/recall", body),
            ("reviews", body), ("changes", body), ("bundles", {**body, "form": "ssa"}),
            ("changes/no-such/rollback", None), ("changes/no-such/verify", None), ("changes/no-such/decline", None),
            ("batches/no-such/rollback", None), ("ladders/no-such/stop", {}), ("ladders/no-such/back", {"step": 0}),
        ):  # fmt: skip
            response = posted(me, path, payload, **{"Idempotency-Key": "k4"})
            assert response.status_code == 404, (path, response.text)
            assert response.json()["error"] == "NoData" and response.json()["fix"], path
        message = posted(me, "postponements", {"workloads": [ref, missing_ref], "reason": "freeze"}).json()["message"]
        assert message == f"no recommendation for {missing_ref}"
        assert me.get(f"{V1}/postponements").json() == []
    assert not list(Ledger(Path(cluster.settings.actions.ledger), reading=True).entries())


def test_the_command_line_the_api_and_its_csv_hold_the_same_rows(
    cluster: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COTENANT_ACTIONS__LEDGER", cluster.settings.actions.ledger)
    with script(cluster) as me:
        first, _ = accepted(me, cluster, 2)
        posted(me, f"changes/{first['change']}/rollback")
        for command, path in ((["recs", "changes"], "changes"), (["audit", "export"], "ledger/entries")):
            result = CliRunner().invoke(cli, [*command, "-o", "json"])
            assert result.exit_code == 0, result.output
            by_command = json.loads(result.stdout)
            by_api = me.get(f"{V1}/{path}").json()["rows"]
            assert by_command == by_api and len(by_api) == {"changes": 2, "ledger/entries": 6}[path]
            text = me.get(f"{V1}/{path}?format=csv").text
            keys = ("change", "state") if path == "changes" else ("seq", "hash")
            by_csv = [tuple(row[k] for k in keys) for row in csv.DictReader(io.StringIO(text))]
            assert by_csv == [tuple(str(row[k]) for k in keys) for row in by_api]
        for query, rows in (("q=rollback-accepted", 1), ("q=x-no-such", 0), ("row=1", 1)):
            assert len(me.get(f"{V1}/ledger/entries?{query}").json()["rows"]) == rows
        some = me.get(f"{V1}/changes?state=rolled-back&columns=change,state").json()
        assert some["rows"] == [{"change": first["change"], "state": "rolled-back"}] and some["of"] == 2


def test_a_canary_outside_0_to_1_is_refused_and_nothing_changes(cluster: Scene) -> None:
    ref = cluster.acceptable()[0]
    before = cluster.resources(ref)
    with script(cluster) as me:
        # 10 for "10 %" would change all at once but one, -1 and NaN all at once
        for number, share in enumerate(("10", "1.5", "-1", "NaN", "1e999")):
            for path in ("reviews", "changes"):
                body = f'{{"workloads": ["{ref}"], "canary": {share}}}'
                headers = {"Idempotency-Key": f"c{number}", "Content-Type": "application/json"}
                response = me.post(f"{V1}/{path}", data=body, headers=headers)
                assert response.status_code == 422, (path, share, response.text)
                assert "`$.canary`" in response.json()["message"], response.text
        assert me.get(f"{V1}/changes").json()["total"] == 0
    assert cluster.resources(ref) == before


def test_openapi_describes_bodies_answers_and_errors(cluster: Scene) -> None:
    with script(cluster) as me:
        paths = me.get("/openapi.json").json()["paths"]
    accept = paths[f"{V1}/changes"]["post"]
    fields = accept["requestBody"]["content"]["application/json"]["schema"]["properties"]
    assert {"workloads", "method", "overridden", "canary"} <= set(fields) and "$ref" not in json.dumps(fields)
    assert {"201", "403", "409", "422", "503"} <= set(accept["responses"])
    problem = accept["responses"]["403"]["content"]["application/json"]["schema"]["properties"]
    assert set(problem) == {"error", "message", "fix"}
    assert [p["name"] for p in accept["parameters"]] == ["Idempotency-Key"]
    names = {p["name"] for p in paths[f"{V1}/changes"]["get"]["parameters"]}
    assert {"state", "by", "batch", "since", "until", "columns", "sort"} <= names


def test_the_examples_of_the_page_for_scripts_run_as_they_are_written(cluster: Scene, tmp_path: Path) -> None:
    ref = cluster.acceptable()[0]
    text = (ROOT / "docs" / "dashboard-acting.md").read_text()
    block = next(b for b in text.split("```sh\n")[1:] if "Idempotency-Key" in b).partition("```")[0]
    before = cluster.resources(ref)
    with acting.served(cluster, lambda: ADMIN, launch_token="t-1_x") as url:
        lines = block.replace("http://127.0.0.1:8050", url).replace("pay/Deployment/checkout", str(ref)).splitlines()
        head_count = 6
        read_id = 'ID=$(curl -s -b jar $URL/api/v1/changes | sed \'s/.*"change":"\\([0-9a-f]*\\)".*/\\1/\')'
        written = [*lines[:head_count], read_id, *(line.replace("3f9c21a0b1c2", "$ID") for line in lines[head_count:])]
        done = subprocess.run(
            ["bash", "-eu", "-c", "\n".join(written)],
            check=False,
            cwd=tmp_path,
            env={**os.environ, "LAUNCH": "t-1_x"},
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 0, done.stderr
    assert '"state":"applied"' in done.stdout and '"state":"rolled-back"' in done.stdout, done.stdout
    assert cluster.resources(ref) == before and zipfile.ZipFile(tmp_path / "bundle.zip").namelist()
    assert "csrf" not in done.stdout.lower() and done.stdout.count('"rolled-back"') >= 1
