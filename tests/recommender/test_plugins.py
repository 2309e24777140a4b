"""A strategy of somebody's own: the documented example, installed as a package, and others that misbehave."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cotenant.base.progress import Silent
from cotenant.base.resource import MIB
from cotenant.base.store import Store
from cotenant_lab.simulation.demo import CLUSTER, fill
from cotenant_lab.synthetic import SyntheticSpec
from tests.support.command_line import LEAN, cotenant

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "strategy-plugin"
COTENANT = str(Path(sys.executable).with_name("cotenant"))

STUMBLING = """
from cotenant_example_strategy import ExampleMax

class Stumbling(ExampleMax):
    name = "stumbling"

    def recommend(self, evidence, settings):
        if any(c.workload.name.startswith("a") for c in evidence.containers):
            raise RuntimeError("names with an a are too much")
        return super().recommend(evidence, settings)

class Shuffling(ExampleMax):
    name = "shuffling"

    def recommend(self, evidence, settings):
        return super().recommend(evidence, settings)[::-1]
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    store = Store(tmp_path_factory.mktemp("store").as_uri(), CLUSTER)
    fill(store, SyntheticSpec(nodes=4, workloads=30, days=3, seed=9), Silent())
    return store.url


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example installed by pip (offline), and a distribution of strategies that misbehave."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(EXAMPLE, folder / "source")  # building leaves files beside the source
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet"]
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        *options,
        "--target",
        str(folder / "site"),
        str(folder / "source"),
    ]
    done = subprocess.run(install, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    (folder / "site" / "bad_strategies.py").write_text(STUMBLING)
    metadata = folder / "site" / "bad_strategies-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: bad-strategies\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(
        "[cotenant.strategies]\nstumbling = bad_strategies:Stumbling\nshuffling = bad_strategies:Shuffling\n"
        "broken = no_such_module:X\nvpa = bad_strategies:Stumbling\n"
    )
    return folder / "site"


def scan(url: str, site: Path | None, strategy: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A scan in this process, which finds the plug-ins of `site` as an interpreter does that has it in its path."""
    with pytest.MonkeyPatch.context() as patch:
        if site:
            patch.syspath_prepend(site)
        return cotenant("scan", "--offline", "--store", url, "--strategy", strategy, *arguments, variables=LEAN)


@cache
def rows(url: str, site: Path, strategy: str) -> list[dict[str, Any]]:
    done = scan(url, site, strategy, "-q", "-o", "json")
    assert done.returncode == 0, done.stderr
    table_rows: list[dict[str, Any]] = json.loads(done.stdout)
    return table_rows


def test_the_documented_example_recommends_the_highest_seen_and_a_fifth_more(url: str, site: Path) -> None:
    command = [COTENANT, "scan", "--offline", "--store", url, "--strategy", "example-max", "-q", "-o", "json"]
    environment = {**os.environ, **LEAN, "PYTHONPATH": str(site)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    proposed = [r for r in document if r["memory_action"] == "set"]
    assert len(proposed) > 20
    for row in proposed:
        assert row["strategy"] == "example-max"
        # rounded up to whole MiB: at least 1.2 x the highest, and less than one MiB above
        assert 0 <= row["memory_request"] - 1.2 * row["memory_observed_max"] < MIB + 1
    assert all(r["memory_reason"] == "no-data" for r in document if r["memory_action"] == "withheld")


def test_its_values_explain_themselves_and_become_patches(url: str, site: Path) -> None:
    patches = scan(url, site, "example-max", "-q", "-o", "patch")
    row = next(r for r in rows(url, site, "example-max") if r["kind"] == "Deployment" and r["memory_action"] == "set")
    name = f"{row['namespace']}/{row['kind']}/{row['workload']}"
    done = cotenant("explain", name, "--store", url)
    assert done.returncode == 0, done.stderr
    assert "strategy example-max" in done.stdout
    assert "formula: highest ever seen x 1.2" in done.stdout
    assert "kubectl patch" in patches.stdout


def test_one_workload_that_a_plug_in_stumbles_over_costs_the_others_nothing(url: str, site: Path) -> None:
    good = {key(r): r for r in rows(url, site, "example-max")}
    done = scan(url, site, "stumbling", "-q", "-o", "json")
    assert done.returncode == 0, done.stderr
    by_container = {key(r): r for r in json.loads(done.stdout)}
    bad = {k for k in by_container if k[2].startswith("a")}
    assert bad and set(by_container) == set(good)
    for k, row in by_container.items():
        if k in bad:
            assert (row["cpu_reason"], row["memory_reason"], row["cpu_request"]) == ("failed", "failed", None)
        else:
            assert row["memory_request"] == good[k]["memory_request"]
    assert "names with an a are too much" in done.stderr


@pytest.mark.soak
def test_answers_for_other_containers_than_asked_are_not_taken(url: str, site: Path) -> None:
    good = {key(r): r for r in rows(url, site, "example-max")}
    by_container = {key(r): r for r in rows(url, site, "shuffling")}
    # one container at a time cannot be shuffled: every value is its own again
    assert {k: r["memory_request"] for k, r in by_container.items()} == {
        k: r["memory_request"] for k, r in good.items()
    }


def test_a_plug_in_that_does_not_load_or_is_unknown_ends_the_scan_before_it_reads_any_history(
    site: Path, tmp_path: Path
) -> None:
    url = tmp_path.as_uri()  # no history: a scan that looked for some would say so
    broken = scan(url, site, "broken")
    assert (broken.returncode, broken.stdout) == (1, "")
    assert "strategy broken (no_such_module:X) cannot be loaded" in broken.stderr
    unknown = scan(url, site, "example-mix")
    assert unknown.returncode == 2
    assert "Did you mean example-max?" in unknown.stderr
    assert "no strategy is named 'example-max'" in scan(url, None, "example-max").stderr


@pytest.mark.soak
def test_a_built_in_name_cannot_be_taken(url: str, site: Path) -> None:
    assert {r["cpu_reason"] for r in rows(url, site, "vpa")} != {"failed"}
    assert "names with an a" not in scan(url, site, "vpa", "-q").stderr


def key(row: dict[str, Any]) -> tuple[str, ...]:
    return row["namespace"], row["kind"], row["workload"], row["container"]
