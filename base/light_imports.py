"""Import libraries without pandas, which they would import if it is installed.

Arrow imports it at its first array, and scikit-learn with its first module: 35 to 60 MiB of a process that never makes
a DataFrame.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from importlib.abc import MetaPathFinder


class _NoPandas(MetaPathFinder):
    """An import finder that hides pandas from one thread; all else is left to the other finders."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "pandas" and threading.get_ident() == self.thread:
            raise ModuleNotFoundError("imported without pandas", name=fullname)


@contextlib.contextmanager
def without_pandas() -> Iterator[None]:
    """Hide pandas from this thread's imports; do nothing if it is already imported."""
    if "pandas" in sys.modules:
        yield
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
