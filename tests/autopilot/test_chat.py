"""What the autopilot tells a chat: over verified TLS, in few messages, with the address in no text."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cotenant.autopilot.controller import AutopilotController
from cotenant.autopilot.notes import REPORT_SECONDS, WEEK_SECONDS, ChatNotes, news_of
from cotenant.autopilot.rounds.reading import RoundReading
from cotenant.base.process.clock import SystemClock
from cotenant.base.settings.sections import NotifySettings
from cotenant.changes.soak.watcher import News
from tests.autopilot.scene import APPROVER, AutopilotScene
from tests.base.test_webhook import SECRET, Answer, Receiver, status
from tests.changes.world import deployed, own_node
from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import unique_name
from tests.cluster.waiting import wait_for
from tests.support.api_server import make_certificate

HARM = News("shop/web: rolled-back", "p99 latency", bad=True)


@contextmanager
def chat(folder: Path, *answers: Answer, **settings: Any) -> Iterator[tuple[Receiver, ChatNotes]]:
    """An HTTPS receiver that answers in this order, the last one for good, and notes whose settings trust it."""
    make_certificate(folder, "authority")
    make_certificate(folder, "server", "authority")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    next_answers = list(answers or [status(200)])

    def next_answer(handler: Any) -> None:
        (next_answers.pop(0) if len(next_answers) > 1 else next_answers[0])(handler)

    receiver = Receiver({f"/{SECRET}": next_answer}, context)
    own = {"timeout_seconds": 30.0, "ca_file": str(folder / "authority.pem"), **settings}
    try:
        yield receiver, ChatNotes(NotifySettings(**own), "prod", receiver.url())
    finally:
        receiver.server.shutdown()
        receiver.server.server_close()


def send_notes(notes: ChatNotes, now_seconds: float, *news: News) -> None:
    """Tell, and wait until the message is on its way no more."""
    notes.send(news, now_seconds)
    wait_for("the message", lambda: notes._delivery is None or not notes._delivery.is_alive())


def bodies(receiver: Receiver) -> list[dict[str, Any]]:
    return [json.loads(body) for _, body, _ in receiver.got]


def test_an_hour_has_so_many_messages_and_what_waits_goes_with_the_next(tmp_path: Path) -> None:
    with chat(tmp_path, format="json", notes_per_hour=2) as (receiver, notes):
        for at in range(5):
            send_notes(notes, 60.0 * at, News(f"n{at}", "w"))
        # two messages in the hour; an hour after the first there is room for one, which brings the other three
        assert [len(body["news"]) for body in bodies(receiver)] == [1, 1]
        send_notes(notes, 3_600.0)
        assert [news_item["title"] for news_item in bodies(receiver)[2]["news"]] == ["n2", "n3", "n4"]
        assert SECRET not in repr(notes) and bodies(receiver)[0]["cluster"] == "prod"


@pytest.mark.slow
@pytest.mark.parametrize(("failures", "messages"), [(1, 2), (2, 3), (3, 3)])
def test_what_does_not_arrive_is_tried_three_times(tmp_path: Path, failures: int, messages: int) -> None:
    answers = [*[status(503)] * failures, status(200)]
    with chat(tmp_path, *answers, format="json") as (receiver, notes):
        send_notes(notes, 0.0, HARM)
        for at in range(1, 5):
            send_notes(notes, 60.0 * at)
        assert [len(body["news"]) for body in bodies(receiver)] == [1] * messages
        assert notes.waiting == []
        send_notes(notes, 600.0, HARM)  # what was given up does not come back, and the next is as patient
        assert len(receiver.got) == messages + 1


def test_nothing_is_sent_to_a_receiver_whose_certificate_does_not_verify(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with chat(tmp_path, ca_file="") as (receiver, notes):
        send_notes(notes, 0.0, HARM)
        assert receiver.got == [] and SECRET not in capsys.readouterr().out


def test_the_weeks_report_goes_once_after_monday_morning() -> None:
    monday = float(2_900 * WEEK_SECONDS + REPORT_SECONDS)
    rounds = [RoundReading(at) for at in (monday - 60, monday, monday + 60)]
    reports: Callable[[int], list[News]] = lambda i: news_of(rounds[i - 1], rounds[i], [], [])  # noqa: E731
    assert [report.title for report in reports(1)] == ["The autopilot's week"] and reports(2) == []
    # a process that has just started knows of no round before
    assert news_of(RoundReading(0.0), rounds[1], [], []) == []


def test_an_act_and_a_stop_are_told_once_each(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    cluster = AutopilotScene(control_plane, namespace, tmp_path)
    with own_node(control_plane, unique_name("chat")) as node, chat(tmp_path) as (receiver, notes):
        workload = deployed(control_plane, namespace, nodeSelector={"test/own": node.node})
        cluster.recommend(workload)
        cluster.bind()
        cluster.policy(mode="Observe", ways=["RollOut"])
        cluster.service().act(APPROVER, f"{namespace}/nightly")
        controller = AutopilotController(cluster.rounds(), 1.0, notes=notes)
        now = SystemClock().now_seconds()

        def round_at(ahead_seconds: float) -> list[str]:
            before = len(receiver.got)
            controller.decide({}, now + ahead_seconds)
            controller.sent(())
            wait_for("the message", lambda: notes._delivery is None or not notes._delivery.is_alive())
            return [body["text"] for body in bodies(receiver)[before:]]

        assert round_at(0) == [f"cotenant: prod: {workload} was changed"]
        # two replicas, 200m less each
        assert "frees 400 m, over all pods" in str(bodies(receiver)[0]["blocks"])
        assert round_at(2) == []
        cluster.service().pause(APPROVER, "incident 4711")
        assert round_at(4) == ["cotenant: prod: The autopilot has stopped"] and round_at(6) == []
        assert "incident 4711" in str(bodies(receiver)[1]["blocks"])
        cluster.service().resume(APPROVER)
        assert round_at(8) == ["cotenant: prod: The autopilot continues"]
