"""The web process' memory, as glibc itself counts its heaps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from cotenant.base.process.memory import ARENAS, release_memory

THREADS = 12
PROGRAM = """
import ctypes, sys, threading
from cotenant.base.process.memory import few_heaps, release_memory
if sys.argv[2] == "few":
    few_heaps()
together = threading.Barrier({threads})
def work():
    together.wait()
    held = [bytearray(5000) for _ in range(200)]
    together.wait()
threads = [threading.Thread(target=work) for _ in range({threads})]
for thread in threads: thread.start()
for thread in threads: thread.join()
release_memory()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


def heaps(folder: Path, how: str) -> int:
    """Heaps of a process in which many threads have allocated at the same time."""
    path = folder / "heaps.xml"
    program = PROGRAM.format(threads=THREADS)
    command = [sys.executable, "-c", program, str(path), how]
    subprocess.run(command, check=True, timeout=120, cwd=Path(__file__).parents[2], env={"PYTHONPATH": "."})
    return path.read_text().count("<heap nr=")


def test_many_threads_share_few_heaps(tmp_path: Path) -> None:
    assert heaps(tmp_path, "few") <= ARENAS < heaps(tmp_path, "many")


def test_memory_is_given_back_while_another_thread_imports_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", ModuleType("pyarrow"))  # as it stands while its first lines run
    release_memory()
    assert sys.modules["pyarrow"].__dict__.get("default_memory_pool") is None


ARROW_ALONE = """
import sys
from cotenant.base.store import Store
from cotenant.base.store.parquet import arrow_alone
Store("file:///nowhere", "c")  # as every process that reads or writes results makes one
import pyarrow as pa
table = pa.table({"amount": pa.array([1.0, 2.0])})
assert table["amount"].to_numpy().tolist() == [1.0, 2.0]
assert "pandas" not in sys.modules
assert table.to_pandas()["amount"].sum() == 3.0
import pandas
assert pa.array(pandas.Series([1, 2])).to_pylist() == [1, 2]
arrow_alone()
assert sys.modules["pandas"] is pandas
"""


@pytest.mark.slow
def test_arrow_makes_arrays_without_pandas_and_frames_for_whoever_asks() -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", ARROW_ALONE]
    ended = subprocess.run(command, check=False, capture_output=True, timeout=120, cwd=root, env={"PYTHONPATH": "."})
    assert ended.returncode == 0, ended.stderr.decode()
