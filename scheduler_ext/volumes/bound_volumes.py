"""The nodes that can use the volume of a bound claim: node affinity, zone, and number of nodes at a time. Pure.

Source of the rules: VolumeBinding (bound volumes), VolumeZone, VolumeRestrictions, kube-scheduler 1.35.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from cotenant.scheduler_ext.extender.metric import ExtenderNode
from cotenant.scheduler_ext.extender.stock_rules import matches_terms

Json = Mapping[str, Any]
_ZONES: Final = {
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""Zone labels of a volume, and the node label that each is compared with."""
_ZONE_SEPARATOR: Final = "__"
"""Separates the zones in a label of a volume that exists in several zones."""
_ONE_NODE: Final = frozenset({"ReadWriteOnce", "ReadWriteOncePod"})
"""Access modes that let only one node at a time use a volume."""


@dataclass(frozen=True, slots=True)
class BoundVolume:
    """The volume of a bound claim; `affinity` is JSON of a NodeSelector of the nodes that can use it, b"" without one.

    `driver` is its CSI driver; `local` means data on one node, `one_node` that only one node at a time can use it.
    """

    affinity: bytes = b""
    driver: str = ""
    local: bool = False
    one_node: bool = False


ClaimedVolumes: TypeAlias = Mapping[tuple[str, str], BoundVolume | None]
"""Volumes by (namespace, claim); None for a claim that is not bound to an existing volume."""


def bound_volume(volume: Json) -> BoundVolume:
    """Return the fields of a PersistentVolume that limit where it can be used."""
    spec, labels = volume["spec"], volume["metadata"].get("labels") or {}
    terms = ((spec.get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms")
    zones = {_ZONES[key]: value for key, value in labels.items() if key in _ZONES}
    if zones:  # the terms narrowed to its zones; a node without any such label can use every volume
        inside = [
            {"key": key, "operator": "In", "values": sorted(value.split(_ZONE_SEPARATOR))}
            for key, value in sorted(zones.items())
        ]
        nowhere = [{"key": key, "operator": "DoesNotExist"} for key in _ZONES]
        terms = [
            {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), *place]}
            for term in ([{}] if terms is None else terms)
            for place in (inside, nowhere)
        ]
    affinity = b"" if terms is None else msgspec.json.encode({"nodeSelectorTerms": terms}, order="deterministic")
    modes = frozenset(spec.get("accessModes") or ())
    return BoundVolume(
        affinity,
        (spec.get("csi") or {}).get("driver", ""),
        "local" in spec or "hostPath" in spec,
        bool(modes) and modes <= _ONE_NODE,
    )


def claim_of(volume: Json) -> str | None:
    """Return the name of the claim that a pod's volume refers to; None for other kinds of volumes.

    A generic ephemeral volume counts as no claim: it is deleted with its pod, and the successor gets a new one.
    """
    claim: str | None = (volume.get("persistentVolumeClaim") or {}).get("claimName")
    return claim


def affinities_of(claims: Iterable[str], namespace: str, volumes: ClaimedVolumes) -> tuple[bytes, ...] | None:
    """Return the distinct affinities of the claims' volumes, sorted; None if a claim is not bound."""
    volumes_found = [volumes.get((namespace, claim)) for claim in claims]
    bound = [volume for volume in volumes_found if volume is not None]
    return tuple(sorted({volume.affinity for volume in bound} - {b""})) if len(bound) == len(volumes_found) else None


def can_use(affinity: bytes, nodes: Iterable[ExtenderNode]) -> list[bool]:
    """Return for each node whether a volume with this affinity can be used there."""
    required = msgspec.json.decode(affinity)
    return [matches_terms(required, node) for node in nodes]
