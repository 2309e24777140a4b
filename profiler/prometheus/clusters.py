"""Detects whether one server holds several clusters, whose usage must not be added up. Pure.

There are two signs: labels by which people name clusters, with several values at the same time; and the creation time
of the namespace kube-system, which each cluster has once (replicas of kube-state-metrics agree on it): if there are
several, the label that distinguishes them is found, whatever its name.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.errors import SourceUnfit
from cotenant.profiler.prometheus.promql import Matcher, metric_name_matcher, selector, with_constant_label

CLUSTER_LABELS: Final = (
    *("cluster", "cluster_name", "clusterName", "cluster_id", "clusterID", "k8s_cluster", "k8s_cluster_name"),
    *("kubernetes_cluster", "prometheus_cluster", "__tenant_id__", "vm_account_id", "vm_project_id"),
)
"""Labels that name a cluster, the usual one first; the last are those of servers that answer for several tenants."""
PROJECT, LOCATION = "project_id", "location"
"""Google's server names a cluster by these besides: its label `cluster` is unique in one project and location alone."""
BIRTH: Final = "kube_namespace_created"
_SYSTEM: Final = "kube-system"
_OF: Final = "cotenant_of"
"""Label with the namespace of which a series tells the creation."""
_OF_THE_TARGET: Final = frozenset({"instance", "pod", "container", "node", "endpoint", "service", "job", "uid"})
"""Labels that differ between the exporters of any two clusters, and between two replicas in one."""
_SHOWN: Final = 20
_SEEN_TWICE: Final = 2
_UNFIT: Final = re.compile(r"[^A-Za-z0-9._-]+|\.{2,}")

Answer = Sequence[tuple[dict[str, str], npt.NDArray[np.float64]]]


def questions(containers: str, own: tuple[Matcher, ...], names: frozenset[str]) -> dict[str, str]:
    """Return, by names for `check`, the PromQL expressions that show whether the server holds several clusters."""
    labels = ",".join((*CLUSTER_LABELS, PROJECT, LOCATION))
    expressions = {"clusters": f"group by ({labels}) ({containers}) * time()"}
    if BIRTH in names:
        # Without honor_labels `namespace` is the exporter's own, of all its series. Chosen by a function and not by a
        # matcher: a proxy that binds queries to one namespace (OpenShift's) refuses the name of another one.
        created = selector((metric_name_matcher(BIRTH), *own))
        subject = f'label_join({created}, "{_OF}", "/", "exported_namespace", "namespace")'
        marked = f'label_replace({subject}, "{_OF}", "{_SYSTEM}", "{_OF}", "/{_SYSTEM}|{_SYSTEM}/.*")'
        births = f"{marked} and on ({_OF}) {with_constant_label('vector(1)', _OF, _SYSTEM)}"
        expressions |= {"births": f'count(count_values("born", {births}))', "birth": births}
    return expressions


def check(answers: Mapping[str, Answer], describe: str) -> None:
    """Raise SourceUnfit if the answers to `questions` come from several clusters; `describe` names the server."""
    named_values = _concurrent_label_values(answers.get("clusters", ()))
    if named_values is None and latest(answers.get("births", ())) > 1:
        named_values = _distinguishing_label(answers.get("birth", ()))
    if named_values is None:
        return
    label, values = named_values
    if not label:
        raise SourceUnfit(
            f"{describe} holds several clusters and no label distinguishes them; their usage would be added up",
            fix="Give each cluster's Prometheus an external label such as cluster.",
        )
    shown = ", ".join(value or "(none)" for value in values[:_SHOWN]) + (", ..." if len(values) > _SHOWN else "")
    unlabelled = "" if all(values) else ' ("" selects series without that label)'
    raise SourceUnfit(
        f"{describe} holds {len(values)} clusters, by the label {label}: {shown}; their usage would be added up",
        fix=f"Choose one: --prometheus-label {label}={next(filter(None, values))}, or the setting "
        f"profiler.prometheus.labels{unlabelled}. For all, write this into the settings file, "
        f"beside the server's address, then cotenant scan --all-clusters:\n{declaration(label, values[:_SHOWN])}",
    )


