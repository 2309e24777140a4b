"""EDGE: a policy's preview as a job of the server: its stage, how long it has taken, and a way to stop it."""

from __future__ import annotations

from collections.abc import Callable

from cotenant.autopilot.model import AutopilotRound
from cotenant.base.errors import CotenantError
from cotenant.base.progress import Progress
from cotenant.dashboard.changes.jobs import PageJob


class _PreviewStopped(CotenantError):
    """Somebody has stopped the preview."""


class PreviewJob(PageJob):
    """A round with a draft policy, decided once; a `Progress` of its stages, between which a stop takes effect."""

    def __init__(self, ask: Callable[[Progress], AutopilotRound]) -> None:
        """Begin at once, in a thread."""
        self._ask = ask
        self._answer: AutopilotRound | None = None
        self.stage_name, self.stage_number = "", 0
        super().__init__("preview")

    def stage(self, name: str, _total: int) -> None:
        """Begin a stage of the round."""
        if not self.may_go_on():
            raise _PreviewStopped("the preview was stopped", fix="Preview it again.")
        self.stage_name, self.stage_number = name, self.stage_number + 1

    def advance(self, _steps: int = 1) -> None:
        """Ignore: a stage is one question."""

    def answer(self) -> AutopilotRound:
        """Return the round. Raises the error that ended it."""
        self.require_success()
        assert self._answer is not None, "asked after its end"
        return self._answer

    def _work(self) -> None:
        self._answer = self._ask(self)
