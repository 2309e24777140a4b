"""What all tests share: property tests are judged by their answers, not by the clock of a busy machine.

In continuous integration the examples are the same on every run, so that a change is judged by what it changed; on a
developer's machine they are new each time and go on searching. A test that stands on real servers, cgroups or a browser
may fail for what the machine did: it is run again, twice at most, and the summary lists it, so that it can be mended.
"""

from __future__ import annotations

import os

import pytest
from _pytest.nodeid import coerce_node_id
from hypothesis import settings

pytest_plugins = ["tests.cluster.fixtures", "tests.node.fixtures"]

settings.register_profile("busy-machine", deadline=None)
settings.register_profile("continuous-integration", deadline=None, derandomize=True)
settings.load_profile("continuous-integration" if os.environ.get("CI") else "busy-machine")

REAL_MARKERS = ("slow", "browser", "prometheus", "cluster")
REAL_FOLDERS = ("enforcer", "node", "scheduler_ext")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests on real servers two more looks, and let xdist's groups work.

    pytest-xdist 3.8 appends groups to `_nodeid`, which pytest 9.2 no longer reads.
    """
    for item in items:
        if item.path.parent.name in REAL_FOLDERS or any(item.get_closest_marker(m) for m in REAL_MARKERS):
            item.add_marker(pytest.mark.flaky(reruns=2))
        grouped = item.__dict__.get("_nodeid", "")
        if "@" in grouped and item.nodeid != grouped:
            item._id = coerce_node_id(grouped)
