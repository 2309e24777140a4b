"""Translation conserves amounts, renames old names and leaves alone what it cannot read."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.admission.resources import decimal_si, rename_legacy_resources, translate_resources, with_extended_spec
from cotenant.base.kubernetes.qos import PriorityClass
from cotenant.base.kubernetes.quantity import parse_bytes, parse_millicores

ANNOTATION = "node.koordinator.sh/extended-resource-spec"


def pod(**resources: Any) -> dict[str, Any]:
    return {"metadata": {}, "spec": {"containers": [{"name": "main", "resources": resources}]}}


def resources_of(body: dict[str, Any]) -> Any:
    return body["spec"]["containers"][0]["resources"]


def after(priority: PriorityClass, **resources: Any) -> Any:
    body = pod(**copy.deepcopy(resources))
    translate_resources(body, priority, overhead=False)
    return resources_of(body)


def test_batch_and_mid_pods_get_the_names_of_their_class() -> None:
    resources = {"requests": {"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": "1"}}
    assert after(PriorityClass.BATCH, **resources) == {
        "requests": {"nvidia.com/gpu": "1", "kubernetes.io/batch-cpu": "1500", "kubernetes.io/batch-memory": "1Gi"}
    }
    assert after(PriorityClass.MID, **resources) == {
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
    body = pod(requests={"cpu": "1"})
    body["spec"]["initContainers"] = [{"name": "init", "resources": {"requests": {"memory": "1Mi"}}}]
    body["spec"]["overhead"] = {"cpu": "100m"}
    warnings = translate_resources(body, PriorityClass.BATCH, overhead=False)
    assert body["spec"]["initContainers"][0]["resources"]["requests"] == {"kubernetes.io/batch-memory": "1Mi"}
    assert body["spec"]["overhead"] == {"cpu": "100m"}
    assert "RuntimeClass" in warnings[0]
    translate_resources(body, PriorityClass.BATCH, overhead=True)
    assert body["spec"]["overhead"] == {"kubernetes.io/batch-cpu": "100"}


@pytest.mark.parametrize(
    "requests",
    [{"cpu": "1e999999"}, {"cpu": "one"}, {"cpu": "1", "kubernetes.io/batch-cpu": "5"}],
    ids=["beyond the caps", "no quantity", "both names"],
)
def test_what_cannot_be_translated_stays_with_a_warning(requests: dict[str, str]) -> None:
    body = pod(requests=dict(requests))
    warnings = translate_resources(body, PriorityClass.BATCH, overhead=False)
    assert resources_of(body) == {"requests": requests}
    assert len(warnings) == 1 and "container main" in warnings[0]


def test_old_names_become_present_ones_in_requests_and_limits() -> None:
    old_names = {"koordinator.sh/batch-cpu": "1000", "koordinator.sh/batch-memory": "3456Mi"}
    body = pod(requests=dict(old_names), limits={"koordinator.sh/bach-cpu": "1000"})
    warnings = rename_legacy_resources(body)
    assert resources_of(body) == {
        "requests": {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "3456Mi"},
        "limits": {"kubernetes.io/batch-cpu": "1000"},
    }
    assert len(warnings) == 3


def test_an_old_name_beside_the_present_one_is_dropped() -> None:
    body = pod(requests={"koordinator.sh/batch-cpu": "1", "kubernetes.io/batch-cpu": "2"})
    assert "was dropped" in rename_legacy_resources(body)[0]
    assert resources_of(body)["requests"] == {"kubernetes.io/batch-cpu": "2"}


def test_the_annotation_lists_batch_resources_by_container() -> None:
    body = pod(requests={"kubernetes.io/batch-cpu": "1k", "cpu": "1"}, limits={"kubernetes.io/batch-memory": "1Gi"})
    body["spec"]["containers"].append({"name": "side"})
    assert with_extended_spec(body) == []
    assert json.loads(body["metadata"]["annotations"][ANNOTATION]) == {
        "containers": {
            "main": {"requests": {"kubernetes.io/batch-cpu": "1k"}, "limits": {"kubernetes.io/batch-memory": "1Gi"}}
        }
    }


def test_an_annotation_that_says_the_same_in_other_words_stays() -> None:
    body = pod(requests={"kubernetes.io/batch-cpu": "1k"})
    text = '{"containers": {"main": {"limits": {}, "requests": {"kubernetes.io/batch-cpu": "1000"}}}}'
    body["metadata"]["annotations"] = {ANNOTATION: text}
    with_extended_spec(body)
    assert body["metadata"]["annotations"][ANNOTATION] == text


def test_the_talks_annotation_becomes_the_limit_of_the_only_container() -> None:
    body = pod()
    body["metadata"]["annotations"] = {"koordinator.sh/resource-limit": '{"cpu": "5k"}'}
    assert "old name" in with_extended_spec(body)[0]
    assert json.loads(body["metadata"]["annotations"][ANNOTATION]) == {
        "containers": {"main": {"limits": {"kubernetes.io/batch-cpu": "5k"}}}
    }
    assert "koordinator.sh/resource-limit" not in body["metadata"]["annotations"]


def test_the_talks_annotation_is_dropped_where_it_fits_no_container() -> None:
    body = pod()
    body["spec"]["containers"].append({"name": "side"})
    body["metadata"]["annotations"] = {"koordinator.sh/resource-limit": '{"cpu": "5k"}'}
    assert "names no container" in with_extended_spec(body)[0]
    assert body["metadata"]["annotations"] == {}


@given(
    st.integers(0, 10**9),
    st.integers(0, 2**50),
    st.sampled_from(["requests", "limits"]),
    st.sampled_from([PriorityClass.BATCH, PriorityClass.MID]),
)
@settings(max_examples=100, deadline=None)
def test_amounts_are_conserved(millicores: int, memory: int, side: str, priority: PriorityClass) -> None:
    band = "batch" if priority is PriorityClass.BATCH else "mid"
    amounts = after(priority, **{side: {"cpu": f"{millicores}m", "memory": str(memory)}})[side]
    assert parse_bytes(amounts[f"kubernetes.io/{band}-cpu"]) == millicores
    assert parse_bytes(amounts[f"kubernetes.io/{band}-memory"]) == memory
    assert not {"cpu", "memory"} & amounts.keys()


@given(st.integers(0, 2**63 - 1))
@settings(max_examples=100, deadline=None)
def test_a_whole_number_is_written_as_the_server_does(amount: int) -> None:
    text = decimal_si(amount)
    assert parse_millicores(text) == min(amount * 1000, 2**63 - 1)
    assert not text.endswith("000")


def whole_pod(own: dict[str, Any], *containers: dict[str, Any], sidecars: int = 0) -> dict[str, Any]:
    """A batch pod after translation; own: spec.resources; containers: their resources, sidecars first."""
    all_containers = [
        {"name": f"c{i}", "resources": copy.deepcopy(resources)} for i, resources in enumerate(containers)
    ]
    inits = [{**container, "restartPolicy": "Always"} for container in all_containers[:sidecars]]
    spec = {
        "containers": all_containers[sidecars:],
        "resources": copy.deepcopy(own),
        **({"initContainers": inits} if inits else {}),
    }
    body: dict[str, Any] = {"metadata": {}, "spec": spec}
    body["warnings"] = translate_resources(body, PriorityClass.BATCH, overhead=False)
    return body


def batch_cpu(body: dict[str, Any], side: str) -> list[Any]:
    spec = body["spec"]
    both = [*spec["containers"], *spec.get("initContainers", ())]
    return [c["resources"].get(side, {}).get("kubernetes.io/batch-cpu") for c in both]


@pytest.mark.parametrize(
    ("own", "containers", "requests", "limits"),
    [
        # one container takes all of it
        ({"requests": {"cpu": "2"}, "limits": {"cpu": "3"}}, [{}], ["2k"], ["3k"]),
        # 2000 - 500 goes to the one that names nothing; of limits 4000 - (1000 + 1500) too
        (
            {"requests": {"cpu": "2"}, "limits": {"cpu": "4"}},
            [{"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}}, {}],
            ["500", "1500"],
            ["1k", "3k"],
        ),
        # two that name nothing share evenly; no pod limit, no limits
        ({"requests": {"cpu": "1001m"}}, [{}, {}], ["501", "500"], [None, None]),
        # only a limit: the request is the limit
        ({"limits": {"cpu": "1"}}, [{}, {}], ["500", "500"], ["500", "500"]),
        # all have limits: each grows up to its own, what nobody can use is left out
        (
            {"requests": {"cpu": "3"}},
            [{"requests": {"cpu": "1"}, "limits": {"cpu": "1500m"}}, {"limits": {"cpu": "1"}}],
            ["1500", "1k"],
            ["1500", "1k"],
        ),
    ],
)
def test_what_a_pod_asks_for_as_a_whole_is_shared_out_and_translated(
    own: Any, containers: list[Any], requests: list[Any], limits: list[Any]
) -> None:
    body = whole_pod(own, *containers)
    assert (batch_cpu(body, "requests"), batch_cpu(body, "limits")) == (requests, limits)
    assert "resources" not in body["spec"]
    assert "the pod's own cpu (spec.resources) was divided among its containers" in body["warnings"][0]


def test_huge_pages_of_a_pod_and_amounts_that_cannot_be_read_stay_where_they_are() -> None:
    own = {"requests": {"cpu": "much", "hugepages-2Mi": "4Mi"}, "limits": {"hugepages-2Mi": "4Mi"}}
    body = whole_pod(own, {})
    assert body["spec"]["resources"] == own
    assert "the pod-level cpu was not translated to batch or mid" in body["warnings"][0]


@given(
    pod_request=st.integers(0, 10_000),
    more=st.integers(0, 10_000),
    requests=st.lists(st.none() | st.integers(1, 2_000), min_size=1, max_size=4),
    sidecars=st.integers(0, 3),
)
@settings(max_examples=80, deadline=None)
def test_the_sum_of_a_pods_requests_and_its_bound_are_conserved(
    pod_request: int, more: int, requests: list[int | None], sidecars: int
) -> None:
    total = max(pod_request, sum(r or 0 for r in requests))
    own = {"requests": {"cpu": f"{total}m"}, "limits": {"cpu": f"{total + more}m"}}
    resources = [{"requests": {"cpu": f"{r}m"}} if r else {} for r in requests]
    body = whole_pod(own, *resources, sidecars=min(sidecars, len(resources) - 1))
    sums = [sum(parse_bytes(a or 0) for a in batch_cpu(body, side)) for side in ("requests", "limits")]
    assert sums == [total, total + more]
    pairs = zip(batch_cpu(body, "requests"), batch_cpu(body, "limits"), strict=True)
    assert all(parse_bytes(request or 0) <= parse_bytes(limit or 0) for request, limit in pairs)
