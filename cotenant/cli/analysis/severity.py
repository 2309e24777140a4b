"""`--fail-on severity=critical`: a scan in a pipeline fails (exit code 3) when it finds something that bad."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import typer

from cotenant.base.errors import UsageError
from cotenant.base.severity import Severity

_LEVELS = [s for s in Severity if s is not Severity.UNKNOWN]

FailOnOption = Annotated[
    str | None,
    typer.Option(
        "--fail-on",
        metavar="severity=LEVEL",
        help="Exit with code 3 when a row is this severe or worse: warning, critical...",
    ),
]


@dataclass(frozen=True, slots=True)
class FailOn:
    """The lowest severity that counts as a finding."""

    threshold: Severity

    @classmethod
    def parse(cls, text: str) -> FailOn:
        """Read "severity=critical"; UsageError names what is wrong and the levels."""
        subject, equals, level = (part.strip() for part in text.partition("="))
        levels = {s.value: s for s in _LEVELS}
        if subject != "severity" or not equals or level not in levels:
            raise UsageError(
                f"--fail-on {text!r} is not severity=LEVEL",
                fix=f"Write --fail-on severity=LEVEL with LEVEL one of {', '.join(levels)}.",
            )
        return cls(levels[level])

    def findings(self, severities: Iterable[str]) -> int:
        """Return the number of severities at or above the threshold; unknown never counts."""
        return sum(Severity(s).rank >= self.threshold.rank for s in severities)
