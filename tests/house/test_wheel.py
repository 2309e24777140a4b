"""What people install."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from cotenant.base.version import __version__

pytestmark = pytest.mark.server

ROOT = Path(__file__).resolve().parents[2]
COMPLETIONS = {
    "bash-completion/completions/cotenant",
    "zsh/site-functions/_cotenant",
    "fish/vendor_completions.d/cotenant.fish",
}
"""Where each shell looks below a prefix."""
MANUAL = {f"man/man1/{page.name}" for page in (ROOT / "release" / "man").glob("*.1")}
"""Where `man` looks, when the prefix's programs are on the PATH."""


def test_product_and_lab_are_of_one_version() -> None:
    product, lab = (tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"] for folder in ("", "lab"))
    assert product["version"] == lab["version"] == __version__
    assert product["optional-dependencies"]["demo"] == [f"cotenant-lab=={__version__}"]
    assert [line.partition("]")[2] for line in lab["dependencies"]] == [f"=={__version__}"]


@pytest.mark.slow
def test_the_wheels_carry_the_rooms_and_no_tests_or_notebooks(tmp_path: Path) -> None:
    source = tmp_path / "source"
    files = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    for name in files:  # a copy, so that the build leaves nothing in the checkout
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_symlink():
            target.symlink_to((ROOT / name).readlink())
        elif (ROOT / name).is_file():
            target.write_bytes((ROOT / name).read_bytes())
    for project in (source, source / "lab"):
        build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(project)]
        done = subprocess.run(build, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
    (wheel,), (lab,) = (list(tmp_path.glob(f"{package}-*.whl")) for package in ("cotenant", "cotenant_lab"))
    for path, package in ((lab, "cotenant_lab"), (wheel, "cotenant")):
        names = zipfile.ZipFile(path).namelist()
        assert {n.partition("/")[0] for n in names if ".dist-info/" not in n and ".data/" not in n} == {package}
    assert [n for n in names if Path(n).name.startswith(("test_", "conftest")) or n.endswith(".ipynb")] == []
    assert any(n.endswith("LICENSE") for n in names)
    assert {n.partition(".data/data/share/")[2] for n in names if ".data/" in n} == COMPLETIONS | MANUAL
    # Into an environment of its own: pip removes what is installed where it runs, whatever the prefix.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "prefix")], timeout=60, check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(tmp_path / "prefix" / "bin" / "python"), "-q"]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", str(wheel)], timeout=120, check=True)
    share = tmp_path / "prefix" / "share"
    assert {str(p.relative_to(share)) for p in share.rglob("*") if p.is_file()} == COMPLETIONS | MANUAL
    assert (tmp_path / "prefix" / "bin" / "cotenant").is_file()
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    show = [sys.executable, "-c", "from cotenant.cli.main import run; run()", "install", "--print"]
    printed = subprocess.run(show, cwd=tmp_path / "installed", capture_output=True, text=True, check=True).stdout
    assert "kind: CustomResourceDefinition" in printed
    shipped = {str(p.relative_to(ROOT)) for p in (ROOT / "deploy").rglob("*.*") if p.is_file()}
    shipped = {name for name in shipped if not name.startswith(("deploy/chart/", "deploy/images/"))}
    assert {n.partition("/")[2] for n in names if n.startswith("cotenant/deploy/")} == shipped
