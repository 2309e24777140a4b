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
    {
        "agree",
        "amount",
        "amount_range",
        "between",
        "cores",
        "counted",
        "duration",
        "gib",
        "gpus",
        "money",
        "percent",
        "small_percent",
        "share",
    }
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
COMPUTES = frozenset(
    {"sum", "min", "max", "mean", "median", "quantile", "percentile", "std", "average", "count_nonzero", "argmax"}
    | {"argmin", "nansum", "nanmin", "nanmax", "nanmean", "nanmedian", "nanstd", "nanargmin", "nanargmax", "fmean"}
)
"""Functions that make one number of many."""
CONVERTS = frozenset({"int", "float", "abs", "round", "str", "list", "tuple", "sorted"})
"""Functions that leave a number what it is."""
UNITS = frozenset(
    {"MILLICORES_PER_CORE", "GIB", "DAY_SECONDS", "HOUR_SECONDS", "HALF_HOUR_SECONDS", "UNITS", "SCALE", "_SCALE"}
    | {"unit", "scale"}
)
"""Names of what a number is multiplied with or divided by to be in another unit."""
UNIT_NUMBERS = frozenset({0.01, 60, 100, 1000, 3600, 86_400, 1 << 30})


@dataclass(frozen=True)
class Declared:
    """What the code declares as a number: fields and properties by class, and names that are one wherever declared."""

    fields: Mapping[str, Mapping[str, bool]]
    attributes: frozenset[str]
    functions: frozenset[str]
    columns: frozenset[str]
    by_name: Mapping[str, str]
    """The name that a variable of a class usually has -> the class."""

    def is_number_of(self, owner: str, attribute: str) -> bool:
        """Whether an attribute of an object of a class is a number; of an unknown class, where no class differs."""
        return self.fields.get(owner, {}).get(attribute, attribute in self.attributes)


def declared(trees: Sequence[ast.Module], columns: frozenset[str]) -> Declared:
    """Fields, properties and functions of a number's type in all of these modules, and the columns of tables."""
    fields: dict[str, dict[str, bool]] = {}
    bases: dict[str, list[str]] = {}
    functions: dict[str, bool] = {}
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.ClassDef):
            own, bases[node.name] = fields.setdefault(node.name, {}), [ast.unparse(base) for base in node.bases]
            for part in node.body:
                if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                    own[part.target.id] = is_number(part.annotation)
                if isinstance(part, ast.FunctionDef) and any("property" in ast.unparse(d) for d in part.decorator_list):
                    own[part.name] = is_number(part.returns)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions[node.name] = is_number(node.returns) and functions.get(node.name, True)
    for name, above in bases.items():
        fields[name] = {field: numeric for text in (*above, name) for field, numeric in fields.get(text, {}).items()}
    every = [pair for own in fields.values() for pair in own.items()]
    attributes = {name for name, numeric in every if numeric} - {name for name, numeric in every if not numeric}
    by_name = {re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower(): name for name in fields}
    numeric_functions = frozenset(name for name, numeric in functions.items() if numeric)
    return Declared(fields, frozenset(attributes), numeric_functions, columns, by_name)


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
    texts: set[str] = set()
    owners = {part: node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for part in node.body}
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
        of_errors = {
            id(part) for ast_node in ast.walk(function) if _answers_input(ast_node) for part in ast.walk(ast_node)
        }
        scope = _scope(function, owners.get(function, ""), names)
        for node in (node for node in ast.walk(function) if id(node) not in of_errors):
            texts |= {f"{module}.{function.name}: {ast.unparse(ast_node)}" for ast_node in _written(node, scope)}
    return texts


def computed_in(tree: ast.Module, module: str, names: Declared) -> set[str]:
    """Those of the numbers of a module that the function that writes them computes: "module.function: expression"."""
    texts: set[str] = set()
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
        of_errors = {
            id(part) for ast_node in ast.walk(function) if _answers_input(ast_node) for part in ast.walk(ast_node)
        }
        scope, assigned = _scope(function, "", names), _assigned(function)
        for node in (node for node in ast.walk(function) if id(node) not in of_errors):
            written = [ast_node for ast_node in _written(node, scope) if _is_computed(ast_node, assigned)]
            texts |= {f"{module}.{function.name}: {ast.unparse(ast_node)}" for ast_node in written}
    return texts


@dataclass(frozen=True)
class Made:
    """What makes a number: the calls in it and in its variables; handed: it is a parameter or of one."""

    calls: frozenset[str]
    handed: bool


