"""Actions on a ledger in a test's namespace, as tests of changes have them."""

from __future__ import annotations

from tests.changes.conftest import make, person

__all__ = ["make", "person"]
