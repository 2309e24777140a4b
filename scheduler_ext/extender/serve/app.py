"""EDGE: the extender's answers by path, served by `cotenant.base.http.http_connection`.

POST /filter, /prioritize, /preempt, /bind for the scheduler; GET and POST /why for people; GET /healthz, /readyz,
/metrics. An answer uses one snapshot throughout. An internal error is always answered as a failure, which the scheduler
of an ignorable extender skips, never as another valid answer. `Counts` has the metrics.
"""

from __future__ import annotations

import asyncio
import gc
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

import msgspec
import numpy as np
import structlog
from prometheus_client import Counter, Gauge, Histogram

from cotenant.base.http.health import Checks
from cotenant.base.http.http_connection import Request, Response
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.kubernetes.models.pod import PodWire
from cotenant.base.kubernetes.pod_identity import PodIdentity
from cotenant.base.logs.metrics import Metrics
from cotenant.base.process.clock import Clock
from cotenant.scheduler_ext.extender import cpus, decide, devices
from cotenant.scheduler_ext.extender.decide import Instant, Posture, RuleContext
from cotenant.scheduler_ext.extender.judgement_cache import Opinions
from cotenant.scheduler_ext.extender.pod import NewPod, facts_of
from cotenant.scheduler_ext.extender.serve import wire
from cotenant.scheduler_ext.extender.serve.bind import Binder
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from cotenant.scheduler_ext.extender.snapshot import NodeSnapshot
from cotenant.scheduler_ext.extender.watch.feed import SnapshotFeed
from cotenant.scheduler_ext.extender.why import Explanation, PodVerdict, explain_placement

if TYPE_CHECKING:
    from cotenant.base.logs.metrics import Metrics

REMEMBERED: Final = 2_000  # pods whose last refusal is remembered for /why
QUIET_SECONDS: Final = 0.05  # garbage is collected when nobody has asked for so long
STANCE_SECONDS: Final = 0.5
YIELDED_SECONDS: Final = 60.0  # pause between two log records of a rule that has no say in question after question
BUCKETS: Final = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.5, 1.0)
JSON: Final = "application/json"
_PROBES: Final = {"/healthz": "livez", "/livez": "livez", "/readyz": "readyz"}
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ExtenderDependencies:
    """The objects that the extender's application uses; `binder` is None if it binds no pods."""

    view: SnapshotFeed
    settings: ExtenderSettings
    clock: Clock
    metrics: Metrics
    binder: Binder | None = None


