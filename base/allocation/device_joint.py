"""Devices of several kinds that a pod wants near each other: the first kind leads, the others follow it. Pure.

Of every following kind there is one device for each PCIe switch on which the leading kind was placed, or as many as the
pod requests if that is more; GPUs alone are never more than requested. If the pod requires one scope (`SamePCIe`), all
kinds are on the same switches, else nothing is given; otherwise missing devices come from the nearest place that has
them, and fewer than one for each switch are enough. Source: Koordinator's DeviceShare plugin, v1.8.0, which places the
leading kind without regard to the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import comb
from typing import Final, NamedTuple, TypeAlias

from cotenant.base.allocation.device_candidates import (
    NARROW_TO_WIDE,
    Candidate,
    best_fit,
    first_per_switch,
    group_by_location,
    location_at_scope,
)
from cotenant.base.allocation.device_request import DeviceScope, KindRequest
from cotenant.base.allocation.devices import DeviceKind

MOST_COMBINATIONS: Final = 256
"""Most sets of PCIe switches that are tried for one number of switches; a machine with eight switches has fewer."""
Picks: TypeAlias = Mapping[DeviceKind, tuple[Candidate, ...]]
"""The devices chosen of each kind."""
Place: TypeAlias = Mapping[DeviceKind, Sequence[Candidate]]
"""The devices of each kind that one place has."""


class Partition(NamedTuple):
    """Whole GPUs that are connected to each other; a smaller `rank` is better."""

    gpus: tuple[Candidate, ...]
    rank: tuple[int, int]


class _Option(NamedTuple):
    """One choice of devices in one place; a smaller rank is better."""

    rank: tuple[int, int, int, int, float, int, list[int]]
    picks: Picks


class _Leads(NamedTuple):
    """Devices of the leading kind; `spread` is their distance from each other, smaller is better."""

    devices: tuple[Candidate, ...]
    spread: int = 0
    partition: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True, eq=False)
class JointPlacement:
    """The devices of a node that a pod could get if it wants devices of several kinds near each other.

    `kinds` are at least two, the leading kind first. `candidates` are the devices of each kind that have the requested
    share free, `counts` is the requested number of devices of each kind. If `required`, all kinds must be on the same
    PCIe switches. `partitions` are the free partitions of the requested GPUs, if GPUs are given only as partitions.
    """

    kinds: tuple[DeviceKind, ...]
    requests: Mapping[DeviceKind, KindRequest]
    candidates: Place
    counts: Mapping[DeviceKind, int]
    required: bool = False
    partitions: Sequence[Partition] | None = None
    _switches: Mapping[DeviceKind, frozenset[str]] = field(init=False)

    def __post_init__(self) -> None:
        switches = {
            k: frozenset(candidate.device.pcie for candidate in c if candidate.device.pcie)
            for k, c in self.candidates.items()
        }
        object.__setattr__(self, "_switches", switches)

    def best(self) -> Picks | None:
        """Return the best devices from the narrowest place (PCIe switch, NUMA node, node) that has enough, or None."""
        for scope in NARROW_TO_WIDE:
            options = [option for place in self._places(scope) for option in self._options(place, scope)]
            if options:
                return min(options, key=lambda option: option.rank).picks
        return None

    def _places(self, scope: DeviceScope) -> list[Place]:
        places: dict[object, dict[DeviceKind, list[Candidate]]] = {}
        for kind in self.kinds:
            for place, candidates in group_by_location(self.candidates[kind], scope).items():
                places.setdefault(place, {})[kind] = candidates
        return [place for place in places.values() if len(place) == len(self.kinds)]

    def _options(self, place: Place, scope: DeviceScope) -> Iterator[_Option]:
        leads_of = self._leads_on_same_switches if self.required else self._leads_nearby
        for leads in leads_of(place, scope):
            picks = self._picks_with_followers(leads.devices, place)
            if picks is not None:
                # The better partition, leads near each other, switches served, partitions left, then the best fit.
                switches = _switches_of(leads.devices)
                served = sum(len(switches & _switches_of(picks[kind])) for kind in self.kinds[1:])
                remaining = sum(candidate.left for picked in picks.values() for candidate in picked)
                beside = sum(map(len, place.values())) - sum(map(len, picks.values()))
                score, broken = leads.partition
                unserved = len(switches) * (len(self.kinds) - 1) - served
                minors = sorted(candidate.device.minor for candidate in leads.devices)
                yield _Option((score, leads.spread, unserved, broken, remaining, beside, minors), picks)

    # --- the leading kind ---------------------------------------------------------------------------------------------
    def _leads_nearby(self, place: Place, scope: DeviceScope) -> Iterator[_Leads]:
        """Yield choices of leading devices, as near each other as the candidates allow.

        Among equally near devices, those whose switch also has the other kinds go first.
        """
        lead = self.kinds[0]
        request, count, offered = self.requests[lead], self.counts[lead], place[lead]
        if self._has_partitions(lead):
            yield from self._partitions_among(offered)
            return
        near_to_far = (
            [narrower for narrower in NARROW_TO_WIDE if narrower <= min(scope, request.scope)] if count > 1 else [scope]
        )
        for nearness in near_to_far:
            chosen = []
            for spot in group_by_location(offered, nearness).values():
                in_order = sorted(spot, key=lambda candidate: (self._count_missing_kinds(candidate), candidate.rank))
                in_order = first_per_switch(in_order) if request.apart else in_order
                if len(in_order) >= count:
                    chosen.append(tuple(in_order[:count]))
            if chosen:
                yield from (_Leads(devices, nearness) for devices in chosen)
                return

    def _leads_on_same_switches(self, place: Place, scope: DeviceScope) -> Iterator[_Leads]:
        """Yield choices on as few switches as possible, each of which has every kind."""
        lead = self.kinds[0]
        request, count = self.requests[lead], self.counts[lead]
        offered = [
            candidate for candidate in place[lead] if candidate.device.pcie and not self._count_missing_kinds(candidate)
        ]
        if self._has_partitions(lead):
            yield from self._partitions_among(offered)
            return
        if count > 1 and scope > request.scope:
            return
        by_switch = {
            str(switch): best_fit(spot, count, request)
            for switch, spot in group_by_location(offered, DeviceScope.PCIE).items()
        }
        fullest = sorted(by_switch, key=lambda switch: (-len(by_switch[switch]), by_switch[switch][0].rank))
        for number in range(1, min(count, len(by_switch)) + 1):
            has_option = False
            # Of very many sets of so many switches only that of the fullest ones.
            is_many = comb(len(fullest), number) > MOST_COMBINATIONS
            for switches in [tuple(fullest[:number])] if is_many else combinations(fullest, number):
                # One of each switch, and what is missing then switch after switch.
                spots = [by_switch[switch] for switch in switches]
                firsts, others = (spot[0] for spot in spots), (candidate for spot in spots for candidate in spot[1:])
                devices = (*firsts, *others)[:count]
                if len(devices) == count and self._picks_with_followers(devices, place) is not None:
                    has_option = True
                    yield _Leads(devices, number)
            if has_option:
                return

    def _partitions_among(self, offered: Iterable[Candidate]) -> Iterator[_Leads]:
        minors = {candidate.device.minor for candidate in offered}
        for partition in self.partitions or ():
            if minors.issuperset(gpu.device.minor for gpu in partition.gpus):
                yield _Leads(partition.gpus, len(_switches_of(partition.gpus)), partition.rank)

    def _has_partitions(self, kind: DeviceKind) -> bool:
        return kind is DeviceKind.GPU and self.partitions is not None

    def _count_missing_kinds(self, lead: Candidate) -> int:
        """Return how many of the other kinds have no device on the PCIe switch of `lead`."""
        return sum(lead.device.pcie not in self._switches[kind] for kind in self.kinds[1:])

    # --- those that follow --------------------------------------------------------------------------------------------
    def _picks_with_followers(self, leads: tuple[Candidate, ...], place: Place) -> Picks | None:
        """Return the leads with the devices that follow them; None if the place has too few of a kind."""
        picks = {self.kinds[0]: leads}
        for kind in self.kinds[1:]:
            # The devices of one kind that serve most of the leads' switches, and of equal ones the best fit.
            switches = _switches_of(leads)
            requested, grows = self.counts[kind], kind is not DeviceKind.GPU
            target_count = max(requested, len(switches)) if grows else requested
            choices = []
            for offered in self._sets_of(kind, place):
                in_order = offered if self._has_partitions(kind) else self._in_order(kind, offered, leads, place)
                picked = tuple(in_order[:target_count])
                served = switches & _switches_of(picked)
                if self.required:
                    enough = len(picked) == target_count and served == switches == _switches_of(picked)
                else:
                    minors_there = {candidate.device.minor for candidate in place[kind]}
                    enough = sum(candidate.device.minor in minors_there for candidate in picked) >= requested
                if enough:
                    remaining = sum(candidate.left for candidate in picked)
                    minors = sorted(candidate.device.minor for candidate in picked)
                    choices.append((-len(served), remaining, minors, picked))
            followers = min(choices, key=lambda choice: choice[:3])[3] if choices else None
            if followers is None:
                return None
            picks[kind] = followers
        return picks

    def _sets_of(self, kind: DeviceKind, place: Place) -> list[Sequence[Candidate]]:
        """Return sets of devices, one of which must have all of a kind: of one place if the hint requires it."""
        if self._has_partitions(kind):
            return [leads.devices for leads in self._partitions_among(place[kind])]
        offered = place[kind] if self.required else self.candidates[kind]
        return list(group_by_location(offered, self.requests[kind].scope).values())

    def _in_order(
        self, kind: DeviceKind, offered: Iterable[Candidate], leads: tuple[Candidate, ...], place: Place
    ) -> list[Candidate]:
        """Return one device of each of the leads' switches in turn; then, unless required there, others by nearness."""
        switches = _switches_of(leads)
        best_first = sorted(offered, key=lambda candidate: candidate.rank)
        by_switch = group_by_location(best_first, DeviceScope.PCIE)
        turns = [by_switch[switch] for switch in sorted(switches) if switch in by_switch]
        in_order = [
            devices[turn] for turn in range(max(map(len, turns), default=0)) for devices in turns if turn < len(devices)
        ]
        if not self.required:
            numa_nodes = {location_at_scope(candidate.device, DeviceScope.NUMA_NODE) for candidate in leads} - {None}
            here = {candidate.device.minor for candidate in place[kind]}
            far = [candidate for candidate in best_first if candidate.device.pcie not in switches]
            far.sort(
                key=lambda candidate: (candidate.device.minor not in here, candidate.device.numa_node not in numa_nodes)
            )
            in_order += far
        return first_per_switch(in_order) if self.requests[kind].apart else in_order


def _switches_of(devices: Iterable[Candidate]) -> set[str]:
    return {candidate.device.pcie for candidate in devices if candidate.device.pcie}
