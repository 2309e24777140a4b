"""Parses a workload's own annotations for strategy `cotenant`; invalid ones are ignored with a note. Pure.

A workload (Deployment, StatefulSet, DaemonSet, CronJob, Job; on the object itself, not on its pods) may carry:

- `cotenant.dev/profile`: `conservative`, `balanced` or `aggressive`, instead of the setting's profile
- `cotenant.dev/cpu-fraction`: quantile of one pod's CPU demand, > 0 and <= 1
- `cotenant.dev/cpu-margin`, `cotenant.dev/memory-margin`: added to CPU demand, highest memory; 0..10, 0.2 is 20 %
- `cotenant.dev/min-cpu`, `cotenant.dev/max-cpu`, `cotenant.dev/min-memory`, `cotenant.dev/max-memory`: bounds: `250m`
- `cotenant.dev/lower-limits`: `true` or `false`, whether limits may be lowered too
- `cotenant.dev/cpu-limit`: `keep` or `unset`, whether CPU limits are kept or removed
- `cotenant.dev/keep-qos-class`: `true` or `false`, whether the pod's QoS class must stay
- `cotenant.dev/exclude-containers`: names, separated by commas, of containers that get no recommendation
- `cotenant.dev/skip`: `true` or `false`, no recommendation for the whole workload

An annotation takes precedence over a setting, a setting over the profile; `Value.overrides` states the origin of each
number. An invalid value or an unknown key is ignored with a note that names it and the valid values; the other
annotations still apply. If a minimum is above its maximum, the maximum applies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from cotenant.base.errors import QuantityError
from cotenant.base.kubernetes.quantity import parse_bytes, parse_millicores
from cotenant.base.text import closest_name

PREFIX: Final = "cotenant.dev/"
PROFILES: Final = ("conservative", "balanced", "aggressive")
LENGTH_CAP: Final = 1024
"""Characters of a value that are looked at; a longer one is refused."""


@dataclass(frozen=True, slots=True)
class AnnotationRule:
    """The rule for one annotation: `parse` returns its value, or raises ValueError if it is outside of `domain`."""

    domain: str
    parse: Callable[[str], Any]


def _choice_rule(*choices: str) -> AnnotationRule:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(text)
        return text

    return AnnotationRule("one of " + ", ".join(choices), parse)


def _number(above: float, most: float, *, open_below: bool) -> AnnotationRule:
    def parse(text: str) -> float:
        if not re.fullmatch(r"(?:[0-9]{1,40}(?:\.[0-9]{1,40})?|\.[0-9]{1,40})(?:e-?[0-9]{1,3})?", text):
            raise ValueError(text)
        number = float(text)
        if not isfinite(number) or number > most or number < above or (open_below and number == above):
            raise ValueError(text)
        return number

    return AnnotationRule(f"a number {'>' if open_below else '>='} {above:g} and <= {most:g}", parse)


def _quantity(parse: Callable[[str], int], example: str) -> AnnotationRule:
    def positive(text: str) -> int:
        try:
            amount = parse(text)
        except QuantityError as error:
            raise ValueError(text) from error
        if amount <= 0:
            raise ValueError(text)
        return amount

    return AnnotationRule(f"a Kubernetes quantity above 0, such as {example}", positive)


def _names(text: str) -> frozenset[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or not all(re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name) for name in names):
        raise ValueError(text)
    return frozenset(names)


_FLAG: Final = AnnotationRule("true or false", lambda text: {"true": True, "false": False}[text])
_CPU, _MEMORY = _quantity(parse_millicores, "250m"), _quantity(parse_bytes, "1Gi")
RULES: Final[Mapping[str, AnnotationRule]] = {
    "profile": _choice_rule(*PROFILES),
    "cpu-fraction": _number(0, 1, open_below=True),
    "cpu-margin": _number(0, 10, open_below=False),
    "memory-margin": _number(0, 10, open_below=False),
    "min-cpu": _CPU,
    "max-cpu": _CPU,
    "min-memory": _MEMORY,
    "max-memory": _MEMORY,
    "lower-limits": _FLAG,
    "cpu-limit": _choice_rule("keep", "unset"),
    "keep-qos-class": _FLAG,
    "exclude-containers": AnnotationRule("container names separated by commas", _names),
    "skip": _FLAG,
}
ELSEWHERE: Final = frozenset(
    {
        "change", "error-query", "latency-query", "node-group", "resources",
        "expected-run-seconds", "interference-baseline", "predicted-usage", "profiles", "reservation-missed",
    }
)  # fmt: skip
"""Keys of the same domain that others read: a workload's own, and those of its pods."""


def parse(annotations: Mapping[str, str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the values of cotenant's annotations by name without prefix, and notes on ignored ones."""
    wishes: dict[str, Any] = {}
    notes = []
    for key in sorted(k for k in annotations if k.startswith(PREFIX)):
        name, text = key.removeprefix(PREFIX), annotations[key]
        rule = RULES.get(name)
        if rule is None:
            if name not in ELSEWHERE:
                near = closest_name(name, RULES)
                meant = f"; did you mean {PREFIX}{near}?" if near else ""
                notes.append(f"annotation {_printable_text(key)} is not known and was ignored{meant}")
            continue
        try:
            if not isinstance(text, str) or len(text) > LENGTH_CAP:
                raise ValueError
            wishes[name] = rule.parse(text.strip())
        except (ValueError, KeyError):
            notes.append(f"annotation {PREFIX}{name}: {_printable_text(text)} is not {rule.domain}; it was ignored")
    for resource in ("cpu", "memory"):
        low, high = wishes.get(f"min-{resource}"), wishes.get(f"max-{resource}")
        if low is not None and high is not None and low > high:
            notes.append(f"annotation {PREFIX}min-{resource} is above {PREFIX}max-{resource}; the maximum is used")
    return wishes, tuple(notes)


def _printable_text(text: object) -> str:
    """Return the text for a message: control and bidi characters escaped, at most 48 characters."""
    shown = ascii(text)
    return shown if len(shown) <= 48 else f"{shown[:45]}..."
