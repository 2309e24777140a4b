"""The files that a person gives the agent: a policy (NodeSLO), pods and the Node, as YAML or JSON. Pure: text in.

The format is that of the API, so `kubectl get nodeslo n1 -o yaml` and `kubectl get pods -o json` write such files.
Refused before parsing: more than 8 MiB, aliases (a few lines may expand to gigabytes), several policies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from cotenant.base.errors import UsageError
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.kubernetes.models.node import NodeWire
from cotenant.base.kubernetes.models.pod import NodePodWire
from cotenant.base.kubernetes.observed import ObservedNode
from cotenant.base.kubernetes.protocol import ENDED_PHASES
from cotenant.enforcer.contract import PodSpec
from cotenant.enforcer.model import node_policy
from cotenant.enforcer.model.node_policy import NodePolicy
from cotenant.enforcer.sources.wire import node_of, pod_of

SIZE_CAP_BYTES: Final = 8 << 20
_SLO_KINDS: Final = ("NodeSLO", "")
_AROUND: Final = ("apiVersion", "kind", "metadata")
"""What stands around a spec."""


@dataclass(frozen=True, slots=True)
class NodeInventory:
    """The pods of a file, and the Node in that file if there is one."""

    pods: tuple[PodSpec, ...] = ()
    node: ObservedNode | None = None


def policy_of(text: str, name: str) -> NodePolicy:
    """Return the policy of a file: a NodeSLO or its spec alone. A UsageError names the file, the field and its range.

    An unknown field is refused in a file that a person wrote, and ignored in one saved from a cluster, which has a uid,
    because that cluster may have a newer Koordinator.
    """
    parsed = [document for document in documents(text, name) if document is not None]
    if len(parsed) != 1 or not isinstance(parsed[0], Mapping):
        raise UsageError(f"{name} has {len(parsed)} documents, not one NodeSLO", fix="Keep one NodeSLO in the file.")
    body = parsed[0]
    if body.get("kind", "") not in _SLO_KINDS:
        raise UsageError(f"{name} holds a {body['kind']!r}, not a NodeSLO")
    spec = body["spec"] if "spec" in body else {k: v for k, v in body.items() if k not in _AROUND}
    if not isinstance(spec, Mapping):
        raise UsageError(f"{name}: spec is not a mapping")
    try:
        metadata = body.get("metadata")
        is_of_cluster = isinstance(metadata, Mapping) and bool(metadata.get("uid"))
        return node_policy.decode(spec, strict=not is_of_cluster)
    except UsageError as error:
        raise UsageError(
            f"{name}: {error.message}", fix="The previous policy stays until the file is corrected."
        ) from error


def inventory_of(text: str, name: str) -> NodeInventory:
    """Return the running pods and the Node in a file of objects or Lists; a UsageError names what cannot be read."""
    pods: dict[str, PodSpec] = {}
    node = None
    for body in _objects(documents(text, name), name):
        try:
            if body.get("kind") == "Node":
                node = node_of(msgspec.convert(body, NodeWire))
            elif body.get("kind") == "Pod":
                pod = pod_of(msgspec.convert(body, NodePodWire, strict=False))
                if pod.phase not in ENDED_PHASES:
                    pods[pod.uid] = pod
            else:
                raise UsageError(f"a {str(body.get('kind'))[:40]!r} is neither a Pod nor a Node")
        except (UsageError, msgspec.ValidationError) as error:
            raise UsageError(f"{name}: {error}") from error
    return NodeInventory(tuple(pods.values()), node)


def documents(text: str, name: str) -> list[Any]:
    """Return the documents of a file; raise UsageError if it is no JSON or YAML, too large, or uses a YAML alias."""
    if len(text.encode("utf-8", "surrogatepass")) > SIZE_CAP_BYTES:
        raise UsageError(f"{name} is larger than {SIZE_CAP_BYTES} bytes")
    if text.lstrip()[:1] in ("{", "["):
        try:
            return [msgspec.json.decode(text)]
        except UNDECODABLE:
            pass  # YAML's flow style begins alike
    import yaml  # only for people's files: the agent of a cluster never loads it

    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.SafeLoader)):
            raise UsageError(f"{name} uses a YAML alias", fix="Write the value in place of the alias.")
        return list(yaml.safe_load_all(text))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(f"{name} is neither YAML nor JSON: {line}") from error


def _objects(parsed: list[Any], name: str) -> Iterator[Mapping[str, Any]]:
    for document in parsed:
        items = document.get("items") if isinstance(document, Mapping) else document
        if isinstance(items, list):
            yield from _objects(items, name)
        elif isinstance(document, Mapping):
            yield document
        elif document is not None:
            raise UsageError(f"{name} holds {str(document)[:40]!r}, not an object")
