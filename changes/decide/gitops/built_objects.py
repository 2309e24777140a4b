"""Which files of a repository make up an object: plain files, and kustomizations with bases and patches. Pure.

It reads what decides where a value is set: resources, components, strategic-merge patches, names and namespaces. A JSON
patch or an inline patch of resources becomes a layer that cannot be edited, with the reason.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from cotenant.base.errors import UsageError
from cotenant.changes.decide.gitops.yaml_edit import Document, child, read_documents, text_of

KUSTOMIZATIONS: Final = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_TOUCHES_VALUES: Final = re.compile(r"/resources(/|$)|ontainers(/\d+)?$|/(template|jobTemplate)(/spec)?$|^/spec$|^$")
"""JSON pointers whose patch changes a container's resources."""


@dataclass(frozen=True)
class Layer:
    """A YAML document that contributes to an object; `obstacle` says why it cannot be edited, "" if it can."""

    document: Document
    node: Any
    kind: str
    name: str
    namespace: str
    obstacle: str = ""

    @property
    def path(self) -> str:
        """The path of the file, or of the kustomization with an inline patch."""
        return self.document.path


@dataclass(frozen=True)
class BuiltObject:
    """An object as a plain file or a top-level kustomization produces it; `layers` are its base, then its patches.

    `names` and `namespaces` are those by which patches may select it, the effective one last; "" is no namespace.
    """

    root: str
    kind: str
    names: tuple[str, ...]
    namespaces: tuple[str, ...]
    layers: tuple[Layer, ...]
    obstacles: tuple[str, ...] = ()
    """For each JSON patch of the object's resources, why it cannot be edited."""

    @property
    def name(self) -> str:
        """The object's effective name."""
        return self.names[-1]

    @property
    def namespace(self) -> str:
        """The object's effective namespace; "" if it is chosen when the object is applied."""
        return self.namespaces[-1]

    @property
    def files(self) -> set[str]:
        """The paths of the object's plain file or kustomization, of the folder of that, and of all layers."""
        return {self.root, posixpath.dirname(self.root), *(layer.path for layer in self.layers)}


@dataclass(frozen=True)
class Manifests:
    """The objects of a repository; `generated` maps files with `generateName` objects to the prefix of the names."""

    objects: tuple[BuiltObject, ...]
    documents: Mapping[str, Sequence[Document]]
    unread: tuple[str, ...]
    generated: Mapping[str, str] = field(default_factory=dict)

    def users_of(self, layer: Layer) -> list[BuiltObject]:
        """Return every object that a document contributes to."""
        return [built for built in self.objects if any(own.node is layer.node for own in built.layers)]


def read_manifests(files: Mapping[str, str]) -> Manifests:
    """Return the objects in YAML files, given by path; files that are not YAML (a Helm template) are `unread`."""
    return _ObjectReader(files).read()


