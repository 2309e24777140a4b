"""Many kubelets on this machine: TLS servers on ports of their own that answer for made-up pods.

    with KubeletServers(folder, count=3) as kubelets:
        kubelets.addresses, kubelets.authority      # where they listen, and the PEM file that proves it

They answer /metrics/resource and /metrics/cadvisor, in a process of their own, so that a reader's cost is its own.
`python -m tests.support.kubelets FOLDER COUNT PODS TOKEN CLOCK MANNERS PORTS` is that process: it prints the ports as
JSON. CLOCK is the file of a FastClock that the kubelets have, or empty: they have the machine's. MANNERS are those of
cAdvisor's page, one a node in turn. PORTS is a list of ports, or empty: any that are free.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import resource
import ssl
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

from cotenant.profiler.recorder.pod_records import KubeletAddress
from tests.cluster.pki import Authority
from tests.support.fast_clock import FastClock

HOST: Final = "127.0.0.1"
SIDECAR_EVERY: Final = 4
TEAMS: Final = 40
"""Namespaces, each of the nodes whose number has the same rest."""
TOKEN: Final = "let-me-in"
"""Who has another one is refused."""
_TIME, _CPU, _REFUSED = b"@TIME", b"@CPU", b"@REFUSED"
_NODE, _TEAM = "@NODE", "@TEAM"
CORES, REFUSED_CORES = 0.5, 0.2
"""Of every container, and of every first one, which has a quota."""


class Manner(StrEnum):
    """How a kubelet answers for its cAdvisor."""

    WHOLE = "whole"
    """All metrics, whatever it is asked for: kubelets up to 1.35."""
    CHOSEN = "chosen"
    """The metric that it is asked for."""
    SILENT = "silent"
    """Nothing of containers: a runtime that counts them itself."""
    REFUSED = "refused"


def node_name(number: int) -> str:
    return f"node-{number:05d}"


def containers_of(node: int, pods: int) -> list[tuple[str, str, str]]:
    """(namespace, pod, container) of a node; every fourth pod has a sidecar."""
    pods_of_node = [(f"team-{node % TEAMS}", f"app-{node:05d}-{i:02d}", i) for i in range(pods)]
    return [
        (namespace, pod, container)
        for namespace, pod, i in pods_of_node
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


QUOTA_METRICS: Final = (
    ("container_cpu_cfs_periods_total", "36000"),
    ("container_cpu_cfs_throttled_periods_total", "9000"),
    ("container_cpu_cfs_throttled_seconds_total", "@REFUSED"),
)
OTHER_METRICS: Final = ("cpu_user_seconds_total", "fs_reads_bytes_total", "memory_rss", "tasks_state", "ulimits_soft")
"""Of every container and every pod's group, before and after them in the order of names; many lines each."""
LINES_EACH: Final = 20


def cadvisor_text(pods: int) -> bytes:
    """What a kubelet writes at /metrics/cadvisor, in the order of names, with places for node, team, time and values.

    A pod's group has the sum of its containers, and no container's name.
    """
    cgroups = []
    for i in range(pods):
        pod = f'namespace="team-{_TEAM}",pod="app-{_NODE}-{i:02d}"'
        path = f"/kubepods/burstable/pod5b1f-{_NODE}-{i:02d}"
        cgroups.append((f'container="",id="{path}",image="",name="",{pod}', True))
        for container in ("main", "proxy") if i % SIDECAR_EVERY == 0 else ("main",):
            own = f"{i:02d}{container}{_NODE}".ljust(64, "a")
            image = f"registry.example.com/team/{container}@sha256:{'0' * 64}"
            labels = f'container="{container}",id="{path}/{own}",image="{image}",name="{own}",{pod}'
            cgroups.append((labels, container == "main"))
    lines = ["# TYPE cadvisor_version_info gauge", 'cadvisor_version_info{cadvisorVersion="v0.53.0"} 1']
    for metric, value in QUOTA_METRICS:
        lines += [f"# HELP {metric} Of the quota.", f"# TYPE {metric} counter"]
        lines += [f"{metric}{{{labels}}} {value} @TIME" for labels, limited in cgroups if limited]
    for metric in OTHER_METRICS:
        lines += [f"# HELP container_{metric} Else.", f"# TYPE container_{metric} gauge"]
        lines += [f"container_{metric}{{{labels}}} {n} @TIME" for labels, _ in cgroups for n in range(LINES_EACH)]
    return "\n".join([*lines, ""]).encode()


