"""Two writers and a reader on a bucket whose server is killed at random moments; afterwards nothing may be amiss.

Each writer is a process of its own. In turn it appends usage, appends rows to the ledger, and publishes a run. What a
store has confirmed is written to a file, and has to be there in the end, once. The reader looks all the time.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from cotenant.base.errors import StoreConflict, StoreError
from cotenant.base.ledger.bucket_ledger import ledger_turn, open_ledger
from cotenant.base.store import Store
from cotenant.base.usage.usage import Signal, TimeGrid
from tests.cluster.waiting import wait_for
from tests.support.fleet import START, STEP, usage_of
from tests.support.s3_server import S3Server

CPU, SERIES, BATCH, WRITERS = Signal.CPU_USAGE_MEAN, 20, 3, 2
CLUSTER, END = "killed", "end"


@dataclass
class KillReport:
    """What was found: confirmed writes, and what is wrong with them in words."""

    kills: int = 0
    usage: int = 0
    rows: int = 0
    runs: int = 0
    reads: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    half: list[str] = field(default_factory=list)


def amount(writer: int, number: int) -> float:
    """The value that a writer stores for all series in its slot of that number."""
    return float(1000 * (writer + 1) + number)


def write(writer: int, url: str, folder: str, environ: Mapping[str, str]) -> None:
    """A writer's process: until the file `end` is there."""
    os.environ.update(environ)
    store, ledger = Store(url, CLUSTER), f"{url}/ledger"
    with (Path(folder) / f"confirmed-{writer}").open("a") as confirmed:
        number = 0
        while not (Path(folder) / END).exists():
            _append_usage(store, writer, number)
            print(json.dumps(["usage", writer, number]), file=confirmed, flush=True)
            _append_rows(ledger, writer, number)
            print(json.dumps(["rows", writer, number]), file=confirmed, flush=True)
            if _publish(store, f"{writer}-{number}"):
                print(json.dumps(["run", writer, number]), file=confirmed, flush=True)
            number += 1


def _append_usage(store: Store, writer: int, number: int) -> None:
    """Tried until it is confirmed: the same values again change nothing."""
    while True:
        with suppress(StoreError):
            store.append(
                CPU, usage_of(np.full((SERIES, 1), amount(writer, number), np.float32), WRITERS * number + writer)
            )
            return


def _append_rows(ledger: str, writer: int, number: int) -> None:
    """As an accepted change: by its key it is known whether a try whose answer was lost has written it."""
    subject = f"w{writer}-{number}"
    while True:
        with suppress(StoreError), ledger_turn(ledger, subject, 60.0):
            opened = open_ledger(ledger)
            if not any(opened.entries(subject)):
                opened.append(float(number), f"writer-{writer}", [("noted", subject, {"n": n}) for n in range(BATCH)])
            return


def _publish(store: Store, text: str) -> bool:
    """Whether this run was published; not when the other writer was faster."""
    while True:
        try:
            with store.publishing() as run:
                run.write_document("left", [text])
                run.write_document("right", [text])
            return True
        except StoreConflict:
            return False
        except StoreError:
            continue


def look(url: str, report: KillReport, ended: threading.Event) -> None:
    """The reader: documents of one run, batches of rows, values of usage: all of each or nothing."""
    while not ended.wait(0.02):
        try:
            with suppress(StoreError):  # the server is away
                _look_once(url, report)
        except Exception as error:  # noqa: BLE001 - whatever else a reader meets is a finding
            report.half.append(f"{type(error).__name__}: {error}")


def _look_once(url: str, report: KillReport) -> None:
    pinned = Store(url, CLUSTER).pinned()
    left_ids, right = (pinned.read_document(name, list[str]) for name in ("left", "right"))
    if left_ids != right:
        report.half.append(f"run: {left_ids} and {right}")
    ledger = open_ledger(f"{url}/ledger", reading=True)
    counts = Counter(row.subject for row in ledger.entries())
    report.half += [f"{subject}: {n} rows" for subject, n in counts.items() if n != BATCH]
    values = Store(url, CLUSTER).read(CPU, TimeGrid(START, STEP, 288)).values
    columns = values[:, ~np.isnan(values).all(axis=0)]
    if columns.size and not (columns == columns[0]).all():
        report.half.append("usage: a slot of some series only")
    report.reads += 1


