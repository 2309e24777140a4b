"""A test's small form, which `make test` and `make test-cluster` run, and its full form, which `make soak` adds.

@pytest.mark.parametrize("theme", ["light", *full("dark")])
"""

from __future__ import annotations

import pytest
from _pytest.mark import ParameterSet


def full(*values: object) -> list[ParameterSet]:
    """Parameters of the full form alone: what fails for one of them nearly always fails for the small form's too."""
    return full_rows(*((value,) for value in values))


def full_rows(*rows: tuple[object, ...]) -> list[ParameterSet]:
    """The same where a case has several parameters."""
    return [pytest.param(*row, marks=pytest.mark.soak) for row in rows]
