"""A drawing of a node's CPUs: a cell a core, a letter a thread, a legend of whose they are. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from string import ascii_letters
from typing import Final

from cotenant.core.model.allocation.cpu_lists import format_cpus
from cotenant.core.model.allocation.cpu_ownership import CpuOwner, CpuState

SIGNS: Final = {
    CpuState.SHARED: ".",
    CpuState.RESERVED: "#",
    CpuState.KUBELET_RESERVED: "%",
    CpuState.SYSTEM: "$",
    CpuState.ISOLATED: "!",
    CpuState.OFFLINE: "-",
}
MANY: Final = "*"
"""Sign of pods behind the last letter."""
CORES_A_LINE: Final = 16


def drawn(owners: Sequence[CpuOwner]) -> Iterator[str]:
    """The lines, without line ends."""
    pods = list(dict.fromkeys(owner.pod for owner in owners if owner.state is CpuState.POD))
    letters = {pod: ascii_letters[i] if i < len(ascii_letters) else MANY for i, pod in enumerate(pods)}
    online = sorted(
        (o for o in owners if o.core is not None), key=lambda o: (o.socket or 0, o.numa_node or 0, o.core or 0, o.cpu)
    )
    for (socket, numa_node), group in groupby(online, key=lambda o: (o.socket, o.numa_node)):
        members = list(group)
        cores = [list(threads) for _, threads in groupby(members, key=lambda o: o.core)]
        yield f"socket {socket}, NUMA node {numa_node}: {len(cores)} cores, {len(members)} CPUs"
        yield from _lines(cores, letters)
    yield ""
    yield from _legend(owners, letters)


def _lines(cores: Sequence[Sequence[CpuOwner]], letters: dict[str, str]) -> Iterator[str]:
    for first in range(0, len(cores), CORES_A_LINE):
        line = cores[first : first + CORES_A_LINE]
        cells = ["".join(letters.get(o.pod, MANY) if o.pod else SIGNS[o.state] for o in core) for core in line]
        yield f"  core {line[0][0].core:>4}  " + " ".join(cells)


def _legend(owners: Sequence[CpuOwner], letters: dict[str, str]) -> Iterator[str]:
    """A line for each pod and each state that occurs, with its CPUs."""
    for pod, letter in letters.items():
        yield f"{letter}  {pod}: {format_cpus(o.cpu for o in owners if o.pod == pod)}"
    for state, sign in SIGNS.items():
        members = [o.cpu for o in owners if o.state is state]
        if members:
            yield f"{sign}  {state}: {format_cpus(members)}"
