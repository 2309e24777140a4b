"""Print docs/quantities.md from the dictionary of quantities, so that page and code cannot part."""

from __future__ import annotations

from cotenant.quantities.quantity import Quantity
from cotenant.quantities.registry import by_chapter

HEAD = """\
# Quantities

Every number that a page, a command, the REST API, Python, a report or a note shows. Each is computed by one
function, and every surface shows that value; where one differs on purpose, its row says why. A test fails when a
table's column or a tile shows a number that is not in this list.

How to read a row: *of* says what one value is about, by which statistic, and the resolution of the samples behind
it. *Time* is the moment that the value is about. A surface may show a multiple of the unit: 302 cores for 302,000
millicores.
"""


def page() -> str:
    chapters = [HEAD]
    for title, quantities in by_chapter().items():
        if quantities:
            chapters.append("\n".join([f"## {title}", "", *_table(quantities)]) + "\n")
    return "\n".join(chapters)


def _table(quantities: tuple[Quantity, ...]) -> list[str]:
    head = ["| quantity | definition | unit, sign | of | time | shown in | function |", "|---|---|---|---|---|---|---|"]
    return [*head, *(_row(quantity) for quantity in quantities)]


def _row(quantity: Quantity) -> str:
    aggregation = quantity.aggregation
    of = ", ".join(filter(None, [aggregation.of.value, aggregation.statistic, aggregation.resolution]))
    columns = ", ".join(f"`{column}`" for column in quantity.columns)
    surfaces = ", ".join(surface.value for surface in quantity.surfaces)
    differs = " ".join(f"**{surface.value}**: {why}" for surface, why in quantity.differs.items())
    cells = [
        f"**{quantity.name}** <br> `{quantity.key}`",
        " ".join(filter(None, [quantity.definition, differs])),
        f"{quantity.unit.value}; {quantity.sign.value}",
        of,
        quantity.time.value,
        " <br> ".join(filter(None, [surfaces, columns])),
        f"`{quantity.function}`",
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    print(page(), end="")
