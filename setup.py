"""What pyproject.toml cannot say: rooms are packages of cotenant, and a wheel has `deploy/` as `cotenant/deploy`."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

ROOMS = sorted({path.parent.name for path in Path().glob("*/__init__.py")} - {"cotenant", "bench", "tests"})


class BuildWithManifests(build_py):
    """The packages, and the manifests beside the code that installs them."""

    def run(self) -> None:
        """Build as always; a checkout that is installed editable reads `deploy/` itself."""
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib) / "cotenant" / "deploy"
            shutil.copytree("deploy", target, ignore=shutil.ignore_patterns("chart", "images"), dirs_exist_ok=True)


def packages() -> list[str]:
    """Every package below its installed name; only `cotenant` is a top-level name of site-packages."""
    roof = ["cotenant", *(f"cotenant.{name}" for name in find_packages("cotenant"))]
    rooms = [f"cotenant.{room}{name}" for room in ROOMS for name in ("", *(f".{n}" for n in find_packages(room)))]
    return sorted({*roof, *rooms})


setup(
    packages=packages(),
    package_dir={f"cotenant.{room}": room for room in ROOMS},
    cmdclass={"build_py": BuildWithManifests},
)
