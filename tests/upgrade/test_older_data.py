"""What an older version wrote is read by this one: no row is lost, and going on with it keeps the rest."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from cotenant.base.ledger.chain import Anchor
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.process.clock import SystemClock
from cotenant.base.store import Store
from cotenant.changes.change_ledger import ChangeLedger
from cotenant.changes.model.change import ChangeState
from cotenant.changes.snooze import postponed_recommendations
from cotenant.enforcer.apply.journal import OriginalValues
from cotenant.enforcer.apply.resctrlfs import ResctrlKeeper
from cotenant.enforcer.apply.sysctl import SysctlKeeper
from cotenant.enforcer.contract import Knob, Level
from cotenant.enforcer.decide.changes import OriginalValue
from cotenant.enforcer.decide.registry import strategies
from cotenant.enforcer.report.recorder import replay_recording
from cotenant.enforcer.settings.agent import EnforcerSettings
from cotenant.enforcer.sources.last_known import LastInputsFile
from tests.support import store as examples

WRITTEN = Path(__file__).parent / "written_by_9b5fac1"
NAN = float("nan")


def no_tasks(path: str) -> tuple[int, ...]:
    """Threads of a cgroup: none."""
    return ()


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """The older version's data, to go on with."""
    return Path(shutil.copytree(WRITTEN, tmp_path / "older"))


def test_usage_inventory_and_results_of_an_older_store_are_whole_and_grow(older: Path) -> None:
    store = Store((older / "store").as_uri(), "prod")
    read = store.read(examples.REQUEST, examples.GRID)
    expected = np.array([[1.5] * 48, [2.5] * 24 + [NAN] * 6 + [9.0] + [NAN] * 17], dtype=np.float32)
    assert [ref.pod for ref in read.refs] == ["a", "b"]
    assert np.array_equal(read.values, expected, equal_nan=True)
    assert store.read_inventory() == examples.INVENTORY
    assert repr(store.read_quality()) == repr((examples.QUALITY,))
    assert [row["name"] for row in store.read_table(examples.SCHEMA).rows()] == ["web", "api"]
    assert repr(store.read_document("line", examples.Line)) == repr(
        examples.Line([1.0, NAN], [[]], {"0.5": [2.0]}, 3.0, None)
    )
    later = examples.MIDNIGHT + 31 * examples.HOUR
    store.append(examples.REQUEST, examples.usage_of(examples.REQUEST, later, [[4.0]], ["b"]))
    store.compact()
    expected[1, 31] = 4.0
    assert np.array_equal(store.read(examples.REQUEST, examples.GRID).values, expected, equal_nan=True)
    assert store.holes() == ()


def test_every_row_of_an_older_ledger_is_there_and_its_chain_goes_on(older: Path) -> None:
    head = Anchor(**json.loads((older / "head.json").read_text()))
    ledger = Ledger(older / "ledger.db")
    journal = ChangeLedger(ledger, SystemClock(), "bob@example.org")
    assert {name: one.state for name, one in journal.statuses().items()} == {
        "c1": ChangeState.VERIFIED,
        "c2": ChangeState.FAILED,
    }
    [write] = journal.statuses()["c1"].change.writes
    assert (write.before, write.after) == ({"/spec/x": "500m"}, {"/spec/x": "250m"})
    assert [str(workload) for workload in postponed_recommendations(ledger, 0.0)] == ["shop/Deployment/api"]
    journal.note([("postponed", "shop/Deployment/web", {"until_seconds": None, "reason": "too"})])
    checked = ledger.verify(head)
    assert (checked.rows, checked.wrong_seq) == (head.seq + 1, None)
    ledger.close()


def test_an_older_agents_notes_are_taken_over_and_given_back(older: Path, tmp_path: Path) -> None:
    state = older / "agent"
    with OriginalValues(state, "boot-1") as journal:
        assert list(journal.notes.values()) == [
            OriginalValue("kubepods/besteffort", Knob.CPU_QUOTA, Level.QOS, -1, (50_000,), "suppress")
        ]
        assert journal.complaints == ()
    sysctl = tmp_path / "sys/vm/min_free_kbytes"
    sysctl.parent.mkdir(parents=True)
    sysctl.write_text("80000\n")
    assert SysctlKeeper(state, tmp_path / "sys").restore() == []
    assert sysctl.read_text() == "67584"
    (tmp_path / "resctrl/BE").mkdir(parents=True)
    assert ResctrlKeeper(state, no_tasks, tmp_path / "resctrl").restore() == []
    assert list((tmp_path / "resctrl").iterdir()) == []


def test_an_older_agents_last_inputs_and_recording_are_read(older: Path) -> None:
    file = LastInputsFile(older / "agent", "boot-1", "n1")
    last = file.load(now=200.0)
    assert file.problem == ""
    assert last.policy is not None and last.policy.thresholds.cpu_suppress_policy == "cfsQuota"
    assert [pod.name for pod in last.pods or ()] == ["etl"]
    ticks = list(replay_recording(older / "agent/observations.jsonl", strategies(EnforcerSettings())))
    assert [tick.same for tick in ticks] == [True] * 3
    assert any(tick.decided.wants for tick in ticks)
