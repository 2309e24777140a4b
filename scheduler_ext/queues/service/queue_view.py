"""EDGE: reads one view of the queues with the rights of the caller."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import replace
from typing import Final, TypeVar

import msgspec

from cotenant.base.controllers.isolation import Watched, compute_without_failing
from cotenant.base.controllers.loop import NOT_MADE
from cotenant.base.errors import ClusterAbsent, ClusterError, ClusterForbidden, CotenantError
from cotenant.base.kube import KubeClient
from cotenant.base.kube.reflection import Key
from cotenant.base.kubernetes.models.pod import EndedPodWire
from cotenant.base.kubernetes.protocol import NATIVE_GANG_GROUP
from cotenant.base.kubernetes.quota_tree import QuotaTree
from cotenant.base.settings.base import SettingSections
from cotenant.scheduler_ext.queues.model.settings import QueueSettings
from cotenant.scheduler_ext.queues.queue_objects import (
    QUEUE_MIRRORS,
    QUEUING,
    READABLE,
    SUCCEEDED,
    QueueViewBuilder,
    queue_mirror,
)
from cotenant.scheduler_ext.queues.view import QueueView
from cotenant.scheduler_ext.reservations.service.mirrors import reservation_mirror

EVENTS: Final = "/apis/events.k8s.io/v1/events"
PLURALS: Final = {"PodGroup": "podgroups", "Pod": "pods", "ElasticQuotaProfile": "elasticquotaprofiles"}
"""Plurals of the kinds whose Events are read."""
NEEDED: Final = frozenset({"quotas", "queue-pods", "queue-nodes"})
"""Mirrors without which there is no report of quotas."""
UNUSABLE: Final = "the tables do not include this object, because it is invalid"
ResultT = TypeVar("ResultT")


class _Subject(msgspec.Struct):
    kind: str = ""
    namespace: str = ""
    name: str = ""


class _NotMade(msgspec.Struct):
    reason: str = ""
    note: str = ""
    regarding: _Subject = msgspec.field(default_factory=_Subject)


def _unmade(client: KubeClient) -> dict[str, str]:
    """Return why objects could not be created, by address, from the manager's Events; {} if that is forbidden."""
    try:
        events = list(client.list(EVENTS, _NotMade, fieldSelector=f"reason={NOT_MADE}"))
    except ClusterError:
        return {}
    return {
        f"{PLURALS[event.regarding.kind]}/{event.regarding.namespace}/{event.regarding.name}": event.note
        for event in events
        if event.reason == NOT_MADE and event.regarding.kind in PLURALS
    }


def read_view(
    client: KubeClient, settings: SettingSections, now_seconds: float, use: Callable[[QueueView], ResultT]
) -> ResultT:
    """Return what `use` makes of the cluster's view; raise ClusterForbidden if a collection of NEEDED cannot be read.

    Kinds that are not installed count as empty. Other collections whose reading is forbidden, and invalid objects, are
    left out and named in the view's `unreadable`.
    """
    wake, unreadable = threading.Event(), []
    mirrors = {
        name: (queue_mirror if name in QUEUING else reservation_mirror)(name, client, wake) for name in QUEUE_MIRRORS
    }
    native = (
        {}
        if settings.section(QueueSettings).gangs_by == "own"
        else {"native-gangs": f"podgroups of {NATIVE_GANG_GROUP}"}
    )
    for name, plural in (*READABLE.items(), *native.items()):
        try:
            mirrors[name].list_once()
        except ClusterAbsent:
            continue
        except ClusterForbidden as error:
            if name in NEEDED:
                raise
            unreadable.append((plural, error.message))
    unmade = _unmade(client)

    def use_without(without: Collection[tuple[str, Key]]) -> ResultT:
        with ExitStack() as hidden:
            for name in {name for name, _ in without}:
                keys = {key: UNUSABLE for other, key in without if other == name}
                hidden.enter_context(mirrors[name].hide(keys))
            view = QueueViewBuilder(mirrors).view(now_seconds)
            if any(pod.waits_for_quota for pod in view.pods):
                # Run times (seconds, ascending) of the ended pods of each quota that the API server still has.
                tree = QuotaTree(view.quotas)
                runs: dict[str, list[float]] = {}
                for pod in client.list("/api/v1/pods", EndedPodWire, fieldSelector=SUCCEEDED):
                    quota = tree.of_pod(pod.metadata.namespace, pod.metadata.labels or {})
                    seconds = pod.run_seconds()
                    if quota is not None and seconds is not None:
                        runs.setdefault(quota.name, []).append(seconds)
                view = replace(view, runs={quota: tuple(sorted(those)) for quota, those in runs.items()})
            return use(replace(view, unreadable=(*unreadable, *view.unreadable), unmade=unmade))

    places = [(name, key) for name, mirror in mirrors.items() for key in mirror.snapshot()]
    watched: Watched[tuple[str, Key]] = Watched("queues", lambda place: mirrors[place[0]].version(place[1]))
    return compute_without_failing(places, use_without, (CotenantError, MemoryError), watched)[0]
