"""Decides what an installation would do to each object, from the objects in the cluster. Pure.

An object without our label belongs to somebody else and is left alone, whatever its name, such as Koordinator's own
CRDs and priority classes. The plan names what they lack: a definition has to declare each field that we read or write,
because the API server silently drops the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from cotenant.base.json_documents.difference import abbreviate_list, differences
from cotenant.base.table import Column, Kind, Schema
from cotenant.cli.cluster.installation.manifests import Manifest

MANAGED_BY: Final = ("app.kubernetes.io/managed-by", "cotenant")
_SERVERS_OWN: Final = ("managedFields", "resourceVersion", "generation", "creationTimestamp", "uid")

STEPS: Final = Schema(
    "installation",
    (
        Column("component", "Component", Kind.TEXT, "Component of the installation."),
        Column("object", "Object", Kind.TEXT, "Resource, namespace and name."),
        Column("state", "State", Kind.TEXT, "What happens, or happened, to the object."),
        Column("note", "Note", Kind.TEXT, "What changes in the object, or why nothing changes."),
    ),
    ("object",),
)


class StepState(StrEnum):
    """The outcome of an installation for one object."""

    CREATE = "create"
    CHANGE = "change"
    UNCHANGED = "unchanged"
    FOREIGN = "foreign"
    """The object belongs to somebody else and is left alone."""
    LACKING = "lacking"
    """The object belongs to somebody else, is left alone, and lacks something that we need."""
    REFUSED = "refused"
    """The API server refuses the object."""


@dataclass(frozen=True, slots=True)
class ObservedManifest:
    """One object of the installation, as it is in the cluster and as it would be after an apply.

    `live` is the object in the cluster, None if absent; `preview` is the object after an apply; `refusal` says why the
    server refuses the apply.
    """

    manifest: Manifest
    live: Mapping[str, Any] | None = None
    preview: Mapping[str, Any] | None = None
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class InstallStep:
    """The effect of an installation on one object."""

    manifest: Manifest
    state: StepState
    note: str = ""

    @property
    def writes(self) -> bool:
        """True if the step writes to the cluster."""
        return self.state in (StepState.CREATE, StepState.CHANGE)

    def row(self) -> dict[str, str]:
        """Return the step as the cells of a row of the table `STEPS`."""
        where = {"component": self.manifest.component, "object": str(self.manifest.address)}
        return where | {"state": self.state.value, "note": self.note}


def install_step(observed: ObservedManifest) -> InstallStep:
    """Return the installation step for one object."""
    manifest, live = observed.manifest, observed.live
    if live is not None and not is_ours(live):
        lacks = needs(manifest, live)
        state = StepState.LACKING if lacks else StepState.FOREIGN
        return InstallStep(manifest, state, abbreviate_list(lacks) or "not ours, left alone")
    if observed.refusal:
        return InstallStep(manifest, StepState.REFUSED, observed.refusal)
    if live is None:
        return InstallStep(manifest, StepState.CREATE)
    changed = list(differences(own_part(live), own_part(observed.preview or live)))
    return InstallStep(manifest, StepState.CHANGE if changed else StepState.UNCHANGED, abbreviate_list(changed))


def is_ours(body: Mapping[str, Any]) -> bool:
    """Return whether the object's label marks it as made by cotenant."""
    labels = body["metadata"].get("labels") or {}
    return bool(labels.get(MANAGED_BY[0]) == MANAGED_BY[1])


def needs(manifest: Manifest, theirs: Mapping[str, Any]) -> list[str]:
    """Return descriptions of what another owner's object lacks compared with ours; empty if nothing."""
    if manifest.kind == "CustomResourceDefinition":
        return gaps(theirs, manifest.body)
    if manifest.kind == "PriorityClass" and theirs.get("value") != manifest.body["value"]:
        return [f"the class has the value {theirs.get('value')}, Koordinator's is {manifest.body['value']}"]
    return []


def own_part(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of an object that an installation sets: without status and the server's metadata."""
    meta = {key: value for key, value in body["metadata"].items() if key not in _SERVERS_OWN}
    return {key: value for key, value in body.items() if key not in ("metadata", "status")} | {"metadata": meta}


_Part = Mapping[str, Any]
KEEPS_ALL = "x-kubernetes-preserve-unknown-fields"


def gaps(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    """Return descriptions of what another owner's CRD lacks compared with ours; empty if nothing.

    It may lack a served version, the status subresource, or fields, which are named by path. If the scope differs,
    nothing else is compared.
    """
    if theirs["spec"]["scope"] != ours["spec"]["scope"]:
        return [f"the CRD's scope is {theirs['spec']['scope']}"]
    problems = []
    for version in ours["spec"]["versions"]:
        same = next((v for v in theirs["spec"]["versions"] if v["name"] == version["name"] and v["served"]), None)
        if same is None:
            problems.append(f"the CRD does not serve {version['name']}")
            continue
        if version.get("subresources", {}).get("status") is not None and "status" not in same.get("subresources", {}):
            problems.append("the CRD has no status subresource")
        problems += [f"the CRD lacks {path}" for path in missing_fields(_schema(same), _schema(version))]
    return problems


def missing_fields(theirs: _Part, ours: _Part, path: str = "") -> Iterator[str]:
    """Yield the paths of fields that `ours` declares and `theirs` lacks; fields below a missing field are left out."""
    if path in {".metadata", ".apiVersion", ".kind"}:
        return
    for name, inner in ours.get("properties", {}).items():
        below = theirs.get("properties", {}).get(name)
        if below is not None:
            yield from missing_fields(below, inner, f"{path}.{name}")
        elif not theirs.get(KEEPS_ALL) and not theirs.get("additionalProperties"):
            yield f"{path}.{name}".lstrip(".")
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(ours.get(key), Mapping) and isinstance(theirs.get(key), Mapping):
            yield from missing_fields(theirs[key], ours[key], path + mark)


def _schema(version: Mapping[str, Any]) -> _Part:
    schema: _Part = version.get("schema", {}).get("openAPIV3Schema", {})
    return schema
