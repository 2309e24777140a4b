"""GPUs found through a library that speaks NVML, and the Device object that says so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.allocation.devices import DeviceKind, inventory_of
from cotenant.base.identity import NodeIdentity
from cotenant.base.kubernetes.intent import Create, Patch
from cotenant.enforcer.observe.nvml import Nvml, NvmlGpu, NvmlState, sysfs_bus
from cotenant.enforcer.observe.sysfs import PciPlace, pci_location
from cotenant.enforcer.report.device_writer import (
    DeviceMetrics,
    DiscoveryState,
    device_write,
    gpu_entry,
    is_made_by_agent,
    label_text,
)
from tests.enforcer.nvml import DRIVER_NOT_LOADED, GPU_LOST, FakeGpu, FakeNvml, fake_nvml

T4, OTHER = FakeGpu(0, "GPU-aaaa"), FakeGpu(1, "GPU-bbbb", "00000000:5E:00.0")
NODE = NodeIdentity("n1", "u1")


@pytest.fixture
def library(tmp_path: Path) -> FakeNvml:
    return fake_nvml(tmp_path)


@pytest.fixture
def nvml(library: FakeNvml) -> Iterator[Nvml]:
    own = Nvml(str(library.library))
    yield own
    own.close()


def test_gpus_are_read_with_name_number_memory_and_address(library: FakeNvml, nvml: Nvml) -> None:
    library.say([T4, FakeGpu(3, "GPU-cccc", "00000001:AF:00.0", 85_899_345_920, "NVIDIA A100-SXM4-80GB")])
    reading = nvml.read()
    assert (reading.state, reading.driver, reading.problem) == (NvmlState.READ, "550.54.15", "")
    assert reading.gpus == (
        NvmlGpu("GPU-aaaa", 0, "Tesla T4", 16_106_127_360, "0000:3b:00.0"),
        NvmlGpu("GPU-cccc", 3, "NVIDIA A100-SXM4-80GB", 85_899_345_920, "0001:af:00.0"),
    )
    library.say([T4])
    assert [gpu.uuid for gpu in nvml.read().gpus] == ["GPU-aaaa"]  # the next look, without a new start


def test_a_machine_without_the_library_and_one_without_the_driver_are_told_apart(
    library: FakeNvml, nvml: Nvml, tmp_path: Path
) -> None:
    absent = Nvml(str(tmp_path / "nothing.so")).read()
    assert (absent.state, absent.gpus) == (NvmlState.ABSENT, ())
    assert "nothing.so" in absent.problem
    library.say([T4], init_code=DRIVER_NOT_LOADED)
    failed = nvml.read()
    assert (failed.state, failed.gpus) == (NvmlState.FAILED, ())
    assert failed.problem == "nvmlInit_v2: Driver Not Loaded (9)"
    library.say([T4])
    assert nvml.read().state is NvmlState.READ  # the driver came later


def test_a_library_of_something_else_is_told_by_the_function_that_it_lacks() -> None:
    reading = Nvml("libc.so.6").read()
    assert (reading.state, reading.problem) == (
        NvmlState.FAILED,
        "nvmlInit_v2 is missing in the library: the driver is too old",
    )


def test_a_gpu_that_fails_keeps_the_others_and_says_why(library: FakeNvml, nvml: Nvml) -> None:
    library.say([T4, FakeGpu(1, "GPU-bbbb", handle_code=GPU_LOST), FakeGpu(2, "GPU-cccc", memory_code=999)])
    reading = nvml.read()
    assert reading.unnamed == ("GPU 1: nvmlDeviceGetHandleByIndex_v2: GPU is lost (15)",)
    assert [(gpu.uuid, gpu.problem) for gpu in reading.gpus] == [
        ("GPU-aaaa", ""),
        ("GPU-cccc", "nvmlDeviceGetMemoryInfo: Unknown Error (999)"),
    ]


@pytest.mark.parametrize(
    ("tells", "mode", "healthy"), [(True, 1, False), (True, 0, True), (True, -1, True), (False, 1, True)]
)
def test_a_gpu_in_mig_mode_is_not_offered_for_shares(tmp_path: Path, tells: bool, mode: int, healthy: bool) -> None:
    library = fake_nvml(tmp_path, tells_mig_mode=tells)
    library.say([FakeGpu(0, "GPU-aaaa", mig_mode=mode)])
    nvml = Nvml(str(library.library))
    (gpu,) = nvml.read().gpus
    nvml.close()
    assert gpu_entry(gpu, PciPlace(), "550.54.15")["health"] is healthy
    assert healthy or "MIG mode" in gpu.problem


# --- where a GPU sits -------------------------------------------------------------------------------------------------
def pci_tree(folder: Path, *way: str, numa_node: str = "1") -> Path:
    """A sysfs with one device at the end of a way of addresses."""
    device = folder.joinpath("devices", *way)
    device.mkdir(parents=True)
    (device / "numa_node").write_text(f"{numa_node}\n")
    links = folder / "bus/pci/devices"
    links.mkdir(parents=True)
    (links / way[-1]).symlink_to(device)
    return folder


def test_a_gpu_behind_a_switch_is_placed_by_the_switch_and_another_by_its_root_complex(tmp_path: Path) -> None:
    address = "0000:3d:00.0"
    switched = ("pci0000:3a", "0000:3a:00.0", "0000:3b:00.0", "0000:3c:08.0", address)
    assert pci_location(pci_tree(tmp_path / "a", *switched), address) == PciPlace(1, "0000:3b:00.0")
    direct = ("pci0000:3a", "0000:3a:00.0", address)
    assert pci_location(pci_tree(tmp_path / "b", *direct, numa_node="-1"), address) == PciPlace(-1, "pci0000:3a")
    assert pci_location(tmp_path / "c", address) == PciPlace()
    assert pci_location(tmp_path / "b", "") == PciPlace()


@given(st.integers(0, 0xFFFF), st.integers(0, 0xFF), st.integers(0, 0x1F))
def test_a_bus_address_is_written_as_sysfs_does(domain: int, bus: int, device: int) -> None:
    assert sysfs_bus(f"{domain:08X}:{bus:02X}:{device:02X}.0") == f"{domain:04x}:{bus:02x}:{device:02x}.0"


@given(st.text(max_size=100))
def test_any_text_gives_a_label_that_kubernetes_takes(text: str) -> None:
    assert re.fullmatch(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?", label_text(text))
    assert sysfs_bus(text) == "" or ":" in text


# --- the object -------------------------------------------------------------------------------------------------------
def entry(gpu: FakeGpu, problem: str = "") -> dict[str, Any]:
    read = NvmlGpu(gpu.uuid, gpu.minor, gpu.name, gpu.memory_bytes, sysfs_bus(gpu.bus), problem)
    return gpu_entry(read, PciPlace(1, "0000:3a:00.0"), "550.54.15")


def created(*gpus: dict[str, Any]) -> dict[str, Any]:
    intent = device_write(gpus, NODE, None)
    assert isinstance(intent, Create)
    return {**intent.body, "metadata": {**intent.body["metadata"], "resourceVersion": "7"}}


def patched(gpus: list[dict[str, Any]], current: dict[str, Any]) -> list[dict[str, Any]]:
    """The devices that a patch of the object leaves."""
    intent = device_write(gpus, NODE, current)
    assert isinstance(intent, Patch)
    assert intent.operations[0] == {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}
    devices: list[dict[str, Any]] = intent.operations[1]["value"]["devices"]
    return devices


def test_the_allocator_reads_the_object_as_the_gpus_that_nvml_listed() -> None:
    body = created(entry(T4), entry(OTHER, problem="nvmlDeviceGetMemoryInfo: Unknown Error (999)"))
    assert is_made_by_agent(body)
    assert body["metadata"]["ownerReferences"][0]["uid"] == "u1"
    first, second = inventory_of(body).devices
    assert (first.kind, first.minor, first.id, first.healthy) == (DeviceKind.GPU, 0, "GPU-aaaa", True)
    assert (first.memory_bytes, first.numa_node, first.pcie) == (T4.memory_bytes, 1, "0000:3a:00.0")
    assert first.labels == {"model": "Tesla-T4", "driver": "550.54.15"}
    assert not second.healthy


def test_nothing_is_written_where_nothing_is_new_or_no_gpu_ever_was() -> None:
    assert device_write([entry(T4)], NODE, created(entry(T4))) is None
    assert device_write([], NODE, None) is None


def test_a_gpu_that_went_away_is_told_unhealthy_and_others_devices_stay() -> None:
    card = {"type": "rdma", "id": "mlx5_0", "minor": 0, "health": True}
    current = created(entry(T4), entry(OTHER))
    current["spec"]["devices"].append(card)
    devices = patched([entry(T4)], current)
    assert [(device["id"], device["health"]) for device in devices] == [
        ("GPU-aaaa", True), ("GPU-bbbb", False), ("mlx5_0", True),
    ]  # fmt: skip
    # with the whole library gone nothing is healthy, and that is written once
    lost = patched([], current)
    assert [gpu["health"] for gpu in lost if gpu["type"] == "gpu"] == [False, False]
    assert device_write([], NODE, {**current, "spec": {"devices": lost}}) is None


def test_a_replaced_gpu_takes_the_number_of_the_old_one() -> None:
    devices = patched([entry(FakeGpu(0, "GPU-new"))], created(entry(T4)))
    assert [device["id"] for device in devices] == ["GPU-new"]


@given(st.lists(st.integers(0, 5), unique=True), st.lists(st.integers(0, 5), unique=True))
def test_what_is_written_is_read_back_and_then_written_no_more(before: list[int], now: list[int]) -> None:
    def listed(minors: list[int]) -> list[dict[str, Any]]:
        return [entry(FakeGpu(minor, f"GPU-{minor}")) for minor in minors]

    if not before:
        assert (device_write(listed(now), NODE, None) is None) == (not now)
        return
    current = created(*listed(before))
    intent = device_write(listed(now), NODE, current)
    devices = intent.operations[1]["value"]["devices"] if isinstance(intent, Patch) else current["spec"]["devices"]
    inventory = inventory_of({**current, "spec": {"devices": devices}})
    assert {device.minor for device in inventory.devices if device.healthy} == set(now)
    assert {device.minor for device in inventory.devices} == set(before) | set(now)
    assert device_write(listed(now), NODE, {**current, "spec": {"devices": devices}}) is None


def test_prometheus_is_told_how_far_the_search_got() -> None:
    families = {f.name: f.samples for f in DeviceMetrics(lambda: (DiscoveryState.ABSENT, 3, 1)).collect()}
    assert [(s.labels, s.value) for s in families["cotenant_enforcer_gpu_discovery"]] == [({"state": "nvml-absent"}, 1)]
    assert {s.labels["health"]: s.value for s in families["cotenant_enforcer_gpus"]} == {"healthy": 3, "unhealthy": 1}
