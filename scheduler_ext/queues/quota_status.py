"""Writes used, runtime and requests onto ElasticQuotas, as Koordinator's scheduler does. Pure.

Written are status.used and the annotations runtime, request, child-request, non-preemptible-request and
non-preemptible-used (JSON resource lists), and for the quota that a profile names total-resource and
unschedulable-resource, if one of them changed (zeros and missing resources are equal). Two annotations of cotenant
record since when a quota exceeds its runtime or borrows. One apply has all our fields, because others are removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress

import msgspec

from cotenant.base.errors import UsageError
from cotenant.base.json_documents.difference import escape_pointer_key
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.kubernetes import quota_tree
from cotenant.base.kubernetes.intent import Address, Apply, Create, Patch
from cotenant.base.kubernetes.moments import moment, moment_of
from cotenant.base.kubernetes.protocol import QUOTA_GROUP
from cotenant.base.kubernetes.quota_tree import Amounts, QuotaNode
from cotenant.scheduler_ext.queues.quota_admission import QuotaAdmission
from cotenant.scheduler_ext.queues.quota_trees import profile_capacity
from cotenant.scheduler_ext.queues.view import QueueView


def status_intents(
    view: QueueView, admission: QuotaAdmission, over: Mapping[str, float], borrows: Mapping[str, float]
) -> tuple[Apply, ...]:
    """Return the writes of quotas whose figures changed.

    `over` and `borrows` are the Unix times, by quota, since which its use exceeds its runtime, or its guarantee. A
    quota whose profile is unreadable keeps its last total, because a quota without a total would leave its tree.
    """
    profiles = {profile.quota: profile for profile in view.profiles}
    unread = {place for place, _ in view.unreadable}
    intents = []
    for name, use in admission.uses.items():
        annotations = {
            quota_tree.RUNTIME_ANNOTATION: use.limit,
            quota_tree.REQUEST_ANNOTATION: use.request,
            quota_tree.CHILD_REQUEST_ANNOTATION: use.child_request,
            quota_tree.NON_PREEMPTIBLE_REQUEST_ANNOTATION: use.firm_request,
            quota_tree.NON_PREEMPTIBLE_USED_ANNOTATION: use.firm_used,
        }
        if name in profiles:
            amount, unschedulable = profile_capacity(profiles[name], view.nodes)
            annotations |= {quota_tree.TOTAL_ANNOTATION: amount, quota_tree.UNSCHEDULABLE_ANNOTATION: unschedulable}
        moments = {
            quota_tree.OVER_SINCE_ANNOTATION: over.get(name),
            quota_tree.BORROWS_SINCE_ANNOTATION: borrows.get(name),
        }
        texts = {key: moment(seconds) for key, seconds in moments.items() if seconds is not None}
        quota = view.quotas[name]
        if f"elasticquotaprofiles/{quota.namespace}/{quota.profile}" in unread:
            published_keys = (quota_tree.TOTAL_ANNOTATION, quota_tree.UNSCHEDULABLE_ANNOTATION)
            texts |= {key: quota.published[key] for key in published_keys if key in quota.published}
        if (
            _nonzero(quota.used) != _nonzero(use.used)
            or any(_differs(quota.published.get(key), amounts) for key, amounts in annotations.items())
            or any(quota.published.get(key) != texts.get(key) for key in moments)
        ):
            texts |= {key: json.dumps(_quantities(a), separators=(",", ":")) for key, a in annotations.items()}
            address = Address(QUOTA_GROUP, "elasticquotas", quota.name, quota.namespace)
            body = address.manifest("ElasticQuota", {"annotations": texts}, status={"used": _quantities(use.used)})
            intents.append(Apply(address, body, why="the quota's use or runtime changed"))
    return tuple(intents)


def root_quota_intents(view: QueueView) -> Iterator[Create | Patch]:
    """Yield the writes that create each profile's root quota and adapt it to the capacity of the profile's nodes.

    A quota of that name that was not created from the profile belongs to people and is not changed.
    """
    for profile in view.profiles:
        quota = view.quotas.get(profile.quota)
        nodes, _ = profile_capacity(profile, view.nodes)
        size = {resource: nodes.get(resource, 0) for resource in profile.resources}
        address = Address(QUOTA_GROUP, "elasticquotas", profile.quota, profile.namespace)
        why = f"this is the root quota of elasticquotaprofile {profile.namespace}/{profile.name}"
        if quota is None:
            labels = {
                quota_tree.PROFILE_LABEL: profile.name,
                quota_tree.IS_ROOT_LABEL: "true",
                quota_tree.TREE_LABEL: profile.tree_id,
            }
            metadata = {"labels": {**profile.quota_labels, **labels, quota_tree.IS_PARENT_LABEL: "true"}}
            spec = {"min": _quantities(size), "max": _quantities(size)}
            asker = f"elasticquotaprofiles/{profile.namespace}/{profile.name}"
            yield Create(address, address.manifest("ElasticQuota", metadata, spec=spec), why=why, asker=asker)
        elif (quota.profile, quota.namespace, quota.problem) == (profile.name, profile.namespace, "") and (
            quota.minimum != size or quota.maximum != size
        ):
            label = "/metadata/labels/" + escape_pointer_key(quota_tree.PROFILE_LABEL)
            same = {"op": "test", "path": label, "value": profile.name}
            written = (
                {"op": "replace", "path": f"/spec/{name}", "value": _quantities(size)} for name in ("min", "max")
            )
            yield Patch(address, (same, *written), why=why)


def published_since(quotas: Mapping[str, QuotaNode], annotation: str) -> dict[str, float]:
    """Return the Unix time in an annotation of each quota; quotas without a valid time are left out."""
    moments = {}
    for name, quota in quotas.items():
        with suppress(UsageError):
            moments[name] = moment_of(quota.published.get(annotation), annotation)
    return {name: moment for name, moment in moments.items() if moment is not None}


def _differs(text: str | None, amounts: Amounts) -> bool:
    try:
        before = quota_tree.amounts_of(msgspec.json.decode(text), "annotation") if text else {}
    except (UsageError, *UNDECODABLE):
        return True
    return _nonzero(before) != _nonzero(amounts)


def _nonzero(amounts: Amounts) -> dict[str, int]:
    return {resource: amount for resource, amount in amounts.items() if amount}


def _quantities(amounts: Amounts) -> dict[str, str]:
    return {resource: quota_tree.quantity_of(resource, amount) for resource, amount in sorted(amounts.items())}
