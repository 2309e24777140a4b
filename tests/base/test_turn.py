"""One at a time, across processes: who waits too long is told who has it; a process that dies leaves it free."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cotenant.base.errors import StoreBusy, StoreError
from cotenant.base.ledger.ledger import holder, turn
from cotenant.base.process.files import try_lock

pytestmark = pytest.mark.server

HOLD = """
import sys, time
from pathlib import Path
from cotenant.base.ledger.ledger import turn
with turn(Path(sys.argv[1]), "an apply", 5.0):
    print("held", flush=True)
    time.sleep(600)
"""


def holding(path: Path) -> subprocess.Popen[str]:
    """Another process that has the lock."""
    popen = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert popen.stdout is not None and popen.stdout.readline() == "held\n"
    return popen


def test_a_second_process_is_told_who_has_it_and_a_killed_one_frees_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger.lock"
    other = holding(path)
    try:
        with pytest.raises(StoreBusy, match=f"process {other.pid} on .* an apply"), turn(path, "mine", 0.1):
            pass
    finally:
        os.kill(other.pid, signal.SIGKILL)
        other.wait(60)
    with turn(path, "mine", 60.0):
        turn_holder = holder(path)
        assert turn_holder is not None and (turn_holder.pid, turn_holder.what) == (os.getpid(), "mine")
    assert holder(path) is None


@pytest.mark.usefixtures("without_locks")
def test_a_file_system_without_locks_is_an_error_in_words(tmp_path: Path) -> None:
    with (
        pytest.raises(StoreError, match=r"ledger\.lock cannot be locked: No locks available") as caught,
        turn(tmp_path / "ledger.lock", "mine", 60.0),
    ):
        pass
    assert caught.value.fix.endswith("use a local volume, or s3://.")


@pytest.mark.usefixtures("without_locks")
def test_who_keeps_nothing_in_a_bucket_is_advised_to_use_a_local_volume_alone(tmp_path: Path) -> None:
    with (
        pytest.raises(StoreError, match=r"socket\.lock cannot be locked") as caught,
        (tmp_path / "lock").open("w") as file,
    ):
        try_lock(file.fileno(), tmp_path / "socket.lock")
    assert caught.value.fix.endswith("use a local volume.")


def test_two_threads_of_one_process_take_turns_too(tmp_path: Path) -> None:
    path = tmp_path / "ledger.lock"
    with turn(path, "first", 1.0), pytest.raises(StoreBusy, match="first"), turn(path, "second", 0.05):
        pass
    with turn(path, "third", 1.0):
        assert holder(path) is not None
