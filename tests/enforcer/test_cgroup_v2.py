"""Real cgroup v2, in a guest: this machine's kernel has its controllers on v1. `make test-v2`.

A User-Mode Linux (an unprivileged process, no hardware virtualisation, no image: the host's files, read-only) boots,
runs guest/cgroup_v2.py with this Python and halts. One boot for all tests of that file.

It has one CPU and no PSI. Cpusets and pressure are proved on an emulated machine (qemu, Debian's own kernel, no
hardware virtualisation), which takes a minute and a download: `make test-v2-tcg`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.server

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
UML = shutil.which("linux.uml")
QEMU = shutil.which("qemu-system-x86_64")
KERNELS = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "cotenant" / "guest-kernel"
WHY_NOT = "CGROUP V2 NOT TESTED: no linux.uml (Debian package user-mode-linux; `make system` installs it)"
WIDE_REGISTERS = "put_fp_registers"
"""In the trace of a User-Mode Linux that cannot restore this processor's registers, before its first process runs."""
WHY_NOT_HERE = (
    "CGROUP V2 NOT TESTED: linux.uml cannot restore the registers of this processor (seen on one with AMX); "
    "`make test-v2-tcg` takes an emulated machine"
)


def booted(tests: Path, *variables: str) -> str:
    """What the guest printed; variables, such as NAME=value, for its tests. Skips where no guest can be run."""
    if UML is None:
        pytest.skip(WHY_NOT)
    command = [
        UML, "mem=1024M", "rootfstype=hostfs", "rootflags=/", "ro", f"init={HERE}/guest/init.sh",
        f"COTENANT_ROOT={ROOT}", f"COTENANT_PYTHON={sys.executable}", f"COTENANT_TESTS={tests}", *variables,
        "con=null", "con0=fd:0,fd:1", "quiet",
    ]  # fmt: skip
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600, check=False
    )
    printed = done.stdout.decode(errors="replace")
    if WIDE_REGISTERS in printed and "guest-rc" not in printed:
        pytest.skip(WHY_NOT_HERE)
    return printed


def emulated(tests: Path, folder: Path, *variables: str) -> str:
    """What the emulated machine printed; variables as of `booted`."""
    assert QEMU is not None, "no qemu-system-x86_64: `make test-v2-tcg` installs what it takes"
    kernel = unpacked_kernel()
    names = {"COTENANT_ROOT": ROOT, "COTENANT_PYTHON": sys.executable, "COTENANT_TESTS": tests}
    settings = " ".join([*(f"{name}={value}" for name, value in names.items()), *variables])
    command = [
        QEMU, "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "1024", "-nodefaults", "-no-reboot",
        "-display", "none", "-serial", "stdio", "-kernel", str(next((kernel / "boot").glob("vmlinuz-*"))),
        "-initrd", str(first_files(kernel, folder)),
        "-append", f"console=ttyS0 quiet panic=-1 psi=1 mitigations=off nokaslr tsc=reliable {settings}",
        "-fsdev", "local,id=r,path=/,security_model=none,readonly=on,multidevs=remap",
        "-device", "virtio-9p-pci,fsdev=r,mount_tag=host",
    ]  # fmt: skip
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=900, check=False
    )
    return done.stdout.decode(errors="replace")


def unpacked_kernel() -> Path:
    """Debian's kernel package, downloaded and unpacked once; nothing of it is installed."""
    process = subprocess.run(["apt-cache", "depends", "linux-image-amd64"], capture_output=True, text=True, check=True)
    name = re.findall(r"Depends: (linux-image-\S+)", process.stdout)[0]
    folder = KERNELS / name
    if not folder.is_dir():
        KERNELS.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=KERNELS) as fresh:
            subprocess.run(["apt-get", "download", "-q", name], cwd=fresh, check=True)
            package = next(Path(fresh).glob("*.deb"))
            subprocess.run(["dpkg", "-x", package, f"{fresh}/kernel"], check=True)
            subprocess.run(["depmod", "-b", f"{fresh}/kernel", module_version(Path(fresh) / "kernel")], check=True)
            (Path(fresh) / "kernel").rename(folder)
    return folder


def module_version(kernel: Path) -> str:
    return next((kernel / "lib/modules").iterdir()).name


def first_files(kernel: Path, folder: Path) -> Path:
    """The memory file system that it boots from: busybox, three modules and what they need, guest/init_tcg.sh."""
    top = folder / "first"
    for name in ("bin", "modules", "proc", "sys", "dev", "host", "etc"):
        (top / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", top / "bin")
    shutil.copy(HERE / "guest/init_tcg.sh", top / "init")
    order: dict[str, None] = {}
    for module in ("virtio_pci", "9pnet_virtio", "9p"):
        show = ["modprobe", "-d", str(kernel), "-S", module_version(kernel), "--show-depends", module]
        text = subprocess.run(show, capture_output=True, text=True, check=True).stdout
        order |= dict.fromkeys(line.split()[1] for line in text.splitlines() if line.startswith("insmod "))
    for file in order:
        shutil.copy(file, top / "modules")
    (top / "etc/modules").write_text("\n".join(Path(file).name for file in order))
    packed = folder / "first.gz"
    subprocess.run(f"find . | cpio -o -H newc --quiet | gzip -1 > {packed}", cwd=top, shell=True, check=True)
    return packed


@pytest.mark.slow
@pytest.mark.xdist_group("guest")
def test_everything_holds_on_cgroup_v2() -> None:
    tests = HERE / "guest" / "cgroup_v2.py"
    text = booted(tests)
    assert "guest-rc=0" in text, text
    assert passed(text) == names_of_tests(tests), text


@pytest.mark.soak
@pytest.mark.xdist_group("guest")
def test_cpusets_and_pressure_hold_on_cgroup_v2(tmp_path: Path) -> None:
    tests = HERE / "guest" / "cpuset_v2.py"
    text = emulated(tests, tmp_path)
    assert "guest-rc=0" in text, text
    assert passed(text) == names_of_tests(tests), text


def passed(output: str) -> set[str]:
    return set(re.findall(r"^PASSED .*::(\w+)", output, re.MULTILINE))


def names_of_tests(tests: Path) -> set[str]:
    return set(re.findall(r"^def (test_\w+)", tests.read_text(), re.MULTILINE))
