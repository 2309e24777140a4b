"""The annotation with resources that new pods get instead of the template's: its text and its meaning. Pure.

Accepting a change with the method `annotate` writes it; cotenant's pod webhook applies it to new pods, so that the
template does not change and nothing restarts. Each container has the resources of its template (`from`) and those of
its pods (`to`): if the template has other resources by then, the annotation is outdated and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from cotenant.base.errors import QuantityError, UsageError
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.kubernetes.quantity import parse_amount
from cotenant.base.resource import Resource

RESOURCES_ANNOTATION: Final = "cotenant.dev/resources"
RESOURCES_LABEL: Final = "cotenant.dev/resources"
"""Label on annotated objects, so that the webhook need not read all others."""
LABEL_VALUE: Final = "annotated"
CHANGE_ANNOTATION: Final = "cotenant.dev/change"
LATENCY_ANNOTATION: Final = "cotenant.dev/latency-query"
"""The workload's query for its p99 latency, which overrides the setting `actions.latency_query`."""
ERROR_ANNOTATION: Final = "cotenant.dev/error-query"
"""The workload's query for the share of its requests that fail, 0 to 1."""
WEBHOOK_CONFIGURATION: Final = "cotenant-webhook"
"""The MutatingWebhookConfiguration of the webhook that applies annotated resources to new pods."""
KINDS: Final = {"Deployment": "deployments", "StatefulSet": "statefulsets", "DaemonSet": "daemonsets"}
"""Kinds whose pods are replaced when their template changes; all of API group apps/v1."""
LONGEST: Final = 64 * 1024
"""Largest length in characters; the API server allows 256 KiB for all annotations."""

Json = Mapping[str, Any]
Amounts = dict[str, dict[str, str | int | float]]


class ResourceSwap(msgspec.Struct, frozen=True, rename={"before": "from", "after": "to"}):
    """A container's `resources` in the template, and those that its new pods get; requests and limits are optional."""

    before: Amounts
    after: Amounts


@dataclass(frozen=True, slots=True)
class AnnotatedResources:
    """The resources for new pods in a workload's annotation, written by the change with the id `change`.

    `wrong` says why it cannot be read, "" if it can; `stale` are the containers whose template has other resources by
    now.
    """

    uid: str = ""
    swaps: Mapping[str, ResourceSwap] = field(default_factory=dict)
    change: str = ""
    wrong: str = ""
    stale: frozenset[str] = frozenset()


def encode_swaps(swaps: Mapping[str, ResourceSwap]) -> str:
    """Return the text of the annotation that sets these containers' resources; raise UsageError if it is too long."""
    text = msgspec.json.encode(dict(sorted(swaps.items()))).decode()
    if len(text) > LONGEST:
        raise UsageError(f"{RESOURCES_ANNOTATION} would be {len(text)} characters long", fix="Change fewer containers.")
    return text


def decode_swaps(text: str) -> dict[str, ResourceSwap]:
    """Return the `ResourceSwap` of each container in an annotation's text; raise UsageError if it is invalid."""
    if len(text) > LONGEST:
        raise UsageError(f"{RESOURCES_ANNOTATION} is longer than {LONGEST} characters")
    try:
        return msgspec.json.decode(text, type=dict[str, ResourceSwap])
    except UNDECODABLE as error:
        raise UsageError(f"{RESOURCES_ANNOTATION} cannot be read: {error}") from error


def same(first: Json | None, second: Json | None) -> bool:
    """Return whether two `resources` are equal in any notation; None equals an empty map."""
    return _plain(first) == _plain(second)


def states(resources: Json | None, amounts: Json) -> bool:
    """Return whether `resources` includes all requests and limits of `amounts`; it may have others too."""
    present = _plain(resources)
    wants = ((side, name, amount) for side, by_name in _plain(amounts).items() for name, amount in by_name.items())
    return all(present.get(side, {}).get(name) == amount for side, name, amount in wants)


def swapped_amounts(resources: Json | None, swap: ResourceSwap) -> dict[str, Any] | None:
    """Return a pod container's `resources` after a swap; None if they are not the ones that the swap replaces.

    A pod may have more than its template: the API copies a limit to a missing request, LimitRanges and webhooks add
    amounts. These stay, but a request that is only the limit's copy changes with the limit.
    """
    if not states(resources, swap.before):
        return None
    present = _plain(resources)
    sides: dict[str, dict[str, Any]] = {}
    for side in ("requests", "limits"):
        before, amounts = swap.before.get(side, {}), (resources or {}).get(side) or {}
        kept_amounts = {name: amount for name, amount in amounts.items() if name not in before}
        sides[side] = {**kept_amounts, **swap.after.get(side, {})}
    limits = _plain(swap.before).get("limits", {})
    for name in sides["requests"].keys() - swap.after.get("requests", {}).keys():
        if name in limits and present["requests"][name] == limits[name] and name in sides["limits"]:
            sides["requests"][name] = sides["limits"][name]
    others = {key: value for key, value in (resources or {}).items() if key not in sides}
    return {**others, **{side: amounts for side, amounts in sides.items() if amounts}}


def above_limits(resources: Json) -> str:
    """Return the first resource whose request exceeds its limit, which the API server would refuse; "" if none does."""
    plain = _plain(resources)
    for name, amount in plain.get("requests", {}).items():
        limit = plain.get("limits", {}).get(name)
        if isinstance(amount, int) and isinstance(limit, int) and amount > limit:
            return str(name)
    return ""


def _plain(resources: Json | None) -> dict[str, dict[str, Any]]:
    sides: dict[str, dict[str, Any]] = {}
    for side in ("requests", "limits"):
        amounts = (resources or {}).get(side)
        if isinstance(amounts, Mapping) and amounts:
            sides[side] = {name: _amount(name, amount) for name, amount in amounts.items()}
    return sides


def _amount(name: str, amount: Any) -> int | str:
    """Return millicores, bytes, or thousandths of other resources; an invalid quantity is returned as it is."""
    resource = Resource.MEMORY if name in ("memory", "ephemeral-storage") else Resource.CPU
    try:
        return parse_amount(resource, amount)
    except QuantityError:
        return str(amount)
