"""The ledger of a node: what is written is read again, entries end on evidence alone, an unreadable one stops."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.allocation.allocator import (
    LONGEST_WISH,
    Holding,
    NodeLedger,
    PodFate,
    active_holdings,
    all_holdings,
    check_length,
    ledger_write,
    new_ledger,
    parse_ledger,
)
from cotenant.base.errors import UsageError

NAMES = st.text("abc-", min_size=1, max_size=4)
HOLDINGS = st.builds(
    lambda namespace, name, uid, texts: Holding(f"{namespace}/{name}", uid, texts, entered=True),
    NAMES,
    NAMES,
    NAMES,
    st.dictionaries(NAMES, st.text(max_size=9), max_size=2),
)
ENTRIES = st.lists(HOLDINGS, max_size=5, unique_by=lambda h: h.uid)


def stored(body: dict[str, Any], version: str) -> dict[str, Any]:
    """As the API server has it."""
    return {**body, "metadata": {**body["metadata"], "resourceVersion": version}}


@given(entries=ENTRIES)
def test_what_is_written_is_read_again(entries: list[Holding]) -> None:
    write = ledger_write(NodeLedger("n1", "7", uid="l"), "u", entries)
    read_as = {"resourceVersion": "7", "uid": "l"}  # refused for any other than the one that was read
    assert write.body["metadata"].items() >= read_as.items()
    read = parse_ledger("n1", stored(dict(write.body), "8"))
    assert read == NodeLedger("n1", "8", {h.uid: h for h in entries}, "l")


def test_a_new_ledger_has_no_entries_and_no_version_to_compare() -> None:
    body = dict(new_ledger("n1", "u").body)
    assert parse_ledger("n1", stored(body, "1")) == NodeLedger("n1", "1")
    assert parse_ledger("n1", None) == NodeLedger("n1")


@given(entries=ENTRIES, data=st.data())
def test_entries_end_only_when_their_pod_is_known_to_be_over(entries: list[Holding], data: st.DataObject) -> None:
    ledger = NodeLedger("n1", "7", {h.uid: h for h in entries})
    fates = {h.uid: data.draw(st.sampled_from(PodFate)) for h in entries if data.draw(st.booleans())}
    over = {uid for uid, fate in fates.items() if fate is PodFate.OVER}
    assert set(active_holdings(ledger, fates)) == set(ledger.holdings) - over


def test_an_entry_says_that_we_wrote_it_and_a_pod_of_the_node_does_not() -> None:
    body = {"metadata": {"name": "n1"}, "spec": {"pods": [{"uid": "u", "namespace": "shop", "name": "web"}]}}
    assert parse_ledger("n1", body).holdings == {"u": Holding("shop/web", "u", entered=True)}
    assert not Holding("shop/web", "u").entered


@pytest.mark.parametrize(("length", "refused"), [(LONGEST_WISH, False), (LONGEST_WISH + 1, True)])
def test_a_wish_of_the_longest_length_is_read_and_one_character_more_is_refused(length: int, refused: bool) -> None:
    with pytest.raises(UsageError, match="pod web: annotation a has 4097 characters") if refused else nullcontext():
        check_length({"a": "x" * length}, "a", "pod web")


def test_an_entry_counts_before_what_its_pod_says_and_pods_without_one_count_too() -> None:
    written, claimed = Holding("a/b", "u1", {"k": "ours"}), Holding("a/b", "u1", {"k": "theirs"}, {"cpu": 1000})
    foreign = Holding("a/c", "u2", {}, {"cpu": 1000})
    coming = Holding("a/d", "u3", {"k": "ours"}, entered=True)
    entries = {"u1": replace(written, entered=True), "u3": coming}
    # what the pod asks for is its own to say
    counted = Holding("a/b", "u1", {"k": "ours"}, {"cpu": 1000}, entered=True)
    assert all_holdings(entries, [claimed, foreign]) == [counted, coming, foreign]


@given(pods=st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_a_ledger_that_cannot_be_read_is_not_taken_for_an_empty_one(pods: Any) -> None:
    body = {"metadata": {"resourceVersion": "1"}, "spec": {"pods": pods}}
    if pods == []:
        assert parse_ledger("n1", body).holdings == {}
        return
    with pytest.raises(UsageError, match="nodeallocations/n1 cannot be read"):
        parse_ledger("n1", body)
