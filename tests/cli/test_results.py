"""Which rows of a stored scan a command shows: namespaces, the filter and what is written wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cotenant.base.commands.results import filter_rows
from cotenant.base.store import Store
from cotenant.base.table import Table
from cotenant.cli import main
from cotenant.recommender.model.views import FINDINGS, FORECASTS, RECLAIMABLE, WORKLOADS, Overview
from tests.support.dashboard import WEEK, results

ROWS = [
    {"namespace": namespace, "kind": "Deployment", "workload": name, "cpu_mean": mean}
    for namespace, name, mean in (("ci", "build", 1), ("ci", "test", 3), ("feed", "rank", 2), ("chat", "room", 4))
]
TABLE = Table.from_rows(WORKLOADS, ROWS)


@pytest.mark.parametrize(
    ("namespaces", "query", "names"),
    [
        (["ci"], "ns=feed", []),
        (["ci", "feed"], "ns=feed", ["rank"]),
        (["c*"], "ns!=chat&sort=-cpu_mean", ["test", "build"]),
        (["ci,chat"], None, ["build", "test", "room"]),
        (None, "namespace=ci", ["build", "test"]),
    ],
)
def test_namespaces_and_a_filter_narrow_each_other(
    namespaces: list[str] | None, query: str | None, names: list[str]
) -> None:
    assert filter_rows(TABLE, namespaces, query).columns["workload"].tolist() == names


def test_a_range_ends_with_the_newest_row_of_all_namespaces() -> None:
    from cotenant.enforcer.model.enforcement_tables import ENFORCEMENT

    # The newest row is at 100,000 s, so the last 24 h begin at 13,600 s: shop's row of 10,000 s is older.
    rows = [{"time": 10_000, "namespace": "shop"}, {"time": 100_000, "namespace": "pay"}]
    assert not len(filter_rows(Table.from_rows(ENFORCEMENT, rows), ["shop"], "range=24h"))


def test_a_further_part_narrows_too() -> None:
    assert filter_rows(TABLE, ["ci"], "workload=build,rank", "workload=*").columns["workload"].tolist() == ["build"]
    assert not len(filter_rows(TABLE, None, "workload=build", "workload=rank"))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return results(tmp_path_factory.mktemp("store"), spec=WEEK).store


def run(store: Store, *arguments: str) -> Any:
    return CliRunner().invoke(main.root, [*arguments, "--store", store.url])


def shown(store: Store, *arguments: str) -> list[dict[str, Any]]:
    done = run(store, *arguments, "-o", "json")
    assert done.exit_code == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


@pytest.mark.parametrize(
    "command",
    [
        ("get", "findings"),
        ("get", "replicas"),
        ("get", "pods"),
        ("get", "forecast", "--scope", "workload"),
        ("recs", "list"),
    ],
)
def test_a_namespace_that_the_scan_lacks_is_no_all_clear(store: Store, command: tuple[str, ...]) -> None:
    here = store.read_table(WORKLOADS).columns["namespace"][0]
    done = run(store, *command, "-n", f"{here}x")
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"error: the last scan has no namespace '{here}x'\nfix: Did you mean {here}?" in done.stderr
    assert "has no namespace ''" in run(store, *command, "-n", "").stderr
    assert run(store, *command, "-n", f"{here}x*").exit_code == 0


@pytest.mark.parametrize("of", [(), ("--all-clusters",)], ids=["one", "all"])
def test_a_scan_tells_a_namespace_that_the_history_lacks_before_it_analyses(store: Store, of: tuple[str, ...]) -> None:
    here = store.read_table(WORKLOADS).columns["namespace"][0]
    before = store.read_document("overview", Overview)
    done = run(store, "scan", "--offline", *of, "-n", f"{here}x")
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"error: the last scan has no namespace '{here}x'\nfix: Did you mean {here}?" in done.stderr
    assert store.read_document("overview", Overview) == before, "results were computed and published"


def test_a_namespace_without_findings_has_none(store: Store) -> None:
    troubled = set(store.read_table(FINDINGS).columns["namespace"])
    calm = next(name for name in store.read_table(WORKLOADS).columns["namespace"] if name not in troubled)
    done = run(store, "get", "findings", "-n", calm)
    assert (done.exit_code, "nothing found" in done.stderr) == (0, True)


def test_totals_are_the_last_line_below_the_replicas(store: Store) -> None:
    rows = shown(store, "get", "replicas")
    floors = [row["floor"] for row in rows if row["floor"]]
    pods = sum(row["replicas"] for row in rows)
    *_, last = run(store, "get", "replicas").stderr.splitlines()
    assert last.startswith(f"{len(rows):,} workloads: {pods:,} pods now; ")
    assert last.endswith(
        f"{len(floors):,} replica floors proposed, at most {sum(floors):,} pods in total"
        if floors
        else "no replica floor proposed"
    )


@pytest.mark.parametrize(
    ("command", "phrase"),
    [
        (("get", "findings"), "findings matches kind=Nothing"),
        (("get", "replicas"), "workloads with an autoscaler"),
        (("get", "pods"), "no pod matches"),
        (("recs", "list"), "no recommendation matches"),
    ],
)
def test_a_filter_that_empties_a_table_says_so(store: Store, command: tuple[str, ...], phrase: str) -> None:
    done = run(store, *command, "--filter", "kind=Nothing")
    assert (done.exit_code, phrase in done.stderr) == (0, True), done.stderr


def test_forecasts_are_chosen_by_the_one_grammar(store: Store) -> None:
    table = store.read_table(FORECASTS)
    of_cpu = [r for r in table.rows() if (r["scope"], r["resource"]) == ("workload", "cpu")]
    first, second, *_ = sorted({r["namespace"] for r in of_cpu})
    command = ("get", "forecast", "--scope", "workload", "-n")
    assert shown(store, *command, f"{first},{second}") == [r for r in of_cpu if r["namespace"] in (first, second)]
    assert shown(store, *command, f"{first[:-1]}*") == [r for r in of_cpu if r["namespace"].startswith(first[:-1])]


def test_a_forecast_is_looked_up_by_workload_or_node_and_a_near_name_is_said(store: Store) -> None:
    table = store.read_table(FORECASTS)
    of_cpu = [r for r in table.rows() if r["resource"] == "cpu"]
    node = next(r for r in of_cpu if r["scope"] == "node")
    workload = next(r for r in of_cpu if r["scope"] == "workload")
    assert [r["q50"] for r in shown(store, "get", "forecast", f"node/{node['name']}")] == [
        int(level) for level in node["q50"]
    ]
    name = f"{workload['namespace']}/{workload['kind']}/{workload['name']}"
    assert [r["q50"] for r in shown(store, "get", "forecast", name)] == [int(level) for level in workload["q50"]]
    assert f"fix: Did you mean {name}?" in run(store, "get", "forecast", f"{name}x").stderr
    assert "fix: Did you mean node/" in run(store, "get", "forecast", f"node/{node['name']}x").stderr
    assert "--scope workload lists forecasts" in run(store, "get", "forecast", "nowhere/nothing").stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("a/b", "--scope", "node"), "do not apply to one workload or node"),
        (("a/b", "-n", "a"), "do not apply to one workload or node"),
        (("--fine",), "--fine needs the name of one workload"),
        (("-n", "a"), "the forecast of a cluster has no namespace"),
        (("--scope", "node", "-n", "a"), "the forecast of a node has no namespace"),
        (("-r", "gpu-core", "--scope", "node"), "gpu-core is forecast only for the cluster"),
        (("a/b", "-r", "gpu-core"), "gpu-core is forecast only for the cluster"),
    ],
)
def test_options_that_say_nothing_beside_each_other_are_refused(arguments: tuple[str, ...], sentence: str) -> None:
    done = CliRunner().invoke(main.root, ["get", "forecast", *arguments])
    assert (done.exit_code, sentence in done.stderr, "fix: " in done.stderr) == (2, True, True)


def test_a_scan_without_gpu_metrics_says_so_and_a_peak_of_gpus_has_its_unit(store: Store, tmp_path: Path) -> None:
    without = run(store, "get", "forecast", "-r", "gpu-core")
    assert (without.exit_code, without.stdout) == (1, "")
    assert "error: the last scan made no forecast of gpu-core" in without.stderr
    with_gpus = Store(tmp_path.as_uri(), "demo")
    row = {"scope": "cluster", "name": "demo", "resource": "gpu-core", "peak": 250}
    with_gpus.write_table(Table.from_rows(FORECASTS, [row]))
    header, cells = run(with_gpus, "get", "forecast", "-r", "gpu-core").stdout.splitlines()
    assert "24-H-PEAK,-5-MIN,-P95,-%-OF-A-GPU" in header
    assert "250" in cells.split()


def test_amounts_a_node_can_lend_are_written_in_the_unit_of_their_resource(tmp_path: Path) -> None:
    store = Store(tmp_path.as_uri(), "demo")
    common = {"node": "n1", "band": "batch", "policy": "usage", "reason": "ok"}
    cpu = common | {"resource": "cpu", "amount": 3828, "terms": "capacity 16000, hp_used 12172"}
    cpu |= {"term_amounts": '{"capacity": 16000, "hp_used": 12172}'}
    memory = common | {"resource": "memory", "amount": 3 * 2**30, "terms": "capacity 4294967296, hp_used 1073741824"}
    memory |= {"term_amounts": '{"capacity": 4294967296, "hp_used": 1073741824}'}
    store.write_table(Table.from_rows(RECLAIMABLE, [cpu, memory, common | {"resource": "memory", "band": "mid"}]))
    command = ("get", "reclaimable", "--terms")
    # 16,000 millicores are 16 cores; 4,294,967,296 and 1,073,741,824 bytes are 4 and 1 GiB.
    lines = run(store, *command, "--no-headers").stdout.splitlines()
    assert [line.split()[3] for line in lines[:2]] == ["3828m", "3.0Gi"]
    assert lines[0].endswith("capacity 16, hp_used 12172m")
    assert lines[1].endswith("capacity 4.0Gi, hp_used 1.0Gi")
    assert [(row["amount"], row["terms"]) for row in shown(store, *command)] == [
        (cpu["amount"], cpu["terms"]),
        (memory["amount"], memory["terms"]),
        (None, ""),
    ]