def calls_in(tree: ast.Module, module: str, names: Declared) -> Mapping[str, Made]:
    """What makes each number of a module."""
    computed: dict[str, Made] = {}
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
        scope, assigned = _scope(function, "", names), _assigned(function)
        arguments = {ast_node.arg for ast_node in (*function.args.args, *function.args.kwonlyargs)}
        for ast_node in (ast_node for node in ast.walk(function) for ast_node in _written(node, scope)):
            parts = list(_parts(ast_node, assigned))
            calls = {_name(part.func) for part in parts if isinstance(part, ast.Call)} - CONVERTS
            handed = not calls and any(isinstance(part, ast.Name) and part.id in arguments for part in parts)
            computed[f"{module}.{function.name}: {ast.unparse(ast_node)}"] = Made(frozenset(calls), handed)
    return computed


def _parts(number: ast.expr, assigned: Mapping[str, list[ast.expr]]) -> Iterator[ast.AST]:
    """The expressions that a number is made of, through variables, not into what functions are given."""
    todo: list[ast.AST] = [number]
    texts: set[str] = set()
    while todo:
        node = todo.pop()
        yield node
        if isinstance(node, ast.Call) and _name(node.func) not in CONVERTS:
            if isinstance(node.func, ast.Attribute):  # counts.items(): what has the items
                todo.append(node.func.value)
            continue
        if isinstance(node, ast.Name) and node.id not in texts:
            texts.add(node.id)
            todo += assigned.get(node.id, [])
        todo += [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr | ast.comprehension)]


def _assigned(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Mapping[str, list[ast.expr]]:
    """What each variable of a function is made of, in assignments and in loops of comprehensions."""
    values_by_name: dict[str, list[ast.expr]] = {}

    def note(target: ast.expr, value: ast.expr) -> None:
        for part in ast.walk(target):
            if isinstance(part, ast.Name):
                values_by_name.setdefault(part.id, []).append(value)

    for node in ast.walk(function):
        match node:
            case ast.Assign():
                for target in node.targets:
                    note(target, node.value)
            case ast.NamedExpr():
                note(node.target, node.value)
            case ast.AugAssign():
                note(node.target, ast.BinOp(node.value, node.op, node.value))
            case ast.comprehension() | ast.For():
                note(node.target, node.iter)
    return values_by_name


def _is_computed(number: ast.expr, assigned: Mapping[str, list[ast.expr]]) -> bool:
    """Whether arithmetic beyond a unit's is in an expression or in what its variables are made of."""
    return any(
        (isinstance(node, ast.Call) and _name(node.func) in COMPUTES)
        or (isinstance(node, ast.BinOp) and _is_arithmetic(node))
        for node in _parts(number, assigned)
    )


COLLECTIONS = (ast.JoinedStr, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.SetComp, ast.ListComp)


def _is_arithmetic(node: ast.BinOp) -> bool:
    """Whether it is more than another unit of a number, and no joining of texts, lists or sets."""
    if isinstance(node.op, ast.BitOr | ast.BitAnd | ast.LShift):
        return False
    sides = (node.left, node.right)
    if any(isinstance(side, COLLECTIONS) for side in sides):
        return False
    if any(isinstance(side, ast.Constant) and isinstance(side.value, str) for side in sides):
        return False
    in_other_unit = isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv) and any(map(_is_unit, sides))
    return not in_other_unit


def _is_unit(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return node.value in UNIT_NUMBERS
    if isinstance(node, ast.BinOp):
        return ast.unparse(node) == "1 << 30"
    return ast.unparse(node).partition("[")[0].rpartition(".")[2] in UNITS


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
    numbers = {argument.arg for argument in arguments if is_number(argument.annotation)}
    annotated = {
        argument.arg: _class_of(argument.annotation) for argument in arguments if argument.annotation is not None
    }
    scope = Scope(numbers, {**names.by_name, **annotated, "self": owner}, names)
    bound = {
        part.id
        for node in ast.walk(function)
        if isinstance(node, ast.For | ast.comprehension)
        for part in ast.walk(node.target)
        if isinstance(part, ast.Name) and NUMBER_WORDS.match(part.id)
    }
    numbers |= bound - {argument.arg for argument in arguments}
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
            numeric = any(_is_numeric(value, scope) for value in node.values)
        case ast.IfExp():
            numeric = _is_numeric(node.body, scope) or _is_numeric(node.orelse, scope)
    return numeric


def _owner(node: ast.expr, scope: Scope) -> str:
    """The class of the object whose attribute is read; "" where nothing says it."""
    return scope.classes.get(node.id, "") if isinstance(node, ast.Name) else ""
