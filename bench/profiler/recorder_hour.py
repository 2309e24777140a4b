"""The recorder beside two real kubelets for an hour, against cgroups, the kernel's log and a Prometheus.

    .venv/bin/python -m bench.profiler.recorder_hour [--minutes 60]      # less than 60 is shown and not recorded

The recorder is the product's process with the token and rights of its account, at its default interval. Loops with a
quota burn CPU steadily; one burns by turns, one container's memory grows, one ends by itself again and again, one is
killed by the kernel, one pod is deleted and created anew at the other node; for a fifth of the time one kubelet is
stopped. Truth: the cgroups of all containers, read twice a second from their start on, and the kernel's own list of
kills. A real Prometheus scrapes the same kubelets every five seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bench.record import Row, below, record
from cotenant.base.identity import PodContainerRef
from cotenant.base.store.store import Store
from cotenant.base.usage.usage import FIVE_MINUTES_SECONDS, Signal, TimeGrid
from cotenant.profiler.recorder.kubelets import LONGEST_PAUSE_SECONDS
from tests.cluster import process
from tests.cluster.accounts import account
from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import create_namespace
from tests.cluster.process import free_port
from tests.cluster.waiting import wait_for
from tests.node.containerd import CGROUPS, Containerd
from tests.node.kubelet import Kubelet, pods_gone, running
from tests.node.measured_node import BURN, CgroupReader, measured_kubelet, pod_running, scrape_job
from tests.support.prometheus import Server

FULL_MINUTES: Final = 60.0
SCRAPE_SECONDS: Final = 5
INTERVAL_SECONDS: Final = 60.0
"""Between two readings of a kubelet by the recorder: its default."""
ENTRY = "from cotenant.cli.main import run; run()"
NODES = ("first", "second")
GAP_BEGIN, GAP_END = 0.3, 0.5
"""Shares of the time between which the second node's kubelet is stopped."""
RETURN_SECONDS: Final = LONGEST_PAUSE_SECONDS + INTERVAL_SECONDS
"""Until a kubelet that answers again has been asked twice, which a rate needs: the recorder's longest pause."""
MOVES = 10
"""The moving pod is created anew after each of as many equal parts of the time."""
MEMORY_STEPS, MEMORY_STEP_SECONDS, MEMORY_TOP_SECONDS = 30, 10, 150
"""A MiB each, then the top for more than two intervals, then all is given back."""
TURNS = "while :; do :; done & b=$!; while :; do sleep {on}; kill -STOP $b; sleep {on}; kill -CONT $b; done"
GROWING = (
    "while :; do for i in $(seq 1 {steps}); do dd if=/dev/zero of=/dev/shm/$i bs=1M count=1 2>/dev/null; "
    "sleep {step}; done; sleep {top}; for i in $(seq 1 {steps}); do : > /dev/shm/$i; done; done"
)
ENDING = "trap 'exit 1' TERM; (sleep {lives}; kill -TERM 1) & while :; do :; done"
GREEDY = "sleep {lives}; exec dd if=/dev/zero of=/dev/null bs=200M count=1"
STEADY: Final = ("steady", "small", "apart")
"""Loops that always want more than their quota; "apart" runs at the second node."""
MOVING: Final = "moving"
Floats = npt.NDArray[np.float64]


def shell(text: str, **amounts: float) -> list[str]:
    return ["/bin/sh", "-c", text.format(**{name: f"{amount:g}" for name, amount in amounts.items()})]


def limited(millicores: int, mebibytes: int = 64) -> dict[str, Any]:
    return {"limits": {"cpu": f"{millicores}m", "memory": f"{mebibytes}Mi"}, "requests": {"cpu": "20m"}}


