"""`make release-dry`: the same bytes on every run, a krew manifest that holds, a plugin that installs itself."""

from __future__ import annotations

import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from cotenant.base.version import __version__
from tests.cli.charts import EVERYTHING, helm, values_of
from tests.cluster import binaries, needing
from tools.release import LAUNCHER, ROOT, krew, packed, repack
from tools.release import chart as release_chart

EPOCH = 1_700_000_000


def test_an_archive_holds_names_contents_and_modes_alone(tmp_path: Path) -> None:
    members = [("a/run", b"#!/bin/sh\n", True), ("a/text", b"x", False)]
    assert packed(members, EPOCH) == packed(members[::-1], EPOCH)
    path = tmp_path / "other.tgz"
    with tarfile.open(path, "w:gz") as archive:
        for name, content, executable in members:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.uid, entry.mtime = len(content), 0o711 if executable else 0o600, 7, 5
            archive.addfile(entry, io.BytesIO(content))
    repack(path, EPOCH)
    assert path.read_bytes() == packed(members, EPOCH)
    with tarfile.open(path) as archive:
        assert [(m.name, m.mode, m.mtime, m.uid) for m in archive] == [
            ("a/run", 0o755, EPOCH, 0),
            ("a/text", 0o644, EPOCH, 0),
        ]


def test_the_krew_manifest_names_its_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTENANT_REPOSITORY", "https://host/owner/cotenant/")
    wheels = ["cotenant-9.8.7-py3-none-any.whl", "cotenant_lab-9.8.7-py3-none-any.whl"]
    for wheel in wheels:
        (tmp_path / wheel).write_bytes(b"wheel")
    krew(ROOT, tmp_path, "9.8.7", EPOCH)
    manifest = yaml.safe_load((tmp_path / "cotenant.yaml").read_text())
    (platform,) = manifest["spec"]["platforms"]
    content = (tmp_path / f"{LAUNCHER}.tar.gz").read_bytes()
    assert (manifest["metadata"]["name"], manifest["spec"]["version"]) == ("cotenant", "v9.8.7")
    assert platform["sha256"] == hashlib.sha256(content).hexdigest()
    assert platform["uri"] == f"https://host/owner/cotenant/releases/download/v9.8.7/{LAUNCHER}.tar.gz"
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        assert sorted(archive.getnames()) == sorted(["LICENSE", *wheels, "demo.txt", LAUNCHER])
        assert archive.getmember(platform["bin"]).mode == 0o755
        script = archive.extractfile(LAUNCHER)
        assert script is not None and b"version=9.8.7\n" in script.read()


@pytest.mark.cluster
def test_the_released_chart_renders_and_names_the_released_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needing.helm()
    monkeypatch.setenv("COTENANT_REGISTRY", "ghcr.io/Owner/")
    release_chart(ROOT, tmp_path, EPOCH)
    (archive,) = tmp_path.glob("cotenant-*.tgz")
    done = helm("template", "cotenant", str(archive), "--namespace", "cotenant", values=values_of(EVERYTHING))
    images = set(re.findall(r"image: (\S+)", done.stdout))
    assert images == {f"ghcr.io/owner/{name}:{__version__}" for name in ("cotenant", "cotenant-node")}, done.stderr


@pytest.mark.soak
@pytest.mark.server
def test_two_releases_of_a_commit_are_the_same_and_the_plugin_installs_itself(tmp_path: Path) -> None:
    needing.kubernetes()
    environment = {**os.environ, "COTENANT_IMAGES": "no"}
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    for source, folder, mask in ((ROOT, "first", 0o022), (clone, "second", 0o077)):
        build = [sys.executable, "-m", "tools.release", str(tmp_path / folder)]
        subprocess.run(build, cwd=source, env=environment, check=True, umask=mask, timeout=600, capture_output=True)
    sums = (tmp_path / "first" / "SHA256SUMS").read_text()
    assert sums == (tmp_path / "second" / "SHA256SUMS").read_text()
    # wheel and source of product and lab, SBOM, chart, the plugin's archive and its manifest
    assert len(sums.splitlines()) == 8

    krew_bin = tmp_path / "bin"  # as krew does it: unpacked somewhere, linked on PATH
    with tarfile.open(tmp_path / "first" / f"{LAUNCHER}.tar.gz") as archive:
        archive.extractall(tmp_path / "store", filter="data")
    krew_bin.mkdir()
    (krew_bin / LAUNCHER).symlink_to(tmp_path / "store" / LAUNCHER)
    home = {"HOME": str(tmp_path), "XDG_DATA_HOME": "", "PATH": f"{krew_bin}:/usr/bin:/bin", "PYTHON": sys.executable}
    texts = [str(binaries.find("kubectl")), "cotenant", "--version"]
    for phrase in ("installing version", ""):
        done = subprocess.run(
            texts, env={**os.environ, **home}, capture_output=True, text=True, timeout=1200, check=True
        )
        assert done.stdout.startswith("cotenant ")
        assert phrase in done.stderr and bool(phrase) == bool(done.stderr)
