"""Where cgroups are: naming of both drivers and runtimes, and that nothing outside is ever named."""

from __future__ import annotations

import random
import string
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.errors import UsageError
from cotenant.enforcer.contract import Knob, KubeQos, Level
from cotenant.enforcer.model.node_policy import CgroupPath, HostApplication
from cotenant.enforcer.observe.cgroupfs import Hierarchy, Unavailable
from cotenant.enforcer.observe.layout import (
    Driver,
    Layout,
    Runtime,
    checked_container_id,
    checked_path,
    checked_uid,
    detect,
    host_application_path,
    level_of,
)

UID = "3b1c1c1e-7d4e-4a52-9f8a-000000000001"
SYSTEMD_UID = UID.replace("-", "_")
ID = "ab" * 32
LAYOUTS = [Layout(d, r, base) for d in Driver for r in Runtime for base in ((), ("kubelet",), ("a-b", "c"))]


@pytest.mark.parametrize(
    ("layout", "qos", "expected"),
    [
        (Layout(), KubeQos.GUARANTEED, f"kubepods/pod{UID}/{ID}"),
        (Layout(), KubeQos.BEST_EFFORT, f"kubepods/besteffort/pod{UID}/{ID}"),
        (Layout(runtime=Runtime.CRIO), KubeQos.BURSTABLE, f"kubepods/burstable/pod{UID}/crio-{ID}"),
        (
            Layout(Driver.SYSTEMD),
            KubeQos.GUARANTEED,
            f"kubepods.slice/kubepods-pod{SYSTEMD_UID}.slice/cri-containerd-{ID}.scope",
        ),
        (
            Layout(Driver.SYSTEMD, Runtime.CRIO),
            KubeQos.BURSTABLE,
            f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SYSTEMD_UID}.slice/crio-{ID}.scope",
        ),
        (
            Layout(Driver.SYSTEMD, base=("kubelet",)),
            KubeQos.GUARANTEED,
            f"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{SYSTEMD_UID}.slice/cri-containerd-{ID}.scope",
        ),
    ],
)
def test_a_container_is_where_kubelet_and_runtime_put_it(layout: Layout, qos: KubeQos, expected: str) -> None:
    assert layout.container(UID, qos, ID) == expected


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("qos", KubeQos)
def test_every_path_is_recognised_at_its_level(layout: Layout, qos: KubeQos) -> None:
    levels = [layout.kubepods(), layout.tier(qos), layout.pod(UID, qos), layout.container(UID, qos, ID)]
    tier = Level.KUBEPODS if qos is KubeQos.GUARANTEED else Level.QOS
    assert [level_of(path, layout) for path in levels] == [Level.KUBEPODS, tier, Level.POD, Level.CONTAINER]
    assert level_of(f"{levels[3]}/deeper", layout) is None
    assert level_of("system.slice/kubelet.service", layout) is None


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_node_is_recognised_by_its_cgroups(layout: Layout) -> None:
    container = layout.container(UID, KubeQos.BEST_EFFORT, ID)
    parts = container.split("/")
    paths = {"/".join(parts[: end + 1]) for end in range(len(parts))} | {"system.slice", layout.tier(KubeQos.BURSTABLE)}
    assert detect(paths, layout.base).layout == layout


def test_two_trees_none_and_mixed_ones_are_told() -> None:
    plain, systemd = Layout(), Layout(Driver.SYSTEMD)
    both = {plain.kubepods(), systemd.kubepods()}
    none = detect({"system.slice"})
    assert none.layout is None and "no kubepods" in none.problem
    empty = detect(both)
    assert empty.layout is None and "neither has pods" in empty.problem
    detection = detect(both | {systemd.pod(UID, KubeQos.GUARANTEED)})
    assert detection.layout == systemd and "only that of driver systemd has pods" in detection.problem
    mixed = detect(both | {systemd.pod(UID, KubeQos.GUARANTEED), plain.pod(UID, KubeQos.GUARANTEED)})
    assert mixed.layout is None and "cgroup driver was changed" in mixed.problem
    for paths in (both, both | {systemd.pod(UID, KubeQos.GUARANTEED), plain.pod(UID, KubeQos.GUARANTEED)}):
        assert detect(paths, driver_told="systemd").layout == systemd
    assert detect(both | {plain.pod(UID, KubeQos.GUARANTEED)}, driver_told="systemd").layout == plain
    assert detect({plain.kubepods()}, driver_told="systemd").layout == plain


