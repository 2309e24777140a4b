"""An object on which a program stands still is named and left out by the next one, until it changes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from cotenant.base.process.in_hand import BEAT_SECONDS, MOST_SECONDS, STILL_SECONDS
from tests.cluster.waiting import wait_for

PROGRAM = """
import json, re, sys, time
import structlog
from cotenant.base.process.in_hand import LeftOut, ObjectVersion, in_hand, keep_notes

def spins(text):
    while text:
        pass

READERS = {
    "good": len,
    "fails": lambda text: 1 // 0,
    "holds": re.compile("(a+)+b").match,  # exponential, and C that never lets go of the interpreter
    "spins": spins,
    "swallows": lambda text: swallow(text),
}

def swallow(text):
    try:
        spins(text)
    except Exception:
        return 0

structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
keep_notes("test")
for number, name in enumerate(sys.argv[1:]):
    name, _, version = name.partition("@")
    began, why = time.process_time(), ""
    try:
        with in_hand(ObjectVersion("/api/v1/pods", "shop", name, version or "u/1")):
            READERS[name]("a" * 60)
    except LeftOut as error:
        why = error.message
    except ZeroDivisionError as error:
        why = type(error).__name__
    print(json.dumps([name, why, time.process_time() - began]), flush=True)
"""


def begin(folder: Path, *names: str) -> subprocess.Popen[str]:
    file = folder / "program.py"
    file.write_text(PROGRAM)
    return subprocess.Popen(
        [sys.executable, str(file), *names],
        env={"TMPDIR": str(folder), "PATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def read(folder: Path, *names: str) -> dict[str, str]:
    """What the program says of each object: the reason, or "" where it was read."""
    process = begin(folder, *names)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return {name: why for name, why, _ in map(json.loads, out.splitlines())}


def notes(folder: Path) -> Path:
    (path,) = folder.glob("cotenant-test-*")
    return path


def test_the_next_process_leaves_out_what_held_the_interpreter_until_it_changes(tmp_path: Path) -> None:
    process = begin(tmp_path, "good", "holds", "good")
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())[:2] == ["good", ""]
        wait_for("the timer that needs no interpreter", lambda: (notes(tmp_path) / "still").stat().st_size > 0)
    finally:
        process.kill()  # as a kubelet does once /livez is silent
        process.communicate()
    faults = read(tmp_path, "good", "holds", "fails")
    assert faults["good"] == "" and faults["fails"] == "ZeroDivisionError"
    assert f"hung for {STILL_SECONDS:.0f} s" in faults["holds"]
    # another process still knows it, a newer version of the object is tried
    process = begin(tmp_path, "holds", "holds@u/2")
    try:
        assert process.stdout is not None
        assert "hung" in json.loads(process.stdout.readline())[1]
        time.sleep(1)
        assert process.poll() is None  # it reads the newer version, on which it stands still again
    finally:
        process.kill()
        process.communicate()


def test_an_innocent_object_is_not_left_out_by_the_end_of_a_process(tmp_path: Path) -> None:
    process = begin(tmp_path, "good", "spins")
    try:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.3)
    finally:
        process.send_signal(signal.SIGKILL)  # in the midst of an object, but nothing stood still
        process.communicate()
    assert read(tmp_path, "good") == {"good": ""}
    assert not (notes(tmp_path) / "left-out").exists()


def test_an_object_that_takes_too_long_is_interrupted_and_the_others_are_read(tmp_path: Path) -> None:
    process = begin(tmp_path, "spins", "good", "swallows", "good", "spins")
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    first, good, swallowed, again, second = map(json.loads, out.splitlines())
    slow = f"reading the object took more than {MOST_SECONDS:g} s of processor time"
    assert [first[1], good[1], swallowed[1], again[1], second[1]] == [slow, "", slow, "", slow]
    # the thread that interrupts comes once in BEAT_SECONDS; a second more for a busy machine
    assert max(first[2], swallowed[2]) < MOST_SECONDS + BEAT_SECONDS + 1
    assert second[2] < 0.5  # the same version is not tried again


def test_a_second_process_of_the_program_notes_nothing_into_the_files_of_the_first(tmp_path: Path) -> None:
    process = begin(tmp_path, "good", "spins", "spins@u/2", "spins@u/3")
    try:
        assert process.stdout is not None
        process.stdout.readline()
        assert read(tmp_path, "good", "fails") == {"good": "", "fails": "ZeroDivisionError"}
    finally:
        process.kill()
        process.communicate()


BESIDE = """
import json, re, sys, threading, time
from cotenant.base.process.in_hand import LeftOut, ObjectVersion, in_hand, keep_notes

keep_notes("test", 3.0)
said = {}

def read(name):
    try:
        with in_hand(ObjectVersion("/api/v1/pods", "shop", name, "u/1")):
            time.sleep(0.2 if name == "holds" else 0.6)  # so that the others are in hand still when it holds
            if name == "holds":
                re.match("(a+)+b", "a" * 60)
        said[name] = ""
    except LeftOut as error:
        said[name] = error.message

readers = [threading.Thread(target=read, args=[name]) for name in ("one", "holds", "other")]
for reader in readers:
    reader.start()
for reader in readers:
    reader.join()
print(json.dumps(said))
"""


def test_of_several_that_were_in_hand_only_the_guilty_one_stays_left_out(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(BESIDE)
    ends = []
    for _ in range(3):  # all three are suspects; each alone; the guilty one is known
        ended = subprocess.run(
            [sys.executable, str(file)],
            check=False,
            env={"TMPDIR": str(tmp_path), "PATH": ""},
            capture_output=True,
            text=True,
            timeout=60,
        )
        ends.append(ended.returncode)
    assert ends == [1, 1, 0]  # it ends itself once it has stood still so long
    document = json.loads(ended.stdout.splitlines()[-1])
    assert document["one"] == document["other"] == "" and "hung" in document["holds"]
