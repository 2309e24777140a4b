"""Writes with an older version of cotenant what `written_by_9b5fac1/` holds; run in that version's own tree.

    git archive 9b5fac1 | tar -x -C OLD && cd OLD
    PYTHONPATH=OLD python tests/upgrade/record_older.py FOLDER      (this file, with the older tree first on the path)

The names imported here are those of that commit (2026-11-21, before the packages moved). Every file is written by that
version's own code; the test needs neither git nor the older tree.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from enforcer.changes import Note  # type: ignore[import-not-found]
from enforcer.journal import Journal as Originals  # type: ignore[import-not-found]
from enforcer.loop import Ages, Memory, decide  # type: ignore[import-not-found]
from enforcer.recalling import Known, KnownFile  # type: ignore[import-not-found]
from enforcer.recording import Recorder  # type: ignore[import-not-found]
from enforcer.registry import strategies  # type: ignore[import-not-found]
from enforcer.resctrlfs import ResctrlKeeper  # type: ignore[import-not-found]
from enforcer.surfaces import ResctrlGroup, text_of  # type: ignore[import-not-found]
from enforcer.sysctl import SysctlKeeper  # type: ignore[import-not-found]

from cotenant.actions.journal import Journal  # type: ignore[import-not-found]
from cotenant.edges.ledger import Ledger  # type: ignore[import-not-found]
from cotenant.edges.store import Store  # type: ignore[import-not-found]
from cotenant.model.change import Change, Happened, Write  # type: ignore[import-not-found]
from cotenant.model.intent import Address  # type: ignore[import-not-found]
from cotenant.model.table import Table  # type: ignore[import-not-found]
from cotenant.settings.enforcer import EnforcerSettings  # type: ignore[import-not-found]
from enforcer.contract import (
    Knob,
    KubeQos,
    Level,
    Observation,
    PodSpec,
    Surface,
    SurfaceWant,
)
from tests.enforcer.readings import container, node, pod, policy, seen
from tests.support import store as examples


class FixedClock:
    """A clock that stands."""

    def now_seconds(self) -> float:
        return 1_750_032_000.0


def record_store(folder: Path) -> None:
    """Three days of usage, the last one as a part; inventory, quality, a result table and a document."""
    store = Store((folder / "store").as_uri(), "prod")
    values = [[1.5] * 48, [2.5] * 24 + [float("nan")] * 24]
    store.append(examples.REQUEST, examples.usage_of(examples.REQUEST, examples.MIDNIGHT, values, ["a", "b"]))
    later = examples.MIDNIGHT + 30 * examples.HOUR
    store.append(examples.REQUEST, examples.usage_of(examples.REQUEST, later, [[9.0]], ["b"]))
    store.write_inventory(examples.INVENTORY)
    store.append_quality(examples.QUALITY)
    rows = [{"name": "web", "amount": 250, "line": (1.0, 2.0)}, {"name": "api", "amount": None, "line": ()}]
    store.write_table(Table.from_rows(examples.SCHEMA, rows))
    store.write_document("line", examples.Line([1.0, float("nan")], [[]], {"0.5": [2.0]}, 3.0, None))


def record_ledger(folder: Path) -> None:
    """A change that was applied and verified, one that was refused, a note, and the signed head."""
    ledger = Ledger(folder / "ledger.db")
    journal = Journal(ledger, FixedClock(), "ann@example.org")
    address = Address("apps/v1", "deployments", "web", "shop")
    operations = ({"op": "replace", "path": "/spec/x", "value": "250m"},)
    write = Write(address, "uid-1", operations, {"/spec/x": "500m"}, {"/spec/x": "250m"})
    changes = [
        Change(name, "b1", "shop", "Deployment", "web", "ann@example.org", ("team",), "template", "digest", (write,))
        for name in ("c1", "c2")
    ]
    journal.accept(changes)
    statuses = journal.statuses()
    applied = journal.tell(statuses["c1"], Happened.APPLIED, "done")
    journal.tell(applied, Happened.VERIFIED, "no harm")
    journal.tell(statuses["c2"], Happened.REFUSED, "forbidden")
    journal.note([("postponed", "shop/Deployment/api", {"until_seconds": None, "reason": "a season's peak"})])
    head = ledger.head()
    (folder / "head.json").write_text(json.dumps({"seq": head.seq, "hash": head.hash, "signature": head.signature}))
    ledger.close()


def record_agent(folder: Path) -> None:
    """The state folder of a node agent: originals, last inputs, kernel settings, resctrl groups, a recording."""
    state = folder / "agent"
    state.mkdir()
    with Originals(state, "boot-1") as journal:
        path = "kubepods/besteffort"
        note = Note(path, Knob.CPU_QUOTA, Level.QOS, -1, (50_000,), "suppress")
        journal.save({note.place: note})
    on = policy({"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressPolicy": "cfsQuota"}})
    etl = PodSpec("default", "etl", "u-etl", kube_qos=KubeQos.BEST_EFFORT, phase="Running", owner=("Job", "etl"))
    KnownFile(state, "boot-1", "n1").save(Known(on, 100.0, "NodeSLO", (etl,), 90.0))
    sysctl = folder / "proc-sys"
    (sysctl / "vm").mkdir(parents=True)
    (sysctl / "vm/min_free_kbytes").write_text("67584\n")
    wants = [SurfaceWant(Surface.SYSCTL, "vm/min_free_kbytes", "80000", "system", "because")]
    assert SysctlKeeper(state, sysctl).apply(wants) == []
    resctrl = folder / "resctrl"
    resctrl.mkdir()
    (resctrl / "schemata").write_text("L3:0=7ff\n")
    group = [SurfaceWant(Surface.RESCTRL, "BE", text_of(ResctrlGroup((), ())), "resctrl", "because")]
    ResctrlKeeper(state, lambda _: (), resctrl).apply(group)
    record_observations(state / "observations.jsonl", on)


def record_observations(path: Path, on: object) -> None:
    """Three ticks with the decisions of that version."""
    running, ages, memory = strategies(EnforcerSettings()), Ages(), Memory()
    recorder = Recorder(path, 1 << 20)
    web = pod("web", container())
    batch = pod("etl", container(), kube=KubeQos.BEST_EFFORT)
    for tick in range(3):
        observation: Observation = seen(web, batch, machine=node(4, 1200.0), at=float(tick))
        decided, after = decide(observation, on, memory, running, ages)
        recorder.record(observation, on, decided, memory, ages)
        memory = after
    recorder.close()


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True)
    record_store(target)
    record_ledger(target)
    record_agent(target)
