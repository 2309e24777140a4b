"""What pyproject.toml cannot say: a wheel has `deploy/` as `cotenant/deploy`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).parent))
import cotenant  # noqa: F401  # a checkout that lost its symbolic links says so here


class BuildWithManifests(build_py):
    """The packages, and the manifests beside the code that installs them."""

    def run(self) -> None:
        """Build as always; a checkout that is installed editable reads `deploy/` itself."""
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib) / "cotenant" / "deploy"
            shutil.copytree("deploy", target, ignore=shutil.ignore_patterns("chart", "images"), dirs_exist_ok=True)


setup(cmdclass={"build_py": BuildWithManifests})
