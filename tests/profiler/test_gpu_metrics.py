"""GPU history as DCGM's exporter writes it, read from a real Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.identity import PodContainerRef
from cotenant.base.store.store import Store
from cotenant.base.usage.quality import Defect, QualityRecord
from cotenant.base.usage.usage import FIVE_MINUTES_SECONDS, HOUR_SECONDS, Signal, TimeGrid
from cotenant.profiler.prometheus.decode import Labels, Samples, usages
from cotenant.profiler.prometheus.parts import Rates, device_parts
from cotenant.profiler.prometheus.plan import RangeQuery
from tests.profiler.conftest import profiler_settings, pulled, store_in
from tests.support.prometheus import Server, blocks_from

START = 1_795_046_400
SCRAPES = range(START, START + 2 * HOUR_SECONDS, 30)
GRID = TimeGrid(START, FIVE_MINUTES_SECONDS, 24)
TRAIN = PodContainerRef("ml", "train-0", "main")
MIG = PodContainerRef("ml", "serve-0", "main")
MIB_OF_A_T4 = 15_360
Line = tuple[str, Mapping[str, str], float]


def device(number: int, pod: PodContainerRef | None, *, honoured: bool, **own: str) -> dict[str, str]:
    """Labels of one GPU as DCGM's exporter 3.3 writes them, and what the scrape of a ServiceMonitor adds."""
    labels = {
        "gpu": str(number),
        "UUID": f"GPU-{number:08d}-aaaa-bbbb-cccc-0123456789ab",
        "pci_bus_id": f"00000000:0{number}:00.0",
        "device": f"nvidia{number}",
        "modelName": "Tesla T4",
        "Hostname": "node-1",
        **own,
    }
    of_pod = {"namespace": pod.namespace, "pod": pod.pod, "container": pod.container} if pod else {}
    exporter = {"namespace": "gpu-operator", "pod": "nvidia-dcgm-exporter-x", "container": "nvidia-dcgm-exporter"}
    if honoured:
        return exporter | labels | of_pod
    return labels | exporter | {f"exported_{name}": value for name, value in of_pod.items()}


def gauges(labels: Mapping[str, str], core_percent: float, used_mib: float, *, mig: bool = False) -> list[Line]:
    """The four metrics of one device; a MIG instance has no DCGM_FI_DEV_GPU_UTIL."""
    lines = [
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", labels, core_percent / 100),
        ("DCGM_FI_DEV_FB_USED", labels, used_mib),
        ("DCGM_FI_DEV_FB_FREE", labels, MIB_OF_A_T4 - used_mib),
    ]
    return lines if mig else [*lines, ("DCGM_FI_DEV_GPU_UTIL", labels, 99.0)]


def requests(ref: PodContainerRef, resource: str, amount: float) -> Line:
    labels = {"namespace": ref.namespace, "pod": ref.pod, "container": ref.container, "node": "node-1"}
    return "kube_pod_container_resource_requests", {**labels, "resource": resource, "unit": "integer"}, amount


def scanned(lines: Sequence[Line], folder: Path) -> tuple[Store, QualityRecord]:
    """A pull from a Prometheus that scraped these gauges every 30 s beside cAdvisor's CPU of the two pods."""
    by_name: dict[str, list[str]] = {}
    for name, labels, value in lines:
        text = ",".join(f'{key}="{value}"' for key, value in labels.items())
        by_name.setdefault(name, []).extend(f"{name}{{{text}}} {value} {moment}" for moment in SCRAPES)
    out = [row for name, rows in by_name.items() for row in (f"# TYPE {name} gauge", *rows)]
    out.append("# TYPE container_cpu_usage_seconds counter")
    for ref in (TRAIN, MIG):
        own = f'namespace="{ref.namespace}",pod="{ref.pod}",container="{ref.container}"'
        out += [f"container_cpu_usage_seconds_total{{{own}}} {0.5 * (at - START)} {at}" for at in SCRAPES]
    (folder / "m.om").write_text("\n".join([*out, "# EOF\n"]))
    blocks_from(folder / "m.om", folder / "data")
    with Server(folder / "data") as server:
        store = store_in(folder / "store")
        return store, pulled(store, GRID.end_seconds, profiler_settings(server.url))


def stored(store: Store, signal: Signal) -> dict[PodContainerRef, float]:
    """The median of each series: gauges are constant here."""
    usage = store.read(signal, TimeGrid.from_span(START, GRID.end_seconds, signal.spec.step_seconds))
    return {ref: float(np.nanmedian(row)) for ref, row in zip(usage.refs, usage.values, strict=True)}


@pytest.fixture(params=[True, False], ids=["honor_labels", "exported"])
def history(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Store, QualityRecord]]:
    """Two GPUs of one container, one MIG instance of another, and one GPU that nobody has."""
    honoured = request.param
    lines = [
        *gauges(device(0, TRAIN, honoured=honoured), 90, 12_288),
        *gauges(device(1, TRAIN, honoured=honoured), 50, 3_072),
        *gauges(device(2, MIG, honoured=honoured, GPU_I_ID="7", GPU_I_PROFILE="1g.5gb"), 30, 7_680, mig=True),
        *gauges(device(3, None, honoured=honoured), 0, 0),
        requests(TRAIN, "nvidia_com_gpu", 2),
        requests(MIG, "nvidia_com_mig_1g_5gb", 1),
    ]
    yield scanned(lines, tmp_path)


