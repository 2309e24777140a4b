"""From a recommendation to something a person can apply: a strategic-merge patch, and a `kubectl patch` line. Pure.

Only fields that change are named; amounts are exact Kubernetes quantities, never a float in a string. Names are checked
before they reach a command line, whatever the history says they are.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import Any, Final

from cotenant.model.errors import UsageError
from cotenant.model.identity import ContainerRef
from cotenant.model.quantity import format_amount
from cotenant.model.recommendation import Action, Field, Recommendation, Value

TEMPLATE_PATHS: Final = {
    "Deployment": ("spec", "template", "spec"),
    "StatefulSet": ("spec", "template", "spec"),
    "DaemonSet": ("spec", "template", "spec"),
    "ReplicaSet": ("spec", "template", "spec"),
    "ReplicationController": ("spec", "template", "spec"),
    "CronJob": ("spec", "jobTemplate", "spec", "template", "spec"),
}
"""Kinds whose template can be patched, and where its pod spec is. The template of a Job or a bare pod cannot change."""

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_FIELDS: Final = {Field.REQUEST: "requests", Field.LIMIT: "limits"}


def patch(recommendation: Recommendation) -> dict[str, Any]:
    """Strategic-merge patch of the workload, empty when nothing changes or its kind has no template to patch.

    An unset field is null, which removes it. Dump it as JSON or YAML as it stands.
    """
    path = TEMPLATE_PATHS.get(recommendation.container.workload.kind)
    resources: dict[str, dict[str, str | None]] = {}
    for value in recommendation.values:
        if _changes(value):
            amount = None if value.amount is None else format_amount(value.resource, value.amount)
            resources.setdefault(_FIELDS[value.field], {})[value.resource.value] = amount
    if path is None or not resources:
        return {}
    document: dict[str, Any] = {"containers": [{"name": recommendation.container.container, "resources": resources}]}
    for key in reversed(path):
        document = {key: document}
    return document


def kubectl_command(recommendation: Recommendation) -> str:
    """`kubectl patch` line for a shell, empty when nothing changes; UsageError for a name Kubernetes does not allow."""
    document = patch(recommendation)
    if not document:
        return ""
    workload = checked(recommendation.container).workload
    body = json.dumps(document, separators=(",", ":"))
    words = ["kubectl", "patch", "-n", workload.namespace, f"{workload.kind.lower()}/{workload.name}"]
    return shlex.join([*words, "--type=strategic", "-p", body])


def checked(container: ContainerRef) -> ContainerRef:
    """The same reference if its names are Kubernetes names (RFC 1123: no option, no shell character), or UsageError."""
    for name in (container.workload.namespace, container.workload.name, container.container):
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} is not a Kubernetes name", fix="Check the labels of the metric source.")
    return container


def _changes(value: Value) -> bool:
    """Whether applying the value would change the template."""
    if value.action is Action.UNSET:
        return value.now is not None
    return value.action is Action.SET and value.amount is not None and value.amount != value.now