def run(server: S3Server, url: str, folder: Path, kills: int, seed: int) -> KillReport:
    """Kill the server so often, at moments drawn evenly from 0.05 to 0.6 s after it answers again; what is amiss."""
    rng, report = random.Random(seed), KillReport()
    with _writers(server, url, folder), _reader(url, report):
        wait_for("both writers write", lambda: all(len(_confirmed(folder, w)) > 1 for w in range(WRITERS)))
        for _ in range(kills):
            before = _count(folder)
            time.sleep(rng.uniform(0.05, 0.6))
            server.kill()
            report.kills += 1
            server.restart()
            wait_for("something is written again", lambda before=before: _count(folder) > before, every=0.02)
    _judge(url, folder, report)
    return report


@contextmanager
def _writers(server: S3Server, url: str, folder: Path) -> Iterator[None]:
    """Processes that write until the block ends; AssertionError where one of them failed."""
    spawn = get_context("spawn")
    arguments = [(writer, url, str(folder), server.environ) for writer in range(WRITERS)]
    processes = [spawn.Process(target=write, args=of, daemon=True) for of in arguments]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        (folder / END).touch()
        for process in processes:
            process.join(120)
    assert [process.exitcode for process in processes] == [0] * WRITERS


@contextmanager
def _reader(url: str, report: KillReport) -> Iterator[None]:
    ended = threading.Event()
    reader = threading.Thread(target=look, args=(url, report, ended), daemon=True)
    reader.start()
    try:
        yield
    finally:
        ended.set()
        reader.join(60)
    assert not reader.is_alive()


def _count(folder: Path) -> int:
    return sum(len(_confirmed(folder, writer)) for writer in range(WRITERS))


def _confirmed(folder: Path, writer: int) -> list[list[Any]]:
    file = folder / f"confirmed-{writer}"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _judge(url: str, folder: Path, report: KillReport) -> None:
    """Compare the store with what was confirmed."""
    confirmed = [confirmed_row for writer in range(WRITERS) for confirmed_row in _confirmed(folder, writer)]
    ledger = open_ledger(f"{url}/ledger", reading=True)
    if (wrong := ledger.verify().why) != "":
        report.lost.append(f"the chain of the ledger: {wrong}")
    counts = Counter(row.subject for row in ledger.entries())
    slots = WRITERS * (1 + max(number for _, _, number in confirmed)) + WRITERS
    values = Store(url, CLUSTER).read(CPU, TimeGrid(START, STEP, slots)).values
    for kind, writer, number in confirmed:
        if kind == "usage":
            report.usage += 1
            stored = values[:, WRITERS * number + writer]
            if values.shape[0] != SERIES or not (stored == np.float32(amount(writer, number))).all():
                report.lost.append(f"usage {number} of writer {writer}: {stored[:3]}")
        elif kind == "rows":
            report.rows += BATCH
            count = counts[f"w{writer}-{number}"]
            (report.lost if count < BATCH else report.doubled).extend(
                [f"rows {number} of writer {writer}: {count}"] * (count != BATCH)
            )
        else:
            report.runs += 1
    _judge_runs(url, confirmed, report)


def _judge_runs(url: str, confirmed: Sequence[Sequence[Any]], report: KillReport) -> None:
    """The newest run is what one of the writers published last, or tried to and never heard of."""
    last = {w: max((n for kind, of, n in confirmed if kind == "run" and of == w), default=-1) for w in range(WRITERS)}
    left_ids = Store(url, CLUSTER).pinned().read_document("left", list[str])
    assert left_ids is not None
    writer, _, number = left_ids[0].partition("-")
    if int(number) < last[int(writer)]:
        report.lost.append(f"the newest run is {number} of writer {writer}, who published {last[int(writer)]}")
