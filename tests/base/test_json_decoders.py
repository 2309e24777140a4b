"""Threads that decode a type for the first time at once do not end their process, which is one of its own here."""

from __future__ import annotations

import subprocess
import sys

GENERIC = """
import sys, threading
from typing import Generic, TypeVar
import msgspec
from cotenant.base.json_documents.json_decoders import decoder_of

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
RACE = """
import sys, threading
import msgspec
from cotenant.base.json_documents.json_decoders import make_ready

sys.setswitchinterval(1e-6)
BODY = msgspec.json.encode({f"g{i}": {f"f{j}": {"a": 1} for j in range(12)} for i in range(12)})

def decode(kind, barrier):
    barrier.wait()
    msgspec.json.decode(BODY, type=kind)

for _ in range(100):
    inner = msgspec.defstruct("Inner", [(f"f{i}", dict[str, int] | None, None) for i in range(12)])
    outer = msgspec.defstruct("Outer", [(f"g{i}", inner | None, None) for i in range(12)])
    if sys.argv[1] == "ready":
        make_ready()
    barrier = threading.Barrier(4)
    threads = [threading.Thread(target=decode, args=(outer, barrier)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("alive")
"""


def test_threads_that_decode_a_type_for_the_first_time_all_get_their_answer() -> None:
    done = subprocess.run([sys.executable, "-c", GENERIC], capture_output=True, text=True, timeout=120, check=False)
    # 100 types, 16 threads each.
    assert (done.returncode, done.stdout.strip()) == (0, "1600 {'x'}"), done.stderr[-2000:]


def test_types_that_are_ready_are_decoded_by_many_threads_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-c", RACE, "ready"], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr


def test_what_cannot_be_decoded_keeps_nothing_else_from_being_ready() -> None:
    code = (
        "import msgspec\n"
        "from cotenant.base.json_documents.json_decoders import make_ready\n"
        "msgspec.defstruct('Unknown', [('field', 'NoSuchName')])\n"
        "known = msgspec.defstruct('Known', [('field', int)])\n"
        "make_ready()\n"
        "print(known.__struct_fields__, msgspec.json.decode(b'{\"field\": 1}', type=known).field)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "('field',) 1\n", done.stderr
