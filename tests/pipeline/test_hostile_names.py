"""Names that no Kubernetes object has, as a metric source may write them: the scan ends well, and names them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.identity import fits_folder, folder_part
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.store import Store
from cotenant.changes.decide.patches import refusal
from cotenant.pipeline import daily_analysis
from cotenant.recommender.model.views import WORKLOADS, portraits_of
from cotenant.recommender.stored_recommendations import document_name
from cotenant.settings import Settings
from cotenant_lab.simulation import cluster_population, demo
from cotenant_lab.synthetic import SyntheticCluster, SyntheticSpec

SPEC = SyntheticSpec(nodes=2, workloads=24, days=3, seed=11)
NAMES = [
    "../../x", "..", ".", "/", "a/b", "/etc/passwd", "x\x00y", "a\nb", "\x1b[31m", "", " ", "n" * 5000, "é" * 200,
    "\u202eevil", "-findings", "nodes", "x-findings", "+.x", "+eA==", "a.corrupt-1", "con", "%2e%2e", "~", "$(id)",
    "..\\..\\x", "x\u2028y", ".hidden", "x.parquet", "%2F", "\ufeffx", "portraits@x",
]  # fmt: skip
KUBERNETES = ("con", "nodes", "x-findings", "a.corrupt-1", "x.parquet")
"""Of these: what Kubernetes allows, and a path does not."""


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """The same with these texts in place of others, wherever they stand."""
    if isinstance(value, str):
        return names.get(value, value) if type(value) is str else value
    if isinstance(value, tuple):
        return tuple(renamed(element, names) for element in value) if type(value) is tuple else value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        return dataclasses.replace(value, **{name: renamed(getattr(value, name), names) for name in fields})
    if isinstance(value, msgspec.Struct):
        parts = {name: renamed(getattr(value, name), names) for name in value.__struct_fields__}
        return msgspec.structs.replace(value, **parts)
    return value


@pytest.fixture(scope="module")
def population() -> SyntheticCluster:
    return cluster_population.resident(SPEC, cluster_population.fake_nodes(SPEC))


def odd(population: SyntheticCluster, name: str) -> SyntheticCluster:
    """Whole namespace of the first workload, a later workload and its first container are called so."""
    first = population.inventory.workloads[0].ref.namespace
    other = next(w for w in population.inventory.workloads if w.ref.namespace != first)
    names = {first: name, other.ref.name: name, other.containers[0].name: name}
    usage = {
        signal: dataclasses.replace(odd_usage, refs=tuple(renamed(ref, names) for ref in odd_usage.refs))
        for signal, odd_usage in population.usage.items()
    }
    inventory = population.inventory
    fields: dict[str, Any] = {
        key: tuple(renamed(described, names) for described in getattr(inventory, key))
        for key in ("workloads", "pods", "events")
    }
    return dataclasses.replace(population, usage=usage, inventory=dataclasses.replace(inventory, **fields))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_cannot_be_ends_no_scan(population: SyntheticCluster, tmp_path: Path, name: str) -> None:
    store, end = Store((tmp_path / "store").as_uri(), "prod"), population.inventory.time_seconds
    demo.write(store, odd(population, name), Silent())
    for _ in range(2):  # the second reads what the first has noted
        analysis = daily_analysis.analyse(store, Settings(), FixedClock(end), Silent())
        daily_analysis.publish(analysis, store, Settings())
    workloads = store.read_table(WORKLOADS)
    # Every workload is there, the odd ones too, and all others have their recommendation.
    assert len(workloads) == len(population.inventory.workloads)
    assert {path.name for path in tmp_path.iterdir()} == {"store"}  # nothing was written beside it
    for recommendation in analysis.recommendations:
        where = recommendation.container.workload
        if name in (where.namespace, where.name, recommendation.container.container):
            assert "is not a Kubernetes name" in refusal(recommendation) or name in KUBERNETES


@settings(max_examples=500)
@given(name=st.text() | st.sampled_from(NAMES))
def test_every_name_is_one_part_of_a_path_and_a_safe_one_stays_as_it_is(name: str) -> None:
    part = folder_part(name)
    file = f"portraits@{part}.parquet"
    assert fits_folder(f"portraits@{part}") and len(file.encode()) <= 255 and "/" not in file and "\x00" not in file
    assert part == name or (part.startswith("+") and len(part) == 41)
    assert folder_part(part) != part or part == name  # no name is written over another's hash


@pytest.mark.parametrize("name", ["", "shop", "kube-system", "a.b", "n" * 63])
def test_names_of_kubernetes_lie_where_they_always_did(name: str) -> None:
    assert (portraits_of(name).name, document_name(name)) == (f"portraits@{name}", f"explain@{name}")
