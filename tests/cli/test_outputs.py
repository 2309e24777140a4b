"""Findings, bundles, report and summaries of one stored scan agree with its rows; real commands, real receivers."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import urllib.request
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from cotenant.base.commands.cells import human
from cotenant.base.kubernetes.quantity import parse_bytes, parse_millicores
from cotenant.base.store import Store
from cotenant.base.table import Kind
from cotenant.recommender.model.recommendation import Confidence
from cotenant_lab.simulation.demo import CLUSTER
from tests.base.test_webhook import Receiver, status
from tests.cli.test_report import Parsed
from tests.support import command_line
from tests.support.command_line import LEAN
from tests.support.dashboard import WEEK, Results, app_of, results, served
from tests.support.extent import full

pytestmark = [pytest.mark.slow, pytest.mark.server]
Row = dict[str, Any]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return results(tmp_path_factory.mktemp("store"), spec=WEEK).store.url


def cotenant(*arguments: str) -> subprocess.CompletedProcess[str]:
    return command_line.cotenant(*arguments, variables=LEAN)


@cache
def scan(url: str, output: str, *arguments: str) -> str:
    done = cotenant("scan", "--offline", "--quiet", "--store", url, "-o", output, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows_of(url: str, *arguments: str) -> dict[str, Row]:
    return {place(r): r for r in json.loads(scan(url, "json", *arguments))}


def place(row: Row) -> str:
    return f"{row['namespace']}/{row['kind']}/{row['workload']}/{row['container']}"


def amounts(resources: dict[str, Any]) -> dict[str, int | None]:
    """{"requests": {"cpu": "250m"}} -> {"cpu_request": 250}."""
    parse = {"cpu": parse_millicores, "memory": parse_bytes}
    return {
        f"{resource}_{field[:-1]}": None if text is None else parse[resource](text)
        for field, texts in resources.items()
        for resource, text in texts.items()
    }


def changed(row: Row) -> dict[str, int | None]:
    """What a patch of the row's container may hold."""
    actions = {
        "cpu_request": "cpu_action", "memory_request": "memory_action",
        "cpu_limit": "cpu_limit_action", "memory_limit": "memory_limit_action",
    }  # fmt: skip
    return {
        name: row[name]
        for name, action in actions.items()
        if row[action] in ("set", "unset") and row[name] != row[f"{name}_now"]
    }


# --- findings ---


def test_findings_are_the_same_in_every_format(url: str) -> None:
    as_json = json.loads(cotenant("get", "findings", "--store", url, "-o", "json").stdout)
    assert {"idle-workload", "missing-request"} <= {r["finding"] for r in as_json}
    assert all(r["evidence"] for r in as_json)
    assert yaml.safe_load(cotenant("get", "findings", "--store", url, "-o", "yaml").stdout) == as_json
    as_csv = list(csv.DictReader(io.StringIO(cotenant("get", "findings", "--store", url, "-o", "csv").stdout)))
    # a saving that is not known is null in JSON and an empty cell in CSV; every other column is text
    assert as_csv == [{name: "" if value is None else str(value) for name, value in row.items()} for row in as_json]
    table = cotenant("get", "findings", "--store", url, "--no-headers").stdout.splitlines()
    assert [line.split()[:2] for line in table] == [[r["finding"], r["severity"]] for r in as_json]


def test_findings_can_be_chosen_and_fail_a_pipeline(url: str) -> None:
    everything = json.loads(cotenant("get", "findings", "--store", url, "-o", "json").stdout)
    namespace = next(r["namespace"] for r in everything if r["finding"] == "idle-workload")
    chosen = cotenant("get", "findings", "--store", url, "-n", namespace, "--what", "idle-workload", "-o", "json")
    expected = [r for r in everything if (r["finding"], r["namespace"]) == ("idle-workload", namespace)]
    assert json.loads(chosen.stdout) == expected
    assert "ask whether it is still needed" in chosen.stderr
    assert cotenant("get", "findings", "--store", url, "--fail-on", "severity=warning").returncode == 3
    none = cotenant("get", "findings", "--store", url, "--what", "unschedulable-request", "--fail-on", "severity=ok")
    assert (none.returncode, "nothing found" in none.stderr) == (0, True)
    wrong = cotenant("get", "findings", "--store", url, "--what", "idle")
    assert (wrong.returncode, "idle-workload" in wrong.stderr) == (2, True)