def bodies(minutes: float) -> list[dict[str, Any]]:
    """The pods; those that end live for a share of the time, as the kubelet waits ever longer to start them anew."""
    first, second = NODES
    growing = shell(GROWING, steps=MEMORY_STEPS, step=MEMORY_STEP_SECONDS, top=MEMORY_TOP_SECONDS)
    return [
        pod_running("steady", first, BURN, limited(100)),
        pod_running("small", first, BURN, limited(50)),
        pod_running("apart", second, BURN, limited(60)),
        pod_running("turns", first, shell(TURNS, on=100), limited(100)),
        pod_running("growing", first, growing, limited(100)),
        pod_running("ending", first, shell(ENDING, lives=minutes * 3), limited(50)),
        pod_running("greedy", first, shell(GREEDY, lives=minutes * 2.5), limited(100, 32)),
        pod_running(MOVING, first, BURN, limited(60)),
    ]


@dataclass
class Truth:
    """Reads the cgroup of each container of some pods from its start to its end."""

    bases: Sequence[str]
    pods: dict[str, str] = field(default_factory=dict)
    """uid -> name."""
    readers: dict[str, tuple[str, CgroupReader]] = field(default_factory=dict)
    """Container id -> pod's uid and its reader."""

    def __post_init__(self) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._find)
        self._stack = contextlib.ExitStack()
        self._killed: set[str] = set()

    def __enter__(self) -> Truth:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._stack.close()

    def _find(self) -> None:
        while not self._ended.wait(0.2):
            for base in self.bases:
                with contextlib.suppress(OSError):  # a cgroup that goes while it is looked for
                    for folder in (CGROUPS / "cpuacct" / base / "kubepods").glob("*/pod*/*"):
                        self._follow(folder)

    def _follow(self, folder: Path) -> None:
        """Begin to read a cgroup if it is of a container that is not read yet."""
        uid = folder.parent.name.removeprefix("pod")
        if folder.name not in self.readers and uid in self.pods and is_container(folder):
            cgroup = str(folder.relative_to(CGROUPS / "cpuacct"))
            self.readers[folder.name] = uid, self._stack.enter_context(CgroupReader(cgroup, 0.5))

    def lives(self, pod: str) -> list[Floats]:
        """The readings of each container that a pod had, by its name, oldest first."""
        readings = [reader.readings() for uid, reader in list(self.readers.values()) if self.pods[uid] == pod]
        return sorted((life for life in readings if len(life) > 1), key=lambda life: float(life[0, 0]))

    def starts(self, pod: str) -> int:
        return sum(self.pods[uid] == pod for uid, _ in list(self.readers.values()))

    def mean(self, pod: str, begin: float, end: float, column: int = 1) -> float:
        """Mean millicores of a pod's containers while they lived between two moments."""
        return mean_of([(life[:, 0], life[:, column]) for life in self.lives(pod)], begin, end)

    def top_bytes(self, pod: str, begin: float, end: float) -> float:
        """The largest working set between two moments."""
        lives = np.concatenate(self.lives(pod))
        return float(lives[(lives[:, 0] >= begin) & (lives[:, 0] <= end), 3].max())

    def kills(self) -> dict[str, int]:
        """Kills for lack of memory so far by pod, as the kernel logs them; what it has dropped since is kept here."""
        log = subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout.splitlines()
        self._killed |= {x for x in log if "oom-kill:" in x and any(f"task_memcg=/{b}/" in x for b in self.bases)}
        counts = dict.fromkeys(self.pods.values(), 0)
        for uid, name in self.pods.items():
            counts[name] += sum(f"/pod{uid}/" in line for line in self._killed)
        return counts


def is_container(folder: Path) -> bool:
    """Whether a cgroup is of a container that runs its own command: a pod's first one is its sandbox."""
    with contextlib.suppress(OSError, IndexError):
        command = Path("/proc", Path(folder, "cgroup.procs").read_text().split()[0], "cmdline").read_bytes()
        return b"runc" not in command and command not in {b"", b"/bin/sleep\0infinity\0"}
    return False


