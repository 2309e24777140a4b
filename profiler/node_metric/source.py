"""EDGE: queries Prometheus for the inputs of NodeMetrics, once per round, for few samples at a time.

The samples of the longest window are kept between rounds, so that a round queries only new minutes. The survey (scrape
interval, namespaces, whether root cgroups are scraped) is renewed every quarter of an hour. A failed query ends the
round with its error: with half a report a pod's usage would count as the system's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

import msgspec
import numpy as np

from cotenant.base.colocation.nodemetric import CollectPolicy
from cotenant.base.errors import NoData
from cotenant.base.kubernetes.moments import APART_SECONDS
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import HOUR_SECONDS, TimeGrid, TimeWindow
from cotenant.profiler.node_metric.questions import ASKED, EXPORTER_CPU, Ask, Scene, queries
from cotenant.profiler.node_metric.status import Observed
from cotenant.profiler.node_metric.windows import Floats, Track
from cotenant.profiler.prometheus import decode, metric_names, questions_in_turn, survey
from cotenant.profiler.prometheus.client import Client
from cotenant.profiler.prometheus.clusters import address, host_of
from cotenant.profiler.prometheus.parts import Rates
from cotenant.profiler.prometheus.plan import NamespaceShard, RangeQuery
from cotenant.profiler.prometheus.promql import metric_name_matcher, of_labels, selector
from cotenant.profiler.prometheus.sampling import intervals
from cotenant.profiler.settings import PrometheusSettings

SURVEY_SECONDS: Final = 900
NODE_INFO: Final = "kube_node_info"
_SCALES: Final = {Resource.CPU: 1000.0, Resource.MEMORY: 1.0}
_NODE_TRACKS: Final = {Resource.CPU: Ask.NODE_CPU, Resource.MEMORY: Ask.NODE_MEMORY}
_SUM_TRACKS: Final = {Resource.CPU: Ask.ALL_PODS_CPU, Resource.MEMORY: Ask.ALL_PODS_MEMORY}
_POD_ASKS: Final = {Resource.CPU: Ask.POD_CPU, Resource.MEMORY: Ask.POD_MEMORY}


class _Piece(NamedTuple):
    """The series in one answer, or in a part of a split one: values (series, samples) from `start_seconds` on."""

    labels: tuple[decode.Labels, ...]
    values: Floats
    start_seconds: int


_Answers = dict[Ask, list[_Piece]]


class NodeMetricSource:
    """Queries the present usage of all nodes and pods; not thread-safe."""

    def __init__(self, settings: PrometheusSettings, *, compares_clocks: bool = False) -> None:
        self._settings, self._compares_clocks = settings, compares_clocks
        self._ahead_seconds = 0
        self._client = Client(settings)
        self._scene: Scene | None = None
        self._surveyed_seconds = 0
        self._tracks: dict[Ask, Track] = {}
        self._addresses: dict[str, str] = {}

    @property
    def queries(self) -> int:
        """Number of queries sent so far."""
        return self._client.account.queries

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def observe(self, now_seconds: int, policy: CollectPolicy, addresses: Mapping[str, str]) -> Observed:
        """Return the usage samples of all nodes and of the sums of their pods, and each pod's mean usage, up to now.

        `addresses` maps internal IPs to nodes, in addition to those from kube-state-metrics. Raise SourceError if a
        query fails, SourceUnfit if the server's samples are not those of one cluster, and NoData if it has no sample
        of any node. If the clocks differ, queries use the server's clock, by which samples are timed; the times in
        the result are by the caller's clock.
        """
        # By how many seconds the server's clock, asked now, is ahead of ours; 0 within what clocks differ
        server_seconds = self._client.clock_seconds() if self._compares_clocks else None
        ahead = 0 if server_seconds is None else int(server_seconds - now_seconds)
        ahead = ahead if abs(ahead) > APART_SECONDS else 0
        if abs(ahead - self._ahead_seconds) > APART_SECONDS:  # somebody has set one of the two
            self._tracks, self._scene = {}, None
            self._ahead_seconds = ahead
        now_seconds += self._ahead_seconds
        scene = self._survey(now_seconds)
        addresses = {address(a): node for a, node in {**self._addresses, **addresses}.items()}
        grid = self._grid(scene, now_seconds, policy)
        answers = self._answers(scene, grid, policy)
        for ask in (*_NODE_TRACKS.values(), *_SUM_TRACKS.values()):
            track = _track(answers[ask], grid, addresses, _SCALES[ASKED[ask]])
            previous = self._tracks.get(ask)
            keep = max(policy.longest_seconds, scene.step_seconds)
            fits = previous is not None and previous.step_seconds == track.step_seconds
            self._tracks[ask] = previous.followed_by(track, keep) if previous is not None and fits else track
        newest: dict[str, float] = {}
        for piece in answers[Ask.NODE_TIME]:
            for labels, time in zip(piece.labels, piece.values[:, -1].tolist(), strict=True):
                name = _node(labels, addresses)
                newest[name] = max(newest.get(name, 0.0), time)
        if not newest:
            raise NoData(
                f"{self._client.url} has no recent sample of any node",
                fix=f"Scrape the kubelets' cAdvisor metrics (the root group, id=/) or node_exporter ({EXPORTER_CPU}). "
                "If they are scraped, compare this machine's clock with the Prometheus server's.",
            )
        return Observed(
            {r: self._tracks[ask] for r, ask in _NODE_TRACKS.items()},
            {r: self._tracks[ask] for r, ask in _SUM_TRACKS.items()},
            {node: seconds - self._ahead_seconds for node, seconds in newest.items()},
            *_pods(answers),
            self._ahead_seconds,
        )

    def _survey(self, now_seconds: int) -> Scene:
        """Return the facts about the server, which are queried again once they are SURVEY_SECONDS old."""
        if self._scene is None or now_seconds - self._surveyed_seconds >= SURVEY_SECONDS:
            window = TimeWindow(now_seconds - HOUR_SECONDS, now_seconds)
            names = metric_names.present(self._client, {}, window, (NODE_INFO, EXPORTER_CPU))
            # at both ends of the hour: one moment does not tell a cluster without a label from a label that is new
            text, moments = survey.question(self._settings.labels, names), survey.moments(*window)
            series = decode.decode_series(self._client.range(text, moments[0], moments[-1], moments.step))
            survey.refuse_unfit(series, self._client.describe())
            server = survey.findings(series, names, self._settings.scrape_interval_seconds)
            if not self._settings.scrape_interval_seconds:
                text = intervals.question(self._settings.labels, NamespaceShard())
                timed = decode.decode_timed_series(self._client.range(text, now_seconds, now_seconds, 1))
                by_hour = intervals.with_slow(intervals.by_hour([timed]), {})
                counts = {interval for hour in by_hour.values() for interval in hour}
                spans = (intervals.RateSpan(*window, Rates.of(counts)),) if counts else ()
                server = replace(server, spans=spans)
            self._scene = Scene(server, self._settings)
            addresses: dict[str, str] = {}
            if NODE_INFO in names:
                text = selector((metric_name_matcher(NODE_INFO), *of_labels(self._settings.labels)))
                series = decode.decode_series(self._client.range(text, now_seconds, now_seconds, 1))
                usable = (labels for labels, _ in series if {"internal_ip", "node"} <= labels.keys())
                addresses = {labels["internal_ip"]: labels["node"] for labels in usable}
            self._addresses, self._surveyed_seconds = addresses, now_seconds
        return self._scene

    def _grid(self, scene: Scene, now_seconds: int, policy: CollectPolicy) -> TimeGrid:
        """Return the samples to query: those since the last round plus one for late samples; all of them at first."""
        step = scene.step_seconds
        end = now_seconds // step * step
        size = max(1, policy.longest_seconds // step)
        previous = self._tracks.get(Ask.NODE_CPU)
        if previous is not None and previous.step_seconds == step and previous.values.shape[1] >= size:
            size = min(size, max(1, (end - previous.end_seconds) // step) + 1)
        return TimeGrid(end - size * step, step, size)

    def _answers(self, scene: Scene, grid: TimeGrid, policy: CollectPolicy) -> _Answers:
        asks = list(queries(scene, grid, policy.aggregate_seconds))
        out: _Answers = defaultdict(list)
        answered = questions_in_turn.ask_all(self._client, [q for _, q in asks], self._settings.in_flight, _read)
        for (ask, _), answer in zip(asks, answered, strict=True):
            for _, error in answer.failed:
                raise error
            out[ask] += answer.found
        return out


def _read(result: msgspec.Raw, query: RangeQuery) -> _Piece:
    samples = decode.samples(result, query)
    return _Piece(samples.labels, samples.values, query.grid.start_seconds)


def _node(labels: decode.Labels, addresses: Mapping[str, str]) -> str:
    host = host_of(labels.instance)
    return labels.node or addresses.get(host, host)


def _track(pieces: list[_Piece], grid: TimeGrid, addresses: Mapping[str, str], scale: float) -> Track:
    """Return one row per node: the maximum of its series."""
    node_names = [[_node(x, addresses) for x in piece.labels] for piece in pieces]
    nodes = tuple(sorted({n for names in node_names for n in names}))
    row = {node: i for i, node in enumerate(nodes)}
    values = np.full((len(nodes), grid.size), np.nan)
    for names, piece in zip(node_names, pieces, strict=True):
        first = grid.index_of(piece.start_seconds)
        part = values[:, first : first + piece.values.shape[1]]
        np.fmax.at(part, np.array([row[n] for n in names], dtype=np.intp), piece.values * scale)
    return Track(nodes, grid.end_seconds, grid.step_seconds, values)


def _pods(answers: _Answers) -> tuple[tuple[tuple[str, str], ...], dict[Resource, Floats]]:
    by_resource = {
        r: {
            (labels.namespace, labels.pod): value
            for piece in answers[ask]
            for labels, value in zip(piece.labels, (piece.values[:, -1] * _SCALES[r]).tolist(), strict=True)
        }
        for r, ask in _POD_ASKS.items()
    }
    names = tuple(dict.fromkeys(key for some in by_resource.values() for key in some))
    return names, {
        r: np.array([some.get(n, np.nan) for n in names], dtype=np.float64) for r, some in by_resource.items()
    }
