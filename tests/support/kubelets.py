"""Many kubelets on this machine: TLS servers on ports of their own that answer /metrics/resource for made-up pods.

    with KubeletServers(folder, count=3) as kubelets:
        kubelets.addresses, kubelets.authority      # where they listen, and the PEM file that proves it

They run in a process of their own, so that a reader's cost is its own. `python -m tests.support.kubelets FOLDER COUNT
PODS TOKEN CLOCK PORTS` is that process: it prints the ports as JSON. CLOCK is the file of a FastClock that the kubelets
have, or empty: they have the machine's. PORTS is a list of ports, or empty: any that are free.
"""

from __future__ import annotations

import asyncio
import json
import resource
import ssl
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from cotenant.profiler.recorder.kubelets import KubeletAddress
from tests.cluster.pki import Authority
from tests.support.fast_clock import FastClock

HOST: Final = "127.0.0.1"
SIDECAR_EVERY: Final = 4
TOKEN: Final = "let-me-in"
"""Who has another one is refused."""
_TIME, _CPU = b"@TIME", b"@CPU"


def node_name(number: int) -> str:
    return f"node-{number:05d}"


def containers_of(node: int, pods: int) -> list[tuple[str, str, str]]:
    """(namespace, pod, container) of a node; every fourth pod has a sidecar."""
    named = [(f"team-{node % 40}", f"app-{node:05d}-{i:02d}", i) for i in range(pods)]
    return [
        (namespace, pod, container)
        for namespace, pod, i in named
        for container in (("main", "proxy") if i % SIDECAR_EVERY == 0 else ("main",))
    ]


def text_of(node: int, pods: int, started: float) -> bytes:
    """What a kubelet would write, with places for the time and the CPU seconds."""
    lines = []
    each = containers_of(node, pods)
    for metric, value in (
        ("container_cpu_usage_seconds_total", "@CPU"),
        ("container_memory_working_set_bytes", "1.7596416e+07"),
        ("container_start_time_seconds", f"{started!r}"),
        ("container_swap_usage_bytes", "0"),
    ):
        lines.append(f"# HELP {metric} [STABLE] Of the container\n# TYPE {metric} gauge")
        lines += [f'{metric}{{container="{c}",namespace="{n}",pod="{p}"}} {value} @TIME' for n, p, c in each]
    for metric, value in (("node_cpu_usage_seconds_total", "@CPU"), ("node_memory_working_set_bytes", "1.6e+09")):
        lines.append(f"# HELP {metric} [STABLE] Of the node\n# TYPE {metric} gauge\n{metric} {value} @TIME")
    for metric, value in (("pod_cpu_usage_seconds_total", "@CPU"), ("pod_memory_working_set_bytes", "2e+07")):
        lines.append(f"# HELP {metric} [STABLE] Of the pod\n# TYPE {metric} gauge")
        lines += [f'{metric}{{namespace="{n}",pod="{p}"}} {value} @TIME' for n, p in {(n, p) for n, p, _ in each}]
    lines.append("# TYPE scrape_error gauge\nscrape_error 0\n")
    return "\n".join(lines).encode()


class KubeletServers:
    """A process with `count` kubelets of `pods` pods each; every container uses half a core."""

    def __init__(self, folder: Path, count: int, pods: int = 3, token: str = TOKEN, clock: Path | None = None) -> None:
        self._folder, self._count, self._pods = folder, count, pods
        self._more = [token, str(clock or "")]
        self.authority = folder / "kubelets" / "ca.crt"
        self.addresses: list[KubeletAddress] = []

    def __enter__(self) -> KubeletServers:
        Authority.create(self._folder / "kubelets").issue("kubelet", "system:node:some", hosts=(HOST,))
        self.start()
        return self

    def start(self) -> None:
        """Listen; where they listened before, if they did."""
        ports = json.dumps([address.port for address in self.addresses])
        words = [str(self._folder / "kubelets"), str(self._count), str(self._pods), *self._more, ports]
        command = [sys.executable, "-m", "tests.support.kubelets", *words]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE)
        assert self._process.stdout is not None
        ports = json.loads(self._process.stdout.readline())
        self.addresses = [KubeletAddress(node_name(i), HOST, port) for i, port in enumerate(ports)]

    def kill(self) -> None:
        """End all of them at once."""
        self._process.kill()
        self._process.wait()

    def __exit__(self, *_: object) -> None:
        self.kill()


async def _serve(folder: Path, count: int, pods: int, token: str, clock: Path | None, ports: list[int]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "kubelet.crt", folder / "kubelet.key")
    now = FastClock(clock).now_seconds if clock else time.time
    servers = [
        await asyncio.start_server(
            _answering(text_of(i, pods, now() - 86_400), token, now), HOST, ports[i] if ports else 0, ssl=context
        )
        for i in range(count)
    ]
    print(json.dumps([server.sockets[0].getsockname()[1] for server in servers]), flush=True)
    await asyncio.to_thread(sys.stdin.read)


def _answering(
    text: bytes, token: str, clock: Callable[[], float]
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if f"Authorization: Bearer {token}\r\n".encode() not in head:
            writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\nConnection: close\r\n\r\nForbidden")
        else:
            now = clock()
            body = text.replace(_TIME, b"%d" % (now * 1000)).replace(_CPU, b"%.6f" % (now % 1e6 * 0.5))
            # In chunks, as a kubelet answers.
            size = b"%x\r\n" % len(body)
            head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
            writer.write(head + size + body + b"\r\n0\r\n\r\n")
        await writer.drain()
        writer.close()

    return answer


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    _folder, _count, _pods, _token, _clock, _ports = sys.argv[1:]
    _file = Path(_clock) if _clock else None
    asyncio.run(_serve(Path(_folder), int(_count), int(_pods), _token, _file, json.loads(_ports)))
