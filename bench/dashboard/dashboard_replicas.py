"""Two dashboards behind a balancer, one killed under clicking people: logins lost and acts doubled.

.venv/bin/python -m bench.dashboard.dashboard_replicas [--people 20] [--kills 4]

Real HTTP clients with cookies log in at an OpenID Connect provider, accept changes on an API server and take them back,
while one replica is killed (SIGKILL) and started again, then the other. Logins and the audit log lie in a bucket of a
real S3-compatible server. Who got no answer clicks again with the same key. In the end the audit log is compared with
the writes that the API server has seen.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from bench.record import Row, above, below, record
from tests.support import replicas
from tests.support.s3_server import serving


def measure(people: int, kills: int) -> list[Row]:
    """Rows of one run."""
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder) / "s3") as server:
        report = replicas.measured(Path(folder), people, kills, server)
    for wrong in (*report.broken, *report.lost_logins, *report.doubled, *report.refused.items()):
        print(wrong)
    note = f"{report.kills} kills, {report.clicked_again} clicks again, {sum(report.refused.values())} refused"
    return [
        below(f"logins lost by {people} clicking people", len(report.lost_logins), "logins", 0, note),
        below("people whose clicking broke off", len(report.broken), "people", 0),
        below("acts doubled", len(report.doubled), "acts", 0),
        above("changes accepted, each with a key of its own", report.accepted, "changes", people),
        Row("changes rolled back", report.rolled_back, "changes"),
    ]


def main() -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--people", type=int, default=20)
    parser.add_argument("--kills", type=int, default=4)
    options = parser.parse_args()
    command = (
        f".venv/bin/python -m bench.dashboard.dashboard_replicas --people {options.people} --kills {options.kills}"
    )
    record("dashboard_replicas", command, measure(options.people, options.kills))


if __name__ == "__main__":
    main()
