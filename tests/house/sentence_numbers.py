"""Which numbers the sentences of pages, commands, reports and notes contain, read from the code. Pure.

A number is what a format writes (`{value:,.1f}`, `{share:.0%}`), what a helper of a unit writes (`amount`, `percent`,
`money`), and any expression in an f-string whose declared type is a number: a parameter, a field, a property, a
function's result, a column of a table, a length. What an error says is an answer to an input and no result.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

HELPERS = frozenset(
    {"amount", "amount_range", "between", "cores", "counted", "duration", "gib", "gpus", "money", "percent", "share"}
    | {"three_digits", "count_of"}
)
"""Functions that write a number with its unit; the number is their first argument."""
COUNTING = frozenset({"len", "sum", "round", "int", "float", "abs"})
OF_TEXTS = frozenset({"lower", "upper", "title"})
"""Methods of texts whose names functions of the product have too."""
NUMBER_WORDS = re.compile(
    r"^(n|count|number|total|known|missing|seconds|minutes|hours|days|ratio|most|few|rest|high|low)$"
)
"""Names that a loop gives to numbers."""
FORMAT = re.compile(r"[fdeg%]$|,")
NUMBERS = frozenset({"int", "float"})


@dataclass(frozen=True)
class Declared:
    """What the code declares as a number: fields and properties by class, and names that are one wherever declared."""

    fields: Mapping[str, Mapping[str, bool]]
    attributes: frozenset[str]
    functions: frozenset[str]
    columns: frozenset[str]

    def is_number_of(self, owner: str, attribute: str) -> bool:
        """Whether an attribute of an object of a class is a number; of an unknown class, where no class differs."""
        return self.fields.get(owner, {}).get(attribute, attribute in self.attributes)


def declared(trees: Sequence[ast.Module], columns: frozenset[str]) -> Declared:
    """Fields, properties and functions of a number's type in all of these modules, and the columns of tables."""
    fields: dict[str, dict[str, bool]] = {}
    functions: dict[str, bool] = {}
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.ClassDef):
            own = fields.setdefault(node.name, {})
            for part in node.body:
                if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                    own[part.target.id] = is_number(part.annotation)
                if isinstance(part, ast.FunctionDef) and any("property" in ast.unparse(d) for d in part.decorator_list):
                    own[part.name] = is_number(part.returns)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions[node.name] = is_number(node.returns) and functions.get(node.name, True)
    every = [pair for own in fields.values() for pair in own.items()]
    attributes = {name for name, numeric in every if numeric} - {name for name, numeric in every if not numeric}
    return Declared(fields, frozenset(attributes), frozenset(n for n, numeric in functions.items() if numeric), columns)


def is_number(annotation: ast.expr | None) -> bool:
    """Whether an annotation says int or float, or may be missing."""
    parts = {part.strip() for part in ast.unparse(annotation).strip("\"'").split("|")} if annotation else set()
    return bool(parts & NUMBERS) and parts <= NUMBERS | {"None"}


@dataclass(frozen=True)
class Scope:
    """What is known in a function: variables that are numbers, and the classes of others."""

    numbers: set[str]
    classes: Mapping[str, str]
    names: Declared


def numbers_of(tree: ast.Module, module: str, names: Declared) -> set[str]:
    """The numbers that a module formats: "module.function: expression"."""
    found: set[str] = set()
    owners = {part: node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for part in node.body}
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
        of_errors = {id(part) for one in ast.walk(function) if _answers_input(one) for part in ast.walk(one)}
        scope = _scope(function, owners.get(function, ""), names)
        for node in (node for node in ast.walk(function) if id(node) not in of_errors):
            found |= {f"{module}.{function.name}: {ast.unparse(one)}" for one in _written(node, scope)}
    return found


def _answers_input(node: ast.AST) -> bool:
    """Whether it is an error or a line of a log."""
    if isinstance(node, ast.Raise):
        return True
    if not isinstance(node, ast.Call):
        return False
    name = _name(node.func)
    return name.endswith("Error") or name in ("debug", "info", "warning", "error", "exception", "NoData")


def _name(function: ast.expr) -> str:
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _written(node: ast.AST, scope: Scope) -> Iterator[ast.expr]:
    """Expressions that a node writes as numbers; constants are words."""
    if isinstance(node, ast.Call) and _name(node.func) in HELPERS and node.args:
        if not isinstance(node.args[0], ast.Constant):
            yield node.args[0]
        return
    if not isinstance(node, ast.FormattedValue) or isinstance(node.value, ast.Constant):
        return
    if isinstance(node.value, ast.Call) and _name(node.value.func) in HELPERS:
        return  # it is met as a call
    spec = ""
    if isinstance(node.format_spec, ast.JoinedStr):
        spec = "".join(str(p.value) if isinstance(p, ast.Constant) else "0" for p in node.format_spec.values)
    if FORMAT.search(spec) or _is_numeric(node.value, scope):
        yield node.value


def _scope(function: ast.FunctionDef | ast.AsyncFunctionDef, owner: str, names: Declared) -> Scope:
    """Parameters and variables of a function: which are numbers, and of which class the others are."""
    arguments = (*function.args.args, *function.args.kwonlyargs)
    numbers = {one.arg for one in arguments if is_number(one.annotation)}
    by_name = {re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower(): name for name in names.fields}
    said = {one.arg: _class_of(one.annotation) for one in arguments if one.annotation is not None}
    scope = Scope(numbers, by_name | said | {"self": owner}, names)
    bound = {
        part.id
        for node in ast.walk(function)
        if isinstance(node, ast.For | ast.comprehension)
        for part in ast.walk(node.target)
        if isinstance(part, ast.Name) and NUMBER_WORDS.match(part.id)
    }
    numbers |= bound - {one.arg for one in arguments}
    while True:
        size = len(numbers)
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                numbers |= {node.targets[0].id} if _is_numeric(node.value, scope) else set()
        if len(numbers) == size:
            return scope


def _class_of(annotation: ast.expr) -> str:
    """The name of the one class that an annotation is of."""
    return ast.unparse(annotation).strip("\"'").partition(" |")[0].rpartition(".")[2]


def _is_numeric(node: ast.expr, scope: Scope) -> bool:
    names, numeric = scope.names, False
    match node:
        case ast.Call():
            numeric = _name(node.func) in (COUNTING | names.functions) - OF_TEXTS
        case ast.Name():
            numeric = node.id in scope.numbers
        case ast.Attribute():
            numeric = names.is_number_of(_owner(node.value, scope), node.attr)
        case ast.Subscript():
            numeric = isinstance(node.slice, ast.Constant) and node.slice.value in names.columns
        case ast.BinOp():
            numeric = _is_numeric(node.left, scope) and not isinstance(node.op, ast.Mod | ast.BitOr)
        case ast.BoolOp():
            numeric = any(_is_numeric(one, scope) for one in node.values)
        case ast.IfExp():
            numeric = _is_numeric(node.body, scope) or _is_numeric(node.orelse, scope)
    return numeric


def _owner(node: ast.expr, scope: Scope) -> str:
    """The class of the object whose attribute is read; "" where nothing says it."""
    return scope.classes.get(node.id, "") if isinstance(node, ast.Name) else ""
