"""ElasticQuotas as a tree: each quota's parent, its guaranteed amounts (min) and its allowed amounts (max). Pure.

Used by the webhook for quotas and by the one that admits pods against quotas. A quota's name is unique in the cluster,
a label names its parent. Quotas stored before the webhook existed may be invalid (missing parents, cycles), so a walk
ends at a quota that it has visited. Source: Koordinator's protocol (the labels below).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import msgspec

from cotenant.base.errors import QuantityError, UsageError
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.kubernetes.protocol import DEFAULT_QUOTA, QUOTA_PREFIX, ROOT_QUOTA, SYSTEM_QUOTA
from cotenant.base.kubernetes.quantity import format_bytes, format_millicores, parse_bytes, parse_millicores
from cotenant.base.text import format_value

PARENT_LABEL: Final = QUOTA_PREFIX + "parent"
IS_PARENT_LABEL: Final = QUOTA_PREFIX + "is-parent"
IS_ROOT_LABEL: Final = QUOTA_PREFIX + "is-root"
PROFILE_LABEL: Final = QUOTA_PREFIX + "profile"
"""On a tree's root quota that was made of an ElasticQuotaProfile: the profile's name."""
RESOURCE_KEYS_ANNOTATION: Final = QUOTA_PREFIX + "resource-keys"
"""On an ElasticQuotaProfile: JSON list of the resources of its quota, where these are not cpu and memory."""
TREE_LABEL: Final = QUOTA_PREFIX + "tree-id"
NAME_LABEL: Final = QUOTA_PREFIX + "name"
FORCE_LABEL: Final = QUOTA_PREFIX + "allow-force-update"
LENT_LABEL: Final = QUOTA_PREFIX + "allow-lent-resource"
IGNORE_DEFAULT_TREE_LABEL: Final = QUOTA_PREFIX + "ignore-default-tree"
PREEMPTIBLE_LABEL: Final = QUOTA_PREFIX + "preemptible"
"""On a pod: "false" when it may only use its quota's min."""
NAMESPACES_ANNOTATION: Final = QUOTA_PREFIX + "namespaces"
SHARED_WEIGHT_ANNOTATION: Final = QUOTA_PREFIX + "shared-weight"
STRICT_KEYS_ANNOTATION: Final = QUOTA_PREFIX + "max-strict-check-resource-keys"
TOTAL_ANNOTATION: Final = QUOTA_PREFIX + "total-resource"
UNSCHEDULABLE_ANNOTATION: Final = QUOTA_PREFIX + "unschedulable-resource"
RUNTIME_ANNOTATION: Final = QUOTA_PREFIX + "runtime"
REQUEST_ANNOTATION: Final = QUOTA_PREFIX + "request"
CHILD_REQUEST_ANNOTATION: Final = QUOTA_PREFIX + "child-request"
NON_PREEMPTIBLE_REQUEST_ANNOTATION: Final = QUOTA_PREFIX + "non-preemptible-request"
NON_PREEMPTIBLE_USED_ANNOTATION: Final = QUOTA_PREFIX + "non-preemptible-used"
OVER_SINCE_ANNOTATION: Final = "cotenant.dev/over-since"
"""Time since which a quota uses more than its runtime; only cotenant writes it."""
BORROWS_SINCE_ANNOTATION: Final = "cotenant.dev/borrows-since"
"""Time since which a quota uses more than its min; only cotenant writes it."""
PUBLISHED_ANNOTATIONS: Final = (
    RUNTIME_ANNOTATION,
    REQUEST_ANNOTATION,
    CHILD_REQUEST_ANNOTATION,
    NON_PREEMPTIBLE_REQUEST_ANNOTATION,
    NON_PREEMPTIBLE_USED_ANNOTATION,
    TOTAL_ANNOTATION,
    UNSCHEDULABLE_ANNOTATION,
    OVER_SINCE_ANNOTATION,
    BORROWS_SINCE_ANNOTATION,
)
"""What the scheduler, or cotenant in its place, writes onto a quota: JSON resource lists, and moments."""
SYSTEM_QUOTAS: Final = frozenset({ROOT_QUOTA, SYSTEM_QUOTA, DEFAULT_QUOTA})
"""Quotas that divide no capacity among others, and for which no pod waits."""
MOST_LEVELS: Final = 32
"""Most levels of quotas below the root: a tenant can write a chain of thousands, for which everybody would wait."""
INT64_MAX: Final = 2**63 - 1

Amounts = Mapping[str, int]
"""Amount by resource name: millicores of cpu, whole units (bytes, devices, batch millicores) of all others."""