@pytest.mark.parametrize("query", ["ns!=audit&kind=Deployment,Node", *full("severity=warning", "q=a")])
def test_the_command_line_the_api_and_its_csv_show_the_same_findings(url: str, query: str) -> None:
    store = Store(url, CLUSTER)
    inventory = store.read_inventory()
    assert inventory is not None
    with served(app_of(Results(store, inventory.time_seconds))) as address:
        url_query = query.replace(" ", "%20")
        answers = [
            urllib.request.urlopen(f"{address}/api/v1/findings?{url_query}{form}", timeout=30).read().decode()
            for form in ("", "&format=csv")
        ]
    shown = cotenant("get", "findings", "--store", url, "--filter", query, "-o", "json")
    assert json.loads(shown.stdout) == json.loads(answers[0])["rows"] != []
    assert cotenant("get", "findings", "--store", url, "--filter", query, "-o", "csv").stdout == answers[1]


# --- patches and bundles ---


def test_kustomize_patches_hold_exactly_what_the_rows_change(url: str, tmp_path: Path) -> None:
    rows = rows_of(url)
    scan(url, "kustomize", "--output-dir", str(tmp_path))
    patches: dict[str, dict[str, int | None]] = {}
    for file in tmp_path.glob("*/*.yaml"):
        document = yaml.safe_load(file.read_text())
        if isinstance(document, list):  # an autoscaler's new target, by place in its list of metrics
            assert all(o["path"].startswith("/spec/metrics/") for o in document), document
            continue
        if document["kind"] == "Component":
            assert all((file.parent / p["path"]).is_file() for p in document["patches"])
            continue
        patches |= patched(document, file.parent.name)
    expected = {name: changed(row) for name, row in rows.items() if changed(row)}
    skipped = {n for n in expected if n not in patches}
    assert patches == {n: c for n, c in expected.items() if n not in skipped}
    text = cotenant("scan", "--offline", "-q", "--store", url, "-o", "kustomize").stderr
    kinds = {n.split("/")[1] for n in skipped}
    assert all("no patch for" in line for line in text.splitlines())
    assert kinds <= {"Job", "Pod"} or "a webhook injects" in text
    assert bool(skipped) == bool(text)


def patched(document: Row, namespace: str) -> dict[str, dict[str, int | None]]:
    spec = document["spec"]
    pod = (spec["jobTemplate"]["spec"] if document["kind"] == "CronJob" else spec)["template"]["spec"]
    name = f"{namespace}/{document['kind']}/{document['metadata']['name']}"
    containers = [*pod.get("containers", ()), *pod.get("initContainers", ())]
    return {f"{name}/{c['name']}": amounts(c["resources"]) for c in containers}


@pytest.mark.parametrize("output", ["kustomize", *full("helm", "ssa")])
def test_printed_bundles_are_the_files_one_after_the_other(url: str, output: str, tmp_path: Path) -> None:
    folder = tmp_path / output
    scan(url, output, "--output-dir", str(folder))
    printed = scan(url, output)
    documents = [d for d in yaml.safe_load_all(printed) if d is not None]
    names = [line[2:] for line in printed.splitlines() if line.startswith("# ") and (folder / line[2:]).is_file()]
    assert len(names) == len(documents) == len([p for p in folder.rglob("*") if p.is_file()])
    for name, document in zip(names, documents, strict=True):
        assert yaml.safe_load((folder / name).read_text()) == document


def test_a_workload_gets_one_kubectl_line(url: str) -> None:
    lines = scan(url, "patch").splitlines()
    targets = [tuple(line.split()[3:5]) for line in lines]
    assert len(set(targets)) == len(targets) > 5


def test_a_folder_goes_with_files_only_and_an_unwritable_one_is_told(url: str, tmp_path: Path) -> None:
    wrong = cotenant("scan", "--offline", "--store", url, "-o", "json", "--output-dir", str(tmp_path))
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "--output-dir needs a file format, not -o json" in wrong.stderr
    (tmp_path / "file").write_text("")
    process = cotenant("scan", "--offline", "-q", "--store", url, "-o", "html", "--output-dir", str(tmp_path / "file"))
    assert process.returncode == 1
    assert "cannot be written" in process.stderr
    assert "Traceback" not in process.stderr


# --- report ---


