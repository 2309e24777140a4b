"""A recommendation as a `kubectl patch` command to copy: text only, nothing is run. Pure."""

from __future__ import annotations

import json
import shlex
from typing import Any, Final

from cotenant.model.quantity import format_amount
from cotenant.model.recommendation import Action, Field, Recommendation, Value

SECTIONS: Final = {Field.REQUEST: "requests", Field.LIMIT: "limits"}


def command(recommendation: Recommendation) -> str:
    """Shell command that sets (and unsets) every field the strategy proposes; empty when it proposes nothing."""
    resources = _resources(recommendation)
    if not resources:
        return ""
    ref = recommendation.container.workload
    containers = {"containers": [{"name": recommendation.container.container, "resources": resources}]}
    words = ["kubectl", "patch", "--namespace", ref.namespace, ref.kind.lower(), ref.name]
    words += ["--subresource", "resize"] if ref.kind == "Pod" else []
    return f"{shlex.join(words)} --type strategic --patch {shlex.quote(json.dumps(_nested(ref.kind, containers)))}"


def _nested(kind: str, pod_spec: dict[str, Any]) -> dict[str, Any]:
    """The pod spec at its place in an object of the kind."""
    if kind == "Pod":
        return {"spec": pod_spec}
    template = {"spec": {"template": {"spec": pod_spec}}}
    return {"spec": {"jobTemplate": template}} if kind == "CronJob" else template


def _resources(recommendation: Recommendation) -> dict[str, dict[str, str | None]]:
    sections: dict[str, dict[str, str | None]] = {}
    for value in recommendation.values:
        if value.action is not Action.WITHHELD and value.amount != value.now:
            sections.setdefault(SECTIONS[value.field], {})[value.resource.value] = quantity(value)
    return sections


def quantity(value: Value) -> str | None:
    """The proposed amount in Kubernetes' notation; None (JSON null) removes the field."""
    if value.action is Action.UNSET or value.amount is None:
        return None
    return format_amount(value.resource, value.amount)
