"""EDGE: a person's draft of a policy: a client that returns it as if it were stored, and the write that stores it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cotenant.autopilot.decide.policy import NamespacedPolicy, PolicySpec, parse_policy
from cotenant.autopilot.rounds.cluster_state import policy_address
from cotenant.base.errors import UsageError
from cotenant.base.kube import KubeClient
from cotenant.base.kubernetes.intent import DNS_NAME, Create, Patch
from cotenant.base.kubernetes.protocol import OWN_GROUP

Json = dict[str, Any]
KIND: Final = "AutopilotPolicy"
SELECTOR_FIELDS: Final = ("matchExpressions", "matchLabels")


class DraftClient(KubeClient):
    """A client that returns `draft` in place of the stored policy of the same namespace and name."""

    draft: Json

    @classmethod
    def of(cls, client: KubeClient, draft: Mapping[str, Any]) -> DraftClient:
        """Return a DraftClient with the account of `client` and a connection of its own."""
        drafting = cls(client.access, client.settings, reload=client._reload)
        drafting.draft = dict(draft)
        return drafting

    def list(self, path: str, kind: Any = Json, *, limit: int | None = None, **query: str) -> Any:
        """List objects from the server; policies of the draft's namespace include it, in place of one of its name."""
        items: Any = super().list(path, kind, limit=limit, **query)
        meta = self.draft["metadata"]
        if path != policy_address(NamespacedPolicy(meta["namespace"], "")).collection:
            return items
        stored = next((item for item in items if item["metadata"]["name"] == meta["name"]), None)
        others = [item for item in items if item is not stored]
        return [*others, {**self.draft, "metadata": {**(stored["metadata"] if stored else {}), **meta}}]


def parse_draft(body: Mapping[str, Any]) -> tuple[NamespacedPolicy, Json]:
    """Return a draft's policy, and its object with name, namespace and spec only; raise UsageError if it is invalid."""
    for key, value in {"apiVersion": OWN_GROUP, "kind": KIND}.items():
        if body.get(key, value) != value:
            raise UsageError(f"{key}: {body[key]!r} is not a policy's {key}", fix=f"Write {key}: {value}.")
    meta = body.get("metadata")
    for key in ("name", "namespace"):
        require_name(meta.get(key) if isinstance(meta, Mapping) else None, f"metadata.{key}")
    if not isinstance(body.get("spec") or {}, Mapping):
        raise UsageError(f"spec: {body['spec']!r} is not an object", fix="Write the policy's fields below spec.")
    if (body.get("spec") or {}).get("mode") is False:
        raise UsageError("spec.mode: YAML reads Off without quotes as false", fix="Write mode: 'Off'.")
    policy = parse_policy(body)
    for key in set(policy.spec.selector or ()).difference(
        SELECTOR_FIELDS
    ):  # the server drops it, and the rest selects more
        raise UsageError(f"{policy}: spec.selector.{key} is not a field", fix=f"Write {' or '.join(SELECTOR_FIELDS)}.")
    return policy, strip_server_fields(body)


def require_name(value: object, field: str) -> None:
    """Raise UsageError unless `value` is a valid object name: it becomes a part of a URL path."""
    if not (isinstance(value, str) and DNS_NAME.fullmatch(value)):
        raise UsageError(f"{field}: {value!r} is not a valid name", fix="Use lower-case letters, digits, '-' and '.'.")


def strip_server_fields(body: Mapping[str, Any]) -> Json:
    """Return the policy with only its API version, kind, name, namespace and spec."""
    meta = {key: str(body["metadata"][key]) for key in ("name", "namespace")}
    return {"apiVersion": OWN_GROUP, "kind": KIND, "metadata": meta, "spec": body.get("spec") or {}}


def draft_write(
    policy: NamespacedPolicy, body: Json, before: Mapping[str, Any] | None, live: Mapping[str, Any] | None
) -> Create | Patch:
    """Return the write that stores a draft; raise UsageError if the policy was changed since the person opened it.

    `before` is the spec that the person edited, None for a new policy. The write fails if `live` is no longer stored.
    """
    address, why = policy_address(policy), "a policy that a person saved"
    if before is None and live is None:
        return Create(address, body, why=why)
    if live is None:
        raise UsageError(f"there is no AutopilotPolicy {policy}", fix="To create it, open a new policy.")
    if before is None:
        raise UsageError(f"AutopilotPolicy {policy} already exists", fix="Open that policy, or choose another name.")
    spec = live.get("spec") or {}
    if _complete_spec(spec) != _complete_spec(before):
        fix = "Open it again, and edit its present version."
        raise UsageError(f"AutopilotPolicy {policy} was changed after you opened it", fix=fix)
    test = {"op": "test", "path": "/spec", "value": live.get("spec")}
    return Patch(address, (test, {"op": "add", "path": "/spec", "value": body["spec"]}), why=why)


def _complete_spec(spec: Mapping[str, Any]) -> Json:
    """Return the spec with its mode, the only field that the server fills in."""
    return {"mode": PolicySpec().mode, **spec}
