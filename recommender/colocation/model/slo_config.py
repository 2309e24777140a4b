"""slo-controller-config: parses the ConfigMap into layers, finds faults, computes a node's effective values. Pure.

Each key is read on its own: an unusable key keeps its last valid value and does not affect other keys. On a node, each
field has its value by this precedence: built-in < cluster < the first entry whose selector matches the node. Used by
the manager (NodeSLO), by the webhook that rejects an invalid ConfigMap, and by `cotenant config check slo-config`.
`slo_forms` defines the contents of each key.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from cotenant.base.colocation.reclaim_policies import AMPLE_PERCENT, BY_FORECAST
from cotenant.base.errors import UsageError
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.json_documents.struct_validation import (
    Deviation,
    below,
    deviations,
    field_names,
    meant,
    merge_objects,
    without_nulls,
)
from cotenant.base.kubernetes.selector import LabelSelector, unread_fields
from cotenant.base.text import format_value
from cotenant.recommender.colocation.model.slo_forms import FORMS, SloKey, SloKeyForm

_PROFILE: Final = ("name", "nodeSelector")
_SELECTORS: Final = frozenset({"nodeSelector"})
"""Kept as written: without its null, {"matchLabels": {"pool": null}} would select every node."""
BUILT_IN_LAYER: Final = "built-in"
POLICY_LAYER: Final = "policy forecast"
_TAKEN_BACK: Final = {
    "cpuCalculatePolicy": "cpuSuppressThresholdPercent",
    "memoryCalculatePolicy": "memoryEvictThresholdPercent",
}
"""Policy of a resource -> the threshold above which the node agent takes batch's use of it back."""
_TOO_LOW_PERCENT: Final = 90
"""Of the node: a set threshold below it takes back much of what policy `forecast` lends."""
_LENGTH_CAP: Final = 1024**2
"""A ConfigMap holds no more."""


@dataclass(frozen=True, slots=True)
class SloConfigFinding:
    """A fault or warning about one key of slo-controller-config.

    `fatal` is true if the key cannot be used, `kept` if its last valid value is used instead.
    """

    key: str
    deviation: Deviation
    fix: str
    kept: bool = False
    """True if the key's last valid value is used instead."""

    @property
    def fatal(self) -> bool:
        """True if the value of the configuration key cannot be used."""
        return self.deviation.fatal

    @property
    def effect(self) -> str:
        """Sentence on the values that are in effect in spite of the fault."""
        if self.key not in list(SloKey):
            return "No part of this configuration key is in effect."
        if not self.fatal:
            return "The rest of the configuration key is in effect."
        if self.kept:
            return "The last valid value of the whole configuration key stays in effect."
        return "There is no valid value yet: nodes keep their values, new nodes get the built-in ones."

    @property
    def advice(self) -> str:
        """The fault, its effect and its fix, in sentences."""
        sentence = str(self)
        return f"{sentence}{'' if sentence.endswith('?') else '.'} {self.effect} {self.fix}".rstrip()

    def __str__(self) -> str:
        return f"{self.key} {self.deviation}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a slo-controller-config key: values for the nodes that a label selector matches."""

    name: str
    selector: LabelSelector
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Layers:
    """The content of one slo-controller-config key: values for the cluster, and entries for selected nodes in order."""

    cluster: Mapping[str, Any] = field(default_factory=dict)
    entries: tuple[Entry, ...] = ()

    def first_match(self, labels: Mapping[str, str]) -> int | None:
        """Return the index of the entry that applies to a node with these labels; None if no entry matches."""
        return next((i for i, entry in enumerate(self.entries) if entry.selector.matches(labels)), None)


@dataclass(frozen=True, slots=True)
class ValueOrigin:
    """One effective value of slo-controller-config on a node, and the configuration layer that set it."""

    key: str
    field: str
    value: Any
    layer: str


