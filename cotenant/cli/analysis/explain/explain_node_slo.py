"""EDGE: `cotenant explain node-slo NODE`: every effective value of slo-controller-config on a node, and what set it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cotenant.base.commands.output import align_columns
from cotenant.base.errors import NoData, UsageError
from cotenant.base.kubernetes.intent import Address
from cotenant.base.kubernetes.models.metadata import ConfigMapObject
from cotenant.base.kubernetes.models.node import NodeWire
from cotenant.base.kubernetes.protocol import SLO_CONFIG_MAP
from cotenant.base.text import format_value, visible
from cotenant.recommender.colocation.model.slo_config import SloConfig, ValueOrigin, origins
from cotenant.recommender.colocation.model.slo_forms import SloKey

if TYPE_CHECKING:
    from cotenant.settings import Settings


@dataclass(frozen=True, slots=True)
class NodeSloExplained:
    """The effective values of slo-controller-config on one node, and findings about its invalid parts."""

    node: str
    source: str
    values: tuple[ValueOrigin, ...]
    findings: tuple[str, ...]


def node_slo_explanation(
    settings: Settings, node: str, file: str | None = None, labels: str | None = None
) -> NodeSloExplained:
    """Return the effective values of slo-controller-config on a node, read from the cluster of the settings.

    `file` (the ConfigMap, YAML or JSON) and `labels` (the node's, as k=v,k=v) replace what is read there, if given.
    """
    if file is not None and labels is not None:
        return _of(node, data_of(file), labels_of(labels), file)
    from cotenant.base.kube import connect

    with closing(connect(settings.kube)) as client:
        if labels is not None:
            of_node = labels_of(labels)
        elif (live := client.get(Address("v1", "nodes", node).path, NodeWire)) is not None:
            of_node = live.metadata.labels or {}
        else:
            fix = "kubectl get nodes lists the nodes; with --labels no node is needed."
            raise NoData(f"there is no node {node}", fix=fix)
        if file is not None:
            return _of(node, data_of(file), of_node, file)
        namespace = settings.manager.namespace
        config_map = client.get(f"/api/v1/namespaces/{namespace}/configmaps/{SLO_CONFIG_MAP}", ConfigMapObject)
        cluster_data = None if config_map is None else config_map.data or {}
        return _of(node, cluster_data, of_node, f"ConfigMap {namespace}/{SLO_CONFIG_MAP}")


def _of(node: str, data: Mapping[str, str] | None, labels: Mapping[str, str], source: str) -> NodeSloExplained:
    config = SloConfig().updated(data)
    values = tuple(origin for key in SloKey for origin in origins(config, key, labels))
    effect = "a running manager keeps the key's last valid value; the default values are shown here"
    finding_notes = tuple(f"{f}; {effect}" if f.fatal else str(f) for f in config.findings)
    return NodeSloExplained(node, source if data is not None else f"{source} (absent)", values, finding_notes)


def describe(explanation: NodeSloExplained) -> Iterator[str]:
    """Yield the lines of text that explain the values on a node."""
    yield visible(f"node {explanation.node}, configured by {explanation.source}")
    yield from (f"finding: {visible(text)}" for text in explanation.findings)
    keys = dict.fromkeys(origin.key for origin in explanation.values)
    for key in keys:
        yield ""
        yield key
        rows = [(o.field, _format_value(o.value), o.layer) for o in explanation.values if o.key == key]
        yield from (f"  {visible(line.rstrip())}" for line in align_columns(rows))
    yield ""


def _format_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else value if isinstance(value, str) else format_value(value)


def data_of(file: str) -> dict[str, str]:
    """Return the data of a file's slo-controller-config, else of its first ConfigMap; UsageError without text data."""
    from cotenant.base.commands.files import documents
    from cotenant.base.json_documents.json_decoders import mapping_or_empty

    maps = [d for d in documents(file) if isinstance(d, dict) and d.get("kind", "ConfigMap") == "ConfigMap"]
    matching = [d for d in maps if mapping_or_empty(d.get("metadata")).get("name") == SLO_CONFIG_MAP]
    first = (matching or maps)[:1]
    data = first[0].get("data") if first else None
    if not isinstance(data, dict):
        fix = f"Save the ConfigMap by kubectl get configmap {SLO_CONFIG_MAP} -o yaml."
        raise UsageError(f"{file} does not contain a ConfigMap with data", fix=fix)
    bad = [str(key) for key, value in data.items() if not isinstance(value, str)]
    if bad:
        raise UsageError(f"{file}: data.{bad[0]} is not a string", fix=f"Write {bad[0]}: | and the JSON below it.")
    return {str(key): value for key, value in data.items()}


def labels_of(text: str) -> dict[str, str]:
    """Return the labels of a text such as pool=gpu,zone=a; raise UsageError for a pair without =."""
    pairs = [pair.strip().partition("=") for pair in text.split(",") if pair.strip()]
    if wrong := [key for key, equals, _ in pairs if not equals]:
        raise UsageError(f"--labels {wrong[0]!r} is not key=value", fix="Write --labels pool=gpu,zone=a.")
    return {key: value for key, _, value in pairs}
