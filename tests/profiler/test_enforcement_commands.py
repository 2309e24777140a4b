"""`cotenant node enforcement`: logs and recordings of agents into a store, and the same rows as the page from it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cotenant.base.commands.session import CliSession
from cotenant.base.errors import UsageError
from cotenant.base.logs.metrics import Metrics
from cotenant.base.process.clock import SystemClock
from cotenant.base.store import Store
from cotenant.cli.registry import PROVIDERS
from cotenant.dashboard.sources.source import StoreSource
from cotenant.enforcer.contract import Knob, Level
from cotenant.enforcer.decide.changes import Done, WriteOutcome
from cotenant.enforcer.decide.loop import Memory, decide
from cotenant.enforcer.decide.registry import strategies
from cotenant.enforcer.model.enforcement import Gathering
from cotenant.enforcer.model.enforcement_tables import ENFORCEMENT, ENFORCEMENT_LANES, lanes_of
from cotenant.enforcer.report.action_log import LOG_FILE, ActionReporter, AgentMetrics
from cotenant.enforcer.report.recorder import TickRecorder
from cotenant.enforcer.settings import EnforcerSettings
from cotenant.profiler.enforcement.commands import app
from cotenant_lab.simulation.api_server import EmbeddedServer
from tests.enforcer.test_recording import AGES, ON, TIERS, KubeQos, moments
from tests.support import dashboard as support

TIER = TIERS[KubeQos.BEST_EFFORT]


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A store of its own, no settings of the user's."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("COTENANT_CONFIG", raising=False)
    yield (tmp_path / "store").as_uri()


def run(*argv: str) -> Result:
    return CliRunner().invoke(app, argv, obj=CliSession(providers=PROVIDERS))


def log_of(folder: Path, *, dry_run: bool = False, node: str = "n1") -> Path:
    """An agent's own log of one minute."""
    folder.mkdir()
    teller = ActionReporter(folder, AgentMetrics(Metrics("t", "t")), None, node, dry_run)
    now = SystemClock().now_seconds() - 600
    outcome = WriteOutcome.WOULD_WRITE if dry_run else WriteOutcome.WRITTEN
    for step in range(3):
        done = Done(
            TIER, Knob.CPU_QUOTA, 300_000 - step, Level.QOS, "cpu-suppress", "so", outcome, before=300_001 - step
        )
        teller.done([done], None, now + 20 * step)
    teller.close()
    return folder / LOG_FILE


def acts(url: str, cluster: str = "default") -> list[dict[str, Any]]:
    return list(Store(url, cluster).read_table(ENFORCEMENT).rows())


def test_an_agent_s_log_is_imported_once(tmp_path: Path, url: str) -> None:
    log = log_of(tmp_path / "a")
    for _ in range(2):
        assert run("import", str(log), "--store", url).exit_code == 0
    imported = acts(url)
    assert [(r["node"], r["reason"], r["mode"]) for r in imported] == [("n1", "Suppressed", "real")] * 3
    gathering = Store(url, "default").read_document("enforcement", Gathering)
    assert gathering is not None and (gathering.agents, gathering.sources) == (1, ("import of actions.jsonl",))


def test_logs_of_several_nodes_and_of_a_dry_run_stand_side_by_side(tmp_path: Path, url: str) -> None:
    logs = [log_of(tmp_path / "a"), log_of(tmp_path / "b", dry_run=True, node="n2")]
    assert run("import", *map(str, logs), "--store", url).exit_code == 0
    assert {(r["node"], r["mode"]) for r in acts(url)} == {("n1", "real"), ("n2", "dry-run")}


def test_a_log_of_an_older_agent_needs_the_node_s_name(tmp_path: Path, url: str) -> None:
    log = log_of(tmp_path / "a")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    log.write_text("".join(json.dumps({k: v for k, v in line.items() if k != "node"}) + "\n" for line in lines))
    refused = run("import", str(log), "--store", url)
    assert refused.exit_code != 0 and "line 1 does not name its node" in str(refused.exception)
    assert run("import", str(log), "--node", "n9", "--store", url).exit_code == 0
    assert {r["node"] for r in acts(url)} == {"n9"}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("nonsense\n", "line 1"),
        ('{"time": 3}\n', "line 1"),
        ('{"time": 3', "line 1"),
        ("[" * 100_000, "line 1"),
        ('{"version": 1', "line 1"),
    ],
)
def test_what_is_no_log_is_refused_by_line(tmp_path: Path, url: str, text: str, word: str) -> None:
    (tmp_path / "x").write_text(text)
    refused = run("import", str(tmp_path / "x"), "--store", url)
    assert refused.exit_code != 0 and word in str(refused.exception)
    assert isinstance(refused.exception, UsageError) and refused.exception.fix
    assert run("import", str(tmp_path / "gone"), "--store", url).exit_code != 0


