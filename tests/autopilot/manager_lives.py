"""A manager's lives: rounds in a process that is killed at any moment, while the API server comes and goes.

Between two rounds the clock leaps, forwards or back. One ledger, one policy with a change window and workloads of both
ways outlive all of them. What was lost, done twice or begun outside of the window afterwards: `breaches`.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import msgspec

from cotenant.autopilot.rounds.acts import ActConfig
from cotenant.autopilot.rounds.rounds import Rounds
from cotenant.base.errors import CotenantError
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import KubeClient, connect
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.people import Person
from cotenant.base.process.clock import ShiftedClock
from cotenant.base.settings.sections import KubeSettings
from cotenant.changes.decide.change_windows import is_open
from cotenant.changes.decide.field_changes import holds_values
from cotenant.changes.decide.regression_check import Compared, Measure
from cotenant.changes.model.change import ChangeEvent, ChangeState, ChangeStatus, Write
from cotenant.recommender.model.recommendation import Recommendation
from cotenant.settings import Settings
from tests.autopilot.scene import APPROVER, HOUR, AutopilotScene
from tests.changes.world import created, ready
from tests.cluster import faults
from tests.cluster.accounts import certified

PRELOADED: Final = ["cotenant.base.kube.auth", "tests.autopilot.manager_lives"]
LEAPS_HOURS: Final = (-30.0, -1.0, 0.0, 0.1, 0.1, 0.5, 2.0, 7.0, 25.0, 49.0)
ROUNDS_A_LIFE: Final = 3
WINDOW: Final = "daily 00:00-14:00 UTC"
AT_ONCE: Final = 3
AMOUNTS: Final = (1000, 800)
"""CPU requests between which advice goes to and fro, millicores: either way is one step."""
SETTLED_SECONDS: Final = 2.5
"""More than the time in which a request of a process that ended may still arrive."""
_OPENING: Final = frozenset({ChangeEvent.ACCEPTED, ChangeEvent.RESUMED})
_CLOSING: Final = frozenset(
    {ChangeEvent.VERIFIED, ChangeEvent.REFUSED, ChangeEvent.CANCELLED, ChangeEvent.REGRESSED, ChangeEvent.ROLLED_BACK}
)


@dataclass
class LeapingClock:
    """The machine's clock, ahead by what its owner says."""

    ahead_seconds: float = 0.0

    def now_seconds(self) -> float:
        """Unix time."""
        return ShiftedClock(self.ahead_seconds).now_seconds()


@dataclass(frozen=True)
class ManagerLife:
    """What one process is given. leaps: seconds that its clock is ahead in each round."""

    kubeconfig: str
    ledger: Path
    settings: Settings
    recommendations: tuple[Recommendation, ...]
    leaps: tuple[float, ...]
    compared: tuple[Compared, ...] = ()


def lived(life: ManagerLife, pipe: Connection) -> None:
    """Rounds as the manager's loop does them: what cannot be reached is tried again in the next one."""

    @contextmanager
    def access(_who: Person) -> Iterator[KubeClient]:
        with closing(connect(KubeSettings(kubeconfig=life.kubeconfig, retries=1))) as client:
            yield client

    def recommended(namespace: str) -> list[Recommendation]:
        return [
            recommendation
            for recommendation in life.recommendations
            if recommendation.container.workload.namespace == namespace
        ]

    clock = LeapingClock()
    config = ActConfig(
        access,
        life.ledger,
        clock,
        life.settings,
        anchor_namespace=life.settings.manager.namespace,
        compare=lambda *_: life.compared,
    )
    rounds = Rounds(config, recommended)
    pipe.send("go")
    for clock.ahead_seconds in life.leaps:
        try:
            rounds.carry_out(rounds.read(clock.now_seconds()))
        except CotenantError as error:
            pipe.send(error.message)


