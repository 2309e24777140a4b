"""EDGE: a policy that a person drafts: a client to which it stands already, and the write that makes it so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autopilot.decide.policy import NamespacedPolicy, parse_policy
from autopilot.rounds.cluster_state import policy_address
from cotenant.core.adapters.kube import KubeClient
from cotenant.core.model.errors import UsageError
from cotenant.core.model.kubernetes.intent import Create, Patch
from cotenant.core.model.kubernetes.protocol import OWN_GROUP

Json = dict[str, Any]


class DraftClient(KubeClient):
    """A client to which one policy is as `draft` has it, whatever the server says."""

    draft: Json

    @classmethod
    def of(cls, client: KubeClient, draft: Mapping[str, Any]) -> DraftClient:
        """A client of the same account, with a connection of its own."""
        drafting = cls(client.access, client.settings, reload=client._reload)
        drafting.draft = dict(draft)
        return drafting

    def list(self, path: str, kind: Any = Json, *, limit: int | None = None, **query: str) -> Any:
        """As of every client; among the policies of its namespace the draft stands in its own place."""
        items: Any = super().list(path, kind, limit=limit, **query)
        meta = self.draft["metadata"]
        if path != policy_address(NamespacedPolicy(meta["namespace"], "")).collection:
            return items
        stored = next((item for item in items if item["metadata"]["name"] == meta["name"]), None)
        others = [item for item in items if item is not stored]
        return [*others, {**self.draft, "metadata": {**(stored["metadata"] if stored else {}), **meta}}]


def parse_draft(body: Mapping[str, Any]) -> tuple[NamespacedPolicy, Json]:
    """The policy, and its object without what the server adds; UsageError names what is wrong with it."""
    meta = body.get("metadata")
    if not isinstance(meta, Mapping) or not meta.get("name") or not meta.get("namespace"):
        raise UsageError(f"metadata: {meta!r} has to name the policy", fix="Give metadata.name and metadata.namespace.")
    return parse_policy(body), written(body)


def written(body: Mapping[str, Any]) -> Json:
    """The object without what the server adds."""
    meta = {key: str(body["metadata"][key]) for key in ("name", "namespace")}
    return {"apiVersion": OWN_GROUP, "kind": "AutopilotPolicy", "metadata": meta, "spec": body.get("spec") or {}}


def saving(policy: NamespacedPolicy, body: Mapping[str, Any], before: Mapping[str, Any] | None) -> Create | Patch:
    """The write of a draft. before: the spec that it replaces, and no other; None: there is none yet."""
    address, why = policy_address(policy), "a policy that a person saved"
    if before is None:
        return Create(address, body, why=why)
    test, replace = (
        {"op": op, "path": "/spec", "value": spec} for op, spec in (("test", before), ("replace", body["spec"]))
    )
    return Patch(address, (test, replace), why=why)
