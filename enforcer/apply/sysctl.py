"""EDGE: sets the machine's kernel settings below /proc/sys and vendor kernels' switches below /sys, and restores them.

The original value is recorded in a file before the first write, so that the successor of a killed agent can restore it.
A value that another program sets afterwards is reported and left. Keys are those of `SurfaceWant` with Surface.SYSCTL,
and only a key of SETTINGS ever becomes a path:

    vm/min_free_kbytes, kernel/...    below /proc/sys
    sysfs/kernel/mm/...               below /sys
    sched_features/NAME               one word of the scheduler's features: reads and writes NAME or NO_NAME
Source: Koordinator's koordlet, `sysreconcile`; Alibaba Cloud Linux's documentation of its kernel interfaces.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from cotenant.enforcer.apply.atomic_write import SurfaceNote, read_note, save_note
from cotenant.enforcer.contract import Surface, SurfaceWant

FILE: Final = "sysctl-originals.json"
SYSFS: Final = "sysfs/"
FEATURES: Final = "sched_features/"
FEATURE_FILES: Final = ("kernel/debug/sched/features", "kernel/debug/sched_features")
"""Files of the scheduler's features: since Linux 5.13, and before."""
FEATURE_NAME: Final = re.compile(r"(?!NO_)[A-Z][A-Z0-9_]{0,63}")
SWITCHES: Final = (
    "kernel/sched_group_identity_enabled",
    "kernel/sched_idle_saver_wmark",
    "sysfs/kernel/mm/memcg_reaper/reap_background",
    "sysfs/kernel/mm/pagecache_limit/enabled",
)
"""Switches of Alibaba Cloud Linux and Anolis OS, as Koordinator sets them."""
SETTINGS: Final = frozenset({"vm/min_free_kbytes", "vm/watermark_scale_factor", *SWITCHES})


@dataclass(frozen=True, slots=True)
class SwitchFiles:
    """The files of kernel settings below the machine's /proc/sys and /sys."""

    proc_sys: Path = Path("/proc/sys")
    sysfs: Path = Path("/sys")

    def read(self, key: str) -> str:
        """Return the present value of a setting; raise OSError, with ENOENT if this kernel does not have it."""
        if not key.startswith(FEATURES):
            return self._path(key).read_text().strip()
        name = key.removeprefix(FEATURES)
        features = self._features().read_text().split()
        present = next((word for word in features if word in (name, f"NO_{name}")), None)
        if present is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), key)
        return present

    def write(self, key: str, value: str) -> None:
        """Write the value of a setting; raise OSError if the kernel refuses it."""
        (self._features() if key.startswith(FEATURES) else self._path(key)).write_text(value)

    def present(self) -> dict[str, str]:
        """Return the readable settings of this kernel with their values, scheduler features included."""
        values = {key: value for key in SWITCHES if (value := self._text(self._path(key)))}
        for word in self._text(self._features()).split():
            values[f"{FEATURES}{word.removeprefix('NO_')}"] = word
        return values

    def _path(self, key: str) -> Path:
        return self.sysfs / key.removeprefix(SYSFS) if key.startswith(SYSFS) else self.proc_sys / key

    def _features(self) -> Path:
        new, old = (self.sysfs / name for name in FEATURE_FILES)
        return old if self._text(old) and not self._text(new) else new

    def _text(self, path: Path) -> str:
        try:
            return path.read_text().strip()
        except (OSError, UnicodeDecodeError):
            return ""


def is_setting(key: str) -> bool:
    """Return whether this agent may write the setting `key`."""
    return key in SETTINGS or bool(key.startswith(FEATURES) and FEATURE_NAME.fullmatch(key.removeprefix(FEATURES)))


def is_value(key: str, value: str) -> bool:
    """Return whether a value is valid for the setting: decimal digits, or a feature's name with or without NO_."""
    if key.startswith(FEATURES):
        return value.removeprefix("NO_") == key.removeprefix(FEATURES)
    return value.isascii() and value.isdigit()


class OriginalSetting(msgspec.Struct, frozen=True):
    """A setting's original value, the agent's value, and the value before the agent's last write."""

    original: str
    ours: str
    before: str = ""

    def may_read(self, present: str) -> bool:
        """Return whether the present value may be a value that the agent has set."""
        return present in (self.ours, self.before)


class SysctlKeeper:
    """Sets and restores kernel settings, with their original values in `folder`; for use by a single thread."""

    surface: Final = Surface.SYSCTL

    def __init__(self, folder: Path, boot_id: str, root: Path = Path("/proc/sys"), sysfs: Path = Path("/sys")) -> None:
        self._note, self._boot_id, self._files = folder / FILE, boot_id, SwitchFiles(root, sysfs)
        note: SurfaceNote[dict[str, OriginalSetting]] = read_note(self._note, boot_id, _records, {})
        self._kept, self._damaged, self._newer = note.records, note.damaged, note.newer

    def apply(self, wants: Iterable[SurfaceWant]) -> list[str]:
        """Set the wanted kernel settings, restore those no longer wanted, and return the errors as text."""
        if self._newer:
            return [self._newer]
        values = {w.key: w.value for w in wants if w.surface is Surface.SYSCTL}
        dropped = [key for key in self._kept if key not in values]
        wrong = [self._damaged] if self._damaged else []
        return [*wrong, *self._back_all(dropped), *(line for key in values for line in self._set(key, values[key]))]

    def restore(self) -> list[str]:
        """Restore every original value and return the errors as text."""
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
            yield f'{key} = "{value}" may not be set by the agent'
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
        save_note(self._note, self._boot_id, records)
        self._kept = records


def _records(text: bytes) -> dict[str, OriginalSetting]:
    records = msgspec.json.decode(text, type=dict[str, OriginalSetting])
    return {key: record for key, record in records.items() if is_setting(key)}
