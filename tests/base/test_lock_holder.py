"""Who waits for a lock in vain names the process that has it, and says what to do about one that is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant.base.errors import StoreError
from cotenant.base.process.files import LockingProcess, locking_process
from cotenant.base.store.files import Folder

NAME = "prod/.lock"
HOLDING = """
import sys
from cotenant.base.store.files import Folder
with Folder(sys.argv[1]).exclusive(sys.argv[2]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def other(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has the lock until its input ends."""
    command = [sys.executable, "-c", HOLDING, tmp_path.as_uri(), NAME]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process
        process.kill()


def refusal(folder: Path) -> StoreError:
    """The error of who waits for a fifth of a second."""
    with pytest.raises(StoreError) as refused, Folder(folder.as_uri()).exclusive(NAME, patience_seconds=0.2):
        pass
    return refused.value


@pytest.mark.slow
def test_a_stopped_process_keeps_its_lock_and_is_named_with_the_way_out(
    tmp_path: Path, other: subprocess.Popen[str]
) -> None:
    error = refusal(tmp_path)
    assert error.message.startswith(f"process {other.pid} has held {tmp_path / NAME} for ")
    assert error.fix == "Wait for the other process to end."
    other.send_signal(signal.SIGSTOP)
    os.waitpid(other.pid, os.WUNTRACED)
    assert f"(kill -CONT {other.pid}) or end it (kill -KILL {other.pid})" in refusal(tmp_path).fix
    other.send_signal(signal.SIGCONT)
    other.communicate("")
    with Folder(tmp_path.as_uri()).exclusive(NAME, patience_seconds=0.2):
        assert locking_process(tmp_path / NAME) == LockingProcess(os.getpid(), stopped=False)
    assert locking_process(tmp_path / NAME) is None


def test_a_lock_that_is_not_there_has_no_process(tmp_path: Path) -> None:
    assert locking_process(tmp_path / NAME) is None
