"""kill -9 at random points of accept -> apply -> verify -> roll back: what is lost, what is done twice.

.venv/bin/python -m bench.changes.actions_kills [--points 200] [--seed 7]

Real kube-apiserver, controllers and kwok as the nodes. Each point is a process of its own (forked from a server that
has imported everything, so that the kill falls into the work and not into the imports), a Deployment and a ledger of
its own. It is killed at a moment drawn evenly over the time that a whole run takes; every second one rolls back in the
end. Afterwards, more than two seconds later, another process settles what has no outcome by reading the cluster, and
the cluster is compared with what the ledger then says, field by field.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

from bench.record import Row, below, record
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import connect
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.process.clock import SystemClock
from cotenant.base.settings.sections import KubeSettings
from cotenant.changes.accept import AcceptanceTerms, Actions
from cotenant.changes.change_ledger import ChangeLedger
from cotenant.changes.live_context import ClusterUser
from cotenant.changes.model.annotated_resources import RESOURCES_ANNOTATION
from cotenant.changes.model.change import ChangeEvent, ChangeState
from cotenant.changes.model.service import Method
from cotenant.changes.model.settings import ActionSettings
from cotenant.changes.soak.reconcile import settle, verify
from tests.changes.world import created, live, pods, ready, recommended, template
from tests.cluster.accounts import applier
from tests.cluster.control_plane import ControlPlane, Options
from tests.cluster.fake_nodes import NodeShape, create_nodes
from tests.cluster.namespaces import create_namespace

METHODS = (Method.TEMPLATE, Method.IN_PLACE, Method.ANNOTATE)
TERMS = AcceptanceTerms(overridden=("rollout", "webhook", "cool-down"))
"""No webhook of ours runs here, and workloads are not waited for: these two rules are passed over."""
SETTINGS = ActionSettings(soak_minutes=0.0, resize_seconds=20.0)
QUIET_SECONDS = 2.5
OLD, NEW = "1", "800m"
TOTAL = "lost or done twice after kill -9 at random moments"
PRELOADED = ["cotenant.changes.soak.reconcile", "cotenant.base.kube.auth", "tests.changes.world"]


@dataclass(frozen=True)
class Point:
    """One run: of which workload, by which method, with a roll back at the end or not."""

    workload: WorkloadRef
    method: Method
    back: bool
    kubeconfig: str
    ledger: Path


@dataclass
class Killed:
    """What is known of a run after its process is gone. messages: states that it had reported before."""

    point: Point
    generation: int
    messages: list[str] = field(default_factory=list)
    phase: str = ""
    """State that the ledger had before it was settled."""


def actions_of(point: Point) -> Actions:
    """Actions on the point's own ledger."""
    client = connect(KubeSettings(kubeconfig=point.kubeconfig))
    return Actions(client, ChangeLedger(Ledger(point.ledger), SystemClock(), "ann"), SETTINGS, ClusterUser("ann"))


def work(point: Point, pipe: Connection) -> None:
    """What is killed: accept, judge, and roll back every second one."""
    actions = actions_of(point)
    pipe.send("go")
    (review,) = actions.review([recommended(point.workload)], method=point.method)
    (done,) = actions.accept([review], TERMS)
    pipe.send(done.state.value)
    done = verify(actions, done)
    pipe.send(done.state.value)
    if point.back:
        pipe.send(actions.roll_back(done).state.value)


def run(point: Point, plane: ControlPlane, after_seconds: float | None) -> tuple[Killed, float]:
    """Start the work and kill it so long after it began, or let it end; what is known of it, and how long it took."""
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    killed = Killed(point, live(plane, point.workload)["metadata"]["generation"])
    here, far_end = context.Pipe()
    process = context.Process(target=work, args=(point, far_end))
    process.start()
    far_end.close()
    assert here.recv() == "go"
    start = time.monotonic()
    if after_seconds is not None:
        time.sleep(after_seconds)
        process.kill()
    process.join()
    took = time.monotonic() - start
    try:
        while here.poll():
            killed.messages.append(here.recv())
    except EOFError:
        pass
    here.close()
    return killed, took


def wrong(killed: Killed, plane: ControlPlane) -> Iterator[str]:
    """What is lost or doubled after settling; nothing when all is right."""
    actions = actions_of(killed.point)
    ledger = actions.journal.ledger
    before = list(actions.journal.statuses().values())
    killed.phase = before[0].state.value if before else "nothing"
    settle(actions)
    statuses = list(actions.journal.statuses().values())
    names = Counter(entry.event for entry in ledger.entries())
    if ledger.verify().wrong_seq is not None:
        yield "lost: the chain is broken"
    if len(statuses) > 1 or names[ChangeEvent.APPLIED.value] > 1 or names[ChangeEvent.ROLLED_BACK.value] > 1:
        yield f"doubled: {names}"
    state = statuses[0].state if statuses else None
    if state is not None and not state.settled:
        yield f"lost: {state} after settling"
    if killed.messages and (state is None or names[killed.messages[-1]] == 0):
        yield f"lost: it had said {killed.messages[-1]}, and the ledger has {dict(names)}"
    holds, expected = cpu_amounts(killed.point, plane), NEW if state is not None and state.in_force else OLD
    if set(holds) != {expected}:
        yield f"{'lost' if expected == NEW else 'doubled'}: the ledger says {state}, and the cluster holds {holds}"
    writes = (
        names[ChangeEvent.ACCEPTED.value] + names[ChangeEvent.ROLLBACK_ACCEPTED.value] + (state is ChangeState.FAILED)
    )
    written = live(plane, killed.point.workload)["metadata"]["generation"] - killed.generation
    if written > writes:
        yield f"doubled: {written} writes for {writes} intents"
    ledger.close()
    actions.client.close()


