"""From wants to writes: the kernel takes each, a quiet tick has none, everything can be given back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cotenant.enforcer.contract import NO_LIMIT, CgroupPath, ContainerSpec, Knob, Level, MemoryUse, Value, Want
from cotenant.enforcer.decide.changes import Notes, OriginalValue, WriteOutcome
from cotenant.enforcer.decide.settle import settle
from tests.enforcer.v1_kernel import (
    C1,
    C2,
    LEVELS,
    POD,
    TIER,
    TOP,
    V1,
    V2,
    V1Kernel,
    made_valid,
    plan,
    want,
    with_memory,
)

MIB = 1 << 20
QUOTAS = st.one_of(st.just(NO_LIMIT), st.integers(1000, 400_000))
CPUS = st.sets(st.integers(0, 3), min_size=1).map(lambda found: ",".join(map(str, sorted(found))))
KNOBS: dict[Knob, st.SearchStrategy[Value]] = {
    Knob.CPU_SHARES: st.integers(2, 262_144),
    Knob.CPU_QUOTA: QUOTAS,
    Knob.CPU_BURST: st.integers(0, 400_000),
    Knob.CPU_IDLE: st.integers(0, 1),
    Knob.CPUSET_CPUS: CPUS,
}
PLACES = st.tuples(st.sampled_from(sorted(LEVELS)), st.sampled_from(list(KNOBS)))
WANTED = st.dictionaries(PLACES, st.none(), max_size=12).flatmap(
    lambda places: st.fixed_dictionaries({place: KNOBS[place[1]] for place in places})
)
STATE = st.fixed_dictionaries({path: st.fixed_dictionaries({knob: KNOBS[knob] for knob in KNOBS}) for path in LEVELS})
Wanted = dict[tuple[CgroupPath, Knob], Value]


def tick(kernel: V1Kernel, wants: Wanted, notes: Notes) -> Notes:
    """One tick as the applier makes it: writes carried out, notes of what was given back forgotten."""
    settled = settle([plan(*(want(p, k, v) for (p, k), v in wants.items()))], kernel.observation(), notes, V1)
    kernel.carry_out(settled.writes)
    restored = {write.place for write in settled.writes if write.restores}
    return {place: note for place, note in settled.notes.items() if place not in restored}


@given(STATE, st.lists(WANTED, min_size=1, max_size=3))
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_the_kernel_takes_every_write_of_any_plans_and_all_is_given_back(
    state: dict[CgroupPath, dict[Knob, Value]], rounds: list[Wanted]
) -> None:
    kernel = made_valid(state)
    before = {path: dict(knobs) for path, knobs in kernel.knobs.items()}
    notes: Notes = {}
    for wants in rounds:
        notes = tick(kernel, wants, notes)
        # a second look at the same wants finds nothing to do
        quiet = settle([plan(*(want(p, k, v) for (p, k), v in wants.items()))], kernel.observation(), notes, V1)
        assert quiet.writes == ()
    for _ in range(2):  # what a cgroup above held back is given back when that one is
        notes = tick(kernel, {}, notes)
    assert notes == {}
    shown = {
        path: {k: v for k, v in knobs.items() if not (k is Knob.CPU_SHARES and knobs[Knob.CPU_IDLE])}
        for path, knobs in kernel.knobs.items()
    }
    assert all(before[path][knob] == value for path, knobs in shown.items() for knob, value in knobs.items())


def test_a_second_strategy_is_refused_and_told_why() -> None:
    kernel = V1Kernel()
    settled = settle(
        [plan(want(C1, Knob.CPU_SHARES, 2, "first")), plan(want(C1, Knob.CPU_SHARES, 4096, "second"))],
        kernel.observation(),
        {},
        V1,
    )
    assert [(w.value, w.strategy) for w in settled.writes] == [(2, "first")]
    assert [(d.outcome, d.strategy, d.message) for d in settled.refused] == [
        (WriteOutcome.REFUSED, "second", "first wants 2: first says so")
    ]


@pytest.mark.parametrize(
    ("refused_want", "outcome", "message"),
    [
        (want("system.slice", Knob.CPU_SHARES, 2), WriteOutcome.REFUSED, "the cgroup belongs to no known pod"),
        (want("", Knob.CPU_SHARES, 2), WriteOutcome.REFUSED, "the cgroup belongs to no known pod"),
        (want("../../etc", Knob.CPU_SHARES, 2), WriteOutcome.REFUSED, "the cgroup belongs to no known pod"),
        (want(C1, Knob.CPU_IDLE, 7), WriteOutcome.REFUSED, "7 is not within 0..1"),
        (want(C1, Knob.CPUSET_CPUS, ""), WriteOutcome.REFUSED, "names no CPU"),
        (want(C1, Knob.CPU_BVT, -1), WriteOutcome.UNSUPPORTED, "has no file for the setting"),
    ],
)
def test_what_cannot_be_done_is_answered_and_touches_nothing(
    refused_want: Want, outcome: WriteOutcome, message: str
) -> None:
    settled = settle([plan(refused_want)], V1Kernel().observation(), {}, V1)
    assert (settled.writes, settled.notes) == ((), {})
    assert [done.outcome for done in settled.refused] == [outcome]
    assert message in settled.refused[0].message


def test_a_value_of_somebody_else_is_kept_for_the_end() -> None:
    """The kubelet resizes a container while we hold it back: it gets the new size when we let go."""
    kernel = V1Kernel({C1: {Knob.CPU_QUOTA: 100_000}})
    notes = tick(kernel, {(C1, Knob.CPU_QUOTA): 20_000}, {})
    kernel.write(C1, Knob.CPU_QUOTA, 150_000)
    drifting = settle([plan(want(C1, Knob.CPU_QUOTA, 20_000))], kernel.observation(), notes, V1)
    assert [(w.value, w.drifted) for w in drifting.writes] == [(20_000, True)]
    notes = tick(kernel, {(C1, Knob.CPU_QUOTA): 20_000}, notes)
    tick(kernel, {}, notes)
    assert kernel.knobs[C1][Knob.CPU_QUOTA] == 150_000


def test_no_quota_is_asked_for_that_the_period_of_its_cgroup_cannot_hold() -> None:
    """1 ms of a period of 10 ms are 10 % of a core: half of that would be written, and read as more, for ever."""
    kernel = V1Kernel({C1: {Knob.CPU_QUOTA: 10_000}, C2: {Knob.CPU_QUOTA: 30_000}})
    observation = kernel.observation()
    inside = tuple(
        replace(c, group=replace(c.group, least_quota=10_000)) for c in observation.pods[0].containers if c.group
    )
    observation = replace(observation, pods=(replace(observation.pods[0], containers=inside),))
    settled = settle([plan(want(C1, Knob.CPU_QUOTA, 5000), want(C2, Knob.CPU_QUOTA, 5000))], observation, {}, V2)
    assert [(w.path, w.value) for w in settled.writes] == [(C2, 10_000)]
    note = OriginalValue(C2, Knob.CPU_QUOTA, Level.CONTAINER, 5000, (30_000,), "be-totals")
    given_back = settle([], observation, {note.place: note}, V2)
    assert [(w.path, w.value, w.restores) for w in given_back.writes] == [(C2, 10_000, True)]


def test_limits_whose_device_went_away_are_ours_and_go_back_to_what_stood_there_first() -> None:
    """With a volume the kernel drops its line: what is left is still ours, and is nobody's original."""
    knob, both, remaining = Knob.BLKIO_READ_BPS, "8:0 100,259:3 200", "8:0 100"
    original = OriginalValue(C1, knob, Level.CONTAINER, "8:0 900", (both,), "blkio")
    observation = V1Kernel({C1: {knob: remaining}}).observation()
    observation = replace(observation, supported=observation.supported | {knob})
    again = settle([plan(want(C1, knob, both))], observation, {original.place: original}, V1)
    assert [(w.value, w.drifted) for w in again.writes] == [(both, False)]
    assert again.notes[original.place].original == "8:0 900"
    given_back = settle([], observation, {original.place: original}, V1)
    assert [(w.value, w.restores) for w in given_back.writes] == [("8:0 900", True)]


