"""Why a node is refused: a small code per node, and texts shared by all nodes with the same reason. Pure.

The refusals of 5,000 nodes have a dozen different texts at most; each text is made once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from time import gmtime, strftime
from typing import Final

import numpy as np

from cotenant.base.allocation.cpu_allocator import KUBELET_OWNS, NO_TOPOLOGY, OTHER_POLICY, TOO_FEW
from cotenant.base.allocation.device_allocator import NO_DEVICES
from cotenant.scheduler_ext.arrays import Codes, Flags, Ints, Rows
from cotenant.scheduler_ext.extender.watch.frame import SLOT_SECONDS

LARGEST_PERCENT: Final = 0xFFFF


class Code(IntEnum):
    """The result of the rules for one node: PASS, or the reason of the refusal."""

    PASS = 0
    EXPIRED = 1
    CPU = 2
    MEMORY = 3
    AGGREGATED_CPU = 4
    AGGREGATED_MEMORY = 5
    PEAK_CPU = 6
    PEAK_MEMORY = 7
    RESERVED = 8
    MAY_BE_RESERVED = 9
    NO_CPU_TOPOLOGY = 10
    KUBELET_CPUS = 11
    CPU_POLICY = 12
    NO_CPUS = 13
    CPU_REQUEST = 14
    NO_DEVICES = 15
    FEW_DEVICES = 16
    DEVICE_REQUEST = 17
    DEVICES_UNFIT = 18


BY_FORECAST: Final = (Code.PEAK_CPU, Code.PEAK_MEMORY)
BY_USE: Final = (Code.CPU, Code.MEMORY, Code.AGGREGATED_CPU, Code.AGGREGATED_MEMORY)
"""Codes of refusals by a node's usage, which is partly estimated."""
_WORDS: Final[dict[Code, str]] = {
    Code.EXPIRED: "the node's usage is no longer reported",
    Code.RESERVED: "the node's capacity is being handed over to another pod",
    Code.MAY_BE_RESERVED: "the node's capacity may be reserved: the view of reservations is out of date",
    Code.NO_CPU_TOPOLOGY: NO_TOPOLOGY,
    Code.KUBELET_CPUS: KUBELET_OWNS,
    Code.CPU_POLICY: OTHER_POLICY,
    Code.NO_CPUS: TOO_FEW,
    Code.CPU_REQUEST: "LSE and LSR pods must request whole CPUs and a known policy; this pod does not",
    Code.NO_DEVICES: NO_DEVICES,
    Code.FEW_DEVICES: "too few of the node's devices have enough free capacity",
    Code.DEVICE_REQUEST: "no device can serve the pod's request; docs/devices.md lists the combinations",
    Code.DEVICES_UNFIT: "the node's free devices do not fit the pod's joint allocation, hint or partition",
}
"""Texts of refusals that are the same on every node."""
BY_CPUS: Final = frozenset({Code.NO_CPU_TOPOLOGY, Code.KUBELET_CPUS, Code.CPU_POLICY, Code.NO_CPUS, Code.CPU_REQUEST})
BY_DEVICES: Final = frozenset({Code.NO_DEVICES, Code.FEW_DEVICES, Code.DEVICE_REQUEST, Code.DEVICES_UNFIT})
UNRESOLVABLE: Final = frozenset({Code.RESERVED, Code.MAY_BE_RESERVED}) | BY_CPUS | BY_DEVICES
"""Codes that preemption cannot resolve: the preempt verb checks neither CPUs nor devices."""
RULES: Final[dict[Code, str]] = {
    **dict.fromkeys((Code.EXPIRED, *BY_USE), "load-aware"),
    **dict.fromkeys(BY_FORECAST, "prediction"),
    **dict.fromkeys((Code.RESERVED, Code.MAY_BE_RESERVED), "reservation"),
    **dict.fromkeys(BY_CPUS, "cpus"),
    **dict.fromkeys(BY_DEVICES, "devices"),
}
"""The name of the rule behind each code."""


