"""A mirror beside an API server that sends quiet, broken, repeated or unreadable watches."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from cotenant.base.kube import Mirror, connect
from cotenant.base.settings.sections import KubeSettings
from tests.base.config_maps import QUICK, STALE_SECONDS, ConfigMap, data_of
from tests.cluster.waiting import wait_for
from tests.support import api_server

pytestmark = pytest.mark.server


def event(kind: str, name: str, version: int, value: str) -> bytes:
    meta = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "resourceVersion": str(version)}
    return json.dumps({"type": kind, "object": {"metadata": meta, "data": {"v": value}}}).encode() + b"\n"


def bookmark(version: int) -> bytes:
    return json.dumps({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}}).encode() + b"\n"


def error_event(code: int) -> bytes:
    status = {"kind": "Status", "code": code, "message": "too old resource version"}
    return json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"


def chunks(*parts: bytes) -> api_server.Reply:
    """A watch that sends these chunks and ends in an orderly way."""

    def reply(handler: api_server.Handler) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for part in parts:
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        handler.wfile.write(b"0\r\n\r\n")

    return reply


def lasting(seconds: float, end: bytes) -> api_server.Reply:
    """A watch that is accepted, sends nothing for so long and then ends with these bytes."""

    def reply(handler: api_server.Handler) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.flush()
        time.sleep(seconds)
        handler.wfile.write(end)
        handler.close_connection = True

    return reply


def chunk(part: bytes) -> bytes:
    return b"%x\r\n%s\r\n0\r\n\r\n" % (len(part), part)


class Liar:
    """Lists what it is told and plays one script a watch; then watches are silent.

    versions: its own, one for each time that it is asked after a watch broke.
    """

    def __init__(self, server: Any) -> None:
        self.server = server
        self.items: list[Any] = []
        self.scripts: list[api_server.Reply] = []
        self.versions: list[str] = []
        self.queries: list[str] = []
        self.silenced = threading.Event()
        server.once = self

    def __bool__(self) -> bool:
        return True

    def pop(self, _index: int) -> api_server.Reply:
        return self.serve

    def serve(self, handler: api_server.Handler) -> None:
        if "watch=true" not in handler.path:
            asked_for_version = parse_qs(urlsplit(handler.path).query).get("limit") == ["1"]
            version = self.versions.pop(0) if asked_for_version and self.versions else "100000"
            listed = {"metadata": {"resourceVersion": version if asked_for_version else "100"}}
            handler.answer(200, {**listed, "items": [] if asked_for_version else self.items})
            return
        self.queries.append(handler.path)
        if self.scripts:
            self.scripts.pop(0)(handler)
        else:
            self.silenced.set()
            handler.send_response(200)
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            handler.connection.settimeout(30)
            handler.rfile.read(1)


@pytest.fixture
def lying(api_stub: Any, kubeconfig: Any) -> Iterator[tuple[Liar, Mirror[Any]]]:
    client = connect(KubeSettings(kubeconfig=kubeconfig(api_stub.url), **QUICK))
    mirror: Mirror[Any] = Mirror(client, "/api/v1/configmaps", ConfigMap, data_of)
    yield Liar(api_stub), mirror
    mirror.stop()


@pytest.fixture
def api_stub(certificates: Any) -> Iterator[api_server.ApiServer]:
    server = api_server.ApiServer(certificates / "server.pem", certificates / "authority.pem")
    yield server
    server.stop()


def values(mirror: Mirror[Any]) -> dict[str, str]:
    return {name: value["v"] for (_, name), value in mirror.snapshot().items()}


@pytest.mark.slow
def test_a_quiet_watch_is_taken_up_before_it_counts_as_stale_and_without_an_error(
    lying: tuple[Liar, Mirror[Any]],
) -> None:
    """A healthy server of a kind that nobody changes, whose bookmarks come later than all of this lasts."""
    liar, mirror = lying
    mirror.renew_within(STALE_SECONDS)
    mirror.start()
    ages, errors = [0.0], []
    while len(liar.queries) < 8:  # the server's word ends the loop; what is seen on the way is held against the rule
        if mirror.wait_synced(0):
            ages.append(mirror.age_seconds())
            errors.append(mirror.error)
        time.sleep(0.02)
    assert set(errors) <= {None}
    # Taken up anew after three quarters of 4 s, each time at the version of the list; the rest is for the machine.
    assert max(ages) < STALE_SECONDS
    assert all("resourceVersion=100&" in query for query in liar.queries)
    # After three silent watches a list asks whether a proxy swallows the events: 7 silent ones are two more lists.
    assert mirror.lists == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "is_fault"),
    [
        pytest.param(b"0\r\n\r\n", False, id="in good order"),
        pytest.param(b"", False, id="cut by a balancer or a restart"),
        pytest.param(chunk(error_event(410)), False, id="version forgotten"),
        pytest.param(chunk(error_event(500)), True, id="error"),
        pytest.param(chunk(b"<html>\n"), True, id="garbage"),
    ],
)
def test_a_quiet_watch_that_lasted_was_a_sign_of_life_whatever_ends_it(
    lying: tuple[Liar, Mirror[Any]], end: bytes, is_fault: bool
) -> None:
    """Four quiet watches of 2.5 s: two of them last longer than the 4 s after which a reader calls the mirror stale."""
    liar, mirror = lying
    liar.scripts = [lasting(2.5, end) for _ in range(4)]
    mirror.renew_within(STALE_SECONDS)
    mirror.start()
    ages, errors = [0.0], set()
    while not liar.silenced.is_set():
        if mirror.wait_synced(0):
            ages.append(mirror.age_seconds())
            errors.add(mirror.error is not None)
        time.sleep(0.01)
    assert max(ages) < STALE_SECONDS
    # what the server said against it is an error until the next watch is accepted; that it ended is none
    assert (True in errors) is is_fault


@pytest.mark.slow
def test_a_mirror_that_failed_long_ago_tries_again_soon_after_the_next_fault(lying: tuple[Liar, Mirror[Any]]) -> None:
    """Pauses double with each failure in a row; a quiet watch between two failures ends the row."""
    liar, mirror = lying
    failing = [chunks(error_event(500)) for _ in range(3)]
    liar.scripts = [*failing, lasting(1.2, b""), chunks(error_event(500))]
    mirror.start()
    assert liar.silenced.wait(60)
    # the row after the quiet watch has one failure; with those before it there would be four
    assert mirror._failures == 1


def test_a_watch_that_is_accepted_and_fails_without_a_word_is_no_sign_of_life(lying: tuple[Liar, Mirror[Any]]) -> None:
    liar, mirror = lying
    liar.scripts = [chunks(error_event(500)) for _ in range(4)]
    mirror.start()
    assert mirror.wait_synced(60)
    listed = time.monotonic() - mirror.age_seconds()
    wait_for("failed watches", lambda: len(liar.queries) >= 3)
    assert mirror.lists == 1
    # the server's last word is the list, whatever number of watches it took up since
    assert time.monotonic() - mirror.age_seconds() == pytest.approx(listed, abs=0.05)


def test_a_bookmark_moves_the_version_to_go_on_from(lying: tuple[Liar, Mirror[Any]]) -> None:
    liar, mirror = lying
    liar.scripts = [chunks(event("ADDED", "a", 101, "1"), bookmark(150))]
    mirror.start()
    assert liar.silenced.wait(60)
    assert "resourceVersion=100&" in liar.queries[0]
    assert "resourceVersion=150&" in liar.queries[1]
    assert "allowWatchBookmarks=true" in liar.queries[0]
    assert (values(mirror), mirror.lists) == ({"a": "1"}, 1)


def test_an_error_event_of_an_old_version_means_a_new_list(lying: tuple[Liar, Mirror[Any]]) -> None:
    liar, mirror = lying
    liar.scripts = [chunks(event("ADDED", "a", 101, "1"), error_event(410))]
    mirror.start()
    assert liar.silenced.wait(60)
    assert (values(mirror), mirror.lists) == ({}, 2)  # the list has no "a" any more
    assert "resourceVersion=100&" in liar.queries[1]


def test_another_error_event_is_no_reason_to_list(lying: tuple[Liar, Mirror[Any]]) -> None:
    liar, mirror = lying
    liar.scripts = [chunks(event("ADDED", "a", 101, "1"), error_event(500))]
    mirror.start()
    assert liar.silenced.wait(60)
    assert (values(mirror), mirror.lists) == ({"a": "1"}, 1)
    assert "resourceVersion=101&" in liar.queries[1]


def test_a_version_from_a_future_that_an_older_snapshot_undid_is_given_up(lying: tuple[Liar, Mirror[Any]]) -> None:
    liar, mirror = lying
    liar.scripts = [chunks(error_event(504)) for _ in range(6)]
    mirror.start()
    assert liar.silenced.wait(60)
    assert mirror.lists == 2


def test_a_server_that_is_older_than_what_it_said_before_a_break_is_listed_anew(
    lying: tuple[Liar, Mirror[Any]],
) -> None:
    liar, mirror = lying
    # the list is of 100, the event of 150; after the break the server is at 149, so it was restored
    liar.scripts = [chunks(event("ADDED", "a", 150, "1"), b"garbage\n")]
    liar.versions = ["149"]
    mirror.start()
    assert liar.silenced.wait(60)
    assert (values(mirror), mirror.lists) == ({}, 2)


def test_a_server_that_has_kept_what_it_said_is_followed_after_a_break(lying: tuple[Liar, Mirror[Any]]) -> None:
    liar, mirror = lying
    liar.scripts = [chunks(event("ADDED", "a", 150, "1"), b"garbage\n")]
    liar.versions = ["150"]
    mirror.start()
    assert liar.silenced.wait(60)
    assert (values(mirror), mirror.lists) == ({"a": "1"}, 1)
    assert "resourceVersion=150&" in liar.queries[1]


def test_replayed_events_are_settled_by_a_list(lying: tuple[Liar, Mirror[Any]]) -> None:
    liar, mirror = lying
    data, two = event("ADDED", "a", 101, "1"), event("MODIFIED", "a", 102, "2")
    liar.scripts = [chunks(data, two, two, data, two)]
    mirror.start()
    assert liar.silenced.wait(60)
    assert mirror.lists == 2


def test_garbage_and_events_without_an_end_are_broken_watches(lying: tuple[Liar, Mirror[Any]]) -> None:
    liar, mirror = lying
    added = event("ADDED", "a", 101, "1")
    liar.scripts = [chunks(b"<html>\n"), chunks(added[:40]), chunks(b"\xff\xfe\n"), chunks(b"[]\n"), chunks(added)]
    mirror.start()
    assert liar.silenced.wait(60)
    assert (values(mirror), mirror.lists) == ({"a": "1"}, 1)


@pytest.mark.parametrize("size", [1, 7])
def test_events_in_tiny_chunks_are_put_together(lying: tuple[Liar, Mirror[Any]], size: int) -> None:
    liar, mirror = lying
    text = b"".join(event("ADDED", f"n{i}", 101 + i, "v") for i in range(20))
    liar.scripts = [chunks(*(text[i : i + size] for i in range(0, len(text), size)))]
    mirror.start()
    assert liar.silenced.wait(60)
    assert values(mirror) == {f"n{i}": "v" for i in range(20)}


def test_an_object_of_eight_megabytes_is_read(lying: tuple[Liar, Mirror[Any]]) -> None:
    liar, mirror = lying
    text = event("ADDED", "large", 101, "x" * (8 << 20))
    liar.scripts = [chunks(*(text[i : i + 10_000] for i in range(0, len(text), 10_000)))]
    mirror.start()
    assert liar.silenced.wait(60)
    assert len(values(mirror)["large"]) == 8 << 20


@pytest.mark.slow
def test_watches_that_are_closed_at_once_are_failures_and_end_in_a_list(lying: tuple[Liar, Mirror[Any]]) -> None:
    liar, mirror = lying
    liar.scripts = [chunks() for _ in range(12)]
    mirror.start()
    assert liar.silenced.wait(60)
    assert mirror.lists >= 2  # five in a row are one more list; a healthy watch would be taken up with none


def test_an_object_that_breaks_our_reading_hides_no_other(lying: tuple[Liar, Mirror[Any]]) -> None:
    liar, mirror = lying
    liar.items = [{"metadata": {"name": "bare"}}, {"metadata": {"name": "a"}, "data": {"v": "1"}}]
    mirror._project = lambda config_map: {"v": config_map.data["v"]}  # TypeError: "bare" has no data
    mirror.start()
    assert mirror.wait_synced(60)
    assert values(mirror) == {"a": "1"}
    assert mirror.refusals == {("", "bare"): "TypeError: 'NoneType' object is not subscriptable"}
