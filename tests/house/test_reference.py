"""The pages of docs/ that are generated are what their sources say."""

from __future__ import annotations

import pytest

from tools.write_reference import PAGES, ROOT, fields, plain


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_what_its_source_says(name: str) -> None:
    """`make docs` renews it."""
    page = PAGES[name]()
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == page.rstrip() + "\n"
    assert page.count("\n## ") > 10


def test_fields_of_lists_and_maps_are_named_by_their_path() -> None:
    text = {"type": "string", "description": "A | B."}
    schema = {
        "properties": {
            "items": {"type": "array", "items": {"type": "object", "properties": {"name": text}, "required": ["name"]}},
            "labels": {"type": "object", "additionalProperties": {"type": "string", "enum": ["a", "b"]}},
            "size": {"x-kubernetes-int-or-string": True, "default": "1Gi"},
        }
    }
    assert list(fields(schema, "spec.")) == [
        ("`spec.items[]`", "object", ""),
        ("`spec.items[].name`", "string, required", "A \\| B."),
        ("`spec.labels.*`", "string", "One of: a, b."),
        ("`spec.size`", "quantity, default 1Gi", ""),
    ]


def test_help_loses_the_escapes_of_its_markup() -> None:
    assert plain("pods\\[x]") == "pods[x]"
