"""Classes that share many fields have them of one declaration: by inheritance, or because one holds the other."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from itertools import combinations

from tests.house.rooms import ON_TREES, ROOT, trees_by_path

pytestmark = ON_TREES
MOST_SHARED = 5
"""Fields of one name and type that two classes may each declare; an optional type counts as the type."""
OF_EVERY_OBJECT = {"namespace", "name", "uid", "labels", "annotations", "version", "generation", "deleting"}
"""Fields that Kubernetes gives every object: they are no list of ours."""
KNOWN = {
    # forms at an edge, whose fields are named, typed or ordered otherwise than those of what they are made from
    *("ActionRecord/AgentAction", "CeilingSettings/PolicySpec", "LedgerEntry/LedgerRow", "PlanChoices/PlanTermsBody"),
    # arguments of two plugins: msgspec lets a struct inherit from one other alone
    "HighNodeLoadArgs/LowNodeLoadArgs",
}
"""Pairs that declare more: take one away here when it goes, and add none."""


def fields_of(node: ast.ClassDef) -> set[tuple[str, str]]:
    """(name, type) of the fields that a class declares itself, the type without None and without its domain."""
    lines = [line for line in node.body if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)]
    kinds = [ast.unparse(line.annotation).removesuffix(" | None").removeprefix("Annotated[") for line in lines]
    bare = [kind.partition(", setting(")[0].partition(", msgspec.")[0] for kind in kinds]
    declared = {(ast.unparse(line.target), kind) for line, kind in zip(lines, bare, strict=True)}
    return {(name, kind) for name, kind in declared if name not in OF_EVERY_OBJECT}


def alike(trees: Iterable[ast.Module]) -> set[str]:
    """Pairs of classes that declare more than MOST_SHARED fields alike."""
    nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    large = [(node.name, own) for node in nodes if len(own := fields_of(node)) > MOST_SHARED]
    pairs = combinations(large, 2)
    return {"/".join(sorted((a, b))) for (a, of_a), (b, of_b) in pairs if len(of_a & of_b) > MOST_SHARED}


def test_a_shared_list_of_fields_is_found_unless_it_is_inherited() -> None:
    six = "".join(f"    f{number}: int\n" for number in range(6))
    text = f"class A:\n{six}class B:\n{six}class C(A):\n    g: int\n".replace("f0: int\nc", "f0: int | None = None\nc")
    assert alike([ast.parse(text)]) == {"A/B"}


def test_no_two_more_classes_declare_the_same_six_fields() -> None:
    product = [tree for path, tree in trees_by_path().items() if path.relative_to(ROOT).parts[0] != "lab"]
    assert alike(product) == KNOWN
