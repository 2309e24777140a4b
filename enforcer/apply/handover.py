"""EDGE: one agent writes on a node, and the next one takes over from it without a gap.

    SIGTERM while another agent stands by    the agent ends at once; all values stay, the next agent has the journal
    ... with another state folder            it ends at once; only best effort's values stay, the others are restored
    SIGTERM, and no agent stands by          it keeps running for enforcer.handover_seconds, then restores everything
    SIGINT, or handover_seconds is 0         it restores everything at once

Nothing keeps running on a node after a container has ended except another container. So the next agent must run before
this one ends (a DaemonSet with maxSurge): it stands by, ready, until the node is free.

Two file locks of the kernel show which agents run. They are on the cgroup tree, not in the state folder, so that agents
with different folders see each other; the kernel releases them however the process dies. The agent that writes locks
the folder that has the kubelet's tree, an agent that stands by locks `cgroup.procs` in it. An agent in a dry run writes
nothing: it takes neither lock, and no agent leaves values to it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from cotenant.base.errors import UsageError
from cotenant.base.http.health import Checks, HealthServer
from cotenant.base.logs.metrics import Metrics
from cotenant.base.settings.base import SettingSections
from cotenant.base.settings.sections import TelemetrySettings
from cotenant.base.version import __version__
from cotenant.enforcer.apply.journal import LOCK
from cotenant.enforcer.settings import EnforcerSettings

if TYPE_CHECKING:
    from cotenant.enforcer.__main__ import Ending

POLL_SECONDS: Final = 0.2
"""Time between two checks whether the node is free."""
_NONE: Final = -1


class NodeLock:
    """File locks that let only one agent write on this node; for use by a single thread."""

    def __init__(self, settings: EnforcerSettings) -> None:
        root = Path(settings.cgroup_root)
        self._tree = (root / "cpu" if (root / "cpu").is_dir() else root) / settings.cgroup_base.strip("/")
        self._state = Path(settings.state_dir)
        self._state_lock = self._state / LOCK
        self._writes = not settings.dry_run
        self._turn = self._waiting = self._heir = _NONE

    def take(self) -> bool:
        """Lock the node unless another agent writes on it or uses this state folder; return whether that succeeded."""
        if self._writes and self._turn == _NONE:
            free, self._turn = _try_lock_path(self._tree)
            if not free:
                return False
        free, state_lock = _try_lock_path(self._state_lock)
        _unlock(state_lock)  # the journal takes it
        if free:
            _unlock(self._waiting)
            _unlock(self._heir)
            self._waiting = self._heir = _NONE
        else:
            _unlock(self._turn)
            self._turn = _NONE
        return free

    def stand_by(self) -> None:
        """Show the agent that writes on this node that this agent waits to take over its values."""
        if self._writes and self._waiting == _NONE:
            _, self._waiting = _try_lock_path(self._tree / "cgroup.procs")
            _, self._heir = _try_lock_path(self._state)

    def inherited_fields(self) -> bool:
        """Return whether the waiting agent uses the same state folder, so that it will have the journal."""
        free, lock = _try_lock_path(self._state)
        _unlock(lock)
        return not free

    def awaited(self) -> bool:
        """Return whether another agent on this node waits to take over from this one."""
        free, lock = _try_lock_path(self._tree / "cgroup.procs")
        _unlock(lock)
        return not free

    def close(self) -> None:
        """Release the node so that another agent may take it over."""
        for lock in (self._turn, self._waiting, self._heir):
            _unlock(lock)
        self._turn = self._waiting = self._heir = _NONE


def _try_lock_path(path: Path) -> tuple[bool, int]:
    """Try to lock a path; return whether it is free, and the lock. A path that cannot be opened counts as free."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return True, _NONE
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return False, _NONE
    return True, file


def _unlock(file: int) -> None:
    if file != _NONE:
        os.close(file)


@contextlib.contextmanager
def node_lock(settings: SettingSections, wait: Callable[[float], bool]) -> Iterator[NodeLock | None]:
    """Yield the node's lock once no other agent has it, None if stopped before; UsageError if waiting is disabled."""
    lock = NodeLock(settings.section(EnforcerSettings))
    try:
        is_ours = lock.take()
        if not is_ours:
            if not settings.section(EnforcerSettings).handover_seconds:
                raise UsageError(
                    "another agent runs on this node",
                    fix="Stop it first, or set enforcer.handover_seconds to stand by until it stops.",
                )
            structlog.get_logger(__name__).info("standing by", reason="another agent runs on this node")
            metrics = Metrics(__version__, platform.python_version())
            # Ready meanwhile: only then a rollout goes on to end the other agent.
            with HealthServer(Checks(), metrics, settings.section(TelemetrySettings)):
                while not (is_ours := lock.take()):
                    lock.stand_by()
                    if wait(POLL_SECONDS):
                        break
        yield lock if is_ours else None
    finally:
        lock.close()


class AgentStop:
    """A signal's effect: the agent must end (`asked`) and may hand over, `to_stranger` to one without its journal."""

    def __init__(self, signals: Ending, lock: NodeLock, settings: EnforcerSettings) -> None:
        self._signals, self._turn = signals, lock
        self._seconds = 0.0 if settings.dry_run else settings.handover_seconds
        self._since: float | None = None
        self.asked = self.hands_over = self.to_stranger = False

    def wait(self, seconds: float) -> bool:
        """Wait for the next tick; return whether the agent must end instead."""
        if self._since is None:
            came = self._signals.wait(seconds)
        else:
            self._signals.pause(seconds)
            came = True
        if came and signal.SIGINT not in self._signals.numbers and self._seconds:
            now = time.monotonic()
            self._since = now if self._since is None else self._since
            self.hands_over = self._turn.awaited()
            self.to_stranger = self.hands_over and not self._turn.inherited_fields()
            came = self.hands_over or now - self._since >= self._seconds
        self.asked = came
        return self.asked

    def wake(self) -> None:
        """End the current or the next wait early, after a short minimum wait."""
        self._signals.wake()
