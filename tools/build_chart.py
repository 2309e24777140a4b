"""Put the Helm chart together: deploy/chart, and the manifests of deploy/ as its files.

    python -m tools.build_chart [FOLDER]    # build/chart unless named

Helm reads no file outside a chart, and a manifest is written once. A link would not do: archives flatten links.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
NOT_RENDERED = shutil.ignore_patterns("chart", "examples", "profiles", "images")
"""Folders of deploy/ that hold no manifest of an installation."""


def build(target: Path, deploy: Path = DEPLOY) -> Path:
    """Write the chart of these manifests into a folder, in the place of what stands there; the folder."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(deploy / "chart", target)
    shutil.copytree(deploy, target / "files", ignore=NOT_RENDERED, dirs_exist_ok=True)
    return target


if __name__ == "__main__":
    print(build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "chart"))
