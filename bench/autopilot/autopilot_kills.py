"""kill -9 of the manager's rounds at random moments, with the API server away and the clock leaping in between.

    .venv/bin/python -m bench.autopilot.autopilot_kills --points 200 [--seed 7]

Real kube-apiserver, controllers and webhook; a test's kubelet plays the node, so that resizes are answered. Each life
is a process of its own that goes on from the same ledger: three rounds over five workloads (two resized in place with
canaries, three rolled out) with new advice, before which the clock leaps, thirty hours back or two days forwards
at most. It is killed at a moment drawn evenly over the time that a whole life takes. In a third of the lives the API
server is away for up to 24 requests in a row: cut before they arrive, or after, so that the answer is lost. In a tenth,
what soaked did harm, and is rolled back. In the end calm lives settle what has no outcome, and the cluster is compared
with the ledger: `tests.autopilot.manager_lives.breaches`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from bench.record import Row, above, below, record
from tests.autopilot.manager_lives import ManagerLives, breaches, manager_lives
from tests.autopilot.scene import AutopilotScene
from tests.changes.world import own_node
from tests.cluster.control_plane import ControlPlane, Options
from tests.cluster.namespaces import create_namespace
from tests.cluster.webhook import running

COMMAND = ".venv/bin/python -m bench.autopilot.autopilot_kills --points 200"
KINDS = {
    "lost": "rows or writes lost",
    "doubled": "done twice",
    "outside": "begun outside of the change window",
    "bound": "more soaked at once than the policy allows",
}
WHOLE_LIVES = 3
RESUMED_EVERY = 20
"""A person clears what harm has made rest after so many kills, so that there is always work."""


def rows(lives: ManagerLives, problems: list[str]) -> list[Row]:
    """With the goals of the autopilot."""
    counts = Counter(problem.partition(":")[0] for problem in problems)
    events = Counter(lives.cluster.events())
    note = ", ".join(f"{name} {count}" for name, count in sorted(events.items()) if not name.startswith("autopilot-"))
    goals = [below(what, counts[kind], "", 0, f"{lives.kills} kills") for kind, what in KINDS.items()]
    return [
        *goals,
        above("changes accepted meanwhile", events["accepted"], "changes", lives.kills / 4, note),
        Row("rounds that ended because the API server was away", lives.away, "rounds"),
    ]


def main() -> int:
    """All kills on one cluster; recorded in the full form."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="autopilot-kills-") as text:
        folder = Path(text)
        with ControlPlane(folder / "cluster", Options(heartbeats=False)) as plane:
            cluster = AutopilotScene(plane, create_namespace(plane.api(), "kills"), folder)
            with (
                running(plane),
                own_node(plane, "kills") as kubelet,
                manager_lives(cluster, kubelet.node, options.seed) as lives,
            ):
                whole_seconds = max(lives.live(lives.life(), None) for _ in range(WHOLE_LIVES))
                while lives.kills < options.points:
                    lives.killed(whole_seconds)
                    if lives.kills % RESUMED_EVERY == 0:
                        lives.resume()
                lives.settle()
                problems = list(breaches(lives))
            measured = rows(lives, problems)
    for problem in problems:
        print(problem)
    record("autopilot_kills", COMMAND, measured, is_kept=options.points >= 200)
    return 0


if __name__ == "__main__":
    sys.exit(main())
