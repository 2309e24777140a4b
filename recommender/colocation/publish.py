"""From computed amounts to writes of nodes/status: only necessary ones, at most one write per node. Pure.

A node is written if a resource appears or disappears, if an amount moved by more than `resourceDiffThreshold` of the
published one, or if any amount differs and `updateTimeThresholdSeconds` have passed since the last write. So an
unchanged cluster gets no write at all. Source: koord-manager, `slo-controller/noderesource`.

A withdrawn resource is removed with a JSON patch instead of being omitted from an apply: keys that Koordinator's
manager left behind would otherwise be offered for ever.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cotenant.base.colocation.colocation_strategy import ColocationStrategy
from cotenant.base.colocation.reclaim_policies import BY_FORECAST, Band
from cotenant.base.json_documents.difference import escape_pointer_key
from cotenant.base.kubernetes.intent import Address, Apply, Intent, Patch
from cotenant.base.kubernetes.protocol import (
    BATCH_CPU_POLICY_ANNOTATION,
    EXTENDED_RESOURCES,
    ORIGIN_ALLOCATABLE_ANNOTATION,
)
from cotenant.base.resource import Resource
from cotenant.recommender.colocation.columns import Booleans, Floats
from cotenant.recommender.colocation.facts import ColocationNode
from cotenant.recommender.colocation.formulas import REASONS, BandColumns
from cotenant.recommender.colocation.state import Computed

Key = tuple[Band, Resource]
KEYS: Final[tuple[Key, ...]] = tuple(EXTENDED_RESOURCES)
_POLICY_PATH: Final = f"/metadata/annotations/{escape_pointer_key(BATCH_CPU_POLICY_ANNOTATION)}"


@dataclass(frozen=True, slots=True, eq=False)
class Published:
    """Present and desired amounts of the nodes, (extended resources, nodes) each; NaN if absent."""

    capacity: Floats
    allocatable: Floats
    wanted: Floats
    original: Floats
    """The wanted amounts before the amounts that other schedulers took are subtracted."""


@dataclass(frozen=True, slots=True, eq=False)
class WriteReasons:
    """Masks of the reasons to write each node, one value per node; a node without any reason is not written."""

    keys: Booleans
    """A resource has to be added or removed."""
    moved: Booleans
    """An amount differs by more than the strategy's `diff_threshold`."""
    late: Booleans
    """An amount differs, and the last write is `update_threshold_seconds` old."""
    policy: Booleans
    """The Node does not name the policy of its batch-cpu though it should, or names one that it should not."""

    @property
    def write(self) -> Booleans:
        """Mask of the nodes that have any reason to be written."""
        return np.asarray(self.keys | self.moved | self.late | self.policy)

    def policy_alone(self, i: int) -> bool:
        """Return whether node `i`, which is written, has no other reason than `policy`."""
        return not (self.keys[i] or self.moved[i] or self.late[i])


def publish(
    facts: Sequence[ColocationNode],
    strategies: Sequence[ColocationStrategy],
    computed: Computed,
    written_seconds: Mapping[str, float],
    now_seconds: float,
) -> list[Intent]:
    """Return the writes for nodes that need one, in the order of `facts`.

    `strategies` and `computed` are of the same nodes in the same order; `written_seconds` is the Unix time of
    cotenant's last write of a node, a missing one counts as long ago.
    """
    if not facts:
        return []
    since = now_seconds - np.array([written_seconds.get(f.node.name, -np.inf) for f in facts])
    published = limit_rises(current_amounts(facts, computed), computed, strategies, since)
    lends = np.asarray((~np.isnan(published.wanted)).any(axis=0))
    policies = [policy_text(strategy) if lent else "" for strategy, lent in zip(strategies, lends, strict=True)]
    misnamed = [policy_on(f) != (policy or None) for f, policy in zip(facts, policies, strict=True)]
    verdict = find_write_reasons(published, strategies, since, np.array(misnamed))
    intents = []
    for i in map(int, np.flatnonzero(verdict.write)):
        # One sentence for the log and the Event.
        reason = REASONS[computed[KEYS[0]].reasons[i]]
        if verdict.keys[i]:
            why = f"batch or mid resources of the node appear or disappear (reason: {reason})"
        elif verdict.moved[i]:
            why = "a batch or mid amount changed by more than resourceDiffThreshold"
        elif verdict.policy[i]:
            why = f"{BATCH_CPU_POLICY_ANNOTATION} does not name the policy of batch-cpu"
        else:
            why = "published amounts differ from computed ones and updateTimeThresholdSeconds have passed"
        amounts = _texts(published.wanted[:, i]), _texts(published.original[:, i])
        intents.append(_write(facts[i], policies[i], amounts, verdict.policy_alone(i), why))
    return intents


