from __future__ import annotations

import io
import json
import logging
import math
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import structlog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from cotenant.base.logs.metrics import Metrics
from cotenant.base.logs.telemetry import configure_logging, scope
from cotenant.base.process.clock import FixedClock
from cotenant.base.settings.sections import TelemetrySettings

JSON = TelemetrySettings(log_format="json", log_level="info")
CONSOLE = TelemetrySettings(log_format="console", log_level="debug")


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


def events(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_an_event_is_one_json_object_with_time_level_and_message(out: io.StringIO) -> None:
    configure_logging(JSON, out)
    structlog.get_logger("room").warning("scan_ended", seconds=1.5, cluster="prod")
    (event,) = events(out)
    assert datetime.fromisoformat(event.pop("ts")).utcoffset() is not None
    assert event == {"level": "warning", "logger": "room", "msg": "scan_ended", "seconds": 1.5, "cluster": "prod"}


def test_the_standard_library_logs_in_the_same_form(out: io.StringIO) -> None:
    configure_logging(JSON, out)
    logging.getLogger("urllib3").warning("retry %s of %d", "a\nb", 3)
    (event,) = events(out)
    assert (event["msg"], event["level"], event["logger"]) == ("retry a\nb of 3", "warning", "urllib3")


@pytest.mark.parametrize("log", [structlog.get_logger, logging.getLogger])
def test_a_traceback_is_whole_in_json_and_one_line_on_a_console(out: io.StringIO, log: Any) -> None:
    for chosen in (JSON, CONSOLE):
        configure_logging(chosen, out)
        try:
            raise ValueError("bad\nvalue")
        except ValueError:
            log("room").exception("failed")
    json_line, line = out.getvalue().splitlines()
    assert json.loads(json_line)["exception"].startswith("Traceback (most recent call last)")
    assert json.loads(json_line)["exception"].endswith("ValueError: bad\nvalue")
    text, _, trace = line.partition(" trace=")
    assert text.endswith(r'error   failed logger=room error="ValueError: bad\nvalue"')
    assert trace.startswith('"base/test_telemetry.py:') and "test_a_traceback_is_whole" in trace


def test_events_below_the_level_are_not_written(out: io.StringIO) -> None:
    configure_logging(JSON, out)
    structlog.get_logger().debug("quiet")
    logging.getLogger("x").debug("quiet")
    assert out.getvalue() == ""


def test_fields_of_the_scope_are_on_every_event_inside_it(out: io.StringIO) -> None:
    configure_logging(JSON, out)
    with scope(run_id="r1"):
        with scope(request_id="q1"):
            structlog.get_logger().info("in")
        logging.getLogger("x").info("between")
    structlog.get_logger().info("out")
    assert [(e.get("run_id"), e.get("request_id")) for e in events(out)] == [("r1", "q1"), ("r1", None), (None, None)]


def test_what_json_cannot_say_is_said_in_words(out: io.StringIO) -> None:
    configure_logging(JSON, out)
    log = structlog.get_logger()
    log.info("values", nan=math.nan, array=np.array([1.5, 2]), path=Path("/x"), one=np.float32(0.5), kinds={"a"})
    log.info("odd", big=2**80, broken="\ud800", mixed={(1, 2): 3})
    first, second = events(out)
    assert {k: first[k] for k in ("nan", "array", "one", "kinds")} == {
        "nan": None, "array": [1.5, 2.0], "one": 0.5, "kinds": ["a"],
    }  # fmt: skip
    assert "/x" in first["path"]
    assert str(2**80) in str(second["big"])
    assert "(1, 2)" in second["mixed"]


anything = st.text(st.characters(exclude_categories=[])) | st.floats() | st.integers() | st.none() | st.binary()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(fields=st.dictionaries(st.text("abc", min_size=1).map("f_{}".format), anything, max_size=3), message=st.text())
@pytest.mark.parametrize("chosen", [JSON, CONSOLE], ids=["json", "console"])
def test_no_event_breaks_its_line_or_moves_the_terminal(
    chosen: TelemetrySettings, fields: dict[str, Any], message: str
) -> None:
    out = io.StringIO()
    configure_logging(chosen, out)
    structlog.get_logger().info(message, **fields)
    text = out.getvalue()
    assert text.endswith("\n")
    assert text[:-1].isprintable()
    text.encode()
    if chosen is JSON:
        assert json.loads(text)["msg"] == message


def test_a_terminal_gets_colours_unless_the_user_says_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for no_color, level in (("", "\x1b[33mwarning\x1b[0m"), ("1", "warning")):
        monkeypatch.setenv("NO_COLOR", no_color)
        terminal = Terminal()
        configure_logging(CONSOLE, terminal)
        structlog.get_logger("room").warning("disk full", path="/a b", size=3, empty="")
        line = terminal.getvalue().partition(" ")[2]
        assert line == f'{level} disk full path="/a b" size=3 empty="" logger=room\n'


def families(text: str) -> dict[str, Any]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def test_metrics_are_exposed_with_their_meaning() -> None:
    metrics = Metrics("1.2.3", "3.11")
    metrics.succeeded("scan", FixedClock(1_750_000_000.5))
    body, content_type = metrics.exposition()
    metric_families = families(body.decode())
    assert content_type.startswith("text/plain")
    assert metric_families["cotenant_build_info"].samples[0].labels == {"version": "1.2.3", "python": "3.11"}
    success = metric_families["cotenant_last_success_timestamp_seconds"].samples[0]
    assert (success.labels, success.value) == ({"task": "scan"}, 1_750_000_000.5)
    assert all(family.documentation.endswith(".") for family in metric_families.values())
    assert metrics.exposition("application/openmetrics-text; version=1.0.0")[1].startswith(
        "application/openmetrics-text"
    )


def test_an_expected_task_shows_its_interval_before_it_ran() -> None:
    metrics = Metrics("1", "3")
    metrics.expect("pipeline", 7200.0)
    metric_families = families(metrics.exposition()[0].decode())
    values = {
        name: metric_families[name].samples[0].value
        for name in metric_families
        if metric_families[name].samples[0].labels.get("task")
    }
    assert values == {"cotenant_last_success_timestamp_seconds": 0.0, "cotenant_task_interval_seconds": 7200.0}


def test_two_sets_of_metrics_in_one_process_do_not_meet() -> None:
    first, second = Metrics("1", "3"), Metrics("2", "3")
    first.succeeded("scan", FixedClock(1.0))
    assert "timestamp_seconds{" not in second.exposition()[0].decode()


BASE_INSTALL = """
import sys
from importlib.machinery import PathFinder
allowed = {"numpy", "structlog", "prometheus_client", "msgspec", "typing_extensions", "cotenant"}
class OnlyBase:
    def find_spec(self, name, path=None, target=None):
        spec = PathFinder.find_spec(name, path)
        installed = spec is not None and "site-packages" in str(spec.origin)
        if installed and name.partition(".")[0] not in allowed:
            raise ModuleNotFoundError(name, name=name)
        return None
sys.meta_path.insert(0, OnlyBase())
import io
from cotenant.base.logs.metrics import Metrics
from cotenant.base.logs.telemetry import configure_logging
from cotenant.base.http import health
from cotenant.base.settings.sections import TelemetrySettings
import structlog
configure_logging(TelemetrySettings())
structlog.get_logger().info("works")
Metrics("1", "3").exposition()
"""


@pytest.mark.server
def test_the_base_install_is_enough() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BASE_INSTALL], capture_output=True, text=True, timeout=60, check=False,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "works" in done.stderr
    assert done.stdout == ""


def test_a_console_shows_what_changed_and_json_has_both_values_whole(out: io.StringIO) -> None:
    fields = {"old": '{"cpu": 1}', "new": json.dumps({"cpu": 2, "why": "x" * 500}), "note": ""}
    configure_logging(CONSOLE, out)
    structlog.get_logger("room").info("wrote", **fields)
    assert 'changed="cpu 1 -> 2"' in out.getvalue()
    assert len(out.getvalue()) < 150
    assert "note=" not in out.getvalue()
    json_out = io.StringIO()
    configure_logging(JSON, json_out)
    structlog.get_logger("room").info("wrote", **fields)
    (event,) = events(json_out)
    assert {key: event[key] for key in fields} == fields
