"""Progress of long work, for an optional observer: a terminal's bar, a log or another process."""

from __future__ import annotations

from typing import Final, Protocol, Self

import msgspec

from cotenant.base.json_documents.json_decoders import UNDECODABLE


class Progress(Protocol):
    """Receives stages and steps; implementations live in `cotenant.cli`."""

    def stage(self, name: str, total: int) -> None:
        """A stage of `total` steps begins (the one before has ended)."""

    def advance(self, steps: int = 1) -> None:
        """Some steps of the present stage are done."""


class Silent:
    """A Progress without an observer."""

    def stage(self, name: str, total: int) -> None:
        """Ignore."""

    def advance(self, steps: int = 1) -> None:
        """Ignore."""


SILENT: Final = Silent()
"""Where nobody watches."""


class ProgressMessage(msgspec.Struct, frozen=True, tag_field="msg", tag="progress"):
    """Progress as a line of a JSON log, by which another process follows it.

    number: how many stages have begun, this one included; done, total: steps of this stage, 0 where it counts none.
    """

    stage: str
    number: int
    done: int
    total: int

    @property
    def stages_done(self) -> float:
        """Number of stages that are done, the present one by its share of steps."""
        return self.number - 1 + (min(self.done / self.total, 1.0) if self.total else 0.0)

    @classmethod
    def parse(cls, line: str) -> Self | None:
        """Return the message of a line; None for any other line."""
        try:
            return msgspec.json.decode(line, type=cls)
        except UNDECODABLE:
            return None
