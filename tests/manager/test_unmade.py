"""Whatever keeps an object of ours from being made is told to who asked for it: a refusal, and no answer."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from cotenant.base.controllers.loop import AlwaysLeads, NoElection
from cotenant.base.controllers.sender import Sender
from cotenant.base.errors import ClusterInvalid, ClusterUnreachable
from cotenant.base.kube import connect
from cotenant.base.kubernetes.intent import Address, Apply
from cotenant.base.settings.sections import KubeSettings
from cotenant_lab.simulation.api_server import EmbeddedServer
from tests.manager.test_sending import config_map

pytestmark = [pytest.mark.server, pytest.mark.slow]


def asked_intent(number: int, **metadata: str) -> Apply:
    intent = config_map("default", f"made-{number}")
    intent.body["metadata"].update(metadata)
    return replace(intent, asker=f"reservations/r{number}")


def test_an_invalid_object_and_a_silent_server_are_told_and_a_lost_lease_and_what_was_made_are_not(
    tmp_path: Path,
) -> None:
    intents = [asked_intent(0), asked_intent(1, finalizers="none"), asked_intent(2)]
    with EmbeddedServer() as server:
        settings = KubeSettings(kubeconfig=str(server.write_kubeconfig(tmp_path / "config")), timeout_seconds=1.0)
        with closing(connect(settings)) as client:
            follower = Sender(client, NoElection(), time.monotonic)
            follower.send(intents)
            assert follower.unmade(intents) == {}, "another replica makes them"
            sender = Sender(client, AlwaysLeads(), time.monotonic)
            sender.send(intents)
            assert {who: type(why) for who, why in sender.unmade(intents).items()} == {
                "reservations/r1": ClusterInvalid
            }
    with closing(connect(settings)) as client:
        away = Sender(client, AlwaysLeads(), time.monotonic)
        other_kind = replace(intents[0], address=Address("v1", "secrets", "made", "default"), asker="reservations/r3")
        away.send([*intents, other_kind])
        # The first was tried, and all others, also of other kinds, would have been answered as little.
        assert {who: type(why) for who, why in away.unmade([*intents, other_kind]).items()} == {
            f"reservations/r{number}": ClusterUnreachable for number in range(4)
        }
        away.close()
