"""Two network namespaces of a test: a node with one pod behind it, and a peer beyond its uplink. Needs root."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import geteuid, getpid

PROGRAMS = ("ip", "tc", "nft")


def missing() -> str:
    """Why namespaces cannot be had here, or ""."""
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    if absent:
        return f"programs are missing: {', '.join(absent)} (packages iproute2, nftables)"
    if geteuid() != 0:
        return "network namespaces need root"
    process = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    return "" if process.returncode == 0 else "this kernel or container refuses network namespaces"


@dataclass(frozen=True)
class Network:
    """pod 10.9.1.2 -- 10.9.1.1 node 10.9.2.1 (uplink) -- 10.9.2.2 peer."""

    pod: str
    node: str
    peer: str
    uplink: str = "uplink"

    def execute(self, command: list[str], text: str = "") -> str:
        """Run a program in the node's namespace, as the keeper does on a node."""
        return run(["ip", "netns", "exec", self.node, *command], text)

    def send(self, packets: int = 20, source: str = "") -> None:
        """UDP packets from the pod (or from the node itself) to the peer."""
        where = self.pod if source != "node" else self.node
        code = (
            "import socket,sys; s=socket.socket(socket.AF_INET, socket.SOCK_DGRAM);"
            f"[s.sendto(b'x'*100, ('10.9.2.2', 9999)) for _ in range({packets})]"
        )
        run(["ip", "netns", "exec", where, "python3", "-c", code])

    def sent(self) -> dict[str, int]:
        """Packets by class of the uplink so far."""
        bytes_sent, current = {}, ""
        for line in self.execute(["tc", "-s", "class", "show", "dev", self.uplink]).splitlines():
            fields = line.split()
            if fields[:2] == ["class", "htb"]:
                current = fields[2]
            elif fields[:1] == ["Sent"]:
                bytes_sent[current] = int(fields[3])
        return bytes_sent


def run(command: list[str], text: str = "") -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True, timeout=30)
    return done.stdout


@contextmanager
def network() -> Iterator[Network]:
    """Made and unmade."""
    names = [f"cotenant-{getpid()}-{part}" for part in ("pod", "node", "peer")]
    net = Network(*names)
    try:
        for name in names:
            run(["ip", "netns", "add", name])
            run(["ip", "-n", name, "link", "set", "lo", "up"])
        _pair(net.pod, "eth0", "10.9.1.2", (net.node, "topod", "10.9.1.1"))
        _pair(net.node, net.uplink, "10.9.2.1", (net.peer, "eth0", "10.9.2.2"))
        run(["ip", "-n", net.pod, "route", "add", "default", "via", "10.9.1.1"])
        run(["ip", "-n", net.peer, "route", "add", "default", "via", "10.9.2.1"])
        run(["ip", "netns", "exec", net.node, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1"])
        yield net
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _pair(inside: str, name: str, address: str, other: tuple[str, str, str]) -> None:
    where, far, far_address = other
    run(["ip", "-n", inside, "link", "add", "name", name, "type", "veth", "peer", "name", far, "netns", where])
    for space, device, ip in ((inside, name, address), (where, far, far_address)):
        run(["ip", "-n", space, "address", "add", f"{ip}/24", "dev", device])
        run(["ip", "-n", space, "link", "set", device, "up"])
