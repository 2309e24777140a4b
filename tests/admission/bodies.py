"""Pods and quotas that the tests create, and where."""

from __future__ import annotations

from typing import Any

QUOTAS = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{}/elasticquotas"
PODS = "/api/v1/namespaces/{}/pods"
P = "quota.scheduling.koordinator.sh/"


def pod(name: str = "p", labels: dict[str, str] | None = None, spec: Any = None, **resources: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "x", "resources": resources}
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": {"containers": [container], **(spec or {})}}


def quota(name: str, cpu: str = "1", high: str = "4", **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "labels": {P + k.replace("_", "-"): v for k, v in labels.items()}},
        "spec": {"min": {"cpu": cpu}, "max": {"cpu": high}},
    }
