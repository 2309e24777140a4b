"""What runs where a part of the extras is installed: each use that the documents name, and no command without words."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cotenant.base.commands.extras import BESIDE_ALL, PACKAGES
from tests.support.dashboard import WEEK, results
from tests.support.partial_install import declared

ROOT = Path(__file__).parents[2]
OF_NO_USER = {"all", "test", "docs", "build"}
"""Extras that name others, or that only this repository needs."""

PRODUCT = "cli,scan,analytics,cluster,webhook,extender,dashboard"
"""All that an installation for a cluster has."""

LOAD_ALL = """
import importlib
from cotenant.base.commands.extras import in_words
from cotenant.cli.registry import COMMANDS, GET

def modules(entries):
    for entry in entries:
        yield from modules(entry.children) if entry.children else (entry.module,)

for name in sorted({*modules(COMMANDS), *modules(GET)} - {''}):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        assert in_words(error) is not None, f"{name} needs {error.name}, and nobody says how to install it"
print("loaded")
"""
LOAD_PACKAGE = """
import importlib, pkgutil
package = importlib.import_module({package!r})
for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    if ".commands" not in found.name:
        importlib.import_module(found.name)
"""
PROCESSES = {
    "": "cotenant.enforcer.decide",
    "node,cluster": "cotenant.enforcer",
    "extender,cluster": "cotenant.scheduler_ext.extender",
    "webhook,cluster": "cotenant.admission",
    "scan,cluster": "cotenant.profiler",
    "scan,analytics": "cotenant.pipeline",
}
"""Extras of a process, and the package whose modules it may import, but for those of its commands."""


def run(extras: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.support.partial_install", extras, *arguments]
    return subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("extras", ["cli", "cli,scan", "cli,cluster"])
def test_a_command_that_lacks_a_package_names_the_extra_that_brings_it(extras: str) -> None:
    done = run(extras, "-c", LOAD_ALL)
    assert (done.stdout, done.returncode) == ("loaded\n", 0), done.stderr


@pytest.mark.parametrize(
    "arguments",
    [["demo"], ["demo", "help"], ["simulate", "--help"], ["backtest", "--pods-per-node", "20"]],
    ids=" ".join,
)
def test_a_command_of_the_lab_says_in_a_line_how_to_get_it(arguments: list[str]) -> None:
    done = run(PRODUCT, *arguments)
    assert (done.stdout, done.returncode) == ("", 1)
    assert done.stderr == 'error: the package cotenant-lab is not installed\nfix: Run pip install "cotenant[demo]".\n'


@pytest.mark.parametrize(("extras", "package"), PROCESSES.items())
def test_all_that_a_process_imports_comes_with_its_extras(extras: str, package: str) -> None:
    assert run(extras, "-c", LOAD_PACKAGE.format(package=package)).stderr == ""


def test_the_examples_of_python_run_with_the_extra_that_their_page_names() -> None:
    page = (ROOT / "docs/python-api.md").read_text()
    (extras,) = re.findall(r"pip install cotenant\[([\w,]+)\]", page)
    own = next(block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "date_range" in block)
    done = run(extras, "-c", own)
    assert done.returncode == 0, done.stderr
    assert "cpu_usage_cores" in done.stdout  # the example's refused column


def test_the_stored_history_is_analysed_without_packages_of_a_cluster(tmp_path: Path) -> None:
    url = results(tmp_path, spec=WEEK).store.url
    done = run("cli,scan,analytics", "scan", "--offline", "--quiet", "--store", url, "-o", "csv")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) > 40


def test_every_declared_package_is_known_by_the_extra_that_brings_it_first() -> None:
    # every package of an extra that none of those before it brought
    packages_of = {extra: set(names) for extra, names in PACKAGES.items()}
    texts: set[str] = set()
    for extra in ("base", *(e for e in PACKAGES if e != "base")):
        of_extra = {re.split(r"[\[<>=~!;]", line)[0].strip() for line in declared("" if extra == "base" else extra)}
        assert packages_of[extra] == of_extra - texts, extra
        texts |= of_extra


def test_the_extra_of_all_brings_every_one_but_those_seldom_needed() -> None:
    (line,) = declared("all")
    brought = set(re.fullmatch(r"cotenant\[([\w,]+)\]", line)[1].split(","))  # type: ignore[index]
    assert brought >= PACKAGES.keys() - BESIDE_ALL - {"base"}
    assert not brought & (BESIDE_ALL | OF_NO_USER)
