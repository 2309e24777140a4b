"""EDGE: files of the machine's own kernel settings: below /proc/sys, and vendor kernels' switches below /sys.

Keys are those of `SurfaceWant` with Surface.SYSCTL. Nothing but SETTINGS ever becomes a path.

    vm/min_free_kbytes, kernel/...    below /proc/sys
    sysfs/kernel/mm/...               below /sys
    sched_features/NAME               one word of the scheduler's features: reads and writes NAME or NO_NAME
Source: Koordinator's koordlet, `sysreconcile`; Alibaba Cloud Linux's documentation of its kernel interfaces.
"""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SYSFS: Final = "sysfs/"
FEATURES: Final = "sched_features/"
FEATURE_FILES: Final = ("kernel/debug/sched/features", "kernel/debug/sched_features")
"""Where they are since Linux 5.13, and before."""
FEATURE_NAME: Final = re.compile(r"(?!NO_)[A-Z][A-Z0-9_]{0,63}")
SWITCHES: Final = (
    "kernel/sched_group_identity_enabled",
    "kernel/sched_idle_saver_wmark",
    "sysfs/kernel/mm/memcg_reaper/reap_background",
    "sysfs/kernel/mm/pagecache_limit/enabled",
)
"""That only some kernels have."""
SETTINGS: Final = frozenset({"vm/min_free_kbytes", "vm/watermark_scale_factor", *SWITCHES})


@dataclass(frozen=True, slots=True)
class SwitchFiles:
    """proc_sys: /proc/sys of the machine; sysfs: its /sys."""

    proc_sys: Path = Path("/proc/sys")
    sysfs: Path = Path("/sys")

    def read(self, key: str) -> str:
        """Its present value. OSError; ENOENT where this kernel has none."""
        if not key.startswith(FEATURES):
            return self._path(key).read_text().strip()
        name = key.removeprefix(FEATURES)
        features = self._features().read_text().split()
        present = next((word for word in features if word in (name, f"NO_{name}")), None)
        if present is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), key)
        return present

    def write(self, key: str, value: str) -> None:
        """Write the value of a kernel switch; OSError when the kernel refuses it."""
        (self._features() if key.startswith(FEATURES) else self._path(key)).write_text(value)

    def present(self) -> dict[str, str]:
        """Switches that this kernel has and that may be read, scheduler features among them, with their values."""
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
    """Return whether this agent may write the setting."""
    return key in SETTINGS or bool(key.startswith(FEATURES) and FEATURE_NAME.fullmatch(key.removeprefix(FEATURES)))


def is_value(key: str, value: str) -> bool:
    """Return whether a value is valid for the setting: an integer, or a feature's name with or without NO_."""
    if key.startswith(FEATURES):
        return value.removeprefix("NO_") == key.removeprefix(FEATURES)
    return value.isascii() and value.isdigit()
