"""The webhooks for ElasticQuotas: defaults, and the rules of the quota tree. Pure.

The five main rules: children's min sum to at most the parent's (not under the root); a child's max may exceed its
parent's; pods use only leaves (`admission.pod_rules`); only a parent quota has children; is-parent does not change. The
other rules keep the tree computable: resource keys, tree ids, no cycle, no missing parent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from cotenant.base.errors import UsageError
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.kubernetes.pod_request import sum_amounts
from cotenant.base.kubernetes.protocol import ROOT_QUOTA, SYSTEM_QUOTA
from cotenant.base.kubernetes.quota_tree import (
    INT64_MAX,
    IS_PARENT_LABEL,
    NAMESPACES_ANNOTATION,
    PARENT_LABEL,
    SHARED_WEIGHT_ANNOTATION,
    STRICT_KEYS_ANNOTATION,
    SYSTEM_QUOTAS,
    TREE_LABEL,
    QuotaNode,
    QuotaTree,
)
from cotenant.base.problem import Problem
from cotenant.base.text import counted

UNTOUCHABLE: Final = (ROOT_QUOTA, SYSTEM_QUOTA)
_PARENT: Final = f"metadata.labels[{PARENT_LABEL}]"
_IS_PARENT: Final = f"metadata.labels[{IS_PARENT_LABEL}]"
_TREE: Final = f"metadata.labels[{TREE_LABEL}]"
_NAMESPACES: Final = f"metadata.annotations[{NAMESPACES_ANNOTATION}]"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """A change of a quota: the new `quota`, the `old` one (None if it is new), and the tree for the checks."""

    quota: QuotaNode
    old: QuotaNode | None
    tree: QuotaTree

    @property
    def parent(self) -> QuotaNode | None:
        """The parent quota; None under the root, and if the parent does not exist or is invalid."""
        parent = None if self.quota.parent == ROOT_QUOTA else self.tree.quotas.get(self.quota.parent)
        return None if parent is None or parent.problem else parent

    @property
    def children(self) -> tuple[QuotaNode, ...]:
        """Quotas that name this one as their parent."""
        return self.tree.children(self.quota.name)


def with_defaults(body: Mapping[str, Any], tree: QuotaTree, old: Mapping[str, Any] | None = None) -> Json:
    """Return the quota with defaults: its parent, the parent's tree id, and shared weights for exactly max's resources.

    `old` is the quota before an update. An update that changes none of the inputs of the defaults, such as the
    manager's status, sets no defaults: otherwise the manager would change the tree.
    """
    metadata = dict(body["metadata"])
    if metadata.get("name") == ROOT_QUOTA or (old is not None and _default_inputs(body) == _default_inputs(old)):
        return dict(body)
    labels, annotations = dict(metadata.get("labels") or {}), dict(metadata.get("annotations") or {})
    labels[PARENT_LABEL] = labels.get(PARENT_LABEL) or ROOT_QUOTA
    parent = tree.quotas.get(labels[PARENT_LABEL])
    if parent and parent.tree_id and parent.name != ROOT_QUOTA and not labels.get(TREE_LABEL):
        labels[TREE_LABEL] = parent.tree_id
    metadata["labels"] = labels
    if maximum := (body.get("spec") or {}).get("max"):
        annotations[SHARED_WEIGHT_ANNOTATION] = _weights(annotations.get(SHARED_WEIGHT_ANNOTATION), maximum)
        metadata["annotations"] = annotations
    return {**body, "metadata": metadata}


def _default_inputs(body: Mapping[str, Any]) -> tuple[Any, ...]:
    metadata = body["metadata"]
    weights = (metadata.get("annotations") or {}).get(SHARED_WEIGHT_ANNOTATION)
    return metadata.get("labels") or {}, weights, (body.get("spec") or {}).get("max")


def _weights(text: Any, maximum: Mapping[str, Any]) -> str:
    """Return the given weights for exactly max's resources; a text that is no JSON object stays for the rules."""
    try:
        weights = msgspec.json.decode(text, type=dict[str, Any]) if text else {}
    except (TypeError, *UNDECODABLE):
        return str(text)
    if text and weights.keys() == maximum.keys():
        return str(text)
    return json.dumps({name: weights.get(name, value) for name, value in maximum.items()}, separators=(",", ":"))


