"""EDGE: waits for the nodes' answers to in-place resizes, and finds the later pods that a rollback must resize."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from cotenant.base.errors import ClusterForbidden
from cotenant.base.kube import KubeClient
from cotenant.changes.decide.field_changes import given_to_new_pods
from cotenant.changes.decide.in_place import RESIZE, Resized, ResizeOutcome, answer, new_pod_writes
from cotenant.changes.model.change import Change, Write

PAUSE_SECONDS: Final = 0.25
SETTLED: Final = (ResizeOutcome.DONE, ResizeOutcome.INFEASIBLE)
"""Deferred may still be granted, when something on the node ends."""


def answers(client: KubeClient, writes: Sequence[Write], patience_seconds: float) -> list[Resized]:
    """Return nodes' answers for resized pods that still exist, once all are final, one is Infeasible or time is up."""
    deadline = time.monotonic() + patience_seconds
    pods = [write for write in writes if write.subresource == RESIZE]
    resized: dict[str, Resized] = {}
    while pods:
        for write in list(pods):
            live = client.get(write.address.path)
            if live is None or (live.get("metadata") or {}).get("uid") != write.uid:
                pods.remove(write)
                continue
            resized[write.address.path] = answer(live, write)
            if resized[write.address.path].answer in SETTLED:
                pods.remove(write)
        is_refused = any(answer.answer is ResizeOutcome.INFEASIBLE for answer in resized.values())
        if is_refused or time.monotonic() >= deadline:
            break
        if pods:
            time.sleep(PAUSE_SECONDS)
    return list(resized.values())


def read_new_pod_writes(client: KubeClient, change: Change) -> list[Write]:
    """Return the resources that the webhook set on pods created under a change, as writes that a rollback can undo.

    The result is empty if pods may not be listed.
    """
    swaps = given_to_new_pods(change.writes)
    if not swaps:
        return []
    try:
        pods = client.list(f"/api/v1/namespaces/{change.namespace}/pods")
    except ClusterForbidden:
        return []
    return new_pod_writes(pods, change.id, swaps)
