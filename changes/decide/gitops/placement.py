"""Find where a workload's values are in a repository, and make edits that change only them. Pure.

A value is changed only if the file has the value that runs now, and if no other object uses the same lines. Otherwise
it is refused with the file, the reason and a fix.
"""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from cotenant.base.errors import CotenantError, UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.quantity import parse_amount
from cotenant.base.resource import Resource
from cotenant.base.text import counted
from cotenant.changes.decide import autoscaler_targets
from cotenant.changes.decide.gitops.built_objects import BuiltObject, Layer, Manifests
from cotenant.changes.decide.gitops.bundle import present_amounts
from cotenant.changes.decide.gitops.manifests import keys_of
from cotenant.changes.decide.gitops.yaml_edit import NULL, Document, Edit, below, child, edits_of, text_of
from cotenant.changes.decide.patches import LISTS, TEMPLATE_PATHS, file_refusal, resources
from cotenant.recommender.model.recommendation import Recommendation
from cotenant.recommender.settings import PatchSettings

MAPPING: Final = ".cotenant.yaml"
"""File at the top of a repository that maps workloads to files, in a list `workloads`."""
_CHART: Final = "Chart.yaml"
_RESOURCES: Final = "resources"

FileEdits = Mapping[str, Sequence[Edit]]
Moves = Mapping[str, Mapping[str, str | None]]
"""Side -> resource -> text; None removes the field."""


@dataclass(frozen=True, slots=True)
class PlaceRule:
    """A rule that maps workloads (`*` allowed) to the file with their values; `path` are keys of Helm values, or ""."""

    workload: str
    file: str
    path: str = ""


def place_rules(documents: Sequence[Document]) -> tuple[PlaceRule, ...]:
    """Return the rules of the mapping file; raise UsageError for a rule without a workload or a file."""
    rules: list[PlaceRule] = []
    for document in documents:
        listed = child(document, document.root, "workloads")
        for node in listed.value if listed is not None and listed.id == "sequence" else ():
            texts = [text_of(child(document, node, key)) or "" for key in ("workload", "file", "path")]
            if texts[0].count("/") != 2 or not texts[1]:
                raise UsageError(
                    f"{document.where(node)} has no workload or no file",
                    fix="Write `workload: NAMESPACE/KIND/NAME` (* stands for any) and `file: PATH`.",
                )
            rules.append(PlaceRule(texts[0], posixpath.normpath(texts[1]), texts[2]))
    return tuple(rules)


def place(
    manifests: Manifests, rules: Sequence[PlaceRule], recommendations: Sequence[Recommendation], settings: PatchSettings
) -> FileEdits:
    """Return one workload's edits by path, empty if the files are up to date; raise UsageError if no edit is safe."""
    workload = recommendations[0].container.workload
    going = [r for r in recommendations if resources(r) and not file_refusal(r)]
    if not going:
        why = next((why for r in recommendations if (why := file_refusal(r))), "the template would not change")
        raise UsageError(why)
    if moves := autoscaler_targets.moves(going):
        fix = "Set requests and the autoscaler's target by hand, together, or apply both: cotenant recs apply."
        raise UsageError(f"{moves[0].sentence}, and a commit changes no autoscaler", fix=fix)
    rule = next((rule for rule in rules if fnmatchcase(str(workload), rule.workload)), None)
    if rule is not None and rule.path:
        return _in_values(manifests, rule.file, rule.path, going)
    matches = [
        built
        for built in manifests.objects
        if (built.kind, built.name) == (workload.kind, workload.name)
        and built.namespace in (workload.namespace, "")
        and (rule is None or rule.file in built.files)
    ]
    if not matches and rule is None and (values_place := _chart_values(manifests, going, settings)):
        return _in_values(manifests, *values_place, going)
    built = _only(manifests, matches, workload, rule)
    edits: dict[str, list[Edit]] = defaultdict(list)
    for layer, node, values in _layer_values(manifests, built, going):
        edits[layer.path] += edits_of(layer.document, node, values)
    return {path: values_place for path, values_place in edits.items() if values_place}


