"""Fixtures of the node agent's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.enforcer.own_cgroups import Subtree, why_not


@pytest.fixture
def subtree() -> Iterator[Subtree]:
    """An own subtree of the machine's cgroup v1 hierarchies."""
    if reason := why_not():
        pytest.skip(f"REAL CGROUPS NOT TESTED: {reason}")
    made = Subtree()
    yield made
    made.close()
