"""What pyproject.toml cannot say: a wheel carries `deploy/` as `cotenant/deploy`."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithManifests(build_py):
    """The packages, and the manifests beside the code that installs them."""

    def run(self) -> None:
        """Build as always; a checkout that is installed editable reads `deploy/` itself."""
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib) / "cotenant" / "deploy"
            shutil.copytree("deploy", target, ignore=shutil.ignore_patterns("chart", "images"), dirs_exist_ok=True)


setup(cmdclass={"build_py": BuildWithManifests})
