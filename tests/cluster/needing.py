"""What a test on a real control plane needs of the machine."""

from __future__ import annotations

import os

import pytest

from tests.cluster import binaries


def kubernetes() -> None:
    """Skip where Kubernetes' programs are not built; continuous integration has to have them."""
    if not binaries.installed() and not os.environ.get("CI"):
        pytest.skip("Kubernetes' programs are not built: make cluster-binaries")


def next_kubernetes() -> None:
    """Skip where the programs of the next release are not built: they take minutes, and only `make soak` needs them."""
    kubernetes()
    if not binaries.installed(binaries.NEXT_PROGRAMS):
        pytest.skip(f"Kubernetes {binaries.NEXT_VERSION} is not built: make cluster-binaries-next")
