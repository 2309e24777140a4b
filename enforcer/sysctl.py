"""EDGE: the node's own kernel settings, kept and given back.

The value that stood there before us is noted in a file before the first write, so that a killed agent's successor gives
it back; only the settings of `kernel_switches` are ever written. A value that somebody else changes afterwards is
theirs: told, not fought over, and left as they set it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from enforcer.contract import Surface, SurfaceWant
from enforcer.kernel_switches import SwitchFiles, is_setting, is_value
from enforcer.whole_files import UNUSABLE, replace_whole

FILE: Final = "sysctl-originals.json"


class Kept(msgspec.Struct, frozen=True):
    """What stood there, what we wrote, and what of ours it was to replace: a write may not have come to pass."""

    original: str
    ours: str
    before: str = ""

    def may_read(self, present: str) -> bool:
        """Whether this may stand there by our hand."""
        return present in (self.ours, self.before)


class SysctlKeeper:
    """Keeps Surface.SYSCTL. folder: for the note; root: /proc/sys; sysfs: /sys. For one thread."""

    surface: Final = Surface.SYSCTL

    def __init__(self, folder: Path, root: Path = Path("/proc/sys"), sysfs: Path = Path("/sys")) -> None:
        self._note, self._files = folder / FILE, SwitchFiles(root, sysfs)
        self._kept = self._read_note()

    def apply(self, wants: Iterable[SurfaceWant]) -> list[str]:
        """Make it so; what went wrong, in words."""
        wanted = {w.key: w.value for w in wants if w.surface is Surface.SYSCTL}
        gone = [key for key in self._kept if key not in wanted]
        return [*self._back_all(gone), *(line for key in wanted for line in self._set(key, wanted[key]))]

    def give_back(self) -> list[str]:
        """Everything to what stood there before."""
        return list(self._back_all(list(self._kept)))

    def _back_all(self, keys: Iterable[str]) -> Iterator[str]:
        for key in keys:
            yield from self._back(key)

    def _set(self, key: str, value: str) -> Iterator[str]:
        if not is_setting(key) or not is_value(key, value):
            yield f'{key} = "{value}" is not for this agent to set'
            return
        try:
            present = self._files.read(key)
            kept = self._kept.get(key)
            if kept is not None and present != kept.original and not kept.may_read(present):
                yield f"{key}: somebody else set it to {present}; it stays theirs"
                return
            if present != value:
                self._save(self._kept | {key: Kept(kept.original if kept else present, value, present)})
                self._files.write(key, value)
        except OSError as refused:
            yield f"{key}: {refused.strerror}"

    def _back(self, key: str) -> Iterator[str]:
        try:
            kept = self._kept[key]
            if kept.may_read(self._files.read(key)):
                self._files.write(key, kept.original)
            self._save({k: v for k, v in self._kept.items() if k != key})
        except OSError as refused:
            yield f"{key}: {refused.strerror}"

    def _read_note(self) -> dict[str, Kept]:
        with contextlib.suppress(*UNUSABLE):
            found = msgspec.json.decode(self._note.read_bytes(), type=dict[str, Kept])
            return {key: kept for key, kept in found.items() if is_setting(key)}
        return {}

    def _save(self, kept: dict[str, Kept]) -> None:
        """Whole or not at all, on the disk before it returns."""
        replace_whole(self._note, msgspec.json.encode(kept))
        self._kept = kept
