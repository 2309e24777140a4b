"""A probe's result: what was tried, what was found, and what helps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from cotenant.base.commands.extras import in_words


class ProbeState(StrEnum):
    """The result of a probe. A required one that is failed or skipped makes `cotenant doctor` fail."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    """The outcome of a probe.

    found: the finding in one sentence; fix: one sentence or command, empty when all is well.
    """

    state: ProbeState
    found: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class ProbeFinding:
    """A probe and its outcome."""

    probe: str
    state: ProbeState
    required: bool
    tried: str
    found: str
    fix: str

    @property
    def fatal(self) -> bool:
        """True if nothing works before this is fixed."""
        return self.required and self.state is ProbeState.FAILED


@dataclass(frozen=True, slots=True)
class Probe:
    """A name, and in words what is tried; `required` when cotenant cannot do its main job without."""

    name: str
    tried: str
    required: bool = False

    def run(self, probe: Callable[[], ProbeOutcome]) -> ProbeFinding:
        """Look; an error of ours is a finding with the error's own fix, any other one too: a doctor does not faint."""
        try:
            outcome = probe()
        except Exception as error:  # noqa: BLE001 - reported as a finding
            translated = in_words(error)
            if translated is None:
                fix = "This is an error in cotenant: report it with the output of `cotenant version`."
                outcome = ProbeOutcome(ProbeState.FAILED, f"unexpected {type(error).__name__}: {error}", fix)
            else:
                outcome = ProbeOutcome(
                    ProbeState.FAILED if self.required else ProbeState.WARNING, translated.message, translated.fix
                )
        return ProbeFinding(self.name, outcome.state, self.required, self.tried, outcome.found, outcome.fix)