@pytest.mark.slow
@pytest.mark.prometheus
def test_a_containers_gpus_are_stored_as_the_sum_of_their_percent(history: tuple[Store, QualityRecord]) -> None:
    store, record = history
    cores = stored(store, Signal.GPU_CORE_MEAN)
    # 90 % + 50 % of two GPUs by the finer metric, not the 99 % of DCGM_FI_DEV_GPU_UTIL; 30 % of a MIG instance.
    assert cores[TRAIN] == pytest.approx(140, abs=1e-3)
    assert cores[MIG] == pytest.approx(30, abs=1e-3)
    memory = stored(store, Signal.GPU_MEMORY_MAX)
    # 12,288 and 3,072 of 15,360 MiB are 80 % and 20 %; 7,680 are half of the instance's.
    assert memory[TRAIN] == pytest.approx(100, abs=1e-3)
    assert memory[MIG] == pytest.approx(50, abs=1e-3)
    # the GPU that nobody has is at most the exporter's own, which asks for none
    assert {ref.namespace for ref in cores} <= {"ml", "gpu-operator"}
    assert not any("no GPU metrics" in note for note in record.notes)


@pytest.mark.slow
@pytest.mark.prometheus
def test_requests_of_gpus_are_stored_in_percent_of_one_device(history: tuple[Store, QualityRecord]) -> None:
    store, _ = history
    assert stored(store, Signal.GPU_CORE_REQUEST) == {TRAIN: 200}
    assert stored(store, Signal.GPU_MEMORY_REQUEST) == {TRAIN: 200}
    assert stored(store, Signal.GPU_INSTANCE_REQUEST) == {MIG: 100}


@pytest.mark.slow
@pytest.mark.prometheus
def test_without_dcgm_a_scan_asks_no_more_and_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "with").mkdir()
    (tmp_path / "without").mkdir()
    asks = requests(TRAIN, "koordinator_sh_gpu_core", 50)
    _, complete = scanned([asks, *gauges(device(0, TRAIN, honoured=True), 90, 12_288)], tmp_path / "with")
    store, record = scanned([asks], tmp_path / "without")
    assert record.defects.keys() <= {Defect.UNKNOWN_OWNER}
    # GPU metrics ride along with the queries that are asked anyway
    assert record.queries == complete.queries
    assert [note for note in record.notes if "no GPU metrics" in note]
    assert stored(store, Signal.GPU_CORE_REQUEST) == {TRAIN: 50}
    assert stored(store, Signal.GPU_CORE_MEAN) == {}


NAMES = ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE")


@given(st.sets(st.sampled_from(NAMES)))
def test_only_metrics_that_the_server_has_are_asked_for(names: set[str]) -> None:
    parts = {part.signals[0]: part for part in device_parts(Rates(30), {"cluster": "prod"}, names)}
    assert (Signal.GPU_CORE_MEAN in parts) == (not names.isdisjoint(NAMES[:2]))
    assert (Signal.GPU_MEMORY_MAX in parts) == names.issuperset(NAMES[2:])
    for part in parts.values():
        text = part.expression()
        assert part.metric in names
        assert {name for name in NAMES if name in text} <= names
        # each selector is of the one cluster
        assert text.count('cluster="prod"') == text.count("{")


USED_BY = st.sampled_from([TRAIN, MIG])
PERCENT = st.floats(0, 100, width=32) | st.just(float("nan"))


@given(st.lists(st.tuples(st.integers(0, 3), USED_BY, PERCENT), max_size=12), st.booleans())
def test_a_containers_use_is_the_sum_over_its_devices_of_the_highest_series(
    series: list[tuple[int, PodContainerRef, float]], honoured: bool
) -> None:
    (part,) = device_parts(Rates(30), {}, {NAMES[0]})
    query = RangeQuery((part,), TimeGrid(START, FIVE_MINUTES_SECONDS, 1))
    rows = [device(number, ref, honoured=honoured) for number, ref, _ in series]
    labels = tuple(
        Labels(**{"uuid" if k == "UUID" else "hostname" if k == "Hostname" else k: v for k, v in row.items()
                  if k not in ("pci_bus_id", "device", "modelName")})
        for row in rows
    )  # fmt: skip
    values = np.array([value for *_, value in series]).reshape(-1, 1)
    (usage,) = usages(query, Samples(labels, values, {}, len(series)), {}, 2)
    highest: dict[tuple[PodContainerRef, int], float] = {}
    for number, ref, value in series:
        highest[ref, number] = float(np.fmax(highest.get((ref, number), np.nan), value))
    for ref, row in zip(usage.usage.refs, usage.usage.values, strict=True):
        own = [value for (owner, _), value in highest.items() if owner == ref and not np.isnan(value)]
        assert row[0] == pytest.approx(sum(own), rel=1e-5) if own else np.isnan(row[0])
    assert set(usage.usage.refs) == {ref for _, ref, _ in series}
