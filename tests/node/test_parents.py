"""What a decision becomes below cgroups that allow less, on files as the kernel shows them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.enforcer.contract import NO_LIMIT
from cotenant.enforcer.decide.container_resources import ContainerSettings
from cotenant.enforcer.runtime.parents import Parents, chain

POD = "/kubepods/besteffort/pod1"
HALF_A_CORE = ContainerSettings(cpu_shares=512, cpu_quota=50_000)


def tree(root: Path, **quotas: int) -> Parents:
    """quotas: of kubepods, besteffort and pod1 by name; period 100 ms, CPUs 0-3."""
    folder = {c: root / c for c in ("cpu", "cpuset")}
    for name in ("kubepods", "besteffort", "pod1"):
        folder = {c: path / name for c, path in folder.items()}
        for path in folder.values():
            path.mkdir(parents=True)
        (folder["cpu"] / "cpu.cfs_quota_us").write_text(f"{quotas.get(name, -1)}\n")
        (folder["cpu"] / "cpu.cfs_period_us").write_text("100000\n")
        (folder["cpuset"] / "cpuset.cpus").write_text("0-3\n")
    return Parents(root)


@pytest.mark.parametrize(
    ("quotas", "expected"),
    [
        ({}, 50_000),
        ({"besteffort": 50_000}, 50_000),
        ({"besteffort": 49_999}, NO_LIMIT),
        ({"kubepods": 20_000, "besteffort": -1}, NO_LIMIT),
        ({"pod1": 60_000}, 50_000),
    ],
)
def test_a_quota_stays_when_every_ancestor_allows_it(tmp_path: Path, quotas: dict[str, int], expected: int) -> None:
    fitted = tree(tmp_path, **quotas).fitted(HALF_A_CORE, POD)
    assert (fitted.cpu_shares, fitted.cpu_quota) == (512, expected)


def test_an_ancestors_quota_is_compared_by_its_own_period(tmp_path: Path) -> None:
    """12,000 us of 20 ms are 0.6 cores: more than half a core, though the number is smaller."""
    parents = tree(tmp_path, besteffort=12_000)
    (tmp_path / "cpu/kubepods/besteffort/cpu.cfs_period_us").write_text("20000")
    assert parents.fitted(HALF_A_CORE, POD).cpu_quota == 50_000


@pytest.mark.parametrize(("cpus", "expected"), [("0-1", "0-1"), ("3-4", None)])
def test_cpus_that_the_parent_has_not_are_left_out(tmp_path: Path, cpus: str, expected: str | None) -> None:
    fitted = tree(tmp_path).fitted(ContainerSettings(cpuset_cpus=cpus, cpu_quota=NO_LIMIT), POD)
    assert (fitted.cpuset_cpus, fitted.cpu_quota) == (expected, NO_LIMIT)


@pytest.mark.parametrize("parent", ["", "/elsewhere/pod2", "../../etc"])
def test_what_cannot_be_checked_is_left_to_the_kubelet(tmp_path: Path, parent: str) -> None:
    decided = ContainerSettings(cpu_shares=512, cpu_quota=50_000, cpuset_cpus="0")
    assert tree(tmp_path).fitted(decided, parent) == ContainerSettings(cpu_shares=512)


def test_cgroup_v2_has_no_such_rule(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory")
    assert Parents(tmp_path).fitted(HALF_A_CORE, POD) == HALF_A_CORE


def test_systemds_names_are_paths_too() -> None:
    assert list(chain("kubepods-besteffort-pod1.slice")) == [
        "kubepods.slice",
        "kubepods.slice/kubepods-besteffort.slice",
        "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice",
    ]


@given(st.text(max_size=40))
def test_no_path_leads_out_of_the_root(text: str) -> None:
    parts = [part for path in chain(text) for part in path.split("/")]
    assert not {"", ".", ".."} & set(parts)


LIMITED = ContainerSettings(memory_limit=64 << 20)


def container_on(root: Path, version: int, name: str, used: int, cache: int, limit: str) -> Parents:
    """A tree of one container with so many bytes in use, `cache` of them page cache that is not needed."""
    base = root / "memory" if version == 1 else root
    folder = base / POD.strip("/") / name
    folder.mkdir(parents=True)
    usage, most = ("usage_in_bytes", "limit_in_bytes") if version == 1 else ("current", "max")
    (folder / f"memory.{usage}").write_text(f"{used}\n")
    (folder / f"memory.{most}").write_text(f"{limit}\n")
    (folder / "memory.stat").write_text(f"{'total_' if version == 1 else ''}inactive_file {cache}\n")
    if version == 2:
        (root / "cgroup.controllers").write_text("cpu memory\n")
    return Parents(root)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", ["c1", "cri-containerd-c1.scope", "crio-c1.scope"])
def test_a_memory_limit_is_not_set_below_what_a_container_uses(tmp_path: Path, version: int, name: str) -> None:
    no_limit = "max" if version == 2 else str(2**63 - 4096)
    parents = container_on(tmp_path, version, name, used=200 << 20, cache=0, limit=no_limit)
    # 105 % of 200 MiB are 210 MiB
    assert parents.fitted(LIMITED, POD, "c1").memory_limit == 210 << 20
    assert parents.fitted(LIMITED, POD).memory_limit == 64 << 20, "a new container uses nothing yet"


@pytest.mark.parametrize(
    ("used", "limit", "expected"),
    [(10 << 20, "max", 64 << 20), (200 << 20, str(100 << 20), 100 << 20), (200 << 20, str(32 << 20), 64 << 20)],
    ids=["it fits", "what stands is below use", "a raise"],
)
def test_a_memory_limit_that_takes_nothing_away_is_set(tmp_path: Path, used: int, limit: str, expected: int) -> None:
    parents = container_on(tmp_path, 2, "c1", used, 0, limit)
    assert parents.fitted(LIMITED, POD, "c1").memory_limit == expected


@pytest.mark.parametrize("container_id", ["other", "../c1"])
def test_a_memory_limit_stays_where_the_use_is_not_known(tmp_path: Path, container_id: str) -> None:
    parents = container_on(tmp_path, 2, "c1", 200 << 20, 0, "max")
    assert parents.fitted(LIMITED, POD, container_id).memory_limit is None
