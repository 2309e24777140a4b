"""Lists and events in any disorder leave the truth, and every change is reported. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cotenant.base.kube.reflection import Item, Reflection

A, B = ("", "a"), ("", "b")


def reflected(**values: int) -> Reflection[int]:
    state: Reflection[int] = Reflection()
    state.replace({("", k): Item(f"uid-{k}", "5", v) for k, v in values.items()}, "5")
    state.take_changes()
    return state


def test_the_first_list_reports_everything_and_the_same_list_nothing() -> None:
    state: Reflection[int] = Reflection()
    items = {A: Item("u", "1", 10), B: Item("v", "2", 20)}
    state.replace(items, "2")
    assert state.take_changes() == {A, B}
    state.replace(items, "9")
    assert state.take_changes() == set()


def test_a_list_reports_what_came_went_and_differs() -> None:
    state = reflected(a=1, b=2, c=3)
    state.replace({A: Item("uid-a", "5", 1), B: Item("uid-b", "7", 9), ("", "d"): Item("uid-d", "8", 4)}, "9")
    assert state.take_changes() == {B, ("", "c"), ("", "d")}


def test_a_new_version_of_the_same_value_is_no_change() -> None:
    state = reflected(a=1)
    state.put(A, Item("uid-a", "6", 1), added=False)
    assert state.take_changes() == set()
    assert state.items[A].version == "6"


def test_another_object_of_the_same_name_is_a_change_even_if_it_looks_alike() -> None:
    state = reflected(a=1)
    state.put(A, Item("another", "6", 1), added=True)
    assert state.take_changes() == {A}


def test_a_replayed_event_changes_nothing_and_raises_a_doubt() -> None:
    state = reflected(a=1)
    state.put(A, Item("uid-a", "6", 2), added=False)
    state.put(A, Item("uid-a", "5", 1), added=False)
    assert state.items[A].value == 2
    assert state.doubt


def test_a_duplicate_is_nothing() -> None:
    state = reflected(a=1)
    state.put(A, Item("uid-a", "6", 2), added=False)
    state.take_changes()
    state.put(A, Item("uid-a", "6", 2), added=False)
    assert (state.take_changes(), state.doubt) == (set(), False)


def test_a_deleted_object_does_not_come_back_with_an_old_event() -> None:
    state = reflected(a=1)
    state.remove(A, "uid-a", "6")
    state.put(A, Item("uid-a", "5", 1), added=False)
    assert A not in state.items
    assert state.doubt


def test_an_object_that_left_a_selector_may_come_back() -> None:
    state = reflected(a=1)
    state.remove(A, "uid-a", "6")
    state.put(A, Item("uid-a", "7", 3), added=True)
    assert state.items[A].value == 3
    assert not state.doubt


def test_the_deletion_of_an_earlier_object_of_the_name_is_not_believed() -> None:
    state = reflected(a=1)
    state.put(A, Item("another", "7", 2), added=True)
    state.remove(A, "uid-a", "6")
    assert state.items[A].value == 2
    assert state.doubt


def test_versions_need_not_be_numbers() -> None:
    state: Reflection[int] = Reflection()
    state.replace({A: Item("u", "zeta", 1)}, "omega")
    state.put(A, Item("u", "alpha", 2), added=False)
    assert (state.items[A].value, state.doubt) == (2, False)


@dataclass
class Server:
    """The truth: objects with ever new versions, and the events it sent."""

    version: int = 0
    uids: int = 0
    objects: dict[str, Item[int]] = field(default_factory=dict)
    log: list[tuple[str, str, Item[int]]] = field(default_factory=list)

    def write(self, name: str, value: int) -> None:
        self.version += 1
        previous = self.objects.get(name)
        self.uids += previous is None
        item = Item(previous.uid if previous else f"uid-{self.uids}", str(self.version), value)
        self.objects[name] = item
        self.log.append(("MODIFIED" if previous else "ADDED", name, item))

    def delete(self, name: str) -> None:
        previous = self.objects.pop(name, None)
        if previous:
            self.version += 1
            self.log.append(("DELETED", name, previous._replace(version=str(self.version))))


class Watching(RuleBasedStateMachine):
    """A server, a watch that may repeat, lose and shuffle, and who acts on the changes that are reported."""

    def __init__(self) -> None:
        super().__init__()
        self.server, self.state = Server(), Reflection[int]()
        self.sent = 0
        self.told: dict[tuple[str, str], int | None] = {}
        """What somebody who looks only at reported changes believes."""

    @initialize()
    def listed(self) -> None:
        self.relist()

    @rule(name=st.sampled_from("abc"), value=st.integers(0, 2))
    def write(self, name: str, value: int) -> None:
        self.server.write(name, value)

    @rule(name=st.sampled_from("abc"))
    def delete(self, name: str) -> None:
        self.server.delete(name)

    @rule()
    def deliver(self) -> None:
        for event in self.server.log[self.sent :]:
            self.take(event)
        self.sent = len(self.server.log)

    @rule(seed=st.integers(0, 1000))
    def deliver_shuffled(self, seed: int) -> None:
        events = self.server.log[self.sent :]
        random.Random(seed).shuffle(events)
        for event in events:
            self.take(event)
        self.sent = len(self.server.log)

    @rule(back=st.integers(1, 6))
    def replay(self, back: int) -> None:
        for event in self.server.log[max(0, self.sent - back) : self.sent]:
            self.take(event)

    @rule()
    def relist(self) -> None:
        self.state.replace({("", n): item for n, item in self.server.objects.items()}, str(self.server.version))
        self.sent = len(self.server.log)

    @rule()
    def drain(self) -> None:
        for key in self.state.take_changes():
            item = self.state.items.get(key)
            self.told[key] = item.value if item else -1

    @invariant()
    def nothing_changes_unreported(self) -> None:
        for key in self.told.keys() | self.state.items.keys():
            item = self.state.items.get(key)
            if key not in self.state.changed:
                assert self.told.get(key, -1) == (item.value if item else -1)

    @invariant()
    def a_stream_that_was_read_to_its_end_leaves_the_truth_or_a_doubt(self) -> None:
        if self.sent == len(self.server.log) and not self.state.doubt:
            assert self.state.items == {("", n): item for n, item in self.server.objects.items()}

    def teardown(self) -> None:
        self.deliver()
        if self.state.doubt:
            self.relist()
        assert self.state.items == {("", n): item for n, item in self.server.objects.items()}

    def take(self, event: tuple[str, str, Item[int]]) -> None:
        kind, name, item = event
        if kind == "DELETED":
            self.state.remove(("", name), item.uid, item.version)
        else:
            self.state.put(("", name), item, added=kind == "ADDED")


TestWatching = pytest.mark.slow(Watching.TestCase)
TestWatching.settings = settings(max_examples=300, stateful_step_count=30, deadline=None)
