"""Each picture of the docs has a record of what its page said, by which the browser tests notice that it is old."""

from __future__ import annotations

from tests.support.pictures import HEIGHTS, IMAGES, recorded


def test_every_kept_picture_is_there_and_has_a_record() -> None:
    record = recorded()
    assert [name for name in HEIGHTS if not (IMAGES / f"{name}.png").exists()] == []
    assert sorted(set(HEIGHTS) - set(record)) == [], "run the browser tests with COTENANT_PICTURES=1"
    assert sorted(set(record) - set(HEIGHTS)) == [], "of pictures that are no longer kept"
    assert all(record.values())
