"""EDGE: progress on stderr: bars on a terminal, else one line per stage. Implements `base.progress.Progress`.

with progress.bars() as progress:
    pull(source, store, settings, clock, progress)
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from cotenant.base.commands.output import console, message
from cotenant.base.progress import Progress
from cotenant.base.text import visible

if TYPE_CHECKING:
    from rich.progress import Progress as Bars


class ClosableProgress(Progress, Protocol):
    """A Progress that must be closed."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def bars(*, quiet: bool = False) -> ClosableProgress:
    """Bars when stderr is a terminal, one line per stage when not, nothing when `quiet`."""
    if quiet:
        return LineProgress(silent=True)
    return TerminalBars() if sys.stderr.isatty() else LineProgress()


class LineProgress:
    """One line when a stage begins."""

    def __init__(self, *, silent: bool = False) -> None:
        self._silent = silent

    def stage(self, name: str, total: int) -> None:
        """Say the stage's name."""
        if not self._silent:
            message(f"{name} ({total})" if total else name)

    def advance(self, steps: int = 1) -> None:
        """Do nothing: a log needs no steps."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: there is nothing to close."""


class TerminalBars:
    """One rich bar per stage; the finished ones stay on screen."""

    def __init__(self) -> None:
        self._bars = _rich_bars()
        self._total: int | None = None

    def stage(self, name: str, total: int) -> None:
        """Fill the present bar and open the next."""
        self._finish()
        self._total = total or None
        self._task = self._bars.add_task(visible(name), total=self._total)

    def advance(self, steps: int = 1) -> None:
        """Move the present bar."""
        if self._bars.task_ids:
            self._bars.advance(self._task, steps)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Fill the last bar when all went well, and give the terminal back."""
        if error is None:
            self._finish()
        self._bars.stop()

    def _finish(self) -> None:
        if self._bars.task_ids:
            total = self._total or 1
            self._bars.update(self._task, total=total, completed=total)


def _rich_bars() -> Bars:
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    return Bars(
        SpinnerColumn(finished_text="✓"),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console(sys.stderr),
    )