class ExtenderApp:
    """The extender as an application of `cotenant.base.http.http_connection`."""

    def __init__(self, parts: ExtenderDependencies) -> None:
        """Store the parts; no request is sent before the first call."""
        self.checks = Checks()
        self.counts = Counts(parts.metrics)
        self._parts, self._settings = parts, parts.settings
        self._last: OrderedDict[str, PodVerdict] = OrderedDict()
        self._known = (("", ""), NewPod(PodIdentity("", "")))
        self._stood = (NodeSnapshot(), 0.0, RuleContext(Posture(), Opinions(parts.settings)))
        self._asked_at = 0.0
        self._load_off = ""
        self._yielded_at: dict[str, float] = {}
        self._verbs: dict[str, Callable[[bytes], bytes]] = {
            "/filter": self._filter,
            "/prioritize": self._prioritize,
            "/preempt": self._preempt,
            "/bind": self._bind,
            "/why": self._why,
        }

    def answer(self, request: Request) -> Response:
        """Answer one request; POST calls (kube-scheduler's and `why`) are counted and timed.

        The end of the call is recorded for `collect_garbage`, which waits for a pause between calls.
        """
        began = perf_counter()
        verb = self._verbs.get(request.path)
        if request.method in ("GET", "HEAD"):
            response = self._answer_get(request)
        elif request.method != "POST" or verb is None:
            response = Response(404, b"not found\n")
        else:
            try:
                response = Response(200, verb(request.body), JSON)
            except UNDECODABLE as error:
                response = Response(400, f"not a request of kube-scheduler: {error}\n".encode("utf-8", "replace"))
            except Exception:  # noqa: BLE001 - the scheduler must get an answer, and one that says failure
                _log.exception("the extender failed", path=request.path)
                response = Response(500, b"the extender failed; its log says why\n")
        self._asked_at = monotonic()
        if request.method == "POST":
            self.counts.answered(request.path, response.status, perf_counter() - began)
        return response

    def asks_elsewhere(self, path: str) -> bool:
        """Return whether the answer to this path needs the API server."""
        return path == "/bind"

    def refused(self, path: str) -> None:
        """Count a request that was rejected without being read."""
        self.counts.answered(path, 400, 0.0)

    async def collect_garbage(self) -> None:
        """Collect garbage between calls, so that no call waits for it; runs until cancelled.

        Objects alive at the start are frozen, and the automatic collector is off. Each second the two young generations
        are collected if no call came for QUIET_SECONDS, or if too many objects wait.
        """
        gc.collect()
        gc.freeze()
        gc.disable()
        try:
            while True:
                await asyncio.sleep(1.0)
                if monotonic() - self._asked_at > QUIET_SECONDS or sum(gc.get_count()) > 100_000:
                    gc.collect(1)
        finally:
            gc.enable()  # a process that goes on without the server collects by itself again

    # --- requests -----------------------------------------------------------------------------------------------------
    def _answer_get(self, request: Request) -> Response:
        if request.path == "/metrics":
            now = self._now()
            snapshot = self._parts.view.snapshot
            self._report_stance(decide.posture(snapshot, now, self._settings))
            self.counts.set_view(len(snapshot.names), snapshot.age_seconds(now.monotonic), bool(self._load_off))
            return Response(200, *self._parts.metrics.exposition())
        if request.path == "/why":
            params = {key: values[0] for key, values in parse_qs(request.query).items()}
            verdict = self._last.get(f"{params.get('namespace', 'default')}/{params.get('name', '')}")
            if verdict is None:
                return Response(404, b"no node was refused to a pod of that name lately\n")
            return Response(200, msgspec.json.encode(verdict), JSON)
        if request.path not in _PROBES:
            return Response(404, b"not found: try /healthz, /readyz, /metrics or /why\n")
        passed, report = self.checks.report(_PROBES[request.path])
        return Response(200 if passed else 503, report.encode("utf-8", "replace"))

    # --- verbs --------------------------------------------------------------------------------------------------------
    def _filter(self, body: bytes) -> bytes:
        """Answer filter: the best of the nodes that pass; if none passes, all refusals with reasons."""
        args = wire.EXTENDER_ARGS.decode(body)
        if args.node_names is None:
            return wire.failed_filter("cotenant's extender needs nodeCacheCapable: true in the scheduler's settings")
        snapshot, names, pod, now = self._parts.view.snapshot, args.node_names, self._facts(args.pod), self._now()
        rows = snapshot.rows_of(names)
        context = self._of_now(snapshot, now)
        verdicts, stance = decide.check_nodes(snapshot, pod, rows, now, self._settings, context)
        self._note(pod, len(names), stance, verdicts.counts())
        places = np.flatnonzero(verdicts.passed)
        if not len(places):
            return wire.refused_all(wire.quoted_names(snapshot, names, rows), verdicts.refused())
        if self._settings.cpus.on:
            places = places[cpus.together(snapshot, pod, rows[places], self._settings.cpus)]
        if self._settings.devices.on:
            places = places[devices.begun(snapshot, pod, rows[places], self._settings.devices)]
        places = places[decide.best_row_indices(snapshot, pod, rows[places], now, self._settings, context)]
        return wire.filter_answer(wire.quoted_names(snapshot, names, rows, places))

    def _prioritize(self, body: bytes) -> bytes:
        """Answer prioritize: a score for each requested node, in the same order."""
        args = wire.EXTENDER_ARGS.decode(body)
        snapshot, pod = self._parts.view.snapshot, self._facts(args.pod)
        rows = snapshot.rows_of(args.node_names or ())
        now = self._now()
        points = decide.points(snapshot, pod, rows, now, self._settings, self._of_now(snapshot, now))
        return wire.prioritize_answer(snapshot, rows, points)

    def _preempt(self, body: bytes) -> bytes:
        """Answer preempt: the nodes without those where the pod must not preempt (`decide.protected_nodes`)."""
        args = wire.PREEMPT_ARGS.decode(body)
        view, pod = self._parts.view, self._facts(args.pod)
        victims = args.victims()
        uids = {node: [p.uid for p in node_victims.pods or ()] for node, node_victims in victims.items()}
        spared = decide.protected_nodes(view.snapshot, pod, uids, view.shares, (self._now(), self._settings))
        self.counts.spared.inc(len(spared))
        return wire.preempt_answer(victims, spared)

    def _bind(self, body: bytes) -> bytes:
        """Answer bind, in a thread of its own, because it waits for the API server."""
        args = wire.BIND_ARGS.decode(body)
        if self._parts.binder is None:
            return wire.bound("this extender does not bind pods")
        error = self._parts.binder.bind(args)
        if error:
            _log.warning("not bound", pod=f"{args.namespace}/{args.name}", node=args.node, error=error)
        return wire.bound(error)

    def _why(self, body: bytes) -> bytes:
        """Return the explanation of the rules' results on all nodes for the pod in the request, as JSON."""
        args = wire.EXTENDER_ARGS.decode(body)
        snapshot, pod = self._parts.view.snapshot, facts_of(args.pod, self._settings.load_aware)
        explanation: Explanation = explain_placement(snapshot, pod, self._now(), self._settings)
        return msgspec.json.encode(explanation)

    def _facts(self, pod: PodWire) -> NewPod:
        """Return the pod's facts, cached because the next call is mostly about the same pod."""
        key = (pod.metadata.uid, pod.metadata.resource_version)
        if key != self._known[0] or not all(key):
            self._known = (key, facts_of(pod, self._settings.load_aware))
        return self._known[1]

    def _of_now(self, snapshot: NodeSnapshot, now: Instant) -> RuleContext:
        """Return posture and cached results; the posture of one snapshot is computed at most twice a second."""
        last_snapshot, at, context = self._stood
        if last_snapshot is not snapshot or now.monotonic - at > STANCE_SECONDS:
            context = context._replace(posture=decide.posture(snapshot, now, self._settings))
            self._stood = (snapshot, now.monotonic, context)
        return context

    # --- what is noted ------------------------------------------------------------------------------------------------
    def _now(self) -> Instant:
        return Instant(self._parts.clock.now_seconds() + self._parts.view.snapshot.clock_ahead_seconds, monotonic())

    def _note(self, pod: NewPod, node_count: int, stance: Posture, refused: dict[tuple[str, str], int]) -> None:
        """Count refusals, and keep the last answers for `cotenant explain pod`, at most for REMEMBERED pods.

        Every call in which a rule was ignored is counted, and at most one per minute and rule is logged.
        """
        self._report_stance(stance)
        if rule := stance.yielded:
            self.counts.yielded.labels(rule).inc()
            now = monotonic()
            if now - self._yielded_at.get(rule, -math.inf) >= YIELDED_SECONDS:
                self._yielded_at[rule] = now
                what = "a rule was ignored because its estimates would have refused every node"
                _log.warning(what, rule=rule, pod=pod.key, nodes=node_count)
        if not refused and not stance.yielded:
            return
        self.counts.refused(refused)
        self._last.pop(pod.key, None)
        self._last[pod.key] = PodVerdict.of(pod, node_count, self._now().unix, stance, refused)
        if len(self._last) > REMEMBERED:
            self._last.popitem(last=False)

    def _report_stance(self, stance: Posture) -> None:
        """Log once when load rules turn off, and when they turn on again."""
        if stance.load_off == self._load_off:
            return
        self._load_off = stance.load_off
        if stance.load_off:
            _log.warning("load rules are off: every node passes", because=stance.load_off)
        else:
            _log.info("load rules are on")