@dataclass(frozen=True, slots=True)
class QuotaNode:
    """One ElasticQuota; `parent` is the name of its parent, or of the root if it names none.

    - `heads_tree`: it is the root of a quota tree (label is-root), so no parent has to cover its min.
    - `forced`: label allow-force-update; sums of min are not checked. `lends`: others may borrow what it does not use.
    - `profile`: name of the ElasticQuotaProfile that it was made from, or "".
    - `ignores_default_tree`: the nodes of its tree do not count for the default tree.
    - `published`: its current `PUBLISHED_ANNOTATIONS`. `problem`: its invalid field (then it has no amounts), or "".
    """

    name: str
    namespace: str = ""
    parent: str = ROOT_QUOTA
    is_parent: bool = False
    heads_tree: bool = False
    tree_id: str = ""
    forced: bool = False
    minimum: Amounts = field(default_factory=dict)
    maximum: Amounts = field(default_factory=dict)
    shared_weight: Amounts = field(default_factory=dict)
    used: Amounts = field(default_factory=dict)
    strict_keys: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    lends: bool = True
    ignores_default_tree: bool = False
    published: Mapping[str, str] = field(default_factory=dict)
    profile: str = ""
    problem: str = ""

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> QuotaNode:
        """Parse an ElasticQuota object; raise UsageError, which names the first invalid field."""
        metadata, spec, status = (_require_mapping(body.get(key), key) for key in ("metadata", "spec", "status"))
        annotations = _require_mapping(metadata.get("annotations"), "metadata.annotations")
        return replace(
            cls._in_place(metadata),
            minimum=amounts_of(spec.get("min"), "spec.min"),
            maximum=amounts_of(spec.get("max"), "spec.max"),
            shared_weight=amounts_of(_json(annotations, SHARED_WEIGHT_ANNOTATION, {}), _path(SHARED_WEIGHT_ANNOTATION)),
            used=amounts_of(status.get("used"), "status.used"),
            strict_keys=_names(annotations, STRICT_KEYS_ANNOTATION),
            namespaces=_names(annotations, NAMESPACES_ANNOTATION),
            published={key: str(annotations[key]) for key in PUBLISHED_ANNOTATIONS if key in annotations},
        )

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> QuotaNode:
        """Parse a stored ElasticQuota; a quota with an invalid field keeps its place in the tree and gets a `problem`.

        Without a place in the tree it would count as deleted, and its pods would be admitted without waiting.
        """
        try:
            return cls.parse(body)
        except UsageError as error:
            quota = cls._in_place(_require_mapping(body.get("metadata"), "metadata"))
            with suppress(UsageError):
                quota = replace(
                    quota, namespaces=_names(body["metadata"].get("annotations") or {}, NAMESPACES_ANNOTATION)
                )
            return replace(quota, problem=f"{error.message}. {error.fix}")

    @classmethod
    def _in_place(cls, metadata: Mapping[str, Any]) -> QuotaNode:
        """Return the quota with its name and the properties that its labels give, without amounts."""
        labels = _require_mapping(metadata.get("labels"), "metadata.labels")
        return cls(
            name=str(metadata.get("name") or ""),
            namespace=str(metadata.get("namespace") or ""),
            parent=str(labels.get(PARENT_LABEL) or ROOT_QUOTA),
            is_parent=labels.get(IS_PARENT_LABEL) == "true",
            heads_tree=labels.get(IS_ROOT_LABEL) == "true",
            tree_id=str(labels.get(TREE_LABEL) or ""),
            forced=labels.get(FORCE_LABEL) == "true",
            lends=labels.get(LENT_LABEL) != "false",
            ignores_default_tree=labels.get(IGNORE_DEFAULT_TREE_LABEL) == "true",
            profile=str(labels.get(PROFILE_LABEL) or ""),
        )

    @property
    def firm_used(self) -> Amounts:
        """The last published usage of the quota's non-preemptible pods, by resource; {} if missing or unreadable."""
        with suppress(UsageError):
            return amounts_of(
                _json(self.published, NON_PREEMPTIBLE_USED_ANNOTATION, {}), NON_PREEMPTIBLE_USED_ANNOTATION
            )
        return {}


