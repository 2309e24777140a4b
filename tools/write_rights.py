"""Print docs/rights.md from deploy/rbac: what each account of ours may do, where, and why.

A test asks a real API server about every account and compares its answer with this page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from tools.stolen_rights import LEFT

DEPLOY: Final = Path(__file__).resolve().parents[1] / "deploy"
EVERYWHERE: Final = "the cluster"
HEAD: Final = """# Rights

Written by `python -m tools.write_rights > docs/rights.md` from [deploy/rbac](../deploy/rbac). A test asks a real API
server what each account may do, and compares. Nobody has a wildcard, `update`, `deletecollection`, `escalate`, `bind`
or `impersonate`. What an account may do beyond this page is what Kubernetes grants every account: ask for its own
rights and for the kinds that are served.
"""
READING: Final = frozenset({"get", "list", "watch"})
QUESTION: Final = "cotenant-reservation-known"
"""A policy that answers a question of ours and narrows nothing."""
CELLS: Final = "| where | group | resource | names | verbs | why |\n|---|---|---|---|---|---|"


class Right(NamedTuple):
    """A row of the page: verbs on one resource."""

    account: str
    where: str
    group: str
    resource: str
    names: tuple[str, ...]
    verbs: tuple[str, ...]
    why: str


def documents(path: Path) -> Iterator[tuple[str, Any]]:
    """Text and content of each object in a file."""
    for text in re.split(r"^---$", path.read_text(encoding="utf-8"), flags=re.MULTILINE):
        if body := yaml.load(text, yaml.CSafeLoader):
            yield text, body


def accounts() -> dict[str, str]:
    """Our ServiceAccounts by name, those without any right too -> namespace."""
    paths = sorted((*DEPLOY.glob("*.yaml"), *(DEPLOY / "rbac").glob("*.yaml")))
    bodies = [body for path in paths for _, body in documents(path) if body["kind"] == "ServiceAccount"]
    return dict(sorted((b["metadata"]["name"], b["metadata"]["namespace"]) for b in bodies))


@cache
def rights() -> tuple[Right, ...]:
    """Every rule of every role that is bound to an account, a row for each resource."""
    roles: dict[tuple[str, str, str], tuple[str, Any]] = {}
    bindings = []
    for path in sorted((DEPLOY / "rbac").glob("*.yaml")):
        for text, body in documents(path):
            where = body["metadata"].get("namespace", "")
            if body["kind"] in ("Role", "ClusterRole"):
                roles[body["kind"], where, body["metadata"]["name"]] = text, body
            elif body["kind"] in ("RoleBinding", "ClusterRoleBinding"):
                bindings.append(body)
    rows = []
    for binding in bindings:
        where, reference = binding["metadata"].get("namespace", ""), binding["roleRef"]
        place = where if reference["kind"] == "Role" else ""
        text, role = roles[reference["kind"], place, reference["name"]]
        for subject, (rule, why) in product(binding["subjects"], zip(role["rules"], _reasons(text), strict=True)):
            rows += _rows(subject["name"], where or EVERYWHERE, rule, why)
    return tuple(sorted(rows))


def _rows(account: str, where: str, rule: dict[str, Any], why: str) -> Iterator[Right]:
    names, verbs = tuple(rule.get("resourceNames", ())), tuple(rule["verbs"])
    for group, resource in product(rule.get("apiGroups", ()), rule.get("resources", ())):
        yield Right(account, where, group, resource, names, verbs, why)
    for url in rule.get("nonResourceURLs", ()):
        yield Right(account, where, "", url, (), verbs, why)


def _reasons(text: str) -> list[str]:
    """The comment above each rule; where there is none, that above the object."""
    lines = text.strip().splitlines()
    starts = [n for n, line in enumerate(lines) if re.match(r"\s*- (?:apiGroups|nonResourceURLs):", line)]
    return [
        _comment(lines, start) or _comment(lines, lines.index("apiVersion: rbac.authorization.k8s.io/v1"))
        for start in starts
    ]


def _comment(lines: list[str], end: int) -> str:
    begin = end
    while begin and lines[begin - 1].strip().startswith("#"):
        begin -= 1
    return " ".join(line.strip().lstrip("# ") for line in lines[begin:end])


def narrowed() -> Iterator[tuple[str, str, str]]:
    """(account or "" for all, policy, message) of each admission policy that lets a part of RBAC's rights through."""
    for path in sorted(DEPLOY.glob("*.yaml")):
        for _, body in documents(path):
            if body["kind"] != "ValidatingAdmissionPolicy":
                continue
            conditions = " ".join(c["expression"] for c in body["spec"].get("matchConditions", ()))
            subject = re.search(r"system:serviceaccount:cotenant:([a-z-]+)", conditions)
            for rule in body["spec"]["validations"]:
                if "message" in rule and body["metadata"]["name"] != QUESTION:
                    yield subject[1] if subject else "", body["metadata"]["name"], rule["message"]


def written(account: str) -> list[str]:
    """Resources that an account may write, sorted."""
    return sorted({one.resource for one in rights() if one.account == account and set(one.verbs) - READING})


def _line(right: Right) -> str:
    lists = (", ".join(right.names) or "-", ", ".join(right.verbs))
    return f"| {' | '.join((right.where, right.group or '-', right.resource, *lists, right.why))} |"


def page() -> str:
    rows = rights()
    lines = [HEAD]
    for account in accounts():
        lines += [f"## {account}", ""]
        own = [row for row in rows if row.account == account]
        if not own:
            lines += ["No right at all; its token is not mounted.", ""]
            continue
        lines += [CELLS, *map(_line, own)]
        lines.append("")
        thefts = [(one, LEFT[account, one]) for one in written(account)]
        held = [(policy, message) for name, policy, message in narrowed() if name == account]
        if held:
            lines += ["The API server holds it to a part of that, by admission policies:", ""]
            lines += [f"- `{policy}`: {message}." for policy, message in held]
            lines.append("")
        if thefts:
            lines += ["Whoever had its token could still:", "", "| with the right to write | do this |", "|---|---|"]
            lines += [f"| {resource} | {sentence} |" for resource, sentence in thefts]
            lines.append("")
    lines += ["## Whoever asks", "", "These policies concern every account, administrators too:", ""]
    lines += [f"- `{policy}`: {message}." for name, policy, message in narrowed() if not name]
    lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    print(page(), end="")
