"""Progress goes to stderr: lines without a terminal, bars with one."""

from __future__ import annotations

import pytest

from cotenant.base.commands.progress import LineProgress, TerminalBars, bars
from cotenant.base.progress import Progress


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
