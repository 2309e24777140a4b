"""The autopilot's controller: when a round is due, and which statuses are still to be written."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from cotenant.autopilot.controller import AutopilotController
from cotenant.autopilot.decide.policy import NamespacedPolicy
from cotenant.autopilot.rounds.acts import ActConfig, ActOutcome
from cotenant.autopilot.rounds.reading import PolicyReading, RoundReading
from cotenant.autopilot.rounds.rounds import Rounds
from cotenant.base.errors import ClusterUnreachable
from cotenant.base.kube import KubeClient
from cotenant.base.kubernetes.intent import Outcome
from cotenant.base.people import Person
from cotenant.base.process.clock import SystemClock
from cotenant.changes.model.change import ChangeStatus
from cotenant.settings import Settings

NOW = 1_800_000_000.0
MINUTE = 60.0


def nowhere(_who: Person) -> AbstractContextManager[KubeClient]:
    """No client is opened: the rounds are scripted."""
    raise ClusterUnreachable("connection refused")


class ScriptedRounds(Rounds):
    """Rounds over one policy, whose cluster is away while `away`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(ActConfig(nowhere, folder / "ledger.db", SystemClock(), Settings()), lambda _namespace: [])
        self.away = False
        self.reads = 0

    def read(self, now_seconds: float) -> RoundReading:
        self.reads += 1
        if self.away:
            raise ClusterUnreachable("connection refused")
        return RoundReading(now_seconds, (PolicyReading(NamespacedPolicy("shop", "nightly")),))

    def carry_out(self, reading: RoundReading) -> tuple[list[ChangeStatus], list[ActOutcome]]:
        if self.away:
            raise ClusterUnreachable("connection refused")
        return super().carry_out(reading)


@pytest.fixture
def rounds(tmp_path: Path) -> ScriptedRounds:
    return ScriptedRounds(tmp_path)


@pytest.fixture
def controller(rounds: ScriptedRounds) -> AutopilotController:
    return AutopilotController(rounds, MINUTE)


def test_a_round_that_could_not_be_read_is_due_at_once_and_not_after_the_interval(
    controller: AutopilotController, rounds: ScriptedRounds
) -> None:
    rounds.away = True
    for second in range(2):  # the loop says twice that the cluster is away, and never that all is well
        with pytest.raises(ClusterUnreachable):
            controller.decide({}, NOW + second)
    rounds.away = False
    assert len(controller.decide({}, NOW + 2).intents) == 1
    controller.sent([])
    assert controller.decide({}, NOW + 3).intents == () and rounds.reads == 3


def test_a_round_that_could_not_be_carried_out_is_decided_anew(
    controller: AutopilotController, rounds: ScriptedRounds
) -> None:
    controller.decide({}, NOW)
    rounds.away = True
    with pytest.raises(ClusterUnreachable):
        controller.sent([])
    rounds.away = False
    assert len(controller.decide({}, NOW + 1).intents) == 1 and rounds.reads == 2


def test_a_status_is_written_until_the_server_took_it(controller: AutopilotController) -> None:
    (first,) = controller.decide({}, NOW).intents
    controller.sent([])  # the Lease was away: nothing was sent
    (second,) = controller.decide({}, NOW + MINUTE).intents
    controller.sent([Outcome(second, error=ClusterUnreachable("cut"))])
    (third,) = controller.decide({}, NOW + 2 * MINUTE).intents
    controller.sent([Outcome(third)])
    assert first == second == third
    assert controller.decide({}, NOW + 3 * MINUTE).intents == ()