def policy_text(strategy: ColocationStrategy) -> str:
    """Return the name of the batch-cpu policy for the Node's annotation, or "" under Koordinator's policies.

    Koordinator itself writes no such name.
    """
    return strategy.cpu_policy if strategy.cpu_policy in BY_FORECAST else ""


def policy_on(facts: ColocationNode) -> str | None:
    """Return the batch-cpu policy that the Node's annotation names now; None if there is no annotation."""
    return facts.node.annotations.get(BATCH_CPU_POLICY_ANNOTATION)


def policy_name_removal(facts: ColocationNode, why: str) -> Patch:
    """Return the patch that removes the policy's name from a Node, regardless of who wrote it."""
    operation = {"op": "remove", "path": _POLICY_PATH}
    return Patch(Address("v1", "nodes", facts.node.name), (operation,), subresource="status", why=why)


def current_amounts(facts: Sequence[ColocationNode], computed: Computed) -> Published:
    """Return the amounts on the Nodes and the amounts just computed, (keys, nodes) in the order of KEYS and `facts`.

    NaN means that the Node does not have the resource, or that nothing is to be lent (`wanted`, `original`). If a
    report is unusable (`BandColumns.kept`), the wanted amount is the one on the Node.
    """
    names = [EXTENDED_RESOURCES[key] for key in KEYS]
    return Published(
        capacity=_table([[f.node.extended_capacity.get(n, np.nan) for f in facts] for n in names]),
        allocatable=_table([[f.node.extended_allocatable.get(n, np.nan) for f in facts] for n in names]),
        wanted=_table([_wanted_amounts(facts, key, computed[key], computed[key].amounts) for key in KEYS]),
        original=_table([_wanted_amounts(facts, key, computed[key], computed[key].original) for key in KEYS]),
    )


def _wanted_amounts(facts: Sequence[ColocationNode], key: Key, columns: BandColumns, amounts: Any) -> Floats:
    """Return the amounts to publish, (nodes,): kept ones as on the Node, plus in `original` what others took."""
    # Amounts as floats, NaN where the resource is withdrawn.
    lent = np.where(columns.lent, amounts.astype(np.float64), np.nan)
    if columns.kept is None or not columns.kept.any():
        return lent
    name, third = EXTENDED_RESOURCES[key], amounts is columns.original
    present = [f.node.extended_allocatable.get(name, np.nan) + third * f.third_party.get(key, 0) for f in facts]
    return np.where(columns.kept, np.array(present, dtype=np.float64), lent)


def limit_rises(
    published: Published, computed: Computed, strategies: Sequence[ColocationStrategy], since: Floats
) -> Published:
    """Return `published` with its `wanted` amounts limited: at most maxRisePercent of capacity more per interval.

    The interval is updateTimeThresholdSeconds. Falls apply at once. `since` is the seconds since cotenant's last write
    of each node; a rise may use the share of the interval that has passed, one interval at most. Without the setting,
    and on Nodes without an amount yet, rises are not limited. The rule is cotenant's own; Koordinator publishes a rise
    at once.
    """
    percent = np.array([np.nan if s.max_rise_percent is None else s.max_rise_percent for s in strategies])
    interval = np.array([s.update_threshold_seconds for s in strategies], dtype=np.float64)
    share = percent / 100 * np.clip(since / interval, 0, 1)
    capacity = _table([computed[key].terms[0].values for key in KEYS])
    ceiling = np.floor(published.allocatable + capacity * share)
    capped = np.where(np.isnan(ceiling), published.wanted, np.minimum(published.wanted, ceiling))
    return Published(published.capacity, published.allocatable, capped, published.original)


