"""What the webhooks add to creating a pod: 100 creates a second on a real API server, with and without them.

.venv/bin/python -m bench.admission.webhook_latency [--seconds 30]

Both ways run in turns of a few seconds against the same API server, so that a busy moment hits both. The webhook is a
process of its own, as in life; pods are created for real (not dry), on kept connections. Beside the wall, which a busy
machine stretches, stand processor times and what the API server itself says it waited.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.record import Row, below, record
from cotenant.admission.settings import AdmissionSettings
from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane, Options
from tests.cluster.namespaces import create_namespace
from tests.cluster.waiting import wait_for
from tests.cluster.webhook import prepare, register

RATE = 100
WORKERS = 8
TURN_SECONDS = 3.0
HOOKED = "hooked"
PROFILE = {
    "apiVersion": "config.koordinator.sh/v1alpha1",
    "kind": "ClusterColocationProfile",
    "metadata": {"name": "batch"},
    "spec": {
        "namespaceSelector": {"matchLabels": {"bench": "batch"}},
        "qosClass": "BE",
        "priorityClassName": "koord-batch",
        "labels": {"a": "b"},
        "patch": {"spec": {"terminationGracePeriodSeconds": 30}},
    },
}


def pod(number: int) -> dict[str, Any]:
    amounts = {"cpu": "500m", "memory": "256Mi"}
    containers = [
        {
            "name": name,
            "image": "registry.example/batch:1",
            "env": [{"name": f"VARIABLE_{i}", "value": "x" * 40} for i in range(20)],
            "resources": {"requests": amounts, "limits": amounts},
        }
        for name in ("main", "side")
    ]
    return {"metadata": {"name": f"p-{number}"}, "spec": {"containers": containers, "nodeSelector": {"none": "x"}}}


def turn(plane: ControlPlane, namespace: str, first: int) -> list[float]:
    """Seconds of each create of one turn, sent at RATE by WORKERS connections."""
    took: list[float] = []
    due = time.perf_counter() + 0.2

    def work(worker: int) -> None:
        api = plane.api()
        for number in range(worker, int(RATE * TURN_SECONDS), WORKERS):
            wait = due + number / RATE - time.perf_counter()
            if wait > 0:
                time.sleep(wait)
            began = time.perf_counter()
            api.create(f"/api/v1/namespaces/{namespace}/pods", pod(first + number))
            took.append(time.perf_counter() - began)
        api.close()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return took


@contextmanager
def webhook(plane: ControlPlane, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`cotenant serve webhook` as a process, answering."""
    settings = AdmissionSettings()
    prepare(plane, settings)
    port = 29443
    command = [
        sys.executable,
        "-c",
        "from cotenant.cli.main import run; run()",
        *(
            "serve",
            "webhook",
            "--kubeconfig",
            str(plane.admin_kubeconfig),
            "--port",
            str(port),
            "--cert-dir",
            str(folder / "pki"),
        ),
        *("--self-signed", "--url", f"https://127.0.0.1:{port}"),
    ]
    process = subprocess.Popen(command)
    try:
        register(plane.admin_client(), settings, f"https://127.0.0.1:{port}")
        yield process
    finally:
        process.terminate()
        process.wait(30)


def mutated(api: Api, namespace: str) -> bool:
    created_pod = api.create(f"/api/v1/namespaces/{namespace}/pods", pod(10**9), dryRun="All")
    return bool(created_pod["metadata"].get("labels", {}).get("koordinator.sh/qosClass") == "BE")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="webhook-latency-"))
    spent = Spent({HOOKED: [], "kube-system": []}, {})
    components = Options(components=frozenset({"kube-controller-manager"}))
    with ControlPlane(folder / "cluster", components) as plane, webhook(plane, folder) as process:
        api = plane.api()
        api.create("/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles", PROFILE)
        create_namespace(api, HOOKED, {"bench": "batch"})
        wait_for("pods are mutated", lambda: mutated(api, HOOKED))
        server = plane.servers["kube-apiserver"].process
        assert server is not None
        pids = {"webhook": process.pid, "API server": server.pid}
        for namespace in spent.took:
            turn(plane, namespace, 10**6)  # warms both
        before = waits(api)
        for number in range(round(options.seconds / TURN_SECONDS)):
            for namespace in spent.took:
                spent.run(plane, namespace, (number + 2) * 10**6, pids)
        after = waits(api)
        memory = Path(f"/proc/{process.pid}/status").read_text()
    rss = next(int(line.split()[1]) for line in memory.splitlines() if line.startswith("VmHWM"))
    report(spent, {hook: after[hook] - before.get(hook, 0.0) for hook in after}, rss / 1024)


