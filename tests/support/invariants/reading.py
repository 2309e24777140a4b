"""EDGE: a run's records from files: audit log (JSON lines), ledger (SQLite), state folders of node agents."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from tests.support.invariants.objects import Objects
from tests.support.invariants.records import ApiWrite, CgroupValue, LedgerEntry, Recording

CREDENTIAL: Final = "authentication.kubernetes.io/credential-id"
AUDIT_POLICY: Final[dict[str, Any]] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "omitManagedFields": True,
    "rules": [
        {"level": "Metadata", "resources": [{"group": "", "resources": ["secrets", "serviceaccounts/token"]}]},
        {"level": "RequestResponse", "verbs": ["create", "update", "patch", "delete", "deletecollection"]},
    ],
}
"""What the API server has to write down: every write with its body and its answer, of secrets that there was one."""
_WRITING: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})


@dataclass(frozen=True, slots=True)
class AgentFiles:
    """Where a node agent left its notes and its log.

    present: the value of a knob of a cgroup now, None where the cgroup is gone.
    """

    node: str
    state: Path
    present: Callable[[str, str], str | None]


def auditing(folder: Path) -> tuple[Path, tuple[str, ...]]:
    """The audit log that an API server with these arguments writes; its policy lies beside it."""
    policy, log = folder / "audit-policy.json", folder / "audit.log"
    policy.write_text(json.dumps(AUDIT_POLICY))
    return log, (f"--audit-policy-file={policy}", f"--audit-log-path={log}")


def recording(audit: Path | None = None, ledger: Path | None = None, agents: Iterable[AgentFiles] = ()) -> Recording:
    """Everything that was written down; what is not given is empty, and then nothing is said about it.

    audit: the log that is being written; parts that the API server set aside, one each 100 MB, are read before it.
    """
    writes = tuple(api_writes(line for part in _parts(audit) for line in _whole_lines(part))) if audit else ()
    rows = tuple(_rows(ledger)) if ledger else ()
    end = max((*(write.answered_seconds for write in writes), *(row.seconds for row in rows)), default=0.0)
    return Recording(writes, rows, tuple(value for files in agents for value in _values(files)), end)


def api_writes(lines: Iterable[str]) -> Iterator[ApiWrite]:
    """Writes that were carried out, of the lines of an audit log, in the order of their answers."""
    events = (json.loads(line) for line in lines)
    done = [
        event
        for event in events
        if event["verb"] in _WRITING and event.get("stage") == "ResponseComplete" and _carried_out(event)
    ]
    objects = Objects()
    for event in sorted(done, key=lambda event: _seconds(event["stageTimestamp"])):
        yield _write(event, objects.after(event))


def _carried_out(event: dict[str, Any]) -> bool:
    return (event.get("responseStatus") or {}).get("code", 0) < 300 and "dryRun=" not in event.get("requestURI", "")


def _write(event: dict[str, Any], stored: dict[str, Any]) -> ApiWrite:
    target, user = event.get("objectRef") or {}, event.get("user") or {}
    parts = (target.get("resource", ""), target.get("subresource", ""))
    return ApiWrite(
        asked_seconds=_seconds(event["requestReceivedTimestamp"]),
        answered_seconds=_seconds(event["stageTimestamp"]),
        account=user.get("username", ""),
        credential=next(iter((user.get("extra") or {}).get(CREDENTIAL, ())), ""),
        verb=event["verb"],
        resource="/".join(part for part in parts if part),
        namespace=target.get("namespace", ""),
        name=target.get("name") or (stored.get("metadata") or {}).get("name", ""),
        sent=_object(event.get("requestObject")),
        stored=stored,
    )


def _object(body: Any) -> dict[str, Any]:
    """The request's body; a JSON patch is a list, of which the answer says all that is needed."""
    return body if isinstance(body, dict) else {}


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()


def _parts(log: Path) -> list[Path]:
    """The parts of a log from the oldest on; the moment at which one was set aside is in its name."""
    return [*sorted(log.parent.glob(f"{log.stem}-*{log.suffix}")), log]


def _whole_lines(log: Path) -> list[str]:
    """Lines of a log that may still be being written."""
    return log.read_text().rpartition("\n")[0].splitlines()


def _rows(path: Path) -> Iterator[LedgerEntry]:
    """The ledger by plain SQL, without the code that wrote it."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
        for row in db.execute("SELECT seconds, event, subject, actor FROM entries ORDER BY seq"):
            yield LedgerEntry(*row)


def _values(files: AgentFiles) -> Iterator[CgroupValue]:
    """Of each value that an agent set: what its notes say, else what its action log says, and what is there now."""
    notes = files.state / "originals.json"
    noted: set[tuple[str, str]] = set()
    for note in json.loads(notes.read_text())["notes"] if notes.exists() else ():
        place = (note["path"], note["knob"])
        noted.add(place)
        written = tuple(str(value) for value in note["written"])
        yield CgroupValue(files.node, *place, str(note["original"]), written, files.present(*place))
    for place, (original, last) in sorted(_logged(files.state).items()):
        if place not in noted:
            yield CgroupValue(files.node, *place, original, (last,), files.present(*place), noted=False)


def _logged(state: Path) -> dict[tuple[str, str], tuple[str, str]]:
    """Of each place whose last action is a write: the value before the first one, and the last one's."""
    original_values: dict[tuple[str, str], tuple[str, str]] = {}
    for name in ("actions.jsonl.1", "actions.jsonl"):
        for line in _whole_lines(state / name) if (state / name).exists() else ():
            action = json.loads(line)
            place = (action["subject"], action.get("knob", ""))
            if action["outcome"] == "restored":
                original_values.pop(place, None)
            elif action["outcome"] == "written" and action.get("before") is not None:
                original = original_values.get(place, (str(action["before"]), ""))[0]
                original_values[place] = (original, str(action["value"]))
    return original_values
