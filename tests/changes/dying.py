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

from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import connect
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.process.clock import ShiftedClock
from cotenant.base.settings.sections import KubeSettings
from cotenant.changes.accept import AcceptanceTerms, ActionParts, Actions
from cotenant.changes.change_ledger import ChangeLedger
from cotenant.changes.decide.regression_check import Compared
from cotenant.changes.live_context import ClusterUser
from cotenant.changes.model.service import Method
from cotenant.changes.model.settings import ActionSettings
from cotenant.changes.soak.reconcile import verify
from cotenant.changes.soak.watcher import Watcher
from tests.changes.world import recommended

PRELOADED = ["cotenant.changes.soak.watcher", "cotenant.base.kube.auth", "tests.changes.dying"]
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
    journal = ChangeLedger(Ledger(where.ledger), ShiftedClock(where.ahead_seconds), "ann")
    parts = ActionParts(
        reached=lambda name: os.kill(os.getpid(), signal.SIGKILL) if name == where.gap else None,
        compare=lambda *_: where.compared,
    )
    return Actions(client, journal, ActionSettings(**where.settings), ClusterUser("ann"), parts)


def acting(where: Where, workload: WorkloadRef, method: Method, amount: int) -> None:
    """Accept, judge, roll back."""
    actions = actions_of(where)
    (review,) = actions.review([recommended(workload, amount)], method=method)
    (done,) = actions.accept([review], AcceptanceTerms(overridden=("cool-down", "webhook")))
    if done.state.in_force:
        actions.roll_back(verify(actions, done))


def watching(where: Where) -> None:
    """One look of a watcher."""

    @contextmanager
    def opened() -> Iterator[Actions]:
        yield actions_of(where)

    Watcher(opened, lambda _news: None).step()


def killed(target: Any, *arguments: Any) -> None:
    """Run it in a process of its own, and make sure that it was killed."""
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    process = context.Process(target=target, args=arguments)
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL, f"it ended with {process.exitcode} and was not killed"
