"""The faults of a soak: what is done to a live cluster, what undoes it, and how it is known that all works again.

A fault that begins a process anew comes in the first third of a soak alone, so that each process then lives for long
enough to show what grows.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from bench.closed_loop.live_cluster import LiveWorld, translates
from bench.closed_loop.live_play import LENT
from cotenant.base.controllers.feature import STATUS_CONFIG_MAP, ControllerCondition
from cotenant.base.kubernetes.protocol import SYSTEM_NAMESPACE
from cotenant.base.resource import Resource
from tests.cluster import second_scheduler as second
from tests.cluster.api import Api, ApiError
from tests.cluster.control_plane import APISERVER, ETCD, ControlPlane
from tests.cluster.process import Server

PROBES: Final = "probes"
"""Namespace of the pods that show that the scheduler binds."""
LEASES: Final = "/apis/coordination.k8s.io/v1/leases"
LEASE: Final = "cotenant-manager"
CONFIG: Final = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps/slo-controller-config"
STATUS: Final = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps/{STATUS_CONFIG_MAP}"
BINDING: Final = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/cotenant-manager"
LOOK_SECONDS: Final = 0.5
HOPELESS_SECONDS: Final = 300.0
"""After which a cluster that does not work again ends the soak."""


@dataclass(eq=False)
class Stage:
    """A live cluster and its servers by name.

    removed: what a fault took away and gives back; up: the manager's features that work where nothing was done yet;
    ended: processes that ended by themselves and were started again, as a kubelet does it.
    """

    plane: ControlPlane
    live: LiveWorld
    parts: Mapping[str, Server]
    removed: dict[str, Any] = field(default_factory=dict)
    up: frozenset[str] = frozenset()
    ended: list[str] = field(default_factory=list)
    probes: int = 0

    def __post_init__(self) -> None:
        """Put the API server and etcd among the servers."""
        self.servers = {**self.parts, APISERVER: self.plane.servers[APISERVER], ETCD: self.plane.servers[ETCD]}


@dataclass(frozen=True, slots=True)
class SoakFault:
    """A fault: how it strikes, how long it lasts, how it ends. harsh: it begins a process of cotenant's anew."""

    name: str
    strike: Callable[[Stage], None]
    end: Callable[[Stage], None]
    seconds: float
    harsh: bool = False


def _killed(name: str, seconds: float, harsh: bool = True) -> SoakFault:
    return SoakFault(
        f"{name} killed", lambda stage: stage.servers[name].kill(), lambda stage: stage.servers[name].start(),
        seconds, harsh,
    )  # fmt: skip


def _stopped(name: str, seconds: float) -> SoakFault:
    return SoakFault(
        f"{name} stopped {seconds:g} s",
        lambda stage: stage.servers[name].pause(),
        lambda stage: stage.servers[name].resume(),
        seconds,
    )


def _taken(name: str, path: str, seconds: float) -> SoakFault:
    """An object that somebody deletes and creates again."""

    def strike(stage: Stage) -> None:
        with closing(stage.plane.api()) as api:
            stage.removed[path] = api.get(path)
            api.delete(path)

    def end(stage: Stage) -> None:
        body = stage.removed.pop(path)
        body["metadata"] = {key: body["metadata"][key] for key in ("name", "labels") if key in body["metadata"]}
        with closing(stage.plane.api()) as api:
            api.create(path.rpartition("/")[0], body)

    return SoakFault(name, strike, end, seconds)


FAULTS: Final = (
    _killed("manager", 2.0),
    _killed("webhook", 2.0),
    _killed("extender", 2.0),
    _killed("scheduler", 2.0),
    _stopped("manager", 20.0),  # longer than its Lease
    _stopped("webhook", 5.0),
    _stopped("extender", 5.0),
    _stopped(APISERVER, 8.0),
    _killed(APISERVER, 2.0, harsh=False),
    _killed(ETCD, 2.0, harsh=False),
    _taken("the manager's rights deleted", BINDING, 15.0),
    _taken("slo-controller-config deleted", CONFIG, 15.0),
)


