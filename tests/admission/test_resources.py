"""Translation conserves amounts, renames old names and leaves alone what it cannot read."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.resources import decimal_si, renamed, translated, with_extended_spec
from cotenant.model.qos import PriorityClass
from cotenant.model.quantity import parse_bytes, parse_millicores

ANNOTATION = "node.koordinator.sh/extended-resource-spec"


def pod(**resources: Any) -> dict[str, Any]:
    return {"metadata": {}, "spec": {"containers": [{"name": "main", "resources": resources}]}}


def resources_of(found: dict[str, Any]) -> Any:
    return found["spec"]["containers"][0]["resources"]


def after(priority: PriorityClass, **resources: Any) -> Any:
    found = pod(**copy.deepcopy(resources))
    translated(found, priority, overhead=False)
    return resources_of(found)


def test_batch_and_mid_pods_get_the_names_of_their_class() -> None:
    asked = {"requests": {"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": "1"}}
    assert after(PriorityClass.BATCH, **asked) == {
        "requests": {"nvidia.com/gpu": "1", "kubernetes.io/batch-cpu": "1500", "kubernetes.io/batch-memory": "1Gi"}
    }
    assert after(PriorityClass.MID, **asked) == {
        "requests": {"nvidia.com/gpu": "1", "kubernetes.io/mid-cpu": "1500", "kubernetes.io/mid-memory": "1Gi"}
    }


@pytest.mark.parametrize("priority", [PriorityClass.PROD, PriorityClass.FREE, PriorityClass.NONE])
def test_other_classes_keep_cpu_and_memory(priority: PriorityClass) -> None:
    assert after(priority, requests={"cpu": "1"}) == {"requests": {"cpu": "1"}}


def test_a_missing_request_becomes_the_limit() -> None:
    assert after(PriorityClass.BATCH, limits={"cpu": "2"}) == {
        "limits": {"kubernetes.io/batch-cpu": "2k"},
        "requests": {"kubernetes.io/batch-cpu": "2k"},
    }


def test_init_containers_are_translated_and_overhead_only_when_asked() -> None:
    found = pod(requests={"cpu": "1"})
    found["spec"]["initContainers"] = [{"name": "init", "resources": {"requests": {"memory": "1Mi"}}}]
    found["spec"]["overhead"] = {"cpu": "100m"}
    warnings = translated(found, PriorityClass.BATCH, overhead=False)
    assert found["spec"]["initContainers"][0]["resources"]["requests"] == {"kubernetes.io/batch-memory": "1Mi"}
    assert found["spec"]["overhead"] == {"cpu": "100m"}
    assert "RuntimeClass" in warnings[0]
    translated(found, PriorityClass.BATCH, overhead=True)
    assert found["spec"]["overhead"] == {"kubernetes.io/batch-cpu": "100"}


@pytest.mark.parametrize(
    "requests",
    [{"cpu": "1e999999"}, {"cpu": "one"}, {"cpu": "1", "kubernetes.io/batch-cpu": "5"}],
    ids=["beyond the caps", "no quantity", "both names"],
)
def test_what_cannot_be_translated_stays_with_a_warning(requests: dict[str, str]) -> None:
    found = pod(requests=dict(requests))
    warnings = translated(found, PriorityClass.BATCH, overhead=False)
    assert resources_of(found) == {"requests": requests}
    assert len(warnings) == 1 and "container main" in warnings[0]


def test_old_names_become_present_ones_in_requests_and_limits() -> None:
    asked = {"koordinator.sh/batch-cpu": "1000", "koordinator.sh/batch-memory": "3456Mi"}
    found = pod(requests=dict(asked), limits={"koordinator.sh/bach-cpu": "1000"})
    warnings = renamed(found)
    assert resources_of(found) == {
        "requests": {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "3456Mi"},
        "limits": {"kubernetes.io/batch-cpu": "1000"},
    }
    assert len(warnings) == 3


def test_an_old_name_beside_the_present_one_is_dropped() -> None:
    found = pod(requests={"koordinator.sh/batch-cpu": "1", "kubernetes.io/batch-cpu": "2"})
    assert "was dropped" in renamed(found)[0]
    assert resources_of(found)["requests"] == {"kubernetes.io/batch-cpu": "2"}


def test_the_annotation_lists_batch_resources_by_container() -> None:
    found = pod(requests={"kubernetes.io/batch-cpu": "1k", "cpu": "1"}, limits={"kubernetes.io/batch-memory": "1Gi"})
    found["spec"]["containers"].append({"name": "side"})
    assert with_extended_spec(found) == []
    assert json.loads(found["metadata"]["annotations"][ANNOTATION]) == {
        "containers": {
            "main": {"requests": {"kubernetes.io/batch-cpu": "1k"}, "limits": {"kubernetes.io/batch-memory": "1Gi"}}
        }
    }


def test_an_annotation_that_says_the_same_in_other_words_stays() -> None:
    found = pod(requests={"kubernetes.io/batch-cpu": "1k"})
    text = '{"containers": {"main": {"limits": {}, "requests": {"kubernetes.io/batch-cpu": "1000"}}}}'
    found["metadata"]["annotations"] = {ANNOTATION: text}
    with_extended_spec(found)
    assert found["metadata"]["annotations"][ANNOTATION] == text


def test_the_talks_annotation_becomes_the_limit_of_the_only_container() -> None:
    found = pod()
    found["metadata"]["annotations"] = {"koordinator.sh/resource-limit": '{"cpu": "5k"}'}
    assert "old name" in with_extended_spec(found)[0]
    assert json.loads(found["metadata"]["annotations"][ANNOTATION]) == {
        "containers": {"main": {"limits": {"kubernetes.io/batch-cpu": "5k"}}}
    }
    assert "koordinator.sh/resource-limit" not in found["metadata"]["annotations"]


def test_the_talks_annotation_is_dropped_where_it_fits_no_container() -> None:
    found = pod()
    found["spec"]["containers"].append({"name": "side"})
    found["metadata"]["annotations"] = {"koordinator.sh/resource-limit": '{"cpu": "5k"}'}
    assert "fits no container" in with_extended_spec(found)[0]
    assert found["metadata"]["annotations"] == {}


@given(
    st.integers(0, 10**9),
    st.integers(0, 2**50),
    st.sampled_from(["requests", "limits"]),
    st.sampled_from([PriorityClass.BATCH, PriorityClass.MID]),
)
@settings(max_examples=100, deadline=None)
def test_amounts_are_conserved(millicores: int, memory: int, side: str, priority: PriorityClass) -> None:
    band = "batch" if priority is PriorityClass.BATCH else "mid"
    found = after(priority, **{side: {"cpu": f"{millicores}m", "memory": str(memory)}})[side]
    assert parse_bytes(found[f"kubernetes.io/{band}-cpu"]) == millicores
    assert parse_bytes(found[f"kubernetes.io/{band}-memory"]) == memory
    assert not {"cpu", "memory"} & found.keys()


@given(st.integers(0, 2**63 - 1))
@settings(max_examples=100, deadline=None)
def test_a_whole_number_is_written_as_the_server_does(amount: int) -> None:
    text = decimal_si(amount)
    assert parse_millicores(text) == min(amount * 1000, 2**63 - 1)
    assert not text.endswith("000")
