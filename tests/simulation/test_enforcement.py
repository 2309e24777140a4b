"""The demo's load spikes: decided by the agent's own strategies, told in order, the same every time."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cotenant.base.cluster import Inventory
from cotenant.base.progress import Silent
from cotenant.base.store import Store
from cotenant.enforcer.contract import Knob, Level
from cotenant.enforcer.decide.changes import KnobWrite
from cotenant.enforcer.model.enforcement import (
    REASON_SENTENCES,
    AgentAction,
    EnforcementHistory,
    Gathering,
    Lane,
    NodeLanes,
)
from cotenant.enforcer.model.enforcement_tables import ENFORCEMENT, ENFORCEMENT_LANES, Retention, lanes_of
from cotenant.profiler.enforcement.collected import DOCUMENT, keep
from cotenant_lab.simulation import demo
from cotenant_lab.simulation.nodes.enforced_node import TIER, Actor, SecondDemand, SimulatedNode
from cotenant_lab.simulation.nodes.enforcement import (
    KINDS,
    LATE_SECONDS,
    QUIET_SECONDS,
    SCRIPTS,
    Script,
    hill,
    scenario,
)
from cotenant_lab.synthetic import SyntheticSpec, generate

pytestmark = pytest.mark.slow

END = 1_795_089_600


@pytest.fixture(scope="module")
def inventory() -> Inventory:
    return generate(SyntheticSpec(nodes=4, workloads=30, days=1, seed=3, end_seconds=END)).inventory


@pytest.fixture(scope="module")
def history(inventory: Inventory) -> EnforcementHistory:
    return scenario(inventory, END)


def of(history: EnforcementHistory, number: int) -> tuple[NodeLanes, list[AgentAction]]:
    lanes = history.lanes[number]
    return lanes, [act for act in history.acts if act.node == lanes.node]


def when(acts: list[AgentAction], reason: str) -> list[float]:
    return sorted(act.time_seconds for act in acts if act.reason == reason)


def test_a_spike_is_suppressed_then_helped_and_nobody_is_evicted(history: EnforcementHistory) -> None:
    lanes, acts = of(history, 0)
    rise = lanes.start_seconds + 120
    suppressed, granted, eased = (when(acts, r) for r in ("Suppressed", "BurstGranted", "SuppressionEased"))
    assert granted and suppressed
    # The load begins to rise in the second minute; before that there is nothing to suppress but the start itself.
    assert any(rise <= at <= rise + 60 for at in suppressed)
    assert min(at for at in granted) >= rise
    assert max(eased) > rise + 180
    assert not [act for act in acts if act.lane is Lane.EVICTION]


def test_best_effort_stays_below_its_limit_and_the_limit_follows_the_target(history: EnforcementHistory) -> None:
    lanes, _ = of(history, 0)
    used, limit, target = (np.array(lanes.values[n][2:]) for n in ("best_effort", "limit", "target"))
    # A limit set in one second binds in the next: the quota shrinks at once.
    assert (used[1:] <= np.maximum(limit[:-1], limit[1:]) + 1).all()
    # It may trail a rising target (10 % of the machine a tick, not moved for less than 1 %), never by much.
    assert np.abs(limit - target).max() <= 0.12 * lanes.capacity
    assert len(lanes.values["others"]) == SCRIPTS["spike"].seconds


def test_a_noisy_neighbour_is_found_held_back_and_evicted_before_the_load_takes_another(
    history: EnforcementHistory,
) -> None:
    lanes, acts = of(history, 1)
    suffering, evicted = when(acts, "Interference"), [act for act in acts if act.lane is Lane.EVICTION]
    assert evicted[0].strategy == "Interference"
    noisy = evicted[0].pod
    # Found three seconds after it began, with its name; evicted after two steps of 20 s, before the load rises.
    assert any(noisy in act.why for act in acts if act.reason == "Interference")
    assert suffering[0] < evicted[0].time_seconds <= lanes.start_seconds + 120
    assert "BECPUEvict" in {act.strategy for act in evicted[1:]}
    assert all(act.pod and act.warning for act in evicted)


def test_a_dry_run_says_what_it_would_do_and_holds_nobody(history: EnforcementHistory) -> None:
    lanes, acts = of(history, 2)
    done = [act for act in acts if act.lane in (Lane.SUPPRESS, Lane.BURST, Lane.EVICTION)]
    assert done and all(act.dry for act in done) and lanes.dry
    # At the top the target is far below what best effort goes on to use.
    top = slice(200, 330)
    assert min(lanes.values["best_effort"][top]) > max(lanes.values["target"][top])


def test_every_act_has_an_identity_of_its_own_and_a_reason_with_a_sentence(history: EnforcementHistory) -> None:
    assert len({act.id for act in history.acts}) == len(history.acts)
    assert {act.reason for act in history.acts} <= REASON_SENTENCES.keys()
    assert all(act.why for act in history.acts)
    assert {act.lane for act in history.acts} == set(Lane)


def test_the_same_seed_gives_the_same_story_and_another_one_another(
    inventory: Inventory, history: EnforcementHistory
) -> None:
    few = replace(inventory, nodes=tuple(n for n in inventory.nodes if n.name == history.lanes[0].node))
    shift = 2 * LATE_SECONDS  # the others begin later
    again = scenario(few, END - shift)
    assert again.lanes == history.lanes[:1]
    assert scenario(few, END - shift, seed=8).lanes != again.lanes


def test_a_cluster_without_nodes_has_no_story(inventory: Inventory) -> None:
    nothing = scenario(replace(inventory, nodes=(), pods=()), END)
    assert (nothing.acts, nothing.lanes, nothing.gathering.agents) == ((), (), 0)


def test_pods_of_the_story_run_on_its_node(inventory: Inventory, history: EnforcementHistory) -> None:
    real = {f"{pod.namespace}/{pod.name}": pod.node for pod in inventory.pods}
    real_counts = Counter(act.pod in real for act in history.acts if act.pod)
    assert real_counts[True] > real_counts[False]
    assert all(real[act.pod] == act.node for act in history.acts if act.pod in real)


def test_the_demo_s_store_holds_the_story_once(
    tmp_path: Path, inventory: Inventory, history: EnforcementHistory
) -> None:
    store = Store(tmp_path.as_uri(), "demo")
    demo.spikes(store, inventory, 7, Silent())
    first = store.read_document(DOCUMENT, Gathering)
    keep(store, replace(history, gathering=Gathering(END + 1.0)), Retention(END + 1.0))
    acts, lanes = store.read_table(ENFORCEMENT), list(store.read_table(ENFORCEMENT_LANES).rows())
    assert set(acts.columns["id"]) == {act.id for act in history.acts} and len(acts) == len(history.acts)
    stored_lanes = {row["node"]: lanes_of(row).values["others"] for row in lanes}
    assert stored_lanes == {lane.node: lane.values["others"] for lane in history.lanes}
    gathering = store.read_document(DOCUMENT, Gathering)
    assert gathering is not None and first is not None and gathering.agents == first.agents == len(inventory.nodes)
    # A look that brings nothing new is told by its time alone.
    quiet = keep(store, EnforcementHistory(gathering=Gathering(END + 60.0)), Retention(END + 60.0))
    assert (quiet.revision, quiet.gathered_seconds) == (gathering.revision, END + 60.0)


# ---- the node that does not exist


def test_online_pods_come_first_and_best_effort_shares_what_is_left() -> None:
    actors = [
        Actor("s", "web", True, 2000, 3000),
        Actor("b", "one", False, 1000, 1000),
        Actor("b", "two", False, 3000, 3000),
    ]
    machine = SimulatedNode("n", 4, actors)
    observation = machine.observe(SecondDemand({"web": 5000.0, "one": 1000.0, "two": 3000.0}, 200.0), 0.0, 0.0)
    used = {p.spec.name: p.group.cpu.millicores for p in observation.pods if p.group}
    # web is capped at its limit of 3 cores; 4 - 3 - 0.2 = 0.8 cores are left, shared 1 : 3.
    assert used == {"web": 3000.0, "one": pytest.approx(200.0), "two": pytest.approx(600.0)}
    assert observation.node.cpu.millicores == pytest.approx(4000.0)
    machine.obey([KnobWrite(TIER, Knob.CPU_QUOTA, 40_000, Level.QOS, "t", "")])
    machine_state = machine.observe(SecondDemand({"one": 1000.0, "two": 3000.0}, 0.0), 1.0, 1.0)
    assert sum(p.group.cpu.millicores or 0 for p in machine_state.pods if p.group) == pytest.approx(400.0)


def test_a_dismissed_pod_leaves_after_a_while() -> None:
    machine = SimulatedNode("n", 4, [Actor("b", "one", False, 1000, 1000)])
    machine.dismiss("one", 10.0)
    assert [p.spec.deleting for p in machine.observe(SecondDemand({}, 0.0), 11.0, 0.0).pods] == [True]
    assert machine.observe(SecondDemand({}, 0.0), 20.0, 0.0).pods == ()


def test_the_load_rises_once_and_falls_again() -> None:
    shape = hill(Script("one", high=0.5, lasts_seconds=240))
    # 2 minutes of quiet, 40 s up, 4 minutes at the top, 40 s down, 80 s of quiet.
    assert len(shape) == 120 + 40 + 240 + 40 + QUIET_SECONDS
    assert shape[:120].max() == 0 and shape[160:400].min() == 1 and shape[441:].max() == 0


def test_a_story_ends_soon_after_its_last_act_and_never_before(history: EnforcementHistory) -> None:
    for number, kind in enumerate(KINDS):
        lanes, acts = of(history, number)
        quiet = lanes.start_seconds + SCRIPTS[kind].seconds - max(act.time_seconds for act in acts)
        assert 30 <= quiet <= QUIET_SECONDS, kind
