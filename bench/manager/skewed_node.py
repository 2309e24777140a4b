"""A node of a live cluster whose cgroups are real, with a node agent that another one follows, of any version.

Its pods go the whole way: the webhook makes a pod a batch pod, scheduler and extender bind it by what the manager lends
by this node's own NodeMetric, and the agent enforces by the manager's NodeSLO what the pod then asks for.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import requests

from bench.closed_loop.live_cluster import batch_pod
from bench.closed_loop.live_play import LENT, POLICIES
from cotenant.base.kubernetes.protocol import NODE_AGENT
from cotenant.base.resource import Resource
from cotenant_lab.simulation.node_agents import METRICS
from tests.cluster.api import Api, ApiError
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fake_nodes import NodeShape, create_nodes
from tests.cluster.namespaces import create_namespace
from tests.cluster.process import Server, free_port
from tests.cluster.waiting import wait_for
from tests.enforcer.agents import KNOBS
from tests.enforcer.tokens import agent_files
from tests.node.real_node import NOT_IN_A_TEST
from tests.support.invariants import AgentFiles
from tests.support.kubepods import Kubepods, Pod

NAMESPACE: Final = "enforced"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
OWN_TAINT: Final = {"key": "bench.cotenant.dev/real-cgroups", "effect": "NoSchedule"}
"""Keeps the world's batch jobs off the node: the play knows its own nodes alone."""
MILLICORES, MEMORY_BYTES, SHARES = 500, 64 << 20, "512"
"""Of each pod: 500 of 1,000 millicores are 512 of 1,024 shares."""
REPORT_SECONDS, HANDOVER_SECONDS, SAMPLE_SECONDS = 10, 3, 0.01
SILENT_SECONDS: Final = 150.0
"""More than two intervals of reports, which the manager's spec sets to 60 s."""


class Succession(StrEnum):
    """The way in which one agent follows another."""

    STANDS_BY = "stands by and takes over"
    KILLED = "finds the notes of a killed one"
    ENDED = "begins where everything was given back"


