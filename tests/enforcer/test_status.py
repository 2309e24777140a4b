"""What the agent says of every pod."""

from __future__ import annotations

import msgspec

from cotenant.enforcer.contract import CpuUse, Knob, Level, MemoryUse, Verdict, Want
from cotenant.enforcer.decide.changes import Done, OriginalValue, WriteOutcome
from cotenant.enforcer.decide.loop import AgentMode, TickDecision
from cotenant.enforcer.report.status import NodeStatus, ValueInForce, VerdictStatus, action_of, stamp, status
from tests.enforcer.readings import TIERS, KubeQos, container, observation_of, pod

ETL = pod("etl", container(), kube=KubeQos.BEST_EFFORT, cpu=CpuUse(12.34), memory=MemoryUse(9, 7))
PATH = ETL.group.path if ETL.group else ""
BE = TIERS[KubeQos.BEST_EFFORT]


def want(path: str, knob: Knob, value: int) -> Want:
    return Want(path, knob, value, Level.POD, "be-totals", "its batch resources")


def test_each_value_stands_with_its_pod_and_with_what_it_goes_back_to() -> None:
    wants = (want(f"{PATH}/id-main", Knob.CPU_SHARES, 1024), want(BE, Knob.CPU_QUOTA, 5000))
    note = OriginalValue(wants[0].path, Knob.CPU_SHARES, Level.CONTAINER, 2)
    verdicts = (Verdict("default/etl", "Starved", "gets nothing"), Verdict("n1", "Idle", "quiet", warning=True))
    decided = TickDecision(wants, mode=AgentMode.ACT, verdicts=verdicts)
    node_status = status(observation_of(ETL), decided, {note.place: note}, dry_run=False)
    (pod_status,) = node_status.pods
    in_force = ValueInForce(f"{PATH}/id-main", "cpu.shares", 1024, "be-totals", "its batch resources", original=2)
    assert (pod_status.values, pod_status.verdicts) == ((in_force,), (VerdictStatus("Starved", "gets nothing"),))
    assert (pod_status.cpu_millicores, pod_status.memory_bytes, pod_status.kubernetes_qos) == (12.3, 7, "BestEffort")
    assert [value.cgroup for value in node_status.others] == [BE]
    assert node_status.verdicts == (VerdictStatus("Idle", "quiet", warning=True),)


def test_it_is_read_back_as_it_was_written() -> None:
    node_status = status(
        observation_of(ETL), TickDecision(mode=AgentMode.HOLD), {}, policy_origin="NodeSLO", notes=("a",)
    )
    assert msgspec.json.decode(msgspec.json.encode(node_status), type=NodeStatus) == node_status


def test_an_age_that_is_not_known_is_null() -> None:
    from dataclasses import replace

    never = replace(observation_of(), policy_age_seconds=1e9)
    assert status(never, TickDecision(mode=AgentMode.RELEASE), {}).policy_age_seconds is None


def test_an_action_says_what_was_done_to_whom() -> None:
    done = Done(
        BE, Knob.CPU_QUOTA, -1, Level.QOS, "cpu-suppress", "what stood there before", WriteOutcome.RESTORED, 5000
    )
    action = action_of(done, stamp(0.0), "", dry_run=False)
    assert (action.time, action.action, action.before, action.value) == (
        "1970-01-01T00:00:00.000Z",
        "restore",
        5000,
        -1,
    )
