"""The recorder's whole process beside a cluster of 100,000 pods: what it keeps of them, and what storing a slot takes.

    .venv/bin/python -m bench.profiler.recorder_process [NODES PODS]      # other sizes are shown and not recorded

An API server in another process lists pods with the fields that a real one has, their owners and nodes, and then says
nothing more. What kubelets answer is handed over minute by minute, so that `recorder_scale` alone measures reading. The
second slot counts for time: with the first one, the inventory was empty. Then as many slots are in the store as there
are at the second full hour, when those of the day are merged.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from bench.record import Row, below, record
from cotenant.base.controllers.loop import AlwaysLeads
from cotenant.base.kube import KubeClient
from cotenant.base.kube.auth import Access
from cotenant.base.settings.sections import KubeSettings
from cotenant.base.store.store import Store
from cotenant.base.usage.usage import FIVE_MINUTES_SECONDS, TimeGrid
from cotenant.profiler.recorder.exposition import parse_resource_metrics, parse_throttled_time
from cotenant.profiler.recorder.kubelets import KubeletRules
from cotenant.profiler.recorder.service import Recorder
from cotenant.profiler.recorder.writing import slot_usage, tidy
from cotenant.profiler.settings import ProfilerSettings
from cotenant.settings import Settings
from tests.support.api_server import ApiServer
from tests.support.kubelets import TEAMS, Manner, cadvisor_answer, cadvisor_text, containers_of, node_name, text_of

FULL = (5_000, 20)
"""Nodes and pods of each: the largest cluster that the product is for."""
START = 1_795_046_400
SLOTS = 2
SLOTS_MERGED = 24
"""Of two hours: those of the first one are too few to be merged."""
SEED = 7
MINUTES = (1, 61, 121, 181, 241)
REPLICAS = 10
"""Pods of a Deployment."""
CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
SINCE = "2026-11-01T00:00:00Z"
WATCHED = ("/api/v1/pods", "/api/v1/nodes")
LISTED_WHOLE = "/api/v1/limitranges"
"""A kind of one page, so that its requests are the listings of all of them."""
EMPTY = (
    *("/apis/apps/v1/statefulsets", "/apis/apps/v1/daemonsets", "/apis/batch/v1/jobs", "/apis/batch/v1/cronjobs"),
    *("/api/v1/replicationcontrollers", "/api/v1/limitranges", "/api/v1/resourcequotas"),
    "/apis/autoscaling/v2/horizontalpodautoscalers",
)


class HandClock:
    """A clock that is set by hand."""

    seconds = float(START)

    def now_seconds(self) -> float:
        return self.seconds


def owned(name: str, namespace: str, owner: tuple[str, str] | None, **more: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "creationTimestamp": SINCE, **more}
    if owner:
        kind, of = owner
        reference = {"apiVersion": "apps/v1", "kind": kind, "name": of, "uid": f"uid-{of}", "controller": True}
        meta["ownerReferences"] = [reference]
    return meta


def objects(nodes: int, pods: int) -> dict[str, Any]:
    """What the API server lists."""
    listed: dict[str, list[Any]] = {path: [] for path in ("pods", "replicasets", "deployments")}
    sizes = {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
    created_apps = set()
    for node in range(nodes):
        pod_containers: dict[tuple[str, str], list[str]] = {}
        for namespace, pod, container in containers_of(node, pods):
            pod_containers.setdefault((namespace, pod), []).append(container)
        for (namespace, pod), containers in pod_containers.items():
            # The nodes of one namespace are TEAMS apart.
            app = f"app-{node // (TEAMS * REPLICAS):05d}-{pod[-2:]}-{namespace}"
            spec = {
                "containers": [
                    {"name": c, "image": f"registry.example.com/{c}:v1", "resources": sizes} for c in containers
                ]
            }
            labels = {"app": app, "pod-template-hash": "5b7c9d", "team": namespace}
            if app not in created_apps:
                created_apps.add(app)
                of = {"replicas": REPLICAS, "selector": {"matchLabels": {"app": app}}}
                of["template"] = {"metadata": {"labels": labels}, "spec": spec}
                replica_set = owned(f"{app}-5b7c9d", namespace, ("Deployment", app), labels=labels)
                listed["replicasets"].append({"metadata": replica_set, "spec": of})
                listed["deployments"].append({"metadata": owned(app, namespace, None, labels=labels), "spec": of})
            states = [
                {
                    "name": c,
                    "image": f"registry.example.com/{c}:v1",
                    "imageID": f"sha256:{'0' * 64}",
                    "ready": True,
                    "restartCount": 0,
                    "started": True,
                    "lastState": {},
                    "containerID": f"containerd://{pod}{c}".ljust(77, "0"),
                    "state": {"running": {"startedAt": SINCE}},
                    "allocatedResources": sizes["requests"],
                    "resources": sizes,
                }
                for c in containers
            ]
            status = {"phase": "Running", "qosClass": "Burstable", "startTime": SINCE, "containerStatuses": states}
            status["conditions"] = [{"type": t, "status": "True", "lastTransitionTime": SINCE} for t in CONDITIONS]
            network = {"cni.projectcalico.org/containerID": "0" * 64, "cni.projectcalico.org/podIP": "10.0.0.7/32"}
            meta = owned(pod, namespace, ("ReplicaSet", f"{app}-5b7c9d"), labels=labels, annotations=network)
            listed["pods"].append({"metadata": meta, "spec": {**spec, "nodeName": node_name(node)}, "status": status})
    amounts = {"cpu": "16", "memory": "64Gi"}
    return {
        **{path: [] for path in EMPTY},
        "/api/v1/pods": listed["pods"],
        "/apis/apps/v1/replicasets": listed["replicasets"],
        "/apis/apps/v1/deployments": listed["deployments"],
        "/api/v1/nodes": [
            {"metadata": {"name": node_name(i)}, "status": {"capacity": amounts, "allocatable": amounts}}
            for i in range(nodes)
        ],
        "/version": {"major": "1", "minor": "35"},
    }


def serve(nodes: int, pods: int) -> None:
    """Be the API server until the parent ends."""
    api = ApiServer(None, None, quiet_watches=True)
    api.objects |= objects(nodes, pods)
    print(api.url, flush=True)
    sys.stdin.read()
    request_counts = Counter(urlsplit(path).path for path, _, _ in api.requests)
    print(json.dumps({path: (count, api.sent_bytes[path]) for path, count in request_counts.items()}), flush=True)
    os._exit(0)  # its watches are held by threads


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def recorded(url: str, nodes: int, pods: int, folder: str) -> dict[str, float]:
    """Record two slots and merge those of two hours, in a fresh process."""
    clock, begun_mib = HandClock(), peak_mib()
    client = KubeClient(Access("bench", url, lambda: None), KubeSettings(retries=0))
    store = Store(f"file://{folder}", "bench")
    recorder = Recorder(client, Settings(), store, AlwaysLeads(), clock, KubeletRules())
    recorder.watch.start()
    if not recorder.watch.wait_synced(600):
        raise SystemExit(f"the cluster was not listed: {recorder.watch.error}")
    recorder.watch.keep_versions(True)
    figures = {"begun_mib": begun_mib, "watched_mib": peak_mib() - begun_mib}
    for slot in range(SLOTS):
        end = hand_over(recorder, slot, nodes, pods)
        clock.seconds = end + 120.0
        start = time.process_time()
        if not recorder.store_closed(end):
            raise SystemExit(f"the slot was not stored: {recorder.term.error}")
        figures["store_cpu"] = time.process_time() - start
    figures["stored_mib"] = peak_mib()
    end = hand_over(recorder, SLOTS, nodes, pods)
    blocks, random = (
        slot_usage(recorder.term.containers.close(end), recorder.term.nodes.close(end)),
        np.random.default_rng(SEED),
    )
    for slot in range(SLOTS, SLOTS_MERGED):
        grid = TimeGrid(START + slot * FIVE_MINUTES_SECONDS, FIVE_MINUTES_SECONDS, 1)
        for signal, usage in blocks:
            factor = random.uniform(0.5, 1.5, usage.values.shape).astype(np.float32)
            store.append(signal, replace(usage, grid=grid, values=usage.values * factor))
    start = time.process_time()
    tidy(store, Settings().section(ProfilerSettings))
    figures["merge_cpu"] = time.process_time() - start
    return figures | {"peak_mib": peak_mib(), "pods": len(recorder.watch.pods())}


def hand_over(recorder: Recorder, slot: int, nodes: int, pods: int) -> int:
    """Give the recorder what kubelets answer in a slot; return the slot's end."""
    quotas = cadvisor_text(pods).partition(b"# HELP container_cpu_user")[0]
    for minute in MINUTES:
        at = START + slot * FIVE_MINUTES_SECONDS + minute
        for node in range(nodes):
            text = text_of(node, pods, START - 86_400).replace(b"@TIME", b"%d" % (at * 1000))
            metrics = parse_resource_metrics(text.replace(b"@CPU", b"%.6f" % (at % 1e6 / 2)))
            name, received = node_name(node), at + 1.0
            recorder.term.containers.add(
                name,
                metrics.container_cpu,
                metrics.container_memory,
                metrics.container_starts,
                received_seconds=received,
            )
            recorder.term.nodes.add(name, metrics.node_cpu, metrics.node_memory, received_seconds=received)
            page = cadvisor_answer(quotas, node, Manner.WHOLE, "", at)
            recorder.term.containers.add_throttled(name, parse_throttled_time(page or b""), received_seconds=received)
    return START + (slot + 1) * FIVE_MINUTES_SECONDS


