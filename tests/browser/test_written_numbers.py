"""Numbers that scripts of the pages write are those that Python writes, digit for digit, for generated values."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from cotenant.base.amount_text import three_digits
from cotenant.base.resource import GIB, DeviceResource, Resource
from cotenant.base.text import visible
from cotenant.dashboard.figures import display

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]
ASSETS = Path(__file__).resolve().parents[2] / "dashboard" / "assets"
REACT = """window.React = {
    createElement: (kind, props, ...parts) => parts.flat().filter(it => it !== null && it !== undefined).join('') };"""
"""A cell as the text that a reader sees: elements are their contents."""
TO_CELLS = "([name, cells]) => cells.map(cell => window.dashAgGridComponentFunctions[name](cell))"


@pytest.fixture(scope="module")
def page(chromium: Browser) -> Iterator[Page]:
    """A page without the dashboard, with the scripts that write its numbers alone."""
    context = chromium.new_context(locale="de-DE", timezone_id="Asia/Tokyo")  # a reader's own language changes nothing
    empty = context.new_page()
    empty.evaluate(REACT)
    empty.add_script_tag(path=ASSETS / "grid.js")
    yield empty
    context.close()


def values() -> list[float]:
    """Numbers of every size and both signs, whole and not, and those that lie between two that can be written."""
    chance = random.Random(46)
    halves = [0.5, 1.5, 2.5, 1.125, 1.375, 10.25, 12.75, 100.5, 101.5, 1125, 1375, 10_250, 12_750, 100_500, 999.5]
    edges = [0, 0.001, 0.004, 0.4, 0.995, 0.999, 1, 9.994, 9.995, 9.999, 99.94, 99.95, 99.99, 999, 999.49, 1000, 1023]
    units = [part * unit for unit in (2**10, 2**20, GIB, 2**40) for part in (0.999, 1, 1.125, 10.25, 100.5, 1023.9)]
    sizes = [10 ** chance.uniform(-4, 13) for _ in range(400)]
    numbers = [*halves, *edges, *units, *sizes, *map(round, sizes), *(round(size, 2) for size in sizes)]
    return [signed for number in numbers for signed in (float(number), -float(number))]


def written(page: Page, kind: str, numbers: Sequence[float | None]) -> list[str]:
    return list(page.evaluate("([kind, all]) => all.map(it => window.cotenant.amount(it, kind))", [kind, numbers]))


def differences(numbers: Sequence[Any], ours: Callable[[Any], str], theirs: Sequence[str]) -> list[tuple[Any, ...]]:
    pairs = zip(numbers, theirs, strict=True)
    return [(number, ours(number), text) for number, text in pairs if ours(number) != text][:5]


@pytest.mark.parametrize(
    ("kind", "of_python"),
    [
        ("millicores", display.cores),
        ("bytes", display.gib),
        ("gpus", lambda value: display.true_minus(display.gpus(value))),
        ("ratio", display.percent),
        ("number", lambda value: "–" if value is None else display.true_minus(three_digits(value))),
    ],
)
def test_an_amount_is_the_same_text_in_a_cell_and_in_a_sentence(
    page: Page, kind: str, of_python: Callable[[float | None], str]
) -> None:
    numbers = [*values(), None]
    assert differences(numbers, of_python, written(page, kind, numbers)) == []


@pytest.mark.parametrize("resource", [*Resource, DeviceResource.GPU_CORE])
def test_an_amount_with_its_unit_is_the_same_text(page: Page, resource: Resource | DeviceResource) -> None:
    script = """([resource, all]) => all.map(
        value => window.dashAgGridFunctions.cotenantByResource({ value, data: { resource } }))"""
    numbers = [*values(), None]
    theirs = page.evaluate(script, [resource.value, numbers])
    assert differences(numbers, lambda value: display.amount(value, resource), theirs) == []


def test_a_cell_below_a_heading_of_cores_is_the_amount_to_three_digits(page: Page) -> None:
    """The heading has the unit, so that the cell of 370 m is "0.37": read back, it is the amount again."""
    numbers = values()
    script = "all => all.map(value => window.dashAgGridFunctions.cotenantAmount({ value, data: {} }, 'millicores'))"
    for value, text in zip(numbers, page.evaluate(script, numbers), strict=True):
        read = 1000 * float(text.replace("−", "-").replace(",", ""))
        size = abs(value) / 1000
        digit = 1.0 if size >= 100 else 0.1 if size >= 10 else 0.01 if size >= 1 else 0.001
        assert abs(read - value) <= 1000 * digit / 2 + 1e-6 * abs(value), (value, text)
        assert "-" not in text and text != "−0", (value, text)


def test_a_change_has_the_sign_and_the_digits_of_a_sentence(page: Page) -> None:
    cells: list[dict[str, Any]] = [{"value": value, "data": {}, "unit": "bytes"} for value in values()]
    theirs = page.evaluate(TO_CELLS, ["CotenantDelta", cells])
    ours = [display.signed(cell["value"], Resource.MEMORY) for cell in cells]
    assert [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]] == []


def test_a_bar_of_a_share_says_the_percent_of_a_sentence(page: Page) -> None:
    numbers = [value for value in values() if abs(value) < 1e6]
    theirs = page.evaluate(TO_CELLS, ["CotenantRatio", [{"value": value, "data": {}} for value in numbers]])
    assert differences(numbers, display.percent, theirs) == []


def test_a_text_of_the_cluster_is_made_visible_by_the_same_rule(page: Page) -> None:
    """One character of 61 in Unicode's first three planes, and those that turn or hide text.

    Without halves of pairs, which no JSON answer has, and what this Python's Unicode does not have yet.
    """
    texts = [chr(code) for code in (*range(0, 0x30000, 61), 0x202E, 0x200B, 0x2028, 0xAD, 0xE0001, 0xF0000)]
    texts = [text for text in texts if unicodedata.category(text) not in ("Cs", "Cn")]
    script = "all => all.map(value => window.dashAgGridFunctions.cotenantText({ value }))"
    assert differences(texts, visible, page.evaluate(script, texts)) == []
