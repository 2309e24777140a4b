"""Which device a name or a mount point is: disks, partitions, logical volumes, volume groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant.enforcer.observe.machine import block_devices


@pytest.fixture
def sys(tmp_path: Path) -> Path:
    """Disk sda with partition sda3, which holds volume group "my-vg" with volume "data"; an encrypted disk on sdb."""
    devices = tmp_path / "sys/devices"
    for place, number in (("sda", "8:0"), ("sda/sda3", "8:3"), ("sdb", "8:16"), ("dm-0", "253:0"), ("dm-1", "253:1")):
        folder = devices / place
        folder.mkdir(parents=True)
        (folder / "dev").write_text(number + "\n")
        (tmp_path / "sys/class/block").mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys/class/block" / folder.name).symlink_to(folder)
    (devices / "sda/sda3/partition").write_text("3\n")
    for name, mapped, uuid, below in (
        ("dm-0", "my--vg-data", "LVM-abc", "sda3"),
        ("dm-1", "luks-123", "CRYPT-LUKS2-x", "sdb"),
    ):
        (devices / name / "dm").mkdir()
        (devices / name / "dm/name").write_text(mapped + "\n")
        (devices / name / "dm/uuid").write_text(uuid + "\n")
        (devices / name / "slaves" / below).mkdir(parents=True)
    return tmp_path / "sys"


def test_names_of_disks_partitions_volumes_and_groups(sys: Path, tmp_path: Path) -> None:
    assert block_devices(tmp_path / "proc", sys) == {
        "sda": "8:0",
        "sda3": "8:0",  # limits on a partition do not exist: its disk
        "sdb": "8:16",
        "dm-0": "253:0",
        "dm-1": "253:1",
        "my--vg-data": "253:0",
        "my-vg": "8:0",
        "luks-123": "253:1",  # encrypted, no volume group
    }


def test_mount_points_are_the_whole_devices_they_are_on(sys: Path, tmp_path: Path) -> None:
    (tmp_path / "proc/1").mkdir(parents=True)
    mounts = [
        "22 1 8:3 / / rw - ext4 /dev/sda3 rw",
        "23 1 253:0 / /data rw - xfs x rw",
        "24 1 0:5 / /proc rw - proc p rw",
    ]
    (tmp_path / "proc/1/mountinfo").write_text("\n".join(mounts) + "\n")
    devices = block_devices(tmp_path / "proc", sys)
    assert (devices["/"], devices["/data"], "/proc" in devices) == ("8:0", "253:0", False)
