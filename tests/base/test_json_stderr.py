"""With JSON every line on stderr is JSON, whoever writes it; and children end with their parents without a word."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.logs.json_stderr import JsonLines
from cotenant.manager.decisions.results import PipelineJob
from cotenant.settings import Settings
from tests.cluster.waiting import wait_for

SET_UP = """
import sys
from cotenant.base.logs.telemetry import configure_logging
from cotenant.base.settings.sections import TelemetrySettings
configure_logging(TelemetrySettings(log_format="json"))
"""
SOURCES = {
    "a print": ("print('by hand', file=sys.stderr)", "by hand", 0),
    "pieces of a line": ("sys.stderr.write('by '); sys.stderr.write('hand\\n')", "by hand", 0),
    "a line without an end": ("sys.stderr.write('by hand')", "by hand", 0),
    "the warnings module": ("import warnings; warnings.warn('old thing')", "old thing", 0),
    "a log of the standard library": ("import logging; logging.getLogger('lib').error('bad %s', 'x')", "bad x", 0),
    "an unhandled exception": ("def f():\n    raise ValueError('down')\nf()", "ValueError: down", 1),
    "a thread's exception": (
        "import threading\ndef f():\n    raise ValueError('down')\nt = threading.Thread(target=f); t.start(); t.join()",
        "ValueError: down",
        0,
    ),
    "an exception in a finalizer": (
        "class A:\n    def __del__(self):\n        raise ValueError('down')\na = A(); del a",
        "ValueError: down",
        0,
    ),
    "asyncio": (
        "import asyncio\nasync def f():\n    async def g():\n        raise ValueError('down')\n"
        "    t = asyncio.create_task(g()); await asyncio.sleep(0.01); del t\n"
        "asyncio.run(f())\nimport gc; gc.collect()",
        "ValueError: down",
        0,
    ),
    "a traceback by hand": (
        "import traceback\ntry:\n    1 / 0\nexcept Exception:\n    traceback.print_exc()",
        "ZeroDivisionError",
        0,
    ),
    "sys.exit with words": ("sys.exit('no way')", "no way", 1),
    "uvicorn": (
        "import uvicorn\nfrom cotenant.dashboard.app import server_config\nfrom fastapi import FastAPI\n"
        "import logging; server_config(FastAPI()); logging.getLogger('uvicorn.error').error('bad head')",
        "bad head",
        0,
    ),
}


def run(program: str) -> tuple[int, str, list[dict[str, Any]]]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stderr, [json.loads(line) for line in done.stderr.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
def test_every_line_is_a_json_object(source: str) -> None:
    program, phrase, code = SOURCES[source]
    returned, text, lines = run(SET_UP + program)
    assert returned == code, text
    assert lines and all({"ts", "level", "msg"} <= line.keys() for line in lines), text
    assert phrase in " ".join(f"{line['msg']} {line.get('exception', '')}" for line in lines), text


def test_an_unhandled_exception_is_one_event_with_its_whole_traceback() -> None:
    _, _, lines = run(SET_UP + "raise ValueError('down')")
    (line,) = lines
    assert (line["level"], line["msg"]) == ("critical", "unhandled exception")
    assert line["exception"].startswith("Traceback") and line["exception"].endswith("ValueError: down")


def test_a_worker_of_the_pipeline_logs_as_its_parent_does() -> None:
    program = (
        SET_UP
        + """
from cotenant.pipeline.shards.executors import Processes
from tests.support.worker_tasks import warned
if __name__ == "__main__":
    with_processes = Processes(1)
    list(with_processes.run(warned, [1, 2]))
    with_processes.close()
"""
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert "a worker warns" in {line["msg"] for line in lines} and done.stdout == ""


@given(st.lists(st.text(max_size=20), max_size=10))
def test_any_text_in_any_pieces_becomes_lines_of_json_and_objects_pass(pieces: list[str]) -> None:
    inner = io.StringIO()
    lines = JsonLines(inner)
    for piece in pieces:
        lines.write(piece)
    lines.close()
    texts = [line for line in "".join(pieces).replace("\r\n", "\n").replace("\r", "\n").split("\n") if line.strip()]
    documents = [json.loads(line) for line in inner.getvalue().split("\n")[:-1]]
    assert [line.get("msg") for line in documents if isinstance(line, dict) and line.get("logger") == "stderr"] == [
        text for text in texts if not _is_object(text)
    ]
    assert len(documents) == len(texts)


def _is_object(text: str) -> bool:
    try:
        return text.startswith("{") and text.endswith("}") and isinstance(json.loads(text), dict)
    except ValueError:
        return False


CHILDREN = {
    "pipeline": ("cotenant.manager.pipeline_child", ""),
    "collector": ("cotenant.profiler.enforcement.collector_child", ""),
    "watcher": ("cotenant.scheduler_ext.extender.watch.watcher", ""),
    "pipeline, in the middle of its job": ("cotenant.manager.pipeline_child", '{"settings": {"tel'),
}


@pytest.mark.slow
@pytest.mark.parametrize("child", CHILDREN)
def test_a_child_whose_parent_has_gone_before_its_job_ends_without_a_word(child: str) -> None:
    module, text = CHILDREN[child]
    done = subprocess.run(
        [sys.executable, "-m", module], input=text, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.slow
def test_a_job_that_cannot_be_read_is_a_fault_that_is_seen() -> None:
    argv = [sys.executable, "-m", "cotenant.manager.pipeline_child"]
    done = subprocess.run(argv, input='{"settings": 1}', capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1 and "settings" in done.stderr


def test_a_child_whose_parent_is_killed_ends_soon_and_without_a_traceback() -> None:
    """The parent holds the child's pipes, is killed, and the child, which would work for an hour, is gone."""
    child = "from cotenant.base.process.endings import follow_parent; import time; follow_parent(); " \
            "print('ready', flush=True); time.sleep(3600)"  # fmt: skip
    program = (
        "import subprocess, sys, time\n"
        f"p = subprocess.Popen([sys.executable, '-c', {child!r}], stdin=subprocess.PIPE)\n"
        "print(p.pid, flush=True)\ntime.sleep(3600)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None and parent.stderr is not None
    printed = {parent.stdout.readline().strip(), parent.stdout.readline().strip()}
    (pid,) = (int(word) for word in printed - {"ready"})
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    wait_for("the child has ended", lambda: not _runs(pid))
    assert parent.stderr.read() == ""
    parent.stdout.close()
    parent.stderr.close()


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


@pytest.mark.slow
def test_an_answer_that_nobody_reads_any_more_is_no_traceback() -> None:
    """The child answers into a pipe whose reader has gone, as after its parent's kill."""
    reader, writer = os.pipe()
    os.close(reader)
    job = msgspec.json.encode(PipelineJob(Settings(), "nobody", keep=False))
    argv = [sys.executable, "-m", "cotenant.manager.pipeline_child"]
    done = subprocess.run(argv, input=job, stdout=writer, stderr=subprocess.PIPE, timeout=120, check=False)
    os.close(writer)
    assert done.returncode == 1 and b"Traceback" not in done.stderr