def seeded_faults(count: int, seed: int) -> list[SoakFault]:
    """The list of a soak: each fault about as often as the others, harsh ones in its first third alone."""
    draw, chosen = random.Random(seed), list[SoakFault]()
    for number in range(count):
        allowed = [fault for fault in FAULTS if not fault.harsh or number < count // 3]
        fewest = min(chosen.count(fault) for fault in allowed)
        chosen.append(draw.choice([fault for fault in allowed if chosen.count(fault) == fewest]))
    return chosen


@contextmanager
def _connected(stage: Stage) -> Iterator[Api]:
    with closing(stage.plane.api(timeout=5)) as api:
        yield api


def why_not_working(stage: Stage) -> str:
    """What does not work yet, in words; "" when every part does its work."""
    for name, server in stage.servers.items():
        if not server.running:  # a scheduler that lost its Lease ends on purpose
            stage.ended.append(name)
            server.start()
    try:
        with _connected(stage) as api:
            reasons = (_why_not_led(api), _why_not_up(api, stage), _why_not_lending(api, stage.live))
            return next(filter(None, reasons), "") or _why_not_admitting(api)
    except (OSError, ApiError) as error:
        return f"the API server: {error}"


def _why_not_led(api: Api) -> str:
    leases = [lease["spec"] for lease in api.items(LEASES) if lease["metadata"]["name"] == LEASE]
    renewed = [datetime.fromisoformat(spec["renewTime"]) for spec in leases if spec.get("holderIdentity")]
    age = (datetime.now(UTC) - max(renewed)).total_seconds() if renewed else None
    limit = max((spec.get("leaseDurationSeconds", 15) for spec in leases), default=15)
    return "" if age is not None and age <= limit else f"no manager holds the Lease ({age} s)"


def features_up(api: Api) -> frozenset[str]:
    """The manager's features that say that they are up."""
    data = api.get(STATUS)["data"]
    return frozenset(name for name, line in data.items() if json.loads(line)["reason"] == ControllerCondition.UP)


def _why_not_up(api: Api, stage: Stage) -> str:
    down = sorted(stage.up - features_up(api))
    return f"not up: {', '.join(down)}" if down else ""


def _why_not_lending(api: Api, live: LiveWorld) -> str:
    nodes = {node["metadata"]["name"]: node["status"]["allocatable"] for node in api.items("/api/v1/nodes")}
    without = [name for name in live.nodes if LENT[Resource.CPU] not in nodes.get(name, {})]
    return f"{len(without)} nodes lend nothing" if without else ""


def _why_not_admitting(api: Api) -> str:
    return "" if translates(api) else "the webhook translates no batch pod"


def await_working(stage: Stage) -> float:
    """Seconds until every part works again and the scheduler has bound a new pod; TimeoutError says what does not."""
    start = time.monotonic()
    while why := (why_not_working(stage) or _why_not_binding(stage)):
        if time.monotonic() - start > HOPELESS_SECONDS:
            raise TimeoutError(f"{why}, {HOPELESS_SECONDS:g} s after the end of a fault")
        time.sleep(LOOK_SECONDS)
    return time.monotonic() - start


def _why_not_binding(stage: Stage) -> str:
    """Let the scheduler and the extender bind a pod of this look's own, which is then deleted."""
    stage.probes += 1
    path, name = f"/api/v1/namespaces/{PROBES}/pods", f"probe-{stage.probes}"
    container = {"name": "main", "image": "example.invalid/probe:1"}
    spec = {"schedulerName": second.NAME, "containers": [container], "terminationGracePeriodSeconds": 0}
    try:
        with _connected(stage) as api:
            api.create(path, {"metadata": {"name": name}, "spec": spec})
            bound, deadline = False, time.monotonic() + 10.0
            while not bound and time.monotonic() < deadline:
                bound = bool(api.get(f"{path}/{name}")["spec"].get("nodeName"))
                time.sleep(LOOK_SECONDS / 10)
            with suppress(ApiError):
                api.delete(f"{path}/{name}")
    except (OSError, ApiError) as error:
        return f"a probe: {error}"
    return "" if bound else "the scheduler binds no pod"
