"""What repeats is written once, then counted; its end is written too."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.logs.repeated_events import (
    ENDED,
    FORGET_SECONDS,
    MOST_KEYS,
    REMIND_SECONDS,
    SHORTEST_QUIET_SECONDS,
    CountingHandler,
    RepeatedEvents,
    key_of,
)
from cotenant.base.logs.telemetry import configure_logging
from cotenant.base.settings.sections import TelemetrySettings

JSON = TelemetrySettings(log_format="json")
NOW = 1_800_000_000.0


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    configure_logging(TelemetrySettings(log_format="console"), io.StringIO())
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
    structlog.reset_defaults()


def record(text: str, at: float, level: int = logging.WARNING, **fields: Any) -> logging.LogRecord:
    """As structlog hands one over."""
    log_record = logging.makeLogRecord({"msg": {"event": text, **fields}, "levelno": level, "name": "room"})
    log_record.created = at
    return log_record


def event_of(written: logging.LogRecord | None) -> Any:
    return None if written is None else written.msg


def test_one_outage_of_a_source_is_one_line_a_count_and_an_end() -> None:
    """As a scan's 144 queries fail in one minute: other parts, other sizes, one error."""
    events = RepeatedEvents()
    refused = "http://prometheus:9090: connection refused"
    lines = [
        events.taken(record("query_failed", NOW + number / 3, parts=[f"p{number}"], slots=number, error=refused))
        for number in range(144)
    ]
    assert lines[0] is not None and lines[1:] == [None] * 143
    assert list(events.ended(NOW + 143 / 3 + SHORTEST_QUIET_SECONDS - 1)) == []
    (end,) = events.ended(NOW + 143 / 3 + SHORTEST_QUIET_SECONDS)
    assert (event_of(end)["event"], event_of(end)["of"], event_of(end)["repeated"]) == (ENDED, "query_failed", 143)
    assert event_of(end)["error"] == refused and end.levelno == logging.WARNING
    assert (event_of(end)["since"], event_of(end)["until"]) == ("2027-01-15T08:00:00Z", "2027-01-15T08:00:47Z")
    assert not events.is_counting
    # the next outage is a new one
    assert events.taken(record("query_failed", NOW + 1000, error=refused)) is not None


def test_one_that_goes_on_is_written_again_with_its_count() -> None:
    events = RepeatedEvents()
    written = [events.taken(record("away", NOW + at, error="x")) for at in range(0, 1300, 10)]
    repeats = [
        (at, event_of(log_record).get("repeated"))
        for at, log_record in zip(range(0, 1300, 10), written, strict=True)
        if log_record
    ]
    # the first; after ten minutes the 59 between; after ten more the 59 between
    assert repeats == [(0, None), (int(REMIND_SECONDS), 59), (int(2 * REMIND_SECONDS), 59)]


def test_the_end_of_what_comes_seldom_is_waited_for_longer() -> None:
    events = RepeatedEvents()
    for at in (0.0, 100.0, 200.0):
        events.taken(record("away", NOW + at))
    assert list(events.ended(NOW + 200 + 299)) == []
    assert [event_of(log_record)["repeated"] for log_record in events.ended(NOW + 200 + 300)] == [2]


A, B = "6f9619ff-8b86-d011-b42d-00c04fc964ff", "7d444840-9dc0-11d1-b245-5ffdce74fad2"


