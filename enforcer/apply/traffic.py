"""EDGE: classes of outgoing traffic, by the kernel's queueing (tc, htb) and packet marking (nft).

The agent sets one htb root on the device, with one class below for each QoS class. An nft table sets the class of each
packet by its source address, before addresses are translated; the class is the packet's priority, which htb reads by
itself, so that no filter is needed. Traffic that belongs to no class goes out unshaped.

Only a device whose root is the kernel's default (handle 0:) is touched, and removing the agent's root restores that
default. The agent's root is known by its handle and the table's name, so a new agent finds and removes what a killed
one left. Programs run only when something changes, and once a minute to check that the configuration is still in place.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from cotenant.enforcer.contract import Surface, SurfaceWant, Traffic, TrafficClass, Uplink, values_of

HANDLE: Final = "c07e:"
ROOT_CLASS: Final = f"{HANDLE}1"
TABLE: Final = "cotenant_traffic"
RECHECK_SECONDS: Final = 60.0
LONGEST_SECONDS: Final = 10.0
_DEVICE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,14}")
_CLASS: Final = re.compile(rf"^class htb ({HANDLE}[0-9a-f]+) ", re.MULTILINE)

Run = Callable[[list[str], str], str]
"""(command, standard input) -> output; OSError or CalledProcessError."""


def run(command: list[str], text: str = "") -> str:
    """Run a program with `text` as its input, wait for it, and return its output."""
    done = subprocess.run(  # noqa: S603 - a fixed program; arguments are checked before
        command, input=text, capture_output=True, text=True, check=True, timeout=LONGEST_SECONDS
    )
    return done.stdout


class TrafficKeeper:
    """Creates and removes traffic classes; for use by a single thread. `execute` runs a program, as `run` does."""

    surface: Final = Surface.TRAFFIC

    def __init__(self, execute: Run = run, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._run, self._monotonic = execute, monotonic
        self._held: dict[str, Traffic] | None = None
        """None: not known, a killed agent may have left something."""
        self._wrong: list[str] = []
        self._looked_seconds = 0.0

    def apply(self, wants: Iterable[SurfaceWant]) -> list[str]:
        """Set the traffic classes if the wants changed or a minute has passed; return the last errors as text."""
        targets = dict(values_of(wants, Surface.TRAFFIC, Traffic))
        now = self._monotonic()
        due = now - self._looked_seconds >= RECHECK_SECONDS and bool(targets or self._wrong)
        if targets == self._held and not due:
            return self._wrong
        if not targets and self._held is None and not self._left_over():
            self._held = {}
            return []
        self._looked_seconds = now
        wrong = list(self._remove_others(targets))
        devices = [device for device in targets if _DEVICE.fullmatch(device)]
        wrong += [f'"{device}" is not the name of a network device' for device in targets if device not in devices]
        shaped = {}
        for device in devices:
            faults = list(self._shape(device, targets[device]))
            wrong += faults
            if not faults:
                shaped[device] = targets[device]
        self._wrong = [*wrong, *self._try(["nft", "-f", "-"], nft_program(shaped))]
        self._held = targets
        return self._wrong

    def restore(self) -> list[str]:
        """Remove the agent's classes from every device; return errors as text, none if only programs are missing."""
        wrong = [*self._remove_others(()), *self._try(["nft", "-f", "-"], _empty_table())]
        self._held, self._wrong = {}, []
        # Where programs that are missing are the only fault, none of our settings can be in force.
        return [] if all("No such file" in line for line in wrong) else wrong

    def _shape(self, device: str, traffic: Traffic) -> Iterator[str]:
        """Create or change the root and its classes, and yield errors; htb changes rates without losing a packet."""
        try:
            # Handle of the device's root; ValueError when there is no such device.
            rows = self._qdiscs(["dev", device])
            root = next((str(row["handle"]) for row in rows if row.get("root")), "0:")
        except (OSError, subprocess.SubprocessError, ValueError) as bad:
            yield f"{device}: {_error_text(bad)}"
            return
        if root not in ("0:", HANDLE):
            yield f"{device} already has another program's queueing discipline ({root}): not changed"
            return
        commands = [] if root == HANDLE else [["tc", "qdisc", "add", "dev", device, "root", "handle", HANDLE, "htb"]]
        for command in [*commands, *class_commands(device, traffic)]:
            wrong = list(self._try(command))
            if wrong:
                yield from wrong
                return
        expected = {ROOT_CLASS, *(_id(c) for c in traffic.classes)}
        try:
            present = set(_CLASS.findall(self._run(["tc", "class", "show", "dev", device], "")))
        except (OSError, subprocess.SubprocessError) as bad:
            yield f"{device}: {_error_text(bad)}"
            return
        for class_id in present - expected:
            yield from self._try(["tc", "class", "del", "dev", device, "classid", class_id])

    def _qdiscs(self, where: list[str]) -> list[dict[str, Any]]:
        listed = self._run(["tc", "-j", "qdisc", "show", *where], "")
        return msgspec.json.decode(listed or "[]", type=list[dict[str, Any]])

    def _ours(self) -> list[str]:
        rows = self._qdiscs([])
        return [str(row["dev"]) for row in rows if row.get("root") and row["handle"] == HANDLE]

    def _left_over(self) -> bool:
        try:
            return bool(self._ours()) or TABLE in self._run(["nft", "list", "tables"], "")
        except (OSError, subprocess.SubprocessError, ValueError):
            return False

    def _remove_others(self, devices: Iterable[str]) -> Iterator[str]:
        try:
            ours = self._ours()
        except (OSError, subprocess.SubprocessError, ValueError) as bad:
            yield _error_text(bad)
            return
        for device in set(ours) - set(devices):
            yield from self._try(["tc", "qdisc", "del", "dev", device, "root", "handle", HANDLE])

    def _try(self, command: list[str], text: str = "") -> Iterator[str]:
        try:
            self._run(command, text)
        except (OSError, subprocess.SubprocessError) as bad:
            yield f"{' '.join(command[:6])}: {_error_text(bad)}"


