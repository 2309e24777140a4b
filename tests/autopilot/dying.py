"""A process that runs one round of the autopilot and is killed (SIGKILL, by itself) at a named write or row."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cotenant.autopilot.rounds.acts import ActConfig
from cotenant.autopilot.rounds.rounds import Rounds
from cotenant.base.kube import KubeClient, connect
from cotenant.base.kube.connection import ApiRequest, ApiResponse
from cotenant.base.people import Person
from cotenant.base.process.clock import SystemClock
from cotenant.base.settings.sections import KubeSettings
from cotenant.recommender.model.recommendation import Recommendation
from cotenant.settings import Settings


@dataclass(frozen=True)
class DyingRound:
    """One round: which cluster, ledger and recommendations, and before or after which of its writes it ends."""

    kubeconfig: str
    ledger: Path
    settings: Settings
    recommendations: tuple[Recommendation, ...]
    write: int
    after: bool


class DyingClient(KubeClient):
    """Ends the process at its n-th write to a workload: before it leaves, or once it is answered."""

    writes = 0
    dying: DyingRound

    def request(self, verb: str, request: ApiRequest, **more: Any) -> ApiResponse:
        """As of every client."""
        is_write = request.method == "PATCH" and "/apis/apps/" in request.path and "dryRun" not in request.path
        if is_write:
            DyingClient.writes += 1
        is_last = is_write and DyingClient.writes == self.dying.write
        if is_last and not self.dying.after:
            os.kill(os.getpid(), signal.SIGKILL)
        response = super().request(verb, request, **more)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return response


def dying_round(dying: DyingRound) -> None:
    """Run it."""

    @contextmanager
    def access(_who: Person) -> Iterator[KubeClient]:
        with closing(connect(KubeSettings(kubeconfig=dying.kubeconfig))) as plain:
            client = DyingClient(plain.access, plain.settings)
            client.dying = dying
            with closing(client):
                yield client

    def recommended(namespace: str) -> list[Recommendation]:
        return [
            recommendation
            for recommendation in dying.recommendations
            if recommendation.container.workload.namespace == namespace
        ]

    rounds = Rounds(ActConfig(access, dying.ledger, SystemClock(), dying.settings), recommended)
    rounds.carry_out(rounds.read(SystemClock().now_seconds()))
