"""What a process does about its memory.

Each test runs in a process of its own: the collector is the whole process's, and threads of other tests may pause it.
"""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent
from typing import Final

IMPORTS: Final = """
import gc, threading
from cotenant.base.process.memory import return_early, pause_garbage_collection
"""


def printed(program: str) -> list[str]:
    """The lines that a program writes in a process that does nothing else."""
    command = [sys.executable, "-c", IMPORTS + dedent(program)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()


def test_cycles_are_not_looked_for_until_the_last_thread_is_done() -> None:
    program = """
        inside, done = threading.Event(), threading.Event()

        @pause_garbage_collection()
        def work():
            inside.set()
            done.wait(30)

        other = threading.Thread(target=work)
        with pause_garbage_collection():
            other.start()
            inside.wait(30)
            print("both", gc.isenabled())
        print("the other alone", gc.isenabled())
        done.set()
        other.join(30)
        print("none", gc.isenabled())
    """
    assert printed(program) == ["both False", "the other alone False", "none True"]


def test_an_error_turns_the_collector_on_again() -> None:
    program = """
        try:
            with pause_garbage_collection():
                1 / 0
        except ZeroDivisionError:
            print(gc.isenabled())
    """
    assert printed(program) == ["True"]


def test_a_collector_that_was_off_stays_off() -> None:
    program = """
        gc.disable()
        with pause_garbage_collection():
            print(gc.isenabled())
        print(gc.isenabled())
    """
    assert printed(program) == ["False", "False"]


def test_memory_of_large_arrays_goes_back_to_the_system_as_soon_as_they_are_freed() -> None:
    # Freeing the first array tells glibc that such arrays come often; by itself it then keeps the second one's 24 MB.
    program = """
        import numpy as np
        from pathlib import Path

        def resident_bytes():
            return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

        def kept_bytes():
            np.ones(3_000_000)
            array = np.ones(3_000_000)
            behind = bytearray(100_000)
            held = resident_bytes()
            del array
            return 24_000_000 - (held - resident_bytes())

        return_early()
        print(kept_bytes() < 2_500_000)
    """
    assert printed(program) == ["True"]