def problems_of(body: Mapping[str, Any], old_body: Mapping[str, Any] | None, tree: QuotaTree) -> list[Problem]:
    """Return all problems of a new or changed quota; an update that changes no checked field has none."""
    try:
        quota = QuotaNode.parse(body)
    except UsageError as error:
        field, _, message = error.message.partition(": ")
        return [Problem(field, "", message, error.fix)]
    try:
        old = None if old_body is None else QuotaNode.parse(old_body)
    except UsageError:
        old = QuotaNode(name="")  # what cannot be read any more is as good as empty
    if quota.name == ROOT_QUOTA and old is None:
        return []
    if old is not None and _validated_fields(quota) == _validated_fields(old):
        return []
    if old is not None and quota.name in UNTOUCHABLE:
        return [
            Problem(
                "metadata.name", quota.name, "belongs to the system and may not be changed", "leave the quota as it is"
            )
        ]
    change = QuotaChange(quota, old, tree)
    return [*_own_problems(quota), *_identity(change), *_tree_problems(change), *_related_amounts(change)]


def problems_of_deletion(body: Mapping[str, Any], tree: QuotaTree, pods: int) -> list[Problem]:
    """Return why a quota may not be deleted; empty if the quota of its name in `tree` is in another namespace.

    `pods` is the number of pods that have not ended and use the quota of that name.
    """
    name, namespace = (str(body["metadata"].get(key) or "") for key in ("name", "namespace"))
    if name in SYSTEM_QUOTAS:
        return [
            Problem("metadata.name", name, "belongs to the system and may not be deleted", "leave the quota as it is")
        ]
    named_quota = tree.quotas.get(name)
    if named_quota is not None and named_quota.namespace != namespace:
        return []
    children = ", ".join(q.name for q in tree.children(name)[:5])
    problems = []
    if children:
        problems.append(
            Problem("metadata.name", name, f"still has child quotas: {children}", "delete or move child quotas first")
        )
    if pods:
        problems.append(
            Problem("metadata.name", name, f"is still used by {counted(pods, 'pod')}", "delete or move the pods first")
        )
    return problems


def _validated_fields(quota: QuotaNode) -> tuple[Any, ...]:
    return (quota.parent, quota.is_parent, quota.tree_id, quota.namespaces, quota.minimum, quota.maximum)


def _own_problems(quota: QuotaNode) -> Iterator[Problem]:
    """Yield the problems that need no other quota to be found."""
    for name, amount in quota.minimum.items():
        if name not in quota.maximum:
            yield Problem(f"spec.min.{name}", str(amount), "has no max", f"add spec.max.{name}")
        elif amount > quota.maximum[name]:
            message = f"is above spec.max.{name} = {quota.maximum[name]}"
            yield Problem(f"spec.min.{name}", str(amount), message, "lower min or raise max")
    for name in quota.strict_keys:
        if name in quota.used and quota.used[name] > quota.maximum.get(name, -1):
            message = f"is below the present use ({quota.used[name]}), which {STRICT_KEYS_ANNOTATION} forbids"
            yield Problem(f"spec.max.{name}", str(quota.maximum.get(name, "")), message, "raise max or end pods first")


def _identity(change: QuotaChange) -> Iterator[Problem]:
    """Yield the problems with names, with fields that may not change, and with a tree id unlike the parent's."""
    quota, old, parent = change.quota, change.old, change.parent
    same = change.tree.quotas.get(quota.name)
    if old is None and same is not None and same.namespace != quota.namespace:
        message = f"is already the name of a quota in namespace {same.namespace}"
        yield Problem("metadata.name", quota.name, message, "choose another name: quota names are cluster-wide")
    for namespace in quota.namespaces:
        owner = change.tree.owner_of_namespace(namespace)
        if owner is not None and owner.name != quota.name:
            yield Problem(_NAMESPACES, namespace, f"is bound to quota {owner.name} too", "name it in one quota only")
    if old is not None and old.name and old.is_parent is not quota.is_parent:
        was = str(old.is_parent).lower()
        yield Problem(_IS_PARENT, str(quota.is_parent).lower(), f"may not be changed from {was}", "create a new quota")
    if old is not None and old.name and old.tree_id != quota.tree_id:
        yield Problem(_TREE, quota.tree_id, f"may not be changed from {old.tree_id!r}", "create a new quota")
    elif parent is not None and parent.tree_id != quota.tree_id:
        yield Problem(_TREE, quota.tree_id, f"differs from the parent quota's {parent.tree_id!r}", "remove the label")


