"""Kubernetes' LabelSelector: `matchLabels` and `matchExpressions` of an object, and whether labels satisfy them. Pure.

Used wherever a configuration selects nodes, pods or namespaces: node entries of slo-controller-config, profiles,
webhooks. Source: the API server's meaning and refusals (k8s.io/apimachinery `LabelSelectorAsSelector`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from cotenant.base.errors import UsageError
from cotenant.base.text import format_value

_NAME: Final = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_SUBDOMAIN: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
_KEY: Final = re.compile(rf"(?:(?P<prefix>{_SUBDOMAIN})/)?{_NAME}")
_VALUE: Final = re.compile(rf"(?:{_NAME})?")
_PREFIX_CAP: Final = 253
_FIELDS: Final = ("matchLabels", "matchExpressions")
_FIX: Final = 'Write {"matchLabels": {"key": "value"}} or {"matchExpressions": [{"key", "operator", "values"}]}.'


class Operator(StrEnum):
    """The operator of a label expression; NOT_IN also matches an object without the key."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


@dataclass(frozen=True, slots=True)
class Requirement:
    """A condition on one label's key; `values` is empty for EXISTS and DOES_NOT_EXIST."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether an object's labels satisfy the requirement."""
        if self.operator is Operator.IN:
            return self.key in labels and labels[self.key] in self.values
        if self.operator is Operator.NOT_IN:
            return self.key not in labels or labels[self.key] not in self.values
        return (self.key in labels) is (self.operator is Operator.EXISTS)

    @property
    def query(self) -> str:
        """The requirement in the syntax of the API server's parameter `labelSelector`."""
        if self.operator in (Operator.IN, Operator.NOT_IN):
            return f"{self.key} {self.operator.value.lower()} ({','.join(sorted(self.values))})"
        return self.key if self.operator is Operator.EXISTS else f"!{self.key}"


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """Requirements on labels that must all hold: () selects every object, None selects no object."""

    requirements: tuple[Requirement, ...] | None = ()

    @classmethod
    def parse(cls, body: Mapping[str, Any] | None, what: str = "selector") -> LabelSelector:
        """Parse an object's selector field; None (the field is missing) selects nothing, {} selects everything.

        Raise UsageError, which names `what`, if the selector is invalid. Unknown fields are ignored.
        """
        if body is None:
            return cls(None)
        if not isinstance(body, Mapping):
            raise _refusal(what, body, "is not an object")
        labels, expressions = body.get("matchLabels"), body.get("matchExpressions")
        if not isinstance(labels, Mapping | None):
            raise _refusal(f"{what}.matchLabels", labels, "is not an object of strings")
        if not isinstance(expressions, list | tuple | None):
            raise _refusal(f"{what}.matchExpressions", expressions, "is not a list")
        return cls(
            tuple(_equal(key, value, f"{what}.matchLabels") for key, value in sorted((labels or {}).items(), key=str))
            + tuple(
                _expression(expression, f"{what}.matchExpressions[{i}]")
                for i, expression in enumerate(expressions or ())
            )
        )

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether an object with these labels is selected."""
        return self.requirements is not None and all(r.matches(labels) for r in self.requirements)

    @property
    def query(self) -> str:
        """The selector in the syntax of the API server's `labelSelector`; "" if it selects everything or nothing."""
        return ",".join(requirement.query for requirement in self.requirements or ())


def unread_fields(body: object) -> tuple[str, ...]:
    """Return the unknown fields of a selector, such as labels that are not below `matchLabels`.

    Kubernetes ignores them, so that the selector selects more than intended, or everything if it has no other fields.
    """
    return tuple(str(key) for key in body if key not in _FIELDS) if isinstance(body, Mapping) else ()


def _equal(key: str, value: object, what: str) -> Requirement:
    return Requirement(_key(key, what), Operator.IN, _values([value], f"{what}[{key}]"))


def _expression(body: object, what: str) -> Requirement:
    if not isinstance(body, Mapping):
        raise _refusal(what, body, "is not an object")
    operator, values = body.get("operator"), body.get("values") or []
    if operator not in list(Operator):
        raise _refusal(f"{what}.operator", operator, f"is not one of {', '.join(Operator)}")
    if not isinstance(values, list | tuple):
        raise _refusal(f"{what}.values", values, "is not a list")
    if bool(values) is not (operator in (Operator.IN, Operator.NOT_IN)):
        raise _refusal(f"{what}.values", values, f"{'must be empty' if values else 'needs a value'} for {operator}")
    return Requirement(_key(body.get("key"), what), Operator(operator), _values(values, f"{what}.values"))


def _key(key: object, what: str) -> str:
    match = _KEY.fullmatch(key) if isinstance(key, str) else None
    if not isinstance(key, str) or match is None or len(match["prefix"] or "") > _PREFIX_CAP:
        raise _refusal(what, key, "is not a valid label key")
    return key


def _values(values: Sequence[object], what: str) -> frozenset[str]:
    for value in values:
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise _refusal(what, value, "is not a valid label value (up to 63 letters, digits, '-', '_', '.')")
    return frozenset(str(v) for v in values)


def _refusal(what: str, value: object, because: str) -> UsageError:
    return UsageError(f"{what}: {format_value(value)} {because}", fix=_FIX)
