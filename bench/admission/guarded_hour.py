"""A live cluster with all admission policies, for an hour: what our accounts wrote, and what of it was wrong.

    .venv/bin/python -m bench.admission.guarded_hour                  # an hour
    .venv/bin/python -m bench.admission.guarded_hour --minutes 10     # tries it; records nothing

The cluster is that of `closed_loop_live`, with its manager, webhook, extender, scheduler and batch jobs; somebody asks
for reserved capacity besides, once a simulated hour. What was written and answered is in the audit log of the API
server.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from bench.closed_loop.closed_loop_live import NODES, PODS_A_NODE, SEED, WallPace
from bench.closed_loop.live_cluster import live_cluster, live_world
from bench.closed_loop.live_play import LivePlay
from bench.record import Row, above, below, record
from cotenant.base.process.shipped_manifests import deploy
from cotenant.experiment.install import USAGE
from cotenant.experiment.loop import HOUR_STEPS, jobs_of
from cotenant.experiment.outcome import STEP_SECONDS, SharingScenario
from cotenant.experiment.world import SLOTS_PER_DAY
from cotenant_lab.experiment.worlds import SYNTHETIC
from tests.cluster.control_plane import ControlPlane
from tests.support.invariants import Violation, auditing, recording, violations

MINUTES, SPEED = 60.0, 60.0
ACCOUNTS: Final = "system:serviceaccount:cotenant:"
RESERVATIONS: Final = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
LEAST_WRITES_A_MINUTE: Final = 20
"""Fewer would prove little."""
FORBIDDEN: Final = 403


@dataclass(frozen=True, slots=True)
class WrittenBy:
    """A write of one of our accounts and its answer. what: the resource with its subresource."""

    account: str
    verb: str
    what: str
    status: int
    message: str


def written_by_us(lines: Iterable[str]) -> Iterator[WrittenBy]:
    """Of an audit log, one JSON document a line; questions about rights change nothing and are left out."""
    for line in lines:
        event: dict[str, Any] = json.loads(line)
        account = event["user"].get("username", "")
        target, response_status = event.get("objectRef") or {}, event.get("responseStatus") or {}
        if account.startswith(ACCOUNTS) and target.get("apiGroup") != "authorization.k8s.io":
            what = "/".join(part for part in (target.get("resource"), target.get("subresource")) if part)
            name, verb = account.removeprefix(ACCOUNTS), str(event["verb"])
            yield WrittenBy(
                name, verb, what, int(response_status.get("code", 0)), str(response_status.get("message", ""))
            )


def played(folder: Path, minutes: float) -> tuple[list[WrittenBy], tuple[Violation, ...]]:
    """What our accounts wrote in so many minutes of wall time, and the invariants that were broken."""
    steps = max(1, int(minutes * 60 * SPEED / STEP_SECONDS))
    scenario = SharingScenario(SYNTHETIC, NODES, NODES * PODS_A_NODE, -(-steps // SLOTS_PER_DAY), SEED)
    live, (log, flags) = live_world(scenario), auditing(folder)
    with live_cluster(live, folder, USAGE, SPEED, flags) as plane:
        play = LivePlay(live, jobs_of(live.cluster), plane.api())
        play.begin(lambda: True)
        play.run(steps, WallPace(STEP_SECONDS / SPEED), lambda step, _so_far: _ask(plane, step))
    return list(written_by_us(log.read_text().splitlines())), violations(recording(log))


def _ask(plane: ControlPlane, step: int) -> None:
    """Somebody reserves capacity once a simulated hour, by a new connection: the server ends those that idle."""
    if step % HOUR_STEPS == 0:
        body = yaml.safe_load((deploy() / "examples" / "reservation.yaml").read_text())
        with closing(plane.api()) as api:
            api.create(RESERVATIONS, {**body, "metadata": {"name": f"asked-{step}"}})


def rows(written: list[WrittenBy], broken: Sequence[Violation], minutes: float) -> list[Row]:
    """How much was written, what was refused, by whom and why, and which invariants were broken."""
    kinds = Counter(f"{write.account.removeprefix('cotenant-')} {write.verb} {write.what}" for write in written)
    refused = [write for write in written if write.status == FORBIDDEN]
    why = sorted({f"{write.account} {write.verb} {write.what}: {write.message}" for write in refused})
    note = ", ".join(f"{kind} {count:,}" for kind, count in kinds.most_common())
    return [
        above(
            f"writes of our accounts in {minutes:g} minutes",
            len(written),
            "writes",
            LEAST_WRITES_A_MINUTE * minutes,
            note,
        ),
        below("of these refused", len(refused), "writes", 0, "; ".join(why[:5])),
        below("invariants broken", len(broken), "times", 0, "; ".join(f"{v.invariant}: {v.why}" for v in broken[:5])),
    ]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of wall time; fewer record nothing")
    minutes = parser.parse_args().minutes
    with tempfile.TemporaryDirectory() as folder:
        measured = rows(*played(Path(folder), minutes), minutes)
    record("guarded_hour", ".venv/bin/python -m bench.admission.guarded_hour", measured, is_kept=minutes >= MINUTES)
    return int(any(row.met is False for row in measured))


if __name__ == "__main__":
    sys.exit(main())
