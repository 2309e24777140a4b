"""Every result table of the product and its columns, found in the modules that declare them."""

from __future__ import annotations

import importlib
import re
from functools import cache

from cotenant.base.table import Column, Schema
from tests.house.rooms import SOURCES, module_name

_DECLARES = re.compile(r"^_?[A-Z_]+(?:: Final)? = Schema\(", re.MULTILINE)


@cache
def every_schema() -> dict[str, Schema]:
    """By name; two tables of one name are one, of which a command or a page shows some columns."""
    schemas: dict[str, Schema] = {}
    for path in SOURCES:
        if not _DECLARES.search(path.read_text(encoding="utf-8")):
            continue
        module = importlib.import_module(module_name(path))
        for value in vars(module).values():
            if isinstance(value, Schema):
                first = schemas.setdefault(value.name, value)
                less, more = sorted((first, value), key=lambda schema: len(schema.columns))
                assert set(less.columns) <= set(more.columns), f"two tables are called {value.name}"
                schemas[value.name] = more
    return schemas


@cache
def every_column() -> dict[str, Column]:
    """By table and name: "workloads.cpu_request"."""
    return {f"{name}.{column.name}": column for name, schema in every_schema().items() for column in schema.columns}
