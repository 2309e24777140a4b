"""EDGE: restores every value when the agent is dead or hangs, and is not started again.

    python -m cotenant.enforcer.apply.watchdog --state-dir /var/lib/cotenant/enforcer --ttl-seconds 60

It is a second, small process (a sidecar of the agent, or started by hand) that reads only the journal. The agent
updates the time of its lock file in each tick. If that time has not changed for the TTL, by the watchdog's monotonic
clock, the watchdog restores the values in the journal. An agent that recovers finds its values changed and continues
from there.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cotenant.base.errors import UsageError
from cotenant.base.process.endings import end_on_hang_up
from cotenant.enforcer.apply.apply import Applier
from cotenant.enforcer.apply.journal import LOCK, OriginalValues
from cotenant.enforcer.decide.changes import Done
from cotenant.enforcer.observe.cgroupfs import Hierarchy

LOG_FORMAT: Final = "COTENANT_TELEMETRY__LOG_FORMAT"
"""Environment variable of the setting telemetry.log_format."""


@dataclass(frozen=True, slots=True)
class WatchedAgent:
    """The agent to watch: its state folder, the machine's boot id, and how many seconds it may be silent."""

    folder: Path
    boot_id: str
    ttl_seconds: float


def watch(
    watched: WatchedAgent,
    hierarchy: Hierarchy,
    wait: Callable[[float], bool],
    report: Callable[[list[Done]], None],
    monotonic: Callable[[], float] = time.monotonic,
) -> None:
    """Watch the agent until `wait(seconds)` returns True; pass the values that were restored to `report`."""
    beat, since = _beat(watched.folder), monotonic()
    while not wait(watched.ttl_seconds / 4):
        now = _beat(watched.folder)
        if now != beat:
            beat, since = now, monotonic()
        elif monotonic() - since >= watched.ttl_seconds:
            if done := restore(watched, hierarchy):
                report(done)
            since = monotonic()


def restore(watched: WatchedAgent, hierarchy: Hierarchy) -> list[Done]:
    """Restore every value in the journal and return the results; [] if the journal is empty."""
    try:
        originals = OriginalValues(watched.folder, watched.boot_id)
    except UsageError:  # the agent lives, but stands still
        originals = OriginalValues(watched.folder, watched.boot_id, wait_for_lock=False)
    with originals:
        return Applier(hierarchy, originals, dry_run=False).restore() if originals.notes else []


def _beat(folder: Path) -> int:
    try:
        return (folder / LOCK).stat().st_mtime_ns
    except OSError:
        return 0


def main(arguments: Sequence[str] | None = None) -> None:
    """Watch the agent's journal until SIGTERM or SIGINT; restore its values when the agent is silent for the TTL."""
    about = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser("cotenant.enforcer.apply.watchdog", description=about)
    parser.add_argument("--state-dir", type=Path, default=Path("/var/lib/cotenant/enforcer"))
    parser.add_argument("--cgroup-root", type=Path, default=Path("/sys/fs/cgroup"))
    parser.add_argument("--proc-root", type=Path, default=Path("/proc"))
    parser.add_argument("--ttl-seconds", type=float, default=60.0)
    parser.add_argument("--agent", type=int, default=0, help="pid of the agent; the watchdog ends after the agent")
    options = parser.parse_args(arguments)
    end = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: end.set())
    boot = (options.proc_root / "sys/kernel/random/boot_id").read_text().strip()
    with Hierarchy(options.cgroup_root) as hierarchy:
        wait = _with_agent(end.wait, options.agent, options.ttl_seconds) if options.agent else end.wait
        watch(WatchedAgent(options.state_dir, boot, options.ttl_seconds), hierarchy, wait, _print)


def _with_agent(wait: Callable[[float], bool], agent: int, ttl_seconds: float) -> Callable[[float], bool]:
    """Return `wait`, which also ends once the agent has been gone for longer than it needs to restore its values."""
    alone = 0.0

    def agent_ended(seconds: float) -> bool:
        nonlocal alone
        end_requested = wait(seconds)
        alone = 0.0 if os.getppid() == agent else alone + seconds
        return end_requested or alone >= 2 * ttl_seconds

    return agent_ended


def _print(done: list[Done]) -> None:
    """Print a line for each result, as JSON if the agent's log is JSON; a logging library would need more memory."""
    is_json = os.environ.get(LOG_FORMAT) == "json"
    for result in done:
        text = f"{result.outcome}: {result.path} {result.knob} = {result.value} {result.message}".rstrip()
        line = {"ts": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "level": "warning", "msg": text}
        print(json.dumps(line) if is_json else text, flush=True)  # noqa: T201


if __name__ == "__main__":
    end_on_hang_up()
    main()