@pytest.mark.parametrize(
    ("first", "second", "equal"),
    [
        ({"error": "x"}, {"error": "x"}, True),
        ({"error": "x", "attempt": 1}, {"error": "x", "attempt": 2}, True),
        ({"error": "x", "seconds": 1.5}, {"error": "x", "seconds": 0.5}, True),
        ({"error": "no answer after 30.1 s"}, {"error": "no answer after 29.8 s"}, True),
        ({"error": "<Client at 0x7f00>"}, {"error": "<Client at 0x7f08>"}, True),
        ({"error": "x"}, {"error": "y"}, False),
        ({"pod": "shop/web-1"}, {"pod": "shop/web-2"}, False),
        ({"error": "10.0.0.5:443 refused"}, {"error": "10.0.0.6:443 refused"}, False),
        ({"request_id": "a"}, {"request_id": "b"}, False),
        # what proxies in front of a source sign each of their answers with: nginx, Envoy, Amazon's, Thanos, Mimir
        (
            {"error": f"answered 502: bad gateway, x-request-id: {A}"},
            {"error": f"answered 502: bad gateway, x-request-id: {B}"},
            True,
        ),
        (
            {"error": "503 RequestId: 8f14e45fceea167a5a36dedd4bea2543"},
            {"error": "503 RequestId: c9f0f895fb98ab9159f51fd0297e236d"},
            True,
        ),
        ({"error": "at 2026-11-26T13:00:51.123Z refused"}, {"error": "at 2026-11-26T13:00:52.9Z refused"}, True),
        (
            {"error": "Thu, 26 Nov 2026 13:00:51 GMT no healthy upstream"},
            {"error": "Thu, 26 Nov 2026 13:01:51 GMT no healthy upstream"},
            True,
        ),
        ({"error": "token expired at 1795698000.25"}, {"error": "token expired at 1795698060.5"}, True),
        (
            {"error": "read tcp 10.0.0.7:41234->10.0.0.9:9090: i/o timeout"},
            {"error": "read tcp 10.0.0.7:58002->10.0.0.9:9090: i/o timeout"},
            True,
        ),
        *(
            ({"error": first}, {"error": second}, True)
            for first, second in (
                ("deadline exceeded after 1m30.5s", "deadline exceeded after 1m29.9s"),
                ("last seen 2026-11-26 13:00 UTC", "last seen 2026-11-26 13:05 UTC"),
                ("2026/11/26 13:00:51 [error] no upstream", "2026/11/26 13:00:52 [error] no upstream"),
                ("[26/Nov/2026:13:00:51 +0000] no upstream", "[26/Nov/2026:13:00:59 +0000] no upstream"),
                ("503 Root=1-67891233-abcdef012345678912345678", "503 Root=1-67891299-bbcdef012345678912345678"),
                ("throttled, request JYcmVEAxoAMEYpQ=", "throttled, request KYcnVEAxoAMEZpQ="),
                # an API server, its etcd, a bucket
                (
                    "no connection (url: /api/v1/pods?resourceVersion=123456&timeoutSeconds=312)",
                    "no connection (url: /api/v1/pods?resourceVersion=123999&timeoutSeconds=287)",
                ),
                ("too old resource version: 123456 (234567)", "too old resource version: 123457 (234999)"),
                ("no leader, term 12, index 99812", "no leader, term 13, index 99899"),
                ("answered 503 Retry-After: 12", "answered 503 Retry-After: 9"),
                ("curlCode: 28, no answer after 3001 milliseconds", "curlCode: 28, no answer after 3007 milliseconds"),
                ("SlowDown, HostId uYjfBVq0Zlq1Hs9w+3dK5tR==", "SlowDown, HostId aYjfBVq0Zlq1Hs9w+4dK5tQ=="),
            )
        ),
        ({"error": 'no {exported_namespace="a"}'}, {"error": 'no {exported_container="a"}'}, False),
        ({"error": "no /api/v1/pods?limit=500"}, {"error": "no /api/v1/nodes?limit=500"}, False),
        ({"error": "limit 500m is low"}, {"error": "limit 400m is low"}, False),
        ({"error": "mac 00:11:22:33:44:55 fails"}, {"error": "mac 00:11:22:33:44:56 fails"}, False),
        ({"error": "answered 502: bad gateway"}, {"error": "answered 503: bad gateway"}, False),
        ({"error": "pod web-7d4b9c6f5d-x2x1p is gone"}, {"error": "pod web-7d4b9c6f5d-q8k2z is gone"}, False),
        ({"error": "node ip-10-0-0-5 v1.35.2 fails"}, {"error": "node ip-10-0-0-5 v1.35.3 fails"}, False),
        ({"error": "dial tcp 10.12.13.14:9090 fails"}, {"error": "dial tcp 10.12.13.15:9090 fails"}, False),
        ({"uid": A}, {"uid": B}, False),
        ({"exc_info": ValueError("a")}, {"exc_info": ValueError("a")}, True),
        ({"exc_info": ValueError("a")}, {"exc_info": ValueError("b")}, False),
        ({"exc_info": ValueError("a")}, {"exc_info": KeyError("a")}, False),
    ],
)
def test_what_makes_two_warnings_equal(first: dict[str, Any], second: dict[str, Any], equal: bool) -> None:
    assert (key_of(record("w", NOW, **first)) == key_of(record("w", NOW, **second))) is equal