def declaration(label: str, values: Iterable[str]) -> str:
    """Return the text of a settings file that defines a cluster for each value of the label.

    The names of the clusters are made valid and distinct.
    """
    lines, names = ["clusters:"], set[str]()
    for value in values:
        fit = _UNFIT.sub("-", value).strip("-._") or "cluster"
        numbered = (f"{fit}-{number}" for number in itertools.count(2))
        name = next(name for name in itertools.chain([fit], numbered) if name not in names)
        names.add(name)
        lines.append(f"  {name}: {{profiler: {{prometheus: {{labels: {{{label}: {json.dumps(value)}}}}}}}}}")
    return "\n".join(lines)


def latest(answer: Answer) -> float:
    """Return the highest value of any series, for example the latest time; 0 without series."""
    return max((float(values.max()) for _, values in answer), default=0.0)


def created_seconds(births: Answer) -> int | None:
    """Return the latest creation time of namespace kube-system in `births`, as Unix time; None if it has none."""
    return max((int(values[-1]) for _, values in births if len(values)), default=None)


def _concurrent_label_values(answer: Answer) -> tuple[str, list[str]] | None:
    """Return the first label with several values at one time, and these values; the series' values are times.

    A missing label is a value too: series without the label beside series with it are of another cluster.
    """
    googles = [series for series in answer if series[0].get(PROJECT) and series[0].get(LOCATION)]
    of_label = {**dict.fromkeys(CLUSTER_LABELS, answer), PROJECT: googles, LOCATION: googles}
    for label, some in of_label.items():
        moments: dict[str, set[float]] = {}
        for labels, values in some:
            moments.setdefault(labels.get(label, ""), set()).update(values.tolist())
        # A label that was renamed shares no moment with another value, and is not two clusters. Where one was added,
        # one moment may still include the series without it: an empty value counts from two shared moments on.
        pairs = itertools.permutations(moments, 2)
        enough = ((a, len(moments[a] & moments[b]) >= (1 if a and b else _SEEN_TWICE)) for a, b in pairs)
        if together := sorted({name for name, shared in enough if shared}):
            return label, together
    return None


def _distinguishing_label(answer: Answer) -> tuple[str, list[str]]:
    """Return the label, not one of an exporter's own, that differs for every creation time; "" if there is none."""
    births = [(labels, float(values[-1])) for labels, values in answer]
    series = (labels for labels, _ in births)
    names = {name for labels in series for name in labels}
    candidates = sorted(
        n for n in names if n not in _OF_THE_TARGET and n != "__name__" and not n.startswith(("exported_", "cotenant_"))
    )
    for label in candidates:
        pairs = {(labels.get(label, ""), born) for labels, born in births}
        values = {value for value, _ in pairs}
        if "" not in values and len(values) == len(pairs) > 1:
            return label, sorted(values)
    return "", []


_IN_BRACKETS: Final = re.compile(r"\[(?P<host>[^\]]*)\](?::\d*)?")
_WITH_PORT: Final = re.compile(r"(?P<host>[^:]*):\d*")


def host_of(instance: str) -> str:
    """Return the host of an `instance` label, without brackets and port, with an IP address normalized by `address`.

    `[fd00::1]:10250`, `fd00::1`, `10.0.0.1:10250` and `node-1:9100` give fd00::1, fd00::1, 10.0.0.1 and node-1: the
    last colon of a bare IPv6 address does not start a port.
    """
    match = _IN_BRACKETS.fullmatch(instance) or _WITH_PORT.fullmatch(instance)
    return address(match["host"] if match else instance)


def address(text: str) -> str:
    """Return an IP address normalized (lower case, no leading zeros, IPv4 in IPv6 as IPv4); other text unchanged."""
    try:
        parsed = ip_address(text)
    except ValueError:
        return text
    mapped = getattr(parsed, "ipv4_mapped", None)
    return str(mapped or parsed)
