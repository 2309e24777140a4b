"""A pod as the extender uses it: decoded from the API's JSON, with the usage that LoadAware estimates. Pure.

The same type serves for a pod that the scheduler asks about, a running pod, and a pod in a file. Source of the
estimate: Koordinator's default estimator (larger of limit and request times a factor, at most the limit).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from cotenant.base.allocation.device_request import shared_resources_of
from cotenant.base.colocation.reclaim_policies import Band
from cotenant.base.errors import CotenantError
from cotenant.base.json_documents.json_decoders import readable_object
from cotenant.base.kubernetes.models.pod import PodCondition, PodSpecWire, PodStatusWire, PodWire
from cotenant.base.kubernetes.pod_identity import PodIdentity, Reference, is_placeholder
from cotenant.base.kubernetes.pod_qos import PodQos
from cotenant.base.kubernetes.pod_resources import counted_limits, counted_requests
from cotenant.base.kubernetes.pod_wire import RESIZE_IN_PROGRESS, RESIZE_PENDING, parse_amounts, pod_resources
from cotenant.base.kubernetes.protocol import (
    BIND_RESOURCE,
    ENDED_PHASES,
    EXTENDED_RESOURCES,
    PREDICTED_USAGE_ANNOTATION,
    RESERVATION_LABEL,
    RUN_SECONDS_ANNOTATION,
)
from cotenant.base.kubernetes.qos import (
    PRIORITY_CLASS_LABEL,
    QOS_LABEL,
    PriorityClass,
    priority_of,
    qos_of,
    with_default,
)
from cotenant.base.kubernetes.quantity import parse_amount
from cotenant.base.resource import MIB, Resource
from cotenant.scheduler_ext.extender.settings import LoadAwareSettings

RESOURCES: Final = (Resource.CPU, Resource.MEMORY)  # order of every pair of amounts: (millicores, bytes)
Pair = tuple[float, float]

SCALING_FACTORS_ANNOTATION: Final = "scheduling.koordinator.sh/load-estimated-scaling-factors"
AFTER_SCHEDULED_ANNOTATION: Final = "scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled"
AFTER_INITIALIZED_ANNOTATION: Final = "scheduling.koordinator.sh/load-estimated-seconds-after-initialized"

_UNASKED: Final = {Resource.CPU: 250, Resource.MEMORY: 200 * MIB}
"""What a pod without requests counts with (Koordinator's default estimator)."""
_BANDS: Final = {PriorityClass.BATCH: Band.BATCH, PriorityClass.MID: Band.MID}
_BATCH: Final = tuple(EXTENDED_RESOURCES[Band.BATCH, r] for r in RESOURCES)
_OF_RESIZES: Final = (RESIZE_PENDING, RESIZE_IN_PROGRESS)
_PREFERS: Final = b'"preferredDuringScheduling'
_IF_POSSIBLE: Final = b'"ScheduleAnyway"'
_SPREAD: Final = ("ReplicaSet", "StatefulSet", "ReplicationController")
"""Kinds of owners whose pods PodTopologySpread's default constraints spread."""


class _Amounts(msgspec.Struct):
    """The parts of a pod that determine its amounts."""

    spec: PodSpecWire
    status: PodStatusWire


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(_Amounts)


@dataclass(frozen=True, slots=True)
class NewPod:
    """The facts about a pod that the rules use; pairs are (millicores, bytes).

    `estimate` is the usage that LoadAware expects, which counts at least until `young_until` (Unix time); `predicted`
    is the pod's own forecast, else the estimate. `run_seconds` is the expected run time, infinity if unlimited;
    `assigned_seconds` is the Unix time of placement, None before it. A `choosy` pod has preferences among nodes, a
    `replica` belongs to a set that is spread over zones by default; `unread` says why its amounts are unreadable.
    """

    identity: PodIdentity
    node: str = ""
    priority_class: PriorityClass = PriorityClass.NONE
    daemon: bool = False
    requests: Mapping[str, int] = field(default_factory=dict)
    estimate: Pair = (0.0, 0.0)
    predicted: Pair = (0.0, 0.0)
    run_seconds: float = math.inf
    assigned_seconds: float | None = None
    young_until: float | None = None
    ended: bool = False
    choosy: bool = False
    replica: bool = False
    placeholder_of: str | None = None
    unread: str = ""

    @property
    def key(self) -> str:
        """The pod's NAMESPACE/NAME."""
        return f"{self.identity.namespace}/{self.identity.name}"

    @property
    def prod(self) -> bool:
        """True if the pod's priority class is prod, so that prod thresholds apply."""
        return self.priority_class is PriorityClass.PROD

    @property
    def reclaimer(self) -> bool:
        """True if the pod uses reclaimed capacity."""
        return self.priority_class.is_reclaimer

    @property
    def wants_bind(self) -> bool:
        """True if the pod requests binding by cotenant, or shares of devices, which only cotenant assigns."""
        return BIND_RESOURCE in self.requests or bool(shared_resources_of(self.requests))


def facts_of(wire: PodWire, settings: LoadAwareSettings) -> NewPod:
    """Return a pod's facts; if its amounts cannot be read, estimates are zero and `unread` says why."""
    meta, spec = wire.metadata, wire.spec
    labels, annotations = meta.labels or {}, meta.annotations or {}
    owners = tuple(
        Reference(o.kind, o.name, meta.namespace, o.uid, o.api_version, o.controller)
        for o in meta.owner_references or ()
    )
    identity = PodIdentity(meta.namespace, meta.name or meta.generate_name, meta.uid, labels, annotations, owners)
    assigned, initialized = wire.status.true_since("PodScheduled"), wire.status.true_since("Initialized")
    placeholder_of = labels.get(RESERVATION_LABEL, "") if is_placeholder(meta.namespace, labels) else None
    weight, unread = _Weight(), ""
    try:
        weight = _weight_of(wire, labels, annotations, settings)
    except CotenantError as error:
        unread = error.message
    # a bound placeholder reserves capacity and uses none; before that it stands for its owner
    silent = bool(unread or (placeholder_of is not None and spec.node_name))
    annotated_seconds = _seconds(annotations.get(RUN_SECONDS_ANNOTATION, ""))
    candidates = [float(x) for x in (annotated_seconds, spec.active_deadline_seconds) if x]
    return NewPod(
        identity=identity,
        node=spec.node_name,
        priority_class=weight.priority_class,
        daemon=any(o.kind == "DaemonSet" for o in owners),
        requests=weight.requests,
        estimate=(0.0, 0.0) if silent else weight.estimate,
        predicted=(0.0, 0.0) if silent else _predicted_usage(annotations) or weight.estimate,
        run_seconds=min(candidates, default=math.inf),
        assigned_seconds=assigned,
        young_until=_young_until(annotations, assigned, initialized, settings),
        ended=wire.status.phase in ENDED_PHASES,
        choosy=_PREFERS in bytes(spec.affinity) or _IF_POSSIBLE in bytes(spec.topology_spread_constraints),
        replica=any(o.controlling and o.kind in _SPREAD for o in owners),
        placeholder_of=placeholder_of,
        unread=unread,
    )


class _Weight(NamedTuple):
    """The values derived from a pod's amounts and class."""

    requests: Mapping[str, int] = MappingProxyType({})
    priority_class: PriorityClass = PriorityClass.NONE
    estimate: Pair = (0.0, 0.0)


def _weight_of(
    wire: PodWire, labels: Mapping[str, str], annotations: Mapping[str, str], settings: LoadAwareSettings
) -> _Weight:
    """Return the pod's weight, computed once for equal pods; raise CotenantError for unreadable requests."""
    spec, status, factors = wire.spec, wire.status, factors_of(annotations, settings)
    # The fields that decide about the pod's amounts and no others, so that pods that ask for the same are one key.
    conditions = [PodCondition(c.type, "", c.reason) for c in status.conditions or () if c.type in _OF_RESIZES]
    amounts = _Amounts(
        PodSpecWire(spec.containers, spec.init_containers, None, spec.overhead, spec.resources),
        PodStatusWire(
            conditions or None,
            status.container_statuses,
            status.init_container_statuses,
            status.resources,
            status.allocated_resources,
        ),
    )
    kind = (labels.get(QOS_LABEL), labels.get(PRIORITY_CLASS_LABEL), spec.priority, status.qos_class)
    percents = tuple(factors[r] for r in RESOURCES)
    try:
        return _cached_weight(_ENCODER.encode(amounts), kind, percents)
    except OverflowError:  # an amount beyond 64 bits, which Kubernetes caps and MessagePack does not have
        return _compute_weight(amounts, kind, percents)
    except CotenantError:
        # again, so that the error names this pod
        meta = wire.metadata
        _effective_resources(amounts, f"pod {meta.namespace}/{meta.name or meta.generate_name}")
        raise


def class_of(
    labels: Mapping[str, str], priority: int | None, kube_qos: str, amounts: Mapping[str, int]
) -> PriorityClass:
    """Return Koordinator's priority class: the pod's own, else by its QoS label, else by Kubernetes' QoS class.

    `kube_qos` is status.qosClass, "" before it is set; then a pod without cpu and memory is BestEffort.
    """
    best_effort = kube_qos == PodQos.BEST_EFFORT if kube_qos else not any(amounts.get(r.value) for r in RESOURCES)
    priority_class = with_default(qos_of(labels), priority_of(labels, priority), best_effort=best_effort)
    return PriorityClass.PROD if priority_class is PriorityClass.NONE else priority_class


def estimate_of(
    priority: PriorityClass, requests: Mapping[str, int], limits: Mapping[str, int], factors: Mapping[Resource, int]
) -> Pair:
    """Return the usage that LoadAware expects of a pod; `factors` are in percent, 0 counts as no usage.

    That usage is the larger of request and limit, times the factor, at most the limit. A pod without requests and
    limits counts with Koordinator's defaults. Rounding is that of upstream's Go code.
    """
    amounts, band = [0.0, 0.0], _BANDS.get(priority)
    is_plain = priority in (PriorityClass.PROD, PriorityClass.NONE)
    for place, resource in enumerate(RESOURCES):
        factor = factors[resource]
        # under which the pod's class asks for the resource; "" where it has no name for it
        name = resource.value if is_plain else EXTENDED_RESOURCES[band, resource] if band else ""
        limit = limits.get(name, 0)
        amount = max(requests.get(name, 0), limit)
        if factor == 0:
            continue
        if amount == 0:
            amounts[place] = float(_UNASKED[resource]) if name == resource.value or name in _BATCH else 0.0
            continue
        scaled = math.floor(amount * factor / 100 + 0.5)  # Go's math.Round for what is not negative
        amounts[place] = float(min(scaled, limit) if limit > 0 else scaled)
    cpu, memory = amounts
    return cpu, memory


def factors_of(annotations: Mapping[str, str], settings: LoadAwareSettings) -> Mapping[Resource, int]:
    """Return the factors of usage estimates in percent: the settings', or the pod's own if the settings allow that."""
    defaults = {Resource.CPU: settings.scaling_factors.cpu, Resource.MEMORY: settings.scaling_factors.memory}
    if not settings.customised_estimation or SCALING_FACTORS_ANNOTATION not in annotations:
        return defaults
    own = readable_object(annotations[SCALING_FACTORS_ANNOTATION])
    return {r: own[r.value] if isinstance(own.get(r.value), int) else factor for r, factor in defaults.items()}


_Kind = tuple[str | None, str | None, int | None, str]
"""(QoS and priority class labels, spec.priority, status.qosClass) of a pod."""


@lru_cache(maxsize=1024)
def _cached_weight(amounts: bytes, kind: _Kind, factors: tuple[int, ...]) -> _Weight:
    return _compute_weight(_DECODER.decode(amounts), kind, factors)


def _compute_weight(amounts: _Amounts, kind: _Kind, factors: tuple[int, ...]) -> _Weight:
    """Compute a pod's weight; `factors` are percent in the order of RESOURCES."""
    requests, limits = _effective_resources(amounts, "pod")
    labelled = zip((QOS_LABEL, PRIORITY_CLASS_LABEL), kind[:2], strict=True)
    labels = {label: text for label, text in labelled if text is not None}
    chosen = class_of(labels, kind[2], kind[3], requests)
    return _Weight(requests, chosen, estimate_of(chosen, requests, limits, dict(zip(RESOURCES, factors, strict=True))))


def _effective_resources(amounts: _Amounts, what: str) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Return the requests and limits with which the pod counts on its node."""
    resources = pod_resources(amounts.spec, amounts.status, what, parse_amounts)
    return counted_requests(resources), counted_limits(resources)


def _young_until(
    annotations: Mapping[str, str], placed: float | None, initialised: float | None, settings: LoadAwareSettings
) -> float | None:
    """Return until when (Unix time) a pod's estimate counts, by its initialisation if known, else its placement."""
    own = settings.customised_estimation
    after_scheduled = _seconds(annotations.get(AFTER_SCHEDULED_ANNOTATION, "")) if own else None
    after_initialized = _seconds(annotations.get(AFTER_INITIALIZED_ANNOTATION, "")) if own else None
    if after_scheduled is None:
        after_scheduled = settings.estimated_seconds_after_scheduled
    if after_initialized is None:
        after_initialized = settings.estimated_seconds_after_initialized
    if after_initialized and initialised is not None:
        return initialised + after_initialized
    if after_scheduled and placed is not None:
        return placed + after_scheduled
    return None


def _seconds(text: str) -> int | None:
    """Return a whole number that is not negative; None for any other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _predicted_usage(annotations: Mapping[str, str]) -> Pair | None:
    """Return the usage that an annotation predicts, (millicores, bytes); None unless it has both."""
    if PREDICTED_USAGE_ANNOTATION not in annotations:  # nearly always
        return None
    usage = readable_object(annotations[PREDICTED_USAGE_ANNOTATION])
    try:
        cpu, memory = (float(parse_amount(r, usage[r.value])) for r in RESOURCES)
    except (KeyError, CotenantError):
        return None
    return cpu, memory
