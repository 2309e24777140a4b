"""An object on which a feature's decision fails is left out of that feature and named; all others count."""

from __future__ import annotations

import functools
import json
import re
import select
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
import structlog
import yaml

from bench.platform.fuzz.hostile import ROOT
from cotenant.base.controllers.audit import Audit
from cotenant.base.controllers.contract import ControllerDecision
from cotenant.base.controllers.feature import LEFT_OUT_STATE, ControllerCondition, FeatureState
from cotenant.base.controllers.isolation import MOST_LEFT_OUT, MOST_NAMED
from cotenant.base.controllers.loop import AlwaysLeads, Changes, Feature, FeatureRunner, Hub, LoopContext
from cotenant.base.controllers.sender import Sender
from cotenant.base.kube import KubeClient, Mirror, connect
from cotenant.base.kube.client import unread_objects
from cotenant.base.kubernetes.intent import Apply, Outcome
from cotenant.base.kubernetes.models.metadata import ObjectName
from cotenant.base.logs.metrics import Metrics
from cotenant.base.process.clock import FixedClock
from cotenant.base.process.in_hand import keep_notes
from cotenant.base.settings.sections import KubeSettings, ManagerSettings
from cotenant.manager.feature_status import Board
from cotenant.scheduler_ext.reservations.service.mirrors import reservation_mirror
from cotenant_lab.simulation.api_server import EmbeddedServer
from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import install_crd
from tests.cluster.waiting import wait_for
from tests.contract.target import embedded_target

pytestmark = pytest.mark.server
HOLDS = "hold on"
MAPS = "/api/v1/namespaces/shop/configmaps"


class Sums(Feature):
    """Adds numbers that people wrote into ConfigMaps; some of them are no numbers."""

    name = "sums"
    needs: tuple[str, ...] = ("texts",)
    interval_seconds: float = 1.0

    def __init__(self, mirror: Mirror[Any]) -> None:
        self.mirror, self.sum, self.rounds, self.holds = mirror, 0, 0, False

    def decide(self, changes: Changes, now_seconds: float) -> ControllerDecision:  # noqa: ARG002 - see Feature
        self.rounds += 1
        texts = [value["data"]["text"] for value in self.mirror.snapshot().values()]
        if self.holds or HOLDS in texts:
            re.match("(a+)+b", "a" * 60)  # exponential, in C that never lets go of the interpreter
        self.sum = sum(map(int, texts))
        return ControllerDecision()

    def sent(self, outcomes: Sequence[Outcome]) -> None:
        assert not outcomes  # it writes nothing


class Manager:
    """A feature that follows ConfigMaps, with what it takes of a manager."""

    def __init__(self, client: KubeClient) -> None:
        self.mirror: Mirror[Any] = Mirror(client, MAPS, dict[str, Any])
        clock, audit = FixedClock(1_700_000_000.0), Audit(Metrics("test", "3"))
        self.board = Board("shop", audit, None, {"texts": self.mirror})
        self.feature = Sums(self.mirror)
        hub = Hub({"texts": self.mirror}, threading.Event())
        context = LoopContext(hub, AlwaysLeads(), clock, ManagerSettings(write=True), audit, self.board)
        self.runner = FeatureRunner(self.feature, Sender(client.sibling(), AlwaysLeads(), lambda: 0.0), context)
        hub.join(self.runner)

    def round(self) -> FeatureState:
        self.mirror.list_once()
        return self.runner.round()

    def refusals(self) -> dict[str, str]:
        return {name: why for (_, name), why in self.mirror.refusals.items()}

    def listed(self) -> str:
        """The condition of the ConfigMap that lists what is left out."""
        for intent in self.board.decide({}, 1_700_000_000.0).intents:
            assert isinstance(intent, Apply)
            return str(json.loads(intent.body["data"].get(LEFT_OUT_STATE, "{}")).get("message", ""))
        return ""


class World(Manager):
    """An API server, and a manager that follows its ConfigMaps."""

    def __init__(self, server: EmbeddedServer, folder: Path) -> None:
        target = embedded_target(server)
        self.api: Api = target.admin
        self.api.create("/api/v1/namespaces", {"metadata": {"name": "shop"}})
        self.kubeconfig = server.write_kubeconfig(folder / "kubeconfig")
        self.client: KubeClient = connect(KubeSettings(kubeconfig=str(self.kubeconfig)))
        super().__init__(self.client)

    def write(self, name: str, text: str) -> None:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": text}}
        self.api.patch(f"{MAPS}/{name}", body, kind="apply", fieldManager="person", force="true")


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[World]:
    with EmbeddedServer() as server:
        yield World(server, tmp_path)


