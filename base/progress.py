"""Progress of long work, for an optional observer: a terminal's bar, a log or another process."""

from __future__ import annotations

from typing import Final, Protocol, Self

import msgspec

from cotenant.base.json_documents.json_decoders import UNDECODABLE


class Progress(Protocol):
    """A receiver of the stages and steps of long work; `base.commands.progress` shows them to people."""

    def stage(self, name: str, total: int) -> None:
        """Begin a stage of `total` steps, which ends the previous stage."""

    def advance(self, steps: int = 1) -> None:
        """Report that some steps of the current stage are done."""


class Silent:
    """A Progress that ignores everything."""

    def stage(self, name: str, total: int) -> None:
        """Ignore the stage."""

    def advance(self, steps: int = 1) -> None:
        """Ignore the steps."""


SILENT: Final = Silent()
"""Where nobody watches."""


class ProgressMessage(msgspec.Struct, frozen=True, tag_field="msg", tag="progress"):
    """A line of a JSON log that reports the progress of a command to another process.

    `number` counts the stages that have begun, including this one; `done` and `total` count its steps, 0 if unknown.
    """

    stage: str
    number: int
    done: int
    total: int

    @property
    def stages_done(self) -> float:
        """The number of finished stages, plus the finished share of the current one."""
        return self.number - 1 + (min(self.done / self.total, 1.0) if self.total else 0.0)

    @classmethod
    def parse(cls, line: str) -> Self | None:
        """Return the progress message of a log line, or None if the line is something else."""
        try:
            return msgspec.json.decode(line, type=cls)
        except UNDECODABLE:
            return None
