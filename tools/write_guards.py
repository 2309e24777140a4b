"""Write the admission policies of `tools.guarded_fields`: of an account's updates, only the listed fields may differ.

    python -m tools.write_guards          writes each policy file below deploy/ anew
    python -m tools.write_guards --check  exits with 1 where one differs

A file keeps what stands above the line MADE; what stands below is made.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tools.guarded_fields import GUARDS, PEOPLE, Guard

DEPLOY: Final = Path(__file__).resolve().parents[1] / "deploy"
MADE: Final = "# --- Below: written by `python -m tools.write_guards` from tools/guarded_fields.py; do not edit."
WIDTH: Final = 120
SERVER_KEPT: Final = ("managedFields", "resourceVersion", "generation")
"""Of metadata: what the API server writes itself."""

Sides = tuple[str, str]
"""CEL of the same part of object and oldObject."""
Tree = dict[str, Any]
"""Keys that may differ, each with the part of it that may; an empty tree is all of it. `*`: entries of a list."""


def tree(fields: Sequence[str]) -> Tree:
    """Paths of `Guard.fields` as one tree."""
    root: Tree = {}
    for path in fields:
        node = root
        for key in _steps(path)[:-1]:
            node = node.setdefault(key[0], {})
        for last in _steps(path)[-1]:
            node.setdefault(last, {})
    return root


def _steps(path: str) -> list[list[str]]:
    """Keys of a path, the alternatives of each step; `[*]` is the key `*`."""
    steps: list[list[str]] = []
    for word in re.findall(r"\{[^}]*\}|[^.{}]+", path):
        if word.startswith("{"):
            steps.append([key.strip() for key in word[1:-1].split(",")])
            continue
        name, star, _ = word.partition("[*]")
        steps.append([name])
        if star:
            steps.append(["*"])
    return steps


def differences(fields: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Variables, and CEL expressions over them that hold when object and oldObject differ in these fields alone."""
    allowed = tree(fields)
    metadata = allowed.setdefault("metadata", {})
    for key in SERVER_KEPT:
        metadata[key] = {}
    variables: dict[str, str] = {}
    demands = _same_parts(("dyn(object)", "dyn(oldObject)"), (), allowed, variables)
    return variables, demands


def _same_parts(sides: Sides, path: tuple[str, ...], allowed: Tree, variables: dict[str, str]) -> list[str]:
    """The parts of both objects differ in the allowed keys alone, and below each of them in what is allowed there.

    Most writes change one part: those that are equal as a whole are not walked, which is most of the time that a policy
    takes.
    """
    demands = list(_same_maps(sides, allowed))
    for key, below in allowed.items():
        if not below:
            continue
        empty = "[]" if "*" in below else "{}"
        name = "".join(word.capitalize() for word in (*path, key))
        names = name[0].lower() + name[1:], f"old{name[0].upper()}{name[1:]}"
        variables.update((own, f"{side}.?{key}.orValue({empty})") for own, side in zip(names, sides, strict=True))
        new, old = (f"variables.{own}" for own in names)
        if "*" in below:
            inner = list(_same_entries((new, old), below["*"]))
        else:
            inner = _same_parts((new, old), (*path, key), below, variables)
        demands.append(f"({new} == {old} || {' && '.join(inner)})")
    return demands


def _same_maps(sides: Sides, allowed: Tree) -> Iterator[str]:
    new, old = sides
    keys = "[" + ", ".join(f"'{key}'" for key in allowed) + "]"
    yield f"{new}.all(k, k in {keys} || k in {old} && {new}[k] == {old}[k])"
    yield f"{old}.all(k, k in {keys} || k in {new})"


def _same_entries(sides: Sides, allowed: Tree) -> Iterator[str]:
    """Two lists have the same entries by name and order, and each differs from its former self in what is allowed."""
    new, old = sides
    inner = list(_same_maps(("c", "o"), allowed))
    for key, below in allowed.items():
        if below:
            inner += _same_maps((f"c.?{key}.orValue({{}})", f"o.?{key}.orValue({{}})"), below)
    yield f"{new}.map(c, c.name) == {old}.map(c, c.name)"
    yield f"{new}.all(c, {old}.exists(o, o.name == c.name && (c == o || {' && '.join(inner)})))"