def test_one_object_on_which_a_decision_fails_is_left_out_until_it_changes(manager: World) -> None:
    for number in range(50):
        manager.write(f"good-{number}", str(number))
    manager.write("bad", "7 or so")
    assert manager.round().condition is ControllerCondition.UP
    assert manager.feature.sum == sum(range(50))
    assert "1 object is left out: configmaps/shop/bad: sums fails on this object: ValueError" in manager.listed()
    # it is not searched for again, and what is good and new counts
    rounds = manager.feature.rounds
    manager.write("good-50", "50")
    assert manager.round().condition is ControllerCondition.UP
    assert (manager.feature.sum, manager.feature.rounds) == (sum(range(51)), rounds + 1)
    # nor does a second one hide the first, nor either of them when it is written anew
    manager.write("worse", "")
    manager.write("good-51", "51")
    manager.round()
    assert manager.feature.sum == sum(range(52)) and "2 objects are left out" in manager.listed()
    manager.write("bad", "7")
    manager.round()
    assert manager.feature.sum == sum(range(52)) + 7
    manager.write("worse", "1")
    manager.round()
    assert manager.feature.sum == sum(range(52)) + 8
    assert manager.runner._left_out == {} and manager.listed() == ""


def test_a_decision_that_fails_on_everything_is_a_fault_of_ours_and_leaves_nothing_out(manager: World) -> None:
    for number in range(MOST_LEFT_OUT + 1):
        manager.write(f"bad-{number}", "no number")
    assert manager.round().condition is ControllerCondition.FAILED
    assert len(manager.mirror.snapshot()) == MOST_LEFT_OUT + 1
    assert manager.listed() == ""


