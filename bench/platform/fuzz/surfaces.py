"""Who reads documents that somebody else writes: each reader with its documents, called as its program calls it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

import msgspec

from bench.admission.webhook_reviews import review, view
from bench.platform.fuzz import admitted, seeds
from bench.platform.fuzz.admitted import Admits
from bench.platform.fuzz.mutations import encoded, mutated, mutated_bytes, mutated_text, pick
from cotenant.admission.namespace_limits.demands import demands_of_quota, demands_of_range
from cotenant.admission.profile import Profile
from cotenant.admission.review import ROUTES, ReviewContext, answer
from cotenant.autopilot.decide.policy import read_policy
from cotenant.base.allocation.cpu_annotations import assignment_of, wish_of
from cotenant.base.allocation.device_request import demand_of
from cotenant.base.colocation.nodemetric import NodeMetric
from cotenant.base.controllers.watched import watched_node, watched_pod
from cotenant.base.errors import CotenantError
from cotenant.base.http.http_connection import Request
from cotenant.base.json_documents.json_decoders import decoder_of
from cotenant.base.kubernetes.models.node import ManagedNodeWire, NodeWire, QueueNodeWire, SchedulableNode
from cotenant.base.kubernetes.models.pod import NodePodWire, ObservedPodWire, PodWire, QueuePodWire
from cotenant.base.kubernetes.pod_identity import PodIdentity
from cotenant.base.kubernetes.quota_tree import QuotaNode
from cotenant.base.logs.metrics import Metrics
from cotenant.base.process.clock import FixedClock
from cotenant.base.settings.document import parse as parse_settings
from cotenant.base.settings.load import join
from cotenant.base.tables import filters
from cotenant.base.usage.usage import TimeGrid
from cotenant.enforcer.runtime.nri.ttrpc import BrokenStream, Trunk
from cotenant.enforcer.sources import documents
from cotenant.enforcer.sources.wire import node_of as agent_node_of
from cotenant.enforcer.sources.wire import pod_of as agent_pod_of
from cotenant.profiler.prometheus import decode
from cotenant.profiler.prometheus.parts import Rates, hourly_parts, usage_parts
from cotenant.profiler.prometheus.plan import RangeQuery
from cotenant.profiler.recorder.exposition import parse_resource_metrics, parse_throttled_time
from cotenant.profiler.recorder.pod_records import RecordedNode, RecordedPod
from cotenant.recommender.colocation.model.slo_config import SloConfig
from cotenant.recommender.colocation.zones import Topology
from cotenant.recommender.model.views import RECOMMENDATIONS
from cotenant.recommender.strategies.cotenant import annotations as wishes
from cotenant.scheduler_ext.extender.metric import NodeMetricWire, metric_of
from cotenant.scheduler_ext.extender.metric import node_of as schedulable_node_of
from cotenant.scheduler_ext.extender.pod import facts_of
from cotenant.scheduler_ext.extender.serve.app import ExtenderApp, ExtenderDependencies
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from cotenant.scheduler_ext.extender.watch.feed import SnapshotFeed
from cotenant.scheduler_ext.queues.model.gang import NativeGroup, gang_of_pod, gang_of_pod_group
from cotenant.scheduler_ext.queues.queue_objects import queue_node, queue_pod
from cotenant.scheduler_ext.queues.view import QuotaProfile
from cotenant.scheduler_ext.rebalance.cluster_reading import BudgetWire, budget_of
from cotenant.scheduler_ext.rebalance.load import pod_of as rebalance_pod_of
from cotenant.scheduler_ext.rebalance.migration.job import MigrationJob
from cotenant.scheduler_ext.reservations.model.plan_wire import parse_plan
from cotenant.scheduler_ext.reservations.model.reservation import Reservation, affinity_of
from cotenant.scheduler_ext.reservations.view import PodView
from cotenant.settings import Settings

Read = Callable[[Random], None]
"""Draws one input and reads it; what it raises besides `DOCUMENTED` is a fault."""
DOCUMENTED: Final = (CotenantError, msgspec.MsgspecError, BrokenStream)
"""Errors with words for a person, which the readers' callers take."""
_TRIES: Final = 4
"""Mutations until the server admits one; then the object as it was written is read."""
_LOAD: Final = ExtenderSettings().load_aware
_QUERY: Final = RangeQuery(
    (*usage_parts(Rates(60), {}, rule=False), *hourly_parts(Rates(60), {})),
    TimeGrid.from_span(1795046400, 1795050000, 300),
)


