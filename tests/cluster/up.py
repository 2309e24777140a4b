"""The tests' cluster for a person: `make cluster-up`, `make cluster-down`.

It outlives the command that starts it. `.cluster/` holds everything of it; `servers.json` there names its processes by
id and start time, so that only they are ever ended, whatever has become of the ids since.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

from tests.cluster.binaries import MissingBinaries, ensure, find
from tests.cluster.control_plane import ControlPlane, Options
from tests.cluster.fake_nodes import NodeShape, create_nodes

FOLDER = Path(".cluster")
RECORD = "servers.json"
END_SECONDS = 30.0


def up(folder: Path, nodes: int) -> None:
    """Start it with so many nodes, or say that it is there."""
    if alive(folder):
        print("The cluster is up already; `make cluster-down` ends it.")
        tell(folder)
        return
    if folder.exists():
        print("Ending what is left of an earlier one ...")
        down(folder)
    ensure()
    start = time.monotonic()
    folder.mkdir(mode=0o700, parents=True)  # the administrator's key lies in it
    plane = ControlPlane(folder.resolve(), Options(keep=True))
    try:
        plane.start()
        record(folder, plane)
        create_nodes(plane, nodes, NodeShape(cpu="32", memory="128Gi"))
    except BaseException:
        plane.stop()
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.copyfile(plane.admin_kubeconfig, folder / "kubeconfig")
    print(f"A Kubernetes control plane with {nodes} fake nodes is up after {time.monotonic() - start:.0f} s.")
    tell(folder)


def down(folder: Path) -> None:
    """End the processes that it started, and forget it."""
    numbers = [pid for pid, start in recorded(folder) if start == start_time(pid)]
    for pid in numbers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + END_SECONDS
    while any(map(start_time, numbers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)
    print(f"The cluster is down: {len(numbers)} processes ended." if numbers else "No cluster was up.")


def alive(folder: Path) -> bool:
    """Whether every one of its processes runs."""
    records = recorded(folder)
    return (
        bool(records) and (folder / "kubeconfig").exists() and all(start == start_time(pid) for pid, start in records)
    )


def record(folder: Path, plane: ControlPlane) -> None:
    """Note what runs, by id and start time."""
    servers = {name: [server.pid, start_time(server.pid)] for name, server in plane.servers.items()}
    (folder / RECORD).write_text(json.dumps(servers, indent=1))


def recorded(folder: Path) -> list[tuple[int, int]]:
    """(process id, start time) of what was started; empty when there is no readable record."""
    try:
        return [(int(pid), int(start)) for pid, start in json.loads((folder / RECORD).read_text()).values()]
    except (OSError, ValueError, TypeError, AttributeError):
        return []


def start_time(pid: int) -> int:
    """When a process began, in clock ticks since the machine's start: tells it from a later one; 0: it has ended."""
    try:
        letter, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return 0 if letter == "Z" else int(fields[18])
    except (OSError, IndexError):
        return 0


def tell(folder: Path) -> None:
    """What to type next."""
    print(
        f"""
  export KUBECONFIG={(folder / "kubeconfig").resolve()}
  export PATH=$PATH:{find("kubectl").parent}:{Path(sys.executable).parent}
  kubectl get nodes
  kubectl create deployment web --image=example.invalid/web --replicas=40
  kubectl get pods -o wide              # placed by the real scheduler, Running on nodes that are not there
  cotenant install --apply              # and on: docs/first-hour.md
  make cluster-down
"""
    )


def main(arguments: list[str]) -> int:
    """`up [--nodes N]` or `down`."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.up", description=__doc__)
    parser.add_argument("what", choices=["up", "down"])
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    namespace = parser.parse_args(arguments)
    try:
        if namespace.what == "up":
            up(namespace.folder, namespace.nodes)
        else:
            down(namespace.folder)
    except (MissingBinaries, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
