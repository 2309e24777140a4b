"""The use of quotas within one round of admission, grown as pods are let go."""

from __future__ import annotations

from collections.abc import Mapping

from cotenant.scheduler_ext.queues.model.quota_tree import Amounts


class QuotaAccount:
    """The use of quotas, all their children included; grows as units are let go."""

    def __init__(self, ancestors: Mapping[str, tuple[str, ...]]) -> None:
        self.ancestors = ancestors
        self.own: dict[str, dict[str, int]] = {name: {} for name in ancestors}
        self.used: dict[str, dict[str, int]] = {name: {} for name in ancestors}
        self.firm: dict[str, dict[str, int]] = {name: {} for name in ancestors}

    def add(self, quota: str, amounts: Amounts, firm: Amounts) -> None:
        """Add what a unit uses to its quota and all above it; firm: the part that may not be preempted."""
        add_amounts(self.own[quota], amounts)
        for name in (quota, *self.ancestors[quota]):
            add_amounts(self.used[name], amounts)
            add_amounts(self.firm[name], firm)


def add_amounts(sums: dict[str, int], amounts: Amounts) -> None:
    """Add amounts to sums, resource by resource."""
    for resource, amount in amounts.items():
        sums[resource] = sums.get(resource, 0) + amount
