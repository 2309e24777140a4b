"""Strategies on real cgroup v2, in a guest; see test_cgroup_v2. One boot for all tests of guest/strategies_v2.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.enforcer.test_cgroup_v2 import booted, names_of_tests, passed

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.xdist_group("guest")]


def test_strategies_hold_on_cgroup_v2() -> None:
    text = booted(Path(__file__).parent / "guest" / "strategies_v2.py")
    passed = re.findall(r"^PASSED .*::(\w+)", text, re.MULTILINE)
    assert "guest-rc=0" in text, text
    assert len(set(passed)) == 7, text


def test_strategies_keep_within_a_kubelets_memory_qos_on_cgroup_v2() -> None:
    text = booted(tests := Path(__file__).parent / "guest" / "memory_qos_v2.py")
    assert "guest-rc=0" in text, text
    assert {name.partition("[")[0] for name in passed(text)} == names_of_tests(tests), text