def class_commands(device: str, traffic: Traffic) -> Iterator[list[str]]:
    """Yield the tc commands that create the root class and a class for each of `traffic`, or change them in place.

    A class has its guaranteed rate (`least`) and its ceiling (`most`), in bits per second. Its quantum, in bytes, is
    the rate / 80 (the bytes of a tenth of a second, as in htb's default), limited to 1,514..60,000.
    """
    total_bits = f"{traffic.total}bit"
    yield _class(device, HANDLE, ROOT_CLASS, f"rate {total_bits} ceil {total_bits} quantum 60000")
    for c in traffic.classes:
        quantum = min(max(c.least // 80, 1514), 60_000)
        rates = f"rate {c.least}bit ceil {c.most}bit prio {c.priority} quantum {quantum}"
        yield _class(device, ROOT_CLASS, _id(c), rates)


def _class(device: str, parent: str, number: str, rates: str) -> list[str]:
    return ["tc", "class", "replace", "dev", device, "parent", parent, "classid", number, "htb", *rates.split()]


def _id(traffic_class: TrafficClass) -> str:
    return f"{HANDLE}{traffic_class.number:x}"


def nft_program(shaped: dict[str, Traffic]) -> str:
    """Return the input of `nft -f` that replaces the agent's table in one step, or removes it if no class has pods."""
    rules = []
    for device, traffic_class in [(device, c) for device, traffic in sorted(shaped.items()) for c in traffic.classes]:
        owned = [ipaddress.ip_address(address) for address in traffic_class.addresses]
        for family, version in (("ip", 4), ("ip6", 6)):
            mine = ", ".join(str(address) for address in owned if address.version == version)
            if mine:
                where = f'oifname "{device}" {family} saddr {{ {mine} }}'
                rules.append(f"{where} meta priority set {_id(traffic_class)}")
    if not rules:
        return _empty_table()
    chain = ["chain out {", "type filter hook postrouting priority mangle; policy accept;", *rules, "}"]
    return _empty_table() + "\n".join([f"table inet {TABLE} {{", *chain, "}", ""])


def _empty_table() -> str:
    return f"table inet {TABLE} {{}}\ndelete table inet {TABLE}\n"


def read_uplink(
    own: Path = Path("/proc/self"), host: Path = Path("/proc/1"), sys: Path = Path("/sys")
) -> Uplink | None:
    """Return the device of the IPv4 default route, and its link speed.

    Return None if there is no such route, or if the routes of the processes `own` and `host` differ: then the agent is
    not in the host's network namespace, and its eth0 is another device than the host's.
    """
    try:
        routes_here, routes_there = ((process / "net/route").read_text() for process in (own, host))
    except OSError:
        return None
    if routes_here != routes_there:
        return None
    rows = [line.split() for line in routes_here.splitlines()[1:]]
    routes = sorted((int(r[6]), r[0]) for r in rows if len(r) > 7 and r[1] == "00000000" and r[7] == "00000000")
    if not routes or not _DEVICE.fullmatch(routes[0][1]):
        return None
    bits_per_second = 0
    with contextlib.suppress(OSError, ValueError):  # virtual devices say -1 or refuse
        bits_per_second = max(int((sys / "class/net" / routes[0][1] / "speed").read_text()), 0) * 1_000_000
    return Uplink(routes[0][1], bits_per_second)


def _error_text(bad: Exception) -> str:
    stderr = getattr(bad, "stderr", None)
    return str(stderr).strip().splitlines()[0] if stderr else str(bad)
