"""EDGE: what the API server last said, on disk: an agent that starts while it is away goes on by it.

    Recalling(ApiSources(...), KnownFile(folder, boot_id, node))  --read()-->  Told

Policy, pods and Node are written when they changed, and once in REFRESH_SECONDS while they are confirmed. An agent that
has not heard one of them yet answers with the file's, under its true age: by the monotonic clock, which goes on from
one process to the next until the machine boots. So an old policy is given up as if the agent had never ended. A file of
another boot or another node is nothing; one that cannot be used is set aside and told of.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from cotenant.model.errors import UsageError
from cotenant.model.node_policy import NodePolicy
from enforcer.contract import PodSpec
from enforcer.sources import NEVER, Sources, Told
from enforcer.whole_files import UNUSABLE, replace_whole, set_aside
from enforcer.wire import NodeFacts

FILE: Final = "known.json"
SIZE_CAP_BYTES: Final = 64 << 20
SAVE_SECONDS: Final = 5.0
"""Between two writes at least."""
REFRESH_SECONDS: Final = 30.0
"""An unchanged file is this much too old at most."""


class Known(msgspec.Struct, frozen=True):
    """The newest that was heard; `_at`: when it was last confirmed, monotonic seconds; None = never heard."""

    policy: NodePolicy | None = None
    policy_at: float = 0.0
    policy_origin: str = ""
    pods: tuple[PodSpec, ...] | None = None
    pods_at: float = 0.0
    node: NodeFacts | None = None


class _File(msgspec.Struct, frozen=True):
    boot: str
    node_name: str
    known: Known


class KnownFile:
    """The file. `problem`: why it is of no use now, or empty."""

    def __init__(self, folder: Path, boot_id: str, node_name: str) -> None:
        """Nothing is read yet."""
        self._path, self._boot, self._node = folder / FILE, boot_id, node_name
        self.problem = ""

    def load(self, now: float) -> Known:
        """What the agent before knew; nothing when there is none, or it is of another boot or node."""
        try:
            return self._read(now)
        except FileNotFoundError:
            return Known()
        except UNUSABLE as bad:
            self.problem = set_aside(self._path, bad)
            return Known()

    def _read(self, now: float) -> Known:
        with self._path.open("rb") as stream:
            raw = stream.read(SIZE_CAP_BYTES + 1)
        if len(raw) > SIZE_CAP_BYTES:
            raise UsageError(f"it is larger than {SIZE_CAP_BYTES} bytes")
        head = msgspec.json.decode(raw, type=_Head)
        if not self._boot or (head.boot, head.node_name) != (self._boot, self._node):
            return Known()
        known = msgspec.json.decode(raw, type=_File).known
        if max(known.policy_at, known.pods_at) > now:
            raise UsageError("it is from the future of this machine's clock")
        return known

    def save(self, known: Known) -> None:
        """Replace it. It need not outlive a power cut: after one it is nothing."""
        try:
            replace_whole(self._path, msgspec.json.encode(_File(self._boot, self._node, known)), on_disk=False)
        except OSError as refused:
            self.problem = f"{self._path} cannot be written: {refused.strerror}"
        else:
            self.problem = ""


class _Head(msgspec.Struct, frozen=True):
    boot: str
    node_name: str


class Recalling:
    """Sources that remember. For one thread, but for `start` and `stop`."""

    def __init__(self, inner: Sources, file: KnownFile, monotonic: Callable[[], float] = time.monotonic) -> None:
        """The file is read at `start`."""
        self._inner, self._file, self._monotonic = inner, file, monotonic
        self._known = self._saved = Known()
        self._saved_at = -NEVER

    def start(self) -> None:
        """Begin to listen."""
        self._known = self._saved = self._file.load(self._monotonic())
        self._inner.start()

    def wait(self, timeout_seconds: float) -> bool:
        """Whether everything was heard once, waiting for it."""
        return self._inner.wait(timeout_seconds)

    def stop(self) -> None:
        """Listen no more."""
        self._inner.stop()

    def read(self) -> Told:
        """What is known now, or was before this agent started."""
        told, now = self._inner.read(), self._monotonic()
        self._known = newest(self._known, told, now)
        if now - self._saved_at >= SAVE_SECONDS and worth_saving(self._known, self._saved):
            self._file.save(self._known)
            self._saved, self._saved_at = self._known, now
        notes = (*told.notes, *([self._file.problem] if self._file.problem else []))
        return recalled(replace(told, notes=notes), self._known, now)


def newest(known: Known, told: Told, now: float) -> Known:
    """What is known after this was told."""
    changes: dict[str, Any] = {}
    if told.policy is not None and told.policy_age_seconds != NEVER:
        at = now - told.policy_age_seconds
        changes |= {"policy": told.policy, "policy_at": at, "policy_origin": told.policy_origin}
    if told.pods_age_seconds != NEVER:
        changes |= {"pods": told.pods, "pods_at": now - told.pods_age_seconds}
    if told.node.uid:
        changes["node"] = told.node
    return msgspec.structs.replace(known, **changes) if changes else known


def worth_saving(known: Known, saved: Known) -> bool:
    """Whether the file says something else, or much too old an age."""
    confirmed = max(known.policy_at - saved.policy_at, known.pods_at - saved.pods_at)
    return (
        confirmed >= REFRESH_SECONDS
        or known.policy != saved.policy
        or (known.pods is not saved.pods and known.pods != saved.pods)
        or known.node != saved.node
    )


def recalled(told: Told, known: Known, now: float) -> Told:
    """What was told, and what is known in place of what was never told."""
    changes: dict[str, Any] = {}
    if told.policy is None and known.policy is not None:
        origin = f"{known.policy_origin}, as it was known before this agent started"
        changes |= {"policy": known.policy, "policy_age_seconds": now - known.policy_at, "policy_origin": origin}
    if told.pods_age_seconds == NEVER and known.pods is not None:
        changes |= {"pods": known.pods, "pods_age_seconds": now - known.pods_at}
    if changes and not told.node.uid and known.node is not None:  # else the API server says that there is none
        changes["node"] = known.node
    what = tuple(name for name in ("policy", "pods") if name in changes)
    return replace(told, **changes, recalled=what) if changes else told
