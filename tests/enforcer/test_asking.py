"""What the kubelet says of CPUs and pods, and what happens when it does not."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent import futures
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from cotenant.enforcer.contract import PodSpec
from cotenant.enforcer.runtime.messages import pod_resources as messages
from cotenant.enforcer.runtime.pod_resources import PodResourcesClient, objection
from cotenant.enforcer.sources.kubelet_client import UNKNOWN, WithKubelet, add_assignments
from cotenant.enforcer.sources.sources import AgentInputs, Sources
from cotenant.enforcer.sources.wire import Assignments
from tests.cluster.waiting import wait_for

pytestmark = pytest.mark.server

OWN = PodSpec("default", "own", "u-own")
WEB = PodSpec("default", "web", "u-web")
BOTH = frozenset({"default/own", "default/web"})
SAID = Assignments(BOTH, {"default/own": frozenset({1})}, frozenset({0, 1}), static_cpus=True)
NOTHING = Assignments()


class Silent(Sources):
    """Sources that know two pods."""

    def __init__(self, inputs: AgentInputs) -> None:
        self.inputs = inputs

    def start(self) -> None:
        """Nothing to begin."""

    def wait(self, timeout_seconds: float) -> bool:  # noqa: ARG002 - the contract
        return True

    def read(self) -> AgentInputs:
        return self.inputs

    def stop(self) -> None:
        """Nothing to end."""


HEARD = AgentInputs((OWN, WEB), 0.0)


def test_who_the_kubelet_does_not_name_keeps_its_cpus_while_it_is_known_here() -> None:
    first = add_assignments(HEARD, SAID, NOTHING)
    assert first.kubelet.exclusive == {"default/own": {1}}
    empty = Assignments(allocatable=SAID.allocatable)  # it has just started and has heard of no pod yet
    again = add_assignments(HEARD, empty, first.kubelet)
    assert again.kubelet.exclusive == {"default/own": {1}}
    assert add_assignments(replace(HEARD, pods=(WEB,)), empty, again.kubelet).kubelet.exclusive == {}
    freed = Assignments(SAID.pods, {}, SAID.allocatable)
    assert add_assignments(HEARD, freed, again.kubelet).kubelet.exclusive == {}


@pytest.mark.parametrize("last_policy", [True, False, None])
def test_a_kubelet_that_has_just_started_does_not_say_its_policy_and_the_one_before_holds(
    last_policy: bool | None,
) -> None:
    before = replace(SAID, static_cpus=last_policy)
    for kubelet_answer in (NOTHING, None):
        assert add_assignments(HEARD, kubelet_answer, before).kubelet.static_cpus is last_policy
    for static_cpus in (True, False):
        assert add_assignments(HEARD, replace(SAID, static_cpus=static_cpus), before).kubelet.static_cpus is static_cpus


def test_pods_that_a_recalled_list_does_not_have_are_told_of_and_none_is_dropped() -> None:
    recalled = replace(HEARD, pods=(OWN,), recalled=("pods",))
    inputs = add_assignments(recalled, replace(SAID, pods=frozenset({"default/web", "default/new"})), NOTHING)
    assert inputs.notes == ("the kubelet runs 2 pods that are not known to the agent: default/new, default/web",)
    assert inputs.pods == (OWN,)
    assert add_assignments(replace(recalled, pods=(OWN, WEB)), SAID, NOTHING).notes == ()


@contextlib.contextmanager
def asking(socket: Path | str, configured: bool = False) -> Iterator[WithKubelet]:
    """Sources that ask behind this socket; configured: whether the kubelet's file names the static policy."""
    sources = WithKubelet(Silent(HEARD), str(socket), static_cpus=configured)
    sources.start()
    try:
        yield sources
    finally:
        sources.stop()


