"""Progress of long work, for an observer: a terminal's bar, a log, or nobody."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives stages and steps; implementations live in `cotenant.cli`."""

    def stage(self, name: str, total: int) -> None:
        """A stage of `total` steps begins (the one before has ended)."""

    def advance(self, steps: int = 1) -> None:
        """Some steps of the present stage are done."""


class Silent:
    """A Progress that nobody watches."""

    def stage(self, name: str, total: int) -> None:
        """Ignore."""

    def advance(self, steps: int = 1) -> None:
        """Ignore."""
