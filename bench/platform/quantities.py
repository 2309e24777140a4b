"""Kubernetes quantities, random texts read by us and by a real API server: accepted or not, value, time to refuse."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bench.record import Row, above, below, record
from tests.cluster import binaries
from tests.cluster.control_plane import CONTROLLER_MANAGER, ControlPlane, Options
from tests.cluster.quantities import compare, texts

TEXTS, SEED = 40_000, 7


def main() -> int:
    try:
        binaries.ensure()
    except binaries.MissingBinaries as error:
        print(error, file=sys.stderr)
        return 1
    options = Options(components=frozenset({CONTROLLER_MANAGER}))
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder), options) as plane:
        comparison = compare(plane, texts(TEXTS, SEED))
    for text, ours, theirs in comparison.different[:20]:
        print(f"different: {text!r}: we say {ours}, the API server {theirs}", file=sys.stderr)
    record(
        "quantities",
        ".venv/bin/python -m bench.platform.quantities",
        [
            below("read differently (accepted or not, bytes, millicores)", len(comparison.different), "texts", 0),
            above(
                "texts asked of a real API server",
                comparison.accepted + comparison.refused,
                "texts",
                20_000,
                f"kube-apiserver {binaries.KUBERNETES_VERSION}: "
                f"{comparison.accepted} read, {comparison.refused} refused",
            ),
            Row(
                "beyond our caps of length and exponent",
                comparison.capped,
                "texts",
                note="refused; the server is not asked",
            ),
            below(
                "slowest refusal, texts of up to 100,000 characters and exponents of 12 digits among them",
                round(1e3 * comparison.slowest_refusal_seconds, 2),
                "ms",
                50,
            ),
        ],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
