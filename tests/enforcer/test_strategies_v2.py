"""Strategies on real cgroup v2, in a guest; see test_cgroup_v2. One boot for all tests of guest/strategies_v2.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.enforcer.test_cgroup_v2 import booted, named, passed

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.xdist_group("guest")]


def test_strategies_hold_on_cgroup_v2() -> None:
    told = booted(Path(__file__).parent / "guest" / "strategies_v2.py")
    passed = re.findall(r"^PASSED .*::(\w+)", told, re.MULTILINE)
    assert "guest-rc=0" in told, told
    assert len(set(passed)) == 7, told


def test_strategies_keep_within_a_kubelets_memory_qos_on_cgroup_v2() -> None:
    told = booted(tests := Path(__file__).parent / "guest" / "memory_qos_v2.py")
    assert "guest-rc=0" in told, told
    assert {name.partition("[")[0] for name in passed(told)} == named(tests), told
