"""EDGE: progress on stderr: bars on a terminal, messages in a JSON log, otherwise one line per stage.

Implements `base.progress.Progress`.

    with progress.bars() as progress:
        pull(source, store, settings, clock, progress)
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeAlias

import msgspec

from cotenant.base.commands.output import console, message
from cotenant.base.logs.json_stderr import JsonLines, event_line
from cotenant.base.progress import ProgressMessage
from cotenant.base.text import percent, visible

if TYPE_CHECKING:
    from rich.progress import TaskID

PARTS: Final = 20
"""Number of parts of a stage; a JSON log has a line after each part."""


def bars(*, quiet: bool = False) -> ShownProgress:
    """Return bars if stderr is a terminal, messages if it is a JSON log, else a line per stage; nothing if `quiet`."""
    if quiet:
        return LineProgress(silent=True)
    if isinstance(sys.stderr, JsonLines):
        return LoggedProgress()
    return TerminalBars() if sys.stderr.isatty() else LineProgress()


class LineProgress:
    """Progress as one line on stderr at the beginning of each stage."""

    def __init__(self, *, silent: bool = False) -> None:
        self._silent = silent
        self._left = ""

    def stage(self, name: str, total: int) -> None:
        """Write the stage's name, and the estimated remaining time of all stages if it is known."""
        if not self._silent:
            message((f"{name} ({total})" if total else name) + self._left)

    def expect(self, done_ratio: float, remaining: str) -> None:
        """Keep the finished share of the whole run (0..1) and the remaining time as text for the next stage's line."""
        self._left = f"; {percent(done_ratio)} of the run is done, about {remaining} left"

    def advance(self, steps: int = 1) -> None:
        """Do nothing: a log shows stages, not steps."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: there is nothing to close."""


class LoggedProgress(LineProgress):
    """Progress as a `ProgressMessage` at the beginning of each stage and at each further twentieth of its steps."""

    def __init__(self) -> None:
        super().__init__()
        self._now = ProgressMessage("", 0, 0, 0)

    def stage(self, name: str, total: int) -> None:
        """Report the beginning of the next stage."""
        self._now = ProgressMessage(name, self._now.number + 1, 0, total)
        self._report()

    def advance(self, steps: int = 1) -> None:
        """Count the finished steps, and report them each time another twentieth of the stage is done."""
        before = self._now
        self._now = msgspec.structs.replace(before, done=before.done + steps)
        if before.total and self._now.done * PARTS // before.total > before.done * PARTS // before.total:
            self._report()

    def _report(self) -> None:
        message(event_line(msgspec.to_builtins(self._now), logger="progress"))


class TerminalBars:
    """Progress as one rich bar per stage; the bars of finished stages stay on screen."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        self._bars = Bars(
            SpinnerColumn(finished_text="✓"),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console(sys.stderr),
        )
        self._total: int | None = None
        self._task: TaskID | None = None
        self._all: TaskID | None = None

    def stage(self, name: str, total: int) -> None:
        """Fill the current bar and open a bar for the next stage."""
        self._finish()
        self._total = total or None
        self._task = self._bars.add_task(visible(name), total=self._total)

    def advance(self, steps: int = 1) -> None:
        """Move the current bar by a number of steps."""
        if self._task is not None:
            self._bars.advance(self._task, steps)

    def expect(self, done_ratio: float, remaining: str) -> None:
        """Move the bar of the whole run to this share (0..1) and show the remaining time."""
        if self._all is None:
            self._all = self._bars.add_task("", total=100)
        self._bars.update(self._all, completed=int(100 * done_ratio), description=f"Whole run, about {remaining} left")

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Fill the last bar if no error was raised, and release the terminal."""
        if error is None:
            self._finish()
            if self._all is not None:
                self._bars.remove_task(self._all)
                self._all = None
        self._bars.stop()

    def _finish(self) -> None:
        if self._task is not None:
            total = self._total or 1
            self._bars.update(self._task, total=total, completed=total)


ShownProgress: TypeAlias = LineProgress | TerminalBars
