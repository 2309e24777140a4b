"""An hour of the autopilot over many workloads on a real API server with kwok's nodes, rounds a minute apart.

    .venv/bin/python -m bench.autopilot.autopilot_scale             # 1,000 workloads in 10 namespaces, 60 rounds
    .venv/bin/python -m bench.autopilot.autopilot_scale 100 4 20    # so many workloads, namespaces, rounds

The clock is turned a minute before each round, so that an hour takes as long as its rounds: requests are counted, and
divided by the simulated time. The account, its rights, the accept path, roll-outs by the controller-manager and pods by
kwok are real; metrics are not asked. Change windows are open for the first half of the time. In the first round, which
has as many acts as may soak at once, a person pauses everything when the first write has left: how long it takes until
the last one leaves is real time.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from bench.record import Row, above, below, record
from cotenant.autopilot.rounds.acts import ActConfig, LedClient
from cotenant.autopilot.rounds.rounds import Rounds
from cotenant.base.kube import KubeClient
from cotenant.base.kube.connection import ApiRequest, ApiResponse
from cotenant.base.people import Person
from cotenant.base.process.clock import ShiftedClock
from cotenant.changes.model.change import ChangeState, ChangeStatus
from tests.autopilot.scene import APPROVER, AutopilotScene
from tests.changes.world import created, ready
from tests.cluster.control_plane import ControlPlane, Options
from tests.cluster.fake_nodes import NodeShape, create_nodes
from tests.cluster.namespaces import create_namespace, unique_name
from tests.cluster.waiting import wait_for

COMMAND: Final = ".venv/bin/python -m bench.autopilot.autopilot_scale"
RBAC: Final = "rbac.authorization.k8s.io"
ROUND_SECONDS: Final = 60.0
AT_ONCE, OF_A_POLICY, SOAK_MINUTES = 10, 2, 5
MOST_REQUESTS_PER_SECOND: Final = 5.0
PODS_A_NODE: Final = 100
SOAKING: Final = frozenset({ChangeState.APPLIED, ChangeState.UNKNOWN, ChangeState.WAITING})
ROLES: Final = {
    "cotenant-applier": {"kind": "ServiceAccount", "name": "cotenant-manager", "namespace": "cotenant"},
    "cotenant-autopilot-approver": {"apiGroup": RBAC, "kind": "User", "name": "ann"},
}


class CountingClient(LedClient):
    """A client under the Lease that says each request to `count`, its method and path."""

    count: Callable[[str, str], None]

    def request(
        self, verb: str, request: ApiRequest, *, repeatable: bool = False, before: Callable[[], None] | None = None
    ) -> ApiResponse:
        """As of every client."""
        self.count(request.method, request.path)
        return super().request(verb, request, repeatable=repeatable, before=before)


@dataclass
class ScaleScene(AutopilotScene):
    """The scene's account over several namespaces; requests are counted by method, writes of workloads timed."""

    requests: Counter[str] = field(default_factory=Counter)
    writes: list[float] = field(default_factory=list)

    def count(self, method: str, path: str) -> None:
        """A request is about to leave."""
        self.requests.update((method,))
        if method == "PATCH" and path.startswith("/apis/apps/") and "dryRun" not in path:
            self.writes.append(time.monotonic())

    @contextmanager
    def access(self, _who: Person) -> Iterator[KubeClient]:
        """See AutopilotScene."""
        with closing(self.plane.client(self.kubeconfig)) as client:
            counting = CountingClient.of(client, self._guard)
            counting.count = self.count
            with closing(counting):
                yield counting

    def now_seconds(self) -> float:
        """The clock of its rounds."""
        return ShiftedClock(self.ahead_seconds).now_seconds()

    def rounds(self) -> Rounds:
        """See AutopilotScene; their clock is turned with the scene's."""
        config = ActConfig(self.access, self.folder / "ledger.db", self, self.settings, anchor_namespace=self.namespace)
        return Rounds(config, self._of_namespace)

    def enrol(self, namespace: str, windows: list[str]) -> None:
        """Its administrator's consent, a policy, and the approver's."""
        api = self.plane.api()
        for role, subject in ROLES.items():
            reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}
            body = {"metadata": {"name": role}, "roleRef": reference, "subjects": [subject]}
            path = f"/apis/{RBAC}/v1/namespaces/{namespace}/rolebindings"
            if not api.exists(f"{path}/{role}"):
                api.create(path, body)
        spec = {"mode": "Observe", "atOnce": OF_A_POLICY, "ways": ["RollOut"], "windows": windows}
        head = {"apiVersion": "cotenant.dev/v1alpha1", "kind": "AutopilotPolicy", "metadata": {"name": "nightly"}}
        api.create(f"/apis/cotenant.dev/v1alpha1/namespaces/{namespace}/autopilotpolicies", {**head, "spec": spec})

        def approved() -> bool:
            self.service().act(APPROVER, f"{namespace}/nightly")
            return True

        wait_for(f"the approval in {namespace}", approved)