def _tree_problems(change: QuotaChange) -> Iterator[Problem]:
    """Yield the problems with the quota's parent and children in the tree."""
    quota, parent = change.quota, change.parent
    if change.tree.has_cycle_through(quota):
        yield Problem(_PARENT, quota.parent, "makes the quota its own ancestor", "choose a parent not below the quota")
    elif quota.parent != ROOT_QUOTA and parent is None:
        unread = change.tree.quotas.get(quota.parent)
        if unread is None:
            yield Problem(_PARENT, quota.parent, "does not exist", "create the parent first, or correct its name")
        else:
            yield Problem(_PARENT, quota.parent, f"cannot be read: {unread.problem}", "correct the parent first")
    elif parent is not None and not parent.is_parent:
        yield Problem(_PARENT, quota.parent, "is no parent quota", f"choose a quota with {IS_PARENT_LABEL}: true")
    if change.children and not quota.is_parent and (change.old is None or not change.old.is_parent):
        message = f"contradicts quotas that name this one as parent: {', '.join(q.name for q in change.children[:5])}"
        yield Problem(_IS_PARENT, "false", message, "set this label to true")


def _related_amounts(change: QuotaChange) -> Iterator[Problem]:
    """Yield the problems with a quota's amounts compared with those of its parent, children and siblings.

    Parent and children must limit the same resources, and a child's min may have only resources of its parent's.
    Children's min may not exceed the parent's. Sums beyond 64 bits are refused.
    """
    quota, parent = change.quota, change.parent
    pairs = [(parent, quota)] if parent else []
    for above, below in [*pairs, *((quota, child) for child in change.children if not child.problem)]:
        if above.maximum.keys() != below.maximum.keys():
            odd = ", ".join(sorted(above.maximum.keys() ^ below.maximum.keys()))
            message = f"differs in its resources between parent {above.name} and child {below.name}: {odd}"
            yield Problem("spec.max", quota.name, message, "give parent and child the same resources")
        if extra := below.minimum.keys() - above.minimum.keys():
            message = f"has {', '.join(sorted(extra))} in child {below.name}, but not in its parent {above.name}"
            yield Problem("spec.min", quota.name, message, "give the parent these min too, or remove the child's min")
    if not quota.heads_tree and not quota.forced:
        if parent is not None:
            siblings = [q for q in change.tree.children(parent.name) if q.name != quota.name]
            yield from _exceeded_minimums(parent, [*siblings, quota])
        if change.children:
            yield from _exceeded_minimums(quota, list(change.children))
    beside = [q for q in change.tree.children(quota.parent) if q.name != quota.name]
    for field, those in (("min", [q.minimum for q in beside]), ("max", [q.maximum for q in beside])):
        mine = quota.minimum if field == "min" else quota.maximum
        for name in mine:  # of exact sums: one that saturates is no larger than the bound
            if (amount := sum(amounts.get(name, 0) for amounts in (*those, mine))) > INT64_MAX:
                message = f"plus the {field} of its sibling quotas is {amount}, which exceeds a 64-bit number"
                yield Problem(f"spec.{field}.{name}", str(mine[name]), message, "write a smaller amount")


def _exceeded_minimums(parent: QuotaNode, children: list[QuotaNode]) -> Iterator[Problem]:
    """Yield a problem for each resource of which the children's min sum to more than the parent's."""
    for name, amount in sum_amounts([child.minimum for child in children]).items():
        if amount > parent.minimum.get(name, 0):
            message = f"is the sum of the children of {parent.name}, whose own min is {parent.minimum.get(name, 0)}"
            yield Problem(f"spec.min.{name}", str(amount), message, "lower children's min or raise the parent's min")