def serve(kubeconfig: str, holds: str = "") -> None:
    """A program that decides once for each line, and says what it has; holds: whatever the objects are."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    keep_notes("test")
    print("ready", flush=True)  # the note of an earlier program is read
    manager = Manager(connect(KubeSettings(kubeconfig=kubeconfig)))
    manager.feature.holds = bool(holds)
    for _ in sys.stdin:
        state = manager.round()
        fields = [str(state.condition), state.message, manager.feature.sum, manager.refusals(), manager.listed()]
        print(json.dumps(fields), flush=True)


class Program:
    """The program in a process of its own."""

    def __init__(self, manager: World, folder: Path, *arguments: str) -> None:
        code = "import sys; from tests.manager.test_left_out import serve; serve(*sys.argv[1:])"
        environment = {"TMPDIR": str(folder), "PATH": "", "PYTHONPATH": str(ROOT)}
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", code, str(manager.kubeconfig), *arguments]
        self.process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)
        self.folder = folder
        assert self.process.stdout is not None and self.process.stdout.readline() == "ready\n"

    def decide(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def answer_fields(self) -> list[Any]:
        self.decide()
        assert self.process.stdout is not None
        fields: list[Any] = json.loads(self.process.stdout.readline())
        return fields

    def fields_unless_still(self) -> list[Any] | None:
        """What it says; None once it has noted that nothing of Python runs, and was ended as a kubelet ends it."""
        self.decide()
        assert self.process.stdout is not None
        still = functools.partial(self.folder.glob, "cotenant-test-*/still")
        while not any(file.stat().st_size for file in still()):
            if select.select([self.process.stdout], [], [], 0.2)[0]:
                fields: list[Any] = json.loads(self.process.stdout.readline())
                return fields
        self.process.kill()
        self.process.wait()
        return None

    def stand_still(self) -> None:
        """Decide, and see that it stands still."""
        assert self.fields_unless_still() is None


@pytest.mark.slow
def test_an_object_on_which_a_decision_stands_still_is_left_out_by_the_next_process(
    manager: World, tmp_path: Path
) -> None:
    for number in range(50):
        manager.write(f"good-{number}", str(number))
    first = Program(manager, tmp_path)
    assert first.answer_fields()[2] == sum(range(50))
    manager.write("bad", HOLDS)
    manager.write("good-50", "50")
    first.stand_still()
    # the two that changed were noted: their digests differ in the first place, so the bad one is alone in its part
    condition, _, total, left_out = named_after_standing_still(manager, tmp_path)
    assert (condition, total) == ("Up", sum(range(51)))
    assert (
        left_out.startswith("1 object is left out: configmaps/shop/bad: ")
        and "hung for 10 s on this object" in left_out
    )
    # and by each program that begins, until it changes
    last = Program(manager, tmp_path)
    assert last.answer_fields()[2:4] == [
        sum(range(51)),
        {"bad": "the program hung for 10 s on this object, and was stopped"},
    ]
    manager.write("bad", "7")
    assert last.answer_fields()[2:4] == [sum(range(51)) + 7, {}]
    last.process.kill()


def named_after_standing_still(manager: World, folder: Path, most: int = 4) -> list[Any]:
    """What the first program says that does not stand still, of so many at most."""
    for _ in range(most):
        program = Program(manager, folder)
        if (fields := program.fields_unless_still()) is not None:
            program.process.kill()
            return [fields[0], fields[1], fields[2], fields[4]]
    raise AssertionError(f"{most} programs stood still one after another")


@pytest.mark.slow
def test_a_first_decision_that_never_ends_is_searched_for_the_object_by_the_next_programs(
    manager: World, tmp_path: Path
) -> None:
    for number in range(10 * MOST_NAMED):
        manager.write(f"good-{number}", str(number))
    manager.write("bad", HOLDS)
    Program(manager, tmp_path).stand_still()
    # 161 objects in 32 parts by the first character, about 5 in each; the second character tells them apart: the next
    # two stand still, or one more if two share it
    condition, message, total, left_out = named_after_standing_still(manager, tmp_path)
    assert (condition, message, total) == ("Up", "", sum(range(10 * MOST_NAMED)))
    assert left_out.startswith("1 object is left out: configmaps/shop/bad: ")


@pytest.mark.slow
def test_a_decision_that_never_ends_whatever_it_is_made_without_costs_its_feature_alone(
    manager: World, tmp_path: Path
) -> None:
    manager.write("good", "1")
    manager.write("better", "2")
    first = Program(manager, tmp_path, "always")
    first.stand_still()
    Program(manager, tmp_path, "always").stand_still()
    last = Program(manager, tmp_path, "always")
    condition, message, total, refused, left_out = last.answer_fields()
    assert (condition, total, refused, left_out) == ("Failed", 0, {}, "") and "hung for 10 s on this object" in message
    last.process.kill()


@pytest.mark.cluster
def test_an_object_that_is_nested_deeper_than_the_interpreter_goes_hides_no_other(
    control_plane: ControlPlane, namespace: str
) -> None:
    api = control_plane.api()
    install_crd(api, "reservationplans.cotenant.dev")
    written = yaml.safe_load((ROOT / "deploy" / "examples" / "reservationplan.yaml").read_text())
    good = json.dumps({**written, "metadata": {"name": "good", "namespace": namespace}, "status": {}})
    nested = '{"a":' * 3_000 + "1" + "}" * 3_000  # a pod template keeps unknown fields
    deep = good.replace('"good"', '"deep"').replace('"spec": {', f'"spec": {{"template": {nested}, ')
    mirror = reservation_mirror("plans", control_plane.admin_client(), threading.Event())
    control_plane.kubectl("create", "--validate=false", "-f", "-", text=deep)
    mirror.start()
    try:
        assert mirror.wait_synced(60) and mirror.error is None
        control_plane.kubectl("create", "-f", "-", text=good)  # and by the watch
        control_plane.kubectl("create", "--validate=false", "-f", "-", text=deep.replace('"deep"', '"deeper"'))
        control_plane.kubectl("create", "-f", "-", text=good.replace('"good"', '"last"'))
        wait_for("the last plan", lambda: (namespace, "last") in mirror.snapshot())
        assert {(namespace, "good"), (namespace, "last")} <= mirror.snapshot().keys()
        assert mirror.error is None and mirror.lists == 1
    finally:
        mirror.stop()


class _Texts(msgspec.Struct):
    metadata: ObjectName
    data: dict[str, Annotated[str, msgspec.Meta(max_length=8)]]


def test_one_object_that_a_list_cannot_decode_hides_no_other(manager: World) -> None:
    manager.write("good", "1")
    manager.write("bad", "longer than eight")
    listed = manager.client.list(MAPS, _Texts)
    assert [item.data for item in listed] == [{"text": "1"}]
    assert list(unread_objects()) == ["configmaps/shop/bad"]
    (gap,) = manager.client.gaps()  # what a page says that read the list
    assert gap.startswith("configmaps/shop/bad: the object cannot be read: ")
    manager.write("bad", "2")
    assert len(manager.client.list(MAPS, _Texts)) == 2 and (unread_objects(), manager.client.gaps()) == ({}, [])
