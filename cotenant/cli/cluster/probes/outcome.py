"""The result of a probe: what was checked, what was found, and the fix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from cotenant.base.commands.extras import in_words


class ProbeState(StrEnum):
    """The result of a probe. A required probe that failed or was skipped makes `cotenant doctor` fail."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    """A probe's outcome: the finding in a sentence (`found`), and a sentence or command (`fix`), "" if all is well."""

    state: ProbeState
    found: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class ProbeFinding:
    """The result of one check of `cotenant doctor`, shown as one row."""

    probe: str
    state: ProbeState
    required: bool
    tried: str
    found: str
    fix: str

    @property
    def fatal(self) -> bool:
        """True if cotenant cannot work before this is fixed."""
        return self.required and self.state is ProbeState.FAILED


@dataclass(frozen=True, slots=True)
class Probe:
    """One check of `cotenant doctor`; `required` means that cotenant cannot do its main job if the check fails."""

    name: str
    tried: str
    required: bool = False

    def run(self, probe: Callable[[], ProbeOutcome]) -> ProbeFinding:
        """Run the probe and return its finding; any error becomes a finding, so that the other probes still run."""
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
