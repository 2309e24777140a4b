"""Best effort on real cgroup v2, in a guest; see test_cgroup_v2. One boot for all tests of guest/best_effort_v2.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.enforcer.test_cgroup_v2 import booted

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.xdist_group("guest")]


def test_best_effort_gives_way_on_cgroup_v2() -> None:
    text = booted(Path(__file__).parent / "guest" / "best_effort_v2.py")
    passed = re.findall(r"^PASSED .*best_effort_v2.*::(\w+)", text, re.MULTILINE)
    assert "guest-rc=0" in text, text
    assert len(set(passed)) == 3, text
