"""The recipe of the images against locks, manifests and modules: what would else fail when one is built or started."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from tools.check_images import LIMIT_MEGABYTES

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "deploy" / "images"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ANALYTICS = ("pandas", "scikit-learn", "scipy", "statsmodels", "dash", "plotly", "pyarrow", "kubernetes")


def stages() -> Mapping[str, tuple[str, str]]:
    """Name of a stage -> (what it begins with, its instructions)."""
    text = re.sub(r"^#.*\n", "", (IMAGES / "Containerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    parts = re.split(r"^FROM (\S+) AS (\S+)\n", text, flags=re.MULTILINE)[1:]
    return {name: (base, body) for base, name, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True)}


def locked(lock: str) -> dict[str, str]:
    """Package -> its version and hashes as the lock has them."""
    entries = re.split(r"^(?=[a-z0-9])", (ROOT / "locks" / lock).read_text(), flags=re.MULTILINE)
    return {name: rest for name, _, rest in (entry.partition("==") for entry in entries) if rest}


def test_an_image_begins_empty_so_that_nothing_of_the_build_is_in_it() -> None:
    built = stages()
    assert {name for name, (base, _) in built.items() if base == "scratch"} == {"control", "node"}
    assert {built[name][0] for name in ("wheel", "system")} == {"tools"}


def test_only_the_node_agent_is_root() -> None:
    users = {name: re.findall(r"^USER (\S+)$", stages()[name][1], re.MULTILINE) for name in ("control", "node")}
    assert users == {"control": ["65532:65532"], "node": ["0:0"]}


@pytest.mark.parametrize(("role", "lock"), [("control", "demo.txt"), ("node", "node.txt"), ("tools", "images.txt")])
def test_what_is_installed_is_locked_with_hashes(role: str, lock: str) -> None:
    body = stages()["tools" if role == "tools" else f"{role}-files"][1]
    assert f"locks/{lock}" in body
    packages = locked(lock)
    assert len(packages) >= 7
    assert [name for name, rest in packages.items() if "--hash=sha256:" not in rest] == []
    for script in IMAGES.glob("*.sh"):
        for command in re.findall(r"pip [^|&;]*?install[^|&;]*", script.read_text().replace("\\\n", " ")):
            assert "--require-hashes" in command or "--no-index" in command, script.name


def test_the_node_agent_has_no_analytics() -> None:
    packages = locked("node.txt")
    assert {"grpcio", "numpy", "protobuf"} <= set(packages)
    assert [name for name in ANALYTICS if name in packages] == []
    assert [name for name in ANALYTICS if name not in locked("demo.txt")] == []  # they are names of the locks


def test_the_node_image_has_every_module_that_the_agent_imports(tmp_path: Path) -> None:
    """The agent reads the settings of all rooms: an image that lacks one of their modules ends at its first import."""
    for room in (ROOT / "cotenant").iterdir():
        if room.is_dir() and room.name != "__pycache__":
            shutil.copytree(room, tmp_path / "cotenant" / room.name, ignore=shutil.ignore_patterns("__pycache__"))
        elif room.suffix == ".py":
            shutil.copy(room, tmp_path / "cotenant")
    python = ("env", f"PYTHONPATH={tmp_path}", sys.executable, "-P")
    subprocess.run(["sh", IMAGES / "agent.sh", tmp_path, *python], check=True)
    start = "import cotenant.enforcer.__main__ as agent, cotenant.enforcer.assembly; print(agent.__file__)"
    agent = subprocess.run([*python, "-c", start], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert agent.stdout.strip() == str(tmp_path / "cotenant/enforcer/__main__.py")
    modules = {str(path.relative_to(tmp_path / "cotenant")) for path in tmp_path.rglob("*.py")}
    assert {"settings.py", "dashboard/settings.py", "recommender/settings.py"} <= modules
    assert modules.isdisjoint({"cli/main.py", "dashboard/server/listener.py", "pipeline/daily_analysis.py"})


def test_an_image_starts_what_exists() -> None:
    built = stages()
    assert 'ENTRYPOINT ["cotenant"]' in built["control"][1]
    assert PROJECT["scripts"]["cotenant"].startswith("cotenant.cli.main:")
    assert 'ENTRYPOINT ["python", "-m", "cotenant.enforcer"]' in built["node"][1]
    assert importlib.util.find_spec("cotenant.enforcer.__main__") is not None


def test_what_the_manifests_start_is_built() -> None:
    manifests = "\n".join(path.read_text() for path in (ROOT / "deploy").glob("*.yaml"))
    images = set(re.findall(r"^ +image: (\S+)$", manifests, re.MULTILINE))
    assert images == {f"cotenant/{name}:{PROJECT['version']}" for name in LIMIT_MEGABYTES}


def test_the_build_sees_what_the_wheel_is_made_of() -> None:
    """A package that .dockerignore does not let through would be missing in the image alone."""
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    rooms = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"bench", "tests", "cotenant_lab"}
    grafted = re.findall(r"^graft (\S+)$", (ROOT / "MANIFEST.in").read_text(), re.MULTILINE)
    assert "base" in rooms and {*rooms, *grafted} <= allowed
    copied = re.findall(
        r"^COPY ((?:deploy|locks|pyproject)\S*(?: \S+)*) /images/$", "\n".join(b for _, b in stages().values()), re.M
    )
    sources = {name for line in copied for name in line.split()}
    assert {f"locks/{name}.txt" for name in ("demo", "node", "images")} <= sources
    assert [name for name in sources if not (ROOT / name).is_file() or name.partition("/")[0] not in allowed] == []
