"""EDGE: removes what our processes wrote into a cluster if another tool, such as Helm, removes the manifests.

The processes have to end first: their rights are gone with the release, so that nobody writes again what is removed
here. Then it removes what has effect without them: amounts of nodes, scheduling gates, raised minReplicas, placeholders
and capacity buffers, and the manager's Lease and status. It reads no other kinds, so that its account needs few rights.
A refusal only affects its own row.

While the release is installed, it does this for disabled features only, once no process runs with the old settings.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Final

from cotenant.base.errors import CotenantError
from cotenant.base.kube import KubeClient
from cotenant.base.kubernetes.intent import Address
from cotenant.base.kubernetes.models.pod import ObservedPodWire
from cotenant.base.progress import Progress
from cotenant.base.settings.document import parse_single_document
from cotenant.cli.cluster.installation import leftovers
from cotenant.cli.cluster.installation.removal import (
    MADE,
    Fate,
    Removal,
    generated_object_removals,
    restored_objects,
    rows_or_refusal,
)
from cotenant.cli.cluster.installation.restoration import EVERYTHING, writes_of
from cotenant.manager.features import NAMES

NAMESPACE: Final = "cotenant"
SETTINGS: Final = Address("v1", "configmaps", "cotenant-settings", NAMESPACE)
DIGEST_ANNOTATION: Final = "cotenant.dev/settings-digest"
"""Annotation of each pod that reads the settings: the first digits of the SHA-256 of the settings at its start."""
_DIGEST_CHARACTERS: Final = 16
_NODE_AGENT: Final = "cotenant-enforcer"
WRITERS: Final = ("cotenant-manager", "cotenant-webhook", "cotenant-extender")
"""Processes that write into other owners' objects; the settings say what."""
LONGEST_END_SECONDS: Final = 90.0
"""Longest wait for processes to end: a node agent restores values for up to 60 s, a pod on a lost node never ends."""
_PAUSE_SECONDS: Final = 1.0
_PLACEHOLDERS: Final = Address("v1", "pods", "placeholders")
_BUFFERS: Final = Address("autoscaling.x-k8s.io/v1alpha1", "capacitybuffers", "")


@dataclass(frozen=True, slots=True)
class Ended:
    """The features whose processes must not run any more, and the digest of the release's settings, "" without any."""

    features: frozenset[str] = frozenset(NAMES)
    digest: str = ""


def ended_features(client: KubeClient) -> Ended:
    """Return the features that the release's settings disable, or all features if the release is gone."""
    live = client.get(SETTINGS.path)
    if live is None:
        return Ended()
    text = str((live.get("data") or {}).get("settings.yaml") or "")
    document = parse_single_document(text, str(SETTINGS))
    manager = document.get("manager") if isinstance(document, dict) else None
    off = manager.get("features_off") if isinstance(manager, dict) else None
    return Ended(frozenset([str(name) for name in off] if isinstance(off, list) else []), digest_of(text))


def digest_of(text: str) -> str:
    """Return the digest by which a pod names the settings that it started with."""
    return sha256(text.encode()).hexdigest()[:_DIGEST_CHARACTERS]


def await_ended(client: KubeClient, ended: Ended, seconds: float = LONGEST_END_SECONDS) -> list[str]:
    """Wait until no pod of ours can write for ended features; return the names of pods that can after `seconds`."""
    end = time.monotonic() + seconds
    while (names := list(_late_pods(client, ended))) and time.monotonic() < end:
        time.sleep(_PAUSE_SECONDS)
    return names


def _late_pods(client: KubeClient, ended: Ended) -> Iterator[str]:
    pods = leftovers.running_pods(client, NAMESPACE)
    agents = [pod for pod in pods if _name_of(pod) == _NODE_AGENT]
    agents_end = all(pod.metadata.deletion_timestamp for pod in agents)
    for pod in pods:
        digest = (pod.metadata.annotations or {}).get(DIGEST_ANNOTATION, ended.digest)
        is_late = agents_end if pod in agents else _name_of(pod) in WRITERS and digest != ended.digest
        if is_late or not ended.digest:
            yield pod.metadata.name


def _name_of(pod: ObservedPodWire) -> str:
    return (pod.metadata.labels or {}).get("app.kubernetes.io/name", "")


def require_ended(names: list[str]) -> None:
    """Raise CotenantError if processes (`names`) still run with old settings, since they would write again."""
    if names:
        raise CotenantError(
            f"{', '.join(names)} still run with old settings after {LONGEST_END_SECONDS:.0f} s; nothing was removed",
            fix="Find out why the new pods do not start: kubectl -n cotenant get pods. Then repeat the removal.",
        )


def plan_leftover_removals(client: KubeClient, ended: Ended, progress: Progress) -> list[Removal]:
    """Return a row for each object to remove or restore that ended features wrote, and for each unreadable kind."""
    features, ours = ended.features, EVERYTHING
    if ended.digest:
        running = {_name_of(pod) for pod in leftovers.running_pods(client, NAMESPACE)}
        ours = writes_of(features, node_agent=_NODE_AGENT not in running)
    looks: list[tuple[Address, Callable[[], Iterable[Removal]]]] = []
    if features >= set(NAMES):
        looks += [(kind, partial(generated_object_removals, client, (kind,))) for kind in MADE]
    if "reservations" in features:
        holding = "holds reserved capacity"
        looks.append((_PLACEHOLDERS, lambda: _deletions(leftovers.placeholders(client), holding)))
    if "plans" in features:
        looks.append((_BUFFERS, lambda: _deletions(leftovers.buffers(client))))
    looks += [(kind, partial(restored_objects, client, kind, ours)) for kind in leftovers.ACTING]
    progress.stage("looking at the cluster", len(looks))
    removals: list[Removal] = []
    for kind, find_removals in looks:
        removals += rows_or_refusal(client, kind.resource, kind, find_removals)
        progress.advance()
    return removals


def _deletions(items: Iterable[tuple[Address, str]], note: str = "has our label") -> Iterator[Removal]:
    return (Removal(address.resource, address, Fate.DELETE, note, uid) for address, uid in items)
