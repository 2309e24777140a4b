"""What the CRI proxy adds to a call of the kubelet, how many it carries, and whether its memory stays.

.venv/bin/python -m bench.enforcer.cri_proxy [--rounds 400] [--seconds 10] [--outage 25]

On Debian's containerd with one running container. Direct calls and calls through the proxy alternate one by one, in an
order drawn anew each round, so that a busy moment hits both; percentiles are of the latencies, what is added is their
difference. The proxy is a process of its own.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import grpc
import numpy as np

from bench.record import Row, above, below, record
from cotenant.enforcer.runtime.messages import cri
from tests.node import pods
from tests.node.containerd import Containerd, impossible
from tests.node.cri import Cri, Pod
from tests.node.proxying import ProxyProcess

CLIENTS = 8
SEED = 20261120
EXEC_BYTES = 5 << 20


def interleaved(direct: Cri, through: Cri, call: Callable[[Cri], object], rounds: int) -> np.ndarray:
    """Seconds of each call, shape (2, rounds): direct, through the proxy."""
    order = random.Random(SEED)
    took = np.zeros((2, rounds))
    for number in range(rounds):
        for way in order.sample((0, 1), 2):
            client = (direct, through)[way]
            began = time.perf_counter()
            call(client)
            took[way, number] = time.perf_counter() - began
    return took


def calls_per_second(socket: Path, seconds: float) -> tuple[float, int]:
    """ListContainers by 8 clients at once: calls per second of all, and errors."""
    done, errors = [0] * CLIENTS, [0] * CLIENTS
    until = time.perf_counter() + seconds

    def work(number: int) -> None:
        client = Cri(socket, options=(("grpc.use_local_subchannel_pool", 1),))
        while time.perf_counter() < until:
            try:
                client.call("ListContainers")
                done[number] += 1
            except grpc.RpcError:
                errors[number] += 1
        client.close()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / seconds, sum(errors)


def found_again(runtime: Containerd, through: Cri, outage_seconds: float) -> float:
    """Seconds from the moment at which a runtime that was away answers directly to an answer through the proxy."""
    runtime.kill()
    until = time.perf_counter() + outage_seconds
    while time.perf_counter() < until:
        through.outcome("Version")
        time.sleep(0.1)
    runtime.start()
    ready = time.perf_counter()
    while through.outcome("Version").code is not grpc.StatusCode.OK:
        time.sleep(0.005)
    return time.perf_counter() - ready


def rss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def streamed(client: Cri, container: str) -> bool:
    """Whether Exec answers with the address of the runtime's own streaming server, which the kubelet calls itself."""
    request = cri.ExecRequest(container_id=container, cmd=["/bin/echo", "x"], stdout=True)
    url = cri.ExecResponse.FromString(client.call("Exec", request)).url
    try:
        urllib.request.urlopen(url, timeout=10)
    except urllib.error.HTTPError as error:
        return error.code in (400, 403)  # it is there, and wants an upgraded connection
    return True


def added(took: np.ndarray, percent: float) -> float:
    """Milliseconds that the proxy adds at a percentile."""
    direct, through = np.percentile(took, percent, axis=1)
    return round(float(through - direct) * 1000, 3)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--outage", type=float, default=25.0)
    options = parser.parse_args()
    if reason := impossible():
        print(f"no containers here: {reason}", file=sys.stderr)
        return 0
    with Containerd() as runtime, ProxyProcess(runtime.folder, runtime.socket, hook_seconds=10.0) as proxy:
        direct, through = runtime.client(), runtime.client(proxy.socket)
        pod = Pod(runtime.base, labels=pods.labels("BE"), annotations=pods.batch())
        container = through.run(pod, cpu_shares=2)
        # Its updates are looked into and left as they are, so that both ways ask the runtime for the same work.
        service = through.run(Pod(runtime.base, "burstable", pods.labels("LS")), cpu_shares=256)
        kinds: dict[str, Callable[[Cri], object]] = {
            "Version": lambda c: c.call("Version"),
            "ListContainers": lambda c: c.call("ListContainers"),
            "ContainerStatus": lambda c: c.call("ContainerStatus", cri.StatusRequest(id=container)),
            "UpdateContainerResources (hooked)": lambda c: c.update(service, cpu_shares=256),
        }
        for call in kinds.values():
            interleaved(direct, through, call, 20)
        before = rss_mib(proxy.server.pid)
        took = {}
        for name, call in kinds.items():
            rounds = options.rounds if "Update" not in name else options.rounds // 4
            took[name] = interleaved(direct, through, call, rounds)
        alone, _ = calls_per_second(runtime.socket, options.seconds / 2)
        calls_per_second(proxy.socket, options.seconds / 4)
        warm, used = rss_mib(proxy.server.pid), cpu_seconds(proxy.server.pid)
        rate, errors = calls_per_second(proxy.socket, options.seconds)
        after = rss_mib(proxy.server.pid)
        cpu_ms = 1000 * (cpu_seconds(proxy.server.pid) - used) / max(rate * options.seconds, 1)
        large = interleaved(
            direct, through, lambda c: c.exec(container, "/bin/head", "-c", str(EXEC_BYTES), "/dev/zero"), 10
        )
        again = found_again(runtime, through, options.outage)
        streams = streamed(through, container)
    plain = np.concatenate([t for name, t in took.items() if "Update" not in name], axis=1)
    rows = [
        below("added per call, p50", added(plain, 50), "ms", 1.0, "Version, ListContainers, ContainerStatus"),
        below("added per call, p99", added(plain, 99), "ms", 5.0, "Version, ListContainers, ContainerStatus"),
        above(f"calls by {CLIENTS} clients", round(rate), "/s", 1500, f"directly {alone:.0f}/s"),
        below("errors among them", errors, "", 0),
        below("memory growth under that load", round(after - warm, 1), "MiB", 4.0, f"{before:.0f} MiB at first"),
        *(
            Row(f"{name}, added p50", added(t, 50), "ms", note=f"direct {1000 * np.median(t[0]):.2f} ms")
            for name, t in took.items()
        ),
        below("runtime found again", round(again, 2), "s", 1.0, f"after {options.outage:g} s without it"),
        Row("CPU of the proxy", round(cpu_ms, 2), "ms/call"),
        Row("ExecSync of 5 MiB, added p50", added(large, 50), "ms", note=f"direct {1000 * np.median(large[0]):.0f} ms"),
        Row("Exec's stream goes past the proxy", float(streams), "", "= 1", streams, "the runtime's own address"),
    ]
    record("cri_proxy", ".venv/bin/python -m bench.enforcer.cri_proxy", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
