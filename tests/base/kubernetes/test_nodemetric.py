"""NodeMetric from the API's JSON: what is read, and that one bad part hides nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.colocation.nodemetric import HostApplicationMetric, NodeMetric, PodMetric
from cotenant.base.errors import ClusterInvalid
from cotenant.base.kubernetes.qos import PriorityClass
from cotenant.base.resource import GIB, Resource

CPU, MEMORY = Resource.CPU, Resource.MEMORY


def usage(cpu: str, memory: str = "0") -> dict[str, Any]:
    return {"resources": {"cpu": cpu, "memory": memory}}


def test_all_parts_of_a_report_are_read() -> None:
    body = {
        "metadata": {"name": "n"},
        "status": {
            "updateTime": "2023-11-14T22:13:20Z",
            "nodeMetric": {"nodeUsage": usage("2", "1Gi"), "systemUsage": usage("250m")},
            "podsMetric": [{"namespace": "ns", "name": "p", "podUsage": usage("1500m"), "priority": "koord-batch"}],
            "hostApplicationMetric": [{"name": "nginx", "usage": usage("1"), "priority": "koord-prod"}],
            "prodReclaimableMetric": {"resource": usage("3")},
        },
    }
    metric = NodeMetric.parse(body)
    assert metric == NodeMetric(
        "n",
        1_700_000_000,
        {CPU: 2000, MEMORY: GIB},
        {CPU: 250, MEMORY: 0},
        (PodMetric("ns", "p", {CPU: 1500, MEMORY: 0}, PriorityClass.BATCH),),
        (HostApplicationMetric("nginx", {CPU: 1000, MEMORY: 0}, PriorityClass.PROD),),
        {CPU: 3000, MEMORY: 0},
    )


def test_a_report_that_was_never_filled_has_no_time_and_no_usage() -> None:
    assert NodeMetric.parse({"metadata": {"name": "n"}}) == NodeMetric("n", None)


def test_a_bad_quantity_is_left_out_alone_and_noted() -> None:
    pods = [{"namespace": "ns", "name": "p", "podUsage": usage("1e999999", "5")}]
    metric = NodeMetric.parse({"metadata": {"name": "n"}, "status": {"podsMetric": pods, "updateTime": "yesterday"}})
    assert metric.pods[0].usage == {MEMORY: 5}
    assert metric.update_seconds is None
    assert len(metric.notes) == 2 and "ns/p" in metric.notes[0] and "yesterday" in metric.notes[1]


@pytest.mark.parametrize("body", [{}, {"metadata": None}, {"metadata": {"name": 3}}, {"metadata": {"name": ""}}])
def test_a_report_without_a_name_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(ClusterInvalid, match="name"):
        NodeMetric.parse(body)


KEYS = ["nodeMetric", "nodeUsage", "resources", "cpu", "podsMetric", "podUsage", "updateTime", "priority", "usage"]
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["1", "2Gi"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@given(any_json)
@settings(max_examples=150, deadline=None)
def test_no_status_breaks_the_reader(status: Any) -> None:
    metric = NodeMetric.parse({"metadata": {"name": "n"}, "status": status})
    assert all(amount >= 0 for pod in metric.pods for amount in pod.usage.values())