def policies() -> dict[str, list[Guard]]:
    """The guards of each policy, by the policy's name."""
    by_policy: dict[str, list[Guard]] = defaultdict(list)
    for guard in (*GUARDS, *PEOPLE):
        by_policy[guard.policy].append(guard)
    return dict(by_policy)


def _variables(guards: Sequence[Guard]) -> dict[str, str]:
    """Those of all guards, which are evaluated where they are asked for; one name has one meaning."""
    variables = {_word_of(guard): guard.of_which for guard in guards} if len(guards) > 1 else {}
    for guard in guards:
        for name, text in {**guard.variables, **differences(guard.fields)[0]}.items():
            if variables.setdefault(name, text) != text:
                raise ValueError(f"{guard.name}: the variable {name} means something else in the same policy")
    return variables


def _word_of(guard: Guard) -> str:
    """The variable that says whether a write is the guard's: managerWaitingPods."""
    first, *rest = guard.name.removeprefix("cotenant-").split("-")
    return first + "".join(word.capitalize() for word in rest)


def _validations(guard: Guard, *, alone: bool) -> list[Tree]:
    """What is asked of the guard's writes; in a policy with others, of no other write."""
    texts = [(" &&\n".join(differences(guard.fields)[1]), guard.message)]
    texts += [(rule.expression, rule.message) for rule in guard.rules]
    if not alone:
        texts = [(f"!variables.{_word_of(guard)} || {text}", message) for text, message in texts]
    return [{"expression": text, "message": message, "reason": "Forbidden"} for text, message in texts]


def _conditions(guards: Sequence[Guard]) -> list[Tree]:
    """Which writes a policy is about: those of one of its guards."""
    first = guards[0]
    if len(guards) == 1:
        which = [{"name": "which", "expression": first.when}] if first.when else []
        return [{"name": "own-writes", "expression": first.of_whom}, *which]
    accounts = sorted({guard.of_whom for guard in guards})
    return [{"name": "own-writes", "expression": " ||\n".join(accounts)}]


def documents(name: str, guards: Sequence[Guard]) -> list[Tree]:
    """A policy and its binding."""
    marks = {"app.kubernetes.io/managed-by": "cotenant", "app.kubernetes.io/part-of": "cotenant"}
    component = guards[0].component
    labels = ({"app.kubernetes.io/component": component} if component else {}) | marks
    metadata = {"name": name, "labels": labels}
    api = "admissionregistration.k8s.io/v1"
    rules: dict[str, list[str]] = defaultdict(list)
    for group, resource in dict.fromkeys(place for guard in guards for place in guard.resources):
        rules[group].append(resource)
    variables = _variables(guards)
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [group], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": names}
                for group, names in rules.items()
            ]
        },
        "matchConditions": _conditions(guards),
        "variables": [{"name": name, "expression": text} for name, text in variables.items()],
        "validations": [validation for guard in guards for validation in _validations(guard, alone=len(guards) == 1)],
    }
    return [
        {"apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": metadata, "spec": spec},
        {
            "apiVersion": api,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": metadata,
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        },
    ]


class _Dumper(yaml.SafeDumper):
    """Without aliases, which few readers of a manifest expect."""

    def ignore_aliases(self, _data: Any) -> bool:
        """Every repeated part is written out."""
        return True


def _block(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else ">" if len(text) > WIDTH else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _block)


def _text(name: str, guards: Sequence[Guard]) -> str:
    policy, binding = (
        yaml.dump(body, Dumper=_Dumper, sort_keys=False, width=WIDTH, default_flow_style=False)
        for body in documents(name, guards)
    )
    why = "".join(f"# {guard.why}\n" for guard in guards)
    return f"{why}{policy}---\n{binding}"


def written() -> dict[Path, str]:
    """Each file with its made part anew."""
    texts: dict[Path, str] = {}
    for name, guards in policies().items():
        path = DEPLOY / guards[0].file
        if path not in texts:
            by_hand = path.read_text(encoding="utf-8").partition(MADE)[0].rstrip("\n")
            texts[path] = f"{by_hand}\n{MADE}\n---\n" if by_hand else f"{MADE}\n"
        else:
            texts[path] += "---\n"
        texts[path] += _text(name, guards)
    return texts


def main(arguments: Sequence[str]) -> int:
    """Write, or compare."""
    stale = [path for path, text in written().items() if path.read_text(encoding="utf-8") != text]
    if "--check" in arguments:
        return 1 if stale else 0
    for path in stale:
        path.write_text(written()[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