class Podresources(grpc.GenericRpcHandler):
    """A kubelet's service with these pods, CPUs that it gives out, and CPUs that it gave to the pod `own`."""

    def __init__(self, socket: Path, pods: Sequence[str], gives: Sequence[int], gave: Sequence[int] = ()) -> None:
        inside = [messages.Container(name="main", cpu_ids=gave)]
        self._answers = {
            "List": messages.ListResponse(
                pod_resources=[
                    messages.Pod(namespace="default", name=name, containers=inside if name == "own" else [])
                    for name in pods
                ]
            ),
            "GetAllocatableResources": messages.AllocatableResponse(cpu_ids=gives),
        }
        self.server = grpc.server(futures.ThreadPoolExecutor(2))
        self.server.add_generic_rpc_handlers((self,))
        self.server.add_insecure_port(f"unix:{socket}")
        self.server.start()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        reply = self._answers[details.method.rpartition("/")[2]]
        return grpc.unary_unary_rpc_method_handler(lambda *_: reply, None, lambda message: message.SerializeToString())


@pytest.mark.parametrize(
    ("pods", "gives", "gave", "configured", "static"),
    [
        (["own", "web"], [0, 1], [1], False, True),  # by an option, or by a file that is not ours to read
        (["own", "web"], [0, 1], [], False, True),  # nobody has any yet
        (["own", "web"], [], [], False, False),
        (["own", "web"], [], [], True, False),  # an option goes before the file
        ([], [], [], False, None),  # it has just started
        ([], [], [], True, True),
    ],
)
def test_the_kubelet_itself_says_whether_it_gives_cpus_out(
    tmp_path: Path, pods: list[str], gives: list[int], gave: list[int], configured: bool, static: bool | None
) -> None:
    kubelet = Podresources(tmp_path / "kubelet.sock", pods, gives, gave)
    try:
        with asking(tmp_path / "kubelet.sock", configured) as sources:
            wait_for("an answer", lambda: sources.wait(0.0))
            inputs = sources.read()
            assert inputs.kubelet.static_cpus is static
            assert inputs.kubelet.exclusive == ({"default/own": frozenset(gave)} if gave else {})
            assert inputs.notes == ((UNKNOWN,) if static is None else ())
    finally:
        kubelet.server.stop(None).wait()


def test_without_the_kubelets_word_its_policy_is_not_known_unless_its_file_names_the_static_one(tmp_path: Path) -> None:
    missing = tmp_path / "kubelet.sock"
    reason = f"the kubelet has no socket {missing}"
    for configured, notes in ((False, (reason, UNKNOWN)), (True, (reason,))):
        with asking(missing, configured) as sources:
            assert sources.wait(0.0) and sources.read().notes == notes
            assert sources.read().kubelet == Assignments(static_cpus=configured or None)
    with asking("") as sources:  # nobody is to be asked
        assert sources.wait(0.0) and sources.read().notes == (UNKNOWN,)


@pytest.mark.slow
def test_a_kubelet_that_does_not_answer_is_a_note_and_holds_nobody_up(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dumb:
        dumb.bind(str(tmp_path / "s"))
        dumb.listen()
        asking = PodResourcesClient(tmp_path / "s")
        asking.start()
        wait_for("the deadline", lambda: asking.problem.startswith(("DEADLINE_EXCEEDED", "UNAVAILABLE")))
        asking.stop()
    assert asking.assignments is None


@pytest.mark.parametrize(("kind", "why"), [("file", "a socket"), ("link", "a socket"), ("foreign", "belongs to")])
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


def test_a_kubelet_that_comes_later_is_asked_then(tmp_path: Path) -> None:
    with asking(tmp_path / "kubelet.sock") as sources:
        assert sources.read().kubelet.static_cpus is None
        kubelet = Podresources(tmp_path / "kubelet.sock", ["web"], [])
        try:
            wait_for("an answer", lambda: sources.read().kubelet.static_cpus is False)
            assert sources.read().notes == ()
        finally:
            kubelet.server.stop(None).wait()


def test_an_agent_without_a_kubelet_to_ask_does_not_load_grpc(tmp_path: Path) -> None:
    code = f"""
import sys
from cotenant.enforcer.sources.kubelet_client import WithKubelet
from cotenant.enforcer.sources.sources import FileSources
import cotenant.enforcer.assembly
sources = WithKubelet(FileSources("n", "", ""), {str(tmp_path / "kubelet.sock")!r}, static_cpus=False)
sources.start()
sources.read()
print(sorted({{'grpc', 'google.protobuf'}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