def test_a_line_that_is_being_written_is_left_for_the_next_time(tmp_path: Path, url: str) -> None:
    log = log_of(tmp_path / "a")
    log.write_text(log.read_text()[:-10])
    done = run("import", str(log), "--store", url)
    assert done.exit_code == 0 and "line 3 is incomplete and was skipped" in done.output
    assert len(acts(url)) == 2


def test_a_recording_is_decided_again_and_told_as_a_dry_run_with_its_cpu(tmp_path: Path, url: str) -> None:
    path, running, memory = tmp_path / "seen.jsonl", strategies(EnforcerSettings()), Memory()
    recorder = TickRecorder(path, 1 << 30)
    for tick in moments(20):
        before = memory
        decided, memory = decide(tick, ON, before, running, AGES)
        recorder.record(tick, ON, decided, before, AGES)
    recorder.close()
    done = run("import", str(path), "--store", url)
    # The recording is of 2023; a ring of a week would not keep it.
    assert done.exit_code == 0 and "days of manager.enforcement_days" in done.output
    assert acts(url) == []
    from cotenant.profiler.enforcement.commands import recount_recording
    from cotenant.settings import Settings

    history = recount_recording(path, Settings())
    assert {act.dry for act in history.acts} == {True}
    # 65 % of 4 cores without 300 m of others (1200 in all, 900 of them best effort).
    quota = next(act for act in history.acts if act.knob == "cpu.quota" and act.subject == TIER)
    assert quota.after == "230000" and quota.strategy == "cpu-suppress"
    (lane,) = history.lanes
    assert lane.values["target"][0] == 2300 and lane.dry and len(lane.values["others"]) == 20


def test_the_list_has_the_page_s_rows_under_the_page_s_filters(tmp_path: Path, url: str) -> None:
    logs = [log_of(tmp_path / "a"), log_of(tmp_path / "b", dry_run=True, node="n2")]
    run("import", *map(str, logs), "--store", url)
    shown = run("list", "--store", url, "--filter", "mode=real&sort=time", "-o", "json")
    rows = json.loads(shown.stdout)
    source = StoreSource(Store(url, "default"), support.QUICK)
    snapshot = source.snapshot()
    from cotenant.base.tables import filters

    row_numbers = snapshot.rows(ENFORCEMENT.name, filters.parse("mode=real&sort=time", ENFORCEMENT))
    expected = list(snapshot.tables[ENFORCEMENT.name].take(row_numbers).rows())
    assert [row["id"] for row in (rows["rows"] if isinstance(rows, dict) else rows)] == [row["id"] for row in expected]


def test_a_list_of_nothing_says_what_to_do(url: str) -> None:
    Store(url, "default").write_document("something", {})
    refused = run("list", "--store", url)
    assert refused.exit_code != 0 and "no actions of node agents" in str(refused.exception)


@pytest.mark.server
def test_gathering_from_a_cluster_begins_a_store_of_its_own(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedServer() as server:
        monkeypatch.setenv("KUBECONFIG", str(server.write_kubeconfig(tmp_path / "kubeconfig")))
        done = run("gather", "--store", url, "--cluster", "c1")
    assert done.exit_code == 0
    gathering = Store(url, "c1").read_document("enforcement", Gathering)
    assert gathering is not None and not gathering.trouble and gathering.agents in (None, 0)


@pytest.mark.slow
@pytest.mark.server
def test_a_cluster_that_does_not_answer_is_told_and_kept_as_such(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedServer() as server:
        monkeypatch.setenv("KUBECONFIG", str(server.write_kubeconfig(tmp_path / "kubeconfig")))
    refused = run("gather", "--store", url, "--cluster", "c1")
    assert refused.exit_code != 0
    gathering = Store(url, "c1").read_document("enforcement", Gathering)
    assert gathering is not None and gathering.trouble and not gathering.forbidden


def test_the_store_of_lanes_gives_back_what_it_was_given(url: str) -> None:
    from tests.support.enforcement import fill, lanes

    store = Store(url, "c1")
    fill(store, 1_795_089_600.0)
    row = next(r for r in store.read_table(ENFORCEMENT_LANES).rows() if r["node"] == "node-000")
    assert lanes_of(row).values["others"] == lanes(1_795_089_600.0).values["others"]
