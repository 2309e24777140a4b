"""What node agents tell in Events becomes rows, each once: on a real API server, from the agent's own teller on."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.controllers.loop import AlwaysLeads
from cotenant.base.errors import ClusterUnreachable
from cotenant.base.kube import EventRecorder, KubeClient, connect
from cotenant.base.kubernetes.protocol import NODE_AGENT
from cotenant.base.logs.metrics import Metrics
from cotenant.base.process.clock import FixedClock
from cotenant.base.settings.sections import KubeSettings, StoreSettings
from cotenant.base.store import Store
from cotenant.enforcer.contract import Evict, Knob, Level
from cotenant.enforcer.decide.changes import Done, WriteOutcome
from cotenant.enforcer.model.agents import EARLY_SECONDS, LETTERS, EventWire, acts_of, ask
from cotenant.enforcer.model.enforcement import ACT_ANNOTATION, AgentAction, EnforcementHistory, Gathering, Lane
from cotenant.enforcer.model.enforcement_tables import ENFORCEMENT, Retention
from cotenant.enforcer.report.action_log import ActionReporter, AgentMetrics
from cotenant.profiler.enforcement import collector
from cotenant.profiler.enforcement.collected import DOCUMENT, keep
from cotenant.profiler.enforcement.collector import QUIET_SECONDS, EnforcementCollector
from cotenant.settings import Settings
from cotenant_lab.simulation.api_server import EmbeddedServer
from tests.cluster.accounts import account
from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import unique_name
from tests.cluster.waiting import wait_for
from tests.enforcer.readings import TIERS, KubeQos

NOW = 1_795_089_600.0
TIER = TIERS[KubeQos.BEST_EFFORT]


class Agent:
    """An agent's teller before a real API server; the node's name is its own, as other tests' agents talk too."""

    def __init__(self, client: KubeClient, folder: Path) -> None:
        self.node = unique_name("told")
        self._client, self._folder = client, folder
        self._folder.mkdir(exist_ok=True)

    def quota(self, at: float, before: int, after: int) -> None:
        """Best effort's quota moves, and the Event is written."""
        why = f"65 % of 16000 m without {after} m of others"
        done = Done(TIER, Knob.CPU_QUOTA, after, Level.QOS, "cpu-suppress", why, WriteOutcome.WRITTEN, before=before)
        self._tell(at, lambda teller: teller.done([done], None, at))

    def evicts(self, at: float, namespace: str) -> None:
        """A pod was asked to leave."""
        eviction = Evict(namespace, "etl", "uid-etl", "BECPUEvict", "it starves")
        self._tell(at, lambda teller: teller.evicted(eviction, "asked", "", at, None))

    def _tell(self, at: float, act: Any) -> None:
        recorder = EventRecorder(self._client, NODE_AGENT, FixedClock(at))
        teller = ActionReporter(self._folder, AgentMetrics(Metrics("t", "t")), recorder, self.node, dry_run=False)
        act(teller)
        assert (recorder.flush(), recorder.error) == (1, None)
        recorder.close()
        teller.close()


@pytest.fixture
def agent(control_plane: ControlPlane, tmp_path: Path) -> Agent:
    return Agent(control_plane.client(account(control_plane, "cotenant-enforcer")), tmp_path / "state")


@pytest.fixture
def reader(control_plane: ControlPlane) -> KubeClient:
    """As who asks by `cotenant node enforcement gather`."""
    return control_plane.client(account(control_plane, "cotenant-reader"))


def mine(history: EnforcementHistory, node: str) -> list[AgentAction]:
    return [act for act in history.acts if act.node == node]


def rows(store: Store, node: str) -> list[dict[str, Any]]:
    return [row for row in store.read_table(ENFORCEMENT).rows() if row["node"] == node]


def test_what_an_agent_tells_becomes_an_act_with_all_its_parts(reader: KubeClient, agent: Agent) -> None:
    agent.quota(NOW, 400_000, 130_000)
    agent.evicts(NOW + 1, "default")
    by_reason = {act.reason: act for act in mine(ask(reader, NOW + 5), agent.node)}
    suppressed, evicted = by_reason["Suppressed"], by_reason["Evicting"]
    assert (suppressed.time_seconds, suppressed.lane, suppressed.knob, suppressed.change) == (
        NOW,
        Lane.SUPPRESS,
        "cpu.quota",
        "4 cores → 1.3 cores",
    )
    assert suppressed.why.startswith("65 % of 16000 m") and suppressed.strategy == "cpu-suppress" and not suppressed.dry
    assert (evicted.lane, evicted.pod, evicted.warning, evicted.total) == (Lane.EVICTION, "default/etl", True, 1)


