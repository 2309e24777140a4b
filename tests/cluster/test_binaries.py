from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.cluster import binaries
from tests.cluster.binaries import ASSETS, MODULES, WITHOUT, MissingBinaries

pytestmark = pytest.mark.server

ROOT = Path(__file__).parents[2]
# Stands where the compiler would: writes a program that says by which call it was made, slowly enough for a race.
GO = """#!/bin/sh
echo call >> "$CALLS"
while [ "$1" != -o ]; do shift; done
sleep 0.3
case "$2" in
  */) for package in $(shift 2; echo "$@"); do echo built > "$2$(basename "$package")"; done;;
  *) echo built > "$2";;
esac
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with an empty cache and, as `go`, a program that notes its calls."""
    (tmp_path / "bin").mkdir()
    go = tmp_path / "bin" / "go"
    go.write_text(GO)
    go.chmod(0o755)
    monkeypatch.delenv(ASSETS, raising=False)
    monkeypatch.delenv(WITHOUT, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return tmp_path


def test_a_module_is_locked_and_pinned_by_its_digest() -> None:
    for module in MODULES:
        assert (module.folder / "go.sum").stat().st_size > 1000
        assert len(module.digest()) == 16
    assert len({module.digest() for module in MODULES}) == len(MODULES)


def test_missing_programs_are_built_once_into_the_cache(machine: Path) -> None:
    assert not binaries.installed(["etcd"])
    threads = [threading.Thread(target=binaries.ensure, args=(["etcd"],)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (machine / "calls").read_text() == "call\n"
    assert binaries.find("etcd").is_relative_to(machine / "cache" / "cotenant" / "testcluster")


def test_several_programs_of_a_module_share_a_build_and_a_later_one_has_its_own(machine: Path) -> None:
    binaries.ensure(["kubectl", "kube-scheduler"])
    binaries.ensure(["kubectl", "kubelet"])
    assert (machine / "calls").read_text() == "call\n" * 2
    assert binaries.installed(["kubectl", "kube-scheduler", "kubelet"])


def test_the_next_release_has_programs_of_its_own_and_its_own_target(machine: Path) -> None:
    binaries.ensure(binaries.CONTROL_PLANE)
    assert not binaries.installed(binaries.NEXT_PROGRAMS)
    with pytest.raises(MissingBinaries, match="make cluster-binaries-next"):
        binaries.find("kube-apiserver-1.36")
    binaries.ensure(binaries.NEXT_PROGRAMS)
    assert binaries.find("kube-apiserver-1.36").parent != binaries.find("kube-apiserver").parent


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("cert-manager", "cluster-binaries-next"),
        ("koord-scheduler", "koordinator-binaries"),
        ("thanos", "thanos-binary"),
        ("karpenter", "karpenter-binary"),
    ],
)
def test_what_only_soak_runs_names_the_target_that_builds_it(machine: Path, name: str, target: str) -> None:
    with pytest.raises(MissingBinaries, match=f"run `make {target}`"):
        binaries.find(name)
    assert re.search(rf"^{target}:.*(\n\t.*)*binaries.*\b{name}\b", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_kubebuilder_assets_come_first_and_what_they_lack_is_built(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine / "assets").mkdir()
    (machine / "assets" / "etcd").write_text("given")
    monkeypatch.setenv(ASSETS, str(machine / "assets"))
    binaries.ensure(["etcd", "kwok"])
    assert binaries.find("etcd") == machine / "assets" / "etcd"
    assert binaries.find("kwok").is_relative_to(machine / "cache")
    assert (machine / "calls").read_text() == "call\n"


def test_a_failed_build_leaves_nothing_that_looks_like_a_program(machine: Path) -> None:
    (machine / "bin" / "go").write_text("#!/bin/sh\necho no network >&2\nexit 1\n")
    with pytest.raises(MissingBinaries, match="no network"):
        binaries.ensure(["etcd"])
    assert not binaries.installed(["etcd"])
    assert [p for p in (machine / "cache").rglob("*") if p.is_file() and p.suffix != ".lock"] == []


def test_without_go_the_message_says_what_to_install(machine: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.cluster.binaries", "etcd"],
        cwd=ROOT,
        env={**os.environ, "PATH": str(machine / "nowhere")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "go.dev/dl" in done.stderr and ASSETS in done.stderr and "Traceback" not in done.stderr