def api_rows(request_counts: dict[str, tuple[int, int]]) -> list[Row]:
    """Questions to the API server and what it sent: watched kinds once, the others once per listing.

    asked: requests and bytes by path.
    """
    watched = [request_counts[path] for path in WATCHED]
    rounds = request_counts[LISTED_WHOLE][0]
    listed = [request_counts[path] for path in request_counts if path not in WATCHED and path.startswith("/ap")]
    return [
        Row("API server, at the start: requests", sum(count for count, _ in watched), "requests"),
        Row("API server, at the start: sent", round(sum(size for _, size in watched) / 2**20), "MiB"),
        Row("API server, each ten minutes: requests", round(sum(count for count, _ in listed) / rounds), "requests"),
        Row("API server, each ten minutes: sent", round(sum(size for _, size in listed) / rounds / 2**20), "MiB"),
    ]


def main(nodes: int, pods: int) -> None:
    own = [sys.executable, "-m", "bench.profiler.recorder_process", str(nodes), str(pods)]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen([*own, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server,
    ):
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        child = subprocess.run([*own, "record", url, folder], capture_output=True, text=True, check=False)
        request_counts: dict[str, tuple[int, int]] = json.loads(server.communicate()[0] or "{}")
    if child.returncode:
        raise SystemExit(child.stderr[-3000:])
    figures = json.loads(child.stdout.splitlines()[-1])
    print(json.dumps(figures, indent=1))
    if figures["pods"] != nodes * pods:
        raise SystemExit(f"{figures['pods']} pods of {nodes * pods} were watched")
    each = (figures["peak_mib"] - figures["begun_mib"]) * 1024 / figures["pods"]
    rows = [
        Row("memory at the start", round(figures["begun_mib"]), "MiB"),
        Row(f"memory that {nodes * pods:,} watched pods take", round(figures["watched_mib"]), "MiB"),
        Row("memory at its most until two slots are stored", round(figures["stored_mib"]), "MiB"),
        below(f"memory at its most, {nodes * pods:,} pods", round(figures["peak_mib"]), "MiB", 600),
        Row("the same by pod, without that of the start", round(each, 1), "KiB"),
        Row("a slot and the inventory stored, every five minutes: CPU time", round(figures["store_cpu"], 1), "s"),
        Row(f"{SLOTS_MERGED} slots merged, once an hour: CPU time", round(figures["merge_cpu"], 1), "s"),
    ]
    rows += api_rows(request_counts)
    command = ".venv/bin/python -m bench.profiler.recorder_process"
    record("recorder_process", command, rows, is_kept=(nodes, pods) == FULL)


if __name__ == "__main__":
    if len(sys.argv) > 3:
        _nodes, _pods = map(int, sys.argv[1:3])
        if sys.argv[3] == "serve":
            serve(_nodes, _pods)
        else:
            print(json.dumps(recorded(sys.argv[4], _nodes, _pods, sys.argv[5])), flush=True)
            os._exit(0)  # the watches end with the process: their server says nothing for hours
    else:
        main(*(tuple(map(int, sys.argv[1:3])) or FULL))