class EnforcedNode:
    """The node, its agent as a server, and what was seen wrong at its successions.

    left: values that an agent did not give back at its end; lifted: successions during which the limit of a pod that
    stays was not there; given_back: ends at which all values were compared.
    """

    def __init__(self, plane: ControlPlane, tree: Kubepods, folder: Path, command: str) -> None:
        """Make the node and a pod that stays, and start the agent; returns when amounts are lent by what it reports."""
        self._plane, self._tree, self._folder = plane, tree, folder
        self._state, self._agents, self._pods = folder / "agent-state", 0, 0
        self.left: list[str] = []
        self.lifted: list[Succession] = []
        self.given_back = 0
        (self.name,) = create_nodes(plane, 1, NodeShape(prefix="real"))
        api = plane.api()
        api.patch(f"/api/v1/nodes/{self.name}", {"spec": {"taints": [OWN_TAINT]}})
        create_namespace(api, NAMESPACE)
        label = {"metadata": {"labels": {"koordinator.sh/enable-colocation": "true"}}}
        api.patch(f"/api/v1/namespaces/{NAMESPACE}", label)
        files = agent_files(plane, self.name, folder)
        self._settings = {
            "enforcer.cgroup_base": tree.base,
            "enforcer.state_dir": self._state,
            "enforcer.node_name": self.name,
            "enforcer.api_server": files.server,
            "enforcer.token_file": files.token,
            "enforcer.ca_file": files.ca,
            "enforcer.pods_file": "",
            "enforcer.policy_file": "",
            "enforcer.kubelet_config": "",
            "enforcer.strategies_off": json.dumps(NOT_IN_A_TEST),
            "enforcer.handover_seconds": HANDOVER_SECONDS,
            "enforcer.report_interval_seconds": REPORT_SECONDS,
        }
        self._standing = self._placed(api, "stays", past_the_scheduler=True)
        self._untouched = tree.values(KNOBS)
        self.server = self._begun(command)
        self._await_work(0.0)
        wait_for("amounts lent by the agent's report", lambda: self._lent(plane.api()))

    @property
    def files(self) -> AgentFiles:
        """What the agents noted and logged, and what stands in the cgroups now."""
        return AgentFiles(self.name, self._state, self._present)

    def _present(self, path: str, knob: str) -> str | None:
        return self._tree.values({knob: KNOBS[knob]}).get((path, knob)) if knob in KNOBS else None

    # --- agents -------------------------------------------------------------------------------------------------------
    def follow(self, command: str, way: Succession) -> Server:
        """Let another agent follow in one of the ways; its server, once it enforces and has reported."""
        leaving, start = self.server, time.time()
        if way is Succession.ENDED:
            self.end()
            self.server = self._begun(command)
            self._await_work(start)
            return self.server
        with self._watched(way):
            if way is Succession.KILLED:
                leaving.kill()
                self.server = self._begun(command)
            else:
                self.server = self._begun(command)
                self.server.wait_until(lambda: "standing by" in self.server.written())
                leaving.stop(30.0)
            self._await_work(start)
        return self.server

    def end(self) -> None:
        """Let the agent end, and compare what it has given back."""
        self.server.stop(30.0)
        self.given_back += 1
        now = self._tree.values(KNOBS)
        self.left += [f"{at}: {now[at]}" for at in sorted(now) if now[at] != self._untouched.get(at, now[at])]

    def kill(self) -> None:
        """Kill the agent that runs; after `end` nothing is left of it."""
        self.server.kill()

    def _begun(self, command: str) -> Server:
        """An agent with a log of its own, started."""
        self._agents += 1
        self._health = free_port()
        options = {**self._settings, "telemetry.health_port": self._health}
        flags = [word for key, value in options.items() for word in ("--set", f"{key}={value}")]
        log = self._folder / f"node-agent-{self._agents}.log"
        server = Server("node agent", [command, *flags, "node", "enforcer", "--write"], log)
        server.start()
        return server

    def _await_work(self, since_seconds: float) -> None:
        """Until the pod that stays is limited by this agent, and its report is newer (Unix time)."""
        self.server.wait_until(lambda: self._ready() and self._limited(self._standing))
        wait_for("a NodeMetric of the agent", lambda: self._reported(self._plane.api()) > since_seconds)

    def _ready(self) -> bool:
        try:
            return requests.get(f"http://127.0.0.1:{self._health}/readyz", timeout=5).status_code == 200
        except requests.RequestException:
            return False

    def _reported(self, api: Api) -> float:
        """Unix time of the agent's last report; 0.0 where there is none or the last one is of somebody else."""
        body = api.get(f"{METRICS}/{self.name}") if api.exists(f"{METRICS}/{self.name}") else {}
        time_text = body.get("status", {}).get("updateTime")
        managers = [m["manager"] for m in body.get("metadata", {}).get("managedFields", ())]
        return datetime.fromisoformat(time_text).timestamp() if time_text and NODE_AGENT in managers else 0.0

    @contextmanager
    def _watched(self, way: Succession) -> Iterator[None]:
        """Note whether the limit of the pod that stays goes away at any time in between."""
        limits, over = set[str](), threading.Event()

        def sample() -> None:
            while not over.wait(SAMPLE_SECONDS):
                limits.add(self._tree.read(self._standing.container, "memory", "memory.limit_in_bytes"))

        thread = threading.Thread(target=sample)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        if limits != {str(MEMORY_BYTES)}:
            self.lifted.append(way)

    # --- what has to work ---------------------------------------------------------------------------------------------
    def why_not_working(self) -> str:
        """What does not work of the way of a pod to its limits, in words; "" when all does."""
        api = self._plane.api(timeout=5)
        try:
            if not self._ready():
                return "the node agent is not ready"
            if time.time() - self._reported(api) > SILENT_SECONDS:
                return "the node agent does not report"
            self._clear(api)
            wait_for("amounts lent anew by the agent's report", lambda: self._lent(api), 30)
            wait_for("a policy for the agent anew", lambda: api.exists(f"{POLICIES}/{self.name}"), 30)
            self._pods += 1
            pod = self._placed(api, f"comes-{self._pods}")
            try:
                wait_for("limits of a new pod", lambda: self._limited(pod), 30)
            finally:
                with suppress(ApiError):
                    api.delete(f"{PODS}/{pod.body['metadata']['name']}")
                self._tree.remove(pod)
            wait_for("the agent to act by the policy", lambda: self._status().get("policy_origin") == "NodeSLO", 30)
        except (OSError, ApiError, AssertionError) as error:
            return f"the node agent's node: {error}"
        finally:
            api.close()
        return ""

    def _clear(self, api: Api) -> None:
        """Somebody takes away what is lent, and the policy: the manager has to make both anew, by what it reads now."""
        cleared = dict.fromkeys(LENT.values())
        api.patch(f"/api/v1/nodes/{self.name}/status", {"status": {"allocatable": cleared, "capacity": cleared}})
        api.delete(f"{POLICIES}/{self.name}")

    def _lent(self, api: Api) -> bool:
        amounts = api.get(f"/api/v1/nodes/{self.name}")["status"]["allocatable"]
        return float(amounts.get(LENT[Resource.CPU], "0")) >= 2 * MILLICORES

    def _status(self) -> dict[str, Any]:
        agent_status: dict[str, Any] = requests.get(f"http://127.0.0.1:{self._health}/status", timeout=5).json() or {}
        return agent_status

    def _placed(self, api: Api, name: str, *, past_the_scheduler: bool = False) -> Pod:
        """A batch pod that runs on the node, with the cgroups that a kubelet would make."""
        body = batch_pod(name, MILLICORES, MEMORY_BYTES)
        spec = body["spec"]
        spec["tolerations"] = [{**OWN_TAINT, "operator": "Exists"}]
        spec |= (
            {"nodeName": self.name} if past_the_scheduler else {"nodeSelector": {"kubernetes.io/hostname": self.name}}
        )
        created_pod = api.create(PODS, body)

        def running() -> dict[str, Any] | None:
            pod_body: dict[str, Any] = api.get(f"{PODS}/{name}")
            return pod_body if pod_body["status"].get("phase") == "Running" else None

        pod_body = wait_for(f"pod {name} to run", running, 60)
        pod = self._tree.pod(name, qos="BE", uid=created_pod["metadata"]["uid"])
        (identity,) = pod.body["status"]["containerStatuses"]
        (status,) = pod_body["status"]["containerStatuses"]
        api.patch(f"{PODS}/{name}/status", {"status": {"containerStatuses": [{**status, **identity, "name": "job"}]}})
        return pod

    def _limited(self, pod: Pod) -> bool:
        values = (("cpu", "cpu.shares", SHARES), ("memory", "memory.limit_in_bytes", str(MEMORY_BYTES)))
        return all(self._tree.read(pod.container, of, file) == value for of, file, value in values)
