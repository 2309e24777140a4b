"""What continuous integration runs, on a Makefile of the test's own: order, failures, and nothing that outlives it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.house.rooms import ROOT

TARGETS = ("cluster-binaries", ".venv/.test", "system", "check", "site", "test", "test-cluster", "test-slow")
RECORD = "@echo $@ >> ran"


def begin(folder: Path, **recipes: str) -> subprocess.Popen[str]:
    """`.ci/run` in a folder whose Makefile records each target; `recipes` replace those of single targets."""
    (folder / ".ci").mkdir()
    shutil.copy2(ROOT / ".ci" / "run", folder / ".ci" / "run")
    rules = [f"{target}:\n\t{recipes.get(target, RECORD)}\n" for target in TARGETS]
    (folder / "Makefile").write_text(f".PHONY: {' '.join(TARGETS)}\n" + "".join(rules))
    pipe = subprocess.PIPE
    return subprocess.Popen([folder / ".ci" / "run"], stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def test_everything_runs_once_and_tests_on_a_cluster_wait_for_its_programs(tmp_path: Path) -> None:
    programs = "@while ! grep -qx test ran; do sleep .02; done; echo $@ >> ran"
    done = begin(tmp_path, **{"cluster-binaries": programs})
    assert done.wait(timeout=60) == 0
    ran = (tmp_path / "ran").read_text().split()
    assert sorted(ran) == sorted(TARGETS)
    assert ran.index("cluster-binaries") < ran.index("test-cluster") < ran.index("test-slow") == len(ran) - 1


@pytest.mark.parametrize("target", TARGETS)
def test_whatever_fails_ends_the_run_with_its_words(tmp_path: Path, target: str) -> None:
    run = begin(tmp_path, **{target: "@echo it broke; exit 3"})
    out, err = run.communicate(timeout=60)
    assert run.returncode != 0 and "it broke" in out and target in out + err


def test_an_ended_run_leaves_no_process(tmp_path: Path) -> None:
    pipe = tmp_path / "alive"
    os.mkfifo(pipe)
    # each opens the pipe for writing as long as it lives: its reader sees the end when the last one is gone
    waits = f"@(echo $@; exec sleep 60) > {pipe}"
    run = begin(tmp_path, **{"cluster-binaries": waits, "check": waits, "site": waits, "test": waits})
    with pipe.open() as reader:
        started_jobs = {reader.readline().strip() for _ in range(4)}
        assert started_jobs == {"cluster-binaries", "check", "site", "test"}
        run.send_signal(signal.SIGTERM)  # SIGINT is ignored where a shell began the suite in the background
        assert reader.read() == ""
    assert run.wait(timeout=60) != 0