@pytest.mark.parametrize(
    ("path", "qos", "expected"),
    [
        (None, "LS", "host-latency-sensitive/nginx"),
        (None, "BE", "host-best-effort/nginx"),
        (CgroupPath("CgroupRoot", "/system.slice", "nginx.service/"), "LS", "system.slice/nginx.service"),
        (CgroupPath("KubepodsBesteffort", "", "mine"), "BE", "kubepods/besteffort/mine"),
        (CgroupPath("Kubepods", "x", "mine"), "LS", "kubepods/x/mine"),
    ],
)
def test_a_host_application_is_where_it_was_declared(path: CgroupPath | None, qos: str, expected: str) -> None:
    application = HostApplication(name="nginx", qos=qos, cgroup_path=path)  # type: ignore[arg-type]
    assert host_application_path(application, Layout()) == expected


@pytest.mark.parametrize(
    "path",
    [
        CgroupPath("CgroupRoot", "../etc", "x"),
        CgroupPath("CgroupRoot", "", "kubepods"),
        CgroupPath("KubepodsBurstable", "", f"pod{UID}"),
        CgroupPath("KubepodsBurstable", f"pod{UID}", ID),
        CgroupPath("Elsewhere", "a", "b"),
    ],
)
def test_a_host_application_is_neither_outside_nor_a_cgroup_of_kubernetes(path: CgroupPath) -> None:
    with pytest.raises(UsageError):
        host_application_path(HostApplication(name="x", cgroup_path=path), Layout())


NASTY = ["..", ".", "/", "//", "\0", "\n", "\\", "~", "%2e%2e", "a/../b", "../../etc/passwd", " ", "", "\u202e", "é",
         "-", "_", ".hidden", "pod", "kubepods", "*", "$(id)", "a" * 300, "link"]  # fmt: skip


def nasty_text(random_: random.Random) -> str:
    pieces = [
        random_.choice([*NASTY, *string.ascii_letters, *string.digits, "-"]) for _ in range(random_.randint(0, 6))
    ]
    return "".join(pieces)


def test_of_ten_thousand_names_none_opens_anything_outside(tmp_path: Path) -> None:
    """A tree with the same file name outside, and links that lead there: whatever is asked, the outside is not read."""
    outside, root = tmp_path / "outside", tmp_path / "cgroup"
    for folder in (outside, root / "cpu" / "kubepods", root / "memory" / "kubepods"):
        folder.mkdir(parents=True)
    (outside / "cpu.shares").write_text("31337")
    (tmp_path / "cpu.shares").write_text("31337")
    (root / "cpu" / "kubepods" / "link").symlink_to(outside)
    (root / "cpu" / "link").symlink_to(outside)
    (root / "cpu" / "kubepods" / "cpu.shares").symlink_to(outside / "cpu.shares")
    chance = random.Random(8)
    refused = opened = 0
    with Hierarchy(root) as hierarchy:
        for number in range(10_000):
            layout = LAYOUTS[number % len(LAYOUTS)]
            uid, name = nasty_text(chance), nasty_text(chance)
            try:
                paths = [
                    layout.container(uid, KubeQos.BEST_EFFORT, name),
                    host_application_path(HostApplication(name=name, cgroup_path=CgroupPath("", uid, name)), layout),
                ][number % 2 :]
            except UsageError as bad:
                assert len(bad.message) < 400
                refused += 1
                paths = [f"{uid}/{name}"]
            for path in paths:
                try:
                    knob = hierarchy.read_knob(path, Knob.CPU_SHARES)
                    assert hierarchy.write_knob(path, Knob.CPU_SHARES, 7) != 0
                except UsageError:
                    continue
                opened += not isinstance(knob, Unavailable)
    assert opened == 0
    assert refused > 5000
    assert (outside / "cpu.shares").read_text() == "31337"
    assert (tmp_path / "cpu.shares").read_text() == "31337"


@given(st.text(max_size=200))
@settings(max_examples=200)
def test_what_passes_as_part_of_a_path_stays_one_part(text: str) -> None:
    for check in (checked_uid, checked_container_id):
        try:
            passed = check(text)
        except UsageError:
            continue
        assert "/" not in passed and not passed.startswith(".") and "\0" not in passed
    try:
        path = checked_path(text)
    except UsageError:
        return
    assert not {"", ".", ".."} & set(path.split("/"))
