"""How long a review of many workloads takes to open, and how soon the server rests once nobody looks at it any more.

.venv/bin/python -m bench.dashboard.review_open

Every workload of a synthetic cluster is to be cut by a fifth, on the embedded API server in the same process; the page
asks each second, as a browser does.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from bench.record import Row, below, record
from cotenant.base.cluster import Workload
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.process.clock import FixedClock
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.changes.access.kubeconfig_access import at_this_machine, door_of
from cotenant.changes.model.service import ChangeRequest, Method, WorkloadReview
from cotenant.changes.model.settings import ActionSettings, ledger_location
from cotenant.changes.service import ChangeServiceConfig, ClusterChangeService
from cotenant.dashboard.changes.review_job import ReviewJob
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value
from cotenant.settings import Settings
from cotenant_lab.simulation.api_server import EmbeddedServer
from cotenant_lab.simulation.population import initial_objects
from cotenant_lab.synthetic import SyntheticSpec, generate

COMMAND = ".venv/bin/python -m bench.dashboard.review_open"
GOALS = {50: 5.0, 500: 20.0, 5000: 90.0}
"""Workloads of a review -> seconds until it opens."""
NODES_PER_WORKLOAD = 60 / 900
POLL_SECONDS = 1.0
IDLE_SECONDS = 5.0


def cut(workload: Workload) -> list[Recommendation]:
    """A fifth less CPU for the first container that requests some; nothing where none does."""
    asking = next((c for c in workload.staying if Resource.CPU in c.requests), None)
    if asking is None:
        return []
    now = asking.requests[Resource.CPU]
    value = Value(Resource.CPU, Field.REQUEST, now, max(10, now * 4 // 5), Action.SET, Reason.OK, inputs={"days": 14.0})
    return [Recommendation(ContainerRef(workload.ref, asking.name), "cotenant", 1, (value,), 0, "bench", 0)]


def opened_seconds(job: ReviewJob) -> float:
    """Ask each second until the job is over, as the page does."""
    start = time.monotonic()
    while not job.wait(POLL_SECONDS):
        job.ask()
    job.require_success()
    return time.monotonic() - start


def rested_seconds(job: ReviewJob) -> float:
    """Seconds from the last question to the last workload that is reviewed without anybody asking."""
    job.ask()
    start = last = time.monotonic()
    done = job.done
    while time.monotonic() - last < 2 * IDLE_SECONDS and not job.is_over:
        time.sleep(0.05)
        if job.done != done:
            done, last = job.done, time.monotonic()
    job.stop()
    return last - start


def main(sizes: Sequence[int]) -> None:
    spec = SyntheticSpec(max(1, round(max(sizes) * NODES_PER_WORKLOAD * 1.2)), round(max(sizes) * 1.2), 1, 7)
    inventory = generate(spec).inventory
    proposals = {w.ref: proposal for w in inventory.workloads if (proposal := cut(w))}
    clock = FixedClock(inventory.time_seconds)
    server = EmbeddedServer(clock=clock)
    for collection, item in initial_objects(inventory, inventory.time_seconds, {}):
        server.state.put(collection, (item["metadata"].get("namespace", ""), item["metadata"]["name"]), item)
    with tempfile.TemporaryDirectory() as folder, server:
        settings = Settings()
        kubeconfig = server.write_kubeconfig(Path(folder, "kubeconfig"), name="bench")
        settings = replace(settings, kube=replace(settings.kube, kubeconfig=str(kubeconfig)))
        actions = ActionSettings(ledger=str(Path(folder, "ledger.db")))
        place, who = ledger_location(actions, os.environ), at_this_machine(settings.kube)()
        proposed = lambda some: [r for ref in some for r in proposals.get(ref, ())]  # noqa: E731
        service = ClusterChangeService(ChangeServiceConfig(door_of(settings), place, clock, actions, proposed))

        def ask(some: Sequence[WorkloadRef], method: Method) -> list[WorkloadReview]:
            return service.review(who, ChangeRequest(tuple(some), method=method))

        refs = list(proposals)
        rows = []
        for size in sizes:
            before = time.process_time()
            took = opened_seconds(ReviewJob(refs[:size], ask))
            cpu = f"{time.process_time() - before:.1f} s of CPU, the API server's included"
            metric, goal = f"review of {size:,} workloads until it opens", GOALS.get(size)
            rows.append(below(metric, took, "s", goal, cpu) if goal else Row(metric, took, "s", note=cpu))
        idle = rested_seconds(ReviewJob(refs, ask))
        rows.append(below("server idle after the browser has gone", idle, "s", IDLE_SECONDS))
    record("review_open", COMMAND, rows, is_kept=tuple(sizes) == tuple(GOALS))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int, default=tuple(GOALS), help="workloads of each review")
    main(parser.parse_args().sizes)
