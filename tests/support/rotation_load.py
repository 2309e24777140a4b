"""Calls at a steady rate over TLS while somebody replaces certificates: half on kept connections, half on new ones.

No call is tried again, so that one that fails is seen; `bench certificate_rotation` makes ten thousand of them.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cotenant.admission.webhook_server.authority import CertificatePolicy, Pair
from cotenant.admission.webhook_server.certificates import CertificateController, FolderStore

WORKERS = 8
LIFE_SECONDS = 600
POLICY = CertificatePolicy(("127.0.0.1", "localhost"), LIFE_SECONDS / 86_400, LIFE_SECONDS / 86_400, 60)
STEPS_SECONDS = (410.0, 480.0, 550.0)
"""How old an authority of `POLICY` is when its successor joins it, signs, and is alone. What is issued ahead of time is
valid at once, being backdated by an hour: enough for six authorities, one after another."""

Connect = Callable[[], http.client.HTTPConnection]
Ask = Callable[[http.client.HTTPConnection], None]
"""One call; raises OSError, HTTPException or AssertionError when it fails."""


@dataclass
class LoadOutcome:
    """What became of the calls so far."""

    answered: int = 0
    connections: int = 0
    failures: list[str] = field(default_factory=list)

    def has_ended(self, calls: float) -> bool:
        """Whether so many calls have an outcome."""
        return self.answered + len(self.failures) >= calls


@dataclass(frozen=True)
class RotationLoad:
    """So many calls at a rate (1/s), from eight threads. connect: a connection that trusts what callers trust now."""

    connect: Connect
    ask: Ask
    calls: int
    rate: float = 100.0

    def run(self, rotate: Callable[[int], None], rotations: int) -> LoadOutcome:
        """Call; meanwhile rotate(0), rotate(1)... are called from this thread, spread evenly over the calls."""
        outcome, lock, begin = LoadOutcome(), threading.Lock(), time.monotonic() + 0.1
        threads = [threading.Thread(target=self._work, args=(n, begin, outcome, lock)) for n in range(WORKERS)]
        for thread in threads:
            thread.start()
        for number in range(rotations):
            due = (number + 1) * self.calls / (rotations + 1)
            while any(t.is_alive() for t in threads) and not outcome.has_ended(due):
                time.sleep(0.01)
            rotate(number)
        for thread in threads:
            thread.join()
        return outcome

    def _work(self, worker: int, begin: float, outcome: LoadOutcome, lock: threading.Lock) -> None:
        lasting = self.connect()
        for number in range(worker, self.calls, WORKERS):
            time.sleep(max(0.0, begin + number / self.rate - time.monotonic()))
            fresh = number // WORKERS % 2 == 1
            connection = self.connect() if fresh else lasting
            failure = self._failure(connection)
            if fresh:
                connection.close()
            with lock:
                outcome.connections += fresh
                outcome.answered += not failure
                outcome.failures += [failure] if failure else []
        lasting.close()

    def _failure(self, connection: http.client.HTTPConnection) -> str:
        try:
            self.ask(connection)
        except (OSError, http.client.HTTPException, AssertionError) as error:
            connection.close()
            return f"{type(error).__name__}: {error}"
        return ""


class RollingAuthority:
    """The webhook's own authority, through successor after successor; time goes as its caller says."""

    def __init__(self, folder: Path, show: Callable[[Pair], None]) -> None:
        """Issues the first certificate and shows it."""
        self._now_seconds, self._steps = time.time(), 0
        self._began_seconds = self._now_seconds
        self._controller = CertificateController(FolderStore(folder), POLICY, self, show, None)
        self.trusted = self._controller.step().bundle
        """What callers trust. They hear of a bundle only after the certificate that comes with it is shown."""

    def now_seconds(self) -> float:
        """Unix time of the authority's world; it stands still between two steps."""
        return self._now_seconds

    def step(self) -> None:
        """The next step of the rotation: a successor joins, signs, is alone."""
        cycle, step = divmod(self._steps, len(STEPS_SECONDS))
        self._now_seconds = self._began_seconds + cycle * STEPS_SECONDS[0] + STEPS_SECONDS[step]
        self._steps += 1
        self.trusted = self._controller.step().bundle


class AheadClock:
    """The machine's clock, which may be put ahead."""

    ahead_seconds = 0.0

    def now_seconds(self) -> float:
        """Unix time, UTC."""
        return time.time() + self.ahead_seconds


def replace_files(source: Path, target: Path) -> None:
    """Copy certificate, authorities and key in an order that leaves a pair that does not fit for a moment."""
    for name in ("tls.crt", "ca.crt", "tls.key"):
        (target / name).write_bytes((source / name).read_bytes())
        time.sleep(0.02)
