"""EDGE: writes each node's NodeSLO from slo-controller-config; one rendering serves all nodes with the same entries.

A NodeSLO is written if the digest of its rendering (an annotation) changed, if somebody changed a value of cotenant's,
or if the node was replaced by one of the same name. Fields that others add stay. So does a NodeSLO that another manager
made or wrote after cotenant: Koordinator's manager writes every NodeSLO that it finds, so both would overwrite each
other. Kubernetes deletes it with its node (the ownerReference). A key that was not valid since the manager started
keeps its present value in the node's NodeSLO.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from cotenant.base.controllers.contract import (
    FIELD_MANAGER,
    MANAGED_BY,
    MANAGED_BY_LABEL,
    ControllerDecision,
    ObjectNote,
)
from cotenant.base.controllers.loop import Changes, Feature
from cotenant.base.controllers.published import ExistingObject, PublishedMeta, is_other_program
from cotenant.base.controllers.watched import WatchedNode
from cotenant.base.errors import QuantityError
from cotenant.base.kube import Mirror
from cotenant.base.kubernetes.intent import Address, Apply, Outcome
from cotenant.base.kubernetes.models.metadata import ConfigMapObject
from cotenant.base.kubernetes.protocol import NETWORK_BANDWIDTH_ANNOTATION, SLO_CONFIG_MAP, SLO_GROUP
from cotenant.base.kubernetes.quantity import parse_bytes
from cotenant.base.text import counted
from cotenant.recommender.colocation.model.slo_config import SloConfig, SloConfigFinding
from cotenant.recommender.colocation.model.slo_forms import FORMS, SloKey

PLURAL: Final = "nodeslos"
DIGEST_ANNOTATION: Final = "cotenant.dev/spec-digest"
RENDERED: Final = tuple(key for key in SloKey if FORMS[key].part)
"""The keys that become a part of NodeSLO."""
_EMPTY: Final = msgspec.Raw(b"{}")

RULING: Final = (*RENDERED, SloKey.COLOCATION)
"""The keys that decide what NodeSLO says: thresholds follow the policy of colocation-config."""
Entries = tuple[int | None, ...]
"""Which entry of each ruling key is in force."""


class _WriterEntry(msgspec.Struct, rename={"fields": "fieldsV1"}):
    """An entry of managedFields: a field manager, the fields that it wrote, and the time of its last write."""

    manager: str = ""
    time: str = ""
    fields: dict[str, msgspec.Raw] | None = None


class NodeSloMeta(PublishedMeta, rename="camel"):
    """A NodeSLO's metadata, including the field managers."""

    managed_fields: list[_WriterEntry] | None = None

    def later_writers(self) -> tuple[str, ...]:
        """Return the field managers of other programs that wrote the spec after cotenant or in the same second."""
        entries = [entry for entry in self.managed_fields or () if "f:spec" in (entry.fields or {})]
        own = max((entry.time for entry in entries if entry.manager == FIELD_MANAGER), default=None)
        if own is None:
            return ()
        return tuple(e.manager for e in entries if is_other_program(e.manager) and e.time >= own)


class NodeSloObject(msgspec.Struct):
    """A NodeSLO in the cluster; its spec is compared, but not interpreted."""

    metadata: NodeSloMeta
    spec: msgspec.Raw = _EMPTY
    later_writers: tuple[str, ...] = ()
    """Field managers that wrote the spec after cotenant; derived, not a field of the object."""

    def __post_init__(self) -> None:
        """Copy the spec and drop the managedFields, so that the API's whole response can be freed."""
        self.spec = self.spec.copy()
        self.later_writers = self.later_writers or self.metadata.later_writers()
        self.metadata.managed_fields = None


@dataclass(frozen=True, slots=True)
class LabelledNode:
    """An existing node with its labels; `bandwidth` is the text of its network bandwidth annotation, or ""."""

    owned: ExistingObject
    labels: Mapping[str, str]
    bandwidth: str = ""


@dataclass(frozen=True, slots=True)
class NodeSloView:
    """The input of the controller: the effective configuration, the nodes, and the NodeSLOs by name.

    `take_over` names field managers of programs that no longer write, whose values are replaced.
    """

    config: SloConfig
    nodes: tuple[LabelledNode, ...]
    there: Mapping[str, NodeSloObject]
    take_over: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class Rendering:
    """The NodeSLO spec of all nodes that match the same entries; fields in `keeps` stay as each NodeSLO has them."""

    spec: Mapping[str, Any]
    digest: str
    keeps: tuple[str, ...] = ()


