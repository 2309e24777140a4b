"""References that identify clusters, workloads, containers, pods and nodes. Hashable, ordered, cheap."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from msgspec import Struct

from cotenant.base.errors import NoData, UsageError
from cotenant.base.text import ask_for_closest

_LISTED: Final = 5  # workloads that an error names
_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:+-]{0,199}")
MOST_LETTERS: Final = 150
"""Longest name that is itself used in a path."""
FOLDER_NAME_FIX: Final = "Use letters, digits and . _ @ : + - (at most 200, no '..'), beginning with a letter or digit."


def fits_folder(name: str) -> bool:
    """Return whether a name, such as a cluster's, is safe as a part of the path of a store, a ledger or a URL."""
    return bool(_FOLDER.fullmatch(name)) and ".." not in name and ".corrupt-" not in name


def folder_part(name: str) -> str:
    """Return a text for a name, such as a metric source's namespace, that is safe in a path after a prefix.

    It is the name itself if that is safe and at most MOST_LETTERS long, else a `+` and a hash of it; no name of
    Kubernetes begins with `+`.
    """
    if fits_folder(f"x{name}") and len(name) <= MOST_LETTERS and not name.startswith("+"):
        return name
    return f"+{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:40]}"


class WorkloadRef(Struct, frozen=True, order=True):
    """The reference of a workload: a controller (Deployment, StatefulSet, Job...) or a bare pod (kind "Pod")."""

    namespace: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.kind}/{self.name}"

    @property
    def place(self) -> tuple[str, str, str]:
        """The key by which results are sorted: namespace, name, kind, which is the order of pods in the store."""
        return self.namespace, self.name, self.kind

    @classmethod
    def parse(cls, text: str) -> WorkloadRef | None:
        """Parse NAMESPACE/KIND/NAME, the text of a reference; return None for any other text."""
        parts = text.split("/")
        return cls(*parts) if len(parts) == 3 and all(parts) else None

    @classmethod
    def required(cls, text: str) -> WorkloadRef:
        """Parse NAMESPACE/KIND/NAME as a person typed it; raise UsageError for any other text."""
        ref = cls.parse(text)
        if ref is None:
            raise UsageError(f"{text!r} is not NAMESPACE/KIND/NAME", fix="Write for example shop/Deployment/checkout.")
        return ref

    @classmethod
    def find_named(cls, text: str, candidates: Iterable[WorkloadRef]) -> WorkloadRef:
        """Return the known workload that NAME, NAMESPACE/NAME or NAMESPACE/KIND/NAME identifies.

        Raise UsageError for another form, or if several match; NoData, with the nearest name, if none matches.
        """
        parts = text.split("/")
        if len(parts) > 3 or not all(parts):
            cls.required(text)
        refs = set(candidates)
        matches = sorted(ref for ref in refs if ref._answers_to(parts))
        if len(matches) == 1:
            return matches[0]
        if matches:
            names = f"{', '.join(map(str, matches[:_LISTED]))}{', ...' if len(matches) > _LISTED else ''}"
            raise UsageError(f"{len(matches)} workloads are called {text}: {names}", fix=f"Write e.g. {matches[0]}.")
        raise NoData(
            f"no workload is called {text}",
            fix=ask_for_closest(parts[-1], map(str, refs)) or "`cotenant recs list` lists all workloads.",
        )

    def _answers_to(self, parts: list[str]) -> bool:
        *above, name = parts
        kind = [part.lower() for part in above[1:]]
        return self.name == name and above[:1] in ([], [self.namespace]) and kind in ([], [self.kind.lower()])


class ContainerRef(Struct, frozen=True, order=True):
    """The reference of a container of a workload's template: the subject of a recommendation."""

    workload: WorkloadRef
    container: str

    def __str__(self) -> str:
        return f"{self.workload}/{self.container}"


class ContainerName(NamedTuple):
    """The four names by which a container of a workload is stored and addressed."""

    namespace: str
    kind: str
    workload: str
    container: str

    @property
    def workload_ref(self) -> WorkloadRef:
        """The reference of the container's workload."""
        return WorkloadRef(self.namespace, self.kind, self.workload)


class PodName(NamedTuple):
    """The namespace and name that identify a pod."""

    namespace: str
    name: str


class NodeIdentity(NamedTuple):
    """A Node object by name and uid, for the ownerReference of an object that belongs to the node."""

    name: str
    uid: str


class PodContainerRef(Struct, frozen=True, order=True):
    """The reference of a container of one pod: the subject of a usage series."""

    namespace: str
    pod: str
    container: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod}/{self.container}"


class NodeRef(Struct, frozen=True, order=True):
    """The reference of a node, by its name."""

    name: str

    def __str__(self) -> str:
        return self.name


class ClusterRef(Struct, frozen=True, order=True):
    """The reference of the whole cluster, for totals."""

    name: str

    def __str__(self) -> str:
        return self.name


SeriesRef = PodContainerRef | ContainerRef | WorkloadRef | NodeRef | ClusterRef
