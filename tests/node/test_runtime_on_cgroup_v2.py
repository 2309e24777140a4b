"""The runtime hooks on real cgroup v2, in the guest of `tests/enforcer/test_cgroup_v2`: one boot."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cluster import binaries
from tests.enforcer.test_cgroup_v2 import UML, WHY_NOT, booted, named, passed
from tests.node.containerd import impossible

pytestmark = pytest.mark.server


@pytest.mark.slow
@pytest.mark.xdist_group("guest")
@pytest.mark.skipif(UML is None, reason=WHY_NOT)
def test_the_hooks_hold_on_cgroup_v2() -> None:
    if reason := impossible(with_nri=True):
        pytest.skip(f"NO CONTAINERS HERE: {reason}")
    if os.environ.get("CI"):
        binaries.ensure(binaries.CONTAINERD)
    elif not binaries.installed(binaries.CONTAINERD):
        pytest.skip("containerd 2.4 is not built: python -m tests.cluster.binaries " + " ".join(binaries.CONTAINERD))
    tests = Path(__file__).parent / "guest" / "runtime_v2.py"
    told = booted(tests, f"KUBEBUILDER_ASSETS={binaries.find('containerd').parent}")
    assert "guest-rc=0" in told, told
    assert passed(told) == named(tests), told
