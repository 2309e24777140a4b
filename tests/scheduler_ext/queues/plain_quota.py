"""Runtime quota one group and one resource at a time, in the order of the rules: what arrays are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cotenant.base.kubernetes.protocol import ROOT_QUOTA
from cotenant.base.kubernetes.quota_tree import QuotaNode


@dataclass
class Child:
    name: str
    request: int
    first: int
    weight: int
    lends: bool
    runtime: int = 0


def plain_runtime(
    quotas: Mapping[str, QuotaNode], total: int, requests: Mapping[str, int], resource: str, scaling: bool = True
) -> dict[str, int]:
    """Runtime of each group in one resource."""
    runtime: dict[str, int] = {}

    def below(parent: str) -> list[QuotaNode]:
        return sorted((q for q in quotas.values() if q.parent == parent), key=lambda q: q.name)

    def request(quota: QuotaNode) -> int:
        children = requests.get(quota.name, 0) + sum(request(child) for child in below(quota.name))
        needed = children if quota.lends else max(children, quota.minimum.get(resource, 0))
        return min(needed, quota.maximum.get(resource, needed))

    def share(parent: str, pool: int) -> None:
        family = below(parent)
        minimum = scaled({q.name: q.minimum.get(resource, 0) for q in family}, pool) if scaling else {}
        children = [
            Child(q.name, request(q), minimum.get(q.name, q.minimum.get(resource, 0)), weight(q), q.lends)
            for q in family
        ]
        give(children, pool)
        for child in children:
            runtime[child.name] = child.runtime
            share(child.name, max(0, child.runtime - requests.get(child.name, 0)))

    def weight(quota: QuotaNode) -> int:
        if resource not in quota.maximum:
            return 0
        chosen = quota.shared_weight if any(quota.shared_weight.values()) else quota.maximum
        return chosen.get(resource, quota.maximum[resource])

    share(ROOT_QUOTA, max(0, total))
    return runtime


def scaled(minimum: Mapping[str, int], pool: int) -> dict[str, int]:
    total = sum(minimum.values())
    return dict(minimum) if total <= pool else {name: m * pool // total for name, m in minimum.items()}


def give(children: list[Child], pool: int) -> None:
    for child in children:
        child.runtime = child.first if child.request > child.first or not child.lends else child.request
    spent = sum(child.runtime for child in children)
    if spent > pool:
        for child in children:
            child.runtime = child.runtime * pool // spent
        spent = sum(child.runtime for child in children)
    remaining, hungry = pool - spent, [c for c in children if c.runtime < c.request and c.weight > 0]
    while remaining > 0 and hungry:
        total_weight = sum(c.weight for c in hungry)
        parts = {c.name: divmod(c.weight * remaining, total_weight) for c in hungry}
        residual = remaining - sum(part for part, _ in parts.values())
        lucky = sorted(hungry, key=lambda c: (-parts[c.name][1], c.name))[:residual]
        remaining = 0
        for child in hungry:
            child.runtime += parts[child.name][0] + (child in lucky)
            remaining += max(0, child.runtime - child.request)
            child.runtime = min(child.runtime, child.request)
        hungry = [c for c in hungry if c.runtime < c.request]