@dataclass(frozen=True)
class QuotaTree:
    """All ElasticQuotas of a cluster by name, with their parents and children."""

    quotas: Mapping[str, QuotaNode] = field(default_factory=dict)

    @classmethod
    def of(cls, quotas: Mapping[tuple[str, str], QuotaNode]) -> QuotaTree:
        """Return the tree of quotas by (namespace, name); of quotas with the same name the first namespace's counts."""
        return cls({name: quota for (_, name), quota in sorted(quotas.items(), reverse=True)})

    @cached_property
    def _children_by_parent(self) -> Mapping[str, tuple[QuotaNode, ...]]:
        """The quotas by their parent's name, sorted by name; the parent may not exist."""
        children: dict[str, list[QuotaNode]] = {}
        for quota in self.quotas.values():
            if quota.name != ROOT_QUOTA:
                children.setdefault(quota.parent, []).append(quota)
        return {name: tuple(sorted(those, key=lambda q: q.name)) for name, those in children.items()}

    @cached_property
    def _by_namespace(self) -> Mapping[str, QuotaNode]:
        ordered = sorted(self.quotas.values(), key=lambda q: q.name, reverse=True)
        return {namespace: quota for quota in ordered for namespace in quota.namespaces}

    def children(self, name: str) -> tuple[QuotaNode, ...]:
        """Return the direct children of a quota, sorted by name."""
        return self._children_by_parent.get(name, ())

    def ancestors(self, quota: QuotaNode) -> Iterator[str]:
        """Yield up to MOST_LEVELS ancestors' names, from the parent to the root, a missing quota or a repeated name."""
        visited, name = {quota.name}, quota.parent
        for _ in range(MOST_LEVELS):
            yield name
            above = self.quotas.get(name)
            if name == ROOT_QUOTA or name in visited or above is None:
                return
            visited.add(name)
            name = above.parent

    def has_cycle_through(self, quota: QuotaNode) -> bool:
        """Return whether a quota, placed under the parent that it names, would be its own ancestor."""
        return quota.name in self.ancestors(quota)

    def of_pod(self, namespace: str, labels: Mapping[str, str], gated_for: str = "") -> QuotaNode | None:
        """Return the quota that a pod uses, or None if there is none.

        The first of these that exists: the quota `gated_for`, whose scheduling gate the pod was created with; the quota
        of the pod's label; the quota that has the name of the pod's namespace and is in it; the quota whose annotation
        names the namespace.
        """
        if (gate := self.quotas.get(gated_for)) is not None:
            return gate
        if labelled := self.quotas.get(labels.get(NAME_LABEL) or ""):
            return labelled
        own = self.quotas.get(namespace)
        return own if own is not None and own.namespace == namespace else self._by_namespace.get(namespace)

    def bounds(self, quota: QuotaNode, firm: bool) -> Iterator[tuple[str, QuotaNode, Amounts, Amounts]]:
        """Yield (kind, quota, bound, usage) for each bound on a quota's pods: "max" of it and its ancestors, its "min".

        "min" bounds only `firm` pods, which may not be preempted. A system quota and one with a problem have no bounds.
        """
        if quota.problem or quota.name in SYSTEM_QUOTAS:
            return
        above = [self.quotas.get(name) for name in self.ancestors(quota)]
        for each in (quota, *above):
            if each is not None and each.name not in SYSTEM_QUOTAS:
                yield "max", each, each.maximum, each.used
        if firm:
            yield "min", quota, quota.minimum, quota.firm_used

    @cached_property
    def addressing(self) -> Mapping[str, tuple[str, tuple[str, ...], bool]]:
        """(Namespace, annotated namespaces, True if invalid) of each quota by name, which decide a pod's quota."""
        return {name: (quota.namespace, quota.namespaces, bool(quota.problem)) for name, quota in self.quotas.items()}

    def owner_of_namespace(self, namespace: str) -> QuotaNode | None:
        """Return the quota whose annotation names a namespace, or None."""
        return self._by_namespace.get(namespace)


def amounts_of(resource_list: Any, what: str) -> dict[str, int]:
    """Parse a resource list to amounts; raise UsageError, which names the field, for an invalid one."""
    amounts = {}
    for name, value in _require_mapping(resource_list, what).items():
        amount_what = f"{what}.{name}"
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise QuantityError(
                f"{amount_what}: {format_value(value, 40)} is not a Kubernetes quantity",
                fix='Write a quantity such as "2" or "512Mi".',
            )
        amounts[name] = parse_millicores(value, amount_what) if name == "cpu" else parse_bytes(value, amount_what)
    return amounts


def quantity_of(resource: str, amount: int) -> str:
    """Return an amount as a Kubernetes quantity, which `amounts_of` parses: 1500 of cpu is "1500m"."""
    return format_millicores(amount) if resource == "cpu" else format_bytes(amount)


def _names(annotations: Mapping[str, Any], key: str) -> tuple[str, ...]:
    names = _json(annotations, key, [])
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise UsageError(f"{_path(key)}: is not a list of names", fix='Write a JSON list, such as ["shop"].')
    return tuple(names)


def _json(annotations: Mapping[str, Any], key: str, absent: Any) -> Any:
    text = annotations.get(key)
    if not text:
        return absent
    try:
        return msgspec.json.decode(text)
    except (TypeError, *UNDECODABLE) as error:
        raise UsageError(f"{_path(key)}: is not JSON ({error})", fix="Correct the annotation.") from error


def _path(annotation: str) -> str:
    return f"metadata.annotations[{annotation}]"


def _require_mapping(value: Any, what: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UsageError(f"{what}: is not an object", fix="Correct the ElasticQuota.")
    return value
