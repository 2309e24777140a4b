"""A million fuzzed inputs for everything that somebody else writes: each read, or refused with words, and in time.

.venv/bin/python -m bench.platform.input_fuzz [--inputs 1000000] [--seed 1] [--only NAME]
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from random import Random

import structlog

from bench.platform.fuzz.surfaces import DOCUMENTED, SURFACES, Surface
from bench.record import Row, below, record

SLOW_SECONDS = 5.0
"""Processor time after which an input counts as a hang: drawing one of eight megabytes takes more than a second."""


@dataclass
class Fuzzed:
    """How the inputs of one surface, or of all, ended."""

    read: int = 0
    refused: int = 0
    slow: int = 0
    slowest_seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, other: Fuzzed) -> None:
        self.read += other.read
        self.refused += other.refused
        self.slow += other.slow
        self.slowest_seconds = max(self.slowest_seconds, other.slowest_seconds)
        self.faults += other.faults


def fuzz(surface: Surface, inputs: int, seed: int) -> Fuzzed:
    """Read so many inputs of a surface; each is drawn from the seed and its number, so that one can be drawn again."""
    fuzzed = Fuzzed()
    for number in range(inputs):
        draw, began = Random(f"{surface.name} {seed} {number}"), time.process_time()
        try:
            surface.read(draw)
            fuzzed.read += 1
        except DOCUMENTED:
            fuzzed.refused += 1
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody documented it
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{frame.filename.rpartition('/cotenant/')[2] or frame.filename}:{frame.lineno}"
            fuzzed.faults[f"{surface.name}: {type(error).__name__} at {where}: {str(error)[:80]}"] += 1
        spent = time.process_time() - began
        fuzzed.slow += spent > SLOW_SECONDS
        fuzzed.slowest_seconds = max(fuzzed.slowest_seconds, spent)
    return fuzzed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    structlog.configure(processors=[lambda *_: ""], logger_factory=structlog.ReturnLoggerFactory())
    chosen = [surface for surface in SURFACES if options.only in surface.name]
    total, parts = Fuzzed(), sum(surface.part for surface in chosen)
    for surface in chosen:
        fuzzed = fuzz(surface, round(options.inputs * surface.part / parts + 1), options.seed)
        total.add(fuzzed)
        print(
            f"{surface.name}: {fuzzed.read} read, {fuzzed.refused} refused, slowest {fuzzed.slowest_seconds:.3f} s",
            flush=True,
        )
        for fault, count in fuzzed.faults.most_common(8):
            print(f"    {count} x {fault}", flush=True)
    inputs = total.read + total.refused + sum(total.faults.values())
    record(
        "input_fuzz",
        " ".join([".venv/bin/python -m bench.platform.input_fuzz", *sys.argv[1:]]),
        [
            Row("fuzzed inputs", inputs, "inputs", note=f"{len(chosen)} readers, seed {options.seed}"),
            Row("of them refused with words", total.refused, "inputs", note="the others were read"),
            below(
                "inputs that raised what nobody documented, or a status 500", sum(total.faults.values()), "inputs", 0
            ),
            below(f"inputs that took more than {SLOW_SECONDS:g} s", total.slow, "inputs", 0),
            Row("slowest input", round(1000 * total.slowest_seconds), "ms"),
        ],
        is_kept=inputs >= 1_000_000 and not options.only,
    )


if __name__ == "__main__":
    main()
