"""A small form of `bench/platform/quantities.py`, which asks many more."""

from __future__ import annotations

import os
import time

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.cluster.quantities import compare, read, texts


def test_the_api_server_reads_quantities_as_we_do(control_plane: ControlPlane) -> None:
    seed = 7 if os.environ.get("CI") else time.time_ns()
    samples = [
        *texts(600, seed),
        "0",
        "100m",
        "1.5Gi",
        "16Ei",
        "1e3",
        "-0",
        "Ki",
        ".",
        "\xa05",
        "\t5",
        "5\n",
        -1,
        1.5,
        5,
    ]
    comparison = compare(control_plane, samples)
    assert comparison.different == [], f"seed {seed}"
    # 85 in 100 texts are numbers with an ending of Kubernetes, a sixth of them negative; the rest are mostly refused.
    assert comparison.accepted > 250 and comparison.refused > 50
    assert comparison.capped < 40


@pytest.mark.parametrize("text", ["1e999999", "1e-999999", "0" * 100_000, "1e" + "9" * 100_000])
def test_what_the_api_server_may_stall_on_is_refused_at_once(text: str) -> None:
    start = time.process_time()
    assert read(text) is None
    assert time.process_time() - start < 0.1