def cadvisor_answer(template: bytes, node: int, manner: Manner, question: str, now: float) -> bytes | None:
    """A kubelet's text for a question's path and query; None where it refuses."""
    if manner is Manner.REFUSED:
        return None
    if manner is Manner.SILENT:
        return b"# TYPE machine_cpu_cores gauge\nmachine_cpu_cores 8\n"
    text = template.replace(_NODE.encode(), b"%05d" % node).replace(_TEAM.encode(), b"%d" % (node % TEAMS))
    text = text.replace(_TIME, b"%d" % (now * 1000)).replace(_REFUSED, b"%.6f" % (now % 1e6 * REFUSED_CORES))
    if manner is Manner.CHOSEN:
        name = question.partition("?name%5B%5D=")[2].encode()
        text = b"".join(line + b"\n" for line in text.split(b"\n") if name in line.partition(b"{")[0])
    return text


class KubeletServers:
    """A process with `count` kubelets of `pods` pods each; every container uses half a core."""

    def __init__(
        self,
        folder: Path,
        count: int,
        pods: int = 3,
        token: str = TOKEN,
        clock: Path | None = None,
        manners: Sequence[Manner] = (Manner.WHOLE,),
    ) -> None:
        self._folder, self._count, self._pods = folder, count, pods
        self._more = [token, str(clock or ""), json.dumps(manners)]
        self.authority = folder / "kubelets" / "ca.crt"
        self.addresses: list[KubeletAddress] = []

    def __enter__(self) -> KubeletServers:
        Authority.create(self._folder / "kubelets").issue("kubelet", "system:node:some", hosts=(HOST,))
        self.start()
        return self

    def start(self) -> None:
        """Listen; where they listened before, if they did."""
        ports = json.dumps([address.port for address in self.addresses])
        arguments = [str(self._folder / "kubelets"), str(self._count), str(self._pods), *self._more, ports]
        command = [sys.executable, "-m", "tests.support.kubelets", *arguments]
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


async def _serve(arguments: Sequence[str]) -> None:
    folder, token, clock, count, pods = (
        Path(arguments[0]),
        arguments[3],
        arguments[4],
        int(arguments[1]),
        int(arguments[2]),
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "kubelet.crt", folder / "kubelet.key")
    now = FastClock(Path(clock)).now_seconds if clock else time.time
    in_turn, ports = [Manner(name) for name in json.loads(arguments[5])], json.loads(arguments[6])
    template = cadvisor_text(pods)

    def pages(node: int) -> Callable[[str], bytes | None]:
        resources = text_of(node, pods, now() - 86_400)

        def page(question: str) -> bytes | None:
            if question.startswith("/metrics/cadvisor"):
                return cadvisor_answer(template, node, in_turn[node % len(in_turn)], question, now())
            moment = now()
            return resources.replace(_TIME, b"%d" % (moment * 1000)).replace(_CPU, b"%.6f" % (moment % 1e6 * CORES))

        return page

    servers = [
        await asyncio.start_server(_answering(pages(i), token), HOST, ports[i] if ports else 0, ssl=context)
        for i in range(count)
    ]
    print(json.dumps([server.sockets[0].getsockname()[1] for server in servers]), flush=True)
    await asyncio.to_thread(sys.stdin.read)


def _answering(
    page: Callable[[str], bytes | None], token: str
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            text = (await reader.readuntil(b"\r\n\r\n")).decode()
        except asyncio.IncompleteReadError:  # who asked has gone
            writer.close()
            return
        allowed = f"Authorization: Bearer {token}\r\n" in text
        body = page(text.split(" ", 2)[1]) if allowed else None
        if body is None:
            writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\nConnection: close\r\n\r\nForbidden")
        else:
            packed = "Accept-Encoding: gzip\r\n" in text
            body = gzip.compress(body, 1) if packed else body
            # In chunks, as a kubelet answers.
            size = b"%x\r\n" % len(body)
            encoding = b"Content-Encoding: gzip\r\n" if packed else b""
            head = b"HTTP/1.1 200 OK\r\n%bTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n" % encoding
            writer.write(head + size + body + b"\r\n0\r\n\r\n")
        await writer.drain()
        writer.close()

    return answer


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    asyncio.run(_serve(sys.argv[1:]))