def decide(view: NodeSloView) -> ControllerDecision:
    """Return a write for each node whose NodeSLO is missing or differs, and notes on findings and foreign NodeSLOs."""
    renderings: dict[tuple[Entries, str], Rendering] = {}
    specs = _Specs()
    intents: list[Apply] = []
    foreign: dict[str, tuple[str, ...]] = {}
    for node in view.nodes:
        alike = (entries_of(view.config, node.labels), node.bandwidth)
        if alike not in renderings:
            renderings[alike] = render(view.config, *alike)
        live = view.there.get(node.owned.name)
        later = [name for name in live.later_writers if name not in view.take_over] if live is not None else []
        if live is not None and (later or not live.metadata.ours):
            foreign[node.owned.name] = tuple(later)
            continue
        rendering = renderings[alike]
        if live is not None and rendering.keeps:  # parts that only the NodeSLO itself still knows
            spec = specs.plain(live)
            joined = {**rendering.spec, **{part: spec[part] for part in rendering.keeps if part in spec}}
            rendering = Rendering(joined, _digest(joined))
        if why := difference(node.owned, live, rendering, specs):
            address = Address(SLO_GROUP, PLURAL, node.owned.name)
            metadata = {
                "labels": {MANAGED_BY_LABEL: MANAGED_BY},
                "annotations": {DIGEST_ANNOTATION: rendering.digest},
                "ownerReferences": [node.owned.reference()],
            }
            intents.append(Apply(address, address.manifest("NodeSLO", metadata, spec=rendering.spec), why=why))
    notes = [*notes_of(view.config.findings)]
    if foreign:  # made or written by another manager: two would overwrite each other for ever
        writers = sorted({writer for later in foreign.values() for writer in later})
        who = f" ({', '.join(writers)})" if writers else ""
        remedy = " and name that manager in manager.take_over" if writers else ""
        text = (
            f"{counted(len(foreign), 'NodeSLO')} of another manager{who}, as {min(foreign)}: cotenant writes none. "
            f"Once that manager is gone, delete them, or label them {MANAGED_BY_LABEL}={MANAGED_BY}{remedy}."
        )
        notes.append(ObjectNote(PLURAL, "NotOurs", text, warning=True))
    for node in view.nodes:
        if node.bandwidth and (problem := _wrong(node.bandwidth)):
            ignored = f"annotation {NETWORK_BANDWIDTH_ANNOTATION} is ignored: {problem}."
            text = f"{ignored} Write bits per second, such as 10G."
            notes.append(ObjectNote(f"nodes/{node.owned.name}", "InvalidBandwidth", text, warning=True))
    return ControllerDecision(tuple(intents), tuple(notes))


def entries_of(config: SloConfig, labels: Mapping[str, str]) -> Entries:
    """Return the index of the entry that applies to a node with these labels, for each key in the order of RULING.

    The index is None for a key without a matching entry.
    """
    return tuple(config.first_match(key, labels) for key in RULING)


def render(config: SloConfig, entries: Entries, bandwidth: str = "") -> Rendering:
    """Return the NodeSLO spec of nodes to which these ConfigMap entries and this bandwidth annotation apply."""
    spec: dict[str, Any] = {}
    in_force = dict(zip(RULING, entries, strict=True))
    for key in RENDERED:
        values = config.values(key, in_force[key], in_force[SloKey.COLOCATION])
        spec[FORMS[key].part] = values.get("applications", []) if key is SloKey.HOST_APPLICATIONS else values
    if bandwidth and not _wrong(bandwidth):
        part = FORMS[SloKey.SYSTEM].part
        spec[part] = {**spec[part], "totalNetworkBandwidth": bandwidth}
    unread = config.unread | ({SloKey.THRESHOLDS} if SloKey.COLOCATION in config.unread else frozenset())
    keeps = tuple(FORMS[key].part for key in RENDERED if key in unread)
    return Rendering(spec, _digest(spec), keeps)


