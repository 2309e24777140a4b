"""Two clusters behind one real Prometheus: refused together, declared as printed, scanned side by side, read apart."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from cotenant_lab.synthetic import SyntheticSpec, generate
from tests.base.test_webhook import Receiver, status
from tests.support.command_line import LEAN, cotenant
from tests.support.openmetrics import Dress, create_blocks
from tests.support.prometheus import Server, free_port
from tests.support.prometheus_matrix import carrying

pytestmark = [pytest.mark.slow, pytest.mark.prometheus]
SEEDS = {"lab": 3, "prod": 11}
BORN = 1_700_000_000
"""Moment from which on the clusters were created, as many seconds later as the seed says."""


@dataclass(frozen=True)
class ScannedClusters:
    """The settings that the refusal printed, with a third cluster whose server is away, and a store."""

    folder: Path
    url: str
    refusal: str

    def run(self, *arguments: str, settings: str = "settings.yaml") -> subprocess.CompletedProcess[str]:
        variables = {**LEAN, "HOME": str(self.folder), "COTENANT_CONFIG": str(self.folder / settings)}
        return cotenant(*arguments, variables=variables)

    def rows(self, *arguments: str) -> list[dict[str, Any]]:
        done = self.run(*arguments, "-o", "json")
        assert done.returncode == 0, done.stderr
        return list(json.loads(done.stdout))


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScannedClusters]:
    folder = tmp_path_factory.mktemp("clusters")
    data = folder / "data"
    for name, seed in SEEDS.items():
        cluster = generate(SyntheticSpec(nodes=2, workloads=6, days=2, seed=seed, end_seconds=int(time.time())))
        create_blocks(
            cluster.inventory, cluster.usage, data, Dress(300, born_seconds=BORN + seed, relabel=carrying(cluster=name))
        )
    common: dict[str, Any] = {"profiler": {"window_days": 2}, "store": {"url": (folder / "store").as_uri()}}
    with Server(data) as server:
        common["profiler"]["prometheus"] = {"url": server.url}
        (folder / "plain.yaml").write_text(yaml.safe_dump(common))
        scanned_clusters = ScannedClusters(folder, server.url, "")
        refused = scanned_clusters.run("scan", "-q", settings="plain.yaml")
        assert refused.returncode == 1
        declared = refused.stderr[refused.stderr.index("\nclusters:\n") + 1 :]
        (folder / "settings.yaml").write_text(yaml.safe_dump(common) + declared)
        scanned_clusters = ScannedClusters(folder, server.url, refused.stderr)
        done = scanned_clusters.run("scan", "--all-clusters", "-o", "json")
        assert done.returncode == 0, done.stderr
        assert {row["cluster"] for row in json.loads(done.stdout)} == {"lab", "prod"}
        yield scanned_clusters


def test_two_clusters_that_nobody_told_apart_are_refused_with_the_settings_that_do(clusters: ScannedClusters) -> None:
    assert "holds 2 clusters, by the label cluster: lab, prod" in clusters.refusal
    declared = yaml.safe_load((clusters.folder / "settings.yaml").read_text())["clusters"]
    assert {name: own["profiler"]["prometheus"]["labels"] for name, own in declared.items()} == {
        "lab": {"cluster": "lab"},
        "prod": {"cluster": "prod"},
    }


def test_a_second_cluster_is_not_added_to_the_history_of_the_first(clusters: ScannedClusters) -> None:
    store = (clusters.folder / "undeclared").as_uri()

    def scanned(*arguments: str) -> subprocess.CompletedProcess[str]:
        return clusters.run("scan", "-o", "json", "--store", store, *arguments, settings="plain.yaml")

    first = scanned("--prometheus-label", "cluster=lab")
    assert first.returncode == 0, first.stderr
    second = scanned("--prometheus-label", "cluster=prod")
    assert (second.returncode, second.stdout) == (1, "")
    # 1,700,000,000 s are 22:13:20 of 14 November 2023; the seeds are 3 and 11
    assert "another cluster than the history stored as default" in second.stderr
    assert "created at 2023-11-14 22:13:31 UTC, that of the history at 2023-11-14 22:13:23 UTC" in second.stderr
    assert json.loads(scanned("--offline").stdout) == json.loads(first.stdout)
    prod_scan = scanned("--prometheus-label", "cluster=prod", "--cluster", "prod")
    assert prod_scan.returncode == 0, prod_scan.stderr
    rows = clusters.rows("status", "--all-clusters", "--store", store)
    assert [row["cluster"] for row in rows] == ["default", "prod"]


def test_rows_of_all_clusters_are_those_of_each_with_its_name_in_front(clusters: ScannedClusters) -> None:
    every = clusters.rows("recs", "list", "--all-clusters")
    assert next(iter(every[0])) == "cluster"
    for name in SEEDS:
        alone = clusters.rows("recs", "list", "--cluster", name)
        assert "cluster" not in alone[0]
        assert [{k: v for k, v in row.items() if k != "cluster"} for row in every if row["cluster"] == name] == alone


@pytest.mark.parametrize("arguments", [("get", "pods"), ("get", "reclaimable"), ("get", "forecast")])
def test_tables_show_all_clusters_on_demand_and_else_ask_for_a_name(
    clusters: ScannedClusters, arguments: tuple[str, ...]
) -> None:
    assert {row["cluster"] for row in clusters.rows(*arguments, "--all-clusters")} == set(SEEDS)
    unnamed = clusters.run(*arguments)
    assert unnamed.returncode == 2
    assert "several clusters: lab, prod" in unnamed.stderr
    unknown = clusters.run(*arguments, "--cluster", "prd")
    assert unknown.returncode == 1
    assert "holds no cluster 'prd'" in unknown.stderr
    assert "Name one of lab, prod" in unknown.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        *(("get", table) for table in ("pods", "reclaimable", "forecast", "findings", "replicas")),
        ("recs", "list"),
        ("status",),
        ("scan", "--offline", "-q"),
    ],
)
def test_a_declared_cluster_that_was_never_scanned_is_named_beside_the_rows_of_the_others(
    clusters: ScannedClusters, arguments: tuple[str, ...]
) -> None:
    declared = (clusters.folder / "settings.yaml").read_text()
    (clusters.folder / "never.yaml").write_text(f"{declared}  never: {{}}\n")
    note = "note: cluster never is left out: the store has no history of this cluster"
    assert note in clusters.run(*arguments, "--all-clusters", settings="never.yaml").stderr.splitlines()
    assert note not in clusters.run(*arguments, "--all-clusters").stderr
    assert note not in clusters.run(*arguments, "--cluster", "lab", settings="never.yaml").stderr


def test_a_filter_takes_the_column_cluster_and_csv_has_it_first(clusters: ScannedClusters) -> None:
    rows = clusters.rows("get", "pods", "--all-clusters", "--filter", "cluster=prod")
    assert rows == [r for r in clusters.rows("get", "pods", "--all-clusters") if r["cluster"] == "prod"]
    header = clusters.run("get", "pods", "--all-clusters", "-o", "csv").stdout.splitlines()[0]
    assert header.startswith("cluster,")


def test_a_workload_is_explained_in_every_cluster_that_has_it(clusters: ScannedClusters) -> None:
    row = clusters.rows("recs", "list", "--cluster", "prod")[0]
    address = f"{row['namespace']}/{row['kind']}/{row['workload']}"
    explained = clusters.rows("explain", address, "--all-clusters")
    assert "prod" in {explanation["cluster"] for explanation in explained}
    assert "cluster prod\n" in clusters.run("explain", address, "--all-clusters").stdout


def test_a_cluster_whose_server_is_away_makes_the_scan_partial_and_costs_no_other(clusters: ScannedClusters) -> None:
    text = (clusters.folder / "settings.yaml").read_text()
    away = f"  away: {{profiler: {{prometheus: {{url: 'http://127.0.0.1:{free_port()}'}}}}}}\n"
    (clusters.folder / "three.yaml").write_text(text + away)
    done = clusters.run(
        "scan", "--all-clusters", "-o", "json", "--set", "profiler.prometheus.outage_seconds=0", settings="three.yaml"
    )
    assert done.returncode == 4, done.stderr
    assert "partial: 1 of 3 clusters could not be scanned: away" in done.stderr
    assert {row["cluster"] for row in json.loads(done.stdout)} == set(SEEDS)


def test_files_of_all_clusters_go_to_a_folder_each_and_patches_to_none(clusters: ScannedClusters) -> None:
    out = clusters.folder / "out"
    done = clusters.run("scan", "--offline", "--all-clusters", "-o", "html", "--output-dir", str(out))
    assert done.returncode == 0, done.stderr
    assert sorted(path.relative_to(out).as_posix() for path in out.rglob("*.html")) == [
        "lab/report.html",
        "prod/report.html",
    ]
    assert "-o patch writes commands for a" in clusters.run("scan", "--all-clusters", "-o", "patch").stderr


def test_each_clusters_summary_goes_to_its_own_receiver(clusters: ScannedClusters) -> None:
    settings = yaml.safe_load((clusters.folder / "settings.yaml").read_text())
    receiver = Receiver({f"/{name}": status(200) for name in SEEDS})
    for name in SEEDS:
        file = clusters.folder / f"{name}-receiver"
        file.write_text(receiver.url(f"/{name}"))
        notify = {"url_file": str(file), "format": "json", "minimum_severity": "good"}
        settings["clusters"][name]["notify"] = notify
    (clusters.folder / "notify.yaml").write_text(yaml.safe_dump(settings))
    try:
        done = clusters.run("scan", "--offline", "--all-clusters", "-o", "json", settings="notify.yaml")
    finally:
        receiver.server.shutdown()
        receiver.server.server_close()
    assert done.returncode == 0, done.stderr
    assert {path: json.loads(body)["cluster"] for path, body, _ in receiver.got} == {"/lab": "lab", "/prod": "prod"}


def test_the_ledger_of_one_of_several_clusters_is_read_by_its_name(clusters: ScannedClusters) -> None:
    for arguments in (("recs", "changes"), ("audit", "export")):
        unnamed = clusters.run(*arguments)
        assert (unnamed.returncode, "several clusters: lab, prod" in unnamed.stderr) == (2, True)
        assert clusters.rows(*arguments, "--cluster", "prod") == []
    ledgers = clusters.folder / ".local" / "state" / "cotenant"
    assert [path.name for path in sorted(ledgers.glob("ledger*.db"))] == ["ledger-prod.db"]


def test_a_node_is_asked_of_no_other_cluster_than_the_named_one(clusters: ScannedClusters) -> None:
    for arguments in (("explain", "node", "n1", "--from-cluster"), ("explain", "node-slo", "n1")):
        process = clusters.run(*arguments, "--cluster", "prod")
        assert (process.returncode, "name no context for cluster prod" in process.stderr) == (2, True)


def test_acts_need_one_cluster_and_a_context_that_is_known_to_be_its_own(clusters: ScannedClusters) -> None:
    unnamed = clusters.run("recs", "rollback", "1")
    assert (unnamed.returncode, "several clusters: lab, prod" in unnamed.stderr) == (2, True)
    nameless = clusters.run("recs", "rollback", "1", "--cluster", "prod")
    assert (nameless.returncode, "name no context for cluster prod" in nameless.stderr) == (2, True)
    assert "clusters.prod.kube.context" in nameless.stderr
    undeclared = clusters.run("recs", "rollback", "1", "--cluster", "prd")
    assert "the settings declare no cluster 'prd'" in undeclared.stderr
