"""Two writers on a bucket whose server is killed at random moments: what is lost, doubled or read by halves.

.venv/bin/python -m bench.manager.store_kills [--kills 100] [--seed 7]

A real S3-compatible server (versitygw). Two processes append usage, append rows to the audit log and publish runs; a
reader looks all the time. The server is killed (SIGKILL) and started again. What a writer had confirmed to it must be
there in the end, once, and the reader must see all of a run and of an append, or nothing.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from bench.record import Row, below, record
from tests.support import bucket_kills
from tests.support.s3_server import serving


def measure(kills: int, seed: int) -> list[Row]:
    """Rows of one run of so many kills."""
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder) / "server") as server:
        start = time.monotonic()
        report = bucket_kills.run(server, "s3://usage/kills", Path(folder), kills, seed)
        seconds = time.monotonic() - start
    for wrong in (*report.lost, *report.doubled, *report.half):
        print(wrong)
    note = f"{report.usage} appends of usage, {report.rows} rows, {report.runs} runs confirmed, {report.reads} reads"
    return [
        below(f"confirmed writes lost, server killed {report.kills} times", len(report.lost), "writes", 0, note),
        below("confirmed writes doubled", len(report.doubled), "writes", 0),
        below("halves that a reader saw", len(report.half), "reads", 0),
        Row("from one kill to the next", seconds / max(1, report.kills), "s"),
    ]


def main() -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    command = f".venv/bin/python -m bench.manager.store_kills --kills {options.kills} --seed {options.seed}"
    record("store_kills", command, measure(options.kills, options.seed))


if __name__ == "__main__":
    main()