def mean_of(counters: Sequence[tuple[Floats, Floats]], begin: float, end: float) -> float:
    """Mean millicores of counters over the time between two moments in which each was read."""
    used = lived = 0.0
    for times, values in counters:
        since, until = max(begin, float(times[0])), min(end, float(times[-1]))
        if until > since:
            used += float(np.diff(np.interp([since, until], times, values))[0])
            lived += until - since
    return used / lived * 1000 if lived else float("nan")


@dataclass(frozen=True)
class Scraped:
    """What Prometheus has of the pods, by name."""

    cpu: dict[str, list[tuple[Floats, Floats]]]
    """Times and CPU seconds from one reset of a counter to the next, of each node where the pod ran."""
    memory: dict[str, tuple[Floats, Floats]]

    @classmethod
    def read(cls, server: Server, namespace: str, minutes: float) -> Scraped:
        span = f"[{minutes + 5:.0f}m]"
        of = f'{{namespace="{namespace}",container="main",job=~".*/metrics/resource"}}'
        cpu: dict[str, list[tuple[Floats, Floats]]] = {}
        for pod, times, values in samples(server, f"container_cpu_usage_seconds_total{of}{span}"):
            resets = np.flatnonzero(np.diff(values) < 0) + 1
            parts = zip(np.split(times, resets), np.split(values, resets), strict=True)
            cpu.setdefault(pod, []).extend(parts)
        memory = {
            pod: (times, values)
            for pod, times, values in samples(server, f"container_memory_working_set_bytes{of}{span}")
        }
        return cls(cpu, memory)

    def mean(self, pod: str, begin: float, end: float) -> float:
        return mean_of(self.cpu[pod], begin, end)

    def top_bytes(self, pod: str, begin: float, end: float) -> float:
        times, values = self.memory[pod]
        return float(values[(times >= begin) & (times < end)].max())


def samples(server: Server, query: str) -> Iterator[tuple[str, Floats, Floats]]:
    for series in server.api("query", query=query)["result"]:
        times, values = np.array([(at, float(value)) for at, value in series["values"]]).T
        yield series["metric"]["pod"], times, values


