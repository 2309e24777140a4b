"""Names that are spelt almost like those of the protocol are told, with the right one, and no other name is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.admission.profile_record import RECORD_ANNOTATION
from cotenant.admission.review import ReviewContext, answer
from cotenant.admission.values.misspelt import (
    ANNOTATION_NAMES,
    ELSEWHERE,
    FIELDS,
    LABEL_NAMES,
    misspelt_keys,
    misspelt_on_pod,
)
from cotenant.admission.view import ClusterView
from cotenant.base.allocation.cpu_annotations import _NumaSpec, _ResourceSpec
from cotenant.base.allocation.device_request import HINT_ANNOTATION
from cotenant.base.json_documents.struct_validation import field_names
from cotenant.base.kubernetes import protocol
from cotenant.enforcer.model.node_policy import BlkioQos, CpuBurst, CpuQos, MemoryQos
from tests.admission.bodies import pod, quota
from tests.admission.serving import review_of

NAMES = sorted(LABEL_NAMES | ANNOTATION_NAMES)


def lines_of(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None) -> list[str]:
    body = pod("p", labels or {})
    body["metadata"]["annotations"] = annotations or {}
    return list(misspelt_on_pod(body))


@pytest.mark.parametrize("key", NAMES)
def test_a_known_name_is_told_only_in_the_wrong_place(key: str) -> None:
    for place, own, wrong in (("labels", LABEL_NAMES, "an annotation"), ("annotations", ANNOTATION_NAMES, "a label")):
        lines = list(misspelt_keys({place: {key: "{}"}}))
        if key in own:
            assert lines == []
        else:
            assert [line.partition(": ")[0] for line in lines] == [f"{place[:-1]} {key!r} is {wrong}"]


@pytest.mark.slow
@pytest.mark.parametrize("key", NAMES)
def test_a_name_in_another_spelling_is_told_with_the_right_one(key: str) -> None:
    domain, _, name = key.rpartition("/")
    spellings = {
        f"{domain}/{name.upper()}",
        f"{domain}/{name.replace('-', '')}",
        f"{domain}/{name.replace('-', '_')}",
        f"{domain}/{re.sub('([A-Z])', lambda m: '-' + m[1].lower(), name)}",
        f"{domain}/{name}s",
        f"{domain.replace('koordinator', 'kordinator').replace('cotenant', 'cotenent')}/{name}",
    }
    for spelt in spellings - set(NAMES):
        (line,) = misspelt_keys({"annotations": {spelt: "x"}})
        assert line.startswith(f"annotation {spelt!r}: do you mean ") and line.endswith(f"{key}?")


@pytest.mark.parametrize(
    ("spelt", "right"),
    [
        # Seen in issues and charts: the class in kebab case, the domain of another of Koordinator's names.
        ("koordinator.sh/qos-class", "koordinator.sh/qosClass"),
        ("koordinator.sh/QoSClass", "koordinator.sh/qosClass"),
        ("scheduling.koordinator.sh/qosClass", "koordinator.sh/qosClass"),
        ("koordinator.sh/priorityClass", "koordinator.sh/priority-class"),
        ("koordinator.sh/resource-spec", "scheduling.koordinator.sh/resource-spec"),
        ("gang.scheduling.koordinator.sh/min-avaliable", "gang.scheduling.koordinator.sh/min-available"),
        ("koordinator.sh/cpu-burst", "koordinator.sh/cpuBurst"),
        ("node.koordinator.sh/memoryQoS", "koordinator.sh/memoryQOS"),
        ("cotenant.dev/expected-run-second", "cotenant.dev/expected-run-seconds"),
    ],
)
def test_spellings_that_people_write_lead_to_the_name_that_is_meant(spelt: str, right: str) -> None:
    (line,) = lines_of({spelt: "x"})
    assert line == f"label {spelt!r}: do you mean {right}?"


def test_names_of_other_programs_and_of_nodes_are_left_alone() -> None:
    others = ("app.kubernetes.io/name", "qosClass", "example.com/qosClass", "koordinator.sh/team", "cotenant.dev/x")
    assert lines_of(dict.fromkeys((*others, *ELSEWHERE), "x")) == []


def test_no_name_that_the_product_itself_uses_is_taken_for_a_misspelling() -> None:
    root = Path(__file__).parents[2]
    own = set()
    for folder in ("admission", "base", "changes", "enforcer", "manager", "recommender", "scheduler_ext", "cotenant"):
        for file in (root / folder).rglob("*.py"):
            own |= set(
                re.findall(
                    r'"((?:[a-z]+\.)*(?:koordinator\.sh|cotenant\.dev)/[A-Za-z][A-Za-z0-9-]*)"', file.read_text()
                )
            )
    resources = {name for name in own if name in (*protocol.RESOURCE_ALIASES, *protocol.RESOURCE_ALIASES.values())}
    assert len(own) > 80
    # Each by itself: of one object only the first sixteen unknown names are compared.
    places = [(place, name) for name in sorted(own - resources) for place in ("labels", "annotations")]
    lines = [line for place, name in places for line in misspelt_keys({place: {name: "x"}})]
    assert [line for line in lines if "do you mean" in line] == []


def test_a_pod_that_a_profile_was_applied_to_gets_no_warning_of_the_record_of_it() -> None:
    assert lines_of(None, {RECORD_ANNOTATION: "{}"}) == []


@pytest.mark.parametrize(
    ("spelt", "right"),
    [
        ("kubernetes.io/batchcpu", "kubernetes.io/batch-cpu"),
        ("kubernetes.io/batch_memory", "kubernetes.io/batch-memory"),
        ("koordinator.sh/batch-cpus", "kubernetes.io/batch-cpu"),
        ("kubernetes.io/mid-mem0ry", "kubernetes.io/mid-memory"),
        ("koordinator.sh/gpucore", "koordinator.sh/gpu-core"),
        ("koordinator.sh/gpu-memory-ration", "koordinator.sh/gpu-memory-ratio"),
        ("nvidia.com/gpus", "nvidia.com/gpu"),
    ],
)
@pytest.mark.parametrize("side", ["requests", "limits"])
def test_a_resource_that_is_spelt_almost_like_a_known_one_is_told(spelt: str, right: str, side: str) -> None:
    body = pod()
    body["spec"]["containers"] = [{"name": "odd", "image": "x", "resources": {side: {spelt: "1", "cpu": "1"}}}]
    assert list(misspelt_on_pod(body)) == [f"container odd: {spelt!r}: do you mean {right}?"]


@pytest.mark.parametrize("name", ["amd.com/gpu", "hugepages-2Mi", "example.com/fpga-a10", "nvidia.com/mig-1g.5gb"])
def test_resources_of_others_are_left_alone(name: str) -> None:
    body = pod()
    body["spec"]["containers"] = [{"name": "fine", "image": "x", "resources": {"limits": {name: "1"}}}]
    assert list(misspelt_on_pod(body)) == []


FLAT = {key: fields for key, fields in FIELDS.items() if key != HINT_ANNOTATION}


@pytest.mark.parametrize(("key", "field"), [(key, field) for key, fields in FLAT.items() for field in sorted(fields)])
def test_a_field_of_an_annotation_is_told_exactly_when_it_is_misspelt(key: str, field: str) -> None:
    assert lines_of(None, {key: json.dumps({field: 1})}) == []
    for spelt in {f"{field}x", field.upper()} - set(FIELDS[key]):
        (line,) = lines_of(None, {key: json.dumps({spelt: 1})})
        assert line == f"{key}: {spelt!r}: do you mean {field}?"
    assert lines_of(None, {key: json.dumps({"comment": 1})}) == []


@pytest.mark.parametrize("field", FIELDS[HINT_ANNOTATION])
def test_a_field_of_an_object_in_an_annotation_is_told_too(field: str) -> None:
    (line,) = lines_of(None, {HINT_ANNOTATION: json.dumps({"gpu": {f"{field}s": 1, field: 2}})})
    assert line == f"{HINT_ANNOTATION}: gpu: '{field}s': do you mean {field}?"


def test_the_known_fields_are_those_that_are_read() -> None:
    # A class' policy is a plain switch in the node's policy; the annotation of memory names one by `policy` besides.
    for key, kind, more in (
        (protocol.RESOURCE_SPEC_ANNOTATION, _ResourceSpec, set()),
        (protocol.NUMA_SPEC_ANNOTATION, _NumaSpec, {"singleNUMANodeExclusive"}),
        (protocol.CPU_BURST_ANNOTATION, CpuBurst, set()),
        (protocol.CPU_QOS_ANNOTATION, CpuQos, set()),
        (protocol.MEMORY_QOS_ANNOTATION, MemoryQos, {"policy"}),
        (protocol.BLKIO_QOS_ANNOTATION, BlkioQos, set()),
    ):
        assert set(FIELDS[key]) == field_names(kind) | more


texts = st.text(max_size=30)


@given(
    st.dictionaries(
        st.one_of(texts, st.sampled_from(NAMES)), st.one_of(texts, st.sampled_from(["{}", '{"a": {}}', "[" * 5000]))
    ),
    st.dictionaries(texts, texts),
)
def test_whatever_the_names_and_values_are_each_line_is_one_line(
    labels: dict[str, str], resources: dict[str, str]
) -> None:
    body: dict[str, Any] = pod("p", labels)
    body["metadata"]["annotations"] = labels
    body["spec"]["containers"] = [{"name": "c", "resources": {"limits": resources, "requests": None}}]
    assert all("\n" not in line and len(line) < 400 for line in misspelt_on_pod(body))


def test_a_pod_with_thousands_of_unknown_names_is_looked_at_in_bounded_work() -> None:
    body: dict[str, Any] = pod("p", {f"koordinator.sh/qosClass{'s' * number}": "x" for number in range(1, 3000)})
    # Of the 16 that are compared, those with up to 4 letters more are alike: 2 x 8 / (8 + 8 + 4) = 0.8.
    assert len(list(misspelt_on_pod(body))) == 4


def test_the_webhooks_answers_carry_the_lines_for_pods_and_quotas() -> None:
    by_resource = {}
    for path, kind, body in (
        ("/mutate-pod", "pods", pod("p", {"koordinator.sh/qos-class": "BE"})),
        ("/mutate-quota", "elasticquotas", quota("q")),
    ):
        body["metadata"].setdefault("labels", {})["quota.scheduling.koordinator.sh/isparent"] = "true"
        document = json.loads(
            answer(path, json.dumps(review_of(kind, body)).encode(), ReviewContext(ClusterView())).body
        )
        by_resource[kind] = (document["response"]["allowed"], document["response"].get("warnings", []))
    name = "quota.scheduling.koordinator.sh/"
    wrong = f"label '{name}isparent': do you mean {name}is-parent?"
    assert all(allowed for allowed, _ in by_resource.values())
    assert wrong in by_resource["pods"][1] and wrong in by_resource["elasticquotas"][1]
    assert any("koordinator.sh/qosClass?" in line for line in by_resource["pods"][1])
