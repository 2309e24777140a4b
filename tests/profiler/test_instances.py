"""Which node a scraped target is, whatever its address looks like."""

from __future__ import annotations

from ipaddress import IPv6Address

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.identity import NodeRef
from cotenant.base.usage.usage import Signal, TimeGrid
from cotenant.profiler.prometheus import decode
from cotenant.profiler.prometheus.clusters import host_of
from cotenant.profiler.prometheus.parts import Rates, usage_parts
from cotenant.profiler.prometheus.plan import RangeQuery


@pytest.mark.parametrize(
    ("instance", "host"),
    [
        ("[fd00::1]:10250", "fd00::1"),
        ("[fd00::1]", "fd00::1"),
        ("fd00::1", "fd00::1"),
        ("fd00:0:0:0:0:0:0:1", "fd00::1"),
        ("[FD00::00AB]:10250", "fd00::ab"),
        ("[fe80::1%eth0]:10250", "fe80::1%eth0"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("10.0.0.1:10250", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.1"),
        ("node-1.example.com:9100", "node-1.example.com"),
        ("node-1", "node-1"),
        ("", ""),
    ],
)
def test_the_host_of_an_instance_is_its_name_or_address_alone(instance: str, host: str) -> None:
    assert host_of(instance) == host


@given(st.integers(0, 2**128 - 1).map(IPv6Address), st.integers(1, 65_535))
def test_every_way_to_write_an_address_is_one_host(address: IPv6Address, port: int) -> None:
    written = {str(address), address.exploded, address.exploded.upper(), f"[{address}]:{port}", f"[{address.exploded}]"}
    assert len({host_of(text) for text in written}) == 1


@pytest.mark.parametrize("instance", ["[FD00::1]:10250", "fd00:0::1", "[fd00::1]"])
def test_usage_of_a_node_that_is_named_by_its_ipv6_address_is_the_nodes(instance: str) -> None:
    part = next(p for p in usage_parts(Rates(60), {}, False) if Signal.NODE_CPU_USAGE_MEAN in p.signals)
    query = RangeQuery((part,), TimeGrid(0, 300, 2))
    result = [{"metric": {"id": "/", "instance": instance}, "values": [[300, "1.5"], [600, "2"]]}]
    samples = decode.samples(msgspec.Raw(msgspec.json.encode(result)), query)
    (usage,) = decode.usages(query, samples, {"fd00::1": "node-1"}, 0)
    assert usage.usage.refs == (NodeRef("node-1"),)
    # 1.5 and 2 cores are 1,500 and 2,000 millicores.
    np.testing.assert_array_equal(usage.usage.values, [[1500, 2000]])