@dataclass(frozen=True, slots=True)
class NodeVerdicts:
    """The results for n nodes: a code each, and for refusals by load the percentage and the forecast's half hour.

    `codes` has shape (n,); `percent` and `slot` are int64 (n,), 0 if they do not apply.
    """

    codes: Codes
    percent: Ints
    slot: Ints

    @classmethod
    def passing(cls, count: int) -> NodeVerdicts:
        """Return results for `count` nodes that all pass."""
        return cls(np.zeros(count, np.int8), np.zeros(count, np.int64), np.zeros(count, np.int64))

    @property
    def passed(self) -> Flags:
        """Mask of the nodes that pass, (n,)."""
        mask: Flags = self.codes == Code.PASS
        return mask

    def let_pass(self, which: Flags) -> None:
        """Change the results of the nodes of this mask, (n,), to PASS."""
        self.codes[which], self.percent[which], self.slot[which] = Code.PASS, 0, 0

    def put(self, places: Rows, other: NodeVerdicts) -> None:
        """Replace the results of the nodes at these indices, (m,), by those of `other`, which has m nodes."""
        self.codes[places], self.percent[places], self.slot[places] = other.codes, other.percent, other.slot

    def refused(self) -> NodeRefusals:
        """Return the refused nodes with code and text; equal texts are made once and shared by index."""
        at = np.flatnonzero(self.codes)
        if not len(at):
            return NodeRefusals(at, at, (), ())
        keys: Ints = (self.slot[at] << 24) | (self.percent[at] << 8) | self.codes[at]
        distinct, which = np.unique(keys, return_inverse=True)
        parts = [(key & 0xFF, (key >> 8) & LARGEST_PERCENT, key >> 24) for key in distinct.tolist()]
        codes, texts = tuple(Code(code) for code, _, _ in parts), tuple(text_of(*part) for part in parts)
        return NodeRefusals(at, which, codes, texts)

    def counts(self) -> dict[tuple[str, str], int]:
        """Return (rule, text) -> number of refused nodes, highest first; percentages that differ become a range."""
        by_reason: dict[tuple[str, str], int] = {}
        for value, number in enumerate(np.bincount(self.codes).tolist()):
            if value and number:
                code, mine = Code(value), self.codes == value
                percents = (0, 0) if code in _WORDS else _ends(self.percent[mine])
                slots = _ends(self.slot[mine]) if code in BY_FORECAST else (0, 0)
                by_reason[RULES[code], words_of(code, percents, slots)] = number
        return dict(sorted(by_reason.items(), key=lambda item: (-item[1], item[0])))


@dataclass(frozen=True, slots=True)
class NodeRefusals:
    """Refused nodes: their indices (m,), the index of each one's refusal (m,), and the distinct refusals."""

    at: Rows
    which: Rows
    codes: tuple[Code, ...]
    words: tuple[str, ...]

    def texts(self) -> list[str]:
        """Return the text of each refused node."""
        reasons = self.words
        return [reasons[i] for i in self.which.tolist()]


def _ends(values: Ints) -> tuple[int, int]:
    return int(values.min()), int(values.max())


def text_of(code: int, percent: int, slot: int) -> str:
    """Return the text of one refusal; times are UTC."""
    return words_of(Code(code), (percent, percent), (slot, slot))


@lru_cache(maxsize=4096)
def words_of(code: Code, percents: tuple[int, int], slots: tuple[int, int]) -> str:
    """Return one text for refusals with the code and these ranges of percentages and half hours; times are UTC."""
    if code in _WORDS:
        return _WORDS[code]
    resource = "cpu" if code in (Code.CPU, Code.AGGREGATED_CPU, Code.PEAK_CPU) else "memory"
    share = _range([str(percent) for percent in percents], "{} to {}")
    if code in (Code.PEAK_CPU, Code.PEAK_MEMORY):
        clock = [strftime("%H:%M", gmtime(slot * SLOT_SECONDS)) for slot in slots]
        return f"{resource} usage of {share} % forecast {_range(clock, 'from {} to {}', 'at ')} UTC"
    kind = " (aggregated)" if code in (Code.AGGREGATED_CPU, Code.AGGREGATED_MEMORY) else ""
    return f"{resource} usage above {share} %{kind}"


def _range(ends: list[str], several: str, prefix: str = "") -> str:
    return several.format(*ends) if ends[0] != ends[1] else f"{prefix}{ends[0]}"
