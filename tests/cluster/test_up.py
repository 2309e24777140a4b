from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import up
from tests.cluster.control_plane import ControlPlane

pytestmark = pytest.mark.server

ROOT = Path(__file__).parents[2]


def command(folder: Path, *arguments: str) -> str:
    line = [sys.executable, "-m", "tests.cluster.up", *arguments, "--folder", str(folder)]
    return subprocess.run(line, cwd=ROOT, check=True, capture_output=True, text=True, timeout=300).stdout


def test_a_cluster_for_a_person_outlives_its_command_and_is_ended_by_the_other(
    tmp_path: Path, control_plane: ControlPlane
) -> None:
    folder = tmp_path / "cluster"
    try:
        assert "3 fake nodes" in command(folder, "up", "--nodes", "3")
        nodes = control_plane.kubectl("get", "nodes", "-o", "name", kubeconfig=folder / "kubeconfig")
        assert nodes.split() == ["node/node-0", "node/node-1", "node/node-2"]
        pids = [pid for pid, _ in up.recorded(folder)]
        assert len(pids) == 5
        assert "up already" in command(folder, "up", "--nodes", "3")
        assert [pid for pid, _ in up.recorded(folder)] == pids
        assert all(control_plane.servers[name].running for name in control_plane.servers)
    finally:
        text = command(folder, "down")
    assert "5 processes" in text
    assert not folder.exists()
    assert [pid for pid in pids if up.start_time(pid)] == []
    assert "No cluster was up" in command(folder, "down")


def test_a_record_of_processes_that_are_gone_ends_nobody(tmp_path: Path) -> None:
    (tmp_path / up.RECORD).write_text(json.dumps({"etcd": [os.getpid(), up.start_time(os.getpid()) - 1]}))
    assert not up.alive(tmp_path)
    assert "No cluster was up" in command(tmp_path, "down")
    assert not tmp_path.exists()


def test_a_record_that_cannot_be_read_is_no_record(tmp_path: Path) -> None:
    (tmp_path / up.RECORD).write_text('{"etcd": ')
    assert up.recorded(tmp_path) == []
    assert not up.alive(tmp_path)
