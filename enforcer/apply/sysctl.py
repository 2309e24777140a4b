"""EDGE: sets the node's kernel settings and restores them.

The value that stood there before us is noted in a file before the first write, so that a killed agent's successor gives
it back; only the settings of `kernel_switches` are ever written. A value that somebody else changes afterwards is
theirs: reported, and left as they set it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from cotenant.enforcer.apply.atomic_write import SurfaceNote, read_note, replace_atomically
from cotenant.enforcer.apply.kernel_switches import SwitchFiles, is_setting, is_value
from cotenant.enforcer.contract import Surface, SurfaceWant

FILE: Final = "sysctl-originals.json"


class OriginalSetting(msgspec.Struct, frozen=True):
    """The original value, the value written, and the one it replaces: a write may not have taken place."""

    original: str
    ours: str
    before: str = ""

    def may_read(self, present: str) -> bool:
        """Return whether the agent may have set this value."""
        return present in (self.ours, self.before)


class SysctlKeeper:
    """Keeps Surface.SYSCTL. folder: for the note; root: /proc/sys; sysfs: /sys. For one thread."""

    surface: Final = Surface.SYSCTL

    def __init__(self, folder: Path, root: Path = Path("/proc/sys"), sysfs: Path = Path("/sys")) -> None:
        self._note, self._files = folder / FILE, SwitchFiles(root, sysfs)
        note: SurfaceNote[dict[str, OriginalSetting]] = read_note(self._note, _records, {})
        self._kept, self._damaged, self._newer = note.records, note.damaged, note.newer

    def apply(self, wants: Iterable[SurfaceWant]) -> list[str]:
        """Apply the wants; returns the errors as text."""
        if self._newer:
            return [self._newer]
        values = {w.key: w.value for w in wants if w.surface is Surface.SYSCTL}
        dropped = [key for key in self._kept if key not in values]
        wrong = [self._damaged] if self._damaged else []
        return [*wrong, *self._back_all(dropped), *(line for key in values for line in self._set(key, values[key]))]

    def restore(self) -> list[str]:
        """Restore every original value."""
        return [self._newer] if self._newer else list(self._back_all(list(self._kept)))

    def _back_all(self, keys: Iterable[str]) -> Iterator[str]:
        for key in keys:
            try:
                record = self._kept[key]
                if record.may_read(self._files.read(key)):
                    self._files.write(key, record.original)
                self._save({k: v for k, v in self._kept.items() if k != key})
            except OSError as refused:
                yield f"{key}: {refused.strerror}"

    def _set(self, key: str, value: str) -> Iterator[str]:
        if not is_setting(key) or not is_value(key, value):
            yield f'{key} = "{value}" is not for this agent to set'
            return
        try:
            present = self._files.read(key)
            record = self._kept.get(key)
            if record is not None and present != record.original and not record.may_read(present):
                yield f"{key}: another program set it to {present}; it is not changed"
                return
            if present != value:
                self._save(self._kept | {key: OriginalSetting(record.original if record else present, value, present)})
                self._files.write(key, value)
        except OSError as refused:
            yield f"{key}: {refused.strerror}"

    def _save(self, records: dict[str, OriginalSetting]) -> None:
        """Record the original settings, as a whole or not at all; they are on disk on return."""
        replace_atomically(self._note, msgspec.json.encode(records))
        self._kept = records


def _records(text: bytes) -> dict[str, OriginalSetting]:
    """The original settings of a note, those that this agent may write."""
    records = msgspec.json.decode(text, type=dict[str, OriginalSetting])
    return {key: record for key, record in records.items() if is_setting(key)}
