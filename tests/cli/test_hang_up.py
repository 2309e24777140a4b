"""A terminal that is closed ends a program as SIGTERM does: in good order, and with nothing left behind."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant.base.settings.sections import ManagerSettings
from cotenant_lab.simulation.api_server import EmbeddedServer
from tests.cluster.waiting import wait_for

pytestmark = [pytest.mark.server, pytest.mark.slow]

ENTRY = "from cotenant.cli.main import run; run()"


@pytest.fixture(autouse=True)
def _not_behind_nohup() -> Iterator[None]:
    """A suite behind nohup ignores the signal, and so would every program that it starts: those wait for ever."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


class OnATerminal:
    """A program on a terminal of its own; nobody reads what it writes but `await_text`."""

    def __init__(self, *command: str, **env: str) -> None:
        self.pid, self._leader = pty.fork()
        if not self.pid:
            os.execve(command[0], command, {**os.environ, **env})

    def await_text(self, text: str) -> None:
        """Return once it has written the text."""
        written, end = "", time.monotonic() + 180
        while text not in written:
            assert time.monotonic() < end, written
            if select.select([self._leader], [], [], 1)[0]:
                written += os.read(self._leader, 65536).decode(errors="replace")

    def close_terminal(self) -> int:
        """Exit code of the program; below 0: that signal ended it."""
        os.close(self._leader)
        ended = [0, 0]

        def has_ended() -> bool:
            ended[:] = os.waitpid(self.pid, os.WNOHANG)
            return ended[0] == self.pid

        try:
            wait_for("its end", has_ended, 60)
        except AssertionError:
            os.kill(self.pid, signal.SIGKILL)
            raise
        return os.waitstatus_to_exitcode(ended[1])


def test_a_recorder_whose_terminal_is_closed_frees_its_lease(tmp_path: Path) -> None:
    with EmbeddedServer() as server:
        namespace = {"metadata": {"name": ManagerSettings().namespace}}
        server.state.put(("", "namespaces"), ("", ManagerSettings().namespace), namespace)
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        place = ("--kubeconfig", str(kubeconfig), "--store", (tmp_path / "store").as_uri(), "--port", "0")
        recorder = OnATerminal(sys.executable, "-c", ENTRY, "serve", "recorder", *place)
        recorder.await_text("This recorder stores usage of")

        def holders() -> list[str]:
            leases = server.state.items(("coordination.k8s.io", "leases"))
            return [lease["spec"].get("holderIdentity") or "" for _, lease in leases]

        wait_for("the Lease", lambda: any(holders()), 60)
        assert recorder.close_terminal() == 0
        assert holders() == [""]


@pytest.mark.parametrize("until", ["Store history", "use your own data"])
def test_a_demo_whose_terminal_is_closed_leaves_no_file(tmp_path: Path, until: str) -> None:
    size = ("--nodes", "4", "--workloads", "12", "--days", "8", "--no-browser", "--port", "0")
    places = {"TMPDIR": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    demo = OnATerminal(sys.executable, "-c", ENTRY, "demo", *size, **places)
    demo.await_text(until)
    assert list(tmp_path.glob("cotenant-demo-*"))
    assert demo.close_terminal() == (130 if until == "Store history" else 0)
    assert not list(tmp_path.glob("cotenant-demo-*"))


BODY = """
import os, signal, sys, threading
from cotenant.base.process.endings import end_on_hang_up
end_on_hang_up()
ended = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: ended.set())
print("waiting", flush=True)
while not ended.wait(0.1):
    pass
print("a last line", flush=True)
print("another one", file=sys.stderr, flush=True)
sys.exit(7)
"""


def test_what_is_written_to_a_terminal_that_is_gone_is_no_fault() -> None:
    program = OnATerminal(sys.executable, "-c", BODY)
    program.await_text("waiting")
    assert program.close_terminal() == 7


def test_a_signal_without_a_closed_terminal_ends_it_too_and_its_words_arrive() -> None:
    with subprocess.Popen([sys.executable, "-c", BODY], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None and program.stdout.readline() == "waiting\n"
        program.send_signal(signal.SIGHUP)
        assert program.stdout.read() == "a last line\n"
    assert program.returncode == 7


def test_a_program_behind_nohup_stays() -> None:
    ignoring = f"import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n{BODY}"
    with subprocess.Popen([sys.executable, "-c", ignoring], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None and program.stdout.readline() == "waiting\n"
        program.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            program.wait(1)
        program.send_signal(signal.SIGTERM)
        assert program.wait(30) == 7