# --- manifests --------------------------------------------------------------------------------------------------------
def _only(
    manifests: Manifests, matches: Sequence[BuiltObject], workload: WorkloadRef, rule: PlaceRule | None
) -> BuiltObject:
    if len(matches) == 1:
        return matches[0]
    fix = f"Name the file in {MAPPING} at the top of the repository: `workload: {workload}`, `file: PATH`"
    if matches:
        roots = " and ".join(sorted(built.root for built in matches))
        raise UsageError(f"the workload is in {counted(len(matches), 'place')}: {roots}", fix=f"{fix}.")
    if rule is not None:
        raise UsageError(f"{rule.file}, named in {MAPPING}, lacks {workload}", fix=f"Correct the entry in {MAPPING}.")
    generators = [path for path, prefix in manifests.generated.items() if workload.name.startswith(prefix)]
    if generators:
        raise UsageError(
            f"{generators[0]} has a matching generateName, so that the workload's manifest is not certain",
            fix="Replace its generateName by a name.",
        )
    elsewhere = {built.root: built.namespace for built in manifests.objects
                 if (built.kind, built.name) == (workload.kind, workload.name)}  # fmt: skip
    others = ", ".join(f"{root} has this workload in namespace {namespace}" for root, namespace in elsewhere.items())
    unread = f"; {counted(len(manifests.unread), 'file')} could not be read as YAML" if manifests.unread else ""
    raise UsageError(
        f"no manifest of the workload was found{f' ({others})' if others else ''}{unread}",
        fix=f"{fix}, and `path: KEYS` for values of a Helm chart.",
    )


def _container(layer: Layer, recommendation: Recommendation) -> Any:
    """Return the container's mapping in a layer, found by name; None if it is not there."""
    keys = (*TEMPLATE_PATHS[recommendation.container.workload.kind], LISTS[recommendation.role])
    listed, name = below(layer.document, layer.node, keys), recommendation.container.container
    if listed is None or listed.id != "sequence":
        return None
    matches = [node for node in listed.value if text_of(child(layer.document, node, "name")) == name]
    if len(matches) > 1:
        raise UsageError(
            f"{layer.document.where(matches[1])} is a second container {name}", fix="Rename one of the two containers."
        )
    return matches[0] if matches else None


def _layer_values(
    manifests: Manifests, built: BuiltObject, going: Sequence[Recommendation]
) -> Iterator[tuple[Layer, Any, Mapping[str, Any]]]:
    """Yield (layer, container node, new values): each field in the layer that decides it."""
    if built.obstacles:
        raise UsageError(built.obstacles[0], fix="Set resources by a strategic-merge patch, in a file of its own.")
    for recommendation in going:
        name = recommendation.container.container
        layers = [(layer, node) for layer in built.layers if (node := _container(layer, recommendation)) is not None]
        if not layers:
            raise UsageError(f"{built.root} has no container {name}", fix=f"Scan again, or name the file in {MAPPING}.")
        values_by_layer: dict[int, dict[str, dict[str, str | None]]] = defaultdict(dict)
        for side, field, text in _fields(recommendation):
            nodes = [below(layer.document, node, (_RESOURCES, side, field)) for layer, node in layers]
            setters = [at for at, node in enumerate(nodes) if node is not None]
            last = max(setters, default=-1)
            now = text_of(nodes[last]) if setters else None
            if not _is_due(recommendation, (side, field), now, text, layers[last][0].path):
                continue
            at = _deciding_layer(manifests, built, layers, last)
            value = NULL if text is None and (at != last or len(setters) > 1) else text
            values_by_layer[at].setdefault(side, {})[field] = value
        yield from ((*layers[at], {_RESOURCES: values}) for at, values in values_by_layer.items())


def _fields(recommendation: Recommendation) -> Iterator[tuple[str, str, str | None]]:
    for side, amounts in resources(recommendation).items():
        yield from ((side, field, text) for field, text in amounts.items())


def _is_due(proposed: Recommendation, field: tuple[str, str], present: str | None, text: str | None, path: str) -> bool:
    """Return whether a file must change; raise UsageError if it has neither the running nor the proposed value."""
    if _same(field[1], present, text):
        return False
    now = present_amounts(proposed).get(field)
    if present is not None and not _same(field[1], present, now):
        what = f"{' '.join(field)} {present} for {proposed.container.container}"
        raise UsageError(
            f"{path} has {what}, the cluster has {now or 'none'}",
            fix=f"Apply the file to the cluster first; if another file sets the value, name that file in {MAPPING}.",
        )
    return True


def _same(resource: str, present: str | None, other: str | None) -> bool:
    if present is None or other is None:
        return present is other
    try:
        return parse_amount(Resource(resource), present) == parse_amount(Resource(resource), other)
    except (ValueError, CotenantError):  # a device; a text that is no quantity
        return present == other


