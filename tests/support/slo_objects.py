"""Policies and objects of Sloth, Pyrra and OpenSLO as people write them, and kinds for the embedded API server."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from tests.cluster.api import Api, ApiError, Json
from tests.cluster.waiting import wait_for

KINDS: Final = (
    ("sloth.slok.dev", "v1", "prometheusservicelevels", "PrometheusServiceLevel"),
    ("pyrra.dev", "v1alpha1", "servicelevelobjectives", "ServiceLevelObjective"),
    ("openslo.com", "v1", "slos", "SLO"),
    ("openslo.com", "v1", "slis", "SLI"),
    ("openslo.com", "v1", "datasources", "DataSource"),
)
PROMISED: Final = 0.98
"""Of the good events; the planted harm lets a twentieth fail."""


def serve(api: Api, *plurals: str) -> None:
    """Define these kinds, all without any, and wait until they are served."""
    for group, version, plural, kind in KINDS:
        if plurals and plural not in plurals:
            continue
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        names = {"plural": plural, "singular": kind.lower(), "kind": kind}
        spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [served]}
        head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
        body = {**head, "metadata": {"name": f"{plural}.{group}"}, "spec": spec}
        api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)
        wait_for(plural, lambda path=f"/apis/{group}/{version}/{plural}": _is_served(api, path))


def _is_served(api: Api, path: str) -> bool:
    with contextlib.suppress(ApiError):
        return "items" in api.get(path)
    return False


def create(api: Api, body: Json) -> None:
    """Create an object in its namespace."""
    version, kind = body["apiVersion"], body["kind"]
    plural = next(plural for group, v, plural, k in KINDS if (f"{group}/{v}", k) == (version, kind))
    api.create(f"/apis/{version}/namespaces/{body['metadata']['namespace']}/{plural}", body)


def _object(version: str, kind: str, namespace: str, name: str, spec: Any, labels: Json | None = None) -> Json:
    metadata = {"name": name, "namespace": namespace, "labels": labels or {}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def sloth(namespace: str, name: str, sli: Any, labels: Json | None = None, objective: Any = 100 * PROMISED) -> Json:
    """A PrometheusServiceLevel of one objective."""
    slo = {"name": "availability", "objective": objective, "sli": sli, "alerting": {"pageAlert": {"disable": True}}}
    spec = {"service": name, "labels": {"owner": "ann"}, "slos": [slo]}
    return _object("sloth.slok.dev/v1", "PrometheusServiceLevel", namespace, name, spec, labels)


def events(bad: str, total: str) -> Json:
    """Sloth's usual indicator: rates of two selectors over its window."""
    parts = {"errorQuery": bad, "totalQuery": total}
    return {"events": {key: f"sum(rate({text}[{{{{.window}}}}]))" for key, text in parts.items()}}


def pyrra(namespace: str, name: str, indicator: Any, labels: Json | None = None) -> Json:
    """A ServiceLevelObjective."""
    spec = {"target": f"{100 * PROMISED:g}", "window": "4w", "indicator": indicator}
    return _object("pyrra.dev/v1alpha1", "ServiceLevelObjective", namespace, name, spec, labels)


def openslo(namespace: str, name: str, labels: Json | None = None, **more: Any) -> Json:
    """An SLO; its indicator is among `more`."""
    objectives = [{"displayName": "good", "target": f"{PROMISED}"}]
    window = [{"duration": "28d", "isRolling": True}]
    spec = {"service": name, "budgetingMethod": "Occurrences", "timeWindow": window, "objectives": objectives, **more}
    return _object("openslo.com/v1", "SLO", namespace, name, spec, labels)


def indicator(namespace: str, name: str, ratio: Any) -> Json:
    """An SLI of its own."""
    return _object("openslo.com/v1", "SLI", namespace, name, {"ratioMetric": ratio})


def data_source(namespace: str, name: str, kind: str) -> Json:
    """A DataSource."""
    return _object("openslo.com/v1", "DataSource", namespace, name, {"type": kind, "connectionDetails": {}})


def metric(query: str, kind: str = "Prometheus", reference: str = "") -> Json:
    """A metric of OpenSLO."""
    source = {"type": kind, "metricSourceRef": reference, "spec": {"query": query}}
    return {"metricSource": {key: value for key, value in source.items() if value}}


def policy(namespace: str, name: str, spec: Json) -> Json:
    """An AutopilotPolicy."""
    head = {"apiVersion": "cotenant.dev/v1alpha1", "kind": "AutopilotPolicy"}
    return {**head, "metadata": {"name": name, "namespace": namespace}, "spec": spec}
