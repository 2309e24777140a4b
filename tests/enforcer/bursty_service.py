"""A service that needs much CPU for a moment and little on the whole: a line a request, its latency in milliseconds.

python -m tests.enforcer.bursty_service REQUESTS INTERVAL_MS WORK_MS[,WORK_MS...]

Requests come at fixed times, whether or not the one before is done (open loop); work is CPU time, not wall time.
"""

from __future__ import annotations

import sys
import time


def compute(milliseconds: float) -> None:
    """Use so much CPU."""
    end = time.thread_time() + milliseconds / 1000
    while time.thread_time() < end:
        pass


def main() -> None:
    requests, interval = int(sys.argv[1]), float(sys.argv[2]) / 1000
    work = [float(part) for part in sys.argv[3].split(",")]
    first = time.monotonic() + interval
    for number in range(requests):
        due = first + number * interval
        time.sleep(max(due - time.monotonic(), 0.0))
        compute(work[number % len(work)])
        print(f"{work[number % len(work)]:g} {1000 * (time.monotonic() - due):.3f}", flush=True)


if __name__ == "__main__":
    main()