@pytest.mark.parametrize("others", ["8:0 101", "8:0 100,8:16 5"])
def test_device_limits_that_we_never_wrote_are_somebody_elses(others: str) -> None:
    knob, mine = Knob.BLKIO_READ_BPS, "8:0 100,259:3 200"
    note = OriginalValue(C1, knob, Level.CONTAINER, "", (mine,), "blkio")
    settled = settle([], V1Kernel({C1: {knob: others}}).observation(), {note.place: note}, V1)
    assert (settled.writes, settled.notes) == ((), {})


def test_what_somebody_else_set_last_is_left_alone() -> None:
    kernel = V1Kernel()
    notes = tick(kernel, {(C1, Knob.CPU_SHARES): 2}, {})
    kernel.write(C1, Knob.CPU_SHARES, 300)
    assert tick(kernel, {}, notes) == {}
    assert kernel.knobs[C1][Knob.CPU_SHARES] == 300


def test_a_strategy_may_say_where_a_value_goes_back_to() -> None:
    kernel = V1Kernel({C1: {Knob.CPU_QUOTA: 100_000}})
    first = settle([plan(want(C1, Knob.CPU_QUOTA, 20_000, back_to=100_000))], kernel.observation(), {}, V1)
    kernel.carry_out(first.writes)
    later = settle([plan(want(C1, Knob.CPU_QUOTA, 20_000, back_to=60_000))], kernel.observation(), first.notes, V1)
    assert later.writes == ()
    tick(kernel, {}, later.notes)
    assert kernel.knobs[C1][Knob.CPU_QUOTA] == 60_000


