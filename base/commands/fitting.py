"""Fit a table into a narrow terminal: choose which columns remain, and their widths. Pure.

Columns that identify a row always remain: a name that is too long continues on the next line, below its beginning.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len, set_cell_size

from cotenant.base.table import Column, Kind

GAP: Final = 2
"""Blanks between two columns."""
LEAST: Final = 12
"""Least number of characters to which a text in a table is cut."""
ROOMY: Final = 24
"""Least width to which a name is wrapped while columns that are not essential remain."""
_IDENTITY: Final = 3
_LEAST_WRAPPED: Final = ((0, ROOMY), (1, LEAST), (2, LEAST // 2), (_IDENTITY, 2))
"""Highest rank of the columns that may be left out -> width that names keep until they are."""
_SEPARATORS: Final = " -/._:,"


@dataclass(frozen=True, slots=True)
class Fitted:
    """A table cut to a width: its lines, and the shown columns' indices (`places`); `whole` if nothing was cut."""

    places: list[int]
    titles: list[list[str]]
    lines: list[list[str]]
    """Each row is one line, or several where a cell of it is wrapped."""
    whole: bool
    """True if nothing is cut or left out."""


def fit_columns(
    columns: Sequence[Column],
    identity: Collection[str],
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
) -> Fitted:
    """Fit a table into a terminal of `width` characters by cutting texts, wrapping names and leaving out columns.

    `identity` names the columns that identify a row. Numbers are never cut, names and `uncut` texts are wrapped, other
    texts are cut to LEAST ("checkout-wo…"). If that is not enough, columns are left out from the last to the first:
    empty ones, those that are not essential, essential ones, those that identify a row. At least one column remains.
    """
    shapes = [
        _Shape.of(column, column.name in identity, titles[place] if titles else "", [row[place] for row in rows])
        for place, column in enumerate(columns)
    ]
    places, sizes = list(range(len(columns))), [shape.size for shape in shapes]
    floors = sizes
    for highest_rank, least in _LEAST_WRAPPED:
        if _total(sizes, places) <= width or _total(floors, places) <= width:
            break
        floors = [shape.floor(least) for shape in shapes]
        while _total(floors, places) > width and len(places) > 1:
            removable = [place for place in places if shapes[place].rank <= highest_rank]
            if not removable:
                break
            places.remove(max(removable, key=lambda place: (-shapes[place].rank, place)))
    # The longest is shortened first; names below ROOMY last, and of these the one where that wraps the fewest cells.
    while _total(sizes, places) > width and (longer := [place for place in places if sizes[place] > floors[place]]):
        roomy = [place for place in longer if sizes[place] > shapes[place].floor(ROOMY)]
        if roomy:
            sizes[max(roomy, key=lambda place: sizes[place])] -= 1
        else:
            sizes[min(longer, key=lambda place: (shapes[place].count_wider(sizes[place] - 1), -sizes[place]))] -= 1
    lines = [line for row in rows for line in _stack([_pieces(row[p], sizes[p], shapes[p].wrapped) for p in places])]
    heads = _stack([_title_lines(titles[p], sizes[p]) for p in places], bottom=True) if titles else []
    cut = any(not shapes[p].wrapped and shapes[p].count_wider(sizes[p]) for p in places)
    return Fitted(places, heads, lines, len(places) == len(columns) and not cut)


@dataclass(frozen=True, slots=True)
class _Shape:
    """The widths of a column, how its cells may be shortened, and its rank among the columns to leave out."""

    widths: list[int]
    """Widths of its cells, ascending."""
    size: int
    """Width of the widest cell or of the title, whichever is wider."""
    longest_word: int
    numeric: bool
    wrapped: bool
    uncut: bool
    rank: int

    @classmethod
    def of(cls, column: Column, identifies: bool, title: str, cells: Sequence[str]) -> _Shape:
        widths = sorted(map(cell_len, cells))
        kept_whole = column.uncut and column.kind is Kind.TEXT
        if cells and not any(cell.strip() for cell in cells):
            rank = -1
        else:
            rank = _IDENTITY if identifies else column.essential * (1 + column.uncut)
        return cls(
            widths,
            max([*widths[-1:], cell_len(title)]),
            max(map(cell_len, title.split()), default=0),
            column.kind.numeric,
            (identifies and not column.kind.numeric) or kept_whole,
            kept_whole,
            rank,
        )

    def floor(self, least_wrapped: int) -> int:
        """Return the least width of the column if names may be wrapped to `least_wrapped` characters."""
        if self.numeric:
            return max([*self.widths[-1:], self.longest_word])
        if self.uncut and least_wrapped == ROOMY:
            return self.size
        return min(self.size, least_wrapped if self.wrapped else LEAST)

    def count_wider(self, size: int) -> int:
        """Return the number of cells wider than `size`."""
        return len(self.widths) - bisect_right(self.widths, size)


def _total(sizes: Sequence[int], places: Sequence[int]) -> int:
    return sum(sizes[place] for place in places) + GAP * (len(places) - 1)


def _pieces(text: str, size: int, wrapped: bool) -> list[str]:
    if cell_len(text) <= size:
        return [text]
    return wrap_text(text, size) if wrapped else [f"{set_cell_size(text, size - 1)}…"]


def _title_lines(title: str, size: int) -> list[str]:
    lines = [""]
    for word in title.split():
        extended = f"{lines[-1]} {word}".lstrip()
        if cell_len(extended) <= size:
            lines[-1] = extended
        else:
            lines.append(word)
    return [_pieces(line, size, False)[0] for line in lines if line] or [""]


def wrap_text(text: str, size: int) -> list[str]:
    """Split a text into pieces of at most `size` terminal cells.

    A piece ends after the last blank, "-", "/" or other separator in its second half, else where it is full. Blanks at
    both sides of a cut and at the end are removed, and so is a piece of blanks alone.
    """
    pieces = []
    text = text.rstrip()
    while cell_len(text) > size:
        fits = max(next(end for end in range(len(text)) if cell_len(text[: end + 1]) > size), 1)
        after = max((text.rfind(mark, 0, fits) + 1 for mark in _SEPARATORS), default=0)
        end = after if 2 * after >= fits else fits
        pieces.append(text[:end].rstrip())
        text = text[end:].lstrip()
    return [piece for piece in (*pieces, text) if piece] or [""]


def _stack(cells: Sequence[Sequence[str]], *, bottom: bool = False) -> list[list[str]]:
    """Return the lines of one table row whose cells have several lines each, aligned at the top or at the bottom."""
    height = max(map(len, cells))
    blanks = [[""] * (height - len(cell)) for cell in cells]
    columns = [[*b, *cell] if bottom else [*cell, *b] for b, cell in zip(blanks, cells, strict=True)]
    return [list(line) for line in zip(*columns, strict=True)]
