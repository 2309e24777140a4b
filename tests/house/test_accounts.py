"""What acts on a test cluster has the rights of deploy/: who is given an administrator's client is listed here."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.house.rooms import ROOT

ADMINISTRATOR = re.compile(r"\b(?:admin_client|admin_kubeconfig|system:masters)\b")
"""The ways of tests/cluster to all rights."""
PROXY = "fault_proxy"
"""The common fixture of this name speaks as administrator."""
INSTALLS = "installing is an administrator's act"
SET_UP = "what the test sets up or asserts; the product has another client"
LOOKS = "a person's command that only reads, with that person's kubeconfig"
ALLOWED = {
    "tests/changes/test_doors.py": (1, "the server's address; a person's token takes the certificate's place"),
    "tests/admission/test_life_beside_a_real_cluster.py": (1, INSTALLS),
    "tests/admission/test_policies_on_a_real_cluster.py": (1, LOOKS),
    "tests/admission/test_pod_rules.py": (1, "a group's name that a rule exempts; no cluster"),
    "tests/admission/test_registration_guard.py": (1, INSTALLS),
    "tests/browser/test_cluster_away.py": (1, "a page that only looks; nothing is written"),
    "tests/cli/charts.py": (1, INSTALLS),
    "tests/cli/test_chart_certificates.py": (1, "cert-manager, which is somebody else's"),
    "tests/scheduler_ext/rebalance/test_commands.py": (3, LOOKS),
    "tests/cli/test_explain_node.py": (2, LOOKS),
    "tests/cli/test_install_on_cluster.py": (1, INSTALLS),
    "tests/cli/test_slo_config.py": (1, LOOKS),
    "tests/cli/test_status.py": (1, LOOKS),
    "tests/cli/test_writer_policy.py": (1, "the account's name with all rights: the policy alone may refuse"),
    "tests/dashboard/test_access_dex.py": (1, "the server's address; a person's token takes the certificate's place"),
    "tests/dashboard/test_access_gate.py": (2, "a group's name in a header; no cluster"),
    "tests/enforcer/test_agent_on_cluster.py": (1, SET_UP),
    "tests/faults/test_api_server_loses_and_returns.py": (4, "the client library on objects that no account may write"),
    "tests/faults/test_hostile_objects_on_cluster.py": (1, "a scan reads; the recorder's own account has its tests"),
    "tests/faults/test_hostile_on_cluster.py": (1, "hostile objects are written, and read as a page would"),
    "tests/manager/test_left_out.py": (1, SET_UP),
    "tests/manager/test_notes.py": (3, SET_UP),
    "tests/profiler/node_metric/test_source.py": (1, SET_UP),
    "tests/recommender/test_targets.py": (1, "the page's kubectl commands, by a person"),
    "tests/scheduler_ext/extender/test_process.py": (4, LOOKS),
    "tests/scheduler_ext/reservations/scene.py": (1, INSTALLS),
    "tests/support/acting.py": (1, SET_UP),
    "tests/support/karpenter.py": (1, "Karpenter, which is somebody else's"),
    "tests/upgrade/test_uninstall.py": (2, "a person uninstalls, and everything of every kind is searched"),
}
"""File -> uses of an administrator's client in it, and why that is right."""
LIBRARY = {
    "tests/base/test_kube_events.py",
    "tests/base/test_kube_lease.py",
    "tests/base/test_kube_watch.py",
    "tests/base/test_kube_writes.py",
    "tests/manager/test_sending.py",
}
"""Tests of the client library itself, on objects of their own that no account of ours may write."""


def uses(path: Path) -> int:
    """How often a file takes all rights."""
    text = path.read_text()
    own_ways = len(ADMINISTRATOR.findall(text))
    if PROXY not in text:
        return own_ways
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    if any(function.name == PROXY for function in functions):
        return own_ways
    return own_ways + sum(any(argument.arg == PROXY for argument in f.args.args) for f in functions)


def test_nobody_else_is_given_an_administrators_client() -> None:
    """Take `account`, `certified`, `applier` or `planner` of tests/cluster/accounts.py instead."""
    files = [
        p for p in (ROOT / "tests").rglob("*.py") if p.parent not in (ROOT / "tests/cluster", ROOT / "tests/house")
    ]
    counts = {str(path.relative_to(ROOT)): count for path in files if (count := uses(path))}
    assert set(counts) >= LIBRARY
    assert {name: n for name, n in counts.items() if name not in LIBRARY} == {k: n for k, (n, _) in ALLOWED.items()}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("client = plane.client(account(plane, NAME))\n", 0),
        ("client = plane.admin_client()\n", 1),
        ("def test(control_plane, fault_proxy): ...\n", 1),
        ("def fault_proxy(): ...\ndef test(fault_proxy): ...\n", 0),
    ],
)
def test_a_use_is_counted(tmp_path: Path, text: str, count: int) -> None:
    (tmp_path / "test_new.py").write_text(text)
    assert uses(tmp_path / "test_new.py") == count