def test_the_kubelets_word_alone_is_no_original() -> None:
    """An operator has set 50 ms where the kubelet says 100: that comes back, unless the kubelet's word changes."""
    kernel = V1Kernel({C1: {Knob.CPU_QUOTA: 50_000}})
    wants = plan(want(C1, Knob.CPU_QUOTA, 20_000, back_to=100_000))
    notes = settle([wants], kernel.observation(), {}, V1).notes
    kernel.carry_out(settle([wants], kernel.observation(), {}, V1).writes)
    notes = settle([wants], kernel.observation(), notes, V1).notes
    tick(kernel, {}, notes)
    assert kernel.knobs[C1][Knob.CPU_QUOTA] == 50_000


@pytest.mark.parametrize(
    ("knob", "before", "wanted_cpu", "stands"),
    [
        (Knob.CPU_QUOTA, 50_000, 66_700, 50_000),  # stricter than ours: it stays
        (Knob.CPU_QUOTA, NO_LIMIT, 66_700, 66_700),
        (Knob.CPU_QUOTA, 100_000, 66_700, 66_700),
        (Knob.MEMORY_HIGH, 1 << 20, 2 << 20, 1 << 20),
        (Knob.MEMORY_HIGH, NO_LIMIT, 2 << 20, 2 << 20),
        (Knob.MEMORY_MIN, 2 << 20, 1 << 20, 2 << 20),  # protects more
        (Knob.MEMORY_MIN, 0, 1 << 20, 1 << 20),
    ],
)
def test_a_want_may_give_way_to_what_stood_there_before(knob: Knob, before: int, wanted_cpu: int, stands: int) -> None:
    """Tick by tick, also while ours stands there, and after somebody else has set a stricter one."""
    kernel = V1Kernel({C1: {Knob.MEMORY_MIN: 0, knob: before}})
    notes: dict[tuple[str, Knob], OriginalValue] = {}
    wants = plan(replace(want(C1, knob, wanted_cpu), never_looser=True))
    for _ in range(3):
        observation = kernel.observation()
        observation = replace(observation, supported=observation.supported | {Knob.MEMORY_MIN})
        settled = settle([wants], observation, notes, V1)
        kernel.carry_out(settled.writes)
        notes = dict(settled.notes)
        assert kernel.knobs[C1][knob] == stands
        assert [done.outcome for done in settled.refused] == [WriteOutcome.REFUSED] * (before == stands)
    stricter = 4 << 20 if knob is Knob.MEMORY_MIN else 20_480
    kernel.write(C1, knob, stricter)
    settled = settle([wants], replace(observation, pods=kernel.observation().pods), notes, V1)
    assert settled.writes == ()


def test_what_a_runtime_hook_set_at_the_containers_creation_is_given_back_too() -> None:
    """Without the hook the kubelet would have set 60,000; the tick finds our 20,000 in place and writes nothing."""
    kernel = V1Kernel({C1: {Knob.CPU_QUOTA: 20_000}})
    first = settle([plan(want(C1, Knob.CPU_QUOTA, 20_000, made_from=60_000))], kernel.observation(), {}, V1)
    assert first.writes == ()
    tick(kernel, {}, first.notes)
    assert kernel.knobs[C1][Knob.CPU_QUOTA] == 60_000


def test_a_value_that_is_the_kubelets_own_is_nothing_to_give_back() -> None:
    kernel = V1Kernel({C1: {Knob.CPU_QUOTA: 20_000}})
    for made_from in (20_000, None):
        settled = settle([plan(want(C1, Knob.CPU_QUOTA, 20_000, made_from=made_from))], kernel.observation(), {}, V1)
        assert (settled.writes, settled.notes) == ((), {})


