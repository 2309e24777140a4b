"""EDGE: the last inputs on disk, for an agent that starts while the API server is unreachable.

    Recalling(ApiSources(...), LastInputsFile(folder, boot_id, node))  --read()-->  AgentInputs

Policy, pods and Node are saved when they change, and every REFRESH_SECONDS while they are confirmed. An agent that has
not received one of them yet uses the file's, with its true age by the monotonic clock, which continues from one process
to the next until a reboot. So an old policy is given up as if the agent had never ended. A file of another boot or node
is ignored; one of a newer version is reported and not used; an unreadable one is renamed and reported.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.observed import ObservedNode
from cotenant.base.process.files import replace_atomically
from cotenant.enforcer.apply.atomic_write import UNUSABLE, set_aside
from cotenant.enforcer.contract import PodSpec
from cotenant.enforcer.model.node_policy import NodePolicy
from cotenant.enforcer.sources.sources import NEVER, AgentInputs, Sources

FILE: Final = "known.json"
VERSION: Final = 1
"""Raise it when the meaning of a field changes; a file without it is of version 1."""
SIZE_CAP_BYTES: Final = 64 << 20
SAVE_SECONDS: Final = 5.0
"""Shortest time between two writes."""
REFRESH_SECONDS: Final = 30.0
"""Time after which an unchanged file is written again."""


class LastInputs(msgspec.Struct, frozen=True):
    """The newest inputs; `_at` fields are when each was last confirmed (monotonic seconds); None = never received."""

    policy: NodePolicy | None = None
    policy_at: float = 0.0
    policy_origin: str = ""
    pods: tuple[PodSpec, ...] | None = None
    pods_at: float = 0.0
    node: ObservedNode | None = None


class _LastInputsRecord(msgspec.Struct, frozen=True):
    boot: str
    node_name: str
    known: msgspec.Raw = msgspec.Raw(b"{}")
    """LastInputs, read once the version is known."""
    version: int = 1


class LastInputsFile:
    """The file of the last inputs; `problem` says why it cannot be used now, or is empty."""

    def __init__(self, folder: Path, boot_id: str, node_name: str) -> None:
        self._path, self._boot, self._node = folder / FILE, boot_id, node_name
        self.problem = ""

    def load(self, now: float) -> LastInputs:
        """Return the inputs that the previous agent saved; empty if there are none for this boot and node."""
        try:
            with self._path.open("rb") as stream:
                raw = stream.read(SIZE_CAP_BYTES + 1)
            if len(raw) > SIZE_CAP_BYTES:
                raise UsageError(f"the file is larger than {SIZE_CAP_BYTES} bytes")
            record = msgspec.json.decode(raw, type=_LastInputsRecord)
            if not self._boot or (record.boot, record.node_name) != (self._boot, self._node):
                return LastInputs()
            if record.version > VERSION:
                self.problem = (
                    f"{self._path} was written by a newer agent (version {record.version}, this agent knows {VERSION}):"
                    " the file is not used, and the next inputs replace it"
                )
                return LastInputs()
            last = msgspec.json.decode(record.known, type=LastInputs)
            if max(last.policy_at, last.pods_at) > now:
                raise UsageError("the recorded time is ahead of this machine's clock")
            return last
        except FileNotFoundError:
            return LastInputs()
        except UNUSABLE as bad:
            self.problem = set_aside(self._path, bad)
            return LastInputs()

    def save(self, last: LastInputs) -> None:
        """Replace the file without fsync, because after a power failure the file would not be used anyway."""
        try:
            encoded_inputs = msgspec.Raw(msgspec.json.encode(last))
            record = _LastInputsRecord(self._boot, self._node, encoded_inputs, VERSION)
            replace_atomically(self._path, msgspec.json.encode(record), on_disk=False)
        except OSError as refused:
            self.problem = f"{self._path} cannot be written: {refused.strerror}"
        else:
            self.problem = ""


class Recalling(Sources):
    """Sources that fall back to the last known inputs; one thread uses them, except for `start` and `stop`."""

    inner: Sources

    def __init__(self, inner: Sources, file: LastInputsFile, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.inner, self._file, self._monotonic = inner, file, monotonic
        self._known = self._saved = LastInputs()
        self._saved_at = -NEVER

    def start(self) -> None:
        """Read the file, and start the threads that keep the inputs up to date."""
        self._known = self._saved = self._file.load(self._monotonic())
        super().start()

    def read(self) -> AgentInputs:
        """Return the present inputs, with those saved by the previous agent in place of inputs not received yet."""
        inputs, now = self.inner.read(), self._monotonic()
        self._known = newest(self._known, inputs, now)
        if now - self._saved_at >= SAVE_SECONDS and worth_saving(self._known, self._saved):
            self._file.save(self._known)
            self._saved, self._saved_at = self._known, now
        notes = (*inputs.notes, *([self._file.problem] if self._file.problem else []))
        return restore_last_known(replace(inputs, notes=notes), self._known, now)


def newest(last: LastInputs, inputs: AgentInputs, now: float) -> LastInputs:
    """Return the last known inputs, updated with the inputs that the sources have now."""
    changes: dict[str, Any] = {}
    if inputs.policy is not None and inputs.policy_age_seconds != NEVER:
        at = now - inputs.policy_age_seconds
        changes |= {"policy": inputs.policy, "policy_at": at, "policy_origin": inputs.policy_origin}
    if inputs.pods_age_seconds != NEVER:
        changes |= {"pods": inputs.pods, "pods_at": now - inputs.pods_age_seconds}
    if inputs.node.uid:
        changes["node"] = inputs.node
    return msgspec.structs.replace(last, **changes) if changes else last


def worth_saving(current: LastInputs, saved: LastInputs) -> bool:
    """Return whether the inputs differ from the saved ones, or were confirmed much later than the saved ones."""
    confirmed = max(current.policy_at - saved.policy_at, current.pods_at - saved.pods_at)
    return (
        confirmed >= REFRESH_SECONDS
        or current.policy != saved.policy
        or (current.pods is not saved.pods and current.pods != saved.pods)
        or current.node != saved.node
    )


def restore_last_known(inputs: AgentInputs, last: LastInputs, now: float) -> AgentInputs:
    """Return the inputs, with the last known ones in place of inputs that the sources have not received yet."""
    changes: dict[str, Any] = {}
    if inputs.policy is None and last.policy is not None:
        origin = f"{last.policy_origin}, as known before this agent started"
        changes |= {"policy": last.policy, "policy_age_seconds": now - last.policy_at, "policy_origin": origin}
    if inputs.pods_age_seconds == NEVER and last.pods is not None:
        changes |= {"pods": last.pods, "pods_age_seconds": now - last.pods_at}
    if changes and not inputs.node.uid and last.node is not None:  # else the API server says that there is none
        changes["node"] = last.node
    what = tuple(name for name in ("policy", "pods") if name in changes)
    return replace(inputs, **changes, recalled=what) if changes else inputs
