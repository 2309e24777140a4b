"""Last-level cache and memory bandwidth: a group in the processor for each class, and for each pod that requests one.

    cache  ways = bits of the root mask, which must be ones from bit 0; from ceil(ways * start %) to ceil(ways * end %)
           mask = 2^end - 2^start in hexadecimal; 0 <= start < end <= 100
    MB     Intel: percent, up to the next 10; AMD: 160 * percent // 100, all of it is 2048

Groups LSR (with LSE), LS and BE exist while their class is on. A pod's annotation `node.koordinator.sh/resctrl`
({"llc": {"schemata": {"range": [0, 30]}}, "mb": {"schemata": {"percent": 20}}}, and `schemataPerCache` for single
domains) creates its own group if the node's settings allow it: a processor has few groups. An annotation or a range
that is invalid or has no bits is reported and ignored. Not verified on hardware. Source: Koordinator's koordlet,
`resctrl`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.kubernetes.protocol import RESCTRL_ANNOTATION
from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import (
    Observation,
    PodReading,
    PodSpec,
    ResctrlGroup,
    ResctrlReading,
    Stateless,
    Step,
    StrategyPlan,
    Surface,
    SurfaceWant,
    Verdict,
    text_of,
)
from cotenant.enforcer.decide.overrides import class_of, live, unreadable
from cotenant.enforcer.model.node_policy import NodePolicy, ResctrlQos

NAME: Final = "resctrl"
POD_PREFIX: Final = "koordlet-"
UNSUPPORTED: Final = "ResctrlUnsupported"
NO_MASK: Final = "CacheRangeEmpty"
_GROUPS: Final = {QosClass.LSR: "LSR", QosClass.LSE: "LSR", QosClass.LS: "LS", QosClass.BE: "BE"}
AMD_WHOLE: Final = 2048
AMD_SCALE: Final = 160


class _Share(msgspec.Struct, frozen=True):
    percent: int | None = None
    range: tuple[int, int] | None = None


class _CacheShare(_Share, frozen=True, kw_only=True):
    cacheid: int


class _Part(msgspec.Struct, frozen=True):
    schemata: _Share = _Share()
    per_cache: tuple[_CacheShare, ...] = msgspec.field(default=(), name="schemataPerCache")


class _Annotation(msgspec.Struct, frozen=True):
    llc: _Part | None = None
    mb: _Part | None = None


@dataclass(frozen=True, slots=True)
class Resctrl(Stateless):
    """The strategy that limits cache and memory bandwidth; `pod_groups`: whether pods may request their own groups."""

    pod_groups: bool = True
    name: str = NAME

    def step(self, observation: Observation, policy: NodePolicy, state: None) -> Step[None]:
        """Return a group for each enabled class, and one for each pod whose annotation requests its own group.

        A pod with a group of its own is not in the group of its class.
        """
        offers = observation.node.resctrl
        classes = {name: policy.classes.of(qos).resctrl_qos for qos, name in _GROUPS.items()}
        enabled = {name: qos for name, qos in classes.items() if qos.enable}
        pods = [p for p in observation.pods if live(p.spec)]
        own = [p for p in pods if self.pod_groups and RESCTRL_ANNOTATION in p.spec.annotations]
        if offers is None:
            node = observation.node.name
            why = "the policy limits cache and memory bandwidth, but this machine has no resctrl"
            unsupported = Verdict(node, UNSUPPORTED, f"{node}: {why}")
            return Step(StrategyPlan(verdicts=(unsupported,) if enabled or own else ()), state)
        groups, verdicts = dict[str, ResctrlGroup](), list[Verdict]()
        for pod in own:
            try:
                lines = pod_schemata(pod.spec, offers)
            except UNDECODABLE as bad:
                verdicts.append(unreadable(pod.spec, RESCTRL_ANNOTATION, bad))
                continue
            if lines:
                groups[POD_PREFIX + pod.spec.uid] = ResctrlGroup(lines, _cgroups([pod]))
            else:
                message = f"{pod.spec.key}: annotation {RESCTRL_ANNOTATION} gives the pod no cache and no bandwidth"
                verdicts.append(Verdict(pod.spec.key, NO_MASK, message, warning=True))
        alone = {p.spec.uid for p in own if POD_PREFIX + p.spec.uid in groups}
        for name, qos in enabled.items():
            lines = class_schemata(qos, offers)
            if not lines:
                span = f"{qos.cat_range_start_percent} to {qos.cat_range_end_percent} %"
                message = f"class {name}: {span} of the cache contains no cache way; no group is created"
                verdicts.append(Verdict(name, NO_MASK, message, warning=True))
                continue
            members = (p for p in pods if _GROUPS.get(class_of(p.spec)) == name and p.spec.uid not in alone)
            groups[name] = ResctrlGroup(lines, _cgroups(members))
        wants = tuple(
            SurfaceWant(Surface.RESCTRL, name, text_of(group), NAME, "cache and memory bandwidth of a QoS class")
            for name, group in groups.items()
        )
        return Step(StrategyPlan(surfaces=wants, verdicts=tuple(verdicts)), state)


def cache_mask(root_mask: int, start_percent: int, end_percent: int) -> int:
    """Return the bit mask of the cache ways from start_percent to end_percent, both rounded up to whole ways.

    `root_mask` has all ways of the machine. Returns 0 for an empty or reversed range, and for a root mask with a gap.
    """
    ways = root_mask.bit_length()
    if root_mask != (1 << ways) - 1 or not 0 <= start_percent < end_percent <= 100:
        return 0
    start, end = (-(-ways * percent // 100) for percent in (start_percent, end_percent))
    return (1 << end) - (1 << start)


def bandwidth(percent: int, amd: bool) -> int:
    """Return the value of an MB line: `percent` rounded up to tens, or in AMD's unit; 0 unless within 1 to 100."""
    if not 0 < percent <= 100:
        return 0
    if amd:
        return AMD_WHOLE if percent == 100 else max(AMD_SCALE * percent // 100, 1)
    return -(-percent // 10) * 10


def class_schemata(qos: ResctrlQos, offers: ResctrlReading) -> tuple[str, ...]:
    """Return the schemata lines of a class's group; () if its range of the cache has no bits."""
    mask = cache_mask(offers.cache_mask, qos.cat_range_start_percent, qos.cat_range_end_percent)
    if offers.cache_ids and not mask:
        return ()
    share = bandwidth(qos.mba_percent, offers.amd)
    masks, shares = dict.fromkeys(offers.cache_ids, mask), dict.fromkeys(offers.bandwidth_ids, share)
    return (*_line("L3", masks, "x"), *_line("MB", shares, "d"))


def _line(resource: str, values: Mapping[int, int], form: str) -> Iterator[str]:
    if any(values.values()):
        yield f"{resource}:" + ";".join(f"{domain}={value:{form}}" for domain, value in values.items() if value)


def pod_schemata(pod: PodSpec, offers: ResctrlReading) -> tuple[str, ...]:
    """Return the schemata lines of a pod's own group; raise DecodeError if the annotation cannot be read."""
    annotation = msgspec.json.decode(pod.annotations[RESCTRL_ANNOTATION], type=_Annotation)
    ranges = {d: s.range or (0, 0) for d, s in _shares(annotation.llc, offers.cache_ids)}
    masks = {d: cache_mask(offers.cache_mask, *bounds) for d, bounds in ranges.items()}
    shares = {d: bandwidth(s.percent or 0, offers.amd) for d, s in _shares(annotation.mb, offers.bandwidth_ids)}
    return (*_line("L3", masks, "x"), *_line("MB", shares, "d"))


def _shares(part: _Part | None, domains: tuple[int, ...]) -> Iterator[tuple[int, _Share]]:
    if part is not None:
        own = {share.cacheid: share for share in part.per_cache}
        yield from ((domain, own.get(domain, part.schemata)) for domain in domains)


def _cgroups(pods: Iterator[PodReading] | list[PodReading]) -> tuple[str, ...]:
    return tuple(c.group.path for pod in pods for c in pod.containers if c.group is not None)