class Counts:
    """The extender's Prometheus metrics."""

    def __init__(self, metrics: Metrics) -> None:
        """Register the counters."""
        registry = metrics.registry
        gauge, counter = partial(Gauge, registry=registry), partial(Counter, registry=registry)
        self._answers = counter("cotenant_extender_answers_total", "Answers by verb and status.", ["verb", "status"])
        self._duration = Histogram(
            "cotenant_extender_duration_seconds",
            "Time from a request's header to the extender's answer.",
            ["verb"],
            buckets=BUCKETS,
            registry=registry,
        )
        self._refused = counter("cotenant_extender_refused_nodes_total", "Nodes refused to pods, by rule.", ["rule"])
        self.yielded = counter(
            "cotenant_extender_rule_yielded_total",
            "Calls in which a rule was ignored because its estimates would have refused every node.",
            ["rule"],
        )
        self.spared = counter("cotenant_extender_spared_nodes_total", "Nodes on which preemption was vetoed.")
        self._nodes = gauge("cotenant_extender_nodes", "Nodes in the extender's view of the cluster.")
        self._age = gauge("cotenant_extender_view_age_seconds", "Age of the extender's view of the cluster.")
        self._off = gauge("cotenant_extender_load_rules_off", "1 while load rules are off, else 0.")
        self.certificate_expires = gauge(
            "cotenant_extender_certificate_expiry_timestamp_seconds",
            "Unix time at which the served certificate expires; NaN without one.",
        )
        self.certificate_expires.set(math.nan)
        # strangers' paths may be any: of those few are kept
        self._of_verb = lru_cache(maxsize=32)(self._verb_metrics)
        self._of_rule = lru_cache(maxsize=32)(self._refused.labels)

    def _verb_metrics(self, path: str, status: int) -> tuple[Counter, Histogram]:
        """Return a verb's counter and histogram, cached because a lookup by labels costs as much as the count."""
        verb = path.strip("/") if path in ("/filter", "/prioritize", "/preempt", "/bind", "/why") else "other"
        return self._answers.labels(verb, str(status)), self._duration.labels(verb)

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Count an answered request and its time."""
        answers, duration = self._of_verb(path, status)
        answers.inc()
        duration.observe(seconds)

    def refused(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Count refused nodes by (rule, text)."""
        for (rule, _), number in counts.items():
            self._of_rule(rule).inc(number)

    def set_view(self, nodes: int, age_seconds: float, load_rules_off: bool) -> None:
        """Set the gauges of the view of the cluster: nodes, age of the data in seconds, load rules off."""
        self._nodes.set(nodes)
        self._age.set(age_seconds)
        self._off.set(load_rules_off)
