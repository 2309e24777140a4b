"""What a history spans, as its files say it themselves: their values are read where they do not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cotenant.base.store import Store, days
from cotenant.base.store.days import Day
from cotenant.base.usage.usage import DAY_SECONDS, FloatMatrix, Signal, TimeGrid
from tests.support.store import MIDNIGHT, usage_of

CPU, STEP, SLOTS = Signal.CPU_USAGE_MEAN, 300, 288
GAP = np.nan


def day_path(folder: Path, name: str = "") -> Path:
    return folder / "prod" / "usage" / CPU.value / (name or days.day_name(MIDNIGHT))


def stored(folder: Path, rows: Sequence[Sequence[float]]) -> Store:
    """A day whose series have these first values."""
    store = Store(folder.as_uri(), "prod")
    store.append(CPU, usage_of(CPU, MIDNIGHT, rows, [f"pod-{number}" for number in range(len(rows))]))
    return store


def with_stamp(path: Path, changes: dict[bytes, bytes | None]) -> None:
    """The same file with other metadata; None removes an entry."""
    table = pq.read_table(path)
    metadata = {name: text for name, text in table.schema.metadata.items() if name not in changes}
    metadata |= {name: text for name, text in changes.items() if text is not None}
    pq.write_table(table.replace_schema_metadata(metadata), path, row_group_size=days.GROUP_SERIES)


def damage_values(path: Path) -> None:
    """Flip the last byte of the values' page: the metadata at the file's end stays whole."""
    column = pq.read_metadata(path).row_group(0).column(3)
    assert column.path_in_schema.startswith("values")
    content = bytearray(path.read_bytes())
    content[column.data_page_offset + column.total_compressed_size - 1] ^= 0xFF
    path.write_bytes(content)


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3 * SLOTS),
            arrays(np.float32, (2, 3), elements=st.one_of(st.just(np.float32("nan")), st.integers(0, 9))),
        ),
        min_size=1,
        max_size=5,
    ),
    st.booleans(),
)
def test_a_history_spans_what_its_values_span(
    tmp_path_factory: pytest.TempPathFactory, blocks: list[tuple[int, FloatMatrix]], compacted: bool
) -> None:
    store = Store(tmp_path_factory.mktemp("span").as_uri(), "prod")
    filled_slots: list[int] = []
    for first, values in blocks:
        store.append(CPU, usage_of(CPU, MIDNIGHT + STEP * first, values.tolist(), ["a", "b"]))
        filled_slots += [first + slot for slot in np.flatnonzero(~np.isnan(values).all(axis=0)).tolist()]
    if compacted:
        store.compact()
    # A gap never takes a value away, so the span is that of all values that were ever appended.
    expected = (
        (MIDNIGHT + STEP * min(filled_slots), MIDNIGHT + STEP * (max(filled_slots) + 1)) if filled_slots else None
    )
    assert store.span(CPU) == expected
    assert Store(store.url, "prod").span(CPU) == expected


def test_the_values_are_not_read_for_it(tmp_path: Path) -> None:
    store = stored(tmp_path, [[GAP, 1, 2, GAP], [GAP, GAP, 3, 4]])
    damage_values(day_path(tmp_path))
    # The metadata stands at the end of the file: it says slots 1..3, and nobody has touched the values yet.
    assert store.span(CPU) == (MIDNIGHT + STEP, MIDNIGHT + 4 * STEP)
    assert not store.holes([CPU])
    # Who reads them finds the damage, as ever; then there is nothing that the history could span.
    assert store.read(CPU, TimeGrid(MIDNIGHT, STEP, SLOTS)).refs == ()
    assert len(store.holes([CPU])) == 1
    assert store.span(CPU) is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("of a version that did not say it", None),
        ("that says nothing", b""),
        ("with other numbers", b"0 4 00000000"),
        ("with no numbers", b"one two three"),
        ("with a number alone", b"7"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_file_that_does_not_say_it_is_read(tmp_path: Path, name: str, text: bytes | None) -> None:
    store = stored(tmp_path, [[GAP, 1, 2, GAP], [GAP, GAP, 3, 4]])
    with_stamp(day_path(tmp_path), {b"cotenant.slots": text})
    assert store.span(CPU) == (MIDNIGHT + STEP, MIDNIGHT + 4 * STEP)
    damage_values(day_path(tmp_path))
    assert store.span(CPU) is None  # now that it is read, the damage is found
    assert len(store.holes([CPU])) == 1


def test_what_one_file_says_is_not_believed_of_another(tmp_path: Path) -> None:
    """A stamp that was copied from a file with other values does not match its checksum."""
    other = Day((("shop", "pod-0", "main"),), np.full((1, SLOTS), 5, dtype=np.float32))
    (tmp_path / "other.parquet").write_bytes(days.encode(CPU, MIDNIGHT, other))
    says = pq.read_schema(tmp_path / "other.parquet").metadata[b"cotenant.slots"]
    assert says.startswith(b"0 288 ")
    store = stored(tmp_path, [[GAP, 1, 2]])
    with_stamp(day_path(tmp_path), {b"cotenant.slots": says})
    assert store.span(CPU) == (MIDNIGHT + STEP, MIDNIGHT + 3 * STEP)


def test_a_damaged_part_leaves_the_span_of_the_others(tmp_path: Path) -> None:
    store = stored(tmp_path, [[1, 2]])
    store.append(CPU, usage_of(CPU, MIDNIGHT + 5 * STEP, [[3]], ["pod-0"]))
    part = day_path(tmp_path, days.part_name(MIDNIGHT, 1))
    assert store.span(CPU) == (MIDNIGHT, MIDNIGHT + 6 * STEP)
    part.write_bytes(part.read_bytes()[:-20])
    assert store.span(CPU) == (MIDNIGHT, MIDNIGHT + 2 * STEP)
    assert [hole.start_seconds for hole in store.holes([CPU])] == [MIDNIGHT // DAY_SECONDS * DAY_SECONDS]
