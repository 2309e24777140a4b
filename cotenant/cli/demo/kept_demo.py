"""EDGE: what the last demo made of its history, in the user's cache, so that the same demo starts at once next time.

It is used again by the same program with the same cluster and settings alone; one demo is kept.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

import cotenant
from cotenant.base.process.private_files import make_private_folder

if TYPE_CHECKING:
    from cotenant.profiler.synthetic import SyntheticSpec
    from cotenant.settings import Settings
    from cotenant.simulation.cluster import DemoScenario

STORE: Final = "store"
_SCENARIO: Final = "scenario"


def demo_folder(spec: SyntheticSpec, settings: Settings) -> Path:
    """Folder of this demo in the user's cache; its name changes with the program, the cluster and the settings."""
    digest = hashlib.sha256(f"{cotenant.__version__} {spec}".encode())
    digest.update(msgspec.json.encode({name: getattr(settings, name) for name in _sections()}))
    for line in _program_files():
        digest.update(line.encode())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "cotenant" / "demo" / digest.hexdigest()[:16]


def _sections() -> tuple[str, ...]:
    from cotenant.cli.demo.live_cluster import OF_RESULTS

    return OF_RESULTS


def _program_files() -> Iterator[str]:
    """Name, size and time of each file of the program: a checkout changes without another version."""
    root = Path(cotenant.__file__).parent
    for folder, inside, names in os.walk(root, followlinks=True):
        inside[:] = sorted(name for name in inside if name != "__pycache__")
        for name in sorted(names):
            if name.endswith(".py"):
                state = Path(folder, name).stat()
                yield f"{os.path.relpath(folder, root)}/{name} {state.st_size} {state.st_mtime_ns}\n"


def restore_demo(kept: Path, store: Path) -> DemoScenario | None:
    """Copy the history of the kept demo to the folder `store`; None where none is kept, or it cannot be read."""
    try:
        with (kept / _SCENARIO).open("rb") as file:
            scenario: DemoScenario = pickle.load(file)  # noqa: S301 - this user's own, in a folder of 0700
        shutil.copytree(kept / STORE, store, dirs_exist_ok=True)
    except Exception:  # noqa: BLE001 - whatever is wrong with a cache, the demo is made anew
        shutil.rmtree(store, ignore_errors=True)
        return None
    return scenario


def keep_demo(kept: Path, store: Path, scenario: DemoScenario) -> None:
    """Keep this demo in the place of earlier ones; nothing where the cache cannot be written."""
    draft = kept.with_suffix(".draft")
    with suppress(OSError):
        make_private_folder(kept.parent)
        for earlier in kept.parent.iterdir():
            shutil.rmtree(earlier, ignore_errors=True)
        shutil.copytree(store, draft / STORE)
        (draft / _SCENARIO).write_bytes(pickle.dumps(scenario, pickle.HIGHEST_PROTOCOL))
        draft.rename(kept)
