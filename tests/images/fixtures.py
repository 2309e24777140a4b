"""The images of this checkout, built once a session: minutes at first, seconds with the layers of last time."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tools.check_images import LIMIT_MEGABYTES

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "deploy" / "images" / "build.sh"
BUILD_SECONDS = 3000


def missing_tools() -> str:
    """Why no image can be built here; "" when one can."""
    if os.geteuid() != 0:
        return "images are built as root"
    missing = [name for name in ("buildah", "mmdebstrap") if shutil.which(name) is None]
    return f"not installed: {', '.join(missing)} (make images)" if missing else ""


@pytest.fixture(scope="session")
def image_archives(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Repository -> OCI archive as `make images` writes it; COTENANT_IMAGE_ARCHIVES: a folder of built ones."""
    if built := os.environ.get("COTENANT_IMAGE_ARCHIVES"):
        return {name: Path(built) / f"{name}.oci.tar" for name in LIMIT_MEGABYTES}
    if reason := missing_tools():
        pytest.skip(f"NO IMAGES HERE: {reason}")
    folder = tmp_path_factory.mktemp("images")
    done = subprocess.run(["sh", BUILD, folder], capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return {name: folder / f"{name}.oci.tar" for name in LIMIT_MEGABYTES}
