"""EDGE: locate the shipped manifests, in a checkout and in an installed wheel."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path


def deploy() -> Traversable:
    """Return the folder of manifests: the copy in an installed wheel, else `deploy/` of the checkout."""
    package = files("cotenant")
    inside = package / "deploy"
    return inside if inside.is_dir() else Path(str(package)).parent / "deploy"