@dataclass
class ScaleStory:
    """What an hour showed. soaking: changes after each round, in all and in the fullest namespace.

    paused_seconds: from the switch to the last write of a workload in the round that was paused; late: writes after it.
    """

    simulated_seconds: float
    requests: Counter[str]
    soaking: list[tuple[int, int]]
    statuses: list[ChangeStatus]
    open_until_seconds: float
    closed_rounds: int
    paused_seconds: float = 0.0
    late: int = 0

    @property
    def outside(self) -> int:
        """Changes that were accepted when the windows were closed."""
        return sum(status.accepted_seconds > self.open_until_seconds for status in self.statuses)

    @property
    def restarts(self) -> int:
        """The most roll-outs that one workload has had."""
        return max(Counter(status.change.workload for status in self.statuses).values(), default=0)


def scaled(plane: ControlPlane, folder: Path, workloads: int, namespaces: int) -> tuple[ScaleScene, list[str]]:
    """Workloads of two pods each on the nodes that there are, each with a recommendation of less CPU."""
    names = [create_namespace(plane.api(), unique_name("scale")) for _ in range(namespaces)]
    cluster = ScaleScene(plane, names[0], folder)
    ceiling = {"at_once": AT_ONCE, "soak_minutes": SOAK_MINUTES, "ways": ["RollOut"], "never_touch": []}
    cluster.settings = msgspec.structs.replace(
        cluster.settings,
        autopilot=msgspec.convert({"enabled": True, "ceiling": ceiling}, type(cluster.settings.autopilot)),
    )
    deployments = [created(plane, names[number % namespaces], f"w{number}", 2) for number in range(workloads)]
    for workload in deployments:
        ready(plane, workload)
        cluster.recommend(workload)
    return cluster, names


def hour(cluster: ScaleScene, namespaces: list[str], rounds: int) -> ScaleStory:
    """Rounds a minute apart, the windows open for the first half of them."""
    start = ShiftedClock(0.0).now_seconds()
    # a window ends on a whole minute: the one after half of the time
    last = datetime.fromtimestamp(start, UTC) + timedelta(seconds=rounds * ROUND_SECONDS / 2 + 60)
    first = datetime.fromtimestamp(start, UTC) - timedelta(hours=1)
    for namespace in namespaces:
        cluster.enrol(namespace, [f"mon-sun {first:%H:%M}-{last:%H:%M} UTC"])
    cluster.requests.clear()
    running, soaking, closed, late = cluster.rounds(), list[tuple[int, int]](), 0, list[float]()
    until = last.replace(second=0, microsecond=0).timestamp()
    for number in range(rounds):
        cluster.ahead_seconds = max(0.0, start + number * ROUND_SECONDS - ShiftedClock(0.0).now_seconds())
        reading = running.read(cluster.now_seconds())
        if number:
            running.carry_out(reading)
        else:
            late = paused_amid(cluster, partial(running.carry_out, reading))
        under_way = [status.change for status in cluster.statuses() if status.state in SOAKING]
        by_namespace = Counter(change.namespace for change in under_way)
        soaking.append((len(under_way), max(by_namespace.values(), default=0)))
        closed += reading.now_seconds > until
    simulated_seconds = max(rounds * ROUND_SECONDS, cluster.now_seconds() - start)
    statuses = list(cluster.statuses())
    return ScaleStory(
        simulated_seconds, cluster.requests, soaking, statuses, until, closed, max(late, default=0.0), len(late)
    )


def paused_amid(cluster: ScaleScene, carry_out: Callable[[], object]) -> list[float]:
    """Seconds after a person's pause at which writes of workloads left still; it is resumed in the end."""
    switched: list[float] = []

    def pause() -> None:
        wait_for("the first write", lambda: cluster.writes)
        cluster.service().pause(APPROVER, "in the middle of acts")
        switched.append(time.monotonic())

    person = threading.Thread(target=pause)
    person.start()
    carry_out()
    person.join()
    cluster.service().resume(APPROVER)
    return [moment - switched[0] for moment in cluster.writes if moment > switched[0]]


def rows(story: ScaleStory, workloads: int) -> list[Row]:
    """With the goals of the autopilot."""
    rate = sum(story.requests.values()) / story.simulated_seconds
    counts = ", ".join(f"{count} {method}" for method, count in sorted(story.requests.items()))
    late = f"{story.late} writes of workloads left after it"
    return [
        below("requests to the API server, mean", round(rate, 3), "/s", MOST_REQUESTS_PER_SECOND, counts),
        below("changes that soaked at once", max(all_ for all_, _ in story.soaking), "", AT_ONCE),
        below("changes of one policy that soaked at once", max(most for _, most in story.soaking), "", OF_A_POLICY),
        below("changes accepted outside of the change windows", story.outside, "", 0, f"{story.closed_rounds} rounds"),
        below("roll-outs of one workload", story.restarts, "", 1),
        below("from a pause in the middle of acts to the last write", round(story.paused_seconds, 2), "s", 10, late),
        above("workloads changed", len(story.statuses), "", min(workloads, AT_ONCE), f"of {workloads}"),
    ]


def main(arguments: list[str]) -> int:
    """The hour, recorded in its full form."""
    workloads, namespaces, rounds = (int(text) for text in arguments) if arguments else (1_000, 10, 60)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        with ControlPlane(folder / "plane", Options(heartbeats=False)) as plane:
            create_nodes(plane, -(-2 * workloads // PODS_A_NODE) + 1, NodeShape(cpu="256", memory="512Gi"))
            story = hour(*scaled(plane, folder, workloads, namespaces), rounds)
    measured = rows(story, workloads)
    if arguments:
        for row in measured:
            print(row)
    else:
        record("autopilot_scale", COMMAND, measured)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