def test_a_step_that_a_crash_left_behind_is_known_as_ours() -> None:
    """Killed between a value and the next: both are in the journal, so the original still comes back."""
    kernel = V1Kernel()
    notes = tick(kernel, {(TIER, Knob.CPU_QUOTA): 50_000}, {})
    settled = settle([plan(want(TIER, Knob.CPU_QUOTA, 20_000))], kernel.observation(), notes, V1)
    assert settled.notes[TIER, Knob.CPU_QUOTA].written == (50_000, 20_000)
    tick(kernel, {}, settled.notes)  # the write never happened: 50 000 still stands there
    assert kernel.knobs[TIER][Knob.CPU_QUOTA] == NO_LIMIT


def test_shares_are_noted_when_a_cgroup_becomes_idle_and_come_back() -> None:
    kernel = V1Kernel({TIER: {Knob.CPU_SHARES: 77}})
    notes = tick(kernel, {(TIER, Knob.CPU_IDLE): 1}, {})
    assert notes[TIER, Knob.CPU_SHARES].original == 77
    notes = tick(kernel, {(TIER, Knob.CPU_IDLE): 1, (TIER, Knob.CPU_SHARES): 2}, notes)
    assert kernel.knobs[TIER][Knob.CPU_IDLE] == 1
    tick(kernel, {}, notes)
    assert (kernel.knobs[TIER][Knob.CPU_IDLE], kernel.knobs[TIER][Knob.CPU_SHARES]) == (0, 77)


def test_killed_between_idle_and_shares_the_shares_still_come_back() -> None:
    kernel = V1Kernel({TIER: {Knob.CPU_SHARES: 77}})
    notes = tick(kernel, {(TIER, Knob.CPU_IDLE): 1}, {})
    kernel.write(TIER, Knob.CPU_IDLE, 0)  # and then the agent died: the kernel's 1024 stands there
    tick(kernel, {}, notes)
    assert kernel.knobs[TIER][Knob.CPU_SHARES] == 77


def test_children_are_held_within_a_quota_above_them_on_v1_only() -> None:
    kernel = V1Kernel({C1: {Knob.CPU_QUOTA: 100_000}})
    v1 = settle([plan(want(TIER, Knob.CPU_QUOTA, 30_000))], kernel.observation(), {}, V1)
    assert [(w.path, w.value) for w in v1.writes] == [(C1, 30_000), (TIER, 30_000)]
    v2 = settle([plan(want(TIER, Knob.CPU_QUOTA, 30_000))], kernel.observation(), {}, V2)
    assert [(w.path, w.value) for w in v2.writes] == [(TIER, 30_000)]


def test_cpu_lists_shrink_from_below_and_grow_from_above_through_their_union() -> None:
    kernel = V1Kernel({path: {Knob.CPUSET_CPUS: "0-1"} for path in (TIER, POD, C1, C2)})
    cpuset_plan = plan(*(want(path, Knob.CPUSET_CPUS, "1-2") for path in (TIER, POD, C1)))
    settled = settle([cpuset_plan], kernel.observation(), {}, V1)
    steps = [(w.path, w.value, w.on_the_way) for w in settled.writes]
    # C2 is wanted by nobody and keeps what its pod still has: CPU 1
    assert steps == [
        (TIER, "0-2", True), (POD, "0-2", True), (C1, "0-2", True),
        (C2, "1", False), (C1, "1-2", False), (POD, "1-2", False), (TIER, "1-2", False),
    ]  # fmt: skip


def test_a_cgroup_without_cpus_yet_is_left_to_the_runtime() -> None:
    kernel = V1Kernel()
    kernel.knobs[C1][Knob.CPUSET_CPUS] = ""
    settled = settle([plan(want(C1, Knob.CPUSET_CPUS, "0"))], kernel.observation(), {}, V1)
    assert settled.writes == ()


def test_a_note_of_a_cgroup_that_was_not_seen_is_kept() -> None:
    note = OriginalValue("kubepods/podx", Knob.CPU_QUOTA, Level.POD, NO_LIMIT, (5000,))
    settled = settle([], V1Kernel().observation(), {note.place: note}, V1)
    assert settled.notes == {note.place: note}


