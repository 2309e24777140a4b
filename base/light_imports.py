"""Import libraries that take pandas along where it is installed, without it.

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
    """Finds no pandas for one thread, and leaves every other module and thread to the finders behind it."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "pandas" and threading.get_ident() == self.thread:
            raise ModuleNotFoundError("imported without pandas", name=fullname)


@contextlib.contextmanager
def without_pandas() -> Iterator[None]:
    """This thread's imports do without pandas meanwhile. Nothing happens where it is in use already."""
    if "pandas" in sys.modules:
        yield
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
