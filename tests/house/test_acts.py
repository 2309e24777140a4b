"""What a person can do has one definition, which few modules name."""

from __future__ import annotations

import ast
from typing import Final

from cotenant.scheduler_ext.reservations.acts import ACTS
from tests.house.rooms import ON_TREES, ROOT, trees_by_path

pytestmark = ON_TREES

PLACES: Final = {
    # A request, its command, route and page, and the service for a plan that does not exist yet.
    **{act.request.__name__: 5 for act in ACTS},
    # A function, the protocol and the service that call it, its command, route and page, or pages.
    **dict.fromkeys(("stop_ladder", "go_back", "recall"), 6),
    **dict.fromkeys(("decline", "snooze"), 7),
    **dict.fromkeys(("commit_bundle", "export_bundle"), 4),
    # A method of the service, its protocol, route and page.
    **dict.fromkeys(("save_policy", "approve_nodes", "withdraw_node"), 4),
    # Ladders and the watcher roll changes back as well, and three pages.
    "roll_back": 10,
}
"""An act of people, by a name that belongs to it alone -> how many modules of the product may name it."""


def test_an_act_is_named_in_few_modules() -> None:
    modules: dict[str, set[str]] = {name: set() for name in PLACES}
    for path, tree in trees_by_path().items():
        module = path.relative_to(ROOT)
        for node in ast.walk(tree) if module.parts[0] != "lab" else ():
            match node:
                case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                    pass
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    pass
                case _:
                    continue
            if name in modules:
                modules[name].add(str(module))
    crowded = {name: sorted(where) for name, where in modules.items() if not 1 < len(where) <= PLACES[name]}
    assert not crowded, f"{crowded}: surfaces call an act's service; only a new surface raises a number above"