def _deciding_layer(manifests: Manifests, built: BuiltObject, layers: Sequence[tuple[Layer, Any]], last: int) -> int:
    """Return the index of the layer to edit: the one that sets the value, else the last one only this object uses.

    `last` is the index of the last layer that sets the value, -1 if none does.
    """
    why = "other objects use each of the workload's files"
    order: list[int] = [last, *range(len(layers) - 1, last, -1)]
    if last < 0:  # the layers that set other resources of the container first, later ones before earlier ones
        bare = [child(layer.document, node, _RESOURCES) is None for layer, node in layers]
        order = sorted(range(len(layers) - 1, -1, -1), key=lambda at: bare[at])
    for at in order:
        layer = layers[at][0]
        others = [user for user in manifests.users_of(layer) if user is not built]
        if not layer.obstacle and not others:
            return at
        shared = f"{layer.path} also makes {others[0].namespace}/{others[0].name} of {others[0].root}" if others else ""
        why = layer.obstacle or shared
    raise UsageError(
        f"{why}, so that a change would affect more than the workload",
        fix=f"Give {posixpath.dirname(built.root) or 'the top folder'} a strategic-merge patch with the container.",
    )


# --- Helm values ------------------------------------------------------------------------------------------------------
def _in_values(manifests: Manifests, path: str, keys: str, going: Sequence[Recommendation]) -> FileEdits:
    """Return the edits of a values file, or of values inside another object, below dotted keys."""
    edits: list[Edit] = []
    taken: set[tuple[str, ...]] = set()
    for recommendation in going:
        place_keys = tuple(keys_of(keys, recommendation.container))
        if place_keys in taken:
            raise UsageError(f"several containers would share {keys} of {path}", fix="Put {container} into the path.")
        taken.add(place_keys)
        document, holder = _values_holder(manifests, path, place_keys)
        values: dict[str, dict[str, str | None]] = {}
        chart = f"{posixpath.dirname(path)}/{_CHART}".lstrip("/")
        is_default = posixpath.basename(path) == "values.yaml" and chart in manifests.documents
        for side, field, text in _fields(recommendation):
            now = text_of(below(document, holder, (place_keys[-1], side, field)))
            if _is_due(recommendation, (side, field), now, text, path):
                values.setdefault(side, {})[field] = NULL if text is None and not is_default else text
        edits += edits_of(document, holder, {place_keys[-1]: values}) if values else []
    return {path: edits} if edits else {}


def _values_holder(manifests: Manifests, path: str, keys: Sequence[str]) -> tuple[Document, Any]:
    """Return the document and the mapping that has, or is to have, the last key."""
    if path not in manifests.documents:
        raise UsageError(f"{path} is not a YAML file of the repository", fix=f"Correct the entry in {MAPPING}.")
    documents = manifests.documents[path]
    hosts = [(d, node) for d in documents if (node := below(d, d.root, keys[:-1])) is not None and node.id == "mapping"]
    holding = [pair for pair in hosts if child(*pair, keys[-1]) is not None] or hosts
    if len(holding) != 1:
        raise UsageError(
            f"{path} has {counted(len(holding), 'document')} with {'.'.join(keys)}",
            fix=f"Correct the path in {MAPPING}, or set the value once by hand.",
        )
    return holding[0]


def _chart_values(manifests: Manifests, going: Sequence[Recommendation], own: PatchSettings) -> tuple[str, str] | None:
    """Return file and path of the values of the one chart named like the workload; None if there is no such file."""
    keys = own.helm_path if len(going) == 1 else own.helm_path_of_several
    ref = going[0].container
    charts = {posixpath.dirname(path) for path in manifests.documents if posixpath.basename(path) == _CHART}
    paths = []
    for path, documents in manifests.documents.items():
        folder, name = posixpath.split(path)
        if folder in charts and name.startswith("values") and posixpath.basename(folder) == ref.workload.name:
            places = [below(document, document.root, keys_of(keys, ref)) for document in documents]
            paths += [path] if any(node is not None and node.id == "mapping" for node in places) else []
    if len(paths) > 1:
        raise UsageError(
            f"{' and '.join(paths)} all have the keys {keys}",
            fix=f"Name the file in {MAPPING}: `workload: {ref.workload}`, `file: PATH`, `path: {keys}`.",
        )
    return (paths[0], keys) if paths else None
