"""ElasticQuotas as a tree: who is whose child, what is guaranteed (min) and allowed (max). Pure.

Read by the quota webhook, and by the webhook that admits pods against quotas. A quota's name is unique in the cluster,
its parent is named by a label; the tree given may hold any nonsense that was stored before the webhook stood (missing
parents, cycles), so walks stop where they have been. Source: Koordinator's protocol (the labels below).
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
"""Since when a quota uses more than its runtime; written by cotenant alone, like the next."""
BORROWS_SINCE_ANNOTATION: Final = "cotenant.dev/borrows-since"
"""Since when it uses more than its min."""
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
"""They divide nothing, and no pod waits for them."""
INT64_MAX: Final = 2**63 - 1

Amounts = Mapping[str, int]
"""Amount by resource name: millicores of cpu, whole units (bytes, devices, batch millicores) of all others."""


@dataclass(frozen=True, slots=True)
class QuotaNode:
    """One ElasticQuota. parent: name of its parent, the root's when it has none of its own.

    heads_tree: root of a quota tree (label is-root), whose min no parent has to cover.
    forced: label allow-force-update; sums of min are not checked. lends: others may borrow what it does not use.
    profile: name of the ElasticQuotaProfile that it was made of, or "".
    ignores_default_tree: the nodes of its tree do not count for the default tree. published: `PUBLISHED_ANNOTATIONS` as
    they are written now. problem: the field that cannot be read, "" if none: then it has its place and no amounts.
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
        """Read an ElasticQuota object; UsageError names the first field that cannot be used."""
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
        """The same for a stored quota; one with an invalid field is in the tree with its `problem`.

        It is not the same as one that is gone, whose pods wait for nothing.
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
        """Return the quota with what its name and labels say, without amounts."""
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
        """Last published usage of its pods that may not be preempted; {} if there is none."""
        with suppress(UsageError):
            return amounts_of(
                _json(self.published, NON_PREEMPTIBLE_USED_ANNOTATION, {}), NON_PREEMPTIBLE_USED_ANNOTATION
            )
        return {}


@dataclass(frozen=True)
class QuotaTree:
    """All quotas by name."""

    quotas: Mapping[str, QuotaNode] = field(default_factory=dict)

    @classmethod
    def of(cls, quotas: Mapping[tuple[str, str], QuotaNode]) -> QuotaTree:
        """The tree of all quotas by (namespace, name); of several of one name that of the first namespace counts."""
        return cls({name: quota for (_, name), quota in sorted(quotas.items(), reverse=True)})

    @cached_property
    def _children_by_parent(self) -> Mapping[str, tuple[QuotaNode, ...]]:
        """Quotas by their parent's name, sorted by name; a parent need not exist."""
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
        """Quotas right below one, by name."""
        return self._children_by_parent.get(name, ())

    def ancestors(self, quota: QuotaNode) -> Iterator[str]:
        """Names of parent, grandparent, ... up to the root or a missing one; a name that comes again is the last."""
        visited, name = {quota.name}, quota.parent
        while True:
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
        """The quota that a pod uses; None when there is none.

        In this order: the quota behind whose gate it was created, whatever was written on it since; the pod's label;
        the quota NAMESPACE/NAMESPACE, which has the name of the pod's namespace and stands in it; the quota whose
        annotation names the namespace.
        """
        if (gate := self.quotas.get(gated_for)) is not None:
            return gate
        if labelled := self.quotas.get(labels.get(NAME_LABEL) or ""):
            return labelled
        own = self.quotas.get(namespace)
        return own if own is not None and own.namespace == namespace else self._by_namespace.get(namespace)

    def bounds(self, quota: QuotaNode, firm: bool) -> Iterator[tuple[str, QuotaNode, Amounts, Amounts]]:
        """Yield the bounds of a quota's pods: "max" of it and of each above it, "min" for a firm pod; amount and use.

        Nothing bounds those of a quota that divides nothing or cannot be read. firm: the pod may not be preempted.
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
        """All that a pod's quota rests on: while it is the same, every pod has the same quota."""
        return {name: (quota.namespace, quota.namespaces, bool(quota.problem)) for name, quota in self.quotas.items()}

    def owner_of_namespace(self, namespace: str) -> QuotaNode | None:
        """The quota that an annotation binds a namespace to."""
        return self._by_namespace.get(namespace)


def amounts_of(resource_list: Any, what: str) -> dict[str, int]:
    """Amounts of a resource list; QuantityError names the field."""
    amounts = {}
    for name, value in _require_mapping(resource_list, what).items():
        amount_what = f"{what}.{name}"
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise QuantityError(
                f"{amount_what}: {format_value(value, 40)} is not a Kubernetes quantity", fix='Write "2" or "512Mi".'
            )
        amounts[name] = parse_millicores(value, amount_what) if name == "cpu" else parse_bytes(value, amount_what)
    return amounts


def quantity_of(resource: str, amount: int) -> str:
    """An amount as a Kubernetes quantity, which `amounts_of` reads back: 1500 of cpu is "1500m"."""
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
