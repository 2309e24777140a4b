"""The list of allowed machine types: a price list with what each type offers. Pure.

CSV with the columns of a price list, and optionally: cpu, memory and pods (the machine's capacity), provider (eks, gke,
aks: the rule by which its kubelet reserves a part), or allocatable_cpu and allocatable_memory; zones, labels and
taints, each separated by spaces; a column whose name has a slash is an extended resource.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from cotenant.base.errors import CotenantError, UsageError
from cotenant.base.kubernetes.quantity import parse_amount
from cotenant.base.resource import Resource
from cotenant.scheduler_ext.cluster_size.machines.kubelet import PROVIDERS
from cotenant.scheduler_ext.cluster_size.prices import CAPACITY, PriceList, parse_price_list, price_rows

FIX: Final = (
    "The header is machine_type,price_per_hour,currency,cpu,memory,pods,provider; "
    "a line is m5.xlarge,0.192,USD,4,16Gi,58,eks."
)
EFFECTS: Final = ("NoSchedule", "NoExecute", "PreferNoSchedule")


@dataclass(frozen=True, slots=True)
class MachineType:
    """An allowed machine type; `capacity_type` is spot, on-demand or "".

    Amounts are in millicores and bytes, None if not given. `zones` is () if the type is available in all zones.
    `resources` are extended resources by name.
    """

    name: str
    capacity_type: str
    price_hour: float
    cpu: int | None = None
    memory: int | None = None
    pods: int | None = None
    provider: str = ""
    allocatable_cpu: int | None = None
    allocatable_memory: int | None = None
    zones: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[tuple[str, str, str], ...] = ()
    resources: Mapping[str, int] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The type's name, with "spot" for spot machines."""
        return f"{self.name} (spot)" if self.capacity_type == "spot" else self.name


@dataclass(frozen=True, slots=True)
class Shapes:
    """All allowed machine types, and their prices as a price list, which applies to today's nodes too."""

    prices: PriceList
    types: tuple[MachineType, ...]


def parse_shapes(text: str, file: str) -> Shapes:
    """Return the machine types in a CSV text; raise UsageError that names the file, the line and the wrong value."""
    prices = parse_price_list(text, file)
    types: dict[tuple[str, str], MachineType] = {}
    for line, cells in price_rows(text, file):
        where = f"{file}, line {line}"
        key = (cells["machine_type"], cells[CAPACITY])
        price = prices.hourly[key]
        provider = cells.get("provider", "")
        if provider and provider not in PROVIDERS:
            raise UsageError(f"{where}: provider {provider!r} is not one of {', '.join(PROVIDERS)}", fix=FIX)
        machine_type = MachineType(
            name=cells["machine_type"],
            capacity_type=cells[CAPACITY],
            price_hour=price,
            cpu=_amount(cells, "cpu", Resource.CPU, where),
            memory=_amount(cells, "memory", Resource.MEMORY, where),
            pods=_count(cells, "pods", where),
            provider=provider,
            allocatable_cpu=_amount(cells, "allocatable_cpu", Resource.CPU, where),
            allocatable_memory=_amount(cells, "allocatable_memory", Resource.MEMORY, where),
            zones=tuple(sorted(set(cells.get("zones", "").split()))),
            labels=dict(_pair(word, where) for word in cells.get("labels", "").split()),
            taints=tuple(_taint(word, where) for word in cells.get("taints", "").split()),
            resources={n: count for n in cells if "/" in n and (count := _count(cells, n, where))},
        )
        for name, part, of in (
            ("cpu", machine_type.allocatable_cpu, machine_type.cpu),
            ("memory", machine_type.allocatable_memory, machine_type.memory),
        ):
            if part is not None and of is not None and part > of:
                raise UsageError(f"{where}: allocatable_{name} is more than {name}", fix=FIX)
        if types.setdefault(key, machine_type) != machine_type:
            raise UsageError(f"{where}: {' '.join(key).strip()} has two different lines", fix=FIX)
    return Shapes(prices, tuple(types.values()))


def _amount(cells: Mapping[str, str], column: str, resource: Resource, where: str) -> int | None:
    text = cells.get(column, "")
    if not text:
        return None
    try:
        amount = int(parse_amount(resource, text))
    except CotenantError as error:
        raise UsageError(f"{where}: {column} {text!r} is not an amount", fix=FIX) from error
    if amount <= 0:
        raise UsageError(f"{where}: {column} {text!r} is not above 0", fix=FIX)
    return amount


def _count(cells: Mapping[str, str], column: str, where: str) -> int | None:
    text = cells.get(column, "")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()):
        raise UsageError(f"{where}: {column} {text!r} is not a whole number from 0 up", fix=FIX)
    return int(text)


def _pair(word: str, where: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not key or not equals:
        raise UsageError(f"{where}: label {word!r} is not KEY=VALUE", fix=FIX)
    return key, value


def _taint(word: str, where: str) -> tuple[str, str, str]:
    """Parse KEY=VALUE:EFFECT or KEY:EFFECT."""
    pair, _, effect = word.rpartition(":")
    key, _, value = pair.partition("=")
    if not key or effect not in EFFECTS:
        raise UsageError(f"{where}: taint {word!r} is not KEY=VALUE:EFFECT", fix=FIX)
    return key, value, effect