@pytest.mark.parametrize(
    ("usage_mib", "request_mib", "present_mib", "wanted_mib", "written_mib"),
    [
        (100, 0, -1, 200, 200),  # far above what is used
        (100, 0, -1, 50, 105),  # 1.05 x 100
        (100, 300, -1, 50, 300),  # the request
        (100, 0, 104, 50, None),  # already as low as it may be
        (100, 0, 50, 50, None),  # it stands there: the task has grown into it, which is what it is for
        (100, 0, 50, 80, 80),  # growing needs no floor
    ],
)
def test_memory_high_is_never_set_below_what_is_used_or_requested(
    usage_mib: int, request_mib: int, present_mib: int, wanted_mib: int, written_mib: int | None
) -> None:
    present: Value = NO_LIMIT if present_mib < 0 else present_mib * MIB
    observation = with_memory(V1Kernel().observation(), C1, MemoryUse(usage_mib * MIB, usage_mib * MIB), present)
    container_spec = ContainerSpec("c1", "c1", requests={"kubernetes.io/batch-memory": request_mib * MIB})
    pod = observation.pods[0]
    observation = replace(
        observation,
        pods=(replace(pod, containers=(replace(pod.containers[0], spec=container_spec), pod.containers[1])),),
    )
    settled = settle([plan(want(C1, Knob.MEMORY_HIGH, wanted_mib * MIB))], observation, {}, V2)
    assert [w.value for w in settled.writes] == ([] if written_mib is None else [written_mib * MIB])


@given(
    st.integers(0, 512), st.integers(0, 512), st.one_of(st.just(-1), st.integers(1, 1024)), st.integers(1, 1024),
    st.booleans(),
)  # fmt: skip
@settings(max_examples=100)
def test_a_memory_limit_never_falls_below_the_working_set(
    working_mib: int, cache_mib: int, present_mib: int, target_mib: int, gives_back: bool
) -> None:
    """Whatever stands there and whatever is wanted or given back; it gets there once the memory in use has fallen."""
    present = NO_LIMIT if present_mib < 0 else present_mib * MIB
    kernel = V1Kernel({C1: {Knob.MEMORY_LIMIT: present}})
    target = target_mib * MIB
    note = OriginalValue(C1, Knob.MEMORY_LIMIT, Level.CONTAINER, target, (present,))
    notes: Notes = {note.place: note} if gives_back else {}
    plans = [] if gives_back else [plan(want(C1, Knob.MEMORY_LIMIT, target))]
    memory = MemoryUse((working_mib + cache_mib) * MIB, working_mib * MIB)
    for use in [memory] * 12 + [MemoryUse(0, 0)]:
        before = kernel.knobs[C1][Knob.MEMORY_LIMIT]
        settled = settle(plans, with_memory(kernel.observation(), C1, use, NO_LIMIT), notes, V2)
        kernel.carry_out(settled.writes)
        notes, limit = settled.notes, kernel.knobs[C1][Knob.MEMORY_LIMIT]
        falls = before == NO_LIMIT or (isinstance(limit, int) and isinstance(before, int) and limit < before)
        if limit != before and falls and isinstance(limit, int):
            assert limit >= use.working_set + (use.usage - use.working_set) // 2
    assert kernel.knobs[C1][Knob.MEMORY_LIMIT] == target


def test_a_memory_limit_falls_no_further_while_what_is_used_is_not_known() -> None:
    observation = V1Kernel().observation()
    container = observation.pods[0].containers[0]
    assert container.group is not None
    unread = replace(container, group=replace(container.group, memory=None))
    observation = replace(observation, pods=(replace(observation.pods[0], containers=(unread,)),))
    assert settle([plan(want(C1, Knob.MEMORY_LIMIT, MIB))], observation, {}, V2).writes == ()


def test_a_burst_is_held_at_the_quota_and_comes_back() -> None:
    kernel = V1Kernel({C1: {Knob.CPU_QUOTA: 100_000, Knob.CPU_BURST: 80_000}})
    notes = tick(kernel, {(C1, Knob.CPU_QUOTA): 30_000}, {})
    assert (kernel.knobs[C1][Knob.CPU_QUOTA], kernel.knobs[C1][Knob.CPU_BURST]) == (30_000, 30_000)
    tick(kernel, {}, notes)
    assert (kernel.knobs[C1][Knob.CPU_QUOTA], kernel.knobs[C1][Knob.CPU_BURST]) == (100_000, 80_000)


def test_kubepods_itself_may_be_set() -> None:
    settled = settle([plan(want(TOP, Knob.CPU_QUOTA, 300_000))], V1Kernel().observation(), {}, V1)
    assert [(w.path, w.value) for w in settled.writes] == [(TOP, 300_000)]
