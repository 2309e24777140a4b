"""Numbers that are compared approximately among others that are compared exactly."""

from __future__ import annotations

from typing import Any

import pytest


def about(number: float, within: float | None = None) -> Any:
    """`pytest.approx` as a part of a tuple, list or struct, where its own type would be refused.

    within: the largest difference, in the number's unit; None: a millionth of the number.
    """
    return pytest.approx(number, abs=within)