@dataclass
class ManagerLives:
    """Life after life on one namespace. away: rounds that the API server's absence ended."""

    cluster: AutopilotScene
    proxy: faults.FaultProxy
    workloads: list[WorkloadRef]
    draw: random.Random
    generations: dict[str, int] = field(default_factory=dict)
    ahead_seconds: float = 0.0
    kills: int = 0
    away: int = 0

    @property
    def ledger(self) -> Path:
        """Of all lives."""
        return self.cluster.folder / "ledger.db"

    def life(self, harms: bool = False) -> ManagerLife:
        """The next one: new advice, and a clock that leaps before each round."""
        self.cluster.recommendations = []
        for workload in self.workloads:
            self.cluster.recommend(workload, amount=self.draw.choice(AMOUNTS))
        leaps = []
        for _ in range(ROUNDS_A_LIFE):
            self.ahead_seconds += self.draw.choice(LEAPS_HOURS) * HOUR
            leaps.append(self.ahead_seconds)
        compared = (Compared(Measure.THROTTLED, 0.01, 0.5),) if harms else ()
        advice = tuple(self.cluster.recommendations)
        return ManagerLife(
            str(self.proxy.kubeconfig), self.ledger, self.cluster.settings, advice, tuple(leaps), compared
        )

    def live(self, life: ManagerLife, after_seconds: float | None) -> float:
        """Begin it, and kill it so long after; None lets it end. How long it took, seconds."""
        context = get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        here, far_end = context.Pipe()
        process = context.Process(target=lived, args=(life, far_end))
        process.start()
        far_end.close()
        assert here.recv() == "go"
        begin_seconds = time.monotonic()
        if after_seconds is not None:
            process.join(after_seconds)
            process.kill()
        process.join(300)
        self.kills += process.exitcode == -signal.SIGKILL
        took_seconds = time.monotonic() - begin_seconds
        try:
            while here.poll():
                here.recv()
                self.away += 1
        except EOFError:
            pass
        here.close()
        return took_seconds

    def outage(self) -> faults.Choice:
        """The API server is away from some request on, for some: each is cut, or its answer is lost."""
        first, count = self.draw.randrange(1, 60), self.draw.randrange(1, 25)
        first_number, lost = len(self.proxy.requests), self.draw.random() < 0.5
        fault = faults.LOST_ANSWER if lost else faults.CUT
        return lambda request: fault if first <= request.number - first_number < first + count else None

    def killed(self, whole_seconds: float) -> None:
        """One more life that is killed, drawn evenly over the time that a whole one takes; a third has an outage."""
        self.proxy.fault = self.outage() if self.draw.random() < 1 / 3 else faults.none
        self.live(self.life(harms=self.draw.random() < 0.1), self.draw.random() * whole_seconds)
        self.proxy.fault = faults.none

    def settle(self, lives: int = 4) -> None:
        """Calm lives follow, in which nothing stays without an outcome."""
        time.sleep(SETTLED_SECONDS)
        for _ in range(lives):
            self.ahead_seconds += HOUR
            self.live(replace(self.life(), leaps=(self.ahead_seconds, self.ahead_seconds)), None)

    def resume(self) -> None:
        """A person clears what harm has made rest."""
        self.cluster.ahead_seconds = self.ahead_seconds
        for workload in self.workloads:
            self.cluster.service().resume(APPROVER, workload, "looked at")


@contextmanager
def manager_lives(cluster: AutopilotScene, node: str, seed: int) -> Iterator[ManagerLives]:
    """Three workloads that are rolled out and two that are resized in place, two pods each, under one window."""
    ceiling = {
        "at_once": AT_ONCE, "soak_minutes": 5, "ways": ["InPlace", "RollOut"], "never_touch": [],
        "restarts_per_week": 50,
    }  # fmt: skip
    autopilot = {"enabled": True, "ceiling": ceiling, "stop_share": 1.0, "stop_changes": 10_000, "back_off_hours": 1}
    cluster.settings = msgspec.structs.replace(
        cluster.settings, autopilot=msgspec.convert(autopilot, type(cluster.settings.autopilot))
    )
    workloads = []
    for number in range(5):
        way = "InPlace" if number < 2 else "RollOut"
        workloads.append(created(cluster.plane, cluster.namespace, f"w{number}", 2, nodeSelector={"test/own": node}))
        path = f"/apis/apps/v1/namespaces/{cluster.namespace}/deployments/w{number}"
        cluster.plane.api().patch(path, {"metadata": {"labels": {"way": way}}})
    for workload in workloads:
        ready(cluster.plane, workload)
    cluster.bind()
    for way in ("InPlace", "RollOut"):
        name, selector = f"by-{way.lower()}", {"matchLabels": {"way": way}}
        cluster.policy(name, ways=[way], selector=selector, windows=[WINDOW], canaryShare=0.5)
        cluster.service().act(APPROVER, f"{cluster.namespace}/{name}")
    kubeconfig = certified(cluster.plane, "cotenant-manager", cluster.namespace)
    with faults.FaultProxy(cluster.plane, cluster.folder, kubeconfig) as proxy:
        lives = ManagerLives(cluster, proxy, workloads, random.Random(seed))
        # as after midnight, in the window: leaps lead out of it and back
        lives.ahead_seconds = 24 * HOUR - time.time() % (24 * HOUR) + HOUR
        lives.generations = {key: generation for key, (generation, _) in _live_objects(cluster).items()}
        yield lives