def find_write_reasons(
    published: Published, strategies: Sequence[ColocationStrategy], since: Floats, misnamed: Booleans
) -> WriteReasons:
    """Return the nodes to write, with the reasons; any of four reasons in any resource is enough.

    `keys`: a resource appears or disappears. `moved`: |wanted - old| > old * diff_threshold, old being the Node's
    allocatable or its capacity. `late`: any difference, and the last write is update_threshold_seconds old. `policy`:
    the Node is `misnamed`, (nodes,): it does not name the policy of its batch-cpu, or names one though it should not.
    `since` is the seconds since cotenant's last write of each node, (nodes,). Source: Koordinator's
    `resourceDiffThreshold` and `updateTimeThresholdSeconds`.
    """
    threshold = np.array([s.diff_threshold for s in strategies])
    interval = np.array([s.update_threshold_seconds for s in strategies], dtype=np.float64)
    missing = np.isnan(published.wanted)
    keys = (missing != np.isnan(published.allocatable)) | (missing != np.isnan(published.capacity))
    sides = [np.nan_to_num(np.abs(published.wanted - old)) for old in (published.allocatable, published.capacity)]
    olds = [np.nan_to_num(old) for old in (published.allocatable, published.capacity)]
    beyond = [difference > old * threshold for difference, old in zip(sides, olds, strict=True)]
    moved = np.any(beyond, axis=0) & ~missing
    differs = (np.maximum(*sides) > 0) & ~missing
    late = differs.any(axis=0) & (since >= interval)
    return WriteReasons(keys.any(axis=0), moved.any(axis=0), late, misnamed)


def _write(
    facts: ColocationNode,
    policy: str,
    amounts: tuple[Mapping[str, str], Mapping[str, str]],
    policy_alone: bool,
    why: str,
) -> Intent:
    """Return one node's write: its amounts (now, and before other schedulers took theirs), or their removal.

    An outdated policy name is removed with the amounts, or alone: apply removes it only if cotenant owns it.
    """
    address = Address("v1", "nodes", facts.node.name)
    lent, original = amounts
    names = frozenset(EXTENDED_RESOURCES.values())
    if lent:  # what the Node carries and is no longer lent: apply takes away only what is ours
        names &= facts.node.extended_capacity.keys() | facts.node.extended_allocatable.keys()
    removed_paths = _paths(facts, names - lent.keys())
    if removals := tuple({"op": "remove", "path": path} for path in removed_paths):
        return Patch(address, removals, subresource="status", why=why)  # what is still lent follows in the next round
    if policy_alone and not policy:
        return policy_name_removal(facts, why)
    annotations = {BATCH_CPU_POLICY_ANNOTATION: policy} if policy else {}
    if facts.third_party:
        text = json.dumps({"resources": original}, separators=(",", ":"), sort_keys=True)
        annotations[ORIGIN_ALLOCATABLE_ANNOTATION] = text
    metadata = {"annotations": annotations} if annotations else {}
    body = address.manifest("Node", metadata, status={"capacity": lent, "allocatable": lent})
    return Apply(address, body, subresource="status", why=why)


def _paths(facts: ColocationNode, names: Collection[str]) -> Iterator[str]:
    """Yield JSON pointers of these resources that are on a node now; the policy's name goes with the last resource."""
    if policy_on(facts) is not None and len(names) == len(EXTENDED_RESOURCES):
        yield _POLICY_PATH
    for part, amounts in (("capacity", facts.node.extended_capacity), ("allocatable", facts.node.extended_allocatable)):
        for name in (resource_name for resource_name in EXTENDED_RESOURCES.values() if resource_name in names):
            if name in amounts:
                yield f"/status/{part}/{escape_pointer_key(name)}"


def _texts(amounts: Floats) -> dict[str, str]:
    """Return one node's amounts, (keys,), as Kubernetes quantities by name, without NaN."""
    pairs = zip(KEYS, (float(a) for a in amounts), strict=True)
    return {EXTENDED_RESOURCES[key]: str(int(amount)) for key, amount in pairs if not math.isnan(amount)}


def _table(rows: Sequence[Any]) -> Floats:
    return np.array(rows, dtype=np.float64)
