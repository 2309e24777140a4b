"""Any body at all gets an answer, and an answer to a review is one that the API server can use."""

from __future__ import annotations

import base64
import json
import random
import re
from typing import Any

import jsonpatch
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.admission.webhook_reviews import review, view
from cotenant.admission.review import ROUTES, ReviewContext, answer
from cotenant.admission.view import ClusterView

PYTHON = re.compile(r"<[A-Za-z]\w*\.\w+: |\bNone\b|\bNoneType\b|\bTrue\b|\bFalse\b|[{\[]'\w|\bdict\b")
"""What nobody writes in a manifest."""


def check(path: str, body: bytes, context: ReviewContext) -> None:
    """Status 200 or 400; a 200 answers this review with a patch that applies and that is empty when asked again."""
    review_response = answer(path, body, context)
    if review_response.status == 400:
        assert review_response.body.strip()
        return
    assert review_response.status == 200
    request = json.loads(body)["request"]
    document = json.loads(review_response.body)
    response = document["response"]
    assert (document["apiVersion"], document["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert response["uid"] == request["uid"]
    assert response["allowed"] or response["status"]["message"]
    for message in (response.get("status", {}).get("message", ""), *response.get("warnings", ())):
        assert not PYTHON.search(message)
    if "patch" in response:
        operations = json.loads(base64.b64decode(response["patch"]))
        after = jsonpatch.apply_patch(request["object"], operations)
        again = json.dumps({**json.loads(body), "request": {**request, "object": after}}).encode()
        assert "patch" not in json.loads(answer(path, again, context).body)["response"]


@pytest.mark.slow
@given(st.integers(0, 2**32))
@settings(max_examples=400, deadline=None)
def test_a_nearly_right_review_gets_a_usable_answer_and_twice_is_once(seed: int) -> None:
    draw = random.Random(seed)
    place = ("koordinator-system", "slo-controller-config")
    context = ReviewContext(view(draw), 1e9, record_key=b"k", config_place=place)
    check(*review(draw), context)


@given(st.sampled_from(sorted(ROUTES)), st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_answered_with_words(path: str, body: bytes) -> None:
    assert answer(path, body, ReviewContext(view(random.Random(1)))).status == 400


def test_a_path_that_is_not_ours_is_404() -> None:
    assert answer("/mutate-node", b"", ReviewContext(view(random.Random(1)))).status == 404


def test_a_quota_that_goes_with_its_whole_collection_is_asked_for_by_its_own_name() -> None:
    old = {"metadata": {"name": "team-a", "namespace": "shop"}, "spec": {"min": {"cpu": "1"}, "max": {"cpu": "1"}}}
    group = {"group": "scheduling.sigs.k8s.io", "version": "v1alpha1"}
    request = {"uid": "u", "operation": "DELETE", "resource": {**group, "resource": "elasticquotas"}, "oldObject": old}
    body: dict[str, Any] = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {**request, "name": ""},
    }
    context = ReviewContext(ClusterView(), pods_of_quota={"team-a": 3}.__getitem__)
    response = json.loads(answer("/validate-quota", json.dumps(body).encode(), context).body)["response"]
    assert not response["allowed"]
    assert "used by 3 pods" in response["status"]["message"]


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_a_misspelt_field_of_the_configuration_is_allowed_with_a_warning(operation: str) -> None:
    place = ("koordinator-system", "slo-controller-config")
    context = ReviewContext(view(random.Random(1)), config_place=place)
    data = {"colocation-config": '{"enable": true, "cpuReclaimTresholdPercent": 50}'}
    config_map = {"metadata": {"namespace": place[0], "name": place[1]}, "data": data}
    before = {**config_map, "data": {"colocation-config": '{"enable": true}'}} if operation == "UPDATE" else None
    kind = {"group": "", "version": "v1", "resource": "configmaps"}
    request = {"uid": "u", "resource": kind, "namespace": place[0], "name": place[1], "operation": operation}
    body: dict[str, Any] = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    body["request"] = {**request, "object": config_map, "oldObject": before}
    response = json.loads(answer("/validate-config", json.dumps(body).encode(), context).body)["response"]
    assert response["allowed"] is True
    (warning,) = response["warnings"]
    assert "cpuReclaimTresholdPercent: 50 is not a known field; do you mean cpuReclaimThresholdPercent?" in warning