def breaches(lives: ManagerLives) -> Iterator[str]:
    """What is lost, done twice or done outside of bounds, by the ledger and the cluster; nothing when all is well."""
    with closing(Ledger(lives.ledger)) as ledger:
        if ledger.verify().wrong_seq is not None:
            yield "lost: the ledger's chain is broken"
        rows = list(ledger.entries())
    statuses = {s.change.id: s for s in lives.cluster.statuses()}
    yield from _of_rows(rows, statuses)
    for status in statuses.values():
        if not status.state.settled and status.state is not ChangeState.WAITING:
            yield f"lost: {status.change.id} is {status.state} after settling"
    twice = Counter((s.change.batch, s.change.wave) for s in statuses.values())
    yield from (f"doubled: batch {batch} was accepted {n} times" for (batch, _), n in twice.items() if n > 1)
    yield from _of_objects(lives, rows, statuses)


def _of_rows(rows: list[Any], statuses: Mapping[str, ChangeStatus]) -> Iterator[str]:
    """Windows, the queue's bound, and workloads with two acts at once, row by row."""
    open_changes: dict[str, str] = {}
    for row in rows:
        change = statuses[row.subject].change if row.subject in statuses else None
        if row.event == "autopilot-left-alone":
            yield f"lost: {row.subject} was taken for one that somebody else writes"
        if change is None:
            continue
        if row.event in _OPENING:
            begins = not change.wave or row.event == ChangeEvent.RESUMED
            if begins and not is_open([WINDOW], row.seconds):
                yield f"outside: {row.event} of {change.workload} at {row.seconds}"
            others = {batch for id_, batch in open_changes.items() if statuses[id_].change.workload == change.workload}
            if others - {change.batch}:
                yield f"doubled: {change.workload} was changed while a change of it was open"
            open_changes[row.subject] = change.batch
        elif row.event in _CLOSING:
            open_changes.pop(row.subject, None)
        if len(set(open_changes.values())) > AT_ONCE:
            yield f"bound: {len(set(open_changes.values()))} changes soaked at once"


def _of_objects(lives: ManagerLives, rows: list[Any], statuses: Mapping[str, ChangeStatus]) -> Iterator[str]:
    """Each object holds what the ledger says last, and was written no more often than the ledger has intents."""
    live = _live_objects(lives.cluster)
    last: dict[str, Write] = {}
    intents: Counter[str] = Counter()
    events: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        events[row.subject][row.event] += 1
    for status in statuses.values():
        happened = events[status.change.id]
        # what a half-done change was refused for is taken back as well: one write more
        count = 1 + happened[ChangeEvent.ROLLBACK_ACCEPTED] + happened[ChangeEvent.REFUSED]
        for write in status.change.writes:
            key = f"{write.address.path}#{write.uid}"
            intents[key] += count
            undone = replace(write, after=write.before)
            if status.state.in_force:
                last[key] = write
            elif key not in last:
                last[key] = undone
    for key, write in last.items():
        if key not in live:
            continue  # a pod that a roll-out or the test's end has replaced
        generation, body = live[key]
        if not holds_values(body, write):
            yield f"lost: {key} does not hold what the ledger says"
        if generation - lives.generations.get(key, 1) > intents[key]:
            yield f"doubled: {key} was written more often than {intents[key]} times"


def _live_objects(cluster: AutopilotScene) -> dict[str, tuple[int, dict[str, Any]]]:
    """Generation and body of every Deployment and pod of the namespace, by path and uid."""
    bodies = {}
    for base in ("/apis/apps/v1/namespaces/{}/deployments", "/api/v1/namespaces/{}/pods"):
        path = base.format(cluster.namespace)
        for body in cluster.plane.api().items(path):
            meta = body["metadata"]
            bodies[f"{path}/{meta['name']}#{meta['uid']}"] = (int(meta.get("generation") or 1), body)
    return bodies
