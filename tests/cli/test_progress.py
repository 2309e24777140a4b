"""Progress goes to stderr: lines without a terminal, bars with one."""

from __future__ import annotations

import json
import sys

import pytest

from cotenant.base.commands.progress import LineProgress, TerminalBars, bars
from cotenant.base.logs import json_stderr
from cotenant.base.progress import Progress, ProgressMessage


def run(progress: Progress) -> None:
    progress.stage("Reading", 3)
    progress.advance()
    progress.advance(2)
    progress.stage("Writing\x1b[2J", 0)
    progress.advance()


def test_without_a_terminal_each_stage_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with bars() as progress:
        assert isinstance(progress, LineProgress)
        run(progress)
    assert capsys.readouterr() == ("", "Reading (3)\nWriting\\x1b[2J\n")


def test_a_json_log_has_messages_that_another_process_reads(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", json_stderr.JsonLines(sys.stderr))
    with bars() as progress:
        run(progress)
        progress.stage("Many", 1000)
        for _ in range(1000):
            progress.advance()
    lines = capsys.readouterr().err.splitlines()
    assert all(json.loads(line).keys() >= {"ts", "level", "logger", "msg"} for line in lines)  # as every line of a log
    read = [ProgressMessage.parse(line) for line in lines]
    assert read[:4] == [
        ProgressMessage("Reading", 1, 0, 3),
        ProgressMessage("Reading", 1, 1, 3),
        ProgressMessage("Reading", 1, 3, 3),
        ProgressMessage("Writing\x1b[2J", 2, 0, 0),
    ]
    # A thousand steps are told at each twentieth: 0, 50, 100, ... 1,000.
    assert [message.done for message in read[4:] if message] == [*range(0, 1001, 50)]
    # Of three stages two are done, and of the third all of its steps.
    assert read[-1] and read[-1].stages_done == 3.0
    assert ProgressMessage.parse('{"msg": "scanned"}') is None and ProgressMessage.parse("plain") is None


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with bars(quiet=True) as progress:
        run(progress)
    assert capsys.readouterr() == ("", "")


def test_bars_fill_stage_by_stage(capsys: pytest.CaptureFixture[str]) -> None:
    with TerminalBars() as progress:
        run(progress)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Reading" in captured.err
    assert "3/3" in captured.err
    assert "\x1b[2J" not in captured.err


def test_a_stage_that_failed_is_not_shown_as_done(capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> None:
        with TerminalBars() as progress:
            progress.stage("Reading", 3)
            progress.advance()
            raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        broken()
    assert "3/3" not in capsys.readouterr().err