def test_the_report_holds_the_amounts_of_the_json(url: str, tmp_path: Path) -> None:
    rows = rows_of(url)
    scan(url, "html", "--output-dir", str(tmp_path))
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    fields = Parsed(text).fields()
    shown = {
        name: {field: (exact(rows[name][f"{field}_now"]), exact(rows[name][field])) for field in page_amounts}
        for name, page_amounts in fields.items()
    }
    assert shown == fields
    assert set(fields) == {name for name, row in rows.items() if row["cpu_action"] or row["memory_action"]}
    assert Parsed(scan(url, "html")).fields() == fields


def exact(amount: int | None) -> str:
    return "" if amount is None else str(amount)


# --- summaries ---


def test_a_summary_arrives_with_the_figures_of_the_rows(url: str, tmp_path: Path) -> None:
    receiver = Receiver({"/hook": status(200)})
    (tmp_path / "address").write_text(receiver.url("/hook"))
    try:
        options = ("--set", "notify.format=json", "--notify-url", str(tmp_path / "address"))
        rows = rows_of(url, *options)
        ((_, body, _),) = receiver.got
    finally:
        receiver.server.shutdown()
        receiver.server.server_close()
    summary = json.loads(body)
    assert summary["containers"] == len(rows)
    # Frees: what falls alone, over all pods of each container.
    falls = -sum(min(r["cpu_delta_total"] or 0, 0) for r in rows.values())
    assert summary["all_steps"]["frees"]["millicores"] == falls
    dry = cotenant("scan", "--offline", "-q", "--store", url, "--set", "notify.format=json", "--notify-dry-run")
    assert json.loads(dry.stdout) == summary


@pytest.mark.soak
def test_a_summary_that_does_not_arrive_is_a_note_and_the_scan_stands(url: str) -> None:
    receiver = Receiver({"/hook": status(500, b"try later")})
    try:
        done = cotenant(
            "scan", "--offline", "--store", url, "-o", "json", "--fail-on", "severity=critical",
            "--notify-url", receiver.url("/hook"),
        )  # fmt: skip
    finally:
        receiver.server.shutdown()
        receiver.server.server_close()
    assert done.returncode == 3  # critical rows, as without a receiver
    assert json.loads(done.stdout)
    assert "note: the summary was not delivered: 127.0.0.1 answered 500: try later" in done.stderr
    assert "/hook" not in done.stderr


def test_a_bad_receiver_is_told_before_anything_is_done(url: str) -> None:
    done = cotenant("scan", "--offline", "--store", url, "--notify-url", "/no/such/file")
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot be read: No such file" in done.stderr


# --- explain ---


def test_explain_tells_the_back_test_confidence_money_and_what_applying_costs(url: str) -> None:
    rows = rows_of(url)
    name = next(n for n, r in rows.items() if r["backtest_oom_kills"] is not None and r["cpu_action"] == "set")
    workload, _, container = name.rpartition("/")
    done = cotenant("explain", workload, "-c", container, "--store", url)
    assert done.returncode == 0, done.stderr
    explanation = json.loads(cotenant("explain", workload, "-c", container, "--store", url, "-o", "json").stdout)[0]
    assert "back-test:\n  last 7 days" in done.stdout
    tried = explanation["backtest"]
    short = f"on {tried['short_pod_days'] or 'none'} of {tried['cpu_pod_days']:,} pod-days"
    assert f"as proposed: CPU demand above the request {short}" in done.stdout
    assert (
        f"confidence:\n  {Confidence.of(explanation['trust']['confidence'])}\n  {explanation['trust']['because'][0]}"
        in done.stdout
    )
    assert "USD a month" in done.stdout
    assert ("to apply (" in done.stdout) or ("no patch:" in done.stdout) or ("nothing to apply" in done.stdout)
    for value in explanation["values"]:
        for clamp in value["clamps"]:
            assert f"rule: {clamp['rule']}" in done.stdout
        inputs = value["inputs"]
        if "observed_max" in inputs:
            kind = Kind.MILLICORES if value["resource"] == "cpu" else Kind.BYTES
            amount = inputs["observed_max"] if kind is Kind.BYTES else round(inputs["observed_max"])
            assert re.search(rf"^  observed_max +{re.escape(human(kind, amount))}$", done.stdout, re.MULTILINE)
            assert re.search(rf"^  pods_seen +{inputs['pods_seen']}$", done.stdout, re.MULTILINE)


def test_explain_of_a_container_that_is_not_there_says_so(url: str) -> None:
    name = next(iter(rows_of(url)))
    done = cotenant("explain", name.rpartition("/")[0], "-c", "nope", "--store", url)
    assert (done.returncode, done.stdout) == (1, "")
    assert "has no container nope" in done.stderr
