"""Processes that act and are killed (SIGKILL, by themselves) at a named gap; forked, so that they start fast."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from cotenant.actions.accepting import AcceptanceTerms, Actions
from cotenant.actions.around import Person
from cotenant.actions.journal import ChangeJournal
from cotenant.actions.settling import verify
from cotenant.actions.watching import Watcher
from cotenant.edges.clock import ShiftedClock
from cotenant.edges.kube import connect
from cotenant.edges.ledger import Ledger
from cotenant.model.desk import Method
from cotenant.model.identity import WorkloadRef
from cotenant.settings.actions import ActionSettings
from cotenant.settings.kube import KubeSettings
from recommender.worse import Compared
from tests.actions.world import recommended

PRELOADED = ["cotenant.actions.watching", "cotenant.edges.kube.auth", "tests.actions.dying"]
HOUR = 3600.0


@dataclass(frozen=True)
class Where:
    """Which cluster and ledger, and at which gap it ends."""

    kubeconfig: str
    ledger: Path
    gap: str
    settings: dict[str, Any]
    ahead_seconds: float = 0.0
    compared: tuple[Compared, ...] = ()


def actions_of(where: Where) -> Actions:
    """Actions that end at the gap."""
    client = connect(KubeSettings(kubeconfig=where.kubeconfig))
    journal = ChangeJournal(Ledger(where.ledger), ShiftedClock(where.ahead_seconds), "ann")
    actions = Actions(client, journal, ActionSettings(**where.settings), Person("ann"))
    actions.reached = lambda name: os.kill(os.getpid(), signal.SIGKILL) if name == where.gap else None
    actions.compare = lambda *_: where.compared
    return actions


def acting(where: Where, workload: WorkloadRef, method: Method, amount: int) -> None:
    """Accept, judge, roll back."""
    actions = actions_of(where)
    (review,) = actions.review([recommended(workload, amount)], method=method)
    (done,) = actions.accept([review], AcceptanceTerms(("cool-down", "webhook")))
    if done.state.in_force:
        actions.roll_back(verify(actions, done))


def watching(where: Where) -> None:
    """One look of a watcher."""

    @contextmanager
    def opened() -> Iterator[Actions]:
        yield actions_of(where)

    Watcher(opened, lambda _news: None).step()


def killed(target: Any, *given: Any) -> None:
    """Run it in a process of its own, and make sure that it was killed."""
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    process = context.Process(target=target, args=given)
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL, f"it ended with {process.exitcode} and was not killed"
