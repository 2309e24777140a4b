"""The validating webhook for slo-controller-config: each key by the parser that the manager uses. Pure.

Only keys that changed are judged (the server passes no others), so that one bad key never keeps another from being
mended. Notes that do not keep a key from being used are no refusal.
"""

from __future__ import annotations

from collections.abc import Mapping

from cotenant.base.problem import Problem
from cotenant.base.text import format_value
from cotenant.recommender.colocation.model.slo_config import SloConfig, SloConfigFinding


def problems_of_config(data: Mapping[str, str]) -> list[Problem]:
    """Everything that keeps one of these keys from being used."""
    return [_problem(finding) for finding in SloConfig().updated(data).findings if finding.fatal]


def warnings_of_config(data: Mapping[str, str]) -> list[str]:
    """Return a warning for each part of these keys that is read but does not do what it seems to.

    Such parts are misspelled fields and values that have no effect.
    """
    return [finding.advice for finding in SloConfig().updated(data).findings if not finding.fatal]


def _problem(finding: SloConfigFinding) -> Problem:
    wrong = finding.deviation
    return Problem(
        f"data[{finding.key}] {wrong.path}",
        wrong.value if isinstance(wrong.value, str) else format_value(wrong.value),
        wrong.expected,
        finding.fix,
    )
