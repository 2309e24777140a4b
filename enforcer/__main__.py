"""EDGE: `python -m cotenant.enforcer` runs the agent without the packages of the command line, to save memory.

Settings come from --config FILE, variables COTENANT_ENFORCER__..., and --set enforcer.key=value; --write enables
writes.
"""

from __future__ import annotations

import signal

if __name__ == "__main__":
    # The imports below take most of a second. A SIGTERM meanwhile waits until `Ending` unblocks it: it would otherwise
    # end the agent (or, as process 1 of a container, be lost), and what a killed predecessor had set would stay.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))

    from cotenant.base.process.endings import end_on_hang_up

    end_on_hang_up()

import argparse
import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import structlog

from cotenant.base.errors import CotenantError, UsageError
from cotenant.base.logs.telemetry import configure_logging
from cotenant.base.settings.base import SettingSections
from cotenant.base.settings.load import Loaded, load
from cotenant.base.settings.sections import TelemetrySettings
from cotenant.enforcer.apply.handover import AgentStop, node_lock
from cotenant.enforcer.apply.watchdog import LOG_FORMAT
from cotenant.enforcer.assembly import assemble_agent, repeat_in_background
from cotenant.enforcer.optional_parts import device_driver, run_nri_plugin
from cotenant.enforcer.settings import EnforcerSettings
from cotenant.settings import Settings

QUIET_SECONDS: Final = 0.1
"""Shortest time between two ticks."""
ENDING: Final = (signal.SIGTERM, signal.SIGINT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the agent until SIGTERM or SIGINT and return the exit code."""
    try:
        loaded = load_settings(arguments)
        configure_logging(loaded.settings.section(TelemetrySettings))
        return run(loaded.settings)
    except CotenantError as error:
        sys.stderr.write(f"error: {error.message}\n" + (f"fix: {error.fix}\n" if error.fix else ""))
        return error.exit_code


def load_settings(arguments: Sequence[str] | None) -> Loaded[Settings]:
    """Return the effective settings for these command-line arguments."""
    parser = argparse.ArgumentParser("python -m cotenant.enforcer", description="Run the cotenant agent of one node.")
    parser.add_argument("--config", metavar="FILE", help="settings file (YAML)")
    parser.add_argument("--set", metavar="SECTION.KEY=VALUE", action="append", default=[], help="override one setting")
    parser.add_argument("--write", action="store_true", help="write to cgroups and evict; without it nothing changes")
    options = parser.parse_args(arguments)
    flags: dict[str, Any] = {"enforcer.dry_run": False} if options.write else {}
    for word in options.set:
        path, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"--set {word!r} has no '='", fix="Write --set section.key=value.")
        flags[path] = value
    file = options.config or os.environ.get("COTENANT_CONFIG")
    return load(Settings(), Path(file) if file else None, os.environ, flags)


def run(settings: SettingSections) -> int:
    """Run the agent in this process's main thread until SIGTERM or SIGINT; return the exit code."""
    own, telemetry = settings.section(EnforcerSettings), settings.section(TelemetrySettings)
    configure_logging(telemetry)
    with Ending() as ending, node_lock(settings, ending.wait) as turn:
        if turn is None:
            return 0
        agent_stop = AgentStop(ending, turn, own)
        with (
            assemble_agent(settings, os.environ) as assembly,
            watchdog(own, telemetry),
            device_driver(settings, assembly) as claimed_cpus,
            run_nri_plugin(settings, assembly.agent, agent_stop, claimed_cpus),
        ):
            if assembly.reporter:
                assembly.reporter.start()
            try:
                assembly.agent.run(agent_stop.wait, lambda: agent_stop.hands_over, lambda: agent_stop.to_stranger)
            finally:
                if assembly.reporter:
                    assembly.reporter.stop(None if agent_stop.hands_over else assembly.agent.note_withdrawal())
    return 0


@contextlib.contextmanager
def watchdog(settings: EnforcerSettings, telemetry: TelemetrySettings) -> Iterator[None]:
    """Run the watchdog process inside the context if enabled, in a session of its own: it must outlive the agent.

    A watchdog that ends before the agent is started again, at most once in the time that it lets the agent be silent.
    """
    if settings.dry_run or not settings.watchdog_seconds:
        yield
        return
    options = {
        "--state-dir": settings.state_dir,
        "--cgroup-root": settings.cgroup_root,
        "--proc-root": settings.proc_root,
        "--ttl-seconds": str(settings.watchdog_seconds),
        "--agent": str(os.getpid()),
    }
    arguments = [word for pair in options.items() for word in pair]
    command = [sys.executable, "-m", "cotenant.enforcer.apply.watchdog", *arguments]
    env = {**os.environ, LOG_FORMAT: telemetry.log_format}

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, env=env)  # noqa: S603 - our own

    process = start()

    def replace_ended() -> None:
        nonlocal process
        if (code := process.poll()) is not None:
            structlog.get_logger(__name__).error("watchdog ended and is started again", exit_code=code)
            with contextlib.suppress(OSError):  # no memory or no process id is free: told above, and tried again
                process = start()

    try:
        with repeat_in_background("watchdog", settings.watchdog_seconds, replace_ended):
            yield
    finally:
        process.terminate()
        process.wait(10)


class Ending:
    """The handler of SIGTERM and SIGINT inside a context; it writes them to a pipe, so that no signal is lost.

    A second pipe, which `wake` writes to, ends a wait early without ending the agent. `signal.sigtimedwait` would be
    simpler, but CPython's reports a signal that nobody sent if the process was stopped for longer than the wait and
    then continued.
    """

    def __enter__(self) -> Self:
        self.numbers: set[int] = set()
        """Signals that came."""
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._bell, self._ring = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, lambda *_: None) for number in ENDING}
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)  # what came while the agent started comes now
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(-1)
        for pipe in (self._read, self._write, self._bell, self._ring):
            os.close(pipe)

    def wait(self, seconds: float) -> bool:
        """Wait for these seconds or until woken; return whether a signal to end has arrived by then."""
        if not self.numbers:
            self.pause(seconds)
        return bool(self.numbers)

    def pause(self, seconds: float) -> None:
        """Wait for these seconds, until woken, or until the next signal, even if a signal has already arrived."""
        quiet = min(seconds, QUIET_SECONDS)
        if not self._any([self._read], quiet):
            self._any([self._read, self._bell], seconds - quiet)
        with contextlib.suppress(BlockingIOError):
            self.numbers.update(os.read(self._read, 1 << 10))
        with contextlib.suppress(BlockingIOError):
            os.read(self._bell, 1 << 16)

    def wake(self) -> None:
        """End the current or next wait, after a short minimum wait, so that a burst of events causes a single tick."""
        with contextlib.suppress(BlockingIOError):  # full: it is awake
            os.write(self._ring, b"x")

    def _any(self, pipes: list[int], seconds: float) -> bool:
        return self._read in select.select(pipes, [], [], seconds)[0]


if __name__ == "__main__":
    sys.exit(main())