@dataclass
class Spent:
    """Seconds: of each create by namespace, and of processors by (namespace, process)."""

    took: dict[str, list[float]]
    computed: dict[tuple[str, str], float]

    def run(self, plane: ControlPlane, namespace: str, first: int, pids: dict[str, int]) -> None:
        """One turn, and what it cost each process."""
        before = {name: processor_seconds(pid) for name, pid in pids.items()}
        self.took[namespace] += turn(plane, namespace, first)
        for name, pid in pids.items():
            spent = processor_seconds(pid) - before[name]
            self.computed[namespace, name] = self.computed.get((namespace, name), 0.0) + spent

    def added(self, name: str) -> float:
        """Milliseconds of a process that a create costs more with us."""
        per_pod = [1000 * self.computed[where, name] / len(self.took[where]) for where in (HOOKED, "kube-system")]
        return round(per_pod[0] - per_pod[1], 2)


def processor_seconds(pid: int) -> float:
    """Time that a process's threads have computed so far."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def waits(api: Api) -> dict[str, float]:
    """Seconds that the API server has waited so far for our webhooks on new pods, by webhook."""
    wait_seconds = {}
    for line in api.text("/metrics").splitlines():
        if line.startswith("apiserver_admission_webhook_admission_duration_seconds_sum") and '"CREATE"' in line:
            name = line.partition('name="')[2].partition('"')[0]
            if name.endswith("-pod.webhook.cotenant.dev"):
                wait_seconds[name.partition(".")[0]] = float(line.rpartition(" ")[2])
    return wait_seconds


def report(spent: Spent, waited: dict[str, float], rss_mib: float) -> None:
    """Added = percentile with us minus percentile without, milliseconds."""
    with_us, without = (np.array(spent.took[where]) * 1000 for where in (HOOKED, "kube-system"))
    added = {p: float(np.percentile(with_us, p) - np.percentile(without, p)) for p in (50, 99)}
    note = f"{len(with_us)} pods each, {RATE} creates/s, the mutating call; CEL spares sound pods the validating one"
    record(
        "webhook_latency",
        " ".join([".venv/bin/python -m bench.admission.webhook_latency", *sys.argv[1:]]),
        [
            below("added to a create, p50", round(added[50], 2), "ms", 3, note),
            below("added to a create, p99", round(added[99], 2), "ms", 50, note),
            Row("create without webhooks, p50", round(float(np.percentile(without, 50)), 2), "ms"),
            Row("create without webhooks, p99", round(float(np.percentile(without, 99)), 2), "ms"),
            Row("create with webhooks, p50", round(float(np.percentile(with_us, 50)), 2), "ms"),
            Row("create with webhooks, p99", round(float(np.percentile(with_us, 99)), 2), "ms"),
            Row("processor time added per pod, webhook", spent.added("webhook"), "ms"),
            Row("processor time added per pod, API server", spent.added("API server"), "ms"),
            *(
                Row(
                    f"API server waits for {hook}, mean",
                    round(1000 * waited[hook] / len(with_us), 2),
                    "ms",
                    note="a pod",
                )
                for hook in sorted(waited)
            ),
            Row("load of the machine, one minute", round(os.getloadavg()[0], 1), ""),
            Row("webhook process, most memory", round(rss_mib), "MiB"),
        ],
    )


if __name__ == "__main__":
    main()
