"""What the API server last said, kept on disk for an agent that starts while it is away."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.kubernetes.observed import ObservedNode
from cotenant.enforcer.agent import with_ages
from cotenant.enforcer.contract import KubeQos, PodSpec
from cotenant.enforcer.decide.loop import AgentMode, Ages, Memory, decide
from cotenant.enforcer.sources.last_known import FILE, REFRESH_SECONDS, SAVE_SECONDS, LastInputsFile, Recalling
from cotenant.enforcer.sources.sources import NEVER, AgentInputs, Sources
from tests.enforcer.readings import container, observation_of, pod, policy

ON = policy({"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressPolicy": "cfsQuota"}})
WEB = pod("web", container(requests={"cpu": 500}), annotations={"koordinator.sh/x": "y"}).spec
ETL = PodSpec("default", "etl", "u-etl", kube_qos=KubeQos.BEST_EFFORT, phase="Running", owner=("Job", "etl"))
NODE = ObservedNode("n1", "uid-1", {"zone": "a"}, {}, {"cpu": 2000}, {"cpu": 2000})
SILENT = AgentInputs(node=ObservedNode("n1", ""), policy_origin="NodeSLO not received yet")
HEARD = AgentInputs((WEB, ETL), 0.0, NODE, ON, 0.0, "NodeSLO")


@dataclass
class Saying(Sources):
    """Sources that say what a test tells them."""

    inputs: AgentInputs = SILENT

    def start(self) -> None:
        """Nothing to begin."""

    def wait(self, timeout_seconds: float) -> bool:  # noqa: ARG002 - the contract
        return self.inputs is not SILENT

    def read(self) -> AgentInputs:
        return self.inputs

    def stop(self) -> None:
        """Nothing to end."""


@dataclass
class Life:
    """Agents one after the other on one folder, with a monotonic clock that goes on."""

    folder: Path
    now: float = 1000.0
    boot: str = "boot"
    node: str = "n1"
    says: Saying = field(default_factory=Saying)

    def begin(self, inputs: AgentInputs = SILENT) -> Recalling:
        self.says = Saying(inputs)
        file = LastInputsFile(self.folder, self.boot, self.node)
        sources = Recalling(self.says, file, lambda: self.now)
        sources.start()
        return sources


@pytest.fixture
def life(tmp_path: Path) -> Life:
    return Life(tmp_path)


def test_an_agent_that_starts_while_the_api_server_is_away_knows_what_the_one_before_knew(life: Life) -> None:
    assert life.begin(HEARD).read() == HEARD
    life.now += 40
    inputs = life.begin().read()
    assert (inputs.policy, inputs.pods, inputs.node) == (ON, (WEB, ETL), NODE)
    assert (inputs.policy_age_seconds, inputs.pods_age_seconds) == (40.0, 40.0)
    assert inputs.recalled == ("policy", "pods")
    assert inputs.policy_origin == "NodeSLO, as known before this agent started"


def test_an_age_counts_from_when_the_api_server_last_confirmed_it_also_over_several_starts(life: Life) -> None:
    life.begin(replace(HEARD, policy_age_seconds=70.0)).read()
    for _ in range(3):
        life.now += 10
        inputs = life.begin().read()
    assert inputs.policy_age_seconds == 100.0  # 70 s, and three times 10 s


def test_what_is_heard_at_last_takes_the_place_of_what_was_recalled(life: Life) -> None:
    life.begin(HEARD).read()
    sources = life.begin()
    assert sources.read().recalled == ("policy", "pods")
    life.says.inputs = replace(SILENT, pods=(WEB,), pods_age_seconds=1.0, node=NODE)
    inputs = sources.read()
    assert (inputs.pods, inputs.pods_age_seconds, inputs.recalled) == ((WEB,), 1.0, ("policy",))
    off = replace(HEARD, policy=policy(), policy_origin="no NodeSLO: all strategies are off")
    life.says.inputs = off
    assert sources.read() == off


def test_a_node_that_was_deleted_is_not_recalled(life: Life) -> None:
    sources = life.begin(HEARD)
    sources.read()
    life.says.inputs = replace(HEARD, node=ObservedNode("n1", ""))
    assert sources.read().node == ObservedNode("n1", "")


@pytest.mark.parametrize("change", [{"boot": "another"}, {"node": "n2"}, {"boot": ""}], ids=str)
def test_a_file_of_another_boot_or_node_is_nothing(life: Life, change: dict[str, str]) -> None:
    life.begin(HEARD).read()
    for name, value in change.items():
        setattr(life, name, value)
    assert life.begin().read() == SILENT


@given(st.data())
@settings(max_examples=60)
def test_a_file_that_is_cut_or_changed_is_set_aside_and_told_of_and_never_half_used(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    life = Life(tmp_path_factory.mktemp("known"))
    life.begin(HEARD).read()
    content = (life.folder / FILE).read_bytes()
    cut = data.draw(st.integers(0, len(content) - 1))
    (life.folder / FILE).write_bytes(content[:cut] + data.draw(st.sampled_from([b"", b"\x00", b",", b"\xff" * 9])))
    inputs = life.begin().read()
    assert inputs.policy is None and inputs.pods == () and inputs.recalled == ()
    assert "set aside as known.json.damaged" in inputs.notes[0]
    assert (life.folder / f"{FILE}.damaged").exists() and not (life.folder / FILE).exists()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"cpuSuppressThresholdPercent":65', '"cpuSuppressThresholdPercent":6500'),
        ('"kube_qos":"BestEffort"', '"kube_qos":"Best"'),
        ('"policy_at":1000.0', '"policy_at":9e9'),
        ('"policy_at":1000.0', '"x":' + "[" * 200_000),
    ],
)
def test_a_value_that_nobody_could_have_said_refuses_the_whole_file(life: Life, old: str, new: str) -> None:
    life.begin(HEARD).read()
    text = (life.folder / FILE).read_text()
    assert text.count(old) == 1
    (life.folder / FILE).write_text(text.replace(old, new))
    inputs = life.begin().read()
    assert inputs.policy is None and "cannot be used" in inputs.notes[0]


def test_it_is_written_when_something_changed_or_was_confirmed_and_not_each_tick(life: Life) -> None:
    sources = life.begin(HEARD)
    sources.read()
    file = life.folder / FILE
    stamps = [file.stat().st_mtime_ns]
    for seconds, inputs in (
        (REFRESH_SECONDS / 3, HEARD),
        (REFRESH_SECONDS / 3, HEARD),
        (REFRESH_SECONDS / 3, HEARD),  # so long without a change: the age is written
        (SAVE_SECONDS / 2, replace(HEARD, pods=(WEB,))),  # too soon
        (SAVE_SECONDS / 2, replace(HEARD, pods=(WEB,))),
    ):
        life.now += seconds
        life.says.inputs = inputs
        sources.read()
        stamps.append(file.stat().st_mtime_ns)
    assert stamps[0] == stamps[1] == stamps[2] != stamps[3] == stamps[4] != stamps[5]


def test_a_folder_that_cannot_be_written_is_told_of_and_changes_nothing_else(life: Life) -> None:
    life.folder = life.folder / "missing"
    inputs = life.begin(HEARD).read()
    assert inputs.policy == ON and "cannot be written: No such file or directory" in inputs.notes[0]


def test_recalled_pods_without_a_cgroup_are_gone_and_heard_ones_are_not() -> None:
    live_pod, gone_pod = pod("web"), replace(pod("old"), group=None)
    reading = observation_of(live_pod, gone_pod)
    recalled = with_ages(reading, replace(HEARD, recalled=("pods",)))
    assert [p.spec.name for p in recalled.pods] == ["web"]
    assert [p.spec.name for p in with_ages(reading, HEARD).pods] == ["web", "old"]


@pytest.mark.parametrize(
    ("age", "mode"), [(299.0, AgentMode.ACT), (301.0, AgentMode.HOLD), (3901.0, AgentMode.RELEASE)]
)
def test_a_recalled_policy_holds_and_is_given_up_by_its_true_age_and_says_so(age: float, mode: AgentMode) -> None:
    inputs = replace(HEARD, policy_age_seconds=age, pods_age_seconds=0.0, recalled=("policy",))
    decided, _ = decide(with_ages(observation_of(), inputs), inputs.policy, Memory(), [], Ages())
    assert decided.mode is mode
    reasons = [verdict.reason for verdict in decided.verdicts]
    assert (
        reasons
        == {AgentMode.ACT: ["Recalled"], AgentMode.HOLD: ["Recalled", "Stale"], AgentMode.RELEASE: ["PolicyGivenUp"]}[
            mode
        ]
    )


def test_what_was_never_heard_is_never_recalled(life: Life) -> None:
    life.begin(SILENT).read()
    assert not (life.folder / FILE).exists()
    inputs = life.begin().read()
    assert (inputs.policy, inputs.policy_age_seconds, inputs.pods_age_seconds) == (None, NEVER, NEVER)
