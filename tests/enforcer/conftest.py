"""Fixtures of the node agent's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.enforcer.one_pod_node import Node, make_node
from tests.enforcer.own_cgroups import Subtree, why_not


@pytest.fixture
def subtree() -> Iterator[Subtree]:
    """An own subtree of the machine's cgroup v1 hierarchies."""
    if reason := why_not():
        pytest.skip(f"REAL CGROUPS NOT TESTED: {reason}")
    own_subtree = Subtree()
    yield own_subtree
    own_subtree.close()


@pytest.fixture
def node(subtree: Subtree, tmp_path: Path) -> Node:
    """The subtree as a node with one best-effort pod."""
    return make_node(subtree, tmp_path)