def _digest(spec: Mapping[str, Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(spec, order="deterministic")).hexdigest()[:16]


class _Specs:
    """Decodes and compares each spec text once, because many nodes have the same."""

    def __init__(self) -> None:
        self._plain: dict[bytes, Mapping[str, Any]] = {}
        self._held: dict[tuple[bytes, str], bool] = {}

    def plain(self, live: NodeSloObject) -> Mapping[str, Any]:
        text = bytes(live.spec)
        if text not in self._plain:
            self._plain[text] = msgspec.json.decode(text) or {}
        return self._plain[text]

    def hold(self, live: NodeSloObject, rendering: Rendering) -> bool:
        """Return whether the NodeSLO contains every rendered value; values that others added do not matter."""
        key = bytes(live.spec), rendering.digest
        if key not in self._held:
            self._held[key] = _holds(self.plain(live), rendering.spec)
        return self._held[key]


def difference(owned: ExistingObject, live: NodeSloObject | None, rendering: Rendering, specs: _Specs) -> str:
    """Return in words why the NodeSLO must be written; "" if it need not be."""
    if live is None:
        return "new node"
    metadata = live.metadata
    if (metadata.annotations or {}).get(DIGEST_ANNOTATION) != rendering.digest:
        return "the configuration changed"
    if owned.uid not in [owner.uid for owner in metadata.owner_references or ()]:
        return "the node was replaced by another of the same name"
    return "" if specs.hold(live, rendering) else "somebody changed the NodeSLO"


def _holds(live: Any, expected: Any) -> bool:
    if isinstance(expected, Mapping) and isinstance(live, Mapping):
        return all(key in live and _holds(live[key], value) for key, value in expected.items())
    return bool(live == expected)


def notes_of(findings: Iterable[SloConfigFinding]) -> Iterable[ObjectNote]:
    """Yield one note per finding on the ConfigMap, with its effect on the nodes."""
    for finding in findings:
        reason = "InvalidConfig" if finding.fatal else "IneffectiveConfig"
        yield ObjectNote(f"configmaps/{SLO_CONFIG_MAP}", reason, finding.advice, warning=True)


def _wrong(bandwidth: str) -> str:
    """Return why a bandwidth cannot be parsed; "" if it can."""
    try:
        parse_bytes(bandwidth)
    except QuantityError as error:
        return error.message
    return ""


def coverage(view: NodeSloView) -> Mapping[Entries, int]:
    """Return the number of nodes for each combination of matching slo-controller-config entries."""
    return Counter(entries_of(view.config, node.labels) for node in view.nodes)


def config_data(configs: Mirror[ConfigMapObject]) -> dict[str, str] | None:
    """Return the data of the ConfigMap slo-controller-config; None if there is no such ConfigMap."""
    config = next((c for (_, name), c in configs.snapshot().items() if name == SLO_CONFIG_MAP), None)
    return (config.data or {}) if config else None


class NodeSloController(Feature):
    """The controller of feature `node-slo`, which writes NodeSLOs from slo-controller-config."""

    name = "node-slo"
    needs: tuple[str, ...] = ("config", "nodes", "nodeslos")

    def __init__(
        self, mirrors: Mapping[str, Mirror[Any]], interval_seconds: float, take_over: Collection[str] = ()
    ) -> None:
        self.interval_seconds = interval_seconds
        self._mirrors = mirrors
        self._take_over = frozenset(take_over)
        self._config = SloConfig()

    def decide(self, changes: Changes, now_seconds: float) -> ControllerDecision:  # noqa: ARG002 - the loop's signature
        """Return a write for each node whose NodeSLO differs from what the ConfigMap requires."""
        self._config = self._config.updated(config_data(self._mirrors["config"]))
        nodes: Mapping[tuple[str, str], WatchedNode] = self._mirrors["nodes"].snapshot()
        slos = {name: slo for (_, name), slo in self._mirrors["nodeslos"].snapshot().items()}
        labelled = tuple(
            LabelledNode(n.owned, n.node.labels, n.node.annotations.get(NETWORK_BANDWIDTH_ANNOTATION, ""))
            for n in nodes.values()
        )
        return decide(NodeSloView(self._config, labelled, slos, self._take_over))

    def sent(self, outcomes: Sequence[Outcome]) -> None:
        """Do nothing: the watched NodeSLOs show what was written."""
