"""Everything of a release but its signatures and its upload, from the last commit: `make release-dry`.

    python -m tools.release [FOLDER]     # default: build/release; empties it

Wheels and source archives of product and lab, the SBOM of what a lock installs, the Helm chart, the krew manifest with
its archive, the images where buildah is installed, and SHA256SUMS. Two runs on one commit give the same bytes (images:
see deploy/images): every archive is packed anew with the commit's time, sorted, owned by nobody.

COTENANT_REPOSITORY   the repository's address, which the krew manifest links to
COTENANT_REGISTRY     where the images will be, as ghcr.io/OWNER; the chart's values name them there
COTENANT_IMAGES=no    leave the images out
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import string
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.cluster import binaries
from tools import build_chart

ROOT: Final = Path(__file__).resolve().parents[1]
LAUNCHER: Final = "kubectl-cotenant"
REPOSITORY: Final = "https://github.com/OWNER/cotenant"
"""Stands in the krew manifest of a dry run."""


def packed(members: Iterable[tuple[str, bytes, bool]], epoch: int) -> bytes:
    """A .tar.gz with nothing in it but names, contents and the executable bit. members: (name, content, executable)."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content, executable in sorted(members):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(content), epoch, 0o755 if executable else 0o644
            archive.addfile(entry, io.BytesIO(content))
    return gzip.compress(tar.getvalue(), mtime=epoch)


def repack(path: Path, epoch: int) -> None:
    """Pack an archive of regular files anew."""
    with tarfile.open(path) as archive:
        files = [member for member in archive.getmembers() if member.isfile()]
        members = [(f.name, archive.extractfile(f).read(), bool(f.mode & 0o100)) for f in files]  # type: ignore[union-attr]
    path.write_bytes(packed(members, epoch))


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    """A command's output; its words reach the terminal when it fails."""
    env = {**os.environ, **environment}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def python_packages(source: Path, folder: Path, epoch: int) -> None:
    """The source archives and, built from them, the wheels: the product's and the lab's."""
    run(sys.executable, ROOT / "tools" / "fetch_plotly.py")
    bundle = Path("dashboard", "assets", "plotly-cartesian.min.js")
    shutil.copy(ROOT / bundle, source / bundle)
    for project in (source, source / "lab"):
        build = (sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, project)
        run(*build, SOURCE_DATE_EPOCH=str(epoch))
    for archive in folder.glob("*.tar.gz"):
        repack(archive, epoch)


def sbom(source: Path, target: Path) -> None:
    """CycloneDX of cotenant with all extras, as locks/demo.txt pins them."""
    options = ("--output-reproducible", "--sv", "1.6", "--pyproject", source / "pyproject.toml", "-o", target)
    run(Path(sys.executable).with_name("cyclonedx-py"), "requirements", *options, source / "locks" / "demo.txt")


def chart(source: Path, folder: Path, epoch: int) -> None:
    """The Helm chart with its manifests, as an archive."""
    binaries.ensure(["helm"])
    with tempfile.TemporaryDirectory() as work:
        built = build_chart.build(Path(work) / "chart", source / "deploy")
        if registry := os.environ.get("COTENANT_REGISTRY", "").rstrip("/").lower():
            values = built / "values.yaml"
            values.write_text(values.read_text().replace("repository: cotenant/", f"repository: {registry}/"))
        run(binaries.find("helm"), "package", built, "--destination", folder)
    repack(next(folder.glob("cotenant-*.tgz")), epoch)


def krew(source: Path, folder: Path, version: str, epoch: int) -> None:
    """The plugin's archive (launcher, wheels, lock, licence) and the manifest that names its digest."""
    launcher = (source / "release" / "krew" / LAUNCHER).read_text().replace("@VERSION@", version).encode()
    files = (*folder.glob("*.whl"), source / "locks" / "demo.txt", source / "LICENSE")
    members = [(LAUNCHER, launcher, True), *((path.name, path.read_bytes(), False) for path in files)]
    archive = folder / f"{LAUNCHER}.tar.gz"
    archive.write_bytes(packed(members, epoch))
    manifest = string.Template((source / "release" / "krew" / "cotenant.yaml").read_text())
    repository = os.environ.get("COTENANT_REPOSITORY", "").rstrip("/") or REPOSITORY
    text = manifest.substitute(version=version, sha256=digest(archive), repository=repository)
    (folder / "cotenant.yaml").write_text(text)


def images(source: Path, folder: Path, epoch: int) -> None:
    """Both container images as OCI archives, where they can be built here."""
    script = source / "deploy" / "images" / "build.sh"
    if os.environ.get("COTENANT_IMAGES") == "no" or not script.exists() or not shutil.which("buildah"):
        print("no images: COTENANT_IMAGES=no, or no buildah here")
        return
    run("sh", script, folder, SOURCE_DATE_EPOCH=str(epoch))


def digest(path: Path) -> str:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def release(folder: Path) -> None:
    """Fill the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    epoch = int(run("git", "log", "-1", "--format=%ct"))
    os.umask(0o022)
    with tempfile.TemporaryDirectory() as work:
        source = Path(work) / "source"
        export = Path(work) / "source.tar"
        run("git", "archive", "--output", export, "HEAD")
        with tarfile.open(export) as archive:
            archive.extractall(source, filter="tar")
        version = tomllib.loads((source / "pyproject.toml").read_text())["project"]["version"]
        python_packages(source, folder, epoch)
        sbom(source, folder / f"cotenant-{version}.cdx.json")
        chart(source, folder, epoch)
        krew(source, folder, version, epoch)
        images(source, folder, epoch)
    lines = [f"{digest(path)}  {path.name}" for path in sorted(folder.iterdir())]
    (folder / "SHA256SUMS").write_text("\n".join([*lines, ""]))
    print(*lines, sep="\n")


if __name__ == "__main__":
    release(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "build" / "release")
