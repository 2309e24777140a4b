"""Which CPUs best effort gets: Koordinator's order, and no dead end."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.allocation.cpu_topology import Processor
from cotenant.base.kubernetes.protocol import NODE_RESERVATION_ANNOTATION, RESOURCE_STATUS_ANNOTATION
from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import ContainerSpec, NodeReading, PodSpec
from cotenant.enforcer.strategies.suppression.suppress_cpuset import choose, take_cpus, wanted_count

# two sockets of four cores with two hyper-threads: CPU n and n + 8 share a core
TWO_SOCKETS = tuple(Processor(i, i % 8, (i % 8) // 4, (i % 8) // 4) for i in range(16))


def node(processors: tuple[Processor, ...] = TWO_SOCKETS, reserved: str = "") -> NodeReading:
    annotations = {NODE_RESERVATION_ANNOTATION: f'{{"reservedCPUs": "{reserved}"}}'} if reserved else {}
    return NodeReading("n", processors, 1, 1, annotations=annotations)


def bound(qos: QosClass, cpus: str) -> PodSpec:
    annotations = {RESOURCE_STATUS_ANNOTATION: f'{{"cpuset":"{cpus}"}}'}
    asks = (ContainerSpec("main", requests={"cpu": 16_000}),)
    return PodSpec("d", f"p{cpus}", cpus, qos_class=qos, annotations=annotations, containers=asks)


@pytest.mark.parametrize(
    ("millicores", "all_cpus", "before", "count"),
    [
        (-500, 40, 40, 2),  # at least two; shrinking at once
        (2001, 40, 40, 3),  # rounded up
        (30_000, 40, 10, 14),  # ceil(10 % of 40) = 4 more
        (30_000, 41, 10, 15),  # ceil(4.1) = 5 more
        (30_000, 2, 2, 2),  # no more than there are
        (12_000, 40, 10, 12),
        (500, 1, 1, 1),
    ],
)
def test_how_many_cpus(millicores: int, all_cpus: int, before: int, count: int) -> None:
    assert wanted_count(millicores, all_cpus, before) == count


@pytest.mark.parametrize(
    ("count", "cpus"),
    [
        (1, [0]),  # no pair for one
        (2, [0, 8]),  # a whole core
        (3, [0, 8, 4]),  # a pair, then a single thread of the next bucket
        (4, [0, 8, 4, 12]),  # the second pair on the other socket
        (5, [0, 8, 4, 12, 1]),  # the last pair was the second socket's: the odd one is the first's
        (6, [0, 8, 4, 12, 1, 9]),
        (7, [0, 8, 4, 12, 1, 9, 5]),
    ],
)
def test_whole_cores_in_turn_over_sockets(count: int, cpus: list[int]) -> None:
    assert take_cpus(count, TWO_SOCKETS) == cpus


def test_the_largest_bucket_comes_first() -> None:
    # without CPUs 0, 8 and 1 the second socket (8 CPUs) is larger than the first (5)
    assert take_cpus(2, [p for p in TWO_SOCKETS if p.id not in {0, 8, 1}]) == [4, 12]


def test_single_threads_when_no_pair_is_left() -> None:
    assert take_cpus(3, [Processor(i, i) for i in range(4)]) == [0, 1, 2]
    # one pair is left, on the second socket; the rest begins with the first bucket again
    ones = [p for p in TWO_SOCKETS if p.id not in {8, 9, 10, 11, 13, 14, 15}]
    assert take_cpus(5, ones) == [4, 12, 5, 0, 6]


def test_lse_reserved_and_system_cpus_are_left_alone() -> None:
    choice = choose(12, node(reserved="0,8"), [bound(QosClass.LSE, "1,9")])
    # 16 - 2 reserved - 2 of the LSE pod
    assert choice.cpus == set(range(16)) - {0, 8, 1, 9}
    assert choice.short == ""


def test_lsr_pods_lend_their_share() -> None:
    choice = choose(4, node(), [bound(QosClass.LSR, "0-3,8-11")])
    # 8 of 16 are LSR's: 4 * 8 // 16 = 2 of them, 2 others
    assert choice.cpus == {0, 8, 4, 12}
    # 3 * 8 // 16 = 1 of LSR's, 2 others
    assert choose(3, node(), [bound(QosClass.LSR, "0-3,8-11")]).cpus == {0, 4, 12}


def test_nobody_eligible_is_no_division_by_zero() -> None:
    choice = choose(2, node(), [bound(QosClass.LSE, "0-15")])
    assert choice.cpus == set(range(16))
    assert "best effort stays" in choice.short


def test_fewer_than_wanted_are_taken_all() -> None:
    choice = choose(4, node(), [bound(QosClass.LSE, "0-14")])
    assert choice.cpus == {15}
    assert choice.short.startswith("best effort lacks 3 CPUs")


@st.composite
def machines(draw: st.DrawFn) -> tuple[NodeReading, list[PodSpec], int]:
    sockets, cores, threads = draw(st.integers(1, 3)), draw(st.integers(1, 6)), draw(st.integers(1, 4))
    ids = iter(range(200))
    processors = tuple(
        Processor(next(ids), c, s, s) for _ in range(threads) for s in range(sockets) for c in range(cores)
    )
    owners = draw(st.lists(st.sampled_from(["LSE", "LSR", ""]), min_size=len(processors), max_size=len(processors)))
    pods = [bound(QosClass(q), str(i)) for i, q in enumerate(owners) if q]
    return NodeReading("n", processors, 1, 1), pods, draw(st.integers(0, len(processors) + 3))


@settings(max_examples=80, deadline=None)
@given(machines())
def test_never_empty_never_offline_never_lse_and_always_the_same(case: tuple[NodeReading, list[PodSpec], int]) -> None:
    machine, pods, count = case
    count = max(count, 1)
    choice = choose(count, machine, pods)
    online = {p.id for p in machine.processors}
    lse = {int(p.uid) for p in pods if p.qos_class is QosClass.LSE}
    assert choice.cpus and choice.cpus <= online
    assert choice == choose(count, machine, list(reversed(pods)))
    if lse != online:
        assert not choice.cpus & lse
        assert len(choice.cpus) <= count
        assert bool(choice.short) == (len(choice.cpus) < count)
