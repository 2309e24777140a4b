"""Every component of ours is killed and stays away: are pods created and bound, is anybody evicted, do limits go?

.venv/bin/python -m bench.manager.components_down [--seconds 600]

A real control plane whose scheduler calls the extender and whose API server calls the webhooks, with the rights and
admission policies of deploy/. An agent on real cgroups holds best effort down, its watchdog beside it with the command
of the shipped DaemonSet. Then webhook, extender and agent are killed (the manager never ran), and pods are created once
a second, every other one in a namespace whose profile makes batch pods.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import yaml

from bench.extender.extender_outage import Extender, all_bound, pod
from bench.record import ROOT, Row, below, record
from tests.cluster.accounts import install_rights
from tests.cluster.api import Api, ApiError
from tests.cluster.control_plane import CONTROLLER_MANAGER, ControlPlane, Options
from tests.cluster.fake_nodes import NodeShape, create_nodes
from tests.cluster.namespaces import create_namespace
from tests.cluster.waiting import wait_for
from tests.cluster.webhook import running
from tests.enforcer.agents import BATCH, KNOBS, Running
from tests.scheduler_ext.extender.live import install_crds, scheduler
from tests.support.kubepods import Kubepods, missing

SPACES = ("bench", "batch")
PATH = "/api/v1/namespaces/{}/pods"
PROFILE = {
    "apiVersion": "config.koordinator.sh/v1alpha1",
    "kind": "ClusterColocationProfile",
    "metadata": {"name": "batch"},
    "spec": {"namespaceSelector": {"matchLabels": {"bench": "batch"}}, "qosClass": "BE", "labels": {"a": "b"}},
}


@dataclass
class Outage:
    """What happened while nobody of ours was there."""

    created: int = 0
    failures: list[str] = field(default_factory=list)
    slowest_seconds: float = 0.0
    unbound: int = 0
    lost: int = 0
    relaxed_seconds: float = 0.0


@contextmanager
def held_down(folder: Path) -> Iterator[tuple[Running, Callable[[], bool]]]:
    """An agent that holds best effort down with its watchdog; tells whether all is as the kubelet set it."""
    _, shipped = yaml.safe_load((ROOT / "deploy" / "enforcer.yaml").read_text())["spec"]["template"]["spec"][
        "containers"
    ]
    places = {"python": sys.executable, "/host/proc": "/proc"}
    command = [places.get(word, word) for word in shipped["command"]]
    with Kubepods() as node:
        batch = node.pod("etl", qos="BE", priority=5500, resources=BATCH)
        before = node.values(KNOBS)
        with Running(node, folder) as agent:
            wait_for("the batch pod's weight", lambda: node.read(batch.container, "cpu", "cpu.shares") == "1024")
            watchdog = subprocess.Popen([*command, "--state-dir", str(folder / "state")], cwd=ROOT)
            try:
                yield agent, lambda: node.values(KNOBS) == before
            finally:
                watchdog.kill()
                watchdog.wait()


def none_waits(api: Api, path: str) -> bool:
    return not api.items(path, fieldSelector="spec.nodeName=")


def outage(api: Api, relaxed: Callable[[], bool], seconds: float) -> Outage:
    """Create a pod a second, and look when best effort is free."""
    observed, start = Outage(), time.monotonic()
    while (now := time.monotonic() - start) < seconds:
        if not observed.relaxed_seconds and relaxed():
            observed.relaxed_seconds = now
        try:
            api.create(PATH.format(SPACES[observed.created % 2]), pod(f"p-{observed.created}", "10m"))
        except ApiError as error:
            observed.failures.append(str(error))
        observed.created += 1
        observed.slowest_seconds = max(observed.slowest_seconds, time.monotonic() - start - now)
        time.sleep(max(0.0, start + observed.created - time.monotonic()))
    with suppress(AssertionError):  # who is not bound by then is counted
        for path in map(PATH.format, SPACES):
            wait_for("all are bound", partial(none_waits, api, path))
    pods = [listed_pod for space in SPACES for listed_pod in api.items(PATH.format(space))]
    observed.unbound = sum(not listed_pod["spec"].get("nodeName") for listed_pod in pods)
    observed.lost = (
        observed.created
        - len(observed.failures)
        - sum("deletionTimestamp" not in listed_pod["metadata"] for listed_pod in pods)
    )
    observed.relaxed_seconds = observed.relaxed_seconds or 1e6  # never
    return observed


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=600.0)
    seconds = parser.parse_args().seconds
    if reason := missing():
        print(f"nothing was measured: {reason}")
        return
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        options = Options(components=frozenset({CONTROLLER_MANAGER, "kwok"}))
        with ControlPlane(folder / "cluster", options) as plane, held_down(folder / "agent") as (agent, relaxed):
            install_crds(plane)
            install_rights(plane)
            for space in SPACES:
                create_namespace(plane.api(), space, {"bench": space})
            create_nodes(plane, 20, NodeShape(prefix="node", cpu="16"))
            extender = Extender(plane, folder)
            extender.start()
            with scheduler(plane, folder, {"extenders": extender.entries}), running(plane, folder / "pki") as webhook:
                plane.api().create("/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles", PROFILE)
                plane.api().create(PATH.format(SPACES[0]), pod("first", "10m"))
                all_bound(plane.api())
                plane.api().delete(PATH.format(SPACES[0]) + "/first")
                wait_for("the first pod is gone", lambda: not plane.api().items(PATH.format(SPACES[0])))
                extender.kill()
                webhook.server.stop()
                agent.end(signal.SIGKILL)
                report(outage(plane.api(), relaxed, seconds), seconds)


def report(observed: Outage, seconds: float) -> None:
    record(
        "components_down",
        " ".join([".venv/bin/python -m bench.manager.components_down", *sys.argv[1:]]),
        [
            below(
                "pods that could not be created",
                len(observed.failures),
                "pods",
                0,
                (observed.failures or [""])[0][:120],
            ),
            below("pods that were evicted or deleted", observed.lost, "pods", 0),
            below("pods that were not bound", observed.unbound, "pods", 0),
            below(
                "until the cgroups of best effort are as the kubelet set them",
                round(observed.relaxed_seconds, 1),
                "s",
                300,
            ),
            Row("pods created, one a second", observed.created, "pods", note=f"outage of {seconds:g} s"),
            Row("slowest create", round(observed.slowest_seconds, 2), "s"),
            Row("load of the machine, one minute", round(os.getloadavg()[0], 1), ""),
        ],
    )


if __name__ == "__main__":
    main()