def test_another_level_or_logger_is_another_warning_and_what_was_done_is_written_each_time() -> None:
    events = RepeatedEvents()
    assert events.taken(record("w", NOW)) and events.taken(record("w", NOW, logging.ERROR))
    other = record("w", NOW)
    other.name = "other"
    assert events.taken(other) is not None
    assert all(events.taken(record("written", NOW + at, logging.INFO)) for at in range(5))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 400)), max_size=60))
def test_every_warning_is_written_or_counted_and_no_count_is_lost(steps: list[tuple[str, float]]) -> None:
    events, at = RepeatedEvents(), NOW
    written: list[logging.LogRecord] = []
    ends: list[logging.LogRecord] = []
    for name, passed in steps:
        at += passed
        ends += events.ended(at)
        log_record = events.taken(record(name, at))
        written += [log_record] if log_record is not None else []
    ends += events.ended(at, all_of_them=True)
    # what was not written is in the count of a reminder, or of an end, which counts reminders too
    counted = sum(event_of(log_entry).get("repeated", 0) for log_entry in (*written, *ends))
    assert counted >= len(steps) - len(written) and not events.is_counting


def test_memory_is_bounded() -> None:
    events = RepeatedEvents()
    for number in range(3 * MOST_KEYS):
        events.taken(record("w", NOW, pod=f"p{number}"))
    assert len(events._seen) == MOST_KEYS


def test_a_warning_of_long_ago_is_a_new_one() -> None:
    events = RepeatedEvents()
    assert events.taken(record("w", NOW)) and events.taken(record("w", NOW + FORGET_SECONDS))


@pytest.mark.parametrize("log", [structlog.get_logger, logging.getLogger])
def test_through_the_whole_set_up_counts_are_json_lines_and_the_end_of_the_process_says_them(log: Any) -> None:
    out = io.StringIO()
    configure_logging(JSON, out)
    for _ in range(50):
        try:
            raise ValueError("down")
        except ValueError:
            log("room").exception("tick failed")
        log("room").warning("slow")
    configure_logging(JSON, io.StringIO())  # closes what was before, as the end of the process does
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(line["level"], line["msg"]) for line in lines] == [
        ("error", "tick failed"),
        ("warning", "slow"),
        ("error", ENDED),
        ("warning", ENDED),
    ]
    assert [(line["of"], line["repeated"], line["logger"]) for line in lines[2:]] == [
        ("tick failed", 49, "room"),
        ("slow", 49, "room"),
    ]
    assert lines[2]["error"] == "ValueError: down" and "exception" not in lines[2]


def test_the_end_is_written_while_nothing_else_is_logged() -> None:
    out, clock = io.StringIO(), [NOW]
    handler = CountingHandler(out, lambda: clock[0])
    handler.setFormatter(logging.Formatter("%(levelname)s %(msg)s"))
    for _ in range(3):
        handler.handle(record("away", clock[0]))
    clock[0] += SHORTEST_QUIET_SECONDS
    handler.write_ends()
    assert len(out.getvalue().splitlines()) == 2 and ENDED in out.getvalue()
    handler.close()
    assert len(out.getvalue().splitlines()) == 2


def test_at_level_debug_everything_is_written() -> None:
    out = io.StringIO()
    configure_logging(TelemetrySettings(log_format="json", log_level="debug"), out)
    for _ in range(5):
        structlog.get_logger().warning("slow")
    assert len(out.getvalue().splitlines()) == 5
