"""What the kubelet says of CPUs and pods, and what happens when it does not."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cotenant.enforcer.contract import PodSpec
from cotenant.enforcer.runtime.pod_resources import PodResources, objection
from cotenant.enforcer.sources.kubelet import Assignments
from cotenant.enforcer.sources.kubelet_client import WithKubelet, add_assignments
from cotenant.enforcer.sources.sources import AgentInputs
from tests.cluster.waiting import wait_for

pytestmark = pytest.mark.server

OWN = PodSpec("default", "own", "u-own")
WEB = PodSpec("default", "web", "u-web")
SAID = Assignments(frozenset({"default/own", "default/web"}), {"default/own": frozenset({1})}, frozenset({0, 1}))


class Silent:
    """Sources that know two pods."""

    def __init__(self, told: AgentInputs) -> None:
        self.told = told

    def start(self) -> None:
        """Nothing to begin."""

    def wait(self, timeout_seconds: float) -> bool:  # noqa: ARG002 - the contract
        return True

    def read(self) -> AgentInputs:
        return self.told

    def stop(self) -> None:
        """Nothing to end."""


HEARD = AgentInputs((OWN, WEB), 0.0)


def test_who_the_kubelet_does_not_name_keeps_its_cpus_while_it_is_known_here() -> None:
    first = add_assignments(HEARD, SAID, {})
    assert first.kubelet.exclusive == {"default/own": {1}}
    empty = Assignments(allocatable=SAID.allocatable)  # it has just started and has heard of no pod yet
    again = add_assignments(HEARD, empty, first.kubelet.exclusive)
    assert again.kubelet.exclusive == {"default/own": {1}}
    assert add_assignments(replace(HEARD, pods=(WEB,)), empty, again.kubelet.exclusive).kubelet.exclusive == {}
    freed = Assignments(SAID.pods, {}, SAID.allocatable)
    assert add_assignments(HEARD, freed, again.kubelet.exclusive).kubelet.exclusive == {}


def test_pods_that_a_recalled_list_does_not_have_are_told_of_and_none_is_dropped() -> None:
    recalled = replace(HEARD, pods=(OWN,), recalled=("pods",))
    told = add_assignments(recalled, replace(SAID, pods=frozenset({"default/web", "default/new"})), {})
    assert told.notes == ("the kubelet runs 2 pods that are not known here: default/new, default/web",)
    assert told.pods == (OWN,)
    assert add_assignments(replace(recalled, pods=(OWN, WEB)), SAID, {}).notes == ()


def test_nobody_is_asked_unless_the_kubelet_gives_cpus_out_or_the_list_is_recalled(tmp_path: Path) -> None:
    missing = str(tmp_path / "kubelet.sock")
    assert WithKubelet(Silent(HEARD), missing, static_cpus=False).read() == HEARD
    for sources in (
        WithKubelet(Silent(HEARD), missing, static_cpus=True),
        WithKubelet(Silent(replace(HEARD, recalled=("pods",))), missing, static_cpus=False),
    ):
        try:
            wait_for("the reason", lambda one=sources: "No such file" in one.read().notes[0])
            assert sources.read().kubelet == Assignments()
        finally:
            sources.stop()


@pytest.mark.slow
def test_a_kubelet_that_does_not_answer_is_a_note_and_holds_nobody_up(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dumb:
        dumb.bind(str(tmp_path / "s"))
        dumb.listen()
        asking = PodResources(str(tmp_path / "s"))
        asking.start()
        wait_for("the deadline", lambda: asking.problem.startswith(("DEADLINE_EXCEEDED", "UNAVAILABLE")))
        asking.stop()
    assert asking.assignments is None


@pytest.mark.parametrize(("kind", "why"), [("file", "no socket"), ("link", "no socket"), ("foreign", "belongs to")])
def test_only_a_socket_of_roots_is_asked(tmp_path: Path, kind: str, why: str) -> None:
    place, real = tmp_path / "s", tmp_path / "real"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(real))
        assert objection(real) == ""
        if kind == "file":
            place.write_text("")
        elif kind == "link":
            place.symlink_to(real)
        elif os.geteuid() != 0:
            pytest.skip("only root can give a file away")
        else:
            real.rename(place)
            os.chown(place, 1234, 1234)
        assert why in objection(place)


def test_an_agent_that_asks_nobody_does_not_load_grpc() -> None:
    code = "import sys, cotenant.enforcer.assembly; print(sorted({'grpc', 'google.protobuf'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
