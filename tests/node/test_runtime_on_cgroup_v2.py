"""The runtime hooks on real cgroup v2, in the guest of `tests/enforcer/test_cgroup_v2`: one boot."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cluster import binaries
from tests.enforcer.test_cgroup_v2 import booted, emulated, names_of_tests, passed
from tests.node.containerd import impossible

pytestmark = [pytest.mark.cluster, pytest.mark.server]
GUEST = Path(__file__).parent / "guest"


@pytest.fixture
def containerd_programs() -> str:
    """Where the guest finds the built containerd, as a variable."""
    if reason := impossible(with_nri=True):
        pytest.skip(f"NO CONTAINERS HERE: {reason}")
    if os.environ.get("CI"):
        binaries.ensure(binaries.CONTAINERD)
    elif not binaries.installed(binaries.CONTAINERD):
        pytest.skip("containerd 2.4 is not built: python -m tests.cluster.binaries " + " ".join(binaries.CONTAINERD))
    return f"KUBEBUILDER_ASSETS={binaries.find('containerd').parent}"


@pytest.mark.soak
@pytest.mark.xdist_group("guest")
def test_the_hooks_hold_on_cgroup_v2(containerd_programs: str) -> None:
    tests = GUEST / "runtime_v2.py"
    text = booted(tests, containerd_programs)
    assert "guest-rc=0" in text, text
    assert passed(text) == names_of_tests(tests), text


@pytest.mark.soak
@pytest.mark.xdist_group("guest")
def test_a_pods_own_cpu_holds_on_cgroup_v2_from_its_first_instruction(containerd_programs: str, tmp_path: Path) -> None:
    tests = GUEST / "cpuset_runtime_v2.py"
    text = emulated(tests, tmp_path, containerd_programs)
    assert "guest-rc=0" in text, text
    assert passed(text) == names_of_tests(tests), text
