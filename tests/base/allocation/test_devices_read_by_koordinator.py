"""Koordinator's own Go types read every form of devices that we write, without a field that they do not know."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.allocation.devices import (
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    RDMA,
    DeviceKind,
    DeviceShare,
    VirtualFunction,
    decode_allocations,
    encode_allocations,
)
from tests.cluster import binaries
from tests.enforcer.test_nvml import OTHER, T4, created, entry

EXAMPLE = Path(__file__).parents[3] / "deploy" / "examples" / "device.yaml"

amounts = st.dictionaries(st.sampled_from([GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, RDMA]), st.integers(0, 2**62))
shares = st.builds(
    DeviceShare,
    st.integers(0, 2**31 - 1),
    amounts,
    st.text(st.characters(codec="utf-8"), max_size=20),
    st.lists(st.builds(VirtualFunction, st.integers(0, 99), st.just("0000:1f:00.2")), max_size=2).map(tuple),
)
tables = st.dictionaries(st.sampled_from(DeviceKind), st.lists(shares, max_size=3).map(tuple), max_size=3)


def read_by_koordinator(kind: str, bodies: list[Any]) -> list[dict[str, Any]]:
    """What its types make of each body: {"body"} as they write it again, or {"error"}."""
    lines = "\n".join(json.dumps({"kind": kind, "body": body}) for body in bodies)
    command = [str(binaries.find(binaries.KOORDINATOR_TYPES))]
    answered = subprocess.run(command, input=lines, capture_output=True, text=True, check=True, timeout=60)
    return [json.loads(line) for line in answered.stdout.split("\n") if line]


@pytest.fixture(scope="module")
def reader() -> None:
    binaries.ensure([binaries.KOORDINATOR_TYPES])


@pytest.mark.soak
@pytest.mark.usefixtures("reader")
@given(st.lists(tables, min_size=1, max_size=50))
@settings(max_examples=20, deadline=None)
def test_what_it_reads_and_writes_again_is_what_we_wrote(allocated: list[Any]) -> None:
    answers = read_by_koordinator(
        "device-allocated", [json.loads(encode_allocations(allocations)) for allocations in allocated]
    )
    # it writes 18000 as "18k": the same amount, which is compared, not the text
    assert [decode_allocations(json.dumps(spec["body"])) for spec in answers] == allocated


@pytest.mark.soak
@pytest.mark.usefixtures("reader")
def test_percents_and_bytes_in_binary_suffixes_are_written_as_it_writes_them() -> None:
    share = DeviceShare(1, {GPU_CORE: 50, GPU_MEMORY: 8 << 30, GPU_MEMORY_RATIO: 50}, "GPU-1")
    body = json.loads(encode_allocations({DeviceKind.GPU: (share,)}))
    assert read_by_koordinator("device-allocated", [body]) == [{"body": body}]


@pytest.mark.soak
@pytest.mark.usefixtures("reader")
def test_it_reads_the_object_that_the_agent_writes_of_the_gpus_that_it_finds() -> None:
    body = created(entry(T4), entry(OTHER, problem="nvmlDeviceGetMemoryInfo: Unknown Error (999)"))
    (device_object,) = read_by_koordinator("Device", [body])
    assert [device["id"] for device in device_object["body"]["spec"]["devices"]] == ["GPU-aaaa", "GPU-bbbb"]


@pytest.mark.soak
@pytest.mark.usefixtures("reader")
def test_it_reads_the_example_of_a_device_and_names_a_field_that_it_does_not_know() -> None:
    example = yaml.safe_load(EXAMPLE.read_text())
    readable, other = read_by_koordinator("Device", [example, {**example, "more": 1}])
    assert readable["body"]["spec"]["devices"][0]["id"] == "GPU-0e6f4a1c"
    assert "more" in other["error"]
