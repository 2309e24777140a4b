"""The product's own work under load, with all policies: none of it is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bench.admission.guarded_hour import WrittenBy, played, rows, written_by_us
from tests.cluster import needing
from tests.support.invariants import Violation

MINUTES = float(os.environ.get("GUARDED_MINUTES", "10"))
"""Of wall time; `GUARDED_MINUTES=60 make soak ARGS=tests/guards/test_live_hour.py` is the whole hour."""


def entry(user: str, code: int, resource: str = "nodes", group: str = "") -> str:
    target = {"resource": resource, "subresource": "status", "apiGroup": group}
    response_status = {"code": code, "message": "no" if code == 403 else ""}
    return json.dumps(
        {"user": {"username": user}, "verb": "patch", "objectRef": target, "responseStatus": response_status}
    )


def test_of_an_audit_log_the_writes_of_our_accounts_count_and_no_questions_about_rights() -> None:
    manager = "system:serviceaccount:cotenant:cotenant-manager"
    lines = [
        entry(manager, 200),
        entry(manager, 403),
        entry("ann", 403),
        entry(manager, 201, "selfsubjectaccessreviews", "authorization.k8s.io"),
    ]
    written = list(written_by_us(lines))
    assert written == [
        WrittenBy("cotenant-manager", "patch", "nodes/status", 200, ""),
        WrittenBy("cotenant-manager", "patch", "nodes/status", 403, "no"),
    ]
    # Two writes in a minute, one of which is refused: both goals are missed.
    broken = Violation("hardware-given-once", 0.0, "n1", "b makes it 2 of CPU 3")
    enough, refused, invariants = rows(written, [broken], 1.0)
    assert (enough.value, enough.met, refused.value, refused.met) == (2, False, 1, False)
    assert (invariants.value, invariants.met) == (1, False) and "CPU 3" in invariants.note
    assert refused.note == "cotenant-manager patch nodes/status: no"


@pytest.mark.soak
@pytest.mark.cluster
def test_nothing_that_the_product_does_on_a_live_cluster_is_refused_or_breaks_an_invariant(tmp_path: Path) -> None:
    needing.kubernetes()
    enough, refused, invariants = rows(*played(tmp_path, MINUTES), MINUTES)
    assert enough.met, enough
    assert refused.met, refused
    assert invariants.met, invariants
