"""What binds a node that stays: the pod that finds no place without it, and why the other nodes refuse it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cotenant.base.kubernetes.quantity import format_millicores, human_bytes
from cotenant.base.reasons import Reason
from cotenant.base.table import Kind, kind_of
from cotenant.scheduler_ext.cluster_size.constraints import Flags, PodClass
from cotenant.scheduler_ext.cluster_size.model import PODS, SizeOptions, Stay
from cotenant.scheduler_ext.cluster_size.placing import PlacingState, PlacingTrial, moving_of, place_pods
from cotenant.scheduler_ext.cluster_size.reserve import Exemptions, find_unplaced

NAMED_FAILURES: Final = 3
"""Failures of nodes, the fullest first, in which a pod is searched that would wait: all of them take too long."""


@dataclass(frozen=True, slots=True)
class Reserve:
    """The conditions that a node may leave under, beside places for its pods. hardest: the trial that refused last."""

    options: SizeOptions
    exemptions: Exemptions
    hardest: PlacingTrial


def binding_of(final: Sequence[tuple[PlacingTrial, PlacingState]], node: int, reserve: Reserve) -> Stay:
    """The first pod of the node that a trial's final state has no other place for, with the refusals counted.

    Where all have one, the first pod that waits when a further node fails. final: the state that each trial ended in,
    with the pods of the leaving nodes placed.
    """
    after: PlacingState | None = None
    for trial, state in final:
        if reserve.options.reserve_nodes and trial != reserve.hardest:
            continue  # every node failed in every trial, and its pods found places
        left = state.copy_without(state.places == node)
        if not len(left.places):
            return Stay(Reason.NO_OTHER_PLACE, "it is the last node")
        refused = place_pods(left, moving_of(left), trial)
        if refused is not None:
            words = refusal_words(left, refused, trial)
            return Stay(Reason.NO_OTHER_PLACE, words, state.cluster.pods[refused].address)
        after = left
    options, trial = replace(reserve.options, reserve_zone=False), reserve.hardest
    if options.reserve_nodes and after is not None:
        waiting = find_unplaced(after, options, trial, reserve.exemptions, NAMED_FAILURES).pod
        if waiting:
            fail = "node fails" if options.reserve_nodes == 1 else f"{options.reserve_nodes} nodes fail"
            words = f"{waiting} finds no other node after this node was removed and a further {fail} ({trial.words})"
            return Stay(Reason.NO_OTHER_PLACE, words, waiting)
    kept = " and kept the reserve" if reserve.options.reserve_nodes or reserve.options.reserve_zone else ""
    words = "its pods fit elsewhere, but no larger set of nodes with it passed every trial with the margin"
    return Stay(Reason.NO_OTHER_PLACE, words + kept)


def refusal_words(state: PlacingState, pod: int, trial: PlacingTrial) -> str:
    """The pod and why each living node refuses it: every node is counted once, by the first rule that does."""
    cluster = state.cluster
    pod_class = cluster.classes[cluster.class_of[pod]]
    refused = np.zeros(len(state.places), dtype=np.bool_)
    parts: list[tuple[int, str]] = []
    for words, flags in _refusals(state, pod_class):
        new = int((flags & ~refused).sum())
        refused |= flags
        if new:
            parts.append((new, words))
    counted = ", ".join(f"{count} by {words}" for count, words in sorted(parts, key=lambda part: -part[0]))
    return f"{cluster.pods[pod].address} finds no other node ({trial.words}): {counted} of {len(refused)} nodes"


def _refusals(state: PlacingState, pod_class: PodClass) -> list[tuple[str, Flags]]:
    words = [(text, flags[state.places]) for text, flags in pod_class.refusals.items()]
    for column, amount in zip(pod_class.columns.tolist(), pod_class.amounts.tolist(), strict=True):
        free, name = state.free[column], state.cluster.resources[column]
        usable = free[state.mask_of(pod_class) & (free < amount)]
        most = int(usable.max()) if len(usable) else 0
        needs = "" if name == PODS else f" (needs {_amount(name, amount)}, at most {_amount(name, max(most, 0))} free)"
        words.append((f"{'pod count' if name == PODS else name}{needs}", free < amount))
    return [*words, *state.relation_refusals(pod_class)]


def _amount(name: str, amount: int) -> str:
    kind = kind_of(name)
    if kind is Kind.MILLICORES:
        return f"{format_millicores(amount)} cores" if amount % 1000 == 0 else format_millicores(amount)
    return human_bytes(amount) if kind is Kind.BYTES else str(amount)
