"""Quota trees and the capacity that each divides; quotas outside of a tree are listed by name. Pure.

A quota is in the tree of its topmost parent below the root: the tree of the profile that names that quota, or its tree
id, if a profile or a total gives this tree capacity; otherwise the default tree. The default tree has all nodes,
without those of trees that are labelled to be left out of it, and without what pods of no quota use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from cotenant.base.errors import UsageError
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.kubernetes.pod_request import sum_amounts
from cotenant.base.kubernetes.protocol import ROOT_QUOTA
from cotenant.base.kubernetes.quota_tree import (
    MOST_LEVELS,
    SYSTEM_QUOTAS,
    TOTAL_ANNOTATION,
    Amounts,
    QuotaNode,
    QuotaTree,
    amounts_of,
    quantity_of,
)
from cotenant.scheduler_ext.queues.view import QueueNode, QuotaProfile

_TOO_DEEP: Final = f"the quota is not within {MOST_LEVELS} levels below the root quota"


@dataclass(frozen=True)
class ElasticTree:
    """One quota tree; `total` is the capacity that its quotas divide."""

    tree_id: str
    quotas: Mapping[str, QuotaNode]
    total: Amounts = field(default_factory=dict)


@dataclass(frozen=True)
class QuotaForest:
    """All trees, the ancestors of each usable quota (its parent first, without the root), and unusable quotas.

    `absent` are quotas that a profile names but that do not exist, with the profile's tree id.
    """

    trees: tuple[ElasticTree, ...] = ()
    ancestors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)


def build_quota_forest(quotas: Mapping[str, QuotaNode]) -> QuotaForest:
    """Return a forest without its trees: the usable quotas' ancestors, and the problems of the other quotas."""
    problems = {name: problem for name, quota in quotas.items() if (problem := _own_problem(quota))}
    tree = QuotaTree(quotas)
    ancestors: dict[str, tuple[str, ...]] = {}
    level: list[tuple[QuotaNode, tuple[str, ...], str]] = [(quota, (), "") for quota in tree.children(ROOT_QUOTA)]
    while level:
        following: list[tuple[QuotaNode, tuple[str, ...], str]] = []
        for quota, above, bad in level:  # with its ancestors, and an invalid one of them
            if quota.name in SYSTEM_QUOTAS:
                continue
            if bad:
                problems.setdefault(quota.name, f"ancestor quota {bad} is invalid: {problems[bad]}")
            elif len(above) >= MOST_LEVELS:
                problems.setdefault(quota.name, _TOO_DEEP)
            invalid = bad or (quota.name if quota.name in problems else "")
            if not invalid:
                ancestors[quota.name] = above
            below = () if invalid else (quota.name, *above)
            following += [(child, below, invalid) for child in tree.children(quota.name)]
        level = following
    for name, quota in tree.quotas.items():
        if name not in ancestors and name not in SYSTEM_QUOTAS:
            problems.setdefault(name, _lost(tree, quota))
    return QuotaForest((), ancestors, problems)


def with_trees(
    places: QuotaForest,
    quotas: Mapping[str, QuotaNode],
    profiles: Iterable[QuotaProfile],
    nodes: Iterable[QueueNode],
    unowned: Amounts,
) -> QuotaForest:
    """Return the forest with its trees built; `unowned` is what pods of no quota use on the default tree's nodes."""
    nodes = tuple(nodes)
    capacities: dict[str, Amounts] = {"": sum_amounts([node.allocatable for node in nodes])}  # by tree id
    heads: dict[str, str] = {}
    for profile in profiles:
        before, (selected, _) = capacities.get(profile.tree_id, {}), profile_capacity(profile, nodes)
        capacities[profile.tree_id] = sum_amounts([before, selected])
        heads[profile.quota] = profile.tree_id
    by_tree: dict[str, dict[str, QuotaNode]] = {}
    for name, above in places.ancestors.items():
        top = quotas[above[-1] if above else name]
        tree_id = heads.get(top.name, top.tree_id)
        if tree_id not in capacities and not _annotated_total(top):
            tree_id = ""
        by_tree.setdefault(tree_id, {})[name] = quotas[name]
    totals: dict[str, Amounts] = {}  # by its profiles, else by the annotations of its root quotas
    for tree_id, members in by_tree.items():
        if tree_id in capacities:
            totals[tree_id] = capacities[tree_id]
        else:
            roots = (quota for quota in members.values() if quota.parent == ROOT_QUOTA)
            totals[tree_id] = sum_amounts([_annotated_total(quota) for quota in roots])
    outside = [totals[t] for t in totals if t and any(q.ignores_default_tree for q in by_tree[t].values())]
    taken = sum_amounts([*outside, unowned])
    totals[""] = {r: max(0, amount - taken.get(r, 0)) for r, amount in capacities[""].items()}
    trees = [ElasticTree(t, by_tree[t], totals[t]) for t in sorted(by_tree)]
    absent = {name: tree_id for name, tree_id in heads.items() if name not in quotas}
    return replace(places, trees=tuple(trees), absent=absent)


def _own_problem(quota: QuotaNode) -> str:
    if quota.problem:
        return quota.problem
    for what, amounts in (("min", quota.minimum), ("max", quota.maximum), ("shared-weight", quota.shared_weight)):
        for resource, amount in amounts.items():
            if amount < 0:
                return f"{what} of {resource} is {amount}, which is negative"
    for resource, amount in quota.minimum.items():
        if amount > quota.maximum.get(resource, amount):
            least, most = quantity_of(resource, amount), quantity_of(resource, quota.maximum[resource])
            return f"min of {resource} is {least}, more than the quota's max {most}"
    return ""


def _lost(tree: QuotaTree, quota: QuotaNode) -> str:
    """Return why a quota is not below the root."""
    chain = [quota.name, *tree.ancestors(quota)]
    last = chain[-1]
    if last in chain[:-1]:
        return f"the quota's parents form a cycle: {' -> '.join(chain[chain.index(last) :])}"
    if last in SYSTEM_QUOTAS:
        return f"parent quota {last} is a system quota, which has no children"
    if last in tree.quotas:
        return _TOO_DEEP
    return f"parent quota {last} does not exist" if last == quota.parent else f"ancestor quota {last} does not exist"


def profile_capacity(profile: QuotaProfile, nodes: Iterable[QueueNode]) -> tuple[Amounts, Amounts]:
    """Return the capacity of a profile's nodes, and the part of it on nodes that are cordoned or not ready."""
    selected = [n for n in nodes if profile.selector.matches(n.labels)]
    return (
        _share(sum_amounts([n.allocatable for n in selected]), profile.ratio),
        _share(sum_amounts([n.allocatable for n in selected if n.unschedulable or not n.ready]), profile.ratio),
    )


def _share(amounts: Amounts, ratio: float) -> Amounts:
    return amounts if ratio == 1.0 else {resource: int(amount * ratio) for resource, amount in amounts.items()}


def _annotated_total(quota: QuotaNode) -> Amounts:
    """Return the total in the annotation of a tree's root quota; {} if it is absent or invalid."""
    text = quota.published.get(TOTAL_ANNOTATION)
    if not quota.heads_tree or not text:
        return {}
    try:
        return amounts_of(msgspec.json.decode(text), "total-resource")
    except (UsageError, *UNDECODABLE):
        return {}
