"""EDGE: reads the workload of a plan and its pods."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from cotenant.base.kube import KubeClient
from cotenant.base.kubernetes.pod_identity import object_of
from cotenant.base.kubernetes.selector import LabelSelector
from cotenant.scheduler_ext.reservations.model.plan import Plan
from cotenant.scheduler_ext.reservations.plans.realise import OwnerTemplate, owner_of

Json = dict[str, Any]


def read_owner(client: KubeClient, plan: Plan) -> tuple[OwnerTemplate, list[Json]] | None:
    """The plan's workload and its pods; None when it does not exist. UsageError for a template that is no pod's."""
    owner = plan.owner
    parts = (*owner.api_version.split("/"), "namespaces", plan.namespace, f"{owner.kind.lower()}s", owner.name)
    if not all(map(_names_an_object, parts)):
        return None
    body = client.get("/".join(["/apis", *(quote(part, safe="") for part in parts)]))
    if body is None:
        return None
    what = f"{owner.kind} {plan.namespace}/{owner.name}: spec"
    spec = object_of(body.get("spec"), what)
    template, selector = (object_of(spec.get(part), f"{what}.{part}") for part in ("template", "selector"))
    object_of(template.get("spec"), f"{what}.template.spec")
    pods = _pods(client, plan.namespace, LabelSelector.parse(selector, f"{what}.selector"))
    return owner_of(template, selector, pods), pods


def _pods(client: KubeClient, namespace: str, selector: LabelSelector) -> list[Json]:
    if not selector.query:
        return []
    return list(client.list(f"/api/v1/namespaces/{namespace}/pods", dict[str, Any], labelSelector=selector.query))


def _names_an_object(part: str) -> bool:
    """Return whether Kubernetes accepts the text as a segment of a path.

    The API server resolves an escaped "/" before it checks rights: a name such as "a/../../x" asks for another
    resource, and its 403 would be taken for a right that is missing.
    """
    return part not in {"", ".", ".."} and not {"/", "%"} & set(part)
