"""What all tests share: property tests are judged by their answers, not by the clock of a busy machine.

In continuous integration the examples are the same on every run, so that a change is judged by what it changed; on a
developer's machine they are new each time, twice as many, and go on searching. A test that talks to a server, a
browser, a container runtime or the kernel may fail for what the machine did: it is run again, and its first failure is
printed at the end whatever became of it. A test of pure logic is never run again.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from _pytest.nodeid import coerce_node_id
from hypothesis import settings

from tests.cluster.groups import BARE_CLUSTER, CLUSTER, SHARED_GROUPS, shared_group
from tests.support.templates import ROOT_VARIABLE

pytest_plugins = ["tests.cluster.fixtures", "tests.node.fixtures", "tests.images.fixtures"]

# As every command does (`cotenant.cli.main.run`); workers and processes of tests inherit it.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

settings.register_profile("busy-machine", deadline=None)
settings.register_profile("continuous-integration", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("continuous-integration" if os.environ.get("CI") else "busy-machine")

SERVER_MARKERS = ("server", "browser", "prometheus", "cluster")
"""Marks of tests that talk to something outside of their process."""
LONG_GROUPS = (
    *SHARED_GROUPS,
    "browser",
    BARE_CLUSTER,
    "guest",
    "containerd",
    "agent-cluster",
    "syntax-trees",
)
"""Groups of `xdist_group` that take minutes, the longest first."""


@pytest.fixture(autouse=True)
def _forget_unreadable_objects() -> None:
    """What a process notes of objects that no list of it could decode is another test's."""
    client = sys.modules.get("cotenant.base.kube.client")
    if client is not None:
        client._unread.clear()


class PlainCheckout:
    """Takes the checkout for a plain folder: its `__init__.py` is for who imports it by mistake."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collect_directory(self, path: Path, parent: pytest.Collector) -> pytest.Dir | None:
        return pytest.Dir.from_parent(parent, path=path) if path == parent.config.rootpath else None


def pytest_configure(config: pytest.Config) -> None:
    """Make the folder of this run's templates, in the process that starts the workers; keep our order of the groups.

    pytest-xdist would start with the groups of the most tests, and those that take a minute each have few. Imports and
    tests stay until the end: looking for garbage among them took two fifths of each worker's collection.
    """
    gc.disable()
    config.pluginmanager.register(PlainCheckout())  # a conftest is not asked about a folder above its own
    config.option.loadscopereorder = False
    _begin_elsewhere(config)
    if not hasattr(config, "workerinput") and ROOT_VARIABLE not in os.environ:
        os.environ[ROOT_VARIABLE] = tempfile.mkdtemp(prefix="cotenant-templates-")
        config.add_cleanup(lambda: shutil.rmtree(os.environ.pop(ROOT_VARIABLE), ignore_errors=True))


def _begin_elsewhere(config: pytest.Config) -> None:
    """Let each worker of a whole run collect from another folder on.

    In a new clone nothing is compiled: workers that go through the same files side by side each compile all of them,
    those that begin elsewhere find most of them compiled. `pytest_collection_modifyitems` restores the one order.
    """
    worker = getattr(config, "workerinput", None)
    if worker is None or config.args != config.getini("testpaths"):
        return
    folders = sorted(str(path) for path in (config.rootpath / "tests").iterdir() if any(path.glob("**/test_*.py")))
    first = len(folders) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"] % len(folders)
    config.args = folders[first:] + folders[:first]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Rerun tests that talk to servers; keep the tests of one file in one worker, where they share its fixtures.

    pytest-xdist 3.8 appends groups to `_nodeid`, which pytest 9.2 no longer reads. It hands out groups in the order of
    their first tests (see `pytest_configure`): what takes minutes comes first, what takes milliseconds last, so that
    no worker is left alone with a long group at the end.
    """
    grouped = getattr(config.option, "loadgroup", False)
    again = config.getoption("reruns", None) != 0  # `--reruns 0`: a developer wants to see the first failure at once
    for item in items:
        if again and any(item.get_closest_marker(name) for name in SERVER_MARKERS):
            item.add_marker(pytest.mark.flaky(reruns=2))
        if grouped:
            item._id = coerce_node_id(f"{item.nodeid}@{_group(item)}")
    items.sort(key=lambda item: (_rank(item) if grouped else 0, item.path.relative_to(config.rootpath).parts[1]))


def pytest_collection_finish() -> None:
    """Collect garbage again from here on, but never look through what was imported and collected."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """Let the interpreter's end take everything apart: DuckDB's binding lists what stays frozen as leaked."""
    gc.unfreeze()


def _rank(item: pytest.Item) -> int:
    """Place of a test's group in the run: the groups of several files, then tests of seconds, then all others."""
    group = _group(item)
    if group in LONG_GROUPS:
        return LONG_GROUPS.index(group)
    takes_seconds = any(item.get_closest_marker(name) for name in ("slow", *SERVER_MARKERS))
    return len(LONG_GROUPS) + (not takes_seconds)


def _group(item: pytest.Item) -> str:
    """The one worker's work that this test belongs to: its server's, where it shares one, else its file's."""
    path = item.path.relative_to(item.config.rootpath)
    groups = [mark.args[0] for mark in item.iter_markers("xdist_group")]
    if CLUSTER in groups:
        return shared_group(path.parts[1])
    return groups[0] if groups else str(path)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print why a test was run again, also when it then passed: a rerun must not hide a defect."""
    reports = terminalreporter.stats.get("rerun", [])
    if reports:
        terminalreporter.section("first failures of what was run again")
    for report in reports:
        terminalreporter.write_sep("-", report.nodeid)
        terminalreporter.write_line(report.longreprtext)