@dataclass(frozen=True, slots=True)
class Surface:
    """A place where inputs come in. part: of the inputs of another one, where reading takes long.

    written: a document as its author writes it, None where inputs are no JSON; take: reads another one in its place.
    """

    name: str
    read: Read
    part: float = 1.0
    written: Any = None
    take: Callable[[Any], object] = id
    admits: Admits = admitted.any_object


def mirrored(
    name: str, kind: Any, project: Callable[[Any], Any], written: Any, admits: Admits = admitted.any_object
) -> Surface:
    """A collection of the API server that a program keeps up to date; of its objects those that the server admits."""
    decoder = decoder_of(kind)

    def take(document: Any) -> None:
        project(decoder.decode(encoded(document)))

    def read(draw: Random) -> None:
        for _ in range(_TRIES):
            document = mutated(written, draw)
            if admits(document):
                break
        else:
            document = written
        take(document)

    return Surface(f"object: {name}", read, written=written, take=take, admits=admits)


def _reviewed(draw: Random) -> None:
    path, body = review(draw)
    if draw.random() < 0.5:
        body = mutated_bytes(body, draw)
    elif draw.random() < 0.8:
        body = _created(mutated(pick(_REVIEWED, draw), draw))
    _answered(path, body)


def _created(document: Any) -> bytes:
    request = {"uid": "u", "operation": "CREATE", "namespace": "shop", "object": document}
    return encoded({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


def _admitted_everywhere(document: Any) -> None:
    for path in ROUTES:
        _answered(path, _created(document))


def _answered(path: str, body: bytes) -> None:
    place = ("koordinator-system", "slo-controller-config")
    response = answer(path, body, ReviewContext(_VIEW, 1e9, config_place=place))
    if response.status not in (200, 400):
        raise AssertionError(f"status {response.status}")


_REVIEWED: Final = (seeds.POD, seeds.QUOTA, seeds.PROFILE)
_VIEW: Final = view(Random(1))


def _extender() -> tuple[Read, Callable[[Any], None]]:
    parts = ExtenderDependencies(SnapshotFeed(), ExtenderSettings(), FixedClock(1795046400), Metrics("fuzz", "3"))
    app = ExtenderApp(parts)
    question = {"Pod": seeds.POD, "NodeNames": ["n1", "n2"], "Nodes": {"items": [seeds.NODE]}}
    preempted = {"Pod": seeds.POD, "NodeNameToVictims": {"n1": {"Pods": [seeds.POD], "NumPDBViolations": 0}}}

    def ask(path: str, body: bytes) -> None:
        response = app.answer(Request("POST", path, {}, body, last=False))
        if response.status not in (200, 400):
            raise AssertionError(f"{path}: status {response.status}")

    def read(draw: Random) -> None:
        path = draw.choice(("/filter", "/prioritize", "/preempt", "/bind", "/why"))
        body = encoded(mutated(preempted if path == "/preempt" else question, draw))
        ask(path, mutated_bytes(body, draw) if draw.random() < 0.2 else body)

    def take(pod: Any) -> None:
        for path in ("/filter", "/prioritize"):
            ask(path, encoded({**question, "Pod": pod}))

    return read, take


def _annotations(draw: Random) -> None:
    """A pod's annotations, as scheduler, queues and recommender read them."""
    _read_annotations(mutated(seeds.POD, draw))


def _read_annotations(pod: Any) -> None:
    metadata = pod.get("metadata") if isinstance(pod, dict) else None
    texts = metadata.get("annotations") if isinstance(metadata, dict) else None
    own = {str(k): v for k, v in texts.items() if isinstance(v, str)} if isinstance(texts, dict) else {}
    for read in (
        partial(wish_of, own, "p"),
        partial(assignment_of, own, "p"),
        partial(demand_of, {"koordinator.sh/gpu-core": 50, "koordinator.sh/gpu-memory-ratio": 50}, own),
        partial(gang_of_pod, "shop", "p", {}, own),
        partial(wishes.parse, own),
        partial(affinity_of, PodIdentity("shop", "p", annotations=own)),
    ):
        try:
            read()
        except DOCUMENTED:
            continue


def _slo_config(draw: Random) -> None:
    """The ConfigMap of strategies: what it cannot use is a finding, and the keys before it stay."""
    chosen = mutated(seeds.SLO_CONFIG, draw)
    if isinstance(chosen, dict):
        data = _data(chosen)
        key = draw.choice(list(data) or [""])
        if draw.random() < 0.3 and key:
            data[key] = mutated_text(data[key], draw)
        SloConfig().updated(data)


def _policy_file(draw: Random) -> None:
    document = seeds.NODE_SLO if draw.random() < 0.7 else seeds.NODE_SLO["spec"]
    text = encoded(mutated(document, draw)).decode("utf-8", "replace")
    documents.policy_of(mutated_text(text, draw) if draw.random() < 0.3 else text, "policy.yaml")


def _inventory_file(draw: Random) -> None:
    text = encoded(mutated({"kind": "List", "items": [seeds.POD, seeds.NODE]}, draw)).decode("utf-8", "replace")
    documents.inventory_of(mutated_text(text, draw) if draw.random() < 0.2 else text, "pods.yaml")


def _prometheus(draw: Random) -> None:
    body = encoded(mutated(seeds.MATRIX, draw))
    _answers(msgspec.Raw(mutated_bytes(body, draw) if draw.random() < 0.3 else body), draw.randrange(5))


def _answers(raw: msgspec.Raw, reader: int) -> None:
    readers = (decode.decode_series, decode.decode_timed_series, decode.latest, decode.raw_values)
    if reader < len(readers):
        readers[reader](raw)
        return
    decode.usages(_QUERY, decode.samples(raw, _QUERY), {"n1:10250": "n1"}, 2)


def _every_answer(matrix: Any) -> None:
    for reader in range(5):
        with suppress(*DOCUMENTED):
            _answers(msgspec.Raw(encoded(matrix)), reader)


def _data(config: Any) -> dict[str, str]:
    return {str(key): encoded(value).decode("utf-8", "replace") for key, value in config.items()}


def _label_values(draw: Random) -> None:
    body = encoded(mutated([["a", "b"], [{"namespace": "shop", "pod": "p"}]][draw.randrange(2)], draw))
    draw.choice((decode.texts, decode.label_sets))(msgspec.Raw(body))


def _kubelet(draw: Random) -> None:
    text = mutated_bytes(seeds.KUBELET_METRICS, draw)
    parse_resource_metrics(text)
    parse_throttled_time(text)


def _settings(draw: Random) -> None:
    tree = parse_settings(mutated_text(seeds.SETTINGS, draw), "cotenant.yaml")
    join(Settings(), tree, {}, {})


def _environment(draw: Random) -> None:
    name, value = (
        draw.choice(("PROFILER__WINDOW_DAYS", "RECLAIM__X", "PROFILER__PROMETHEUS__URL")),
        mutated_text("14", draw),
    )
    join(Settings(), parse_settings("{}", "x"), {f"COTENANT_{name}": value}, {})


def _filter(draw: Random) -> None:
    filters.parse(mutated_text(seeds.FILTER, draw), RECOMMENDATIONS)


def _ttrpc(draw: Random) -> None:
    frame = (9).to_bytes(4, "big") + (1).to_bytes(4, "big") + bytes([1, 0]) + b"\x0a\x03abc\x12\x02de"
    Trunk().feed(mutated_bytes(frame * 2, draw))


_EXTENDER: Final = _extender()
SURFACES: Final = (
    Surface(
        *("webhooks", _reviewed, 1.0, seeds.POD),
        _admitted_everywhere,
    ),
    Surface("extender", *(_EXTENDER[0], 1.0, seeds.POD, _EXTENDER[1])),
    Surface("annotations of pods", _annotations, 1.0, seeds.POD, _read_annotations),
    Surface(
        *("slo-controller-config", _slo_config, 1.0, seeds.SLO_CONFIG),
        lambda config: SloConfig().updated(_data(config)),
    ),
    Surface("node agent: policy file", _policy_file),
    Surface("node agent: pods file", _inventory_file, 0.1),
    Surface("Prometheus: matrices", _prometheus, 1.0, seeds.MATRIX, _every_answer),
    Surface("Prometheus: names and series", _label_values),
    Surface("kubelet: /metrics/resource", _kubelet),
    Surface("settings: file", _settings, 0.1),
    Surface("settings: environment", _environment, 0.1),
    Surface("filters of pages, REST and commands", _filter),
    Surface("NRI: ttrpc frames", _ttrpc),
    mirrored("pods of the node agent", NodePodWire, agent_pod_of, seeds.POD),
    mirrored("node of the node agent", NodeWire, agent_node_of, seeds.NODE),
    mirrored("pods of the manager", ObservedPodWire, watched_pod, seeds.POD),
    mirrored("nodes of the manager", ManagedNodeWire, watched_node, seeds.NODE),
    mirrored("pods of the extender", PodWire, lambda w: facts_of(w, _LOAD), seeds.POD),
    mirrored("nodes of the extender", SchedulableNode, schedulable_node_of, seeds.NODE),
    mirrored("NodeMetrics of the extender", NodeMetricWire, metric_of, seeds.NODE_METRIC),
    mirrored("NodeMetrics of the manager", dict[str, Any], NodeMetric.parse, seeds.NODE_METRIC),
    mirrored("pods of the queues", QueuePodWire, queue_pod, seeds.POD),
    mirrored("nodes of the queues", QueueNodeWire, queue_node, seeds.NODE),
    mirrored("pods of Rebalance", msgspec.Raw, partial(rebalance_pod_of, settings=_LOAD), seeds.POD, admitted.pod),
    mirrored("pods of reservations", dict[str, Any], PodView.parse, seeds.POD, admitted.pod),
    mirrored("pods of the recorder", RecordedPod, lambda pod: pod, seeds.POD),
    mirrored("nodes of the recorder", RecordedNode, lambda node: node, seeds.NODE),
    mirrored(
        *("Reservations", dict[str, Any], Reservation.parse, seeds.RESERVATION, admitted.by_definition("reservations"))
    ),
    mirrored("standby pods", dict[str, Any], Reservation.of_pod, seeds.POD, admitted.pod),
    mirrored("ReservationPlans", dict[str, Any], parse_plan, seeds.PLAN, admitted.by_definition("reservationplans")),
    mirrored("ElasticQuotas", dict[str, Any], QuotaNode.parse, seeds.QUOTA),
    mirrored(
        *("ElasticQuotaProfiles", dict[str, Any], QuotaProfile.parse, seeds.QUOTA_PROFILE),
        admitted.by_definition("elasticquotaprofiles"),
    ),
    mirrored("PodGroups", dict[str, Any], gang_of_pod_group, seeds.POD_GROUP, admitted.by_definition("podgroups")),
    mirrored("PodGroups of Kubernetes", dict[str, Any], NativeGroup.parse, seeds.NATIVE_GROUP, admitted.native_group),
    mirrored(
        *("PodMigrationJobs", dict[str, Any], MigrationJob.parse, seeds.MIGRATION_JOB),
        admitted.by_definition("podmigrationjobs"),
    ),
    mirrored("PodDisruptionBudgets", BudgetWire, budget_of, seeds.BUDGET),
    mirrored(
        *("AutopilotPolicies", dict[str, Any], read_policy, seeds.POLICY, admitted.by_definition("autopilotpolicies"))
    ),
    mirrored("ClusterColocationProfiles", dict[str, Any], Profile.parse, seeds.PROFILE),
    mirrored("LimitRanges", dict[str, Any], demands_of_range, seeds.LIMIT_RANGE),
    mirrored("ResourceQuotas", dict[str, Any], demands_of_quota, seeds.RESOURCE_QUOTA, admitted.resource_quota),
    mirrored("NodeResourceTopologies", dict[str, Any], Topology.parse, seeds.TOPOLOGY, admitted.topology),
)
