"""Decoders by type under threads that all want the same one first, in a process of its own: it used to end there."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys, threading
from typing import Generic, TypeVar
import msgspec
from cotenant.core.adapters.json_decoders import decoder_of

sys.setswitchinterval(1e-6)
Item = TypeVar("Item")
texts = []
for _ in range(100):
    class Meta(msgspec.Struct):
        token: str = ""
    class Page(msgspec.Struct, Generic[Item]):
        items: list[Item] | None = None
        metadata: Meta = msgspec.field(default_factory=Meta)
    together = threading.Barrier(16)
    def decode():
        together.wait()
        page = decoder_of(Page[msgspec.Raw]).decode(b'{"items":[{}],"metadata":{"token":"x"}}')
        texts.append(page.metadata.token)
    threads = [threading.Thread(target=decode) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print(len(texts), set(texts))
"""


def test_threads_that_decode_a_type_for_the_first_time_all_get_their_answer() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False)
    # 100 types, 16 threads each.
    assert (done.returncode, done.stdout.strip()) == (0, "1600 {'x'}"), done.stderr[-2000:]