def test_events_become_rows_once_and_a_series_counts_what_came_since(
    reader: KubeClient, agent: Agent, tmp_path: Path
) -> None:
    store = Store((tmp_path / "store").as_uri(), "c1")
    agent.quota(NOW, 400_000, 300_000)
    for later in (5, 10, 15):
        keep(store, ask(reader, NOW + later), Retention(NOW + later))
    assert [(row["count"], row["after"]) for row in rows(store, agent.node)] == [(1, "300000")]
    for step in range(3):  # the same series: its note stays the first's, the act is the newest's
        agent.quota(NOW + 100 * (step + 1), 300_000 - 50_000 * step, 250_000 - 50_000 * step)
    for later in (305, 310):
        keep(store, ask(reader, NOW + later), Retention(NOW + later))
    stored_rows = rows(store, agent.node)
    assert [(row["time"], row["count"], row["after"]) for row in stored_rows] == [
        (NOW + 300, 3, "150000"),
        (NOW, 1, "300000"),
    ]
    assert {row["total"] for row in stored_rows} == {1, 4} and len({row["series"] for row in stored_rows}) == 1
    gathering = store.read_document(DOCUMENT, Gathering)
    assert gathering is not None and gathering.agents and not gathering.trouble


def test_events_of_others_and_those_without_an_act_are_left_out(
    control_plane: ControlPlane, reader: KubeClient
) -> None:
    node = unique_name("plain")
    for component in ("somebody-else", NODE_AGENT):
        body = {
            "metadata": {"name": unique_name("event"), "namespace": "default"},
            "eventTime": "2026-11-19T12:00:00.000000Z",
            "reportingController": component,
            "reportingInstance": component,
            "action": "ValueSet",
            "reason": "ValueSet",
            "type": "Normal",
            "note": f"cpu-suppress sets cpu.quota of {component} to 1",
            "regarding": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        control_plane.api().create("/apis/events.k8s.io/v1/namespaces/default/events", body)
    assert not mine(ask(reader, NOW + 60), node)


@pytest.mark.server
def test_the_embedded_server_tells_the_same(tmp_path: Path) -> None:
    with EmbeddedServer() as server:
        client = connect(KubeSettings(kubeconfig=str(server.write_kubeconfig(tmp_path / "kubeconfig"))))
        embedded_agent = Agent(client, tmp_path / "state")
        embedded_agent.quota(NOW, 400_000, 130_000)
        history = ask(client, NOW + 5)
    assert [(act.reason, act.node, act.total) for act in history.acts] == [("Suppressed", embedded_agent.node, 1)]
    assert history.gathering.agents == 1


def test_without_the_right_it_is_forbidden_and_says_which_right(control_plane: ControlPlane) -> None:
    nobody = control_plane.client(control_plane.user(unique_name("nobody")))
    gathering = ask(nobody, NOW).gathering
    assert gathering.forbidden and "events" in gathering.trouble and gathering.fix


def test_agents_are_counted_by_their_pods(control_plane: ControlPlane, reader: KubeClient, namespace: str) -> None:
    def create_agent(node: str, dry: str) -> None:
        env = [{"name": "COTENANT_ENFORCER__DRY_RUN", "value": dry}]
        spec = {"nodeName": node, "containers": [{"name": "enforcer", "image": "none", "env": env}]}
        labels = {"app.kubernetes.io/name": NODE_AGENT}
        body = {"metadata": {"name": unique_name("agent"), "labels": labels}, "spec": spec}
        control_plane.api().create(f"/api/v1/namespaces/{namespace}/pods", body)

    before = ask(reader, NOW).gathering
    create_agent(unique_name("n"), "false")
    create_agent(unique_name("n"), "true")
    after = ask(reader, NOW).gathering
    assert (after.agents or 0) - (before.agents or 0) == 2 and after.dry_agents - before.dry_agents == 1


# ---- the manager's listener


@pytest.fixture
def gatherer(control_plane: ControlPlane, tmp_path: Path) -> Iterator[tuple[EnforcementCollector, Store]]:
    url = (tmp_path / "store").as_uri()
    client = control_plane.client(account(control_plane, "cotenant-manager"))
    enforcement_collector = EnforcementCollector(
        client, Settings(store=StoreSettings(url=url)), "c1", AlwaysLeads(), FixedClock(NOW + 1)
    )
    enforcement_collector._mirror.start()
    assert enforcement_collector._mirror.wait_synced(60)
    yield enforcement_collector, Store(url, "c1")
    enforcement_collector._mirror.stop()


def has_act(listener: EnforcementCollector, agent: Agent, after: str) -> bool:
    """Whether the mirror has this agent's Event with this newest value; other tests' agents talk too."""
    acts = acts_of(listener._mirror.snapshot().values(), NOW + 1000)
    return any(act.node == agent.node and act.after == after for act in acts)


def test_the_manager_keeps_what_changed_and_a_quiet_look_now_and_then(
    gatherer: tuple[EnforcementCollector, Store], agent: Agent
) -> None:
    listener, store = gatherer
    agent.quota(NOW, 400_000, 300_000)
    wait_for("the Event in the mirror", lambda: has_act(listener, agent, "300000"))
    assert listener.collect()
    assert [row["after"] for row in rows(store, agent.node)] == ["300000"]
    assert not listener.collect()  # nothing new, and somebody looked a moment ago
    agent.quota(NOW + 100, 300_000, 200_000)
    wait_for("the change", lambda: has_act(listener, agent, "200000"))
    listener._clock = FixedClock(NOW + 101)
    assert listener.collect()
    assert [row["after"] for row in rows(store, agent.node)] == ["200000", "300000"]
    listener._clock = FixedClock(NOW + 101 + QUIET_SECONDS)
    assert listener.collect()
    gathering = store.read_document(DOCUMENT, Gathering)
    assert gathering is not None and gathering.gathered_seconds == NOW + 101 + QUIET_SECONDS


def test_what_could_not_be_kept_is_handed_on_again(
    gatherer: tuple[EnforcementCollector, Store], agent: Agent, tmp_path: Path
) -> None:
    listener, store = gatherer
    (tmp_path / "store").write_text("a file where the store's folder should be")
    agent.quota(NOW, 400_000, 300_000)
    wait_for("the Event in the mirror", lambda: has_act(listener, agent, "300000"))
    assert not listener.collect()
    (tmp_path / "store").unlink()
    assert listener.collect()
    assert len(rows(store, agent.node)) == 1


def test_what_was_heard_before_the_server_fell_silent_is_handed_on_when_it_is_back(
    gatherer: tuple[EnforcementCollector, Store], agent: Agent
) -> None:
    listener, store = gatherer
    agent.quota(NOW, 400_000, 300_000)
    wait_for("the Event in the mirror", lambda: has_act(listener, agent, "300000"))
    listener._mirror.stop()
    listener._mirror.error = ClusterUnreachable("no complete answer")
    assert listener.collect()  # the trouble is kept
    assert (store.read_document(DOCUMENT, Gathering) or Gathering(0.0)).trouble == "no complete answer"
    listener._mirror.error = None
    assert listener.collect()
    assert [row["after"] for row in rows(store, agent.node)] == ["300000"]


@pytest.mark.parametrize("ended_by", ["the manager's end", "its time"])
def test_a_child_whose_store_never_answers_holds_nobody_up(
    gatherer: tuple[EnforcementCollector, Store], monkeypatch: pytest.MonkeyPatch, ended_by: str
) -> None:
    listener, _ = gatherer
    monkeypatch.setattr(collector, "CHILD", ("-c", "import sys, time; sys.stdin.read(1); time.sleep(600)"))
    if ended_by == "its time":
        monkeypatch.setattr(collector, "CHILD_SECONDS", 0.0)
    else:
        threading.Timer(1.0, listener._stopping.set).start()
    began = time.monotonic()
    assert not listener.collect()
    assert time.monotonic() - began < 60
    assert listener.kept == 0


# ---- what stands in an Event is not believed further than it must be


TEXT = st.text(max_size=40)


@settings(max_examples=60, deadline=None)
@given(st.one_of(TEXT, st.just("{}"), st.builds(json.dumps, st.dictionaries(TEXT, TEXT, max_size=3))))
def test_an_event_whose_annotation_is_no_act_is_left_out(text: str) -> None:
    assert not list(acts_of([event(text)], NOW))


@settings(max_examples=40, deadline=None)
@given(st.floats(-1e18, 1e18), st.text(max_size=20), st.integers(-5, 5))
def test_an_act_of_an_annotation_is_bounded(at: float, word: str, count: int) -> None:
    action = AgentAction(at, word * 400, Lane.BURST, word * 400, word * 400, pod=word * 400, count=count)
    (act,) = acts_of([event(msgspec.json.encode(action).decode())], NOW)
    assert 0 < act.time_seconds <= NOW + EARLY_SECONDS and act.count == 1
    assert max(len(act.why), len(act.node), len(act.reason), len(act.pod)) <= LETTERS
    # A moment that may be is kept, any other is the Event's own.
    assert act.time_seconds == (at if 0 < at <= NOW + EARLY_SECONDS else NOW - 60)


def event(annotation: str) -> EventWire:
    body = {
        "metadata": {"uid": "uid-1", "annotations": {ACT_ANNOTATION: annotation}},
        "eventTime": "2026-11-19T11:00:00.000000Z",
        "series": {"count": 4, "lastObservedTime": "2026-11-19T11:59:00.000000Z"},
        "reportingController": NODE_AGENT,
    }
    return msgspec.convert(body, EventWire)


def test_an_event_of_somebody_else_is_no_act() -> None:
    assert not list(acts_of([msgspec.structs.replace(event("{}"), reporting_controller="x")], NOW))
