"""What a test needs of the machine: skipped where a person lacks it; continuous integration has to have it."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.cluster import binaries


def kubernetes() -> None:
    """Programs of the test cluster."""
    _require(binaries.installed(), "Kubernetes' programs are not built: make cluster-binaries")


def next_kubernetes() -> None:
    """Programs of the next release too, which take minutes and which only `make soak` builds."""
    kubernetes()
    target = f"Kubernetes {binaries.NEXT_VERSION} is not built: make cluster-binaries-next"
    _require(binaries.installed(binaries.NEXT_PROGRAMS), target)


def helm() -> None:
    """Helm."""
    _require(binaries.installed(["helm"]), "Helm is not built: make cluster-binaries")


def cert_manager() -> None:
    """Controllers of cert-manager, which take minutes and which only `make soak` builds."""
    _require(binaries.installed(["cert-manager"]), "cert-manager is not built: make cluster-binaries-next")


def koordinator() -> None:
    """Koordinator's manager and scheduler, which take minutes and which only `make soak` builds."""
    names = binaries.KOORDINATOR[:2]
    _require(binaries.installed(names), "Koordinator is not built: make koordinator-binaries")


def koordlet() -> None:
    """Koordinator's node agent, which takes libpfm too and which only `make soak` builds."""
    _require(
        binaries.installed(["koordlet"]), "koordlet is not built: make koordinator-binaries, with gcc and libpfm4-dev"
    )


def thanos() -> None:
    """Thanos, which takes minutes and which only `make soak` builds."""
    _require(binaries.installed(["thanos"]), "Thanos is not built: make thanos-binary")


def promtool() -> None:
    """Prometheus' tool for rules."""
    _require(shutil.which("promtool") is not None, "promtool is missing: make system installs the package prometheus")


def two_cpus() -> None:
    """A CPU for one pod alone leaves one for all others."""
    _require((os.cpu_count() or 1) >= 2, "CPUs of one's own are not tested: this machine has one")


def _require(present: bool, message: str) -> None:
    if not present and not os.environ.get("CI"):
        pytest.skip(message)
