"""Compares the number of objects in the API server, by its own metrics, with those in kube-state-metrics. Pure.

If kube-state-metrics shows no LimitRange and no autoscaler, there are none, or it leaves the kind out (--resources,
--metric-allowlist, a relabelling). The API server counts what it stores, if it is scraped.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cotenant.profiler.prometheus.kube_state.declared import BLIND
from cotenant.profiler.prometheus.promql import Matcher

State = Mapping[str, Sequence[tuple[dict[str, str], float]]]

METRICS: Final = ("apiserver_resource_objects", "apiserver_storage_objects", "etcd_object_counts")
"""Metric since Kubernetes 1.34, since 1.21, and before; each has the label `resource`, and -1 if counting failed."""
LIMIT_RANGES: Final = "limitranges"
AUTOSCALERS: Final = "horizontalpodautoscalers"
OF_KINDS: Final = Matcher("resource", "=~", f"({LIMIT_RANGES}|{AUTOSCALERS})(\\..*)?")
"""Matches the series of the required kinds; older servers append the group of a kind outside the core after a dot."""
CREATED: Final = {LIMIT_RANGES: "kube_limitrange_created", AUTOSCALERS: "kube_horizontalpodautoscaler_created"}
"""Kind -> the metric of kube-state-metrics with the creation time: one series for each object."""
_NAMES: Final = {LIMIT_RANGES: "limitrange", AUTOSCALERS: "horizontalpodautoscaler"}
_BOUNDS: Final = "kube_limitrange"
_OLD: Final = "kube_hpa_spec_max_replicas"
"""Metric of autoscalers in kube-state-metrics before 2.0, whose metrics of them are not read."""
_WORDS: Final = {LIMIT_RANGES: "LimitRanges", AUTOSCALERS: "autoscalers"}


@dataclass(frozen=True, slots=True)
class StoredKind:
    """Number of objects of one kind that the API server stores (None = not known), and of those that have a series.

    `nameless` are namespaces that have a LimitRange, but no series with a bound of one. If `is_old`, series that are
    not read show objects.
    """

    stored: int | None
    shown: int
    nameless: frozenset[str] = frozenset()
    is_old: bool = False

    @property
    def is_hidden(self) -> bool:
        """True if objects of the kind exist and no series that is read shows any."""
        return self.shown == 0 and (bool(self.stored) or self.is_old)

    @property
    def is_unclear(self) -> bool:
        """True if no series shows objects and it is unknown whether any exist."""
        return self.shown == 0 and self.stored is None and not self.is_old


def kinds(state: State, names: Collection[str]) -> dict[str, StoredKind]:
    """Return the counts of LimitRanges and autoscalers, by the name that the API server gives the kind.

    `names` are the names of all metrics on the server.
    """
    shown = {
        kind: _objects(state, kind, tuple(metric for metric in state if metric.startswith(f"kube_{_NAMES[kind]}")))
        for kind in CREATED
    }
    bounded = _objects(state, LIMIT_RANGES, (_BOUNDS,))
    unbounded = frozenset(namespace for namespace, _ in shown[LIMIT_RANGES] - bounded)
    stored_kinds: dict[str, StoredKind] = {}
    for kind, objects in shown.items():
        # Each API server counts the same store, once a minute, and a new one begins at none: the highest count
        series = ((x.get("resource", ""), value) for metric in METRICS for x, value in state.get(metric, ()))
        counts = [round(value) for name, value in series if name.partition(".")[0] == kind and value >= 0]
        nameless = unbounded if kind == LIMIT_RANGES else frozenset[str]()
        is_old = kind == AUTOSCALERS and _OLD in names
        stored_kinds[kind] = StoredKind(max(counts, default=None), len(objects), nameless, is_old)
    return stored_kinds


def notes(stored_kinds: Mapping[str, StoredKind]) -> list[str]:
    """Return a note on the kinds that may have objects without any series, and one on each kind with too few series."""
    unclear = [_WORDS[kind] for kind, objects in stored_kinds.items() if objects.is_unclear]
    out = []
    if unclear:
        out.append(
            f"it is not known whether {' or '.join(unclear)} exist: {BLIND} shows none, because none exist or it "
            "leaves them out; a proposal may violate a bound, or change an autoscaler's target"
        )
    for kind, objects in stored_kinds.items():
        if objects.is_old and not objects.shown:
            out.append(
                f"{_WORDS[kind]} are unknown: kube-state-metrics is older than 2.0 ({_OLD}), so no change that they "
                "may affect is proposed; upgrade it"
            )
        if objects.stored is not None and objects.stored > objects.shown:
            lost = "some objects are ignored" if objects.shown else "no change that they may affect is proposed"
            out.append(
                f"the API server stores {objects.stored} {_WORDS[kind]}: {BLIND} shows {objects.shown} of them "
                f"(see its option --resources), so {lost}"
            )
    return out


def _objects(state: State, kind: str, metrics: Sequence[str]) -> frozenset[tuple[str, str]]:
    label = _NAMES[kind]
    return frozenset((x.get("namespace", ""), x.get(label, "")) for metric in metrics for x, _ in state.get(metric, ()))