@dataclass(frozen=True, slots=True)
class SloConfig:
    """The effective content of the ConfigMap slo-controller-config, key by key.

    `layers` has the last valid content of each key that was ever valid; `unread` has keys that are present but were
    never valid, so that their intended values are unknown; `findings` are the faults of the present text.
    """

    layers: Mapping[SloKey, Layers] = field(default_factory=dict)
    unread: frozenset[SloKey] = frozenset()
    findings: tuple[SloConfigFinding, ...] = ()
    _texts: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    def updated(self, data: Mapping[str, str] | None) -> SloConfig:
        """Return the configuration for new data of the ConfigMap; None or a missing key means built-in values.

        Return the same object if the data has not changed.
        """
        texts = dict(data or {})
        if texts == self._texts:
            return self
        layers: dict[SloKey, Layers] = {}
        unread: set[SloKey] = set()
        findings: list[SloConfigFinding] = []
        key_names = [key.value for key in SloKey]
        for name in (name for name in texts if name not in key_names):  # one that is like none may be an extension's
            if guess := meant(name, key_names):
                deviation = Deviation("data", name, f"is not a key of slo-controller-config{guess}", fatal=False)
                fix = f"Rename or remove the key {format_value(name)}."
                findings.append(SloConfigFinding(name, deviation, fix))
        for key in (k for k in SloKey if k.value in texts):
            parsed, wrong = parse(key, texts[key.value])
            in_force = self.layers.get(key) if parsed is None else parsed
            is_kept = parsed is None and in_force is not None
            findings += (SloConfigFinding(w.key, w.deviation, w.fix, kept=is_kept) for w in wrong)
            if in_force is None:
                unread.add(key)
            else:
                layers[key] = in_force
        # Thresholds that somebody set and that take back what policy `forecast` lends, by both keys' cluster values.
        form, policies = FORMS[SloKey.THRESHOLDS], layers.get(SloKey.COLOCATION, Layers()).cluster
        thresholds = layers.get(SloKey.THRESHOLDS, Layers()).cluster
        for policy, name in _TAKEN_BACK.items():
            percent, by_forecast = thresholds.get(name, AMPLE_PERCENT), policies.get(policy) in BY_FORECAST
            if by_forecast and thresholds.get("enable") and percent < _TOO_LOW_PERCENT:
                problem = f'percent of a node: node agents withdraw what {policy} "{policies[policy]}" lends above that'
                deviation = Deviation(f"$.{form.cluster}.{name}", percent, problem, fatal=False)
                fix = f"Remove {name}, so that it is {AMPLE_PERCENT}, or cap the batch amount below this percentage."
                findings.append(SloConfigFinding(SloKey.THRESHOLDS.value, deviation, fix))
        return SloConfig(layers, frozenset(unread), tuple(findings), texts)

    def first_match(self, key: SloKey, labels: Mapping[str, str]) -> int | None:
        """Return the index of the key's entry that applies to a node with these labels; None if no entry matches."""
        return self.layers[key].first_match(labels) if key in self.layers else None

    def following(self, key: SloKey, colocation: int | None) -> dict[str, Any]:
        """Return by name the node agents' thresholds that a node's policies set; empty for any `key` but THRESHOLDS.

        With colocation enabled, each resource lent by forecast gets AMPLE_PERCENT: at the built-in threshold, agents
        would take lent amounts back. `colocation` is the index of the node's entry of colocation-config, None for none.
        """
        policies = self.values(SloKey.COLOCATION, colocation) if key is SloKey.THRESHOLDS else {}
        if policies.get("enable") is not True:
            return {}
        return {name: AMPLE_PERCENT for policy, name in _TAKEN_BACK.items() if policies.get(policy) in BY_FORECAST}

    def values(self, key: SloKey, entry: int | None, colocation: int | None = None) -> dict[str, Any]:
        """Return a key's values on nodes that match the key's `entry` and colocation-config's entry `colocation`."""
        out = {**FORMS[key].built_in, **self.following(key, colocation)}
        for _, layer in self.stacked(key, entry):
            out = merge_objects(out, layer)
        return out

    def stacked(self, key: SloKey, entry: int | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield (name, values) of a key's layers above the built-in values, lowest precedence first."""
        form, layers = FORMS[key], self.layers.get(key, Layers())
        yield form.cluster or "cluster", layers.cluster
        if entry is not None:
            override = layers.entries[entry]
            yield f"{form.entries}[{entry}]{f' {override.name}' if override.name else ''}", override.values


def origins(config: SloConfig, key: SloKey, labels: Mapping[str, str]) -> Iterator[ValueOrigin]:
    """Yield every effective value of a key on a node with these labels, and the layer that set it."""
    entry, colocation = config.first_match(key, labels), config.first_match(SloKey.COLOCATION, labels)
    by_policy = (POLICY_LAYER, config.following(key, colocation))
    layers = [(BUILT_IN_LAYER, FORMS[key].built_in), by_policy, *config.stacked(key, entry)]
    for path, value in _leaves(config.values(key, entry, colocation)):
        layer = next(name for name, values in reversed(layers) if _sets(values, path))
        yield ValueOrigin(key.value, ".".join(path), value, layer)


def _leaves(values: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _sets(values: Any, path: tuple[str, ...]) -> bool:
    return not path or (isinstance(values, Mapping) and path[0] in values and _sets(values[path[0]], path[1:]))


def parse(key: SloKey, text: str) -> tuple[Layers | None, tuple[SloConfigFinding, ...]]:
    """Parse a ConfigMap key's text into layers (None if it is unusable), and return the faults found; never raise."""
    form = FORMS[key]
    try:
        if len(text) > _LENGTH_CAP:
            raise ValueError(f"longer than {_LENGTH_CAP} characters")
        document = without_nulls(msgspec.json.decode(text.encode("utf-8")), _SELECTORS)
    except (ValueError, RecursionError, *UNDECODABLE) as error:
        problem = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        fix = "Write a JSON object; `cotenant config check slo-config` shows where the fault is."
        return None, (SloConfigFinding(key.value, Deviation("$", text, f"is not JSON: {problem}"), fix),)
    # A deviation for each repeated member; none of a document that Python cannot hold.
    try:
        repetitions = list(_repeated_members(json.loads(text, object_pairs_hook=_Members)))
    except (ValueError, RecursionError):
        repetitions = []
    wrong = [*repetitions, *_deviations(form, document)]
    if any(d.fatal for d in wrong):
        layers = None
    else:
        # The valid document as layers: the cluster's values, and each entry's values with its selector.
        own = {k: v for k, v in document.items() if k != form.entries}
        entries = []
        for entry in document.get(form.entries, []):
            values = {k: v for k, v in entry.items() if k not in _PROFILE}
            entries.append(Entry(entry.get("name", ""), LabelSelector.parse(entry.get("nodeSelector")), values))
        layers = Layers(document.get(form.cluster, {}) if form.cluster else own, tuple(entries))
    if layers is not None:
        # Values that do not go together once the layers are joined.
        cluster = merge_objects(form.built_in, layers.cluster)
        wrong.extend(d for rule in form.rules for d in rule(cluster, f"$.{form.cluster}" if form.cluster else "$"))
        for index, of_nodes in enumerate(layers.entries):
            joined = merge_objects(cluster, of_nodes.values)
            wrong.extend(d for rule in form.rules for d in rule(joined, f"$.{form.entries}[{index}]"))
        layers = None if any(d.fatal for d in wrong) else layers
    return layers, tuple(SloConfigFinding(key.value, d, _fix(form, d)) for d in wrong)


class _Members(dict[str, Any]):
    """The members of a JSON object, and the names that occur in it several times."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.repeated = {name for name, count in Counter(name for name, _ in pairs).items() if count > 1}


def _repeated_members(value: Any, path: str = "$") -> Iterator[Deviation]:
    """Yield members that an object has twice: JSON parsers use the last one, people may mean the first."""
    if isinstance(value, _Members):
        for name, child in value.items():
            here = below(path, name)
            if name in value.repeated:
                problem, fix = "is the last of several values of this member, and the one in use", f"Write {here} once."
                yield Deviation(here, child, problem, fatal=False, fix=fix)
            yield from _repeated_members(child, here)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _repeated_members(child, f"{path}[{index}]")


def _deviations(form: SloKeyForm, document: Any) -> Iterator[Deviation]:
    """Yield the faults of one key's document: the cluster's values, then each entry; unknown fields are not fatal."""
    if not isinstance(document, dict):
        yield Deviation("$", document, "is not an object")
        return
    entries = document.get(form.entries, [])
    own = {k: v for k, v in document.items() if k != form.entries}
    if form.cluster:
        yield from deviations(own.pop(form.cluster, {}), form.kind, f"$.{form.cluster}")
        yield from (_misplaced_member(form, name, value) for name, value in own.items())
    else:
        fields = field_names(form.kind)
        astray = {k: v for k, v in own.items() if k not in fields and meant(k, (form.entries,))}
        yield from (_misplaced_member(form, name, value) for name, value in astray.items())
        yield from deviations({k: v for k, v in own.items() if k not in astray}, form.kind)
    if not isinstance(entries, list):
        yield Deviation(f"$.{form.entries}", entries, "is not a list")
        return
    for index, entry in enumerate(entries):
        # Deviations of one entry: its name, its node selector, its values.
        path = f"$.{form.entries}[{index}]"
        if not isinstance(entry, dict):
            yield Deviation(path, entry, "is not an object")
            continue
        if not isinstance(entry.get("name", ""), str):
            yield Deviation(f"{path}.name", entry["name"], "is not a string")
        try:
            selector = LabelSelector.parse(entry.get("nodeSelector"), "")
        except UsageError as error:
            yield Deviation(f"{path}.nodeSelector", entry["nodeSelector"], f"is not a label selector{error.message}")
        else:
            if selector.requirements is None:
                yield Deviation(path, entry, "has no nodeSelector and so has no effect", fatal=False)
            for name in unread_fields(entry.get("nodeSelector")):
                text = "is not a field of a label selector; if ignored, more nodes match: move it into matchLabels"
                yield Deviation(below(f"{path}.nodeSelector", name), entry["nodeSelector"][name], text)
        yield from deviations({k: v for k, v in entry.items() if k not in _PROFILE}, form.kind, path)


def _misplaced_member(form: SloKeyForm, name: str, value: Any) -> Deviation:
    """Return the fault of a document's member that is neither the cluster's values nor the list of entries."""
    path = below("$", name)
    if form.cluster and name in field_names(form.kind):
        return Deviation(path, value, "is not a known field", fatal=False, fix=f"Move {path} into $.{form.cluster}.")
    guess = meant(name, [member for member in (form.cluster, form.entries) if member])
    return Deviation(path, value, f"is not a known field{guess}", fatal=False)


def _fix(form: SloKeyForm, deviation: Deviation) -> str:
    if deviation.fix:
        return deviation.fix
    if deviation.fatal:
        return f"Set {deviation.path} to an allowed value or leave it out."
    return f"Remove {deviation.path} or correct its name; {form.title} works without it."