@dataclass(frozen=True)
class Recorded:
    """The store, and the whole slots of the run."""

    store: Store
    namespace: str
    begun: float
    ended: float
    gap: tuple[float, float]

    @property
    def slots(self) -> list[int]:
        """Begins of the slots that were recorded as a whole."""
        step = FIVE_MINUTES_SECONDS
        first = -int(-(self.begun + INTERVAL_SECONDS) // step) * step
        return [at for at in range(first, int(self.ended), step) if at + step <= self.ended - INTERVAL_SECONDS]

    def is_in_gap(self, slot: int) -> bool:
        """Whether a slot lies in the gap, without the interval that a reading before it or after it covers."""
        begin, end = self.gap
        return slot >= begin and slot + FIVE_MINUTES_SECONDS <= end

    def touches_gap(self, slot: int) -> bool:
        """Whether the recorder may lack a part of a slot of the second node, or all of it."""
        begin, end = self.gap
        return slot < end + RETURN_SECONDS and slot + FIVE_MINUTES_SECONDS > begin - INTERVAL_SECONDS

    def values(self, signal: Signal, pod: str) -> dict[int, float]:
        """Finite values by the begin of their slot."""
        step = signal.spec.step_seconds
        grid = TimeGrid.from_span(int(self.begun) // step * step, int(self.ended) + 2 * step, step)
        usage = self.store.read(signal, grid)
        row = usage.row_of.get(PodContainerRef(self.namespace, pod, "main"))
        if row is None:
            return {}
        pairs = zip(usage.grid.times().tolist(), usage.values[row].tolist(), strict=True)
        return {int(at): value for at, value in pairs if np.isfinite(value)}


@dataclass(frozen=True)
class Cluster:
    plane: ControlPlane
    namespace: str
    truth: Truth

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def create(self, body: dict[str, Any]) -> None:
        with contextlib.closing(self.plane.api()) as api:  # the server closes connections that were quiet
            created_pod = api.create(self.path, body)
        self.truth.pods[created_pod["metadata"]["uid"]] = created_pod["metadata"]["name"]

    def move(self, node: str) -> None:
        """Delete the moving pod and create it at a node."""
        with contextlib.closing(self.plane.api()) as api:
            api.delete(f"{self.path}/{MOVING}")
            wait_for("the moving pod's end", lambda: not api.exists(f"{self.path}/{MOVING}"))
        self.create(pod_running(MOVING, node, BURN, limited(60)))

    def restarts(self) -> dict[str, int]:
        """What the API server shows, of the pods that are there."""
        with contextlib.closing(self.plane.api()) as api:
            return {p["metadata"]["name"]: restart_count(p) for p in api.items(self.path)}


def restart_count(pod: dict[str, Any]) -> int:
    return sum(c["restartCount"] for c in pod["status"].get("containerStatuses", []))


def recorder(plane: ControlPlane, folder: Path) -> process.Server:
    argv = ["serve", "recorder", "--kubeconfig", str(account(plane, "cotenant-recorder")), "--cluster", "hour"]
    argv += ["--store", (folder / "store").as_uri(), "--port", str(free_port())]
    return process.Server("recorder", [sys.executable, "-c", ENTRY, *argv], folder / "recorder.log")


def live(cluster: Cluster, lone_kubelet: Kubelet, minutes: float) -> tuple[float, float]:
    """Let the time pass, move the pod and stop a kubelet; return when that was stopped and when it went on."""
    start = time.time()
    moves = [(start + minutes * 60 * k / MOVES, NODES[k % 2]) for k in range(1, MOVES)]
    stop, resume = start + minutes * 60 * GAP_BEGIN, start + minutes * 60 * GAP_END
    # No move to or from the node whose kubelet does not answer.
    moves = [(at, node) for at, node in moves if not stop - 30 <= at <= resume + 30]
    stopped = resumed = 0.0
    while (now := time.time()) < start + minutes * 60:
        if moves and now >= moves[0][0]:
            cluster.move(moves.pop(0)[1])
        if not stopped and now >= stop:
            lone_kubelet.server.pause()
            stopped = time.time()
        if stopped and not resumed and now >= resume:
            lone_kubelet.server.resume()
            resumed = time.time()
        cluster.truth.kills()
        time.sleep(1)
    return stopped, resumed


def await_quiet(cluster: Cluster) -> None:
    """Wait until nothing has restarted or been killed for half a minute, so that each count has been seen."""
    counts, since = (cluster.restarts(), cluster.truth.kills()), time.monotonic()
    while time.monotonic() < since + 30:
        time.sleep(1)
        if (now := (cluster.restarts(), cluster.truth.kills())) != counts:
            counts, since = now, time.monotonic()


def measure(folder: Path, minutes: float) -> list[Row]:
    with contextlib.ExitStack() as stack:
        plane = stack.enter_context(ControlPlane(folder / "cluster"))
        runtimes = [stack.enter_context(Containerd(with_nri=True)) for _ in NODES]
        kubelets = [
            stack.enter_context(measured_kubelet(plane, runtime, name))
            for runtime, name in zip(runtimes, NODES, strict=True)
        ]
        with contextlib.closing(plane.api()) as api:
            namespace = create_namespace(api, "hour")
        stack.enter_context(pods_gone(plane, namespace))
        truth = stack.enter_context(Truth([runtime.base for runtime in runtimes]))
        cluster = Cluster(plane, namespace, truth)
        pages = [(node, path) for node in NODES for path in ("/metrics/resource", "/metrics/cadvisor")]
        jobs = [scrape_job(plane, node, path, scrape_interval=f"{SCRAPE_SECONDS}s") for node, path in pages]
        prometheus = stack.enter_context(Server(folder / "prometheus", scrapes=jobs))
        for body in bodies(minutes):
            cluster.create(body)
        for name in (*STEADY, MOVING):
            running(plane, namespace, name)
        wait_for("the truth of each", lambda: all(truth.lives(name) for name in (*STEADY, MOVING)))
        start = time.time()
        recording = recorder(plane, folder)
        stack.callback(recording.stop, 60)
        recording.start()
        gap = live(cluster, kubelets[1], minutes)
        await_quiet(cluster)
        ended = time.time()
        recording.stop(60)
        time.sleep(2 * SCRAPE_SECONDS)
        if "Traceback" in recording.written():
            raise SystemExit(recording.written()[-3000:])
        recorded = Recorded(Store((folder / "store").as_uri(), "hour"), namespace, start, ended, gap)
        scraped = Scraped.read(prometheus, namespace, (time.time() - start) / 60)
        return [Row("recorded", round((ended - start) / 60, 1), "min"), *compared(recorded, truth, scraped)]


def percent(value: float, true: float) -> float:
    return round(abs(value - true) / true * 100, 2)


def compared(recorded: Recorded, truth: Truth, scraped: Scraped) -> list[Row]:
    return [
        *steady_rows(recorded, truth, scraped),
        *other_rows(recorded, truth, scraped),
        *memory_rows(recorded, truth, scraped),
        *count_rows(recorded, truth),
        *gap_rows(recorded),
    ]


def steady_rows(recorded: Recorded, truth: Truth, scraped: Scraped) -> list[Row]:
    """The loops that burn all the time, slot by slot."""
    step, by_truth, by_prometheus, missing = FIVE_MINUTES_SECONDS, [0.0], [0.0], 0
    counted = 0
    for pod in STEADY:
        values = recorded.values(Signal.CPU_USAGE_MEAN, pod)
        for slot in recorded.slots:
            if pod == "apart" and recorded.touches_gap(slot):
                continue
            if slot not in values:
                missing += 1
                continue
            counted += 1
            true, other = truth.mean(pod, slot, slot + step), scraped.mean(pod, slot, slot + step)
            by_truth.append(percent(values[slot], true))
            by_prometheus.append(percent(values[slot], other))
            print(pod, slot, f"{values[slot]:.2f} {true:.2f} {other:.2f}")
    note = f"{counted} slots of {len(STEADY)} containers at two nodes"
    return [
        below("a slot's mean CPU of a steady loop, from that of its cgroup, at most", max(by_truth), "%", 2, note),
        below("the same, from that of a Prometheus of the same kubelets", max(by_prometheus), "%", 2),
        below("slots of them without a value, outside the gap", missing, "slots", 0),
    ]


def other_rows(recorded: Recorded, truth: Truth, scraped: Scraped) -> list[Row]:
    """The means over all slots of those that burn by turns, move or end."""
    rows = []
    titles = {
        "turns": "mean CPU of a loop that burns by turns of 100 s",
        MOVING: f"mean CPU of a pod that was made anew {truth.starts(MOVING) - 1} times, at two nodes",
        "ending": f"mean CPU of a container that ended {truth.starts('ending') - 1} times by itself",
    }
    begin, end = recorded.slots[0], recorded.slots[-1] + FIVE_MINUTES_SECONDS
    for pod, what in titles.items():
        values = recorded.values(Signal.CPU_USAGE_MEAN, pod)
        # Of a pod that moved from or to the node of the gap, that time is unknown to the recorder.
        mean = float(np.mean([values[slot] for slot in recorded.slots if slot in values]))
        true, other = truth.mean(pod, begin, end), scraped.mean(pod, begin, end)
        print(pod, f"{mean:.2f} {true:.2f} {other:.2f}", len(values))
        rows += [
            below(f"{what}, from that of its cgroups", percent(mean, true), "%", 2),
            below("the same, from Prometheus", percent(mean, other), "%", 2),
        ]
    refused = recorded.values(Signal.CPU_THROTTLED_MEAN, "steady")
    mean = float(np.mean([refused[slot] for slot in recorded.slots if slot in refused]))
    true = truth.mean("steady", begin, end, column=2)
    return [*rows, below("mean that a quota refused, from that of the cgroup", percent(mean, true), "%", 5)]


def memory_rows(recorded: Recorded, truth: Truth, scraped: Scraped) -> list[Row]:
    """Working set of the container that grows: a peak can only be missed between two readings."""
    values, step = recorded.values(Signal.MEMORY_WORKING_SET_MAX, "growing"), FIVE_MINUTES_SECONDS
    slots = [slot for slot in recorded.slots if slot in values]
    for slot in slots:
        tops = values[slot], *(source.top_bytes("growing", slot, slot + step) for source in (truth, scraped))
        print("growing", slot, *(f"{value / 2**20:.2f}" for value in tops))
    begin, end = slots[0], slots[-1] + step
    top = max(values[slot] for slot in slots)
    true, other = truth.top_bytes("growing", begin, end), scraped.top_bytes("growing", begin, end)
    # Between two readings, and until the kubelet has measured anew.
    grown = (INTERVAL_SECONDS + 15) / MEMORY_STEP_SECONDS
    short = max(truth.top_bytes("growing", slot, slot + step) - values[slot] for slot in slots) / 2**20
    note = "it grows by 0.1 MiB a second, which is 7.5 MiB from a reading to the next one's measurement"
    return [
        below("largest working set of a container that grows, from that of its cgroup", percent(top, true), "%", 2),
        below("the same, from Prometheus", percent(top, other), "%", 2),
        below("a slot's largest working set, below that of its cgroup, at most", round(short, 2), "MiB", grown, note),
    ]


def count_rows(recorded: Recorded, truth: Truth) -> list[Row]:
    """Restarts and kills, each pod's."""
    pods, kills = set(truth.pods.values()), truth.kills()
    counted = {
        signal: {pod: round(sum(recorded.values(signal, pod).values())) for pod in pods}
        for signal in (Signal.RESTARTS, Signal.OOM_KILLS)
    }
    # The moving pod's containers are of new pods.
    restarts = {pod: 0 if pod == MOVING else truth.starts(pod) - 1 for pod in pods}
    print(json.dumps({"restarts": restarts, "kills": kills, "counted": counted}, indent=1))
    wrong = [
        sum(abs(counted[s][p] - true[p]) for p in pods) for s, true in zip(counted, (restarts, kills), strict=True)
    ]
    return [
        below("restarts counted too often or not", wrong[0], "restarts", 0, f"of {sum(restarts.values())}"),
        below("kills for lack of memory counted too often or not", wrong[1], "kills", 0, f"of {sum(kills.values())}"),
    ]


def gap_rows(recorded: Recorded) -> list[Row]:
    """The time in which a kubelet did not answer."""
    inside = [slot for slot in recorded.slots if recorded.is_in_gap(slot)]
    signals = (Signal.CPU_USAGE_MEAN, Signal.CPU_USAGE_MAX, Signal.CPU_THROTTLED_MEAN, Signal.MEMORY_WORKING_SET_MAX)
    wrong = sum(slot in recorded.values(signal, "apart") for signal in signals for slot in inside)
    lasted = (recorded.gap[1] - recorded.gap[0]) / 60
    note = f"{len(inside)} whole slots of {lasted:.1f} minutes in which its kubelet was stopped"
    later_slots = [slot for slot in recorded.values(Signal.CPU_USAGE_MEAN, "apart") if slot >= recorded.gap[1]]
    away = (min(later_slots) - recorded.gap[1]) / 60 if later_slots else float("inf")
    again = "the recorder pauses for ten minutes at most, and a rate needs two readings"
    return [
        below("values of a container in the gap", wrong, "values", 0, note),
        below("begin of its first slot after the gap", round(away, 1), "min", RETURN_SECONDS / 60, again),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=FULL_MINUTES)
    minutes = parser.parse_args().minutes
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder), minutes)
    command = ".venv/bin/python -m bench.profiler.recorder_hour"
    record("recorder_hour", command, rows, is_kept=minutes >= FULL_MINUTES)


if __name__ == "__main__":
    main()