class _ObjectReader:
    def __init__(self, files: Mapping[str, str]) -> None:
        self._documents: dict[str, list[Document]] = {}
        self._unread: list[str] = []
        self._kustomizations: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self._named: set[str] = set()
        """Files and folders that a kustomization names."""
        import yaml

        for path, text in files.items():
            folder, name = posixpath.split(path)
            try:
                self._documents[path] = read_documents(path, text)
                if name in KUSTOMIZATIONS:
                    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
                    content = yaml.load(text, Loader=loader)  # noqa: S506 - it is safe
                    self._kustomizations[folder] = path, content if isinstance(content, Mapping) else {}
            except (yaml.YAMLError, ValueError, RecursionError):
                self._unread.append(path)

    def read(self) -> Manifests:
        for folder, (_, content) in self._kustomizations.items():
            paths = [text for key in ("resources", "bases", "components", "crds") for text in _texts(content, key)]
            paths += [str(entry["path"]) for entry in _patch_entries(content) if entry.get("path")]
            self._named |= {posixpath.normpath(posixpath.join(folder, path)) for path in paths}
        objects = [
            replace(built, root=path)
            for folder, (path, content) in self._kustomizations.items()
            if (folder or ".") not in self._named and content.get("kind") != "Component"
            for built in self._build(folder, ())
        ]
        generated: dict[str, str] = {}
        for path, documents in self._documents.items():
            layers = list(_layers(documents))
            if posixpath.dirname(path) not in self._kustomizations and path not in self._named:
                objects += [_plain(layer) for layer in layers if layer.name]
            for layer in layers:
                if prefix := _meta(layer.document, layer.node, "generateName"):
                    generated[path] = prefix
        return Manifests(tuple(objects), self._documents, tuple(self._unread), generated)

    def _build(self, folder: str, above: tuple[str, ...]) -> list[BuiltObject]:
        """Return the objects that a folder's kustomization produces; none for a kustomization that includes itself."""
        if folder in above or folder not in self._kustomizations:
            return []
        path, content = self._kustomizations[folder]
        objects: list[BuiltObject] = []
        for entry_path in [*_texts(content, "resources"), *_texts(content, "bases")]:
            target = posixpath.normpath(posixpath.join(folder, entry_path))
            if target in self._documents:
                objects += [_plain(layer) for layer in _layers(self._documents[target]) if layer.name]
            else:
                objects += self._build("" if target == "." else target, (*above, folder))
        for entry_path in _texts(content, "components"):
            component = posixpath.normpath(posixpath.join(folder, entry_path))
            own_path, own = self._kustomizations.get(component, ("", {}))
            objects += self._build(component, (*above, folder)) if own.get("resources") else []
            objects = self._with_patches(objects, component, own_path, own)
        objects = self._with_patches(objects, folder, path, content)
        namespace = content.get("namespace")
        prefix, suffix = str(content.get("namePrefix") or ""), str(content.get("nameSuffix") or "")
        for place, built in enumerate(objects):
            namespaces = (*built.namespaces, str(namespace)) if namespace else built.namespaces
            names = (*built.names, f"{prefix}{built.name}{suffix}")
            objects[place] = replace(built, names=names, namespaces=namespaces)
        return objects

    def _with_patches(
        self, objects: Sequence[BuiltObject], folder: str, path: str, content: Mapping[str, Any]
    ) -> list[BuiltObject]:
        patched = list(objects)
        for entry in _patch_entries(content):
            target = entry.get("target")
            for layer in self._patch_layers(folder, path, entry):
                for place, built in enumerate(patched):
                    if not _hits(built, layer, target):
                        continue
                    if layer.node.id != "sequence":
                        patched[place] = replace(built, layers=(*built.layers, layer))
                    elif layer.obstacle:
                        patched[place] = replace(built, obstacles=(*built.obstacles, layer.obstacle))
        return patched

    def _patch_layers(self, folder: str, path: str, entry: Mapping[str, Any]) -> Iterator[Layer]:
        """Yield the documents of a patch, from its file or from the kustomization's own text."""
        import yaml

        target, inline = entry.get("path"), entry.get("patch")
        if isinstance(target, str):
            documents: Sequence[Document] = self._documents.get(posixpath.normpath(posixpath.join(folder, target)), ())
            obstacle = ""
        else:
            try:
                documents = read_documents(path, str(inline))
            except (yaml.YAMLError, ValueError, RecursionError):
                documents = ()
            obstacle = f"{path} sets the resources in an inline patch"
        selectors = [key for key in ("labelSelector", "annotationSelector") if (entry.get("target") or {}).get(key)]
        if selectors:
            obstacle = f"{target or path} selects by {selectors[0]}, which cotenant does not read"
        for document in documents:
            if document.root.id == "sequence":
                pointers = [text_of(child(document, operation, "path")) or "" for operation in document.root.value]
                touches = any(_TOUCHES_VALUES.search(pointer) for pointer in pointers)
                why = f"{document.path} changes the values by a JSON patch (RFC 6902)" if touches else ""
                yield Layer(document, document.root, "", "", "", why)
            else:
                yield replace(_layer(document, document.root), obstacle=obstacle)


def _texts(content: Mapping[str, Any], key: str) -> list[str]:
    entries = content.get(key)
    return [text for text in entries if isinstance(text, str)] if isinstance(entries, list) else []


def _patch_entries(content: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the patches in kustomize's order, each with a path or a text."""
    for text in _texts(content, "patchesStrategicMerge"):
        yield {"patch": text} if "\n" in text else {"path": text}
    for key in ("patches", "patchesJson6902"):
        entries = content.get(key)
        yield from (entry for entry in entries if isinstance(entry, Mapping)) if isinstance(entries, list) else ()


def _hits(built: BuiltObject, layer: Layer, target: Any) -> bool:
    """Return whether a patch applies to the object; kustomize anchors the expressions of a target."""
    if not isinstance(target, Mapping):
        is_named = layer.kind == built.kind and layer.name in built.names
        return is_named and (not layer.namespace or layer.namespace in built.namespaces)
    return all(
        not target.get(key) or any(_matches(str(target[key]), text) for text in texts)
        for key, texts in (("kind", (built.kind,)), ("name", built.names), ("namespace", built.namespaces))
    )


def _matches(expression: str, text: str) -> bool:
    try:
        return re.fullmatch(expression, text) is not None
    except re.error:
        return expression == text


def _plain(layer: Layer) -> BuiltObject:
    return BuiltObject(layer.path, layer.kind, (layer.name,), (layer.namespace,), (layer,))


def _layers(documents: Collection[Document]) -> Iterator[Layer]:
    """Yield every object of a file's documents and of List items; skip documents with a duplicate key."""
    for document in documents:
        try:
            items = child(document, document.root, "items")
            nodes = items.value if items is not None and items.id == "sequence" else [document.root]
            yield from [layer for node in nodes if (layer := _layer(document, node)).kind]
        except UsageError:
            continue


def _layer(document: Document, node: Any) -> Layer:
    kind = text_of(child(document, node, "kind")) or ""
    return Layer(document, node, kind, _meta(document, node, "name"), _meta(document, node, "namespace"))


def _meta(document: Document, node: Any, key: str) -> str:
    return text_of(child(document, child(document, node, "metadata"), key)) or ""
