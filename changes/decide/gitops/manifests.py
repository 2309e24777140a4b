"""From recommendations to files for tools that apply them: kustomize, Helm, server-side apply. Pure.

Each function yields `File`s: a relative path, the document (plain values, exact quantities) and comments about its use.
The command line writes them to a folder or prints them. What `patches.file_refusal` refuses is left out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

from cotenant.base.errors import UsageError
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.kubernetes.quantity import format_amount
from cotenant.base.resource import Resource
from cotenant.changes.decide import autoscaler_targets
from cotenant.changes.decide.autoscaler_targets import TargetMove
from cotenant.changes.decide.patches import (
    FIELDS,
    LISTS,
    TEMPLATE_PATHS,
    applied_refusal,
    by_workload,
    file_refusal,
    nest_mapping,
    patch,
    refusal,
    resources,
)
from cotenant.recommender.model.recommendation import Action, Recommendation
from cotenant.recommender.settings import PatchSettings

API_VERSIONS: Final = {"ReplicationController": "v1", "CronJob": "batch/v1"}
APPS: Final = "apps/v1"
FIELD_MANAGER: Final = "cotenant"
HELM_TARGETS: Final = {
    Resource.CPU: "targetCPUUtilizationPercentage",
    Resource.MEMORY: "targetMemoryUtilizationPercentage",
}
IN_PLACE: Final = "If the manifest has the autoscaler's metrics in another order, kustomize fails and changes nothing."


@dataclass(frozen=True, slots=True)
class File:
    """One YAML file: its path, its document, and the comment lines above the document."""

    path: str
    document: Mapping[str, Any] | Sequence[Mapping[str, Any]]
    comments: tuple[str, ...] = ()


def kustomize(recommendations: Iterable[Recommendation]) -> Iterator[File]:
    """Yield a kustomize component per namespace, with a patch file per workload.

    A patch selects by kind and name alone: an overlay often sets the namespace only after patches are applied.
    """
    patches: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for ref, workload_recommendations in by_workload(recommendations).items():
        if document := patch(*workload_recommendations):
            patches[ref.namespace].append(_entry(_file(ref), ref.kind, ref.name))
            head = {"apiVersion": api_version(ref.kind), "kind": ref.kind, "metadata": {"name": ref.name}}
            yield File(_path(ref), {**head, **document})
            for move in _moves(workload_recommendations):
                name = f"{_file(ref).removesuffix('.yaml')}.{move.resource}-target.yaml"
                patches[ref.namespace].append(_entry(name, autoscaler_targets.KIND, move.name))
                yield File(f"{ref.namespace}/{name}", move.operations, (move.sentence, IN_PLACE))
    for namespace, entries in patches.items():
        component = {"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component", "patches": entries}
        how = f"Name this folder under `components:` in the kustomization of the namespace {namespace}."
        yield File(f"{namespace}/kustomization.yaml", component, (how,))


def helm(recommendations: Iterable[Recommendation], settings: PatchSettings) -> Iterator[File]:
    """Yield a values file per workload; the settings say under which keys a chart has a container's resources."""
    for ref, workload_recommendations in by_workload(recommendations).items():
        changed = [r for r in workload_recommendations if resources(r) and not file_refusal(r)]
        if not changed:
            continue
        pattern = settings.helm_path if len(changed) == 1 else settings.helm_path_of_several
        values: dict[str, Any] = {}
        for recommendation in changed:
            # Put the mapping below the keys; UsageError where two containers would share one place.
            keys = keys_of(pattern, recommendation.container)
            place = values
            for key in keys[:-1]:
                place = place.setdefault(key, {})
            if keys[-1] in place:
                raise UsageError(
                    f"several containers would share the Helm path {pattern!r}",
                    fix="Put {container} into recommender.patches.helm_path_of_several.",
                )
            place[keys[-1]] = resources(recommendation)
        options = "recommender.patches.helm_path and helm_path_of_several"
        comments = [f"{ref}: check that its chart reads these keys; the settings {options} name them."]
        for move in _moves(workload_recommendations):
            values.setdefault("autoscaling", {})[HELM_TARGETS[move.resource]] = move.after
            comments.append(f"{move.sentence}: charts made by `helm create` read the target below `autoscaling`")
        yield File(f"{ref.namespace}/{ref.kind.lower()}-{ref.name}.values.yaml", values, tuple(comments))


