"""One server process of a test cluster: started on a free port, watched until it is ready, never left behind.

A process ends with the one that started it, even when that is killed: the kernel is asked to send SIGKILL then
(PR_SET_PDEATHSIG, which is bound to the starting thread: start servers from a main thread).
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

READY_SECONDS = 120.0
"""A ceiling for a very busy machine, not an expectation."""
_PORTS = range(20_000, 32_000)
"""Below the kernel's range for outgoing connections, which would take a port between our look and the server's bind."""
_LAUNCH = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""


@cache
def _starter() -> ThreadPoolExecutor:
    """One thread that lives as long as we do: the end of a starting thread counts as the parent's death."""
    return ThreadPoolExecutor(1, "starter")


COLLECT_AT_PERCENT = "400"
"""GOGC of Go programs: they live for minutes, and processor time is scarcer than memory."""


class PortTaken(RuntimeError):
    """Somebody else bound the port first; another one may be tried."""


@dataclass(slots=True)
class Server:
    """A program with its arguments; output goes to `log`. `keep`: outlive the process that started it."""

    name: str
    command: Sequence[str]
    log: Path
    keep: bool = False
    process: subprocess.Popen[bytes] | None = None
    _from: int = field(default=0)

    def start(self) -> None:
        """Start it; a second start after `stop` runs the same command."""
        command = [str(word) for word in self.command]
        if not self.keep:
            command = [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), *command]
        self._from = self.log.stat().st_size if self.log.exists() else 0
        self.process = _starter().submit(self._begun, command).result()

    def _begun(self, command: list[str]) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={"GOGC": COLLECT_AT_PERCENT, **os.environ},
            )  # fmt: skip

    def wait_until(self, ready: Callable[[], bool], seconds: float = READY_SECONDS) -> None:
        """Until `ready` is true; PortTaken or RuntimeError with the log's end when the process ends before."""
        deadline = time.monotonic() + seconds
        while not ready():
            if self.process is not None and self.process.poll() is not None:
                kind = PortTaken if "address already in use" in self.written() else RuntimeError
                raise kind(f"{self.name} ended with {self.process.returncode}:\n{self.written()[-3000:]}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} was not ready within {seconds:g} s:\n{self.written()[-3000:]}")
            time.sleep(0.02)

    def written(self) -> str:
        """What it has written since its last start."""
        with self.log.open("rb") as log:
            log.seek(self._from)
            return log.read().decode(errors="replace")

    @property
    def running(self) -> bool:
        """Started and not ended."""
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self.process is not None
        return self.process.pid

    def send(self, number: signal.Signals) -> None:
        """Send a signal to it; nothing happens when it has ended."""
        if self.running:
            os.kill(self.pid, number)

    def pause(self) -> None:
        """SIGSTOP, and wait until it has come to a halt: it keeps its connections and says nothing."""
        self.send(signal.SIGSTOP)
        while self.running and state(self.pid) != "T":
            time.sleep(0.001)

    def resume(self) -> None:
        """SIGCONT."""
        self.send(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and wait for its end: what it had not written is lost."""
        self.send(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()

    def stop(self, seconds: float = 10.0) -> None:
        """SIGTERM, then SIGKILL; a second call does nothing."""
        self.resume()
        self.send(signal.SIGTERM)
        if self.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(seconds)
        self.kill()


def state(pid: int) -> str:
    """The kernel's letter for what a process does: R runs, S sleeps, T is stopped, Z has ended; empty: gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def free_port() -> int:
    """A port of the loopback that nobody listens on; a race is seen by `Server.wait_until`."""
    for port in random.SystemRandom().sample(_PORTS, 200):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no free port between 20000 and 32000")