def cpu_amounts(point: Point, plane: ControlPlane) -> list[str]:
    """CPU wherever the method puts it: the template, each running pod, the annotation."""
    noted = RESOURCES_ANNOTATION in (live(plane, point.workload)["metadata"].get("annotations") or {})
    if point.method is Method.TEMPLATE:
        return [template(plane, point.workload)["requests"]["cpu"]]
    amounts = [NEW if noted else OLD]
    if point.method is Method.IN_PLACE:
        amounts += [p["spec"]["containers"][0]["resources"]["requests"]["cpu"] for p in pods(plane, point.workload)]
    return amounts


def points(plane: ControlPlane, namespace: str, folder: Path, count: int, methods: Sequence[Method]) -> list[Point]:
    """So many runs, the methods in turn, each with a Deployment that runs."""
    new_points, kubeconfig = [], str(applier(plane, namespace))
    for number in range(count):
        method = methods[number % len(methods)]
        replicas = 2 if method is Method.IN_PLACE else 1
        workload = created(plane, namespace, f"web-{number}", replicas)
        ledger = folder / f"{number}.db"
        new_points.append(Point(workload, method, number // len(methods) % 2 == 1, kubeconfig, ledger))
    for point in new_points:
        ready(plane, point.workload)
    return new_points


def kill_all(plane: ControlPlane, kill_points: Sequence[Point], spans: dict[Any, float], seed: int) -> list[Killed]:
    """Run and kill each at a moment drawn evenly over its whole length."""
    draw = random.Random(seed)
    return [run(point, plane, 1.05 * draw.random() * spans[point.method, point.back])[0] for point in kill_points]


def lengths(plane: ControlPlane, kill_points: Sequence[Point]) -> dict[Any, float]:
    """Seconds of a whole run, by method and whether it rolls back: the median of those given."""
    seconds: dict[Any, list[float]] = {}
    for point in kill_points:
        seconds.setdefault((point.method, point.back), []).append(run(point, plane, None)[1])
    return {key: median(values) for key, values in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=200, help="of each method")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="actions-kills-"))
    rows, phases = [], Counter[str]()
    with ControlPlane(folder / "cluster", Options()) as plane:
        create_nodes(plane, 4, NodeShape(cpu="1000", memory="4000Gi", pods="1000"))
        for method in METHODS:
            namespace = create_namespace(plane.api(), f"kills-{method.value}")
            (folder / method.value / "whole").mkdir(parents=True)
            kill_points = points(
                plane,
                create_namespace(plane.api(), f"whole-{method.value}"),
                folder / method.value / "whole",
                6,
                [method],
            )
            spans = lengths(plane, kill_points)
            killed = kill_all(
                plane, points(plane, namespace, folder / method.value, options.points, [method]), spans, options.seed
            )
            time.sleep(QUIET_SECONDS)
            verdicts = [(killed_run, list(wrong(killed_run, plane))) for killed_run in killed]
            for killed_run, bad in verdicts:
                phases[killed_run.phase] += 1
                if bad:
                    print(killed_run.point, killed_run.messages, bad)
            violations = [text for _, bad in verdicts for text in bad]
            lost, doubled = (sum(text.startswith(word) for text in violations) for word in ("lost", "doubled"))
            unknown = sum("unknown" in killed_run.phase for killed_run, _ in verdicts)
            rows += [
                below(f"{method.value}: lost", float(lost), "", 0, f"{len(killed)} kills"),
                below(f"{method.value}: done twice", float(doubled), "", 0, f"{len(killed)} kills"),
                Row(f"{method.value}: without an outcome, settled by reading the cluster", float(unknown), "changes"),
            ]
    phase_counts = ", ".join(f"{state} {count}" for state, count in sorted(phases.items()))
    rows.append(Row("kills", float(sum(phases.values())), "", note=f"where the ledger was: {phase_counts}"))
    wrong_changes = sum(row.value for row in rows if row.goal)
    rows.insert(
        0,
        below(TOTAL, wrong_changes, "changes", 0, f"{sum(phases.values())} kills of accept, apply, verify, roll back"),
    )
    record("actions_kills", f".venv/bin/python -m bench.changes.actions_kills --points {options.points}", rows)


if __name__ == "__main__":
    main()
