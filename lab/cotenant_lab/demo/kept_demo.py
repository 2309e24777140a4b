"""EDGE: a cache of the last demo's history in the user's cache folder, so that the same demo starts at once next time.

It is reused only by the same program version with the same cluster and settings; one demo is kept.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

import cotenant
from cotenant.base.identity import WorkloadRef
from cotenant.base.process.files import make_private_folder
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import TimeGrid
from cotenant.manager.decisions.results import RunResults

if TYPE_CHECKING:
    from cotenant.base.store import Store
    from cotenant.settings import Settings
    from cotenant_lab.simulation.cluster import DemoScenario
    from cotenant_lab.synthetic import SyntheticSpec

STORE: Final = "store"
_SCENARIO: Final = "scenario.msgpack"


def demo_folder(spec: SyntheticSpec, settings: Settings) -> Path:
    """Return the demo's folder in the user's cache; its name differs by program version, cluster and settings."""
    from cotenant_lab.demo.live_cluster import OF_RESULTS

    digest = hashlib.sha256(f"{cotenant.__version__} {spec}".encode())
    digest.update(msgspec.json.encode({name: getattr(settings, name) for name in OF_RESULTS}))
    # Name, size and time of each file of the program: a checkout changes without another version.
    root = Path(cotenant.__file__).parent
    for folder, inside, names in os.walk(root, followlinks=True):
        inside[:] = sorted(name for name in inside if name != "__pycache__")
        for name in sorted(name for name in names if name.endswith(".py")):
            state = Path(folder, name).stat()
            line = f"{os.path.relpath(folder, root)}/{name} {state.st_size} {state.st_mtime_ns}\n"
            digest.update(line.encode())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "cotenant" / "demo" / digest.hexdigest()[:16]


class _KeptScenario(msgspec.Struct, frozen=True):
    """The parts of a scenario that are not in its store; arrays are bytes of float64, a row for each of `*_rows`."""

    results: RunResults
    node_metrics: tuple[dict[str, Any], ...]
    gpus: tuple[tuple[WorkloadRef, str], ...]
    demand_rows: tuple[WorkloadRef, ...]
    demand_grid: TimeGrid
    demand: bytes
    usage_rows: tuple[tuple[str, str], ...]
    usage_grid: TimeGrid
    usage: dict[Resource, bytes]


def restore_demo(kept_folder: Path, store: Store, folder: Path) -> DemoScenario | None:
    """Copy the kept demo's history to the store's `folder`; return None if none is kept or it cannot be read."""
    from cotenant_lab.simulation.cluster import DemoScenario
    from cotenant_lab.simulation.controllers.autoscaler import CpuDemand
    from cotenant_lab.simulation.usage_now import Curves

    try:
        of = msgspec.msgpack.decode((kept_folder / _SCENARIO).read_bytes(), type=_KeptScenario)
        demand = np.frombuffer(of.demand).reshape(len(of.demand_rows), of.demand_grid.size)
        shape = len(of.usage_rows), of.usage_grid.size
        usage = {resource: np.frombuffer(values).reshape(shape) for resource, values in of.usage.items()}
        shutil.copytree(kept_folder / STORE, folder, dirs_exist_ok=True)
        inventory = store.read_inventory()
        if inventory is None:
            raise FileNotFoundError(kept_folder / STORE)
    except Exception:  # noqa: BLE001 - whatever is wrong with a cache, the demo is made anew
        shutil.rmtree(folder, ignore_errors=True)
        return None
    cpu_demand = CpuDemand({ref: row for row, ref in enumerate(of.demand_rows)}, of.demand_grid, demand)
    used = Curves({key: row for row, key in enumerate(of.usage_rows)}, of.usage_grid, usage)
    return DemoScenario(inventory, of.results, cpu_demand, of.node_metrics, used, dict(of.gpus))


def keep_demo(kept_folder: Path, store: Path, scenario: DemoScenario) -> None:
    """Keep this demo in place of earlier ones; do nothing if the cache cannot be written."""
    draft, cpu_demand, used = kept_folder.with_suffix(".draft"), scenario.demand, scenario.curves
    if used is None:
        return
    described = _KeptScenario(
        scenario.results,
        tuple(map(dict, scenario.node_metrics)),
        tuple(scenario.gpus.items()),
        tuple(sorted(cpu_demand.rows, key=cpu_demand.rows.__getitem__)),
        cpu_demand.grid,
        cpu_demand.millicores.astype(np.float64).tobytes(),
        tuple(sorted(used.rows, key=used.rows.__getitem__)),
        used.grid,
        {resource: values.astype(np.float64).tobytes() for resource, values in used.values.items()},
    )
    with suppress(OSError):
        make_private_folder(kept_folder.parent)
        for earlier in kept_folder.parent.iterdir():
            shutil.rmtree(earlier, ignore_errors=True)
        shutil.copytree(store, draft / STORE)
        (draft / _SCENARIO).write_bytes(msgspec.msgpack.encode(described))
        draft.rename(kept_folder)
