"""The agent as a process on a kubelet's real cgroups, started and asked as a person would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.cluster.process import free_port
from tests.cluster.waiting import wait_for
from tests.support.kubepods import Kubepods

KNOBS: Final = {
    "cpu.shares": "cpu",
    "cpu.cfs_quota_us": "cpu",
    "cpu.cfs_burst_us": "cpu",
    "cpu.idle": "cpu",
    "cpuset.cpus": "cpuset",
    "memory.limit_in_bytes": "memory",
}
"""Files whose values an agent may change and must give back."""
SUPPRESS: Final = """
resourceUsedThresholdWithBE: {enable: true, cpuSuppressThresholdPercent: 65, cpuSuppressPolicy: cfsQuota}
"""
BATCH: Final = {
    "requests": {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "64Mi"},
    "limits": {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "64Mi"},
}
"""Of a batch pod: 1000 millicores are 1024 shares and, unless suppression holds the quota, 100,000 us."""


@dataclass(slots=True)
class Running:
    """An agent's process; `folder` holds its files."""

    node: Kubepods
    folder: Path
    policy: str = SUPPRESS
    settings: Mapping[str, object] = field(default_factory=dict)
    options: Sequence[str] = ("--write",)
    environment: Mapping[str, str] = field(default_factory=dict)
    group: str = ""
    """Group of the tree that the agent itself runs in; empty: where the test runs."""
    before: Sequence[str] = ()
    """A program that starts it, such as one that takes rights away."""
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> Running:
        """Start it, with the pods that the tree has now."""
        self.folder.mkdir(exist_ok=True)
        self.node.write_pods(self.folder / "pods.json")
        self.policy_file.write_text(self.policy)
        defaults = {
            "enforcer.cgroup_base": self.node.base,
            "enforcer.state_dir": self.folder / "state",
            "enforcer.policy_file": self.policy_file,
            "enforcer.pods_file": self.folder / "pods.json",
            "enforcer.tick_seconds": 0.2,
            "enforcer.kubelet_config": "",
            "enforcer.pod_resources_socket": "",
            "telemetry.health_port": self.port,
        }
        overrides = [w for k, v in {**defaults, **self.settings}.items() for w in ("--set", f"{k}={v}")]
        log = (self.folder / "agent.log").open("ab")
        command = [*self.before, sys.executable, "-m", "cotenant.enforcer", *self.options, *overrides]
        options: dict[str, Any] = {
            "stdout": log,
            "stderr": log,
            "env": {**os.environ, **self.environment},
            "cwd": Path(__file__).parents[2],
        }
        if self.group:
            self.process = self.node.enter(self.group, command, **options)
        else:
            self.process = subprocess.Popen(command, **options)
        log.close()
        return self

    @property
    def policy_file(self) -> Path:
        return self.folder / "policy.yaml"

    def log(self) -> str:
        """Everything it said."""
        return (self.folder / "agent.log").read_text()

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send the signal, wait; the exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(60)

    def ask(self, path: str) -> tuple[int, str]:
        """Status and body of its server; (0, "") while there is none."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def status(self) -> dict[str, Any]:
        """What /status answers."""
        code, body = self.ask("/status")
        return (json.loads(body) or {}) if code == 200 else {}

    def ticks(self) -> float:
        """Good ticks so far."""
        lines = [x for x in self.ask("/metrics")[1].splitlines() if x.startswith("cotenant_enforcer_ticks_total")]
        return sum(float(x.rsplit(" ", 1)[1]) for x in lines if 'outcome="done"' in x)

    def ticked(self, count: int = 2) -> None:
        """Wait for so many more good ticks."""
        target = self.ticks() + count
        wait_for(f"{count} ticks", lambda: self.ticks() >= target)

    def __enter__(self) -> Running:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
