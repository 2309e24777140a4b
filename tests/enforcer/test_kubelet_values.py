"""With the journal lost, only what holds somebody back is named, and only the kubelet's own value is given."""

from __future__ import annotations

from dataclasses import replace

import pytest

from enforcer.contract import (
    NO_LIMIT,
    ContainerReading,
    ContainerSpec,
    GroupReading,
    Knob,
    KubeQos,
    Level,
    NodeReading,
    Observation,
    PodReading,
    PodSpec,
    Value,
)
from enforcer.decide.changes import OriginalValue
from enforcer.decide.kubelet_values import lost_notes
from enforcer.decide.settle import AFTER_IDLE

MIB = 1 << 20
POD, CONTAINER = "kubepods/burstable/podu", "kubepods/burstable/podu/c"


def seen(tier: dict[Knob, Value] | None = None, container: dict[Knob, Value] | None = None) -> Observation:
    spec = ContainerSpec("c", "c", {"cpu": 500, "memory": 64 * MIB}, {"cpu": 1000, "memory": 128 * MIB}, running=True)
    group = GroupReading(CONTAINER, Level.CONTAINER, knobs=container or {})
    pod = PodReading(
        PodSpec("ns", "p", "u", KubeQos.BURSTABLE, containers=(spec,)),
        GroupReading(POD, Level.POD),
        (ContainerReading(spec, group),),
    )
    tiers = {KubeQos.BEST_EFFORT: GroupReading("kubepods/besteffort", Level.QOS, knobs=tier or {})}
    kubepods = GroupReading("kubepods", Level.KUBEPODS, knobs={Knob.CPUSET_CPUS: "0-7"})
    return Observation(1.0, 1.0, NodeReading("n", (), 1, 1), kubepods, tiers, (pod,))


def named(notes: dict[tuple[str, Knob], OriginalValue]) -> dict[tuple[str, Knob], tuple[Value, tuple[Value, ...]]]:
    return {place: (note.original, note.written) for place, note in notes.items()}


def test_a_suppressed_tier_is_set_free() -> None:
    tier: dict[Knob, Value] = {Knob.CPU_QUOTA: 5000, Knob.CPU_SHARES: 2, Knob.CPUSET_CPUS: "0-1", Knob.CPU_IDLE: 0}
    assert named(lost_notes(seen(tier))) == {
        ("kubepods/besteffort", Knob.CPU_QUOTA): (NO_LIMIT, (5000,)),
        ("kubepods/besteffort", Knob.CPUSET_CPUS): ("0-7", ("0-1",)),
    }


def test_an_idle_tier_gets_its_shares_back_which_the_kernel_hides() -> None:
    assert named(lost_notes(seen({Knob.CPU_IDLE: 1}))) == {
        ("kubepods/besteffort", Knob.CPU_IDLE): (0, (1,)),
        ("kubepods/besteffort", Knob.CPU_SHARES): (2, AFTER_IDLE),
    }


def test_a_container_gets_what_it_asked_for_and_nothing_is_taken_from_it() -> None:
    # 500 m are 512 shares, 1000 m are 100 ms a period
    squeezed: dict[Knob, Value] = {
        Knob.CPU_SHARES: 2, Knob.CPU_QUOTA: 20_000, Knob.MEMORY_LIMIT: 32 * MIB, Knob.MEMORY_HIGH: 16 * MIB,
        Knob.CPUSET_CPUS: "3",
    }  # fmt: skip
    assert named(lost_notes(seen(container=squeezed))) == {
        (CONTAINER, Knob.CPU_SHARES): (512, (2,)),
        (CONTAINER, Knob.CPU_QUOTA): (100_000, (20_000,)),
        (CONTAINER, Knob.MEMORY_LIMIT): (128 * MIB, (32 * MIB,)),
        (CONTAINER, Knob.MEMORY_HIGH): (NO_LIMIT, (16 * MIB,)),
    }
    rich: dict[Knob, Value] = {Knob.CPU_SHARES: 4096, Knob.CPU_QUOTA: NO_LIMIT, Knob.MEMORY_LIMIT: NO_LIMIT}
    assert lost_notes(seen(container=rich)) == {}


def test_pods_of_class_best_effort_have_the_smallest_weight_whatever_stands_there() -> None:
    batch = PodReading(
        PodSpec("ns", "b", "b"), GroupReading("kubepods/besteffort/podb", Level.POD, knobs={Knob.CPU_SHARES: 512})
    )
    found = lost_notes(replace(seen({Knob.CPU_SHARES: 2}), pods=(batch,)))
    assert named(found) == {("kubepods/besteffort/podb", Knob.CPU_SHARES): (2, (512,))}


def test_a_buffer_of_saved_quota_is_nobodys_but_an_agents() -> None:
    assert named(lost_notes(seen(container={Knob.CPU_BURST: 50_000}))) == {(CONTAINER, Knob.CPU_BURST): (0, (50_000,))}


@pytest.mark.parametrize("tier_cpus", ["0-7", "0-1"])
def test_cpus_of_a_container_are_the_runtimes_choice_unless_the_tier_is_narrowed_too(tier_cpus: str) -> None:
    """The kubelet's static CPU manager and NRI policies place containers; nobody but an agent narrows the tier."""
    path = "kubepods/besteffort/podb"
    batch = PodReading(PodSpec("ns", "b", "b"), GroupReading(path, Level.POD, knobs={Knob.CPUSET_CPUS: "0"}))
    found = lost_notes(replace(seen({Knob.CPUSET_CPUS: tier_cpus}), pods=(batch,)))
    assert ((path, Knob.CPUSET_CPUS) in found) == (tier_cpus == "0-1")