def server_side_apply(
    recommendations: Iterable[Recommendation], chosen: Collection[ContainerRef] | None = None
) -> Iterator[File]:
    """Yield a partial object per workload for `kubectl apply --server-side`.

    The API server removes fields that the same manager applied before and omits now. So each file has every container
    of the workload. Present values are kept for containers that are not chosen, for withheld values, and for containers
    whose heap or GPUs would have to change too.
    """
    for ref, workload_recommendations in by_workload(recommendations).items():
        applicable = [_as_it_is(r) if applied_refusal(r) else r for r in workload_recommendations if not refusal(r)]
        changed = [r for r in applicable if (chosen is None or r.container in chosen) and resources(r)]
        if not changed:
            continue
        spec: dict[str, Any] = defaultdict(list)
        applied = {r.container for r in changed}
        for recommendation in applicable:
            is_proposed = recommendation.container in applied
            if container_resources := _complete_container_fields(recommendation, proposed=is_proposed):
                entry = {"name": recommendation.container.container, "resources": container_resources}
                spec[LISTS[recommendation.role]].append(entry)
        metadata = {"name": ref.name, "namespace": ref.namespace}
        head = {"apiVersion": api_version(ref.kind), "kind": ref.kind, "metadata": metadata}
        moves = _moves([r if r.container in applied else _as_it_is(r) for r in applicable])
        sentences = [m.sentence if m.scalar else f"{m.sentence}: {m.command}" for m in moves]
        line = _apply(_path(ref))
        removed = [
            f"{r.container.container}: {FIELDS[v.field]}.{v.resource}"
            for r in changed
            for v in r.values
            if v.action is Action.UNSET and v.now is not None
        ]
        owned = "kubectl removes these fields only if this field manager owns them, else use kubectl patch:"
        comments = (*((line, f"{owned} {', '.join(removed)}") if removed else (line,)), *sentences)
        yield File(_path(ref), {**head, **nest_mapping(TEMPLATE_PATHS[ref.kind], dict(spec))}, comments)
        for move in moves:
            if move.scalar:
                # The autoscaler's own partial object, whose CPU target is one field beside all other metrics.
                path = f"{ref.namespace}/{ref.kind.lower()}-{ref.name}.autoscaler.yaml"
                metadata = {"name": move.name, "namespace": ref.namespace}
                target = {"apiVersion": "autoscaling/v1", "kind": autoscaler_targets.KIND, "metadata": metadata}
                yield File(path, {**target, "spec": move.scalar}, (_apply(path), move.sentence))


def _moves(recommendations: Sequence[Recommendation]) -> tuple[TargetMove, ...]:
    return autoscaler_targets.moves([r for r in recommendations if not file_refusal(r)])


def _as_it_is(recommendation: Recommendation) -> Recommendation:
    """Return the recommendation with every field at its present value."""
    values = tuple(replace(value, action=Action.WITHHELD) for value in recommendation.values)
    return replace(recommendation, values=values, gpu=None)


def api_version(kind: str) -> str:
    """Return the API version of a workload kind that has a template."""
    return API_VERSIONS.get(kind, APPS)


def _complete_container_fields(recommendation: Recommendation, *, proposed: bool) -> dict[str, dict[str, str]]:
    """Return every requested or limited amount that the container is to have; unset fields are absent."""
    amounts: dict[str, dict[str, str]] = {}
    for value in recommendation.values:
        then = {Action.SET: value.amount, Action.UNSET: None, Action.WITHHELD: value.now}[value.action]
        amount = then if proposed else value.now
        if amount is not None:
            amounts.setdefault(FIELDS[value.field], {})[value.resource.value] = format_amount(value.resource, amount)
    return amounts


def _apply(path: str) -> str:
    return f"kubectl apply --server-side --field-manager={FIELD_MANAGER} --force-conflicts -f {path}"


def _entry(path: str, kind: str, name: str) -> dict[str, Any]:
    # The name for a kustomize target, which reads a regular expression; kustomize anchors it.
    return {"path": path, "target": {"kind": kind, "name": name.replace(".", "\\.")}}


def _file(ref: WorkloadRef) -> str:
    return f"{ref.kind.lower()}-{ref.name}.yaml"


def _path(ref: WorkloadRef) -> str:
    return f"{ref.namespace}/{_file(ref)}"


def keys_of(pattern: str, container: ContainerRef) -> list[str]:
    """Split a path such as "{container}.resources" into keys, with names filled in; dots in names do not split."""
    names = {
        "container": container.container,
        "workload": container.workload.name,
        "kind": container.workload.kind.lower(),
        "namespace": container.workload.namespace,
    }
    keys = pattern.split(".")
    unknown = [w for key in keys for w in re.findall(r"\{([^{}]*)\}", key) if w not in names]
    if unknown or not all(keys):
        raise UsageError(
            f"{pattern!r} is not a path of Helm values",
            fix=f"Separate the keys by single dots; allowed names are {', '.join(f'{{{n}}}' for n in names)}.",
        )
    return [re.sub(r"\{([^{}]*)\}", lambda m: names[m[1]], key) for key in keys]


_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_./-]+")
_WORDS: Final = frozenset({"yes", "no", "on", "off", "true", "false", "null"})


def as_yaml(file: File) -> str:
    """Return the file's YAML text; strings that YAML readers could take for another type are quoted."""
    import yaml

    head = "".join(f"# {line}\n" for line in file.comments)
    return head + str(yaml.dump(file.document, Dumper=_dumper(), sort_keys=False, allow_unicode=False, width=2**20))


@cache
def _dumper() -> Any:
    """Return PyYAML's safe dumper with quotes around strings that a reader could take for another type."""
    import yaml

    base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    dumper: Any = type("QuotingDumper", (base,), {})
    dumper.add_representer(str, _represent_string)
    return dumper


def _represent_string(dumper: Any, text: str) -> Any:
    plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')
